r"""Addition: two numbers of up to n decimal digits.

.. math:: a_{n-1} \dots a_0 \;+\; b_{n-1} \dots b_0 \;= \;\to\; c_n \dots c_0,
   \qquad c = a + b

Both numbers are drawn alike from 0 … 10ⁿ − 1 and written with n digits, the sum with n + 1, zeros
in front kept: every digit of the sum then has one place in each addend that it depends on, and a
carry. Written with the most significant digit first, the first digit of the sum depends on all;
with the least significant first, a digit needs no later one.
"""

from __future__ import annotations

from typing import Literal

import torch

from ropewalk.lab.task import Batch, Exact, Form, TaskSpec, answered, register

PLUS, EQUALS = 10, 11
ORDERS = ("most", "least", "answer")


class Addition(Exact):
    """n digits, plus, n digits, equals, n + 1 digits.

    Args:
        order: ``"answer"``: numbers are written with the most significant digit first, as usual,
            and the sum with the least significant first (Lee et al., 2023), which small models
            learn soonest; ``"least"``: all three so (McLeish et al., 2024); ``"most"``: none.

    Raises:
        ValueError: another order.
    """

    form = Form(classes=10, vocabulary=12)

    def __init__(self, order: Literal["most", "least", "answer"] = "answer") -> None:
        if order not in ORDERS:
            raise ValueError(f"order={order!r} must be one of {', '.join(ORDERS)}")
        self.order = order

    def tokens(self, length: int) -> int:
        """3n + 2: the last digit of the sum is never read."""
        return 3 * length + 2

    def examples(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """``rows`` sums of two numbers of ``length`` digits."""
        a, b = torch.randint(10, (2, rows, length), generator=generator)
        c = total(a, b)
        if self.order != "least":
            a, b = a.flip(1), b.flip(1)
        if self.order == "most":
            c = c.flip(1)
        plus, equals = (torch.full((rows, 1), mark) for mark in (PLUS, EQUALS))
        return answered(torch.cat([a, plus, b, equals], 1), c)


def total(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Digits ``[B, n + 1]`` of a + b from those ``[B, n]`` of each, least significant first."""
    digits, carry = [], torch.zeros_like(a[:, 0])
    for column in (a + b).unbind(1):
        digits.append((column + carry) % 10)
        carry = (column + carry) // 10
    return torch.stack([*digits, carry], 1)


register(
    TaskSpec(
        name="addition",
        factory=Addition,
        title="the sum of two numbers, digit by digit",
        source="The Impact of Positional Encoding on Length Generalization (Kazemnejad et al., "
        "2023), Addition",
        usual={"train_length": 4, "lengths": (4, 8), "steps": 4000, "batch": 64},
    )
)
