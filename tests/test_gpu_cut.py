"""How a launch of the GPU kernel is described, cut and refused: plain numbers, no Triton."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.kernels.gpu.job import Strides
from ropewalk.kernels.gpu.meta import Lanes, Meta, Operand
from ropewalk.kernels.gpu.plan import THREADS, Plan, plan
from ropewalk.kernels.gpu.prepare import phases_launch, tables_launch
from ropewalk.kernels.gpu.rows import FEW, broadcast_strides, common_unit, rows_of

CPU = torch.device("cpu")


def meta(*shape: int, strides: tuple[int, ...] | None = None, dtype=torch.float32) -> Meta:
    made = torch.empty(shape, device="meta").stride()
    return Meta(shape, strides or made, dtype, CPU, True)


def integers(*shape: int) -> Meta:
    return meta(*shape, dtype=torch.int64)


def same(x: Meta) -> Operand:
    return Operand(x, x, False)


HALVES = Lanes(0, 4, 1, False)
STEPS = integers(1, 4)


# --- rows -----------------------------------------------------------------------------------------


def addresses(sizes, strides):
    """The offset in every tensor, for each row, in no order."""
    return sorted(
        tuple(sum(i * s for i, s in zip(index, own, strict=True)) for own in strides)
        for index in product(*map(range, sizes))
    )


@given(st.data())
def test_rows_are_the_same_memory(data):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    stride = st.sampled_from([0, 1, 2, 3, 4, 8, 12, 24])
    strides = data.draw(
        st.lists(st.lists(stride, min_size=len(sizes), max_size=len(sizes)), min_size=1, max_size=3)
    )
    rows = rows_of(sizes, strides)
    assert addresses(rows.sizes, rows.strides) == addresses(sizes, strides)
    assert len(rows.sizes) == max(2, sum(n > 1 for n in rows.sizes))
    assert rows.inner * rows.outer == torch.Size(sizes).numel()


def test_rows_become_few():
    bshd = (4 * 7 * 8 * 2, 8 * 2)  # [batch, tokens] of [batch, tokens, heads, head_dim]
    assert rows_of((3, 28), [bshd]) == ((84, 1), ((16, 0),))
    bhsd = (8 * 28 * 2, 2)
    assert rows_of((3, 28), [bhsd]) == ((28, 3), ((2, 448),))
    assert rows_of((3, 28), [bshd, (0, 1)]).sizes == (28, 3)  # positions [tokens] repeat
    assert rows_of((3, 28), [bshd, (28, 1)]).sizes == (84, 1)


def test_one_token_of_many_sequences_is_a_block_of_rows():
    assert rows_of((64, 1), [(4096, 128), (1, 1)]) == ((64, 1), ((4096, 0), (1, 0)))
    few = rows_of((64, FEW - 1), [(4096, 128), (0, 1)])
    assert few == ((64, FEW - 1), ((4096, 128), (0, 1)))
    assert rows_of((64, FEW), [(4096, 128), (0, 1)]).inner == FEW


def test_broadcast_strides():
    assert broadcast_strides("positions", (5,), (3,), (2, 4, 5)) == (0, 0, 3)
    assert broadcast_strides("positions", (1, 5), (9, 3), (4, 5)) == (0, 3)
    for sizes in ((4,), (), (3, 5), (2, 4, 5, 5)):
        with pytest.raises(ValueError, match=r"positions of shape .* do not broadcast over .*5"):
            broadcast_strides("positions", sizes, sizes, (2, 4, 5))


def test_common_unit():
    assert common_unit([128, 0, 2**40]) == 16
    assert common_unit([72, 16]) == 8
    assert common_unit([6, 9]) == 1
    assert common_unit([]) == 16


# --- the plan -------------------------------------------------------------------------------------


@given(
    st.integers(1, 10**6),
    st.integers(1, 10**4),
    st.integers(0, 128),
    st.integers(1, 8),
    st.integers(0, 2048),
    st.integers(0, 1024),
    st.sampled_from([2, 4, 8]),
    st.integers(1, 200),
)
def test_plans_are_sound(rows, outer, heads, own, pairs, passing, size, processors):
    made = plan(rows, outer, heads, own, pairs, passing, size, processors)
    for n in (made.block_rows, made.block_pairs, made.warps):
        assert n & (n - 1) == 0
    assert made.block_pairs >= pairs
    assert made.block_rows < 2 * rows
    assert 1 <= made.warps <= 8
    assert 1 <= made.shares <= max(heads, 1)
    assert heads % made.shares == 0
    blocks = made.block_rows * made.block_pairs
    assert blocks <= max(THREADS * 16 // size, made.block_pairs)


def test_plans_fill_a_device_and_share_sin_and_cos():
    prefill = plan(4096, 1, 32, 1, 64, 0, 2, 132)
    assert prefill == Plan(block_rows=16, block_pairs=64, shares=8, warps=4)
    assert plan(4096, 64, 32, 1, 64, 0, 2, 132).shares == 1  # full: each head of a block in turn
    assert plan(1, 1, 32, 1, 64, 0, 2, 132) == Plan(1, 64, 32, 1)  # one token: a head a program
    assert plan(64, 1, 32, 1, 64, 0, 2, 132).shares == 32
    assert plan(4096, 1, 7, 1, 64, 0, 2, 132).shares == 7


# --- launches -------------------------------------------------------------------------------------


def test_numbers_of_a_launch():
    x = meta(2, 6, 20, 8)
    k = meta(2, 2, 20, 8, strides=(320, 8, 16, 1))
    made = phases_launch([same(x), Operand(k, k, True)], integers(2, 20), STEPS, HALVES)
    assert made is not None
    assert made.kernel == "turn_by_phases"
    q_in, q_out, q_heads, k_in, _, k_heads, at, sizes, own, shares, how = made.numbers
    assert (how.unit, how.copies, how.dense, how.wide) == (8, False, True, False)
    assert q_in == q_out == Strides(1, 20, (1, 120))
    assert k_in == Strides(1, 1, (2, 40))
    assert (q_heads, k_heads, own, sizes) == (6, 2, 1, (20, 2))
    assert at == Strides(0, 0, (1, 20))
    blocks = -(-20 // how.block_rows)
    assert made.job.programs == blocks * 2 * shares


def test_strides_beyond_32_bits_stay():
    x = meta(2, 64, 2**22, 128, dtype=torch.bfloat16)
    made = phases_launch([same(x)], integers(2**22), integers(1, 64), Lanes(0, 64, 1, False))
    assert made is not None
    assert made.job.operands[0][0].rows == (8, 64 * 2**22 * 8)
    assert made.job.programs < 2**31


def test_lanes_that_pass_are_copied_only_where_they_have_to():
    wide = meta(1, 2, 3, 10)
    for operand, copies in ((same(wide), True), (Operand(wide, wide, True), False)):
        made = phases_launch([operand], integers(3), STEPS, HALVES)
        assert made is not None
        assert made.job.how.copies == copies


@pytest.mark.parametrize(
    ("operands", "positions", "steps", "lanes", "message"),
    [
        (
            [meta(3)],
            integers(3),
            STEPS,
            HALVES,
            r"x is \(3,\).*\[\.\.\., heads, tokens, head_dim\]",
        ),
        ([meta(2, 3, 8, dtype=torch.int32)], integers(3), STEPS, HALVES, "int32.*real floating"),
        ([meta(2, 3, 8)], meta(3), STEPS, HALVES, r"positions are .*float32.*must be int64"),
        ([meta(2, 3, 8)], integers(3), meta(1, 4), HALVES, r"steps are .*float32.*must be int64"),
        ([meta(2, 3, 8)], integers(4), STEPS, HALVES, r"positions \(4,\) do not fit 3 tokens"),
        (
            [meta(2, 3, 8)],
            integers(3),
            integers(2, 4),
            HALVES,
            r"positions \(3,\) do not fit 3 tokens on 2 axes",
        ),
        ([meta(2, 3, 8)], integers(3), integers(4), HALVES, r"steps \(4,\) must be"),
        (
            [meta(2, 3, 8)],
            integers(3),
            integers(3, 1, 4),
            HALVES,
            "2 heads are not a multiple .* 3",
        ),
        ([meta(2, 3, 6)], integers(3), STEPS, HALVES, "4 pairs .* do not fit in head_dim=6"),
        ([meta(2, 3, 8)], integers(3), STEPS, Lanes(0, 3, 1, False), "do not fit"),
        ([meta(2, 3, 9)], integers(3), STEPS, Lanes(2, 3, 2, False), "do not fit"),
        ([meta(2, 3, 8)], integers(3), STEPS, Lanes(0, 4, 2, False), "do not fit"),
        ([meta(2, 3, 8), meta(2, 4, 8)], integers(3), STEPS, HALVES, "differ in heads alone"),
        ([meta(2, 2, 3, 8), meta(2, 3, 8)], integers(3), STEPS, HALVES, "differ in heads alone"),
    ],
)
def test_what_does_not_fit_is_refused(operands, positions, steps, lanes, message):
    with pytest.raises(ValueError, match=message):
        phases_launch([same(x) for x in operands], positions, steps, lanes)


def test_a_result_must_be_like_x():
    x = meta(2, 3, 8)
    for other in (meta(2, 3, 9), meta(2, 3, 8, dtype=torch.float64)):
        with pytest.raises(ValueError, match=r"x is \(2, 3, 8\).* and its result .*must be alike"):
            phases_launch([Operand(x, other, False)], integers(3), STEPS, HALVES)
    elsewhere = x._replace(device=torch.device("meta"))
    with pytest.raises(ValueError, match="must be alike"):
        phases_launch([Operand(x, elsewhere, False)], integers(3), STEPS, HALVES)
    at = integers(3)._replace(device=torch.device("meta"))
    with pytest.raises(ValueError, match=r"positions are .* on meta; they must be int64 on cpu"):
        phases_launch([same(x)], at, STEPS, HALVES)


def test_tables_must_fit():
    x = [same(meta(2, 2, 3, 8))]
    for cos, sin, message in (
        (meta(3, 4), meta(3, 3), r"cos \(3, 4\) and sin \(3, 3\)"),
        (meta(4), meta(4), "must both be"),
        (meta(4, 4), meta(4, 4), "cos of shape"),
        (integers(3, 4), integers(3, 4), "cos is .*int64.* must be real and floating on cpu"),
    ):
        with pytest.raises(ValueError, match=message):
            tables_launch(x, cos, sin, HALVES)


def test_nothing_to_turn_is_no_launch():
    for shape in ((0, 2, 3, 8), (2, 0, 3, 8), (2, 2, 0, 8)):
        assert phases_launch([same(meta(*shape))], integers(shape[-2]), STEPS, HALVES) is None
    some = [same(meta(2, 0, 3, 8)), same(meta(2, 1, 3, 8))]
    assert phases_launch(some, integers(3), STEPS, HALVES) is not None
