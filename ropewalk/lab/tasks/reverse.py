r"""Reverse: write down backwards what was read.

.. math:: s_1 \dots s_n \;\# \;\to\; s_n \dots s_1

The place to look at lies 1 token back at the first step and two further back at each next one, so
no fixed offset answers: unlike in copying, the offset itself has to be worked out.
"""

from __future__ import annotations

import torch

from ropewalk.lab.task import Batch, Exact, Form, TaskSpec, answered, register
from ropewalk.spectra.arguments import check_int


class Reverse(Exact):
    """n symbols, a separator, the n symbols from the last to the first.

    Args:
        symbols: number of different ones; the separator is one more id.

    Raises:
        TypeError, ValueError: ``symbols`` is no whole number of 2 or more.
    """

    def __init__(self, symbols: int = 32) -> None:
        self.symbols = check_int("symbols", symbols, at_least=2, at_most=1 << 20)
        self.form = Form(classes=symbols, vocabulary=symbols + 1)

    def tokens(self, length: int) -> int:
        """2n: the last symbol of the answer is never read."""
        return 2 * length

    def examples(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """``rows`` strings of ``length`` symbols."""
        text = torch.randint(self.symbols, (rows, length), generator=generator)
        separator = torch.full((rows, 1), self.symbols)
        return answered(torch.cat([text, separator], 1), text.flip(1))


register(
    TaskSpec(
        name="reverse",
        factory=Reverse,
        title="the same symbols backwards",
        source="The Impact of Positional Encoding on Length Generalization (Kazemnejad et al., "
        "2023), Reverse",
        usual={"train_length": 20, "lengths": (20, 40), "steps": 4000, "batch": 32},
    )
)
