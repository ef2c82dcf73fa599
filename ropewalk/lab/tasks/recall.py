r"""Recall: which value came with this key?

.. math:: k_1 v_1 \dots k_n v_n \; q_1 \dots q_n, \qquad q_i = k_j \;\to\; v_j

Keys differ from one another within an example; values are drawn alike and independently. Then each
key is asked for once, in any order; the answers are not shown, so the queries stand side by side.
The key has to be found by content, its value one place after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from ropewalk.lab.task import IGNORED, Batch, ExactByPlace, Form, TaskSpec, register, shuffled
from ropewalk.spectra.arguments import check_int


class Recall(ExactByPlace):
    """n pairs of a key and a value, then the n keys in any order, each asked for its value.

    Args:
        keys: number of different ones; lengths are at most that.
        values: number of different ones; their ids come after those of the keys.

    Raises:
        TypeError, ValueError: one is no whole number, or too small.
    """

    def __init__(self, keys: int = 64, values: int = 64) -> None:
        self.keys = check_int("keys", keys, at_least=1, at_most=1 << 20)
        self.values = check_int("values", values, at_least=2, at_most=1 << 20)
        self.form = Form(classes=values, vocabulary=keys + values)

    def tokens(self, length: int) -> int:
        """3n: a pair is two tokens, its query one."""
        return 3 * length

    def check(self, train_length: int, lengths: Sequence[int]) -> None:
        """Raise ValueError where there are fewer keys than pairs."""
        super().check(train_length, lengths)
        for name, n in (("train_length", train_length), ("lengths", max(lengths))):
            if n > self.keys:
                raise ValueError(
                    f"{name}={n} pairs need {n} different keys, and there are keys={self.keys}: "
                    f"give keys={n} or more, or fewer pairs"
                )

    def examples(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """``rows`` examples of ``length`` pairs."""
        keys = shuffled(generator, rows, self.keys)[:, :length]
        values = torch.randint(self.values, (rows, length), generator=generator)
        asked = shuffled(generator, rows, length)
        pairs = torch.stack([keys, values + self.keys], 2).flatten(1)
        inputs = torch.cat([pairs, keys.gather(1, asked)], 1)
        answers = values.gather(1, asked)
        return Batch(inputs, functional.pad(answers, (2 * length, 0), value=IGNORED))


register(
    TaskSpec(
        name="recall",
        factory=Recall,
        title="the value that came with a key",
        source="Zoology: Measuring and Improving Recall in Efficient Language Models (Arora et "
        "al., 2023), multi-query associative recall",
        usual={"train_length": 16, "lengths": (16, 32, 64), "steps": 2000},
    )
)
