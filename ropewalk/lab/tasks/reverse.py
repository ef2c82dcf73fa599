r"""Reverse: write down backwards what was read.

.. math:: s_1 \dots s_n \;\# \;\to\; s_n \dots s_1

The place to look at lies 1 token back at the first step and two further back at each next one, so
no fixed offset answers: unlike in copying, the offset itself has to be worked out.
"""

from __future__ import annotations

from torch import Tensor

from ropewalk.lab.task import TaskSpec, register
from ropewalk.lab.tasks.copy import Copy


class Reverse(Copy):
    """n symbols, a separator, the n symbols from the last to the first; arguments as in Copy."""

    def answer(self, text: Tensor) -> Tensor:
        """What is asked of symbols ``[B, n]``: the last first."""
        return text.flip(1)


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
