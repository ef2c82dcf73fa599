r"""Back: at each place, the token k places back.

.. math:: y_i = x_{i-k}, \qquad k \le i < n

The tokens are drawn alike and independently: only their place tells which one is asked for. It is
what the property ``learnable`` is about: the steps a model needs until 99 % of the places are
right. All places ask the same, so the score is the share of places, not of whole sequences.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from ropewalk.lab.task import IGNORED, Batch, ExactByPlace, Form, TaskSpec, register
from ropewalk.spectra.arguments import check_int


class Back(ExactByPlace):
    """n tokens, each asked for the one k before it; the first k ask nothing.

    Args:
        k: how far back, at least 0; lengths are at least k + 1.
        symbols: number of different tokens.

    Raises:
        TypeError, ValueError: ``k`` or ``symbols`` is no whole number, or too small.
    """

    def __init__(self, k: int = 3, symbols: int = 32) -> None:
        self.k = check_int("k", k, at_least=0)
        self.symbols = check_int("symbols", symbols, at_least=2, at_most=1 << 20)
        self.shortest = k + 1
        self.form = Form(classes=symbols, vocabulary=symbols)

    def examples(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """``rows`` sequences of ``length`` tokens."""
        x = torch.randint(self.symbols, (rows, length), generator=generator)
        return Batch(x, functional.pad(x[:, : length - self.k], (self.k, 0), value=IGNORED))


register(
    TaskSpec(
        name="back",
        factory=Back,
        title="the token k places back",
        source="attention to a fixed offset; what the property learnable asks",
        usual={"train_length": 32, "lengths": (32, 64, 128), "steps": 500},
    )
)
