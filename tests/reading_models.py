"""Tiny models with a tokenizer of characters, saved as folders, for tests that read text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

CHARACTERS = [chr(code) for code in range(32, 127)]
SMALL: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # Large weights: at the usual .02 a random model hardly looks at positions.
    "initializer_range": 0.4,
}


def made(name: str = "LlamaConfig", **changes: Any) -> Any:
    """A random causal language model of transformers, the same each time, in eval mode."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, name)(**{**SMALL, **changes})
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def save(folder: Path, model: Any = None, bos: bool = False) -> Path:
    """A folder with the model and a tokenizer of one token a character."""
    import tokenizers

    kinds: Any = tokenizers
    (model or made()).save_pretrained(folder)
    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {c: i + 3 for i, c in enumerate(CHARACTERS)}
    tokenizer = kinds.Tokenizer(kinds.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = kinds.pre_tokenizers.Split("", "isolated")
    if bos:
        tokenizer.post_processor = kinds.processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special})
    )
    return folder
