"""Norm and rotation in one pass, against a literal loop in float64 over exact angles."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from normed_oracle import drawn, literal, weight_of
from numeric_oracles import odd_views
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import rms_norm

from ropewalk import norm_rotate, norm_rotate_, norm_rotate_qk, norm_rotate_qk_, rotate, spectra
from ropewalk.kernels import native
from ropewalk.spectra import Spectrum, geometric

EPS = 1e-6
SPECTRA = {
    "half": geometric(8),
    "interleaved": geometric(8, layout="interleaved"),
    "one pair": geometric(2),
    "wide": geometric(128, 5e5),
    "wide interleaved": geometric(64, 5e5, layout="interleaved"),
    "whole lines": geometric(128, 5e5, rotary_dim=64, lane_offset=32),
    "rest on both sides": geometric(13, rotary_dim=6, lane_offset=3),
    "rest in front": geometric(10, rotary_dim=4, lane_offset=6, layout="interleaved"),
    "proportional": spectra.proportional(16, fraction=0.5),
    "factor": geometric(10, rotary_dim=8).replace(attention_factor=1.19),
    "two axes": spectra.axial(8, axes=2),
    "heads": Spectrum((((1.0, 0.1),), ((2.0, 0.3),)), 5, layout="interleaved"),
    "widest": geometric(1024, 1e6, rotary_dim=30, lane_offset=700),
}
DTYPES = {
    torch.float64: 1e-9,  # half a step times 2³¹
    torch.float32: 2e-6,
    torch.bfloat16: 2**-8,
    torch.float16: 2**-11,
}
"""Half a unit in the last place where one rounding is all there is."""
BATCH, HEADS, TOKENS = 2, 4, 5


def positions_of(spectrum: Spectrum, far: int = 2**31) -> Tensor:
    shape = (BATCH, TOKENS) if spectrum.axes == 1 else (BATCH, TOKENS, spectrum.axes)
    return torch.randint(-far, far, shape, generator=torch.Generator().manual_seed(7))


def exact(x: Tensor, weight: Tensor | None, positions: Tensor, spectrum: Spectrum) -> Tensor:
    planes = positions if spectrum.axes > 1 else positions[..., None]
    return literal(x, weight, planes, spectrum, EPS)


def close(found: Tensor, expected: Tensor) -> None:
    assert found.dtype in DTYPES
    assert found.shape == expected.shape
    off = DTYPES[found.dtype]
    floor = max(2e-6, off * 1e-3) if off > 1e-8 else off
    torch.testing.assert_close(found.double(), expected, rtol=1.01 * off, atol=2 * floor)


def near(found: Tensor, expected: Tensor) -> bool:
    off = 4 * torch.finfo(found.dtype).eps
    return torch.allclose(found, expected, rtol=off, atol=off)


def without_kernel(patch: pytest.MonkeyPatch) -> None:
    plain = dataclasses.replace(native.kernel(), normed=None)
    patch.setattr(native, "kernel", lambda: plain)


@pytest.fixture(params=[True, False], ids=["fused", "plain"])
def way(request, monkeypatch) -> bool:
    """Whether the compiled kernel does it, where there is one; else PyTorch's operations do."""
    if not request.param:
        without_kernel(monkeypatch)
    return request.param


# --- values -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("way", "poisoned")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spectrum", SPECTRA.values(), ids=list(SPECTRA))
def test_every_row_is_normalised_and_turned_and_rounded_once(spectrum, dtype):
    x = drawn(BATCH, HEADS, TOKENS, spectrum.head_dim, dtype=dtype) * 3
    positions = positions_of(spectrum)
    for weight in (weight_of(spectrum.head_dim, dtype), None):
        expected = exact(x, weight, positions, spectrum)
        close(norm_rotate(x, weight, positions, spectrum), expected)
        close(norm_rotate_(x.clone(), weight, positions, spectrum.on()), expected)
        out = torch.empty_like(x)
        assert norm_rotate(x, weight, positions, spectrum, out=out) is out
        close(out, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["half", "interleaved", "rest on both sides", "wide"])
