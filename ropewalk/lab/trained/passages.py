"""Passages of public-domain text as a model's own tokens.

Four plays of Shakespeare come with the package (see ``data/NOTICE-text``); own files may be given.
A model may have met a text in training, so compare methods on it, not models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ropewalk.lab.text import TRAINING, VALIDATION, play

PLAYS = TRAINING + VALIDATION
COUNT = 3
"""Passages that are read if nobody says how many."""
START = 0.25
"""Where in a text a passage begins, as a share, so that titles and casts are passed over."""


@dataclass(frozen=True)
class Passage:
    """``ids`` int64 ``[tokens]``, of which the first ``before`` are what the model expects before
    any text."""

    name: str
    ids: Tensor
    before: int = 0


def passages(
    tokenizer: Any, length: int, *, count: int = COUNT, files: Sequence[Path] = ()
) -> list[Passage]:
    """Passages of ``length`` tokens: of the first ``count`` plays, or one of each file.

    Raises:
        ValueError: a text is too short or no text, or there are fewer than ``count`` plays.
    """
    if not files and not 1 <= count <= len(PLAYS):
        raise ValueError(f"count={count} must be from 1 to {len(PLAYS)}; or give files of your own")
    texts = [(str(file), _read(file)) for file in files] or [(n, play(n)) for n in PLAYS[:count]]
    before = _expected_before(tokenizer)
    return [
        Passage(name, _cut(tokenizer, name, text, before, length), len(before))
        for name, text in texts
    ]


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ValueError(f"text {file}: {words}; give a readable text file") from None


def _cut(tokenizer: Any, name: str, text: str, before: list[int], length: int) -> Tensor:
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    wanted = length - len(before)
    if len(ids) < wanted:
        raise ValueError(
            f"text {name} has {len(ids):,} tokens, {wanted:,} are needed; give longer files, or "
            "measure a shorter length"
        )
    start = min(int(START * len(ids)), len(ids) - wanted)
    return torch.tensor([*before, *ids[start : start + wanted]], dtype=torch.int64)


def _expected_before(tokenizer: Any) -> list[int]:
    """The beginning token, if the tokenizer puts one before a text."""
    bos = getattr(tokenizer, "bos_token_id", None)
    first = tokenizer("a", verbose=False)["input_ids"][:1]
    return [bos] if bos is not None and first == [bos] else []
