"""Triton: keys turned on their way to their slots in a paged cache, values copied beside them.

The parts are those of :mod:`ropewalk.kernels.gpu.turn`. A row whose slot is not one of the pages'
becomes one behind the last, which no load or store takes.
"""

# The types within a kernel are Triton's own.
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

import triton
import triton.language as tl

from ropewalk.kernels.gpu.lanes import copy_run, load_pairs
from ropewalk.kernels.gpu.turn import (
    at_head,
    block_of_rows,
    cos_and_sin,
    in_elements,
    row_offsets,
    rows_if,
    share_of,
    turn_heads,
)


@triton.jit
def load_slots(slots, strides, row, outer, places, sizes):
    """(each row's slot, the row itself or, where the slot is outside, one behind the last)."""
    at = slots + row_offsets(row, outer, sizes, strides.rows, 1)
    slot = tl.load(at, mask=row < sizes[0], other=-1).to(tl.int64)
    within = (slot >= 0) & (slot < places)
    return tl.where(within, slot, 0), tl.where(within, row, sizes[0])


@triton.jit
def at_slot(pages, strides, slot, head, BLOCK_SIZE: tl.constexpr, HOW: tl.constexpr):
    """Pointers to one head at each slot; ``strides.rows`` are those of a token and a block."""
    start = head.to(tl.int64) * strides.head
    row = slot % BLOCK_SIZE * strides.rows[0] + slot // BLOCK_SIZE * strides.rows[1]
    return pages + (start + row) * HOW.unit


@triton.jit
def copy_heads(x, out, x_strides, out_strides, heads, row, sizes, HOW: tl.constexpr):
    """``heads`` heads from the rows at ``x`` as they are."""
    for _ in range(heads):
        copy_run(x, out, x_strides, out_strides, row < sizes[0], 0, HOW.head_dim, HOW)
        x += in_elements(x_strides.head, HOW)
        out += in_elements(out_strides.head, HOW)


@triton.jit(do_not_specialize=["k_heads", "v_heads", "offset", "places", "own_heads", "shares"])
def turn_into_pages(
    k,
    pages,
    v,
    v_pages,
    slots,
    positions,
    offset: tl.int64,
    steps,
    cos_scale: tl.float64,
    sin_scale: tl.float64,
    k_strides,
    page_strides,
    k_heads,
    v_strides,
    v_page_strides,
    v_heads,
    slot_strides,
    position_strides,
    places: tl.int64,
    sizes,
    own_heads,
    shares,
    BLOCK_SIZE: tl.constexpr,
    VALUES: tl.constexpr,
    HOW: tl.constexpr,
):
    """k by Σ position · step, and v as it is unless it is None, to the slots of ``pages``.

    ``k_heads`` are those of one set of steps, ``v_heads`` all; ``VALUES`` is the ``HOW`` of v.
    """
    row, outer, own, share = block_of_rows(sizes, own_heads, shares, HOW)
    head, heads = share_of(k_heads, own, share, shares)
    x = at_head(k, k_strides, row, outer, head, sizes, HOW)
    first, second = load_pairs(x, k_strides, rows_if(row, sizes, heads > 0), HOW)
    slot, kept = load_slots(slots, slot_strides, row, outer, places, sizes)
    cosine, sine = cos_and_sin(
        positions, offset, steps, cos_scale, sin_scale, position_strides,
        row, outer, own, sizes, HOW,
    )  # fmt: skip
    out = at_slot(pages, page_strides, slot, head, BLOCK_SIZE, HOW)
    turn_heads(
        x, out, k_strides, page_strides, heads, kept, sizes, first, second, cosine, sine, HOW
    )
    if v is not None:
        head, heads = share_of(v_heads, 0, own * shares + share, own_heads * shares)
        x = at_head(v, v_strides, row, outer, head, sizes, VALUES)
        out = at_slot(v_pages, v_page_strides, slot, head, BLOCK_SIZE, VALUES)
        copy_heads(x, out, v_strides, v_page_strides, heads, kept, sizes, VALUES)
