"""Triton: the kernels. A program turns a block of rows, head after head, by one sin and cos.

The next head's values are on their way while the present ones are turned. ``HOW`` is a
:class:`ropewalk.kernels.gpu.job.How`; strides of rows and heads come in units of ``HOW.unit``
elements, so that the compiler knows how wide a load may be.
"""

# The types within a kernel are Triton's own.
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

import triton
import triton.language as tl

from ropewalk.kernels.gpu.angles import phases, scaled, sincos
from ropewalk.kernels.gpu.lanes import copy_others, lane_offsets, load_pairs, store_pairs


@triton.jit
def block_of_rows(sizes, own_heads, shares, HOW: tl.constexpr):
    """(row ``[block_rows, 1]``, outer index, head of the angles, share of its heads)."""
    program = tl.program_id(0)
    blocks = (sizes[0] + HOW.block_rows - 1) // HOW.block_rows
    row = (program % blocks).to(tl.int64) * HOW.block_rows + tl.arange(0, HOW.block_rows)[:, None]
    rest = program // blocks
    own = rest // shares
    return row, own // own_heads, own % own_heads, rest % shares


@triton.jit
def in_elements(stride, HOW: tl.constexpr):
    """A stride that is given in units."""
    return tl.full((), HOW.unit, tl.int64) * stride


@triton.jit
def row_offsets(row, outer, sizes, strides, UNIT: tl.constexpr):
    """Elements before each row of a block."""
    offset = row * strides[0] * UNIT
    for d in tl.static_range(1, len(sizes)):
        offset += (outer % sizes[d]).to(tl.int64) * strides[d] * UNIT
        outer = outer // sizes[d]
    return offset


@triton.jit
def rows_if(row, sizes, wanted):
    """The mask of a block's rows, empty unless ``wanted``."""
    return row < tl.where(wanted, sizes[0], 0)


@triton.jit
def turn_heads(
    x,
    out,
    x_strides,
    out_strides,
    heads,
    row,
    sizes,
    first,
    second,
    cosine,
    sine,
    HOW: tl.constexpr,
):
    """``heads`` heads from the rows at ``x``, of which the first one's pairs are loaded."""
    inside = row < sizes[0]
    for head in range(heads):
        ahead = x + in_elements(x_strides.head, HOW)
        more = rows_if(row, sizes, head + 1 < heads)
        next_first, next_second = load_pairs(ahead, x_strides, more, HOW)
        a, b = first.to(cosine.dtype), second.to(cosine.dtype)
        turned = a * cosine - b * sine, a * sine + b * cosine
        store_pairs(out, out_strides, inside, turned[0], turned[1], HOW)
        if HOW.copies:
            copy_others(x, out, x_strides, out_strides, inside, HOW)
        x = ahead
        out += in_elements(out_strides.head, HOW)
        first, second = next_first, next_second


@triton.jit
def share_of(heads, own, share, shares):
    """(first head, number of heads) of share ``share`` of the heads that share angles."""
    begin = heads * share // shares
    return own * heads + begin, heads * (share + 1) // shares - begin


@triton.jit
def load_table(table, strides, row, outer, own, sizes, HOW: tl.constexpr):
    """cos or sin of a block of rows, in the dtype of the arithmetic."""
    pair = tl.arange(0, HOW.block_pairs)[None, :]
    at = at_head(table, strides, row, outer, own, sizes, HOW) + lane_offsets(pair, strides, HOW)
    values = tl.load(at, mask=(row < sizes[0]) & (pair < HOW.pairs))
    return values.to(tl.float64 if HOW.wide else tl.float32)


@triton.jit
def at_head(x, strides, row, outer, head, sizes, HOW: tl.constexpr):
    """Pointers to the rows of one head."""
    start = head.to(tl.int64) * strides.head * HOW.unit
    return x + start + row_offsets(row, outer, sizes, strides.rows, HOW.unit)


