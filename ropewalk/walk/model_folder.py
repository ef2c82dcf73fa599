"""Token embeddings of a text from a model's own files: a folder, or what the hub has of it.

Only the configuration, the tokenizer and the needed rows of the safetensors file that holds the
input embeddings are read; never a pickle, never code from the folder. Every failure is a one-line
ValueError that names the file, what is wrong and what would be right.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.walk.reading import check_length, need, one_line

if TYPE_CHECKING:
    import torch

_MOST_JSON = 64 << 20
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)
_INPUT_EMBEDDINGS = (
    "embed_tokens.weight",
    "wte.weight",
    "word_embeddings.weight",
    "tok_embeddings.weight",
    "embed_in.weight",
    "shared.weight",
    "token_embedding.weight",
    "word_embedding.weight",
    "embeddings.weight",
)


def read_folder(text: str, folder: Path, source: str) -> tuple[list[str], list[int], torch.Tensor]:
    """Readable tokens, their ids, and float64 embeddings ``[tokens, D]``.

    Raises:
        ValueError: a file is missing, damaged or does not belong to the others.
    """
    if not folder.is_dir():
        raise ValueError(f"model {source!r}: is a file; give the model's folder")
    try:
        config = _json_object(folder / "config.json")
        ids, tokens = _tokenised(text, folder, source)
        if not ids:
            raise ValueError(
                "its tokenizer makes no token of the text; give another text, or save the "
                "tokenizer again"
            )
        check_length(len(ids))
        rows = _folder_rows(folder, ids, source)
        _check_usable(rows, config)
    except (OSError, ValueError) as error:
        words = one_line(error)
        raise ValueError(words if source in words else f"model {source!r}: {words}") from None
    return tokens, ids, rows


def _regular(path: Path) -> Path:
    """``path`` if it is a regular file that can be read to its end.

    Raises:
        ValueError: it is missing, or a folder, pipe or device.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"{path.name}: {reason}; give a folder saved by save_pretrained") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path.name} is not a regular file; save the model again")
    return path


def _json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of moderate size."""
    if _regular(path).stat().st_size > _MOST_JSON:
        raise ValueError(f"{path.name} is larger than {_MOST_JSON >> 20} MB; no configuration is")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not valid JSON ({one_line(error)}); mend it") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} must hold a JSON object, not {type(value).__name__}")
    return value


def _tokenised(text: str, folder: Path, source: str) -> tuple[list[int], list[str]]:
    """Token ids and readable tokens; by tokenizer.json alone where there is one."""
    if (folder / "tokenizer.json").exists() or (folder / "tokenizer.json").is_symlink():
        path = _regular(folder / "tokenizer.json")
        try:
            tokenizer = need("tokenizers", source).Tokenizer.from_file(str(path))
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            pieces = [tokenizer.id_to_token(i) or "" for i in ids]
            return ids, [
                _readable(tokenizer.decode([i], skip_special_tokens=False), piece)
                for i, piece in zip(ids, pieces, strict=True)
            ]
        except Exception as error:  # the reader's own exception class is plain Exception
            raise ValueError(
                f"tokenizer.json cannot be used ({one_line(error)}); save it again with "
                "tokenizer.save_pretrained"
            ) from None
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise ValueError(
            "no tokenizer (such as tokenizer.json); save it there with tokenizer.save_pretrained"
        )
    transformers = need("transformers", source)
    transformers.logging.set_verbosity_error()
    try:
        slow = transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        ids = slow(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids, [
            _readable(slow.decode([i], skip_special_tokens=False), slow.convert_ids_to_tokens(i))
            for i in ids
        ]
    except Exception as error:  # whatever a damaged folder makes the reader raise
        raise ValueError(
            f"its tokenizer or configuration cannot be used ({one_line(error)}); code in a folder "
            "is never run; save it again with tokenizer.save_pretrained"
        ) from None


def _check_usable(rows: torch.Tensor, config: dict[str, Any]) -> None:
    """Refuse embeddings that say nothing, or that are not those of the configuration."""
    width, wanted = rows.shape[1], config.get("hidden_size")
    if not bool(rows.isfinite().all()) or float(rows.abs().max() if rows.numel() else 0) > 1e30:
        raise ValueError("its embeddings hold nan, inf or absurd values; the weights are damaged")
    if width < 4 or width % 2:
        raise ValueError(f"its embeddings have width {width}; the walk needs an even width ≥ 4")
    if not bool((rows.norm(dim=1) > 1e-30).all()):
        raise ValueError("its embedding of a token is zero; the weights are not trained")
    embedding_size = config.get("embedding_size", wanted)
    if isinstance(wanted, int) and width not in (wanted, embedding_size):
        raise ValueError(
            f"its embeddings have width {width}, config.json says hidden_size {wanted}; they do "
            "not belong together"
        )


def _readable(token: str, piece: str) -> str:
    """A token as text; a piece that begins a word keeps its space."""
    return f" {token}" if piece.startswith("▁") and not token.startswith(" ") else token


def input_embedding_key(keys: Iterable[str]) -> str | None:
    """The name of the input embeddings among the tensor names of a checkpoint, None without."""
    for name in _INPUT_EMBEDDINGS:
        found = [key for key in keys if key == name or key.endswith(f".{name}")]
        if found:
            return min(found, key=lambda key: (len(key), key))
    return None


def _weight_files(folder: Path) -> list[Path]:
    """The safetensors files that belong to the model: the index's, or the one, or all."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        shards = _json_object(index).get("weight_map")
        if not isinstance(shards, dict):
            raise ValueError(f"{index.name} has no weight_map; save the model again")
        shard = shards.get(input_embedding_key(shards) or "")
        if not isinstance(shard, str):
            raise ValueError(f"{index.name} names no input embeddings (such as embed_tokens)")
        if Path(shard).name != shard:
            raise ValueError(f"{index.name} points outside the folder, to {shard!r}")
        return [_regular(folder / shard)]
    whole = folder / "model.safetensors"
    if whole.exists() or whole.is_symlink():
        return [_regular(whole)]
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        others = [n for n in ("pytorch_model.bin", "*.gguf") if any(folder.glob(n))]
        also = f" ({', '.join(others)} is there, and pickles and GGUF are not read)"
        raise ValueError(
            f"no .safetensors file{also if others else ''}; save the model with save_pretrained"
        )
    return [_regular(path) for path in found]


