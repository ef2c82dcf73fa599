"""The Triton kernel, run by Triton's interpreter on the CPU, against float64 and mpmath.

What it compiles to is the subject of test_gpu_compiled.py.
"""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from gpu_cases import DTYPES, assert_turned, bits, drawn, exact, reference, rotations, strided
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreted import kernels
from numeric_oracles import loop_rotate, odd_views
from torch import Tensor

from ropewalk.kernels import gpu
from ropewalk.kernels.gpu.meta import Lanes, Meta, Operand
from ropewalk.kernels.gpu.plan import Plan
from ropewalk.kernels.gpu.prepare import phases_launch
from ropewalk.spectra import Spectrum, geometric
from ropewalk.spectra.lanes import Turn, number, pair_slices


def run_cut(cut: Plan, pairs: list[tuple[Tensor, Tensor]], where: Tensor, steps: Tensor, t: Turn):
    """One launch of ``turn_by_phases`` cut into programs as given."""
    operands = [Operand.of(*pair) for pair in pairs]
    lanes = Lanes.of(t.lanes)
    launch = phases_launch(operands, Meta.of(where), Meta.of(steps), lanes, cut)
    if launch is None:
        return
    (q, q_out), (k, k_out) = pairs if len(pairs) == 2 else (*pairs, (None, None))
    scales = t.scale, -t.scale if t.negative else t.scale
    run = getattr(kernels(), launch.kernel)[(launch.job.programs,)]
    run(q, q_out, k, k_out, where, 0, steps, *scales, *launch.numbers)


# --- sin and cos ----------------------------------------------------------------------------------


def tables_of(phases: Tensor, dtype: torch.dtype, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """cos and sin of given phases: they are the steps of position 1."""
    cos, sin = (torch.empty(1, phases.numel(), dtype=dtype) for _ in range(2))
    gpu.phase_tables(torch.ones(1, dtype=torch.int64), phases[None], scale, cos, sin)
    return cos[0], sin[0]


def hard_phases() -> Tensor:
    """Every eighth of a turn and its neighbours, and random phases of all sizes."""
    eighths = [(n << 61) - (1 << 63) for n in range(8)]
    near = [e + d for e in eighths for d in (-(2**31), -2, -1, 0, 1, 2, 2**29, 2**30)]
    wrapped = [(n + 2**63) % 2**64 - 2**63 for n in near]
    draw = torch.Generator().manual_seed(1)
    anywhere = torch.randint(-(2**63), 2**63 - 1, (1500,), generator=draw)
    small = anywhere[:400] >> torch.arange(400) % 60
    return torch.cat([torch.tensor(wrapped), anywhere, small])


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1.2e-7), (torch.float64, 1e-15)])
def test_sin_and_cos_are_those_of_mpmath(dtype, bound):
    phases = hard_phases()
    cos, sin = tables_of(phases, dtype)
    with mpmath.workdps(40):
        for phase, c, s in zip(phases.tolist(), cos.tolist(), sin.tolist(), strict=True):
            angle = 2 * mpmath.pi * phase / mpmath.mpf(2) ** 64
            assert abs(mpmath.cos(angle) - c) <= bound, phase
            assert abs(mpmath.sin(angle) - s) <= bound, phase


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quarter_turns_are_exact(dtype):
    quarters = torch.tensor([0, 1 << 62, -(1 << 63), -(1 << 62)])
    cos, sin = tables_of(quarters, dtype, scale=1.5)
    assert cos.tolist() == [1.5, 0, -1.5, 0]
    assert sin.tolist() == [0, 1.5, 0, -1.5]


def test_phases_add_exactly_at_any_position():
    """At p and p + 2⁶³ a step that is even gives the same phase, bit for bit; so do two axes."""
    steps = torch.tensor([[2**40 + 2, -(2**62), 6], [5, 2**33, -1]])
    first, second = torch.tensor([[7, 3]]), torch.tensor([[7 - 2**63, 3]])
    made = []
    for where in (first, second):
        made.append((torch.empty(1, 3), torch.empty(1, 3)))
        gpu.phase_tables(where, steps, 1.0, *made[-1])
    assert torch.equal(made[0][0], made[1][0])
    assert torch.equal(made[0][1], made[1][1])
    total = steps[0] * 7 + steps[1] * 3
    assert torch.equal(tables_of(total, torch.float32)[0], made[0][0][0])


