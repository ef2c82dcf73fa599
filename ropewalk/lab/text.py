r"""The character task: read the next character of plays, and how many bits it costs.

.. math:: \text{bits}(n, i) = -\operatorname{mean}_w \log_2 P(c_{w,i+1} \mid c_{w,0} \dots c_{w,i}),
   \qquad 0 \le i < n

over windows w of n characters, averaged over runs of positions i. The windows of every length end
at the same places, so *the last run of every length scores the very same characters*, given more of
what came before them: what differs between lengths is the context and nothing else.

The default text is four plays of Shakespeare inside the package (see ``data/NOTICE-text``): three
to train on, one whole play, never trained on, to score.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

import torch
from torch import Tensor
from torch.nn import functional

ALPHABET = "\n" + "".join(chr(code) for code in range(32, 127))
"""Newline and printable ASCII; a character's place here is its id."""

TRAINING = ("macbeth", "midsummer", "tempest")
VALIDATION = ("errors",)
STRIDE = 512
"""Characters between the ends of two scored windows."""
TOKENS_AT_ONCE = 4096

Model = Callable[[Tensor], Tensor]

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


@dataclass(frozen=True)
class Characters:
    """Text to train on and text to score, as ids.

    Args:
        training: int64 ``[characters]``.
        validation: int64 ``[characters]``.
    """

    training: Tensor
    validation: Tensor
    vocabulary: int = len(ALPHABET)

    def batch(self, generator: torch.Generator, rows: int, length: int) -> Tensor:
        """Random windows of the training text, ``[rows, length + 1]``: inputs and one more.

        Raises:
            ValueError: the text is shorter than a window.
        """
        last = len(self.training) - length
        if last < 1:
            raise ValueError(
                f"length={length} needs {length + 1} characters of training text; "
                f"there are {len(self.training)}"
            )
        starts = torch.randint(last, (rows, 1), generator=generator)
        return self.training[starts + torch.arange(length + 1)]

    def windows(self, length: int, longest: int) -> Tensor:
        """All scored windows, ``[W, length + 1]``; their ends depend on ``longest`` alone.

        Raises:
            ValueError: the text is shorter than the longest window.
        """
        ends = torch.arange(longest, len(self.validation), STRIDE)
        if not 1 <= length <= longest or not len(ends):
            raise ValueError(
                f"length={length}, longest={longest}: need 1 ≤ length ≤ longest and longest + 1 "
                f"characters of validation text; there are {len(self.validation)}"
            )
        return self.validation[ends[:, None] + torch.arange(-length, 1)]

    def bits(self, model: Model, length: int, longest: int, run: int) -> list[float]:
        """Mean bits per character in each run of ``run`` positions of windows of ``length``.

        Args:
            model: ids ``[B, T]`` → logits ``[B, T, vocabulary]``.
            length: n; a multiple of ``run``.
            longest: the longest n of the comparison.
            run: positions averaged together.

        Returns:
            ``length // run`` numbers; the last is that of the characters scored at every length.
        """
        if run < 1 or length % run:
            raise ValueError(f"length={length} must be a multiple of run={run}")
        rows = self.windows(length, longest)
        total = torch.zeros(length, dtype=torch.float64)
        with torch.no_grad():
            for part in rows.split(max(1, TOKENS_AT_ONCE // length)):
                total += nats(model, part).sum(0)
        return (total / len(rows) / math.log(2)).view(-1, run).mean(1).tolist()


def nats(model: Model, windows: Tensor) -> Tensor:
    """−ln P of every next character of ``[B, n + 1]``, float64 ``[B, n]``."""
    logits = model(windows[:, :-1]).to(torch.float64)
    return functional.cross_entropy(logits.mT, windows[:, 1:], reduction="none")


def plays() -> Characters:
    """The packaged plays: ``TRAINING`` and ``VALIDATION``, whole works each."""
    return Characters(
        encode("".join(map(play, TRAINING))),
        encode("".join(map(play, VALIDATION))),
    )
