r"""Pictures: how grey are the masked pixels of a crop larger than those trained on?

.. math:: \text{bits}(n) = -\operatorname{mean} \log_2 P(g_{ij} \mid \text{the pixels of the crop
   that are not masked}), \qquad (i, j) \text{ masked, in the core}

A crop of n × n pixels of 16 grey levels, one in four masked. The scored crops of every length lie
around the same centers with the same mask, and only their cores are scored, so that *every length
scores the very same pixels*, given more of what surrounds them. Whole pictures are held out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from ropewalk.lab.task import IGNORED, Batch, Form, Model, Score, Task, TaskSpec, register
from ropewalk.positions.builders import grid
from ropewalk.spectra.arguments import check_int

LEVELS = 16
MASK = LEVELS
"""The id of a masked pixel."""

MASKED = 4
"""One pixel in so many is masked."""

SHRINK = 4
"""Side of the block of pixels whose mean is one pixel here."""

TRAINING = ("astronaut", "brick", "camera", "coins", "grass", "gravel", "moon", "rocket")
HELD_OUT = ("cat", "coffee")
LUMA = (0.2126, 0.7152, 0.0722)
"""Weights of red, green and blue in grey (ITU-R BT.709)."""


class Pictures(Task):
    """scikit-image's pictures that need no download; needs the extra ``vision``.

    The score is that of the masked pixels in the middle ``core`` × ``core`` of each crop; the curve
    that of all masked pixels by their distance from the nearest edge of the crop.

    Args:
        core: side of what is scored; lengths are at least that.

    Raises:
        TypeError, ValueError: ``core`` is no whole number of 1 or more, or scikit-image is missing.
    """

    unit = "bits per masked pixel"
    better = "lower"
    form = Form(classes=LEVELS, vocabulary=LEVELS + 1, causal=False, axes=2)

    def __init__(self, core: int = 8) -> None:
        self.core = check_int("core", core, at_least=1)
        self.training = [load(name) for name in TRAINING]
        self.held_out = [load(name) for name in HELD_OUT]

    def tokens(self, length: int) -> int:
        """n²."""
        return length * length

    def grid(self, length: int) -> tuple[int, int]:
        """n × n."""
        return length, length

    def check(self, train_length: int, lengths: Sequence[int]) -> None:
        """Raise ValueError where a crop is larger than a picture, or smaller than the core."""
        super().check(train_length, lengths)
        for name, sides, pictures in (
            ("train_length", [train_length], self.training),
            ("lengths", lengths, self.held_out),
        ):
            most = min(min(picture.shape) for picture in pictures)
            if max(sides) > most:
                raise ValueError(
                    f"{name}={max(sides)} is larger than a picture: give at most {most}"
                )
        if min(lengths) < self.core:
            raise ValueError(
                f"lengths={min(lengths)} is smaller than core={self.core}: give longer ones, or a "
                "smaller core"
            )

    def batch(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """Crops at random places of random training pictures, one pixel in four masked."""
        crops = []
        for _ in range(rows):
            picture = self.training[_below(len(self.training), generator)]
            top, left = (_below(side - length + 1, generator) for side in picture.shape)
            crops.append(picture[top : top + length, left : left + length])
        return _asked(torch.stack(crops), masks(generator, rows, length))

    def crops(self, length: int, longest: int) -> tuple[Tensor, Tensor]:
        """All scored crops and masks, ``[W, n, n]``: the middle of those of the longest."""
        found = [
            picture.unfold(0, longest, self.core).unfold(1, longest, self.core)
            for picture in self.held_out
        ]
        crops = torch.cat([windows.flatten(0, 1) for windows in found])
        masked = masks(torch.Generator().manual_seed(-longest), len(crops), longest)
        return middle(crops, length, longest), middle(masked, length, longest)

    def score(self, model: Model, length: int, longest: int) -> Score:
        """Bits of the masked pixels in the cores; the curve is from the edge inwards."""
        batch = _asked(*self.crops(length, longest))
        with torch.no_grad():
            bits = torch.cat([_bits(model, part) for part in batch.split()])
        bits = bits.unflatten(1, (length, length))
        asked = (batch.targets != IGNORED).view_as(bits)
        start = (longest - self.core) // 2 - (longest - length) // 2
        core = slice(start, start + self.core)
        value = bits[:, core, core].sum() / asked[:, core, core].sum()
        place = torch.arange(length)
        depth = torch.minimum(place, length - 1 - place)
        depth = torch.minimum(depth[:, None], depth)
        curve = [
            (bits[:, depth == d].sum() / asked[:, depth == d].sum()).item()
            for d in range((length + 1) // 2)
        ]
        return Score(value.item(), curve)


@functools.cache
def load(name: str) -> Tensor:
    """A picture of scikit-image as grey levels, int64 ``[H/4, W/4]``.

    Raises:
        ValueError: scikit-image is missing.
    """
    try:
        from skimage import data
    except ImportError as error:
        raise ValueError(
            f"task pictures needs scikit-image ({error}); pip install 'ropewalk[vision]'"
        ) from error
    picture = torch.from_numpy(getattr(data, name)()).to(torch.float64)
    grey = picture if picture.dim() == 2 else picture @ torch.tensor(LUMA, dtype=torch.float64)
    blocks = functional.avg_pool2d(grey[None, None], SHRINK)[0, 0]
    return (blocks * LEVELS / 256).long()


def masks(generator: torch.Generator, rows: int, side: int) -> Tensor:
    """One pixel in four of each of ``rows`` crops, at least one: bool ``[rows, side, side]``."""
    order = torch.rand(rows, side * side, dtype=torch.float64, generator=generator).argsort(1)
    count = max(1, side * side // MASKED)
    empty = torch.zeros(rows, side * side, dtype=torch.bool)
    return empty.scatter(1, order[:, :count], True).view(rows, side, side)


def middle(crops: Tensor, length: int, longest: int) -> Tensor:
    """The middle ``length`` × ``length`` of ``[W, longest, longest]``."""
    cut = slice((longest - length) // 2, (longest - length) // 2 + length)
    return crops[:, cut, cut]


def _below(bound: int, generator: torch.Generator) -> int:
    return int(torch.randint(bound, (), generator=generator).item())


def _asked(crops: Tensor, masked: Tensor) -> Batch:
    inputs = crops.masked_fill(masked, MASK).flatten(1)
    targets = crops.masked_fill(~masked, IGNORED).flatten(1)
    return Batch(inputs, targets, grid(*crops.shape[1:]))


def _bits(model: Model, batch: Batch) -> Tensor:
    """−log₂ P of every target, float64 ``[B, T]``; 0 where none is asked for."""
    logits = model(batch.inputs, batch.positions).to(torch.float64)
    nats = functional.cross_entropy(
        logits.mT, batch.targets, reduction="none", ignore_index=IGNORED
    )
    return nats / math.log(2)


register(
    TaskSpec(
        name="pictures",
        factory=Pictures,
        title="masked pixels of larger crops than trained on",
        source="BERT (Devlin et al., 2019), masked tokens, on pixels of scikit-image's pictures",
        usual={"train_length": 12, "lengths": (12, 16, 24), "steps": 1000},
    )
)