def test_tables_have_heads_where_the_spectrum_has():
    spectrum = Spectrum((((0.5, 0.1),), ((0.25, 2.0),)), 4)
    where = torch.tensor([[1, 2, 3], [-(2**62), 5, 2**40]])
    steps = spectrum.on().tensor
    cos, sin = (torch.empty(2, 2, 3, 2, dtype=torch.float64) for _ in range(2))
    gpu.phase_tables(where, steps, 1.25, cos, sin)
    expected = spectrum.replace(attention_factor=1.25).tables(where, torch.float64)
    assert (cos - expected[0]).abs().max() < 2e-15
    assert (sin - expected[1]).abs().max() < 2e-15


# --- the rotation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "spectrum",
    [
        geometric(8),
        geometric(10, layout="interleaved", rotary_dim=6, lane_offset=1),
        Spectrum(((0.5, 0.1),), 12, pairing="proportional"),
        Spectrum((((0.5, 0.1),), ((0.25, 2.0),)), 7, lane_offset=3, attention_factor=1.25),
    ],
    ids=["half", "interleaved", "proportional", "per head"],
)
def test_number_by_number(spectrum, dtype):
    x = drawn((2, 4, 3, spectrum.head_dim), dtype)
    where = torch.tensor([[0, 1, 131_071], [-131_071, -5, 7]])
    for inverse in (False, True):
        out = torch.full_like(x, math.nan)
        gpu.rotate(x, out, where, 0, spectrum.on().tensor, *spectrum.turns[inverse])
        expected = loop_rotate(x, where[..., None], spectrum, inverse=inverse)
        assert_turned(out, expected, slack=131_071 * 1.8e-19)


@settings(max_examples=35)
@given(st.data())
def test_any_shape_layout_and_strides(data):
    spectrum, shape, where = data.draw(rotations())
    dtype = data.draw(st.sampled_from(DTYPES))
    x = data.draw(strided(drawn(shape, dtype)))
    inverse = data.draw(st.booleans())
    expected = reference(x, where, spectrum, inverse)
    if data.draw(st.booleans(), "in place"):
        out = x
    else:
        out = data.draw(strided(torch.full(shape, math.nan, dtype=dtype)))
    t, steps = spectrum.turns[inverse], spectrum.on().tensor
    if data.draw(st.booleans(), "as planned"):
        gpu.rotate(x, out, where, 0, steps, *t)
    else:
        block = data.draw(st.sampled_from([1, 2, 4, 8]))
        width = 1 << (spectrum.pairs - 1).bit_length()
        run_cut(Plan(block, width, data.draw(st.integers(1, 4)), 1), [(x, out)], where, steps, t)
    assert_turned(out, expected)


@settings(max_examples=20)
@given(st.data())
def test_q_and_k_in_one_launch(data):
    spectrum, shape, where = data.draw(rotations())
    own = spectrum.heads or 1
    dtype = data.draw(st.sampled_from(DTYPES))
    heads = own * data.draw(st.integers(1, 3))
    q = data.draw(strided(drawn(shape, dtype, 1)))
    k = data.draw(strided(drawn((*shape[:-3], heads, *shape[-2:]), dtype, 2)))
    expected = [reference(t, where, spectrum, False) for t in (q, k)]
    outs = [torch.full(t.shape, math.nan, dtype=dtype) for t in (q, k)]
    if data.draw(st.booleans(), "k in place"):
        outs[1] = k
    gpu.rotate_qk(q, k, outs[0], outs[1], where, 0, spectrum.on().tensor, *spectrum.turns[False])
    for found, wanted in zip(outs, expected, strict=True):
        assert_turned(found, wanted)


