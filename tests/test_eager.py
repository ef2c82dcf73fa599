"""The operators in PyTorch's own operations: the bits of the plain form, and the same refusals."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_kernel import DTYPES, drawn
from torch import Tensor

import ropewalk
from ropewalk.kernels import eager, fused, native, phases
from ropewalk.kernels.angles import tables_by_torch
from ropewalk.kernels.plain import broadcast_tables, compute_dtype, turn
from ropewalk.spectra import Spectrum, geometric
from ropewalk.spectra.lanes import Turn


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_same_bits_as_plain_arithmetic(data):
    layout = data.draw(st.sampled_from(["half", "interleaved"]))
    pairs, before, after = (data.draw(st.integers(*span)) for span in ((1, 9), (0, 3), (0, 3)))
    heads, group, axes = (data.draw(st.integers(1, 2)) for _ in range(3))
    own, batched, apart = (data.draw(st.booleans()) for _ in range(3))
    batch, tokens = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 7))
    dtype, seed = data.draw(st.sampled_from(DTYPES)), data.draw(st.integers(0, 99))
    rows = drawn((heads if own else 1, axes, pairs), torch.float64, seed).tolist()
    proportional = layout == "half" and apart
    head_dim = 2 * (before + pairs + after) if proportional else before + 2 * pairs + after
    spectrum = Spectrum(
        rows if own else rows[0],  # pyright: ignore[reportArgumentType] (lists are frozen)
        head_dim,
        layout=layout,
        lane_offset=before,
        pairing="proportional" if proportional else "standard",
        attention_factor=data.draw(st.sampled_from([1.0, 1.25])),
    )
    shape = (batch, tokens, axes) if batched else (tokens, axes)
    where = torch.randint(-(2**62), 2**62, shape, generator=torch.Generator().manual_seed(seed))
    where = where.squeeze(-1) if axes == 1 else where
    x = drawn((batch, heads * group, tokens, head_dim), dtype, seed)
    steps, how = spectrum.on().tensor, spectrum.turns[data.draw(st.booleans())]
    cos, sin = tables_by_torch(where, steps, how.scale, compute_dtype(dtype))
    cos, sin = broadcast_tables(cos, x, own), broadcast_tables(sin, x, own)
    expected = turn(x, cos, -sin if how.negative else sin, spectrum.lanes)
    eager._BLOCK, before_test = data.draw(st.sampled_from([1, 40, 1 << 19])), eager._BLOCK
    try:
        out = torch.full_like(x, 7)
        eager.rotate(x, out, where, 0, steps, how.scale, how.lanes)
        assert torch.equal(out, expected)
        in_place = x.clone().transpose(1, 2).contiguous().transpose(1, 2)
        eager.rotate(in_place, in_place, where, 0, steps, how.scale, how.lanes)
        assert torch.equal(in_place, expected)
        by = torch.full_like(x, 7)
        full = [t[(None,) * (4 - t.dim())] for t in (cos, -sin if how.negative else sin)]
        eager.rotate_by(x, by, full[0], full[1], how.lanes & ~1)
        assert torch.equal(by, expected)
    finally:
        eager._BLOCK = before_test


def test_q_and_k_share_their_tables():
    q, k = drawn((2, 8, 5, 16), torch.float32, 1), drawn((2, 2, 5, 16), torch.float32, 2)
    how = geometric(16).turns[0]
    steps = geometric(16).on().tensor
    both = [torch.empty_like(t) for t in (q, k)]
    alone = [torch.empty_like(t) for t in (q, k)]
    eager.rotate_qk(q, k, both[0], both[1], None, 2**40, steps, how.scale, how.lanes)
    for x, out in zip((q, k), alone, strict=True):
        eager.rotate(x, out, torch.arange(5) + 2**40, 0, steps, how.scale, how.lanes)
    assert all(torch.equal(a, b) for a, b in zip(both, alone, strict=True))
    eager.rotate_qk_(q, k, None, 2**40, steps, how.scale, how.lanes)
    assert torch.equal(q, both[0])
    assert torch.equal(k, both[1])


@pytest.mark.parametrize(
    "cos",
    [
        torch.ones(4, 8),  # other tokens
        torch.ones(3, 1, 5, 8),  # other batch
        torch.ones(5, 9),  # more lanes than x has
        torch.ones(5, 8, dtype=torch.int64),
        torch.ones(1, 1, 1, 5, 8),
    ],
    ids=lambda t: f"{tuple(t.shape)} {t.dtype}",
)
def test_tables_that_do_not_fit_are_refused_before_anything_is_written(cos):
    x, out = torch.randn(2, 4, 5, 16), torch.full((2, 4, 5, 16), 7.0)
    with pytest.raises((RuntimeError, ValueError)):
        eager.rotate_by(x, out, cos, cos, geometric(16).turns[0].lanes)
    assert (out == 7).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rotary", [16, 8])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_a_result_that_overlaps_its_input_is_right(monkeypatch, dtype, rotary, layout):
    """Passing lanes, blocks and narrow dtypes all write before everything is read."""
    monkeypatch.setattr(fused, "operators", lambda x: eager)
    monkeypatch.setattr(fused, "direct", lambda x: eager)
    monkeypatch.setattr(phases, "kernel_on", lambda device_type: native.Kernel(eager, "PyTorch"))
    monkeypatch.setattr(eager, "_BLOCK", 64)
    spectrum = geometric(16, rotary_dim=rotary, layout=layout)
    memory = drawn((1, 2, 40, 16), dtype)
    x, into = memory[:, :, :-1], memory[:, :, 1:]
    expected = ropewalk.rotate(x.clone(), None, spectrum)
    assert torch.equal(ropewalk.rotate(x, None, spectrum, out=into), expected)
    again = memory.clone()
    expected = ropewalk.rotate(memory, None, spectrum)
    assert torch.equal(ropewalk.rotate(again, None, spectrum, out=again[:]), expected)


def turned(x: Tensor, where: Tensor | None, offset: int, steps: Tensor, how: Turn) -> Tensor:
    out = torch.full_like(x, torch.nan)
    eager.rotate(x, out, where, offset, steps, how.scale, how.lanes)
    return out


def plainly(x: Tensor, where: Tensor, steps: Tensor, how: Turn, spectrum: Spectrum) -> Tensor:
    cos, sin = tables_by_torch(where, steps, how.scale, compute_dtype(x.dtype))
    cos, sin = broadcast_tables(cos, x), broadcast_tables(sin, x)
    return turn(x, cos, -sin if how.negative else sin, spectrum.lanes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_kept_tables_tell_apart_all_they_depend_on(dtype, layout):
    """Tables of a few tokens are kept: for each value of everything, once more after the others."""
    spectra = [geometric(8, layout=layout), geometric(8, 500.0, layout=layout)]
    held = [spectrum.on().tensor for spectrum in spectra]
    x = drawn((2, 3, 2, 8), dtype)
    places = [torch.tensor(p) for p in ([3, 4], [4, 3], [2**40, 5], [[3, 4]], [[3, 4], [5, 6]])]
    for _ in range(2):
        for spectrum, steps in zip(spectra, held, strict=True):
            for how in (*spectrum.turns, Turn(1.5, spectrum.turns[0].lanes)):
                for where in places:
                    found = turned(x, where, 0, steps, how)
                    assert torch.equal(found, plainly(x, where, steps, how, spectrum))
                found = turned(x, None, 3, steps, how)
                assert torch.equal(found, plainly(x, places[0], steps, how, spectrum))


def test_kept_tables_follow_steps_that_change():
    spectrum, other = geometric(8), geometric(8, 500.0)
    steps, how, x = spectrum.on().tensor, spectrum.turns[0], drawn((1, 3, 1, 8), torch.float32)
    before = turned(x, None, 7, steps, how)
    steps.copy_(other.on().tensor)
    after = turned(x, None, 7, steps, how)
    assert not torch.equal(after, before)
    assert torch.equal(after, turned(x, None, 7, other.on().tensor, how))


def test_tables_kept_in_inference_mode_serve_outside(monkeypatch):
    monkeypatch.setattr(fused, "operators", lambda x: eager)
    monkeypatch.setattr(fused, "direct", lambda x: eager)
    spectrum, x = geometric(8), drawn((1, 3, 1, 8), torch.float32)
    with torch.inference_mode():
        first = ropewalk.rotate(x, None, spectrum, offset=11)
    x.requires_grad_()
    again = ropewalk.rotate(x, None, spectrum, offset=11)
    assert torch.equal(again.detach(), first)
    again.sum().backward()
    assert x.grad is not None
    back = ropewalk.rotate(x.grad, None, spectrum, offset=11)
    torch.testing.assert_close(back, torch.ones_like(x))


def test_no_tokens_have_tables_too():
    spectrum = geometric(8)
    for where in (None, torch.zeros(0, dtype=torch.int64)):
        x = torch.zeros(1, 3, 0, 8)
        assert turned(x, where, 0, spectrum.on().tensor, spectrum.turns[0]).shape == x.shape
