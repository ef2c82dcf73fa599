"""Scalings against transformers' own functions, and resonance against whole wavelengths."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import ropewalk
from ropewalk import spectra
from ropewalk.encodings.rotary import RoPE, resonance
from ropewalk.spectra import Spectrum, geometric
from ropewalk.spectra.rope_parameters import SCALINGS, scaled

DIMS = st.sampled_from([8, 32, 64, 96, 128, 256])
BASES = st.sampled_from([1e3, 1e4, 1.5e5, 5e5, 1e6, 1e7])
FACTORS = st.floats(1.0, 64.0)
LENGTHS = st.sampled_from([512, 2048, 4096, 8192, 32768, 131072])
CLOSE = 4e-6
"""float32 powers of the base, and a float32 blend of two of them."""


def theirs(
    kind: str, dim: int, base: float, length: int, seq_len: int | None = None, **parameters: Any
) -> tuple[list[float], float]:
    """transformers' frequencies and attention factor."""
    config = LlamaConfig(
        hidden_size=4 * dim,
        num_attention_heads=4,
        head_dim=dim,
        max_position_embeddings=length,
        rope_parameters={"rope_type": kind, "rope_theta": base, **parameters},
    )
    inv_freq, factor = ROPE_INIT_FUNCTIONS[kind](config, None, seq_len=seq_len)
    return inv_freq.double().tolist(), float(factor)


def same(found: Spectrum, expected: tuple[list[float], float], close: float = CLOSE) -> None:
    assert list(found.inv_freq) == pytest.approx(expected[0], rel=close, abs=0)
    assert found.attention_factor == pytest.approx(expected[1], rel=1e-12)


def ramp(dim, base, original, fast, slow, truncate, factor) -> float:
    """Their ramp is float32: where it is narrow, a rounded end moves the blend of a pair on it."""
    low, high = spectra.correction_range(dim, base, original, fast, slow, truncate=truncate)
    return CLOSE + 1.2e-7 * factor * dim / (abs(high - low) or 1e-3)


def test_every_type_of_transformers_is_a_scaling():
    assert set(ROPE_INIT_FUNCTIONS) <= set(SCALINGS)


@given(DIMS, BASES, FACTORS)
def test_linear(dim, base, factor):
    ours = RoPE(dim, base, scaling={"rope_type": "linear", "factor": factor}).spectrum
    same(ours, theirs("linear", dim, base, 4096, factor=factor))


@given(DIMS, BASES, FACTORS, LENGTHS, st.floats(0.1, 20.0))
def test_dynamic_at_any_length(dim, base, factor, original, times):
    length = max(1, int(original * times))
    parameters = {
        "rope_type": "dynamic",
        "factor": factor,
        "original_max_position_embeddings": original,
    }
    ours = RoPE(dim, base, scaling=parameters, length=length).spectrum
    same(ours, theirs("dynamic", dim, base, original, seq_len=length, factor=factor))
    pinned = RoPE(dim, base, scaling=parameters).for_length(length)
    assert pinned.spectrum == ours


@given(
    DIMS,
    BASES,
    FACTORS,
    LENGTHS,
    st.booleans(),
    st.tuples(st.floats(1.0, 64.0), st.floats(0.25, 8.0)),
    st.one_of(st.none(), st.tuples(st.floats(0.1, 2.0), st.floats(0.1, 2.0))),
    st.one_of(st.none(), st.floats(0.5, 2.0)),
)
def test_yarn(dim, base, factor, original, truncate, betas, mscales, attention_factor):
    parameters: dict[str, Any] = {
        "factor": factor,
        "original_max_position_embeddings": original,
        "truncate": truncate,
        "beta_fast": max(betas),
        "beta_slow": min(betas),
    }
    if mscales is not None:
        parameters |= {"mscale": mscales[0], "mscale_all_dim": mscales[1]}
    if attention_factor is not None:
        parameters["attention_factor"] = attention_factor
    ours = RoPE(dim, base, scaling={"rope_type": "yarn", **parameters}).spectrum
    close = ramp(dim, base, original, max(betas), min(betas), truncate, factor)
    same(ours, theirs("yarn", dim, base, original, **parameters), close)