@triton.jit
def turn_operand(
    x,
    out,
    x_strides,
    out_strides,
    heads,
    row,
    outer,
    own,
    share,
    shares,
    cosine,
    sine,
    sizes,
    HOW: tl.constexpr,
):
    """A program's share of the heads of one operand."""
    head, count = share_of(heads, own, share, shares)
    x = at_head(x, x_strides, row, outer, head, sizes, HOW)
    out = at_head(out, out_strides, row, outer, head, sizes, HOW)
    first, second = load_pairs(x, x_strides, rows_if(row, sizes, count > 0), HOW)
    turn_heads(x, out, x_strides, out_strides, count, row, sizes, first, second, cosine, sine, HOW)


@triton.jit
def cos_and_sin(
    positions,
    offset,
    steps,
    cos_scale,
    sin_scale,
    position_strides,
    row,
    outer,
    own,
    sizes,
    HOW: tl.constexpr,
):
    """cos and sin of a block of rows, by which the heads of one set of steps are turned."""
    pair = tl.arange(0, HOW.block_pairs)[None, :]
    rates = steps + own * (HOW.axes * HOW.pairs) + pair
    where = row_offsets(row, outer, sizes, position_strides.rows, 1)
    rows, pairs = row < sizes[0], pair < HOW.pairs
    if positions is None:
        phase = (where + offset.to(tl.int64)) * tl.load(rates, mask=pairs, other=0)
    else:
        stride = position_strides.lane
        phase = phases(positions + where, stride, rows, rates, pairs, HOW.axes, HOW.pairs)
    sine, cosine = sincos(phase, HOW.wide)
    return scaled(cosine, cos_scale), scaled(sine, sin_scale)


# What changes from call to call: as little as possible is compiled anew for its values.
NUMBERS = ["q_heads", "k_heads", "offset", "own_heads", "shares"]


@triton.jit(do_not_specialize=NUMBERS)
def turn_by_phases(
    q,
    q_out,
    k,
    k_out,
    positions,
    offset: tl.int64,
    steps,
    cos_scale: tl.float64,
    sin_scale: tl.float64,
    q_strides,
    q_out_strides,
    q_heads,
    k_strides,
    k_out_strides,
    k_heads,
    position_strides,
    sizes,
    own_heads,
    shares,
    HOW: tl.constexpr,
):
    """q, and k unless it is None, by Σ position · step; heads are those of one set of steps."""
    row, outer, own, share = block_of_rows(sizes, own_heads, shares, HOW)
    head, heads = share_of(q_heads, own, share, shares)
    x = at_head(q, q_strides, row, outer, head, sizes, HOW)
    first, second = load_pairs(x, q_strides, rows_if(row, sizes, heads > 0), HOW)

    cosine, sine = cos_and_sin(
        positions, offset, steps, cos_scale, sin_scale, position_strides,
        row, outer, own, sizes, HOW,
    )  # fmt: skip
    out = at_head(q_out, q_out_strides, row, outer, head, sizes, HOW)
    turn_heads(
        x, out, q_strides, q_out_strides, heads, row, sizes, first, second, cosine, sine, HOW
    )
    if k is not None:
        turn_operand(
            k, k_out, k_strides, k_out_strides, k_heads,
            row, outer, own, share, shares, cosine, sine, sizes, HOW,
        )  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS)
def turn_by_tables(
    q,
    q_out,
    k,
    k_out,
    cos,
    sin,
    q_strides,
    q_out_strides,
    q_heads,
    k_strides,
    k_out_strides,
    k_heads,
    cos_strides,
    sin_strides,
    sizes,
    own_heads,
    shares,
    HOW: tl.constexpr,
):
    """q, and k unless it is None, by given cos and sin; heads are those of one table."""
    row, outer, own, share = block_of_rows(sizes, own_heads, shares, HOW)
    cosine = load_table(cos, cos_strides, row, outer, own, sizes, HOW)
    sine = load_table(sin, sin_strides, row, outer, own, sizes, HOW)
    turn_operand(
        q, q_out, q_strides, q_out_strides, q_heads,
        row, outer, own, share, shares, cosine, sine, sizes, HOW,
    )  # fmt: skip
    if k is not None:
        turn_operand(
            k, k_out, k_strides, k_out_strides, k_heads,
            row, outer, own, share, shares, cosine, sine, sizes, HOW,
        )  # fmt: skip