def test_any_strides_give_the_same(name, dtype, way):
    same = torch.equal if way and native.kernel().normed else near  # the kernel: the same bits
    spectrum, positions = SPECTRA[name], positions_of(SPECTRA[name])
    x = drawn(BATCH, HEADS, TOKENS, spectrum.head_dim, dtype=dtype)
    weight = weight_of(spectrum.head_dim, dtype)
    spread = torch.stack((weight, torch.full_like(weight, math.nan)), dim=-1)[:, 0]
    expected = norm_rotate(x, weight, positions, spectrum)
    for view, other in odd_views(x):
        around = other.clone()
        assert same(norm_rotate(other, spread, positions, spectrum), expected), view
        assert same(norm_rotate_(other, weight, positions, spectrum), expected), view
        if view == "slice of packed qkv":  # what lies between is untouched
            assert other._base is not None
            assert int(other._base.isnan().sum()) == 2 * around.numel()


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_weight_of_another_dtype_is_taken_for_its_values(dtype, kind, way):
    spectrum, positions = SPECTRA["wide"], positions_of(SPECTRA["wide"])
    x, weight = drawn(BATCH, HEADS, TOKENS, 128, dtype=dtype), weight_of(128, kind)
    found = norm_rotate(x, Parameter(weight, requires_grad=False), positions, spectrum)
    close(found, exact(x, weight, positions, spectrum))
    assert torch.equal(found, norm_rotate(x, weight.double(), positions, spectrum)) or not way


