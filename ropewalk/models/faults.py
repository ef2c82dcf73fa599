"""Why a model cannot be loaded, in a sentence for each kind of fault.

A config that is no config, an architecture that transformers does not know, weights that are cut
off or of other shapes and a tokenizer that is missing all end in an exception of transformers; what
it says is put in words of where the fault is.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from ropewalk.configs import resolve
from ropewalk.models.folder import Found
from ropewalk.models.said import said

MOST = 300
"""Characters of somebody else's words."""
TOKENIZERS = ("tokenizer.*", "vocab*", "*.model", "*.tiktoken", "tekken.json", "merges.txt")
"""Names of files that a tokenizer is made of."""


def config_fault(found: Found, error: Exception, known: Any) -> ValueError:
    """Why no config, or no model, is made of the config; ``known`` has the types of transformers.

    A type that is known leaves the values: what explain says of them names the key, as the words
    of ``error`` may not.
    """
    kind, where = found.config.get("model_type"), _where(found)
    if found.gguf is not None and _unreadable(found.file):
        return weights_fault(found, error)
    if found.gguf is not None or (isinstance(kind, str) and kind in known):
        why = f"{where} is unusable: {_explained(found) or said(error, MOST)}"
    elif "auto_map" in found.config:
        why = (
            f"{where} needs code from the folder (auto_map), which is never run, and transformers "
            f"itself does not know model_type {kind!r}"
        )
    elif kind is None:
        why = f"{where} has no model_type, so its architecture is unknown; add the right one"
    else:
        why = (
            f"{where} has model_type {kind!r}, an architecture that this version of transformers "
            "does not know; correct it, or upgrade transformers"
        )
    return ValueError(f"{found.source} cannot be loaded: {why}")


def weights_fault(found: Found, error: Exception) -> ValueError:
    """Why weights cannot be read, with the file that is broken."""
    name = found.gguf or _broken(Path(found.folder))
    which = "its weights" if name is None else f"the weights in {name}"
    return ValueError(
        f"{found.source} cannot be loaded: {which} cannot be read: {said(error, MOST)}"
    )


def tokenizer_fault(found: Found, error: Exception) -> ValueError:
    """Whether there is no tokenizer or one that cannot be read, and why."""
    folder = Path(found.folder)
    if found.gguf is None and not any(any(folder.glob(name)) for name in TOKENIZERS):
        why = "there is no tokenizer.json, nor any other file of one"
    else:
        why = f"its files cannot be read: {said(error, MOST)}"
    return ValueError(
        f"{found.source} has no usable tokenizer: {why}; save one there with "
        "tokenizer.save_pretrained"
    )


def require_complete(source: str, missing: Iterable[str]) -> None:
    """Refuse a model that would run with weights that nothing gave.

    Raises:
        ValueError: a name is missing.
    """
    lacking = sorted(missing)
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise ValueError(
            f"{source} lacks the weights {lacking[0]}{more}: what would run is not the model; give "
            "a complete folder"
        )


def require_shapes(source: str, mismatched: Iterable[tuple[str, Any, Any]]) -> None:
    """Refuse weights whose shapes are not those that the config says.

    Raises:
        ValueError: there is one, as (name, its shape, the shape of the config).
    """
    wrong = sorted(mismatched, key=lambda each: each[0])
    if wrong:
        (name, stored, wanted), more = wrong[0], f", and {len(wrong) - 1} more"
        raise ValueError(
            f"{source} has weights of other shapes than its config says: {name} is "
            f"{tuple(stored)}, the config makes it {tuple(wanted)}{more if len(wrong) > 1 else ''};"
            " give the config that belongs to them"
        )


def unbuilt(cls: Any, config: Any) -> Exception | None:
    """What is raised where a model is built of ``config`` alone, without memory for weights."""
    try:
        with torch.device("meta"):
            getattr(cls, "from_config", cls)(config)
    except Exception as error:  # whatever a class of somebody else's raises
        return error
    return None


def _where(found: Found) -> str:
    return "its config.json" if found.gguf is None else f"the config in {found.gguf}"


def _explained(found: Found) -> str | None:
    """The first error that explain finds in the config."""
    try:
        errors = resolve(str(found.file)).errors
    except (ValueError, TypeError, OSError):
        return None
    return f"{errors[0].code}, {errors[0].message}; {errors[0].remedy}" if errors else None


def _unreadable(path: Path) -> bool:
    """Whether a GGUF file whose keys are whole ends before its weights do."""
    try:
        from gguf import GGUFReader
    except ImportError:
        raise ImportError(
            "reading the weights of a GGUF file needs gguf: pip install 'ropewalk[models]'"
        ) from None
    try:
        GGUFReader(path)
    except Exception:  # whatever it raises
        return True
    return False


def _broken(folder: Path) -> str | None:
    """The first file of weights whose header cannot be read."""
    from safetensors import safe_open

    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt"):
                pass
        except Exception:  # whatever it raises, the file is the one
            return path.name
    return None
