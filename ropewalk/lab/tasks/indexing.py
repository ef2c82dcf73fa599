r"""Indexing: the symbol at a signed offset from another, which stands in the string once.

.. math:: s_1 \dots s_n \; c_1 \delta_1 \dots c_m \delta_m, \qquad
   s_j = c_i \;\Rightarrow\; \delta_i \to s_{j+\delta_i}

"Which letter is 3 to the left of Z in ABSCOPZG?" The source symbol c must be found by content alone
and the answer by offset alone; a score that mixes the two, as the product of rotated queries and
keys does, has to take them apart first. The paper asks one question a string. Several are
asked here, each for itself and its answer not shown, so that a string teaches more. It is hard all
the same: two layers of width 64 had not learned it after 1,500 steps of 16 strings.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.lab.task import (
    IGNORED,
    Batch,
    ExactByPlace,
    Form,
    TaskSpec,
    register,
    shuffled,
)
from ropewalk.spectra.arguments import check_int


class Indexing(ExactByPlace):
    """A string of n symbols, then m pairs of a source symbol and an offset, asked at the offset.

    Sources stand once in the string, each at a place drawn alike from 1 … n; the offset is drawn
    from those that stay in the string: −``farthest`` … ``farthest`` without 0. All other symbols
    are drawn alike from those that are no source, and may repeat.

    Args:
        farthest: the largest offset.
        symbols: number of different ones; more than ``questions``.
        questions: m; lengths are at least that, and at least 2.

    Raises:
        TypeError, ValueError: one is no whole number, or too small.
    """

    def __init__(self, farthest: int = 3, symbols: int = 32, questions: int = 8) -> None:
        self.farthest = check_int("farthest", farthest, at_least=1, at_most=1 << 20)
        self.questions = check_int("questions", questions, at_least=1, at_most=1 << 20)
        self.symbols = check_int("symbols", symbols, at_least=questions + 1, at_most=1 << 20)
        self.shortest = max(2, questions)
        self.form = Form(classes=symbols, vocabulary=symbols + 2 * farthest)

    def tokens(self, length: int) -> int:
        """n + 2m."""
        return length + 2 * self.questions

    def examples(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """``rows`` strings of ``length`` symbols."""
        m = self.questions
        symbols = shuffled(generator, rows, self.symbols)
        sources = symbols[:, :m]
        places = shuffled(generator, rows, length)[:, :m]
        others = torch.randint(m, self.symbols, (rows, length), generator=generator)
        text = symbols.gather(1, others).scatter(1, places, sources)
        offsets = self._offsets(generator, places, length)
        words = self.symbols + self.farthest + offsets - (offsets > 0).long()
        inputs = torch.cat([text, torch.stack([sources, words], 2).flatten(1)], 1)
        targets = torch.full_like(inputs, IGNORED)
        targets[:, length + 1 :: 2] = text.gather(1, places + offsets)
        return Batch(inputs, targets)

    def _offsets(self, generator: torch.Generator, places: Tensor, length: int) -> Tensor:
        """An offset for each place, alike from those that stay in the string."""
        left = places.clamp(max=self.farthest)
        right = (length - 1 - places).clamp(max=self.farthest)
        drawn = torch.rand(places.shape, dtype=torch.float64, generator=generator)
        step = (drawn * (left + right)).long() - left
        return step + (step >= 0)  # −left … −1, 1 … right


register(
    TaskSpec(
        name="indexing",
        factory=Indexing,
        title="the symbol at an offset from another",
        source="Decoupling the What and Where With Polar Coordinate Positional Embeddings "
        "(Gopalakrishnan et al., 2025), indirect indexing, several questions a string",
        usual={"train_length": 16, "lengths": (16, 32), "steps": 2000},
    )
)
