r"""Previous: the token before, read by a model that sees both sides.

.. math:: y_i = x_{i-1}, \qquad 1 \le i < n

Under a causal mask this is ``back`` with k = 1, which the mask alone helps to answer. Here there is
no mask, so nothing but the encoding tells the token before from the token after: a bias that is the
same on both sides cannot, however long it is trained.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from ropewalk.lab.task import IGNORED, Batch, ExactByPlace, Form, TaskSpec, register
from ropewalk.spectra.arguments import check_int


class Previous(ExactByPlace):
    """n tokens, each asked for the one before it; the first asks nothing.

    Args:
        symbols: number of different tokens.

    Raises:
        TypeError, ValueError: ``symbols`` is no whole number of 2 or more.
    """

    shortest = 2

    def __init__(self, symbols: int = 32) -> None:
        self.symbols = check_int("symbols", symbols, at_least=2, at_most=1 << 20)
        self.form = Form(classes=symbols, vocabulary=symbols, causal=False)

    def examples(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """``rows`` sequences of ``length`` tokens."""
        x = torch.randint(self.symbols, (rows, length), generator=generator)
        return Batch(x, functional.pad(x[:, :-1], (1, 0), value=IGNORED))


register(
    TaskSpec(
        name="previous",
        factory=Previous,
        title="the token before, with both sides in sight",
        source="the previous-token head (Elhage et al., 2021), without its causal mask",
        usual={"train_length": 32, "lengths": (32, 64, 128), "steps": 500},
    )
)
