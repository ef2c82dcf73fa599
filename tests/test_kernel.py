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
from ropewalk.spectra.lanes import pair_slices

ROOT = Path(__file__).resolve().parent.parent
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
needs_kernel = pytest.mark.skipif(
    not native.kernel().compiled, reason=f"no C++ kernel here: {native.kernel().name}"
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
    if os.environ.get("ROPEWALK_KERNEL", "cpu") != "cpu":
        pytest.skip("another kernel is asked for")
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        pytest.skip("no C++ compiler on this machine")
    assert native.kernel().compiled, native.kernel().name


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
@pytest.mark.parametrize(("positions", "numbers"), [(None, 16), (torch.arange(64), 64 + 16)])
def test_only_positions_and_steps_are_kept_for_backward(positions, numbers):
    x = drawn((1, 4, 64, 32), torch.float32).requires_grad_()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        ropewalk.rotate(x, positions, geometric(32))
    assert all(t.dtype == torch.int64 for t in kept)
    assert sum(t.numel() for t in kept) == numbers


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


@needs_kernel
@pytest.mark.parametrize("view", [False, True], ids=["whole", "view"])
def test_in_place_gradients_are_those_of_the_copy(view):
    spectrum, base = geometric(16), drawn((2, 9, 3, 4, 16), torch.float64)

    def gradient(turn_q):
        leaf = base.clone().requires_grad_()
        packed = leaf * 2
        q = packed[:, :, 0].transpose(1, 2) if view else packed.reshape(2, 9, 12, 16)
        q = turn_q(q) if view else turn_q(q.transpose(1, 2))
        loss = (q * drawn(tuple(q.shape), torch.float64, 5)).sum() + (packed**3).sum()
        return torch.autograd.grad(loss, leaf)[0]

    in_place = gradient(lambda q: ropewalk.rotate_(q, None, spectrum, offset=7))
    copied = gradient(lambda q: q.copy_(ropewalk.rotate(q, None, spectrum, offset=7)))
    assert torch.allclose(in_place, copied, rtol=0, atol=1e-12)


@needs_kernel
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_gradients_of_given_tables(data):
    """x, cos and sin, for every way in which tables broadcast."""
    layout = data.draw(st.sampled_from(["half", "interleaved"]))
    heads, tokens = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    pairs, extra = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 3))
    seed = data.draw(st.integers(0, 99))
    shape = data.draw(
        st.sampled_from([(tokens,), (2, tokens), (1, heads, tokens), (2, 1, tokens), (1, 1, 1)])
    )
    x = drawn((2, heads, tokens, 2 * pairs + extra), torch.float64, seed)
    tables = [drawn((*shape, pairs), torch.float64, seed + i) for i in (1, 2)]
    leaves = [t.requires_grad_(data.draw(st.booleans())) for t in (x, *tables)]
    if not any(t.requires_grad for t in leaves):
        return
    how = {"layout": layout, "lane_offset": extra}

    def by_hand(x, cos, sin):
        full = [t if t.dim() == 4 else broadcast_tables(t, x) for t in (cos, sin)]
        lanes = pair_slices(x.shape[-1], pairs, layout, extra, "standard")
        return turn(x, full[0], full[1], lanes)

    wanted = [t for t in leaves if t.requires_grad]
    results = [f(*leaves) for f in (lambda *a: ropewalk.rotate_by(*a, **how), by_hand)]
    assert torch.equal(*results)
    cotangent = drawn(tuple(x.shape), torch.float64, seed + 3)
    found, expected = (
        torch.autograd.grad(r, wanted, cotangent, create_graph=True) for r in results
    )
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert torch.allclose(a, b, rtol=0, atol=1e-12)
    twice = [torch.stack([(g**2).sum() for g in gs]).sum() for gs in (found, expected)]
    assert twice[0].requires_grad == twice[1].requires_grad
    if twice[0].requires_grad:
        seconds = (torch.autograd.grad(t, wanted, allow_unused=True) for t in twice)
        for a, b in zip(*seconds, strict=True):
            assert (a is None) == (b is None)
            assert a is None or torch.allclose(a, b, rtol=0, atol=1e-11)


