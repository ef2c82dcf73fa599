r"""Digits: which digit is it, on a grid of another size than the one trained on?

A picture of 8 × 8 pixels is resized to n × n, bilinearly between pixel centers, and every pixel is
a token: its grey value goes in, its row and column are its position. The mean over the tokens gives
one answer. What is read at another n is the same picture, at other places:

.. math:: x_{ij} = \operatorname{bilinear}\big(\text{picture},\;
   (i + \tfrac12) \tfrac 8n - \tfrac12,\; (j + \tfrac12) \tfrac 8n - \tfrac12\big)

The last quarter of the pictures, in the order of the data set, is never trained on.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn import functional

from ropewalk.lab.task import Batch, ExactByPlace, Form, TaskSpec, register
from ropewalk.positions.builders import grid

HELD_OUT = 4
"""One in so many pictures is held out: the last ones."""


class Digits(ExactByPlace):
    """scikit-learn's 1,797 hand-written digits; needs the extra ``vision``.

    Training pictures have the training length exactly, as many tokens each as its square.

    Raises:
        ValueError: scikit-learn is missing.
    """

    unit = "share of pictures read rightly"
    form = Form(classes=10, channels=1, causal=False, axes=2, pooled=True)

    def __init__(self) -> None:
        pictures, labels = load()
        last = len(pictures) - len(pictures) // HELD_OUT
        self.training = pictures[:last], labels[:last]
        self.held_out = pictures[last:], labels[last:]

    def tokens(self, length: int) -> int:
        """n²."""
        return length * length

    def grid(self, length: int) -> tuple[int, int]:
        """n × n."""
        return length, length

    def batch(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """Training pictures at ``length`` exactly."""
        return self.examples(generator, rows, length)

    def examples(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """``rows`` training pictures, each drawn from all."""
        pictures, labels = self.training
        drawn = torch.randint(len(pictures), (rows,), generator=generator)
        return _asked(pictures[drawn], labels[drawn], length)

    def scored_examples(self, length: int) -> Batch:
        """All pictures that are held out."""
        return _asked(*self.held_out, length)


@functools.cache
def load() -> tuple[Tensor, Tensor]:
    """Pictures ``[1797, 8, 8]``, grey from 0 to 1, and their digits.

    Raises:
        ValueError: scikit-learn is missing.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ValueError(
            f"task digits needs scikit-learn ({error}); pip install 'ropewalk[vision]'"
        ) from error
    pictures, labels = load_digits(return_X_y=True)
    grey = torch.tensor(pictures, dtype=torch.float32).view(-1, 8, 8) / 16
    return grey, torch.tensor(labels, dtype=torch.int64)


def resized(pictures: Tensor, side: int) -> Tensor:
    """Pictures ``[B, H, W]`` as ``[B, side, side]``, bilinearly between pixel centers."""
    size = (side, side)
    return functional.interpolate(pictures[:, None], size, mode="bilinear", align_corners=False)[
        :, 0
    ]


def _asked(pictures: Tensor, labels: Tensor, side: int) -> Batch:
    return Batch(resized(pictures, side).flatten(1)[..., None], labels[:, None], grid(side, side))


register(
    TaskSpec(
        name="digits",
        factory=Digits,
        title="hand-written digits at another resolution",
        source="Rotary Position Embedding for Vision Transformer (Heo et al., 2024), the question, "
        "on the digits of UCI",
        usual={"train_length": 8, "lengths": (8, 12, 16), "steps": 1000},
    )
)
