"""From what is known of keys, values and a paged cache to a checked launch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ropewalk.kernels.gpu.job import How, Launch, Source, Strides, job_of
from ropewalk.kernels.gpu.meta import Lanes, Meta, Operand
from ropewalk.kernels.gpu.misfit import check
from ropewalk.kernels.gpu.plan import SEGMENT, Plan, power_of_two
from ropewalk.kernels.gpu.prepare import check_operands, check_steps, places, processors
from ropewalk.kernels.memory import apart

SLOTS = (torch.int64, torch.int32)


def pages_launch(
    k: Meta,
    v: Meta | None,
    pages: Meta,
    v_pages: Meta | None,
    slots: Meta,
    positions: Meta | None,
    steps: Meta,
    lanes: Lanes,
    cut: Plan | None = None,
) -> Launch | None:
    """The launch of ``turn_into_pages``, or None if there is nothing to write.

    Args:
        k, v: ``[heads, tokens, width]``, and pages, v_pages ``[blocks, block_size, heads, width]``.
        slots: int64 or int32 ``[tokens]``.
        positions, steps, lanes, cut: as in :func:`ropewalk.kernels.gpu.prepare.phases_launch`.

    Raises:
        Misfit: sizes, dtypes or devices do not fit.
    """
    operand = _into(k, pages)
    check_operands([operand])
    axes, pairs, own = check_steps(steps, [operand])
    check(
        slots.dtype in SLOTS and slots.device == k.device and slots.shape == k.shape[1:2],
        f"slots are {slots}; they must be int64 or int32, one for each token of k {k}",
    )
    _check_values(k, v, pages, v_pages)
    sources = [places(k, positions, axes), Source(slots.strides, 0)]
    beside = [s for t in (k, v, pages, v_pages) if t is not None for s in _strides(t)]
    many = processors(k.device)
    job = job_of([operand], sources, lanes, pairs, axes, own, many, cut, beside=beside)
    blocks, block_size = pages.shape[:2]
    if job is None or not blocks * block_size:
        return None
    how, (position_strides, slot_strides) = job.how, job.sources
    of_k, _, heads = job.operands[0]
    values, second = _values(v, v_pages, how)
    numbers = of_k, _in_units(pages, how.unit), heads, *second, slot_strides, position_strides
    rest = blocks * block_size, job.sizes, own, job.cut.shares, block_size, values, how
    return Launch("turn_into_pages", job, (*numbers, *rest))


def _values(v: Meta | None, v_pages: Meta | None, how: How) -> tuple[How | None, tuple[Any, ...]]:
    """How v is copied, and its strides, those of its pages and its heads."""
    if v is None or v_pages is None:
        return None, (None, None, None)
    width = v.shape[-1]
    dense = v.strides[-1] == v_pages.strides[-1] == 1
    copied = how._replace(head_dim=width, segment=min(power_of_two(width), SEGMENT), dense=dense)
    return copied, (_in_units(v, how.unit), _in_units(v_pages, how.unit), v.heads)


def _check_values(k: Meta, v: Meta | None, pages: Meta, v_pages: Meta | None) -> None:
    """Refuse values that do not go beside their keys."""
    if v is None or v_pages is None:
        check(v is v_pages, "v and v_pages go together; give both or neither")
        return
    check_operands([_into(v, v_pages)])
    check(
        v.shape[1] == k.shape[1] and v.dtype == k.dtype and v.device == k.device,
        f"v {v} goes with k {k}: as many tokens, the same dtype and device",
    )
    check(
        v_pages.shape[:2] == pages.shape[:2],
        f"pages {pages} and v_pages {v_pages} differ in blocks or block_size",
    )
    check(
        0 not in k.shape or 0 in v.shape,
        f"k {k} is empty, so there is no launch that v {v} could go with",
    )


def check_apart(read: Sequence[Tensor | None], written: Sequence[Tensor | None]) -> None:
    """Refuse pages whose memory is being read.

    Raises:
        Misfit: some of ``written`` overlaps some of ``read``.
    """
    memory = {t.untyped_storage().data_ptr() for t in written if t is not None}
    sharing = [t for t in read if t is not None and t.untyped_storage().data_ptr() in memory]
    for x, pages in product(sharing, written):
        if pages is not None and x.numel() and pages.numel():
            check(apart(x, pages), "pages overlap what is read; give it memory of its own")


def _into(x: Meta, pages: Meta) -> Operand:
    """x, and one place for each of its rows, were all slots the places of one block."""
    check(
        len(x.shape) == 3 and len(pages.shape) == 4 and pages.shape[2:] == (x.shape[0], x.shape[2]),
        f"x {x} must be [heads, tokens, width], and pages {pages} [blocks, block_size, heads, "
        "width]",
    )
    check(
        0 not in (s for n, s in zip(pages.shape, pages.strides, strict=True) if n > 1),
        f"pages {pages} are expanded: several places share one memory",
    )
    head, token, block = _strides(pages)
    row = token or block or 16  # of a single place: any, that is even in every unit
    place = pages._replace(shape=x.shape, strides=(head or row, row, pages.strides[-1]))
    return Operand(x, place, False)


def _strides(x: Meta) -> tuple[int, ...]:
    """(head, row …) strides in elements: of x those of a token, of pages of a token and a block."""
    steps = [s if n > 1 else 0 for s, n in zip(x.strides, x.shape, strict=True)]
    if len(steps) == 3:
        return steps[0], steps[1], 0
    return steps[2], steps[1], steps[0]


def _in_units(x: Meta, unit: int) -> Strides:
    head, *rows = (stride // unit for stride in _strides(x))
    return Strides(x.strides[-1], head, tuple(rows))
