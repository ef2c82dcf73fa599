r"""Indexing: the symbol at a signed offset from another, which stands in the string once.

.. math:: s_1 \dots s_n \; c \; \delta \;\to\; s_{j+\delta}, \qquad s_j = c

"Which letter is 3 to the left of Z in ABSCOPZG?" The source symbol c must be found by content alone
and the answer by offset alone; a score that mixes the two, as the product of rotated queries and
keys does, has to take them apart first. c occurs once, other symbols as chance has it.
"""

from __future__ import annotations

import torch

from ropewalk.lab.task import IGNORED, Batch, Exact, Form, TaskSpec, register
from ropewalk.spectra.arguments import check_int


class Indexing(Exact):
    """A string of n symbols, the source symbol, an offset; one answer, at the last token.

    The source's place is drawn alike from 1 … n, the offset from those that stay in the string:
    −``farthest`` … ``farthest`` without 0.

    Args:
        farthest: the largest offset.
        symbols: number of different ones.

    Raises:
        TypeError, ValueError: one is no whole number, or too small.
    """

    shortest = 2

    def __init__(self, farthest: int = 15, symbols: int = 52) -> None:
        self.farthest = check_int("farthest", farthest, at_least=1, at_most=1 << 20)
        self.symbols = check_int("symbols", symbols, at_least=2, at_most=1 << 20)
        self.form = Form(classes=symbols, vocabulary=symbols + 2 * farthest)

    def tokens(self, length: int) -> int:
        """n + 2: the string, the source and the offset."""
        return length + 2

    def examples(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """``rows`` strings of ``length`` symbols."""
        source = torch.randint(self.symbols, (rows, 1), generator=generator)
        place = torch.randint(length, (rows, 1), generator=generator)
        others = torch.randint(self.symbols - 1, (rows, length), generator=generator)
        text = others + (others >= source)  # any symbol but the source
        text = text.scatter(1, place, source)
        left = place.clamp(max=self.farthest)
        right = (length - 1 - place).clamp(max=self.farthest)
        step = torch.rand(rows, 1, dtype=torch.float64, generator=generator)
        offset = (step * (left + right)).long() - left
        offset = offset + (offset >= 0)  # −left … −1, 1 … right
        word = self.symbols + offset + self.farthest - (offset > 0).long()
        inputs = torch.cat([text, source, word], 1)
        targets = torch.full_like(inputs, IGNORED)
        targets[:, -1:] = text.gather(1, place + offset)
        return Batch(inputs, targets)


register(
    TaskSpec(
        name="indexing",
        factory=Indexing,
        title="the symbol at an offset from another",
        source="Decoupling the What and Where With Polar Coordinate Positional Embeddings "
        "(Gopalakrishnan et al., 2025), indirect indexing",
        usual={"train_length": 20, "lengths": (20, 40), "steps": 2000},
    )
)
