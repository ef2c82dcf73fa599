r"""Copy: write down again what was read.

.. math:: s_1 \dots s_n \;\# \;\to\; s_1 \dots s_n

The symbols are drawn alike and independently, so that no symbol foretells another: a model has to
find the place, n + 1 tokens back at every step, or the token that followed the last ones before.
No end mark is asked for: when to stop is another question than where to look.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.lab.task import Batch, Exact, Form, TaskSpec, answered, register
from ropewalk.spectra.arguments import check_int


class Copy(Exact):
    """n symbols, a separator, the same n symbols.

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
        return answered(torch.cat([text, separator], 1), self.answer(text))

    def answer(self, text: Tensor) -> Tensor:
        """What is asked of symbols ``[B, n]``: the same."""
        return text


register(
    TaskSpec(
        name="copy",
        factory=Copy,
        title="the same symbols once more",
        source="The Impact of Positional Encoding on Length Generalization (Kazemnejad et al., "
        "2023), Copy",
        usual={"train_length": 20, "lengths": (20, 40), "steps": 2000},
    )
)