@pytest.mark.parametrize("shares", [1, 2, 3, 4, 5, 7])
def test_every_head_is_turned_once_whatever_its_share(shares):
    """6 query heads and 2 key heads of 2 spectrum heads, in more shares than there are heads."""
    spectrum = Spectrum((((0.5, 0.1),), ((0.25, 2.0),)), 4)
    q, k = drawn((1, 6, 5, 4), torch.float64, 1), drawn((1, 2, 5, 4), torch.float64, 2)
    where = torch.arange(5)
    outs = [torch.full_like(t, math.nan) for t in (q, k)]
    cut = Plan(block_rows=4, block_pairs=2, shares=shares, warps=1)
    run_cut(cut, [(q, outs[0]), (k, outs[1])], where, spectrum.on().tensor, spectrum.turns[False])
    assert_turned(outs[0], exact(q, where, spectrum))
    assert_turned(outs[1], exact(k, where, spectrum))


@pytest.mark.parametrize("dtype", DTYPES)
def test_unusual_strides_by_name(dtype):
    spectrum, where = geometric(12, rotary_dim=8, lane_offset=2), torch.arange(5) - 2
    x = drawn((2, 3, 5, 12), dtype)
    expected = exact(x, where, spectrum)
    for _, view in odd_views(x):
        out = torch.empty_like(view).fill_(math.nan)
        gpu.rotate(view, out, where, 0, spectrum.on().tensor, *spectrum.turns[False])
        assert_turned(out, expected)
        gpu.rotate(view, view, where, 0, spectrum.on().tensor, *spectrum.turns[False])
        assert_turned(view, expected)
    spread = drawn((2, 1, 5, 12), dtype).expand(2, 3, 5, 12)
    out = torch.full(spread.shape, math.nan, dtype=dtype)
    gpu.rotate(spread, out, where, 0, spectrum.on().tensor, *spectrum.turns[False])
    assert_turned(out, exact(spread, where, spectrum))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_else_is_written(dtype, layout, in_place):
    """A result inside a larger memory full of patterns; passing lanes keep even a nan's bits."""
    spectrum = geometric(12, rotary_dim=6, lane_offset=3, layout=layout)
    source = torch.arange(4 * 9 * 20, dtype=torch.int64) * 0x9E37_79B9_7F4A_7C15
    memory = source.view(dtype)[: 4 * 9 * 20].reshape(4, 9, 20).clone()
    kept = bits(memory.clone())
    view = memory[1:3, 2:7, 4:16]
    view[..., 3:9] = drawn((2, 5, 6), dtype)
    x = view if in_place else view.clone()
    values, before = x.clone(), bits(memory.clone())
    where = torch.arange(5)
    gpu.rotate(x, view, where, 0, spectrum.on().tensor, *spectrum.turns[False])
    turned = slice(4 + 3, 4 + 9)
    assert_turned(view[..., 3:9], exact(values, where, spectrum)[..., 3:9])
    after = bits(memory)
    after[1:3, 2:7, turned] = before[1:3, 2:7, turned]
    assert torch.equal(after, before)
    assert torch.equal(before[:1], kept[:1])


def test_passing_lanes_are_copied_in_runs():
    """More passing lanes than one run takes, before, between and behind the halves."""
    spectrum = Spectrum(((0.5, 0.1),), 800, lane_offset=131, pairing="proportional")
    x, where = drawn((1, 2, 3, 800), torch.float32), torch.arange(3)
    out = torch.full_like(x, math.nan)
    gpu.rotate(x, out, where, 0, spectrum.on().tensor, *spectrum.turns[False])
    assert_turned(out, exact(x, where, spectrum))


def test_bfloat16_is_the_float32_result_but_for_rounding():
    """Each is one of the two neighbours of the float32 value."""
    spectrum, where = geometric(32), torch.arange(40) * 10**15
    x = drawn((1, 1, 40, 32), torch.bfloat16)
    out, full = torch.empty_like(x), torch.empty(x.shape)
    gpu.rotate(x, out, where, 0, spectrum.on().tensor, *spectrum.turns[False])
    gpu.rotate(x.float(), full, where, 0, spectrum.on().tensor, *spectrum.turns[False])
    truncated = (full.view(torch.int32) & -65536).view(torch.float32)
    assert ((out.float() == truncated) | (out == full.bfloat16())).all()