def _folder_rows(folder: Path, ids: list[int], source: str) -> torch.Tensor:
    import torch

    safetensors = need("safetensors", source)
    distinct = sorted(set(ids))
    for path in _weight_files(folder):
        try:
            with safetensors.safe_open(path, framework="pt") as stored:
                key = input_embedding_key(list(stored.keys()))
                if key is None:
                    continue
                table = stored.get_slice(key)
                shape = table.get_shape()
                if len(shape) != 2:
                    raise ValueError(f"{key} has shape {shape}, not [tokens, width]")
                if distinct[-1] >= shape[0]:
                    raise ValueError(
                        f"{key} has {shape[0]} rows and the tokenizer asks for row {distinct[-1]}: "
                        "tokenizer and model do not belong together"
                    )
                rows = torch.cat([table[i : i + 1] for i in distinct])
        except (OSError, ValueError, safetensors.SafetensorError) as error:
            raise ValueError(
                f"{path.name} cannot be read ({one_line(error)}); save the model again with "
                "save_pretrained"
            ) from None
        if not rows.is_floating_point():
            raise ValueError(f"{key} in {path.name} holds {rows.dtype}; give an unquantised model")
        return rows.double()[[distinct.index(i) for i in ids]]
    raise ValueError(
        "no input embeddings in any .safetensors file (such as embed_tokens.weight); save the "
        "model with save_pretrained"
    )


def fetch(model: str) -> Path:
    """Fetch the configuration, tokenizer and embedding shard of a hub model; return the folder."""
    download: Callable[..., str] = need("huggingface_hub", model).snapshot_download
    try:
        folder = Path(download(model, allow_patterns=["*.json", "*.model", "*.txt"]))
        index, weights = folder / "model.safetensors.index.json", "model.safetensors"
        if index.is_file():
            shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            weights = shards.get(input_embedding_key(shards), weights)
        download(model, allow_patterns=[weights], revision=folder.name)
    except Exception as error:  # network, cache, permission and format errors of several libraries
        raise ValueError(
            f"model {model!r} is no folder here and cannot be fetched from the hub "
            f"({one_line(error)}); give a local folder, or allow the network (HF_HUB_OFFLINE)"
        ) from None
    return folder
