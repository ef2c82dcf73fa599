"""Phases: exactly additive integers, and sin and cos that mpmath confirms."""

from __future__ import annotations

import math
from typing import Any, cast

import mpmath
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numeric_oracles import HALF_STEP, mp_angle, mp_sincos, mp_step
from torch.utils._python_dispatch import TorchDispatchMode

from ropewalk import spectra
from ropewalk.kernels import angles as kernel
from ropewalk.kernels.angles import phase, sincos
from ropewalk.kernels.phases import float_tables, phase_tables, tables
from ropewalk.spectra import Spectrum, geometric

POSITIONS = (0, 1, 4095, 131_071, 1_048_575, 10_000_019, 2**31 + 5)
FLOAT32, FLOAT64 = 1.2e-7, 1e-15
"""Largest error of sin and cos; 1e-15 holds four units in the last place at 1.0."""
INT64 = st.integers(-(2**63), 2**63 - 1)
EDGES = [
    max(-(2**63), min(2**63 - 1, eighth * 2**61 + nudge))
    for eighth in range(-4, 5)
    for nudge in (-1, 0, 1)
]


def wrapped(value: int) -> int:
    """value mod 2⁶⁴ in [−2⁶³, 2⁶³)."""
    return (value + 2**63) % 2**64 - 2**63


def worst(found: torch.Tensor, expected: list) -> float:
    """Largest distance of a float tensor from mpmath numbers."""
    with mpmath.workdps(60):
        return max(
            float(abs(mpmath.mpf(f) - e))
            for f, e in zip(found.double().reshape(-1).tolist(), expected, strict=True)
        )


@pytest.fixture(params=["float64", "float32"], ids=["with float64", "without float64"])
def arithmetic(request, monkeypatch):
    """Both ways to a sine: through float64, and as on a device that has none."""
    if request.param == "float32":
        monkeypatch.setattr(kernel, "_WITHOUT_FLOAT64", frozenset({"cpu"}))
    return request.param