def test_offsets_beyond_two_to_the_31():
    """Two heads and two tokens 2³¹ elements apart; of the memory only a few pages are touched."""
    far = 2**31
    memory = torch.empty(2 * far + 64, dtype=torch.float16)
    x = memory.as_strided((2, 2, 8), (far - 32, far, 1))
    x.copy_(drawn((2, 2, 8), torch.float16))
    spectrum, where = geometric(8), torch.tensor([3, 10**9])
    expected = exact(x.clone(), where, spectrum)
    gpu.rotate(x, x, where, 0, spectrum.on().tensor, *spectrum.turns[False])
    assert_turned(x, expected)


@pytest.mark.parametrize("shape", [(0, 2, 3, 8), (2, 0, 3, 8), (2, 2, 0, 8)])
def test_empty_tensors(shape):
    x, spectrum = torch.zeros(shape), geometric(8)
    where = torch.arange(shape[-2])
    gpu.rotate(x, torch.empty_like(x), where, 0, spectrum.on().tensor, *spectrum.turns[False])
    table = torch.zeros(shape[-2], 4)
    gpu.rotate_by(x, torch.empty_like(x), table, table, 4 << 32)
    q = drawn((2, 3, shape[-2], 8), torch.float32)[: shape[0]]
    out = torch.full_like(q, math.nan)
    gpu.rotate_qk(x, q, x, out, where, 0, spectrum.on().tensor, *spectrum.turns[False])
    assert_turned(out, exact(q, where, spectrum))


# --- given tables ---------------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.data())
def test_given_tables(data):
    pairs, tokens = data.draw(st.integers(0, 9)), data.draw(st.integers(1, 9))
    layout = data.draw(st.sampled_from(["half", "interleaved"]))
    before, after = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 4))
    lead = data.draw(st.lists(st.integers(1, 2), max_size=2))
    heads, key_heads = data.draw(st.sampled_from([(4, 4), (4, 2), (6, 2)]))
    dtype = data.draw(st.sampled_from(DTYPES))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    width = before + 2 * pairs + after
    q = data.draw(strided(drawn((*lead, heads, tokens, width), dtype, 3)))
    k = data.draw(strided(drawn((*lead, key_heads, tokens, width), dtype, 4)))
    own = data.draw(st.sampled_from([None, 1, 2]))  # heads of the tables
    place = lead if own or data.draw(st.booleans()) else []
    shape = (*place, *([own] if own else []), data.draw(st.sampled_from([1, tokens])), pairs)
    kind = data.draw(st.sampled_from([wide, dtype]))
    cos, sin = (data.draw(strided(drawn(shape, kind, seed))) for seed in (1, 2))
    lanes = pair_slices(width, pairs, layout, before, "standard")
    expected = [by_tables(x, cos, sin, lanes, own) for x in (q, k)]
    twice = data.draw(st.booleans(), "each angle twice")
    if twice:
        cos, sin = (doubled(t, layout) for t in (cos, sin))
    outs = [torch.full(x.shape, math.nan, dtype=dtype) for x in (q, k)]
    if data.draw(st.booleans(), "q and k"):
        outs[0] = q if data.draw(st.booleans(), "in place") else outs[0]
        gpu.rotate_qk_by(q, k, outs[0], outs[1], cos, sin, number(lanes, twice=twice))
    else:
        for x, out in zip((q, k), outs, strict=True):
            gpu.rotate_by(x, out, cos, sin, number(lanes, twice=twice))
    for found, wanted in zip(outs, expected, strict=True):
        assert_turned(found, wanted)


def doubled(table: Tensor, layout: str) -> Tensor:
    """A table whose second copy nobody may read."""
    second = torch.full_like(table, math.nan)
    if layout == "half":
        return torch.cat((table, second), -1)
    return torch.stack((table, second), -1).flatten(-2)