@settings(max_examples=60)
@given(st.data())
def test_any_sizes(data):
    batch, tokens = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 70))
    heads, layout = data.draw(st.integers(0, 19)), data.draw(st.sampled_from(spectra.LAYOUTS))
    pairs, rest = data.draw(st.integers(1, 40)), data.draw(st.integers(0, 40))
    first, lanes = data.draw(st.integers(0, rest)), 2 * pairs + rest
    spectrum = geometric(lanes, rotary_dim=2 * pairs, layout=layout, lane_offset=first)
    dtype, eps = data.draw(st.sampled_from(list(DTYPES))), data.draw(st.sampled_from([1e-6, 0.5]))
    offset = data.draw(st.integers(-(2**40), 2**40))
    x, weight = drawn(batch, heads, tokens, lanes, dtype=dtype), weight_of(lanes)
    if data.draw(st.booleans()):
        x = x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    found = norm_rotate(x, weight, None, spectrum, offset=offset, eps=eps)
    wide = x.double()
    row = wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * weight
    close(found, rotate(row, None, spectrum, offset=offset))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_q_and_k_together_are_each_alone(dtype):
    spectrum, positions = SPECTRA["rest on both sides"], positions_of(SPECTRA["half"])
    q, k = drawn(BATCH, 6, TOKENS, 13, dtype=dtype), drawn(BATCH, 2, TOKENS, 13, dtype=dtype)
    weights = weight_of(13, dtype), weight_of(13, torch.float32, seed=4)
    for pair in (weights, (None, weights[1]), (weights[0], None)):
        alone = [
            norm_rotate(x, w, positions, spectrum, eps=1e-3)
            for x, w in zip((q, k), pair, strict=True)
        ]
        both = norm_rotate_qk(q, k, *pair, positions, spectrum, eps=1e-3)
        here = norm_rotate_qk_(q.clone(), k.clone(), *pair, positions, spectrum, eps=1e-3)
        for one, two, three in zip(alone, both, here, strict=True):
            assert torch.equal(one, two)
            assert torch.equal(one, three)
    unlike = norm_rotate_qk(q, k.double(), *weights, positions.int(), spectrum)
    assert (unlike[0].dtype, unlike[1].dtype) == (dtype, torch.float64)
    assert torch.equal(unlike[0], norm_rotate(q, weights[0], positions, spectrum))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_many_tokens_over_threads_and_around_the_cache(dtype):
    tokens = (33 << 20) // (8 * 128 * dtype.itemsize)
    x = torch.randn(8, tokens, 128, generator=torch.Generator().manual_seed(1)).to(dtype)
    weight, before = weight_of(128), torch.get_num_threads()
    some = slice(tokens // 2, tokens // 2 + 3)
    for spectrum in (SPECTRA["wide"], SPECTRA["whole lines"]):
        torch.set_num_threads(4)
        try:
            found = norm_rotate(x, weight, None, spectrum)
        finally:
            torch.set_num_threads(before)
        parts = [norm_rotate(x[h], weight, None, spectrum) for h in range(8)]
        assert torch.equal(found, torch.stack(parts))
        close(found[None, :2, some], exact(
            x[None, :2, some], weight, torch.arange(tokens)[None, some], spectrum
        ))  # fmt: skip


# --- numbers that are no ordinary ones -----------------------------------------------------------


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("eps", [0, 0.0, 1e-6])
def test_extremes_are_those_of_rms_norm_in_float32(dtype, eps):
    spectrum = geometric(16)
    x = drawn(1, 8, 16, dtype=dtype).squeeze(0)
    x[0], x[1], x[2, 3], x[3, 5] = 0, torch.finfo(dtype).max, math.nan, math.inf
    x[4], x[5, 1] = torch.finfo(dtype).tiny, -math.inf
    weight = weight_of(16, torch.float32)
    normed = rms_norm(x.float(), (16,), weight, eps)
    overflows = dtype != torch.float16
    assert bool((normed[1] == 0).all()) == overflows
    assert bool(normed[0].isnan().all()) == (eps == 0)
    expected = rotate(normed.double(), None, spectrum)
    found = norm_rotate(x, weight, None, spectrum, eps=eps).double()
    off = 2.02 * DTYPES[dtype]
    torch.testing.assert_close(found, expected, rtol=off, atol=off, equal_nan=True)
    assert found[2].isnan().all()
    assert found[3].isnan().nonzero().flatten().tolist() == [5, 13]  # the pair of the infinity
    assert found[6:].isfinite().all()


# --- memory -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("way")
def test_out_that_overlaps_what_is_read_holds_the_right_values():
    spectrum = geometric(8)
    base = drawn(HEADS, TOKENS + 1, 8)
    x, out = base[:, :TOKENS], base[:, 1:]
    expected = norm_rotate(x, None, None, spectrum)
    norm_rotate(x, None, None, spectrum, out=out)
    assert near(out, expected)
    rows = drawn(1, 3, 8)
    expected = norm_rotate(rows.clone(), rows[0, 1].clone(), None, spectrum)
    assert near(norm_rotate_(rows, rows[0, 1], None, spectrum), expected)


def test_the_kernel_refuses_to_write_what_it_reads():
    normed = native.kernel().normed
    if normed is None:
        pytest.skip("no compiled kernel")
    how = (1e-6, None, 0, geometric(8).on().tensor, *geometric(8).turns[0])
    base, weight = drawn(TOKENS + 1, 8), weight_of(8)
    for out, by in ((base[1:], weight), (weight.expand(TOKENS, 8), None), (base[:-1], base[2])):
        with pytest.raises(RuntimeError):
            normed(base[:-1], None, out, None, by, None, *how)


def test_versions_count_and_the_kernel_is_used(monkeypatch):
    normed, calls = native.kernel().normed, []
    if normed is None:
        pytest.skip("no compiled kernel")
    spy = dataclasses.replace(native.kernel(), normed=lambda *given: calls.append(normed(*given)))
    monkeypatch.setattr(native, "kernel", lambda: spy)
    x, weight, spectrum = drawn(1, 2, 8), Parameter(weight_of(8)), geometric(8)
    with torch.no_grad():
        version = x._version
        norm_rotate_(x, weight, None, spectrum)
        norm_rotate_qk(x, x, weight, None, torch.arange(2).int(), spectrum.on())
    assert x._version > version
    assert len(calls) == 3  # int32 positions are converted, and q and k taken one by one
    norm_rotate(x, weight, None, spectrum).sum().backward()
    assert len(calls) == 4


def test_a_library_without_the_operator_still_serves(monkeypatch):
    whole = native.kernel()
    if not whole.compiled:
        pytest.skip("no compiled kernel")

    class Older:
        def __getattr__(self, name: str) -> Any:
            if name in ("norm_rotate", "rotate_into_pages"):
                raise AttributeError(name)
            return getattr(torch.ops.ropewalk_cpu, name)

    x, weight, spectrum = drawn(3, 8), weight_of(8), geometric(8)
    expected = norm_rotate(x, weight, None, spectrum)
    older = native.operators_of(Older())
    assert (older.compiled, older.normed, older.into_pages) == (True, None, None)
    monkeypatch.setattr(native, "kernel", lambda: older)
    torch.testing.assert_close(norm_rotate(x, weight, None, spectrum), expected)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"weight": weight_of(6)}, ValueError, r"weight has shape \(6,\).*\(4, 3, 8\)"),
        ({"weight": drawn(4, 8)}, ValueError, r"weight has shape \(4, 8\).*\[head_dim\]"),
        ({"weight": torch.ones(8).long()}, TypeError, "weight has dtype torch.int64"),
        ({"weight": [1.0] * 8}, TypeError, "weight must be a tensor.*list"),
        ({"weight": torch.ones(8, device="meta")}, ValueError, "weight is on meta, x on cpu"),
        ({"weight": torch.ones(8).to_sparse()}, TypeError, "weight has layout"),
        ({"eps": -1e-6}, ValueError, "eps=-1e-06 must be"),
        ({"eps": math.nan}, ValueError, "eps=nan must be"),
        ({"eps": math.inf}, ValueError, "eps=inf must be"),
        ({"eps": True}, TypeError, "eps=True must be a number"),
        ({"eps": "1e-6"}, TypeError, "eps='1e-6' must be a number"),
        ({"x": torch.ones(4, 3, 8).long()}, TypeError, "dtype torch.int64"),
        ({"x": [1.0]}, TypeError, "x must be a tensor"),
        ({"x": drawn(8)}, ValueError, r"\(8,\)"),
        ({"spectrum": geometric(6)}, ValueError, "6"),
        ({"spectrum": 8}, TypeError, "spectrum must be"),
        ({"positions": torch.arange(4)}, ValueError, "4 tokens"),
        ({"positions": torch.arange(3), "offset": 2}, ValueError, "both given"),
        ({"positions": torch.ones(3)}, TypeError, "integers"),
        ({"out": drawn(4, 3, 6)}, ValueError, "out has shape"),
        ({"out": drawn(4, 3, 8, dtype=torch.float32)}, ValueError, "out has shape.*float32"),
        ({"out": drawn(1, 3, 8).expand(4, 3, 8)}, ValueError, "expanded"),
        ({"out": drawn(4, 3, 8), "weight": Parameter(weight_of(8))}, ValueError, "no gradient"),
    ],
)
def test_what_does_not_fit_is_refused(changes, error, words):
    whole = {"x": drawn(4, 3, 8), "weight": None, "positions": None, "spectrum": geometric(8)}
    with pytest.raises(error, match=words):
        norm_rotate(**{**whole, **changes})


def test_in_place_refuses_what_cannot_be_changed():
    spectrum, leaf = geometric(8), drawn(3, 8).requires_grad_()
    with pytest.raises(ValueError, match="leaf"):
        norm_rotate_(leaf, None, None, spectrum)
    with pytest.raises(ValueError, match="expanded"):
        norm_rotate_(drawn(1, 8).expand(3, 8), None, None, spectrum)
