"""The operators that do in the launch of a rotation what stands before it or behind it.

Before it, heads are divided by their root mean squares; behind it, keys go into pages. They launch
as those of :mod:`ropewalk.kernels.gpu.launch` do.
"""

from __future__ import annotations

from functools import lru_cache

from torch import Tensor

from ropewalk.kernels.gpu.launch import KEPT, Prepared, known, signed
from ropewalk.kernels.gpu.meta import Lanes, Meta, Operand
from ropewalk.kernels.gpu.misfit import check
from ropewalk.kernels.gpu.prepare import normed_launch
from ropewalk.kernels.gpu.prepare_pages import check_apart, pages_launch


def normed(
    q: Tensor,
    k: Tensor | None,
    q_out: Tensor,
    k_out: Tensor | None,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    eps: float,
    positions: Tensor | None,
    offset: int,
    steps: Tensor,
    scale: float,
    lanes: int,
) -> None:
    """``q_out`` = weight ∘ q / √(mean q² + eps), turned by Σ position · step; so k, unless None.

    Args:
        q, k, q_out, k_out: as in :func:`ropewalk.kernels.gpu.launch.rotate_qk`. The mean is over
            all of head_dim, lanes that do not turn too. Arithmetic is float32, of float64 float64,
            and rounded once.
        q_weight, k_weight: ``[head_dim]`` in any real floating dtype; None is a weight of 1.
        eps: added to the mean.
        positions, offset, steps, scale, lanes: as in :func:`ropewalk.kernels.gpu.launch.rotate`.

    Raises:
        Misfit, ImportError: as there.
    """
    operands, weights = (Operand.of(q, q_out),), [q_weight]
    if k is not None and k_out is not None:
        operands, weights = (*operands, Operand.of(k, k_out)), [q_weight, k_weight]
    else:
        check(k is k_out is k_weight is None, "k, k_out and k_weight go together")
    weights = [None if weight is None else weight.contiguous() for weight in weights]
    steps = steps.contiguous()
    metas = tuple(known(weight) for weight in weights)
    _kept_normed(operands, metas, known(positions), Meta.of(steps), lanes)(
        *(q, q_out, k, k_out, *weights, *[None] * (2 - len(weights)), float(eps)),
        *(positions, offset, steps, float(scale), signed(scale, lanes)),
    )


def into_pages(
    k: Tensor,
    v: Tensor | None,
    pages: Tensor,
    v_pages: Tensor | None,
    slots: Tensor,
    positions: Tensor | None,
    offset: int,
    steps: Tensor,
    scale: float,
    lanes: int,
) -> None:
    """k turned by Σ position · step, and v as it is, each row written to its slot of the pages.

    Args:
        k, v: ``[heads, tokens, width]``; v, of other heads and width than k perhaps, or None.
        pages, v_pages: ``[blocks, block_size, heads, width]``, memory apart from k and v.
        slots: int64 or int32 ``[tokens]``: block · block_size + place. A row whose slot is outside
            the pages is not written; of two rows at one slot, either may be, or parts of both.
        positions, offset, steps, scale, lanes: as in :func:`ropewalk.kernels.gpu.launch.rotate`.

    Raises:
        Misfit, ImportError: as there. What slots hold is not looked at before.
    """
    check_apart((k, v), (pages, v_pages))
    steps = steps.contiguous()
    known_as = Meta.of(k), known(v), Meta.of(pages), known(v_pages), Meta.of(slots)
    _kept_pages(*known_as, known(positions), Meta.of(steps), lanes)(
        *(k, pages, v, v_pages, slots),
        *(positions, offset, steps, float(scale), signed(scale, lanes)),
    )


@lru_cache(KEPT)
def _kept_normed(
    operands: tuple[Operand, ...],
    weights: tuple[Meta | None, ...],
    positions: Meta | None,
    steps: Meta,
    lanes: int,
) -> Prepared:
    launch = normed_launch(operands, weights, positions, steps, Lanes.of(lanes))
    return Prepared(launch, operands[0].x.device)


@lru_cache(KEPT)
def _kept_pages(
    k: Meta,
    v: Meta | None,
    pages: Meta,
    v_pages: Meta | None,
    slots: Meta,
    positions: Meta | None,
    steps: Meta,
    lanes: int,
) -> Prepared:
    launch = pages_launch(k, v, pages, v_pages, slots, positions, steps, Lanes.of(lanes))
    return Prepared(launch, k.device)