@needs_kernel
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
def test_learned_frequencies_and_positions_between_integers():
    """What the tables were computed from gets its gradient through them."""
    x = drawn((1, 2, 5, 8), torch.float64).requires_grad_()
    inv_freq = drawn((4,), torch.float64, 1).requires_grad_()
    where = drawn((5,), torch.float64, 2).requires_grad_()

    def rotated(x, where, inv_freq):
        angle = where[:, None] * inv_freq
        return ropewalk.rotate_by(x, angle.cos(), angle.sin())

    assert torch.autograd.gradcheck(rotated, (x, where, inv_freq), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(rotated, (x, where, inv_freq))


@needs_kernel
def test_x_is_kept_only_for_tables_that_want_gradients():
    cos, sin = geometric(32).tables(torch.arange(64))

    def kept(cos: Tensor) -> int:
        x = drawn((1, 4, 64, 32), torch.float32).requires_grad_()
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: sizes.append(t.numel()) or t, lambda t: t
        ):
            ropewalk.rotate_by(x, cos, sin)
        return sum(sizes)

    assert kept(cos) == 2 * cos.numel()
    assert kept(cos.clone().requires_grad_()) == 2 * cos.numel() + 4 * 64 * 32


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_small_numbers_zeros_and_infinities_are_rounded_as_torch_rounds(dtype, layout):
    """Hardware that narrows to bfloat16 takes denormal values for zero; torch does not."""
    spectrum = geometric(76, layout=layout)
    draw = torch.Generator().manual_seed(3)
    bits = torch.randint(-(2**15), 2**15, (3, 5, 41, 76), generator=draw).to(torch.int16)
    x = bits.view(torch.bfloat16).to(dtype) if dtype != torch.float16 else bits.view(dtype)
    tiny = x * (2.0**-126 if dtype == torch.bfloat16 else 2.0**-20)
    for values in (x, tiny, torch.zeros_like(x), drawn(tuple(x.shape), dtype) * 1e-39):
        found = ropewalk.rotate(values, None, spectrum)
        expected = plain(values, torch.arange(41), spectrum)
        assert torch.equal(found.isnan(), expected.isnan())
        assert torch.equal(found.nan_to_num(), expected.nan_to_num())


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rotary", [128, 64, 36])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_results_written_around_the_cache(dtype, rotary, layout, poisoned):
    """From 32 MiB on results bypass the cache; every lane still arrives."""
    x = drawn((1, 33, 2048, 128), dtype)
    x = x.repeat(2, 1, 1, 1) if dtype == torch.bfloat16 else x
    spectrum = geometric(128, rotary_dim=rotary, layout=layout)
    expected = plain(x, torch.arange(2048), spectrum)
    assert torch.equal(ropewalk.rotate(x, None, spectrum), expected)
    packed = torch.full((x.shape[0], 2048, 33, 2, 128), 7.0, dtype=dtype)
    ropewalk.rotate(x, None, spectrum, out=packed[:, :, :, 0].transpose(1, 2))
    assert torch.equal(packed[:, :, :, 0].transpose(1, 2), expected)
    assert (packed[:, :, :, 1] == 7).all()


@needs_kernel
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_million_tokens_need_no_memory_beyond_the_tensors():
    """No table of cos and sin, no copy: the peak stays where the tensors put it."""
    code = (
        "import torch, ropewalk\n"
        "def peak():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return next(int(l.split()[1]) for l in lines if l.startswith('VmHWM'))\n"
        "spectrum = ropewalk.spectra.geometric(32)\n"
        "x = torch.ones(1, 2, 2**20, 32, dtype=torch.bfloat16); out = torch.ones_like(x)\n"
        "ropewalk.rotate(x[:, :, :2048], None, spectrum)\n"
        "before = peak()\n"
        "ropewalk.rotate(x, None, spectrum, offset=2**33, out=out)\n"
        "ropewalk.rotate_(x, None, spectrum, offset=2**33)\n"
        "assert torch.equal(x, out)\n"
        "print(peak() - before)\n"
    )
    grown = int(run(code).stdout)
    assert grown < 16_384, f"{grown} KiB"  # the tensors are 131,072 KiB each


@needs_kernel
@pytest.mark.parametrize("flush", [False, True], ids=["denormal", "flushed"])
def test_every_float16_is_read_and_written_exactly(flush):
    """All 65,536 of them by a rotation of no angle, and rounding to the nearest of them."""
    every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    x = torch.cat([every.reshape(1, 1, -1, 32), torch.zeros(1, 1, 2**11, 32).half()], dim=-1)
    draw = torch.Generator().manual_seed(0)
    scales = 10.0 ** torch.randint(-9, 6, (2048, 32), generator=draw)
    cos = torch.randn(2048, 32, generator=draw) * scales
    torch.set_flush_denormal(flush)
    try:
        found = ropewalk.rotate(x, None, Spectrum(((0.0,) * 32,), 64))
        rounded = ropewalk.rotate_by(torch.ones_like(x), cos, torch.zeros_like(cos))
    finally:
        torch.set_flush_denormal(False)
    same = found[..., :32].contiguous().view(torch.int16).flatten()
    numbers = ~every.isnan() & (every != 0)
    assert torch.equal(same[numbers], every.view(torch.int16)[numbers])
    assert torch.equal(found[..., :32].flatten().isnan(), every.isnan())
    assert torch.equal(rounded[0, 0], torch.cat([cos, cos], dim=-1).half())
