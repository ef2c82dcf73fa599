"""Triton: each head divided by its root mean square and weighed, then turned, in one launch.

The parts are those of :mod:`ropewalk.kernels.gpu.turn`; the mean is over all lanes, those that do
not turn too, which are read once more to be written.
"""

# The types within a kernel are Triton's own.
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import triton
import triton.language as tl

from ropewalk.kernels.gpu.angles import scaled
from ropewalk.kernels.gpu.lanes import lane_offsets, load_pairs, store_pairs
from ropewalk.kernels.gpu.turn import (
    NUMBERS,
    at_head,
    block_of_rows,
    cos_and_sin,
    in_elements,
    rows_if,
    share_of,
)


@triton.jit
def pair_weights(weight, like, HOW: tl.constexpr):
    """The weights of both lanes of each pair, ``[1, block_pairs]``, in the dtype of ``like``."""
    pair = tl.arange(0, HOW.block_pairs)[None, :]
    step = 2 if HOW.interleaved else 1
    first = tl.load(weight + HOW.first + step * pair, mask=pair < HOW.pairs)
    second = tl.load(weight + HOW.second + step * pair, mask=pair < HOW.pairs)
    return first.to(like.dtype), second.to(like.dtype)


@triton.jit
def add(x, y):
    """x + y."""
    return x + y


@triton.jit
def row_sums(values):
    """``[block_rows, 1]``; not by tl.sum, which is compiled even where kernels are interpreted."""
    return tl.reduce(values, 1, add, keep_dims=True)


@triton.jit
def add_squares(
    total, x, strides, inside, BEGIN: tl.constexpr, END: tl.constexpr, HOW: tl.constexpr
):
    """``total`` and the squares of lanes BEGIN … END − 1."""
    STEP: tl.constexpr = HOW.segment
    for start in tl.static_range(BEGIN, END, STEP):
        lane = start + tl.arange(0, STEP)[None, :]
        within = inside & (lane < END)
        values = tl.load(x + lane_offsets(lane, strides, HOW), mask=within, other=0)
        values = values.to(total.dtype)
        total += row_sums(values * values)
    return total


@triton.jit
def write_run(
    x,
    out,
    weight,
    factor,
    x_strides,
    out_strides,
    inside,
    BEGIN: tl.constexpr,
    END: tl.constexpr,
    HOW: tl.constexpr,
):
    """Lanes BEGIN … END − 1 times ``factor`` and their weights."""
    STEP: tl.constexpr = HOW.segment
    for start in tl.static_range(BEGIN, END, STEP):
        lane = start + tl.arange(0, STEP)[None, :]
        within = inside & (lane < END)
        values = tl.load(x + lane_offsets(lane, x_strides, HOW), mask=within)
        values = values.to(factor.dtype) * factor
        if weight is not None:
            values *= tl.load(weight + lane, mask=lane < END).to(factor.dtype)
        at = out + lane_offsets(lane, out_strides, HOW)
        tl.store(at, values.to(out.dtype.element_ty), mask=within)


@triton.jit
def write_others(x, out, weight, factor, x_strides, out_strides, inside, HOW: tl.constexpr):
    """The lanes before, between and behind the two halves of the pairs."""
    write_run(x, out, weight, factor, x_strides, out_strides, inside, 0, HOW.first, HOW)
    write_run(x, out, weight, factor, x_strides, out_strides, inside, HOW.gap, HOW.second, HOW)
    write_run(x, out, weight, factor, x_strides, out_strides, inside, HOW.behind, HOW.head_dim, HOW)


@triton.jit
def norm_factor(x, a, b, eps, strides, inside, HOW: tl.constexpr):
    """1 ÷ √(mean of squares + eps) of each row, whose pairs are a and b."""
    pair = tl.arange(0, HOW.block_pairs)[None, :]
    squares = tl.where(pair < HOW.pairs, a * a + b * b, 0.0)
    total = row_sums(squares)
    if HOW.copies:
        total = add_squares(total, x, strides, inside, 0, HOW.first, HOW)
        total = add_squares(total, x, strides, inside, HOW.gap, HOW.second, HOW)
        total = add_squares(total, x, strides, inside, HOW.behind, HOW.head_dim, HOW)
    mean = total / HOW.head_dim + eps
    if HOW.wide:
        return 1.0 / tl.sqrt(mean)
    else:
        return tl.div_rn(1.0, tl.sqrt_rn(mean))


@triton.jit
def norm_operand(
    x,
    out,
    weight,
    eps,
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
    inside = row < sizes[0]
    first, second = load_pairs(x, x_strides, rows_if(row, sizes, count > 0), HOW)
    if weight is not None:
        first_weight, second_weight = pair_weights(weight, cosine, HOW)
    for head in range(count):
        ahead = x + in_elements(x_strides.head, HOW)
        more = rows_if(row, sizes, head + 1 < count)
        next_first, next_second = load_pairs(ahead, x_strides, more, HOW)
        a, b = first.to(cosine.dtype), second.to(cosine.dtype)
        factor = norm_factor(x, a, b, eps, x_strides, inside, HOW)
        a, b = a * factor, b * factor
        if weight is not None:
            a, b = a * first_weight, b * second_weight
        turned = a * cosine - b * sine, a * sine + b * cosine
        store_pairs(out, out_strides, inside, turned[0], turned[1], HOW)
        if HOW.copies:
            write_others(x, out, weight, factor, x_strides, out_strides, inside, HOW)
        x = ahead
        out += in_elements(out_strides.head, HOW)
        first, second = next_first, next_second


@triton.jit(do_not_specialize=NUMBERS)
def turn_normed(
    q,
    q_out,
    k,
    k_out,
    q_weight,
    k_weight,
    eps: tl.float64,
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
    """q, and k unless it is None, normed and turned; heads are those of one set of steps."""
    row, outer, own, share = block_of_rows(sizes, own_heads, shares, HOW)
    cosine, sine = cos_and_sin(
        positions, offset, steps, cos_scale, sin_scale, position_strides,
        row, outer, own, sizes, HOW,
    )  # fmt: skip
    eps = scaled(tl.full((), 1, cosine.dtype), eps)
    norm_operand(
        q, q_out, q_weight, eps, q_strides, q_out_strides, q_heads,
        row, outer, own, share, shares, cosine, sine, sizes, HOW,
    )  # fmt: skip
    if k is not None:
        norm_operand(
            k, k_out, k_weight, eps, k_strides, k_out_strides, k_heads,
            row, outer, own, share, shares, cosine, sine, sizes, HOW,
        )  # fmt: skip
