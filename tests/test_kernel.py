"""The C++ kernel against plain tensor arithmetic: the same bits, whatever the shape."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import ropewalk
from ropewalk.kernels import native
from ropewalk.kernels.phases import tables
from ropewalk.kernels.plain import broadcast_tables, compute_dtype, turn
from ropewalk.kernels.rotate import spectrum_lanes
from ropewalk.spectra import Spectrum, axial, geometric

ROOT = Path(__file__).resolve().parent.parent
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
needs_kernel = pytest.mark.skipif(
    native.kernel().ops is None, reason=f"no C++ kernel here: {native.kernel().name}"
)


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)


def plain(x: Tensor, where: Tensor, spectrum: Spectrum, inverse: bool = False) -> Tensor:
    """The plain form, with the tables that every form shares."""
    steps = spectrum.on()
    cos, sin = tables(where, steps, compute_dtype(x.dtype), inverse=inverse)
    per_head = spectrum.heads is not None
    cos, sin = broadcast_tables(cos, x, per_head), broadcast_tables(sin, x, per_head)
    return turn(x, cos, sin, spectrum_lanes(spectrum, x))


def test_a_machine_with_a_compiler_has_the_kernel():
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        pytest.skip("no C++ compiler on this machine")
    assert native.kernel().ops is not None, native.kernel().name


@needs_kernel
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_same_bits_as_plain_arithmetic(data):
    layout = data.draw(st.sampled_from(["half", "interleaved"]))
    pairs, before, after = (data.draw(st.integers(*span)) for span in ((1, 70), (0, 5), (0, 5)))
    axes = data.draw(st.integers(1, 3))
    heads, group = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    own = data.draw(st.booleans())
    dtype = data.draw(st.sampled_from(DTYPES))
    batch, tokens = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 40))
    seed = data.draw(st.integers(0, 2**16))
    rows = drawn((heads if own else 1, axes, pairs), torch.float64, seed).tolist()
    spectrum = Spectrum(
        rows if own else rows[0],  # pyright: ignore[reportArgumentType] (lists are frozen)
        before + 2 * pairs + after,
        layout=layout,
        lane_offset=before,
        attention_factor=data.draw(st.sampled_from([1.0, 1.25])),
    )
    shape = (tokens,) if data.draw(st.booleans()) else (batch, tokens)
    draw = torch.Generator().manual_seed(seed)
    where = torch.randint(-(2**62), 2**62, (*shape, axes), generator=draw)
    where = where.squeeze(-1) if axes == 1 else where
    x = drawn((batch, heads * group, tokens, spectrum.head_dim), dtype, seed)
    inverse = data.draw(st.booleans())
    result = ropewalk.rotate(x, where, spectrum, inverse=inverse)
    assert torch.equal(result, plain(x, where, spectrum, inverse))


@needs_kernel
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [(1, 32, 300, 128), (1, 1, 5000, 64), (3, 2, 700, 80), (1, 512, 1, 256), (64, 4, 1, 128)],
)
def test_work_is_shared_without_gaps(shape, dtype, poisoned):
    """Large enough for several threads; unset memory is nan, so a forgotten row would show."""
    x = drawn(shape, dtype)
    spectrum = geometric(shape[-1])
    where = torch.arange(shape[-2]) + 10**12
    expected = plain(x, where, spectrum)
    for threads in (1, 2, 3):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            assert torch.equal(ropewalk.rotate(x, where, spectrum), expected)
            assert torch.equal(ropewalk.rotate_(x.clone(), where, spectrum), expected)
        finally:
            torch.set_num_threads(before)


@needs_kernel
@pytest.mark.parametrize("dtype", DTYPES)
def test_q_and_k_in_one_pass(dtype):
    q, k = drawn((2, 8, 19, 64), dtype, 1), drawn((2, 2, 19, 64), dtype, 2)
    spectrum, where = axial(64), ropewalk.positions.grid(19, 2)[:19]
    both = ropewalk.rotate_qk(q, k, where, spectrum)
    assert torch.equal(both[0], ropewalk.rotate(q, where, spectrum))
    assert torch.equal(both[1], ropewalk.rotate(k, where, spectrum))


@needs_kernel
def test_views_of_packed_tensors_and_caches():
    packed = drawn((2, 9, 3, 4, 16), torch.float32)  # [batch, tokens, qkv, heads, head_dim]
    q = packed[:, :, 0].transpose(1, 2)
    spectrum = geometric(16, rotary_dim=8, lane_offset=4)
    expected = plain(q.contiguous(), torch.arange(9), spectrum)
    assert torch.equal(ropewalk.rotate(q, None, spectrum), expected)
    cache = torch.full((2, 4, 32, 16), 7.0)
    ropewalk.rotate(q, None, spectrum, out=cache[:, :, 5:14])
    assert torch.equal(cache[:, :, 5:14], expected)
    assert (cache[:, :, :5] == 7).all()
    assert (cache[:, :, 14:] == 7).all()
    shifted = drawn((1, 1, 10, 16), torch.float32)
    into = shifted[:, :, 1:]  # overlaps what is read
    wanted = plain(shifted[:, :, :-1].clone(), torch.arange(9), spectrum)
    ropewalk.rotate(shifted[:, :, :-1], None, spectrum, out=into)
    assert torch.equal(into, wanted)


@needs_kernel
def test_given_tables_and_their_gradients():
    x = drawn((2, 3, 7, 12), torch.float64).requires_grad_()
    cos, sin = geometric(12).tables(torch.arange(7), dtype=torch.float64)
    lanes = spectrum_lanes(geometric(12), x)
    expected = turn(x, cos, sin, lanes)
    found = ropewalk.rotate_by(x, cos, sin)
    assert torch.equal(found, expected)
    cotangent = drawn((2, 3, 7, 12), torch.float64, 3)
    for result in (found, expected):
        (gradient,) = torch.autograd.grad(result, x, cotangent)
        assert torch.equal(gradient, turn(cotangent, cos, -sin, lanes))
    assert torch.autograd.gradgradcheck(lambda y: ropewalk.rotate_by(y, cos, sin), (x,))


@needs_kernel
def test_only_positions_and_steps_are_kept_for_backward():
    x = drawn((1, 4, 64, 32), torch.float32).requires_grad_()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        ropewalk.rotate(x, None, geometric(32))
    assert all(t.dtype == torch.int64 for t in kept)
    assert sum(t.numel() for t in kept) == 64 + 16


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )


ROTATE = (
    "import json, torch, ropewalk;"
    "x = torch.linspace(-3, 3, 2 * 40 * 64).reshape(1, 2, 40, 64);"
    "y = ropewalk.rotate(x, None, ropewalk.spectra.geometric(64), offset=2**40);"
    "print(ropewalk.kernels.active()); print(json.dumps(y.flatten().tolist()))"
)


def test_the_kernel_can_be_left_out():
    name, left_out = run(ROTATE, ROPEWALK_KERNEL="reference").stdout.splitlines()
    assert name.startswith("reference (PyTorch)")
    used = json.loads(run(ROTATE).stdout.splitlines()[1])
    assert json.loads(left_out) == pytest.approx(used, rel=0, abs=1e-6)
    wrong = run(ROTATE, ROPEWALK_KERNEL="gpu")
    assert "ROPEWALK_KERNEL='gpu' is unknown" in wrong.stderr
