"""Texts as ids: four plays of Shakespeare inside the package (see ``data/NOTICE-text``).

Three to train on and one whole play, never trained on, to score.
"""

from __future__ import annotations

from importlib import resources

import torch
from torch import Tensor

ALPHABET = "\n" + "".join(chr(code) for code in range(32, 127))
"""Newline and printable ASCII; a character's place here is its id."""

TRAINING = ("macbeth", "midsummer", "tempest")
VALIDATION = ("errors",)

_ID = {character: i for i, character in enumerate(ALPHABET)}


def encode(text: str) -> Tensor:
    """The ids of ``text``, int64 ``[characters]``.

    Raises:
        ValueError: a character is outside ``ALPHABET``.
    """
    try:
        return torch.tensor([_ID[character] for character in text], dtype=torch.int64)
    except KeyError as error:
        raise ValueError(
            f"text holds {error.args[0]!r} at character {text.index(error.args[0])}; the character "
            "task reads newline and printable ASCII: replace it"
        ) from None


def play(name: str) -> str:
    """A packaged play.

    Raises:
        ValueError: there is no such play.
    """
    known = TRAINING + VALIDATION
    if name not in known:
        raise ValueError(f"unknown play {name!r}; known: {', '.join(known)}")
    file = resources.files("ropewalk") / "data" / "plays" / f"{name}.txt"
    return file.read_text(encoding="ascii")


def plays() -> tuple[Tensor, Tensor]:
    """Ids of the plays to train on and of those to score, whole works each."""
    training, validation = ("".join(map(play, names)) for names in (TRAINING, VALIDATION))
    return encode(training), encode(validation)