def test_yarn_with_equal_betas():
    """Kimi-K2: transformers widens the ramp by .001 there, ropewalk makes it a step as well."""
    parameters = {
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 1.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
    ours = RoPE(64, 5e4, scaling={"rope_type": "yarn", **parameters}).spectrum
    same(ours, theirs("yarn", 64, 5e4, 4096, **parameters))
    assert ours.inv_freq[19] == pytest.approx(1.6218e-3, rel=1e-4)
    assert ours.inv_freq[20] == pytest.approx(3.614e-5, rel=1e-4)


@given(DIMS, BASES, FACTORS, LENGTHS, st.booleans())
def test_ntk_by_parts_is_yarn_without_its_temperature(dim, base, factor, original, truncate):
    given_ = {
        "factor": factor,
        "original_max_position_embeddings": original,
        "truncate": truncate,
    }
    ours = RoPE(dim, base, scaling={"rope_type": "ntk_by_parts", **given_}).spectrum
    expected, _ = theirs("yarn", dim, base, original, **given_)
    same(ours, (expected, 1.0), ramp(dim, base, original, 32.0, 1.0, truncate, factor))


@given(DIMS, BASES, st.floats(1.0, 64.0), LENGTHS, st.floats(0.1, 4.0), st.randoms())
def test_longrope_at_any_length(dim, base, factor, original, times, random):
    short, long = (sorted(random.uniform(1, 40) for _ in range(dim // 2)) for _ in range(2))
    length = max(1, int(original * times))
    parameters: dict[str, Any] = {
        "short_factor": short,
        "long_factor": long,
        "factor": factor,
        "original_max_position_embeddings": original,
    }
    ours = RoPE(dim, base, scaling={"rope_type": "longrope", **parameters}, length=length)
    same(ours.spectrum, theirs("longrope", dim, base, original, seq_len=length, **parameters))


@given(DIMS, BASES, FACTORS, LENGTHS, st.floats(0.25, 4.0), st.floats(0.01, 8.0))
def test_llama3(dim, base, factor, original, low, width):
    parameters = {
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": low + width,
        "original_max_position_embeddings": original,
    }
    ours = RoPE(dim, base, scaling={"rope_type": "llama3", **parameters}).spectrum
    expected, _ = theirs("llama3", dim, base, original, **parameters)
    # float32 turns within L, ÷ the width of the blend
    close = CLOSE + 5e-7 * factor * (low + width) / width
    assert list(ours.inv_freq) == pytest.approx(expected, rel=close, abs=0)


def test_llama3_with_low_equal_to_high():
    """Llama-4-Scout: a hard cut; transformers divides by 0 there and masks what comes of it."""
    parameters = {
        "factor": 16.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
    }
    ours = RoPE(128, 5e5, scaling={"rope_type": "llama3", **parameters}).spectrum
    same(ours, theirs("llama3", 128, 5e5, 8192, **parameters))


@given(DIMS, BASES, st.floats(0.0, 1.0), FACTORS)
def test_proportional(dim, base, share, factor):
    parameters = {"partial_rotary_factor": share, "factor": factor}
    ours = RoPE(dim, base, scaling={"rope_type": "proportional", **parameters}).spectrum
    same(ours, theirs("proportional", dim, base, 4096, **parameters))
    assert ours == spectra.proportional(dim, base, fraction=share, factor=factor)


@given(DIMS, BASES, st.floats(0.5, 2000.0))
def test_hunyuan_alpha_is_a_larger_base(dim, base, alpha):
    ours = RoPE(dim, base, scaling={"rope_type": "hunyuan_alpha", "alpha": alpha}).spectrum
    larger = geometric(dim, base * alpha ** (dim / (dim - 2)))
    assert list(ours.inv_freq) == pytest.approx(list(larger.inv_freq), rel=1e-12)


@given(DIMS, BASES, FACTORS)
def test_ntk_is_a_larger_base(dim, base, factor):
    ours = RoPE(dim, base, scaling={"rope_type": "ntk", "factor": factor}).spectrum
    larger = geometric(dim, base * factor ** (dim / (dim - 2)))
    assert list(ours.inv_freq) == pytest.approx(list(larger.inv_freq), rel=1e-12)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rope_type": "linear", "factor": 0.5}, "factor=0.5 must be finite and at least 1"),
    ({"rope_type": "ntk", "factor": float("nan")}, "factor=nan must be finite"),
    ({"rope_type": "proportional", "partial_rotary_factor": 1.5}, "must lie in"),
    ({"rope_type": "hunyuan_alpha", "alpha": 0.0}, "alpha=0.0 must be finite and above 0"),
    ({"rope_type": "hunyuan_alpha"}, "missing: alpha"),
    ({"rope_type": "resonance", "factor": 2.0}, "not used: factor"),
    ({"rope_type": "resonanz"}, "not known here"),
    (
        {
            "rope_type": "longrope",
            "factor": 0.5,
            "short_factor": [1.0] * 32,
            "long_factor": [2.0] * 32,
            "original_max_position_embeddings": 4096,
        },
        "factor=0.5 must be finite and at least 1",
    ),
    (
        {
            "rope_type": "longrope",
            "factor": 2.0,
            "short_factor": [1.0] * 32,
            "long_factor": [2.0] * 31 + [1.5],
            "original_max_position_embeddings": 4096,
        },
        "long_factor falls from 2 at pair 30 to 1.5; .* sort them",
    ),
    (
        {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 0},
        "original_max_position_embeddings=0 must be at least 1",
    ),
]


@pytest.mark.parametrize(("parameters", "message"), WRONG, ids=lambda v: str(v)[:40])
def test_wrong_parameters_say_what_is_wrong(parameters, message):
    with pytest.raises(ValueError, match=message):
        ropewalk.RoPE(64, scaling=parameters)


@pytest.mark.parametrize("length", [0, -1, 2.5, True])
def test_a_length_is_an_int_of_at_least_one(length):
    with pytest.raises((TypeError, ValueError), match="length="):
        ropewalk.RoPE(64, length=length)
    with pytest.raises((TypeError, ValueError), match="length="):
        ropewalk.RoPE(64).for_length(length)


def test_pinning_does_not_depend_on_earlier_calls_or_on_batch_neighbours():
    scaling = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 32}
    x = torch.randn(2, 3, 100, 16, generator=torch.Generator().manual_seed(0))
    unpinned, pinned = RoPE(16, scaling=scaling), RoPE(16, scaling=scaling, length=64)
    before = pinned.encode_q(x[:, :, :8])
    unpinned.encode_q(x)
    pinned.encode_q(x)
    assert torch.equal(pinned.encode_q(x[:, :, :8]), before)
    assert torch.equal(unpinned.encode_q(x[:, :, :8]), RoPE(16).encode_q(x[:, :, :8]))
    assert not torch.equal(before, unpinned.encode_q(x[:, :, :8]))


# Resonance.


@pytest.mark.parametrize(("dim", "distinct"), [(128, 64), (256, 125)])
def test_distinct_wavelengths(dim, distinct):
    """Catalogue §3: 64/64 at d = 128, 125/128 at d = 256."""
    found = [spectra.wavelength(f) for f in geometric(dim).inv_freq]
    assert len(found) == dim // 2
    assert len(set(found)) == distinct
    rounded = spectra.resonance(geometric(dim)).inv_freq
    assert [round(2 * math.pi / f) for f in rounded] == found


@given(DIMS, BASES)
def test_wavelengths_are_those_of_the_authors_formula(dim, base):
    with mpmath.workdps(40):
        exact = [
            int(mpmath.nint(2 * mpmath.pi * mpmath.mpf(base) ** (mpmath.mpf(2 * c) / dim)))
            for c in range(dim // 2)
        ]
    assert [spectra.wavelength(f) for f in geometric(dim, base).inv_freq] == exact


@settings(max_examples=30)
@given(DIMS, st.integers(0, 2**33))
def test_the_period_is_as_exact_as_stated(dim, position):
    """Against 2π·(p mod λ)/λ, which the authors' code takes, in exact integers."""
    spectrum = spectra.resonance(geometric(dim))
    turn = 1 << 64
    for frequency, step in zip(spectrum.inv_freq, spectrum.steps[0][0], strict=True):
        period = round(2 * math.pi / frequency)
        exact = Fraction(turn * (position % period), period)
        apart = (position * step - exact + turn // 2) % turn - turn // 2
        radians = abs(float(apart)) * 2 * math.pi / turn
        assert radians <= (1.3e-16 * 2 * math.pi / period + 1.7e-19) * position + 1e-18


def test_a_shift_by_the_period_is_the_same_rotation_up_to_the_statement():
    encoding = resonance(head_dim=2)
    x = torch.tensor([[[0.3, -1.2]]], dtype=torch.float64).expand(1, 12, 2)
    turned = encoding.encode_q(x, torch.arange(12))
    assert (turned[:, :6] - turned[:, 6:]).abs().max() < 1e-14
    assert (turned[:, 0] - turned[:, 1]).abs().max() > 0.1


def test_resonance_keeps_what_stands_and_follows_another_scaling():
    assert spectra.resonance(spectra.proportional(16, fraction=0.5)).inv_freq[4:] == (0.0,) * 4
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    after = resonance(head_dim=64, scaling=yarn).spectrum
    before = scaled(geometric(64), yarn)
    assert after.attention_factor == before.attention_factor
    assert [round(2 * math.pi / f) for f in after.inv_freq] == [
        spectra.wavelength(f) for f in before.inv_freq
    ]
    with pytest.raises(ValueError, match="turns more than twice a position"):
        spectra.resonance(Spectrum(((13.0,),), 2))
    with pytest.raises(TypeError, match="spectrum must be a Spectrum"):
        spectra.resonance((1.0,))  # pyright: ignore
