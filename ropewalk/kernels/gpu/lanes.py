"""Triton: the lanes of a block of rows, in pairs or in runs.

``HOW`` is a :class:`ropewalk.kernels.gpu.job.How`.
"""

# The types within a kernel are Triton's own.
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def lane_offsets(lane, strides, HOW: tl.constexpr):
    """Elements before each lane of a row."""
    if HOW.dense:
        return lane
    else:
        return lane.to(tl.int64) * strides.lane


@triton.jit
def load_pairs(x, strides, inside, HOW: tl.constexpr):
    """Both lanes of each pair, ``[block_rows, block_pairs]``, of the rows ``inside``."""
    if HOW.interleaved:
        lane = tl.arange(0, 2 * HOW.block_pairs)[None, :]
        at = x + lane_offsets(HOW.first + lane, strides, HOW)
        both = tl.load(at, mask=inside & (lane < 2 * HOW.pairs))
        return tl.split(tl.reshape(both, [HOW.block_rows, HOW.block_pairs, 2]))
    else:
        pair = tl.arange(0, HOW.block_pairs)[None, :]
        within = inside & (pair < HOW.pairs)
        first = tl.load(x + lane_offsets(HOW.first + pair, strides, HOW), mask=within)
        return first, tl.load(x + lane_offsets(HOW.second + pair, strides, HOW), mask=within)


@triton.jit
def store_pairs(x, strides, inside, first, second, HOW: tl.constexpr):
    """The converse of :func:`load_pairs`, rounded to the dtype of x."""
    first, second = first.to(x.dtype.element_ty), second.to(x.dtype.element_ty)
    if HOW.interleaved:
        lane = tl.arange(0, 2 * HOW.block_pairs)[None, :]
        at = x + lane_offsets(HOW.first + lane, strides, HOW)
        both = tl.reshape(tl.join(first, second), [HOW.block_rows, 2 * HOW.block_pairs])
        tl.store(at, both, mask=inside & (lane < 2 * HOW.pairs))
    else:
        pair = tl.arange(0, HOW.block_pairs)[None, :]
        within = inside & (pair < HOW.pairs)
        tl.store(x + lane_offsets(HOW.first + pair, strides, HOW), first, mask=within)
        tl.store(x + lane_offsets(HOW.second + pair, strides, HOW), second, mask=within)


@triton.jit
def copy_run(
    x,
    out,
    x_strides,
    out_strides,
    inside,
    BEGIN: tl.constexpr,
    END: tl.constexpr,
    HOW: tl.constexpr,
):
    """Lanes BEGIN … END − 1 as they are."""
    STEP: tl.constexpr = HOW.segment
    for start in tl.static_range(BEGIN, END, STEP):
        lane = start + tl.arange(0, STEP)[None, :]
        within = inside & (lane < END)
        kept = tl.load(x + lane_offsets(lane, x_strides, HOW), mask=within)
        tl.store(out + lane_offsets(lane, out_strides, HOW), kept, mask=within)


@triton.jit
def copy_others(x, out, x_strides, out_strides, inside, HOW: tl.constexpr):
    """The lanes before, between and behind the two halves of the pairs."""
    copy_run(x, out, x_strides, out_strides, inside, 0, HOW.first, HOW)
    copy_run(x, out, x_strides, out_strides, inside, HOW.gap, HOW.second, HOW)
    copy_run(x, out, x_strides, out_strides, inside, HOW.behind, HOW.head_dim, HOW)
