"""What every reader of a model needs: a limit, missing extras by name, errors in one line."""

from __future__ import annotations

import importlib
from typing import Any

MAX_TOKENS = 512


def check_length(count: int) -> None:
    """Refuse more than ``MAX_TOKENS`` tokens.

    Raises:
        ValueError: there are more.
    """
    if count > MAX_TOKENS:
        raise ValueError(f"text has {count:,} tokens; at most {MAX_TOKENS} are read, so shorten it")


def one_line(error: BaseException) -> str:
    """The words of an error in one line of at most 200 characters."""
    words = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
    return words if len(words) <= 200 else words[:197] + "..."


def need(module: str, model: str) -> Any:
    """An optional module, imported.

    Raises:
        ValueError: it is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ValueError(
            f"model {model!r} needs {module}, which is not installed: "
            "pip install 'ropewalk[models]'"
        ) from None
