"""Axial frequencies: every pair turns along one axis."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.spectra.arguments import WIDEST, check_base, check_even, check_int, check_number
from ropewalk.spectra.geometric import powers
from ropewalk.spectra.spectrum import Layout, Spectrum


def even_assignment(axes: int, pairs: int) -> tuple[int, ...]:
    """Pairs in ``axes`` contiguous blocks of equal size: 0…0 1…1 2…2.

    Raises:
        TypeError: axes is not an int.
        ValueError: pairs is not a multiple of axes.
    """
    if pairs % check_int("axes", axes, at_least=1, at_most=WIDEST):
        raise ValueError(
            f"axes={axes} does not divide the {pairs} pairs evenly; use a head_dim that is a "
            f"multiple of {2 * axes}, or state the axis of each pair with assignment="
        )
    return tuple(axis for axis in range(axes) for _ in range(pairs // axes))


def axial(
    head_dim: int,
    base: float = 100.0,
    *,
    axes: int | None = None,
    assignment: Sequence[int] | None = None,
    axes_dim: Sequence[int] | None = None,
    scale: Sequence[float] | float = 1.0,
    layout: Layout = "half",
    unit: float = 1.0,
) -> Spectrum:
    r"""Pair c turns along axis a(c) only, with its own geometric ladder on each axis.

    .. math:: θ_{a,j} = \text{scale}_a \cdot \mathrm{base}^{-j/n_a},
              \quad j = 0 \dots n_a - 1

    for the n_a pairs of axis a, in the order in which they appear.

    Args:
        head_dim: width of a head, even.
        base: 100 is common for images, 10000 for text.
        axes: number of position axes; 2 if None, or as many as axes_dim has.
        assignment: the axis of each pair, ``[head_dim/2]``; contiguous equal blocks if None.
        axes_dim: instead, the lanes of each axis, in contiguous blocks: (16, 56, 56) for Flux.
        scale: multiplies the frequencies, one number or one per axis. Grid-scaled coordinates
            (pretraining size ÷ actual size) and normalised ones enter here.
        layout: how lanes pair.
        unit: size of one integer position, see :func:`ropewalk.positions.fixed`.

    Raises:
        TypeError, ValueError: a value is out of range, or an axis has no pair.

    Source: RoPE-ViT (Heo et al., 2024), "axial"; DINOv3 (2025) for normalised coordinates.
    """
    pairs = check_even("head_dim", head_dim) // 2
    if axes_dim is not None:
        axes, assignment = _blocks(axes_dim, axes, assignment, head_dim)
    axes = 2 if axes is None else check_int("axes", axes, at_least=1, at_most=WIDEST)
    owner = even_assignment(axes, pairs) if assignment is None else _owners(assignment)
    if len(owner) != pairs:
        raise ValueError(
            f"assignment has {len(owner)} entries; head_dim={head_dim} has {pairs} pairs"
        )
    if sorted(set(owner)) != list(range(axes)):
        raise ValueError(
            f"assignment uses axes {sorted(set(owner))}; each of 0 … {axes - 1} needs a pair"
        )
    scales = _scales(scale, axes)
    ladders = [
        iter([f * s for f in powers(check_base(base), owner.count(a), 2 * owner.count(a))])
        for a, s in enumerate(scales)
    ]
    columns = [(a, next(ladders[a])) for a in owner]
    rows = tuple(tuple(f if a == axis else 0.0 for a, f in columns) for axis in range(axes))
    return Spectrum(rows, head_dim, layout=layout, unit=unit)


def _blocks(
    axes_dim: Sequence[int], axes: int | None, assignment: Sequence[int] | None, head_dim: int
) -> tuple[int, tuple[int, ...]]:
    """Number of axes and the axis of each pair, for blocks of ``axes_dim`` lanes."""
    if isinstance(axes_dim, (str, bytes)) or not isinstance(axes_dim, Sequence):
        raise TypeError(f"axes_dim={axes_dim!r} must be a sequence with the lanes of each axis")
    if assignment is not None:
        raise ValueError("axes_dim and assignment both say which axis each pair has; give one")
    sizes = [check_even(f"axes_dim[{axis}]", size) for axis, size in enumerate(axes_dim)]
    if axes not in (None, len(sizes)):
        raise ValueError(f"axes_dim={tuple(axes_dim)} has {len(sizes)} axes; axes={axes}")
    if sum(sizes) != head_dim:
        raise ValueError(
            f"axes_dim={tuple(axes_dim)} adds up to {sum(sizes)}; head_dim={head_dim} lanes are "
            "to be shared out"
        )
    return len(sizes), tuple(a for a, size in enumerate(sizes) for _ in range(size // 2))


def _owners(assignment: Sequence[int]) -> tuple[int, ...]:
    if isinstance(assignment, (str, bytes)) or not isinstance(assignment, Sequence):
        raise TypeError(f"assignment={assignment!r} must be a sequence with the axis of each pair")
    return tuple(check_int(f"assignment[{c}]", a) for c, a in enumerate(assignment))


def _scales(scale: Sequence[float] | float, axes: int) -> tuple[float, ...]:
    if not isinstance(scale, Sequence):
        return (check_number("scale", scale),) * axes
    if len(scale) != axes:
        raise ValueError(f"scale has {len(scale)} entries; axes={axes} needs one per axis")
    return tuple(check_number(f"scale[{axis}]", s) for axis, s in enumerate(scale))
