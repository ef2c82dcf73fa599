"""The rotation against a literal float64 loop: every layout, stride, dtype and derivative."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numeric_oracles import HALF_STEP, lane_pairs, loop_rotate, odd_views
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from ropewalk import (
    RoPE,
    halve_tables,
    rotate,
    rotate_,
    rotate_by,
    rotate_by_,
    rotate_qk,
    rotate_qk_,
    spectra,
)
from ropewalk.kernels import Steps
from ropewalk.spectra import Spectrum, geometric

FULL = geometric(8)
SPECTRA = {
    "half": FULL,
    "interleaved": geometric(8, layout="interleaved"),
    "one pair": Spectrum(((0.7,),), 2),
    "wide": geometric(256, 5e5),
    "wide interleaved": geometric(256, 5e5, layout="interleaved"),
    "rest behind": geometric(10, rotary_dim=4),
    "rest in front": geometric(10, rotary_dim=4, lane_offset=6, layout="interleaved"),
    "rest on both sides": geometric(13, rotary_dim=6, lane_offset=3),
    "odd interleaved": geometric(11, rotary_dim=6, lane_offset=5, layout="interleaved"),
    "proportional": Spectrum(((1.0, 0.1, 0.01),), 12, pairing="proportional", lane_offset=2),
    "p-rope": spectra.proportional(16, fraction=0.5),
    "factor": geometric(13, rotary_dim=8).replace(attention_factor=1.19, lane_offset=1),
    "two axes": spectra.axial(8, axes=2),
    "three mixed axes": Spectrum(((1.0, 0.3), (-0.2, 0.0), (0.01, 2.0)), 6, lane_offset=1),
    "heads": Spectrum((((1.0, 0.1),), ((2.0, 0.3),)), 5, layout="interleaved"),
    "heads and axes": Spectrum(
        (((1.0, 0.1), (0.5, 0.2)), ((2.0, 0.0), (0.0, 0.3))), 4, attention_factor=0.9
    ),
    "negative": Spectrum(((-1.0, 3.0),), 4, unit=0.25),
}
BATCH, HEADS, TOKENS = 2, 4, 3
BIG = 2**31
FORWARD_MODE = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
"""PyTorch scripts its own forward-mode formulas and warns about itself."""


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=generator(seed)).to(dtype)


def positions_of(spectrum: Spectrum, batched: bool, low: int = -BIG, high: int = BIG) -> Tensor:
    shape = (BATCH, TOKENS) if batched else (TOKENS,)
    shape = shape if spectrum.axes == 1 else (*shape, spectrum.axes)
    return torch.randint(low, high, shape, generator=generator(7))


def planes(positions: Tensor, spectrum: Spectrum, batch: int = BATCH) -> Tensor:
    """Positions as [batch, tokens, axes]."""
    positions = positions[..., None] if spectrum.axes == 1 else positions
    return positions.expand(batch, *positions.shape[-2:])


@pytest.fixture(params=SPECTRA.values(), ids=list(SPECTRA))
def spectrum(request) -> Spectrum:
    return request.param


# Values


@pytest.mark.parametrize("batched", [False, True], ids=["[T]", "[B, T]"])
def test_rotate_is_the_loop(spectrum, batched):
    x, positions = drawn(BATCH, HEADS, TOKENS, spectrum.head_dim), positions_of(spectrum, batched)
    expected = loop_rotate(x, planes(positions, spectrum), spectrum)
    tolerance = 1e-14 + 8 * spectrum.axes * HALF_STEP * BIG
    for given_spectrum in (spectrum, spectrum.on()):
        found = rotate(x, positions, given_spectrum)
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    back = rotate(x, positions, spectrum, inverse=True)
    expected = loop_rotate(x, planes(positions, spectrum), spectrum, inverse=True)
    torch.testing.assert_close(back, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [(torch.float32, 2.0**-24), (torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)],
)
@pytest.mark.parametrize("inverse", [False, True])
def test_narrow_dtypes_are_rounded_once(spectrum, dtype, unit, inverse):
    x = drawn(BATCH, HEADS, TOKENS, spectrum.head_dim, dtype=dtype)
    positions = positions_of(spectrum, False, -(2**31), 2**31)
    found = rotate(x, positions, spectrum, inverse=inverse)
    assert found.dtype == dtype
    exact = loop_rotate(x, planes(positions, spectrum), spectrum, inverse=inverse)
    slack = 5e-7 * x.abs().max().double()
    allowed = slack + (unit * exact.abs() if dtype != torch.float32 else 0)
    assert ((found.double() - exact).abs() <= allowed).all()
    if dtype != torch.float32:
        assert torch.equal(found, rotate(x.float(), positions, spectrum, inverse=inverse).to(dtype))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rotate_of_any_shape_is_the_loop(data):
    pairs = data.draw(st.integers(1, 5), "pairs")
    front, behind = data.draw(st.integers(0, 3), "front"), data.draw(st.integers(0, 3), "behind")
    layout = data.draw(st.sampled_from(["half", "interleaved"]), "layout")
    axes, heads = data.draw(st.integers(1, 3), "axes"), data.draw(st.integers(1, 2), "kv heads")
    frequency = st.floats(-3, 3)
    matrix = st.lists(
        st.lists(frequency, min_size=pairs, max_size=pairs), min_size=axes, max_size=axes
    )
    freqs: Any = data.draw(st.lists(matrix, min_size=heads, max_size=heads), "freqs")
    spectrum = Spectrum(
        freqs if data.draw(st.booleans(), "own frequencies") else freqs[0],
        front + 2 * pairs + behind,
        layout=layout,
        lane_offset=front,
        attention_factor=data.draw(st.floats(0.5, 2), "factor"),
    )
    batch, tokens = data.draw(st.integers(0, 2), "batch"), data.draw(st.integers(0, 3), "tokens")
    query_heads = heads * data.draw(st.integers(1, 2), "group")
    x = drawn(batch, query_heads, tokens, spectrum.head_dim, seed=pairs)
    positions = torch.randint(-(2**31), 2**31, (batch, tokens, axes), generator=generator(axes))
    inverse = data.draw(st.booleans(), "inverse")
    flat = positions if axes > 1 else positions[..., 0]
    found = rotate(x, flat, spectrum, inverse=inverse)
    expected = loop_rotate(x, positions, spectrum, inverse=inverse)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


def test_a_positive_quarter_turn_takes_the_first_lane_to_the_second():
    quarter = Spectrum(((math.pi / 2,),), 2)
    turned = rotate(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([1, 1]), quarter)
    torch.testing.assert_close(turned, torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))


@pytest.mark.parametrize(
    ("pairing", "layout", "partner"),
    [("standard", "half", 5), ("standard", "interleaved", 3), ("proportional", "half", 8)],
)
def test_which_lanes_form_a_pair(pairing, layout, partner):
    quarter = Spectrum(
        ((math.pi / 2, 0.0, 0.0),), 12, lane_offset=2, layout=layout, pairing=pairing
    )
    x = torch.zeros(1, 12).index_fill(1, torch.tensor([2]), 1.0)
    turned = rotate(x, torch.tensor([1]), quarter)
    torch.testing.assert_close(
        turned, torch.zeros(1, 12).index_fill(1, torch.tensor([partner]), 1.0)
    )


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_the_factor_scales_pairs_that_stand_but_not_lanes_that_pass(layout):
    spectrum = Spectrum(((1.0, 0.0),), 8, lane_offset=1, layout=layout, attention_factor=1.25)
    x = drawn(1, 2, 3, 8)
    turned = rotate(x, torch.tensor([5, 0, -9]), spectrum)
    still = list(lane_pairs(spectrum)[1])
    assert torch.equal(turned[..., still], 1.25 * x[..., still])
    for lane in (0, 5, 6, 7):
        assert torch.equal(turned[..., lane], x[..., lane])
    norms = turned[..., 1:5].norm(dim=-1) / x[..., 1:5].norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, 1.25))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_inverse_undoes(spectrum, dtype):
    spectrum = spectrum.replace(attention_factor=1.37)
    x = drawn(BATCH, HEADS, TOKENS, spectrum.head_dim, dtype=dtype)
    positions = positions_of(spectrum, True, -(2**63), 2**63 - 1)
    tolerance = 1e-14 if dtype == torch.float64 else 2e-6
    there = rotate(x, positions, spectrum)
    assert (there - x).abs().max() > 0.1
    torch.testing.assert_close(
        rotate(there, positions, spectrum, inverse=True), x, rtol=0, atol=tolerance
    )
    back = rotate_(rotate_(x.clone(), positions, spectrum), positions, spectrum, inverse=True)
    torch.testing.assert_close(back, x, rtol=0, atol=tolerance)


def test_position_zero_is_the_identity_bit_for_bit():
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        x = drawn(2, 2, 5, 8, dtype=dtype)
        assert torch.equal(rotate(x, torch.zeros(5, dtype=torch.int64), FULL), x)


EXTREMES = (2**63 - 1, -(2**63), 2**53 + 1, -1, 0, 1 - 2**62)


def test_rotations_compose_at_any_position():
    x = drawn(1, 1, len(EXTREMES), 8)
    there, shift = torch.tensor(EXTREMES), 2**62 + 12345
    twice = rotate(rotate(x, there, FULL), torch.full_like(there, shift), FULL)
    torch.testing.assert_close(rotate(x, there + shift, FULL), twice, rtol=0, atol=1e-14)


def test_scores_do_not_depend_on_where_the_pair_stands():
    """⟨R(i+t)q, R(j+t)k⟩ in float32 is as good at t = 10⁹ as at t = 0."""
    spectrum, i, j = geometric(64), 17, 3
    q, k = drawn(512, 1, 64, dtype=torch.float32), drawn(512, 1, 64, dtype=torch.float32, seed=1)

    def error(t: int) -> float:
        turned_q = rotate(q, torch.tensor([i + t]), spectrum).double()
        turned_k = rotate(k, torch.tensor([j + t]), spectrum).double()
        wide_q = rotate(q.double(), torch.tensor([i]), spectrum)
        wide_k = rotate(k.double(), torch.tensor([j]), spectrum)
        exact = (wide_q * wide_k).sum(-1)
        scale = q.double().norm(dim=-1) * k.double().norm(dim=-1)
        return float((((turned_q * turned_k).sum(-1) - exact).abs() / scale).max())

    near = error(0)
    assert 1e-10 < near < 1e-7
    for t in (1, 4096, 131_072, 10_000_019, 10**9, -(10**9), 2**31):
        assert error(t) <= 2 * near, t


# Positions


@pytest.mark.parametrize("offset", [0, 5, -3, 2**31 + 5, 2**62, 2**63 - TOKENS, -(2**63)])
def test_offset_counts_from_there(offset):
    x = drawn(BATCH, HEADS, TOKENS, 8)
    expected = rotate(x, torch.arange(TOKENS) + offset, FULL)
    assert torch.equal(rotate(x, None, FULL, offset=offset), expected)
    assert torch.equal(rotate(x, None, FULL, offset=torch.tensor(offset)), expected)


def test_an_offset_a_row():
    x, starts = drawn(BATCH, HEADS, TOKENS, 8), torch.tensor([3, -(2**40)])
    expected = rotate(x, starts[:, None] + torch.arange(TOKENS), FULL)
    assert torch.equal(rotate(x, None, FULL, offset=starts), expected)
    for row in range(BATCH):
        alone = rotate(x[row], None, FULL, offset=int(starts[row]))
        assert torch.equal(expected[row], alone)


def test_none_counts_from_zero():
    x = drawn(BATCH, HEADS, TOKENS, 8)
    assert torch.equal(rotate(x, None, FULL), rotate(x, torch.arange(TOKENS), FULL))


def test_leading_dimensions_are_free():
    x, positions = (
        drawn(3, 2, HEADS, TOKENS, 8),
        torch.randint(-99, 99, (3, 2, TOKENS), generator=generator()),
    )
    found = rotate(x, positions, FULL)
    for a in range(3):
        for b in range(2):
            assert torch.equal(found[a, b], rotate(x[a, b], positions[a, b], FULL))
    shared = rotate(x, positions[0, 0], FULL)
    assert torch.equal(shared[0, 0], found[0, 0])
    assert torch.equal(shared[2, 1], rotate(x[2, 1], positions[0, 0], FULL))
    one_row = rotate(x[0], positions[0, :1], FULL)
    assert torch.equal(one_row, rotate(x[0], positions[0, 0], FULL))


def test_plain_matrices_of_tokens():
    x = drawn(TOKENS, 8)
    whole = rotate(x.expand(1, 1, TOKENS, 8), None, FULL)
    assert torch.equal(rotate(x, None, FULL), whole[0, 0])


def test_each_kv_head_serves_its_group():
    freqs = (((1.0, 0.1),), ((2.0, 0.3),))
    x, positions = drawn(BATCH, 6, TOKENS, 4), positions_of(FULL, True)
    found = rotate(x, positions, Spectrum(freqs, 4))
    for head in range(6):
        alone = rotate(x[:, head : head + 1], positions, Spectrum(freqs[head // 3], 4))
        assert torch.equal(found[:, head : head + 1], alone)
    with pytest.raises(
        ValueError, match=r"x has 3 heads, not a multiple of the spectrum's heads=2"
    ):
        rotate(x[:, :3], positions, Spectrum(freqs, 4))


# Memory


def test_any_strides(spectrum):
    x, positions = drawn(BATCH, HEADS, TOKENS, spectrum.head_dim), positions_of(spectrum, True)
    expected = rotate(x, positions, spectrum)
    for name, view in odd_views(x):
        assert torch.equal(view, x), name
        assert torch.equal(rotate(view, positions, spectrum), expected), name
        assert torch.equal(rotate_(view, positions, spectrum), expected), name
        assert torch.equal(view, expected), name


def test_in_place_leaves_the_neighbours():
    packed = drawn(BATCH, TOKENS, 3, HEADS, 8)
    before = packed.clone()
    q, k = packed[:, :, 0].transpose(1, 2), packed[:, :, 1].transpose(1, 2)
    rotate_qk_(q, k, None, FULL, offset=4)
    assert torch.equal(packed[:, :, 2], before[:, :, 2])
    for slot in (0, 1):
        expected = rotate(before[:, :, slot].transpose(1, 2), None, FULL, offset=4)
        assert torch.equal(packed[:, :, slot].transpose(1, 2), expected)


def test_expanded_tensors():
    x = drawn(1, 1, TOKENS, 8).expand(BATCH, HEADS, TOKENS, 8)
    assert torch.equal(rotate(x, None, FULL), rotate(x.contiguous(), None, FULL))
    for write in (lambda: rotate_(x, None, FULL), lambda: rotate(x, None, FULL, out=x)):
        with pytest.raises(ValueError, match="expanded: several places share one memory"):
            write()


def test_inputs_are_left_alone(spectrum):
    x, positions = drawn(BATCH, HEADS, TOKENS, spectrum.head_dim), positions_of(spectrum, True)
    before, where = x.clone(), positions.clone()
    y = rotate(x, positions, spectrum)
    assert torch.equal(x, before)
    assert torch.equal(positions, where)
    assert y.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


@pytest.mark.parametrize("shape", [(0, 4, 3, 8), (2, 0, 3, 8), (2, 4, 0, 8), (0, 8)])
def test_empty_tensors(shape):
    x = torch.zeros(shape)
    assert rotate(x, None, FULL).shape == shape
    assert rotate(x, None, FULL, offset=7).shape == shape
    assert rotate_(x, None, FULL).shape == shape
    assert rotate(x, None, geometric(8, layout="interleaved")).shape == shape


def test_out_is_written_and_returned():
    x = drawn(BATCH, HEADS, TOKENS, 8)
    out = torch.full_like(x, math.nan)
    assert rotate(x, None, FULL, out=out) is out
    assert torch.equal(out, rotate(x, None, FULL))
    itself = x.clone()
    assert rotate(itself, None, FULL, out=itself) is itself
    assert torch.equal(itself, out)


def test_out_may_be_a_slice_of_a_cache():
    cache = torch.full((BATCH, HEADS, 10, 8), math.nan, dtype=torch.bfloat16)
    k = drawn(BATCH, TOKENS, HEADS, 8, dtype=torch.bfloat16).transpose(1, 2)
    rotate(k, None, FULL, offset=5, out=cache[:, :, 5 : 5 + TOKENS])
    assert torch.equal(cache[:, :, 5 : 5 + TOKENS], rotate(k, None, FULL, offset=5))
    assert cache[:, :, :5].isnan().all()
    assert cache[:, :, 5 + TOKENS :].isnan().all()


def test_out_has_no_gradient():
    x = drawn(1, 1, TOKENS, 8).requires_grad_()
    out = torch.empty_like(x, requires_grad=False)
    with pytest.raises(ValueError, match="out= has no gradient; call without out="):
        rotate(x, None, FULL, out=out)
    with pytest.raises(ValueError, match="out= has no gradient"):
        rotate(x.detach(), None, FULL, out=torch.empty_like(x, requires_grad=True))
    with torch.no_grad():
        assert torch.equal(rotate(x, None, FULL, out=out), rotate(x.detach(), None, FULL))


@pytest.mark.parametrize(
    "out", [torch.empty(1, 1, TOKENS, 9), torch.empty(1, 1, TOKENS, 8, device="meta"),
            torch.empty(1, 1, TOKENS, 8, dtype=torch.bfloat16), torch.empty(1, TOKENS, 8)],
    ids=["width", "device", "dtype", "dimensions"],
)  # fmt: skip
def test_out_must_match(out):
    with pytest.raises(ValueError, match=r"out has shape .* x needs \(1, 1, 3, 8\), torch.float32"):
        rotate(torch.zeros(1, 1, TOKENS, 8), None, FULL, out=out)


def test_q_and_k_turn_alike():
    q, k = drawn(BATCH, HEADS, TOKENS, 8), drawn(BATCH, 2, TOKENS, 8, seed=1)
    for inverse in (False, True):
        expected = [rotate(x, None, FULL, offset=9, inverse=inverse) for x in (q, k)]
        found = rotate_qk(q, k, None, FULL, offset=9, inverse=inverse)
        assert all(map(torch.equal, found, expected))
        own = q.clone(), k.clone()
        written = rotate_qk_(*own, None, FULL, offset=9, inverse=inverse)
        assert all(a is b for a, b in zip(written, own, strict=True))
        assert all(map(torch.equal, own, expected))


# Given tables


def cut(table: Tensor, x: Tensor, head_tables: bool) -> Tensor:
    """[..., heads, tokens, pairs] broadcast by hand."""
    if not head_tables and table.dim() == 3:
        table = table[:, None]
    return table.expand(*x.shape[:-1], table.shape[-1])


@pytest.mark.parametrize("name", [n for n, s in SPECTRA.items() if s.heads is None])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("inverse", [False, True])
def test_rotate_by_is_rotate(name, batched, inverse):
    spectrum = SPECTRA[name]
    x, positions = drawn(BATCH, HEADS, TOKENS, spectrum.head_dim), positions_of(spectrum, batched)
    cos, sin = spectrum.tables(positions, dtype=torch.float64)
    expected = rotate(x, positions, spectrum, inverse=inverse)
    how: dict[str, Any] = {
        "layout": spectrum.layout,
        "lane_offset": spectrum.lane_offset,
        "pairing": spectrum.pairing,
        "inverse": inverse,
    }
    broadcast = [(cos, sin), (cut(cos, x, False), cut(sin, x, False))]
    if batched:
        broadcast.append((cos[:, None], sin[:, None]))
    for tables in broadcast:
        found = rotate_by(x, *tables, **how)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
        out = torch.full_like(x, math.nan)
        assert rotate_by(x, *tables, **how, out=out) is out
        assert torch.equal(out, found)
        own = x.clone()
        assert rotate_by_(own, *tables, **how) is own
        assert torch.equal(own, found)


def test_rotate_by_takes_a_table_a_head():
    freqs = (((1.0, 0.1),), ((2.0, 0.3),))
    spectrum, x = Spectrum(freqs, 4), drawn(2, TOKENS, 4)
    cos, sin = spectrum.tables(torch.arange(TOKENS), dtype=torch.float64)
    torch.testing.assert_close(rotate_by(x, cos, sin), rotate(x, None, spectrum))


@pytest.mark.parametrize("watched", ["nothing", "x", "tables"])
@pytest.mark.parametrize("sin_dtype", [torch.float32, torch.float64])
def test_batched_tables_belong_to_the_last_batch_dimension(watched, sin_dtype):
    """x ``[3, 3, heads, tokens, lanes]``, tables ``[3, tokens, pairs]``: one row at a time."""
    x = drawn(3, 3, 2, 5, 8, dtype=torch.float32, seed=1)
    angles = drawn(3, 5, 4, dtype=torch.float32, seed=2)

    def turn_row(a: int, b: int) -> Tensor:
        return rotate_by(x[a, b], angles[b].cos(), angles[b].sin())

    rows = [[turn_row(a, b) for b in range(3)] for a in range(3)]
    expected = torch.stack([torch.stack(row) for row in rows])
    cos, sin = angles.cos(), angles.sin().to(sin_dtype)
    if watched != "nothing":
        (x if watched == "x" else cos).requires_grad_()
    torch.testing.assert_close(rotate_by(x, cos, sin), expected)


def test_rotate_by_keeps_the_dtype_and_computes_wide():
    cos, sin = FULL.tables(torch.arange(TOKENS) + 100)
    for dtype in (torch.bfloat16, torch.float16):
        x = drawn(BATCH, HEADS, TOKENS, 8, dtype=dtype)
        found = rotate_by(x, cos, sin)
        assert found.dtype == dtype
        assert torch.equal(found, rotate_by(x.float(), cos, sin).to(dtype))


def test_inverse_of_tables_that_carry_a_factor():
    x = drawn(TOKENS, 8)
    cos, sin = FULL.tables(torch.tensor([1, 50, 999]), dtype=torch.float64)
    factor = torch.tensor([[1.5], [0.3], [2.0]], dtype=torch.float64)
    there = rotate_by(x, factor * cos, factor * sin)
    torch.testing.assert_close(rotate_by(there, factor * cos, factor * sin, inverse=True), x)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_halved_tables_are_the_half(layout):
    cos, sin = FULL.tables(torch.arange(5))
    double: Any = {
        "half": lambda t: torch.cat((t, t), -1),
        "interleaved": lambda t: t.repeat_interleave(2, -1),
    }[layout]
    found = halve_tables(double(cos), double(sin), layout=layout)
    assert torch.equal(found[0], cos)
    assert torch.equal(found[1], sin)


@pytest.mark.parametrize(
    ("cos", "sin", "error", "message"),
    [
        (torch.ones(2, 3), torch.ones(2, 3), ValueError, r"cos has shape \(2, 3\).*even"),
        (torch.tensor(1.0), torch.tensor(1.0), ValueError, r"cos has shape \(\).*even"),
        (torch.ones(2, 4), torch.ones(2, 2), ValueError, r"differ in shape"),
        (torch.ones(2, 4).long(), torch.ones(2, 4), TypeError, r"cos must be a real floating"),
        (torch.ones(2, 4), [[1.0]], TypeError, r"sin must be a real floating tensor.*got list"),
        (
            torch.ones(1, 4),
            torch.tensor([[1.0, 2.0, 1.0, 2.5]]),
            ValueError,
            r"copies in sin differ by up to 0\.5; they are not duplicated in layout='half'",
        ),
    ],
)
def test_tables_that_are_not_doubled(cos, sin, error, message):
    with pytest.raises(error, match=message):
        halve_tables(cos, sin)
    with pytest.raises(ValueError, match="layout='neox' is unknown"):
        halve_tables(torch.ones(2, 4), torch.ones(2, 4), layout="neox")


# Derivatives


def test_backward_turns_by_the_negative_angle_and_multiplies(spectrum):
    x = drawn(BATCH, HEADS, TOKENS, spectrum.head_dim).requires_grad_()
    positions = positions_of(spectrum, True, -(2**31), 2**31)
    cotangent = drawn(*x.shape, seed=5)
    expected = loop_rotate(cotangent, planes(positions, spectrum), spectrum, transpose=True)
    (found,) = torch.autograd.grad(rotate(x, positions, spectrum), x, cotangent)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_keep_the_dtype(dtype):
    x = drawn(BATCH, HEADS, TOKENS, 8, dtype=dtype).requires_grad_()
    cotangent = drawn(*x.shape, dtype=dtype, seed=5)
    (found,) = torch.autograd.grad(rotate(x, None, FULL, offset=7), x, cotangent)
    assert found.dtype == dtype
    wide = rotate(cotangent.double(), -(torch.arange(TOKENS) + 7), FULL)
    tolerance = 5e-7 if dtype == torch.float32 else 2.0**-7
    torch.testing.assert_close(found.double(), wide, rtol=tolerance, atol=tolerance)


def test_expanded_gradients_and_views():
    x = drawn(BATCH, HEADS, TOKENS, 8)
    cotangent = drawn(1, 1, 1, 8, seed=3).expand(x.shape)
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(rotate(leaf, None, FULL), leaf, cotangent.contiguous())
    for name, view in odd_views(x):
        leaf = view.detach().requires_grad_()
        (found,) = torch.autograd.grad(rotate(leaf, None, FULL), leaf, cotangent)
        assert torch.equal(found, expected), name
    leaf = x.clone().requires_grad_()
    rotate(leaf, None, FULL).sum().backward()
    other = x.clone().requires_grad_()
    (ones,) = torch.autograd.grad(rotate(other, None, FULL), other, torch.ones_like(x))
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, ones)


GRADCHECKED = ["half", "rest on both sides", "odd interleaved", "proportional", "heads and axes"]


@FORWARD_MODE
@pytest.mark.parametrize("name", GRADCHECKED)
@pytest.mark.parametrize("inverse", [False, True])
def test_gradcheck(name, inverse):
    spectrum = SPECTRA[name]
    positions = positions_of(spectrum, True, -1000, 1000)[:1, :2]
    x = drawn(1, 2, 2, spectrum.head_dim).requires_grad_()

    def function(x):
        return rotate(x, positions, spectrum, inverse=inverse)

    assert gradcheck(function, x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, x)


@FORWARD_MODE
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("how", [{}, {"layout": "interleaved", "lane_offset": 1}])
def test_gradcheck_of_given_tables(how, inverse):
    x = drawn(1, 2, 2, 6).requires_grad_()
    cos, sin = (drawn(2, 2, seed=s).requires_grad_() for s in (1, 2))

    def function(x, cos, sin):
        return rotate_by(x, cos, sin, inverse=inverse, **how)

    assert gradcheck(function, (x, cos, sin), check_forward_ad=True)
    assert gradgradcheck(function, (x, cos, sin))


@FORWARD_MODE
def test_forward_mode_and_function_transforms(spectrum):
    positions = positions_of(spectrum, False)
    x, v = drawn(HEADS, TOKENS, spectrum.head_dim), drawn(HEADS, TOKENS, spectrum.head_dim, seed=1)
    w = drawn(HEADS, TOKENS, spectrum.head_dim, seed=2)
    found = torch.func.jvp(lambda x: rotate(x, positions, spectrum), (x,), (v,))
    assert torch.equal(found[0], rotate(x, positions, spectrum))
    torch.testing.assert_close(found[1], rotate(v, positions, spectrum))
    gradient = torch.func.grad(lambda x: (rotate(x, positions, spectrum) * w).sum())(x)
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(rotate(leaf, positions, spectrum), leaf, w)
    torch.testing.assert_close(gradient, expected)


def test_vmap_over_x_positions_and_both(spectrum):
    x = drawn(3, HEADS, TOKENS, spectrum.head_dim)
    shape = (3, TOKENS) if spectrum.axes == 1 else (3, TOKENS, spectrum.axes)
    positions = torch.randint(-BIG, BIG, shape, generator=generator(3))

    def call(x, positions):
        return rotate(x, positions, spectrum)

    over_x = torch.vmap(call, (0, None))(x, positions[0])
    over_positions = torch.vmap(call, (None, 0))(x[0], positions)
    over_both = torch.vmap(call)(x, positions)
    last = torch.vmap(call, (-1, 1), out_dims=1)(x.movedim(0, -1), positions.movedim(0, 1))
    for i in range(3):
        assert torch.equal(over_x[i], call(x[i], positions[0]))
        assert torch.equal(over_positions[i], call(x[0], positions[i]))
        assert torch.equal(over_both[i], call(x[i], positions[i]))
        assert torch.equal(last[:, i], over_both[i])


def test_vmap_over_frequencies():
    """Several spectra of one shape at once: Steps is a pytree, so vmap maps its tensor."""
    many = [geometric(8, base) for base in (1e3, 1e4, 1e5)]
    stacked = torch.stack([s.on().tensor for s in many])
    x, positions = (
        drawn(3, HEADS, TOKENS, 8),
        torch.randint(-99, 99, (3, TOKENS), generator=generator()),
    )

    def call(x, positions, steps):
        return rotate(x, positions, Steps(steps, many[0]))

    both = torch.vmap(call)(x, positions, stacked)
    shared = torch.vmap(call, (0, None, 0))(x, positions[0], stacked)
    for i, one in enumerate(many):
        assert torch.equal(both[i], rotate(x[i], positions[i], one))
        assert torch.equal(shared[i], rotate(x[i], positions[0], one))


def test_per_sample_gradients():
    x, w = drawn(3, HEADS, TOKENS, 8), drawn(3, HEADS, TOKENS, 8, seed=4)
    positions = torch.randint(-99, 99, (3, TOKENS), generator=generator(3))
    scale = torch.tensor(1.7, dtype=torch.float64)

    def loss(scale, x, positions, w):
        return (rotate(x * scale, positions, FULL) * w).sum()

    found = torch.vmap(torch.func.grad(loss), (None, 0, 0, 0))(scale, x, positions, w)
    for i in range(3):
        expected = (rotate(x[i], positions[i], FULL) * w[i]).sum()
        torch.testing.assert_close(found[i], expected)


# In place under autograd


def test_in_place_gradients_are_right():
    x, w = drawn(BATCH, HEADS, TOKENS, 8).requires_grad_(), drawn(BATCH, HEADS, TOKENS, 8, seed=2)
    (expected,) = torch.autograd.grad(rotate(2 * x, None, FULL, offset=3), x, w)
    (found,) = torch.autograd.grad(rotate_(2 * x, None, FULL, offset=3), x, w)
    torch.testing.assert_close(found, expected)
    cos, sin = FULL.tables(torch.arange(TOKENS) + 3, dtype=torch.float64)
    (found,) = torch.autograd.grad(rotate_by_(2 * x, cos, sin), x, w)
    torch.testing.assert_close(found, expected)


def test_in_place_marks_the_change():
    x = drawn(BATCH, HEADS, TOKENS, 8).requires_grad_()
    for change in (
        lambda y: rotate_(y, None, FULL, offset=1),
        lambda y: rotate_by_(y, *FULL.tables(torch.arange(TOKENS))),
        lambda y: rotate_qk_(y, torch.zeros(1, 1, TOKENS, 8), None, FULL),
    ):
        y = x.exp()  # its backward reads its own result
        before = y._version
        change(y)
        assert y._version > before
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    with pytest.raises(ValueError, match="a leaf that requires grad"):
        rotate_(x, None, FULL)


def test_in_place_returns_its_argument():
    x = drawn(BATCH, HEADS, TOKENS, 8)
    assert rotate_(x, None, FULL) is x


# Errors

X = torch.zeros(2, 4, 3, 8)
loose = cast("Any", rotate)
loose_by = cast("Any", rotate_by)
ODD = spectra.axial(8, axes=2)
HALVES = torch.ones(3, 4)

BAD_CALLS = [
    (lambda: loose([1.0], None, FULL), TypeError, r"x must be a tensor .*got list"),
    (lambda: loose(X.long(), None, FULL), TypeError, r"x has dtype torch.int64.*real floating"),
    (lambda: loose(X.to(torch.complex64), None, FULL), TypeError, r"complex64.*real floating"),
    (lambda: loose(X, None, 64), TypeError, r"spectrum must be a Spectrum.*int.*geometric"),
    (lambda: loose(X, None, None), TypeError, r"spectrum must be a Spectrum or Steps.*NoneType"),
    (lambda: loose(X[..., :7], None, FULL), ValueError, r"\(2, 4, 3, 7\).*turns .*tokens, 8\]"),
    (lambda: loose(X[0, 0, 0], None, FULL), ValueError, r"x has shape \(8,\)"),
    (lambda: loose(X, torch.arange(4), FULL), ValueError, r"\(4,\), that is 4 tokens.*3 tokens"),
    (lambda: loose(X, torch.arange(1), FULL), ValueError, r"that is 1 tokens.*3 tokens"),
    (lambda: loose(X, torch.arange(3.0), FULL), TypeError, r"positions have dtype torch.float32"),
    (lambda: loose(X, torch.ones(3).bool(), FULL), TypeError, r"torch.bool.*left_padded"),
    (lambda: loose(X, [0, 1, 2], FULL), TypeError, r"must be a tensor of integers, got list"),
    (
        lambda: loose(X, torch.zeros(5, 3).long(), FULL),
        ValueError,
        r"shape \(5, 1, 3, 4\) do not broadcast over x \(2, 4, 3, 8\)",
    ),
    (
        lambda: loose(X[0], torch.zeros(2, 3).long(), FULL),
        ValueError,
        r"positions with a batch dimension need \[batch, heads, tokens, head_dim\]",
    ),
    (
        lambda: loose(X, torch.zeros(1, 1, 2, 3).long(), FULL),
        ValueError,
        r"do not broadcast over x",
    ),
    (lambda: loose(X, None, ODD), ValueError, r"axes=2: pass \[tokens, 2\]"),
    (lambda: loose(X, torch.arange(3), ODD), ValueError, r"with axes=2 the last dimension must"),
    (lambda: loose(X, torch.arange(3), FULL, offset=1), ValueError, r"both given"),
    (lambda: loose(X, None, FULL, offset=1.5), TypeError, r"offset=1\.5 must be an int"),
    (lambda: loose(X, None, FULL, offset=2**63), ValueError, r"offset=9223372036854775808 does"),
    (lambda: loose(X, None, FULL, offset=-(2**63) - 1), ValueError, r"does not fit int64"),
    (lambda: loose(X, None, FULL, offset=True), TypeError, r"offset=True must be an int"),
    (lambda: loose(X, None, FULL, offset=torch.tensor(1.5)), TypeError, r"must be integers"),
    (
        lambda: loose(X, None, FULL, offset=torch.zeros(2, 2).long()),
        ValueError,
        r"offset has shape \(2, 2\); use an int or \[batch\]",
    ),
    (
        lambda: loose(X, torch.arange(3, device="meta"), FULL),
        ValueError,
        r"x is on cpu, positions are on meta",
    ),
    (
        lambda: loose(X, torch.arange(3), FULL.on("meta")),
        ValueError,
        r"positions are on cpu, the frequencies on meta.*to_empty",
    ),
    (lambda: loose_by([1.0], HALVES, HALVES), TypeError, r"x must be a tensor"),
    (lambda: loose_by(X, HALVES, None), TypeError, r"sin must be a real floating.*NoneType"),
    (
        lambda: loose_by(X, HALVES.to(torch.complex64), HALVES),
        TypeError,
        r"cos must be a real.*complex64",
    ),
    (lambda: loose_by(X, HALVES.long(), HALVES), TypeError, r"cos must be a real.*int64"),
    (lambda: loose_by(X.long(), HALVES, HALVES), TypeError, r"x has dtype torch.int64"),
    (lambda: loose_by(X, HALVES, HALVES[:2]), ValueError, r"\(3, 4\) and sin \(2, 4\) differ"),
    (lambda: loose_by(X, HALVES[0], HALVES[0]), ValueError, r"at least two dimensions"),
    (lambda: loose_by(X, HALVES[:2], HALVES[:2]), ValueError, r"\(2, 4\) do not broadcast"),
    (
        lambda: loose_by(X, torch.ones(3, 5), torch.ones(3, 5)),
        ValueError,
        r"10 rotated lanes at lane_offset=0 do not fit in head_dim=8",
    ),
    (
        lambda: loose_by(X, HALVES, HALVES, lane_offset=1),
        ValueError,
        r"8 rotated lanes at lane_offset=1 do not fit in head_dim=8",
    ),
    (
        lambda: loose_by(X, HALVES, HALVES, lane_offset=-1),
        ValueError,
        r"lane_offset=-1 do not fit",
    ),
    (
        lambda: loose_by(X, HALVES, HALVES, lane_offset=1.5),
        TypeError,
        r"lane_offset=1\.5 must be an int",
    ),
    (lambda: loose_by(X, HALVES, HALVES, layout="neox"), ValueError, r"layout='neox' is unknown"),
    (lambda: loose_by(X, HALVES, HALVES, pairing="x"), ValueError, r"pairing='x' is unknown"),
    (
        lambda: loose_by(X, HALVES, HALVES, pairing="proportional", layout="interleaved"),
        ValueError,
        r"pairing='proportional' needs layout='half'",
    ),
    (
        lambda: loose_by(X, torch.ones(2, 1, 3, 4), torch.ones(2, 1, 3, 4), out=X[0]),
        ValueError,
        r"out has shape \(4, 3, 8\)",
    ),
    (
        lambda: loose_by(X, torch.ones(3, 1, 3, 4), torch.ones(3, 1, 3, 4)),
        ValueError,
        r"tables of shape \(3, 1, 3, 4\) do not broadcast over x \(2, 4, 3, 8\)",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS)
def test_a_bad_call_says_what_and_why(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_steps_on_another_device_are_made_anew_by_a_module():
    rope, x = RoPE(8), drawn(1, 1, TOKENS, 8)
    expected = rope.encode_q(x)
    rope.steps = rope.steps.to("meta")
    assert torch.equal(rope.encode_q(x), expected)
