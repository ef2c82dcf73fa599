"""What is rotated: shapes × dtypes × layouts × modes."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from ropewalk import positions
from ropewalk.spectra import Spectrum, axial, geometric

Shape = tuple[int, int, int, int]

SHAPES: tuple[Shape, ...] = ((1, 32, 4096, 128), (1, 32, 128, 128))
"""``[batch, heads, tokens, head_dim]``: larger than any cache, and small enough for one."""
DTYPES = ("float32", "bfloat16", "float16", "float64")
USUAL_DTYPES = DTYPES[:2]
LAYOUTS = {
    "half": "lane i pairs with i + head_dim/2",
    "interleaved": "lane 2i pairs with 2i + 1",
    "partial": "the first half of the lanes turns, in half layout",
    "axes": "half layout, half of the pairs for each of two axes",
}
MODES = {
    "fresh": "the result in a fresh tensor",
    "out": "the result in memory that is there",
    "in-place": "the result in the tensor itself",
    "forward+backward": "the result, and the gradient of the input",
    "decode": "one token's q and k, fresh tensors",
    "decode-in-place": "one token's q and k, in place",
}
BASE = 10_000.0
FAR = 131_071
"""The position at which every form's error is told."""
MOST_VALUES = 1 << 32
"""Of one tensor: 16 GiB in float32, several of which a benchmark holds."""
_DECODED = 4095
"""The position of a decoded token."""


@dataclass(frozen=True)
class Case:
    """One thing to measure. In the decode modes k has a quarter of the heads of q."""

    shape: Shape
    dtype: str
    layout: str
    mode: str

    @property
    def decodes(self) -> bool:
        """Whether q and k of one token are rotated together."""
        return self.mode.startswith("decode")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype itself."""
        return getattr(torch, self.dtype)

    def spectrum(self) -> Spectrum:
        """The frequencies of this layout."""
        width = self.shape[-1]
        if self.layout == "axes":
            return axial(width, BASE, axes=2)
        if self.layout == "partial":
            return geometric(width, BASE, rotary_dim=width // 2)
        return geometric(width, BASE, layout=self.layout)  # pyright: ignore[reportArgumentType]

    def positions(self) -> Tensor:
        """int64 ``[tokens]``, or ``[tokens, 2]`` on two axes."""
        tokens = self.shape[-2]
        if self.layout != "axes":
            return positions.text(tokens, offset=_DECODED if self.decodes else 0)
        if self.decodes:
            return torch.tensor([divmod(_DECODED, 64)])
        height = next(h for h in range(math.isqrt(tokens), 0, -1) if tokens % h == 0)
        return positions.grid(height, tokens // height)

    def far(self) -> Tensor:
        """One token at :data:`FAR`."""
        return torch.full((1, 2) if self.layout == "axes" else (1,), FAR)


def cases(
    shapes: Sequence[Shape] = SHAPES,
    dtypes: Sequence[str] = USUAL_DTYPES,
    layouts: Sequence[str] | None = None,
    modes: Sequence[str] | None = None,
) -> list[Case]:
    """Every combination, without repeats; decode modes take one token of each shape.

    With neither ``layouts`` nor ``modes``: half layout in every mode, and the others in mode
    ``out``, where the arithmetic shows most, for the first shape and dtype.

    Raises:
        ValueError: a name is unknown, or a shape does not fit its layout.
    """
    for kind, given, known in (
        ("dtype", dtypes, DTYPES),
        ("layout", layouts or (), LAYOUTS),
        ("mode", modes or (), MODES),
    ):
        for name in given:
            require_known(kind, name, known)
    brief = layouts is None and modes is None
    pairs = product(["half"] if brief else layouts or LAYOUTS, modes or MODES)
    found = [Case(*it[:2], *it[2]) for it in product(shapes, dtypes, pairs)]
    if brief:
        found += [Case(shapes[0], dtypes[0], layout, "out") for layout in LAYOUTS]
    return list(dict.fromkeys(map(_fitting, found)))


def _fitting(case: Case) -> Case:
    batch, heads, _, width = case.shape
    whole = 4 if case.layout in ("partial", "axes") else 2
    if width % whole:
        raise ValueError(
            f"shape={','.join(map(str, case.shape))} ends in head_dim={width}; layout "
            f"{case.layout!r} needs a multiple of {whole}"
        )
    return replace(case, shape=(batch, heads, 1, width)) if case.decodes else case


def shape_of(text: str) -> Shape:
    """``"1,32,4096,128"`` as a shape.

    Raises:
        ValueError: it is not four positive integers, or has more than :data:`MOST_VALUES` values.
    """
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != 4 or min(numbers) < 1:
        raise ValueError(
            f"--shape {text!r} must be batch,heads,tokens,head_dim, four integers of at least 1, "
            "such as 1,32,4096,128"
        )
    if math.prod(numbers) > MOST_VALUES:
        raise ValueError(
            f"--shape {text!r} has {math.prod(numbers):,} values, and {MOST_VALUES:,} are the most "
            "that are rotated at once; use fewer tokens, heads or batch rows"
        )
    return numbers


def require_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name that is not among those known.

    Raises:
        ValueError: with the closest one.
    """
    known = list(known)
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"{kind} {name!r} is unknown{hint}; use one of {', '.join(known)}")
