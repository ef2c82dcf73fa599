r"""Re-rotation: cached keys moved to other positions, or to other frequencies, in one rotation.

A key that was rotated at position p by one spectrum is rotated on by the difference to position p′
of another, instead of being computed anew: context shift, a switch to NTK, YaRN or the long
frequencies of LongRoPE, other axes (:mod:`ropewalk.models.moves` has the equation). Two rotations,
back and forth, would round twice; this rounds once.
"""

from __future__ import annotations

from torch import Tensor

from ropewalk.encodings.rotary.rope import Phases, RoPE
from ropewalk.kernels import Steps
from ropewalk.models.moves import Move
from ropewalk.models.sides import Side
from ropewalk.spectra import Spectrum

Source = Spectrum | Steps | RoPE


def rerotate(
    k: Tensor,
    old: Source,
    new: Source,
    positions: Tensor | None,
    new_positions: Tensor | None = None,
    *,
    phases: Phases = "integer",
    out: Tensor | None = None,
) -> Tensor:
    r"""Keys rotated by ``old`` at ``positions``, as ``new`` rotates them at ``new_positions``.

    .. math:: k' = \frac{f_\text{new}}{f_\text{old}}\;
              R\bigl(\mathrm{phase}_\text{new}(p') - \mathrm{phase}_\text{old}(p)\bigr)\,k

    Args:
        k: rotated keys ``[..., kv_heads, tokens, head_dim]``, real floating, any strides.
        old: what rotated them: a Spectrum, its Steps, or a RoPE.
        new: what shall have rotated them; the same lanes, any frequencies, axes and factor.
        positions: of the keys, ``[tokens]`` or ``[batch, tokens]``, with a last dimension of axes
            if ``old`` has several; any int64. ``None`` means 0 … T−1.
        new_positions: the same for ``new``; ``None`` if they stay.
        phases: of a Spectrum: ``"integer"`` is exact; ``"float32"`` multiplies positions and
            frequencies in float32 as most models do, so that their error at large positions is
            undone and made as they make it. A RoPE has its own.
        out: written and returned, no gradient; may be k.

    Returns:
        A tensor of the shape and dtype of k. Arithmetic is at least float32, rounded once.
        Gradients flow to k, as through :func:`ropewalk.rotate`.

    Raises:
        TypeError: k is quantised or no tensor; old or new is no fixed rotation.
        ValueError: lanes, heads, axes or positions do not fit, or a length is not pinned.
    """
    return _move(k, old, new, positions, new_positions, phases).out(k, out)


def rerotate_(
    k: Tensor,
    old: Source,
    new: Source,
    positions: Tensor | None,
    new_positions: Tensor | None = None,
    *,
    phases: Phases = "integer",
) -> Tensor:
    """:func:`rerotate` in place; k is marked as modified and gradients stay right."""
    return _move(k, old, new, positions, new_positions, phases).in_place(k)


def _move(
    k: Tensor,
    old: Source,
    new: Source,
    positions: Tensor | None,
    new_positions: Tensor | None,
    phases: object,
) -> Move:
    sides = Side.of("old", old, phases), Side.of("new", new, phases)
    return Move(*sides, positions, new_positions, k)