def by_tables(
    x: Tensor, cos: Tensor, sin: Tensor, lanes: tuple[slice, slice], own: int | None
) -> Tensor:
    """float64, number by number of heads: head h takes the table of its group."""
    turned = x.double().clone()
    heads = x.shape[-3]
    for h in range(heads):
        c, s = (t.double().select(-3, h * own // heads) if own else t.double() for t in (cos, sin))
        a, b = (x.select(-3, h)[..., part].double() for part in lanes)
        turned.select(-3, h)[..., lanes[0]] = a * c - b * s
        turned.select(-3, h)[..., lanes[1]] = a * s + b * c
    return turned


@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8)], ids=["shared", "per sequence"])
def test_tables_side_by_side_with_wide_heads(shape):
    """Strides are counted in units of eight here."""
    x, cos, sin = (drawn(s, torch.float32, i) for i, s in enumerate([(2, 3, 5, 16), shape, shape]))
    out = torch.full_like(x, math.nan)
    gpu.rotate_by(x, out, cos, sin, 8 << 32)
    c, s = (t.double().unsqueeze(-3) for t in (cos, sin))
    a, b = x.double().split(8, -1)
    assert_turned(out, torch.cat([a * c - b * s, a * s + b * c], -1))


def test_leading_dimensions_that_cannot_be_merged():
    """Positions repeat over the middle one, so all four dimensions of rows stay apart."""
    spectrum = geometric(4)
    x, where = drawn((2, 3, 2, 2, 3, 4), torch.float64), torch.arange(12).view(2, 1, 2, 3) ** 5
    out = torch.full_like(x, math.nan)
    gpu.rotate(x, out, where, 0, spectrum.on().tensor, *spectrum.turns[False])
    assert_turned(out, reference(x, where, spectrum, False))


@pytest.mark.parametrize("offset", [0, -3, 1, 2**31, 2**63 - 6, -(2**63)])
def test_positions_that_count_tokens(offset):
    """No positions: the offset and on, for every sequence."""
    spectrum = geometric(8, layout="interleaved")
    q, k = drawn((2, 2, 5, 8), torch.float64, 1), drawn((2, 1, 5, 8), torch.float64, 2)
    expected = [exact(x, torch.arange(5) + offset, spectrum) for x in (q, k)]
    steps, turn = spectrum.on().tensor, spectrum.turns[False]
    out = torch.full_like(q, math.nan)
    gpu.rotate(q, out, None, offset, steps, *turn)
    assert_turned(out, expected[0])
    gpu.rotate_qk_(q, k, None, offset, steps, *turn)
    assert_turned(q, expected[0])
    assert_turned(k, expected[1])
    flat = drawn((5, 8), torch.float64, 4)  # no heads
    wanted = exact(flat, torch.arange(5) + offset, spectrum)
    gpu.rotate(flat, flat, None, offset, steps, *turn)
    assert_turned(flat, wanted)
    one = drawn((4, 2, 1, 8), torch.float64, 3)  # one token of four sequences
    wanted = exact(one, torch.tensor([offset]), spectrum)
    gpu.rotate(one, one, None, offset, steps, *turn)
    assert_turned(one, wanted)


def test_a_result_that_cannot_be_written_is_refused():
    """Before anything is written; and as the error that sends callers the careful way."""
    spectrum, where = geometric(8), torch.arange(4)
    memory = drawn((2, 9, 8), torch.float32)
    before = memory.clone()
    x, steps, turn = memory[:, :4], spectrum.on().tensor, spectrum.turns[False]
    for out in (memory[:, 1:5], memory[:, 3:7]):
        with pytest.raises(RuntimeError, match="out overlaps x"):
            gpu.rotate(x, out, where, 0, steps, *turn)
    with pytest.raises(RuntimeError, match="is expanded"):
        gpu.rotate(x, torch.empty(1, 4, 8).expand(2, 4, 8), where, 0, steps, *turn)
    assert torch.equal(memory, before)
    gpu.rotate(x[:1], memory[1:, 5:], where, 0, steps, *turn)  # apart: memory after x
    assert_turned(memory[1:, 5:], exact(before[:1, :4], where, spectrum))