class NoFloat64(TorchDispatchMode):
    """Fails on any operation that makes a float64 tensor."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = result if isinstance(result, (tuple, list)) else (result,)
        for tensor in made:
            assert not (isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64), func
        return result


# Phases


@settings(max_examples=200, deadline=None)
@given(st.lists(INT64, min_size=1, max_size=6), st.lists(INT64, min_size=1, max_size=6))
@example([2**63 - 1, -(2**63)], [2**63 - 1, -(2**63), -1, 0])
def test_phase_is_the_product_mod_2_64(positions, steps):
    found = phase(torch.tensor(positions)[:, None], torch.tensor([steps]))
    assert found.tolist() == [[wrapped(p * s) for s in steps] for p in positions]


@settings(max_examples=200, deadline=None)
@given(INT64, INT64, st.floats(1e-9, 1e3))
@example(2**63 - 1, 2**63 - 1, 1.0)
@example(-(2**63), -(2**63), 0.7)
@example(-(2**63), 2**63 - 1, 0.7)
@example(2**31 + 5, -(2**31) - 5, 1.0)
def test_phases_add_exactly(p, k, frequency):
    steps = Spectrum(((frequency, 1.0, -0.25),), 6).on().tensor
    at = phase(torch.tensor([p, k, wrapped(p + k), -p if p > -(2**63) else p])[:, None], steps)
    assert torch.equal(at[2], at[0] + at[1])
    assert torch.equal(at[3], -at[0])


def test_phases_of_random_positions_add_exactly():
    generator = torch.Generator().manual_seed(0)
    draw = lambda: torch.randint(-(2**63), 2**63 - 1, (4096, 1), generator=generator)  # noqa: E731
    steps, p, k = geometric(128, 1e6).on().tensor, draw(), draw()
    assert torch.equal(phase(p + k, steps), phase(p, steps) + phase(k, steps))


def test_phases_of_several_axes_add_up():
    spectrum = Spectrum(((1.0, 0.3), (0.01, 0.0), (-2.0, 5.0)), 4)
    positions = torch.tensor([[3, -(2**62), 2**40], [2**63 - 1, 2**63 - 1, -(2**63)], [0, 0, 0]])
    found = phase(positions, spectrum.on().tensor)
    for row, where in zip(found.tolist(), positions.tolist(), strict=True):
        for pair in range(2):
            total = sum(p * mp_step(spectrum.matrices[0][a][pair]) for a, p in enumerate(where))
            assert row[pair] == wrapped(total)


def test_phases_of_heads_get_a_dimension():
    steps = torch.tensor([[[3, 5]], [[7, 11]], [[-1, 0]]])
    positions = torch.tensor([[1, 2, 4, 8], [-1, -2, -4, -8]])[..., None]
    found = phase(positions, steps)
    assert found.shape == (2, 3, 4, 2)
    assert torch.equal(found, positions[:, None] * steps)


# Sine and cosine


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("base", [1e4, 5e5, 1e6])
def test_tables_are_those_of_the_float64_frequency(head_dim, base, arithmetic):
    spectrum = geometric(head_dim, base)
    exact = {p: [mp_sincos(p, f) for f in spectrum.inv_freq] for p in POSITIONS}
    checked = [(torch.float32, FLOAT32)]
    if arithmetic == "float64":
        checked.append((torch.float64, FLOAT64))
    for dtype, tolerance in checked:
        cosine, sine = spectrum.tables(torch.tensor(POSITIONS), dtype=dtype)
        assert cosine.dtype == sine.dtype == dtype
        for row, p in enumerate(POSITIONS):
            allowed = tolerance + HALF_STEP * p
            assert worst(sine[row], [s for s, _ in exact[p]]) <= allowed, (dtype, p)
            assert worst(cosine[row], [c for _, c in exact[p]]) <= allowed, (dtype, p)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(-(2**50), 2**50),
    st.floats(0, 1e6) | st.floats(-1e-3, 1e-3),
    st.sampled_from([1.0, 2.0**-20, 0.04]),
)
@example(-(2**31), 1.0, 1.0)
@example(1, math.pi / 4, 1.0)
@example(1, math.pi / 2, 1.0)
@example(1, math.pi, 1.0)
@example(3, math.pi / 4, 1.0)
def test_sine_and_cosine_of_any_position_and_frequency(position, frequency, unit):
    spectrum = Spectrum(((frequency,),), 2, unit=unit)
    sine, cosine = mp_sincos(position, frequency, unit)
    for dtype, tolerance in ((torch.float32, FLOAT32), (torch.float64, FLOAT64)):
        found_cosine, found_sine = spectrum.tables(torch.tensor([position]), dtype=dtype)
        allowed = tolerance + HALF_STEP * abs(position)
        assert worst(found_sine, [sine]) <= allowed
        assert worst(found_cosine, [cosine]) <= allowed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quadrant_edges(dtype, arithmetic):
    if arithmetic == "float32" and dtype == torch.float64:
        dtype = torch.bfloat16
    sine, cosine = sincos(torch.tensor(EDGES), dtype)
    with mpmath.workdps(60):
        angles = [mpmath.mpf(e) / 2**63 * mpmath.pi for e in EDGES]
        sines, cosines = [mpmath.sin(a) for a in angles], [mpmath.cos(a) for a in angles]
    tolerance = {torch.float64: FLOAT64, torch.float32: FLOAT32, torch.bfloat16: 2.0**-9}[dtype]
    assert worst(sine, sines) <= tolerance
    assert worst(cosine, cosines) <= tolerance


def test_quarter_turns_are_exact(arithmetic):
    quarters = torch.tensor([0, 2**62, -(2**63), -(2**62)])
    sine, cosine = sincos(quarters, torch.float32)
    assert sine.tolist() == [0.0, 1.0, 0.0, -1.0]
    assert cosine.tolist() == [1.0, 0.0, -1.0, 0.0]


@settings(max_examples=200, deadline=None)
@given(INT64)
@example(2**61)
@example(2**61 - 1)
@example(-(2**61))
@example(2**63 - 1)
@example(-(2**63))
@example(1)
@example(2**37 - 1)
@example(-(2**37))
def test_sine_and_cosine_of_any_phase(value):
    with mpmath.workdps(60):
        angle = mpmath.mpf(value) / 2**63 * mpmath.pi
        exact_sine, exact_cosine = mpmath.sin(angle), mpmath.cos(angle)
    for dtype, tolerance in ((torch.float32, FLOAT32), (torch.float64, FLOAT64)):
        sine, cosine = sincos(torch.tensor([value]), dtype)
        assert worst(sine, [exact_sine]) <= tolerance
        assert worst(cosine, [exact_cosine]) <= tolerance
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_WITHOUT_FLOAT64", frozenset({"cpu"}))
        sine, cosine = sincos(torch.tensor([value]), torch.float32)
    assert worst(sine, [exact_sine]) <= FLOAT32
    assert worst(cosine, [exact_cosine]) <= FLOAT32


def test_without_float64_no_float64_is_made(monkeypatch):
    phases = phase(torch.tensor(POSITIONS)[:, None], geometric(64).on().tensor)
    with pytest.raises(AssertionError), NoFloat64():  # the check itself can fail
        sincos(phases, torch.float32)
    wide = sincos(phases, torch.float32)
    monkeypatch.setattr(kernel, "_WITHOUT_FLOAT64", frozenset({"cpu"}))
    with NoFloat64():
        narrow = sincos(phases, torch.float32, 1.5)
    for found, expected in zip(narrow, wide, strict=True):
        torch.testing.assert_close(found, 1.5 * expected, rtol=0, atol=4 * FLOAT32)


@pytest.mark.parametrize("distance", [1, -1, 1000, -(2**20) + 1, 2**34 + 5, -(2**45) - 3])
def test_zeros_are_crossed_with_full_relative_precision(distance):
    """Next to a quarter turn the small one of the two is right in its last places too."""
    quarters = torch.tensor([0, 2**62, -(2**63), -(2**62)])
    sine, cosine = sincos(quarters + distance, torch.float64)
    with mpmath.workdps(60):
        small = mpmath.sin(mpmath.mpf(distance) / 2**63 * mpmath.pi)
        for found, sign in zip(
            (sine[0], cosine[1], sine[2], cosine[3]), (1, -1, -1, 1), strict=True
        ):
            assert abs(mpmath.mpf(float(found)) - sign * small) <= abs(small) * 4e-16


def test_dense_phases_keep_to_the_unit_circle(arithmetic):
    phases = torch.randint(
        -(2**63), 2**63 - 1, (200_000,), generator=torch.Generator().manual_seed(1)
    )
    sine, cosine = sincos(phases, torch.float32)
    angle = phases.to(torch.float64) * (math.pi / 2**63)
    # half a unit in the last place, and about one where angle and sine are float32 too
    tolerance = 3.1e-8 if arithmetic == "float64" else 9e-8
    assert (sine.double() - angle.sin()).abs().max() <= tolerance
    assert (cosine.double() - angle.cos()).abs().max() <= tolerance
    assert (sine.double() ** 2 + cosine.double() ** 2 - 1).abs().max() <= 2.5e-7


# Tables


def test_values_do_not_depend_on_neighbours_or_strides():
    steps = geometric(64, 5e5).on()
    line = torch.arange(2**31, 2**31 + 67)
    whole = tables(line, steps, torch.float32)
    spread = torch.stack((line, -line), dim=1).reshape(-1)[::2]
    backwards = line.flip(0)
    expanded = line.expand(3, 67)
    for part in (slice(0, 1), slice(5, 6), slice(3, 36), slice(66, 67)):
        for found, expected in zip(tables(line[part], steps, torch.float32), whole, strict=True):
            assert torch.equal(found, expected[part])
    for found, expected in zip(tables(spread, steps, torch.float32), whole, strict=True):
        assert torch.equal(found, expected)
    for found, expected in zip(tables(backwards, steps, torch.float32), whole, strict=True):
        assert torch.equal(found.flip(0), expected)
    for found, expected in zip(tables(expanded, steps, torch.float32), whole, strict=True):
        assert torch.equal(found, expected.expand(3, 67, 32))


@pytest.mark.parametrize("factor", [1.0, 1.1902380714238083, 0.3])
def test_the_factor_enters_before_the_one_rounding(factor):
    spectrum = geometric(64).replace(attention_factor=factor)
    positions = torch.tensor(POSITIONS)
    wide = spectrum.replace(attention_factor=1.0).tables(positions, dtype=torch.float64)
    for found, exact in zip(spectrum.tables(positions), wide, strict=True):
        assert torch.equal(found, (exact * factor).float())
    for found, exact in zip(
        tables(positions, spectrum.on(), torch.float64, inverse=True), wide, strict=True
    ):
        torch.testing.assert_close(found.abs(), (exact / factor).abs(), rtol=1e-15, atol=0)


def test_inverse_tables_turn_back():
    steps, positions = geometric(64).on(), torch.tensor(POSITIONS)
    cosine, sine = tables(positions, steps, torch.float32)
    back_cosine, back_sine = tables(positions, steps, torch.float32, inverse=True)
    assert torch.equal(back_cosine, cosine)
    assert torch.equal(back_sine, -sine)
    other = tables(-positions, steps, torch.float32)
    torch.testing.assert_close(other, (back_cosine, back_sine), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_tables_are_rounded_float32_tables(dtype):
    spectrum, positions = geometric(64), torch.tensor(POSITIONS)
    for found, wide in zip(
        spectrum.tables(positions, dtype=dtype), spectrum.tables(positions), strict=True
    ):
        assert torch.equal(found, wide.to(dtype))


@pytest.mark.parametrize("kind", [torch.int8, torch.int16, torch.int32, torch.uint8, torch.int64])
def test_every_integer_dtype_counts(kind):
    positions = torch.tensor([0, 1, 100, 127])
    for found, expected in zip(
        geometric(8).tables(positions.to(kind)), geometric(8).tables(positions), strict=True
    ):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("spectrum", "positions", "shape"),
    [
        (geometric(8), (5,), (5, 4)),
        (geometric(8), (2, 5), (2, 5, 4)),
        (geometric(8), (3, 2, 5), (3, 2, 5, 4)),
        (geometric(8), (0,), (0, 4)),
        (spectra.axial(8, axes=2), (5, 2), (5, 4)),
        (spectra.axial(8, axes=2), (3, 5, 2), (3, 5, 4)),
        (Spectrum((((1.0,),), ((2.0,),)), 2), (5,), (2, 5, 1)),
        (Spectrum((((1.0,),), ((2.0,),)), 2), (3, 5), (3, 2, 5, 1)),
        (Spectrum((((1.0,), (0.5,)), ((2.0,), (1.0,))), 2), (3, 5, 2), (3, 2, 5, 1)),
    ],
)
def test_shapes_and_their_fakes(spectrum, positions, shape):
    where = torch.randint(-1000, 1000, positions)
    for device in ("cpu", "meta"):
        for table in spectrum.tables(where.to(device)):
            assert table.shape == shape
            assert (table.dtype, table.device.type) == (torch.float32, device)
    frequencies = torch.tensor(spectrum.freqs)
    for device in ("cpu", "meta"):
        for table in float_tables(where.to(device), frequencies.to(device), 1.0, torch.float64):
            assert table.shape == shape
            assert table.dtype == torch.float64


def test_float_tables_are_the_plain_product():
    positions = torch.tensor([[0, 1, 4095], [131_071, 10_000_019, -7]])
    inv_freq = torch.tensor([geometric(64, 5e5).inv_freq], dtype=torch.float32)
    angle = positions.float()[..., None] * inv_freq[0]
    cosine, sine = float_tables(positions, inv_freq, 1.5, torch.float32)
    assert torch.equal(cosine, angle.cos() * 1.5)
    assert torch.equal(sine, angle.sin() * 1.5)
    exact = mp_angle(10_000_019, float(inv_freq[0, 1]))
    drift = abs(float(mpmath.fmod(mpmath.mpf(float(angle[1, 1, 1])) - exact, 2 * mpmath.pi)))
    assert min(drift, 2 * math.pi - drift) > 1e-2  # the error that integer phases do away with


def test_float_tables_of_axes_and_heads():
    positions = torch.tensor([[1, 2], [3, -4]])
    freqs = torch.tensor([[[1.0, 0.5], [0.25, 2.0]], [[0.1, 0.2], [0.3, 0.4]]])
    cosine, _ = float_tables(positions, freqs, 1.0, torch.float32)
    expected = torch.einsum("ta,hap->htp", positions.float(), freqs).cos()
    torch.testing.assert_close(cosine, expected)


@pytest.mark.parametrize(
    ("positions", "error", "message"),
    [
        (torch.tensor([1.0]), TypeError, r"dtype torch.float32.*must be integers.*fixed"),
        (torch.tensor([True]), TypeError, r"torch.bool.*left_padded"),
        (torch.tensor([1j]), TypeError, r"complex64.*must be integers"),
        ([0, 1], TypeError, r"must be a tensor of integers, got list"),
        (torch.tensor(3), ValueError, r"must have a token dimension"),
    ],
)
def test_what_is_no_position(positions, error, message):
    with pytest.raises(error, match=message):
        tables(cast("Any", positions), geometric(8).on(), torch.float32)


def test_axes_must_stand_last():
    with pytest.raises(ValueError, match=r"shape \(5,\); with axes=2 the last dimension must be 2"):
        spectra.axial(8, axes=2).tables(torch.arange(5))
    with pytest.raises(ValueError, match=r"shape \(2, 5\); with axes=2"):
        spectra.axial(8, axes=2).tables(torch.zeros(2, 5, dtype=torch.int64))


@pytest.mark.parametrize("op", [phase_tables, float_tables])
@pytest.mark.parametrize("left_behind", ["positions", "frequencies"])
def test_a_mix_of_devices_is_refused(op, left_behind):
    """With one tensor on meta, PyTorch would call the shape function and return garbage."""
    steps = torch.tensor([[1, 2]]) if op is phase_tables else torch.tensor([[1.0, 2.0]])
    devices = {"positions": "cpu", "frequencies": "cpu", left_behind: "meta"}
    positions = torch.arange(3).to(devices["positions"])
    with pytest.raises(ValueError, match=r"positions are on (cpu|meta), the frequencies on"):
        op(positions, steps.to(devices["frequencies"]), 1.0, torch.float32)
