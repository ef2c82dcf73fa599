"""Scalings of spectra: golden values from papers and authors' code, and laws that all keep."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk import spectra
from ropewalk.spectra import Spectrum, geometric
from ropewalk.spectra.rope_parameters import SCALINGS, scaled
from ropewalk.spectra.sections import blocks, interleaved
from ropewalk.spectra.yarn import mscale

PLAIN = geometric(128, 10000.0)
QWEN = geometric(128, 1e6)
LLAMA = geometric(128, 5e5)


def base_of(spectrum: Spectrum) -> float:
    return spectrum.inv_freq[-1] ** (-spectrum.rotary_dim / (spectrum.rotary_dim - 2))


def test_ntk_enlarges_the_base():
    """Catalogue §4: s=4, d=128 → 40,890; s=8, d=64 → 85,550."""
    assert base_of(spectra.ntk(PLAIN, 4.0)) == pytest.approx(40890, rel=1e-4)
    assert base_of(spectra.ntk(geometric(64), 8.0)) == pytest.approx(85550, rel=1e-4)
    with pytest.raises(ValueError, match="single pair"):
        spectra.ntk(geometric(2), 2.0)


@pytest.mark.parametrize(
    ("length", "base"),
    [(1, 1e4), (4096, 1e4), (4097, 10004.96), (8192, 30527.74), (16384, 72195.86)],
)
def test_dynamic_is_pinned_by_a_length(length, base):
    """Catalogue §4: factor 2, L = 4096, d = 128."""
    spectrum = spectra.dynamic_ntk(PLAIN, 2.0, 4096)
    pinned = spectrum.for_length(length)
    assert base_of(pinned) == pytest.approx(base, rel=1e-6)
    assert type(pinned) is Spectrum
    assert spectrum.inv_freq == PLAIN.inv_freq


@pytest.mark.parametrize(
    ("dim", "base", "length", "truncate", "expected"),
    [
        (128, 1e4, 4096, True, (20, 46)),  # Llama 2
        (64, 1e4, 4096, True, (10, 23)),  # DeepSeek
        (64, 1e4, 4096, False, (10.4722, 22.5134)),  # DeepSeek, before rounding
        (128, 1e6, 32768, True, (23, 40)),  # Qwen
        (64, 150000.0, 4096, False, (8.0928, 17.3980)),  # gpt-oss
    ],
)
def test_correction_range(dim, base, length, truncate, expected):
    found = spectra.correction_range(dim, base, length, truncate=truncate)
    assert found == pytest.approx(expected, abs=6e-5)


def test_yarn_of_qwen3():
    """Catalogue §4: lowest 3.1023e-7, scale 1.13863."""
    spectrum = spectra.yarn(QWEN, 4.0, 32768)
    assert spectrum.inv_freq[-1] == pytest.approx(3.1023e-7, rel=1e-4)
    assert spectrum.attention_factor == pytest.approx(1.13863, rel=1e-5)
    assert spectrum.inv_freq[:23] == QWEN.inv_freq[:23]


def test_yarn_of_kimi_k2_is_a_step():
    """β_fast = β_slow = 1: pair 19 keeps 1.6218e-3, pair 20 jumps to 3.614e-5."""
    options: dict[str, Any] = {"beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0}
    spectrum = spectra.yarn(geometric(64, 5e4), 32.0, 4096, mscale_all_dim=1.0, **options)
    assert spectrum.inv_freq[19] == pytest.approx(1.6218e-3, rel=1e-4)
    assert spectrum.inv_freq[20] == pytest.approx(3.614e-5, rel=1e-4)
    assert spectrum.attention_factor == 1.0
    untruncated = spectra.yarn(geometric(64, 5e4), 32.0, 4096, truncate=False, **options)
    assert untruncated.inv_freq[19] == pytest.approx(1.6218e-3, rel=1e-4)
    assert untruncated.inv_freq[20] == pytest.approx(3.614e-5, rel=1e-4)


def test_yarn_without_truncation_moves_pair_17_of_gpt_oss():
    """Rounding to 8/18 changes pair 17 by 76 % (vllm-project/vllm#28244)."""
    plain = geometric(64, 150000.0)
    exact = spectra.yarn(plain, 32.0, 4096, truncate=False).inv_freq[17]
    rounded = spectra.yarn(plain, 32.0, 4096).inv_freq[17]
    assert max(exact, rounded) / min(exact, rounded) - 1 == pytest.approx(0.76, abs=0.01)


def test_mscale_of_deepseek():
    assert mscale(40) == pytest.approx(1.36889, rel=1e-5)
    assert mscale(40) ** 2 == pytest.approx(1.87385, rel=1e-5)
    assert mscale(40, 0.707) ** 2 == pytest.approx(1.58963, rel=1e-5)
    same = spectra.yarn(geometric(64), 40.0, 4096, mscale=0.707, mscale_all_dim=0.707)
    assert same.attention_factor == 1.0
    stated = spectra.yarn(geometric(64), 64.0, 4096, attention_factor=1.0)
    assert stated.attention_factor == 1.0
    assert spectra.yarn(geometric(64), 64.0, 4096).attention_factor == pytest.approx(
        1.41589, rel=1e-5
    )


def test_longrope_takes_the_long_list_from_the_next_token_on():
    """Phi-3.5: factor 32, L = 4096 → 1.190238, at every length."""
    plain = geometric(96)
    short, long = [1.0 + 0.04 * c for c in range(48)], [1.08 + c for c in range(48)]
    spectrum = spectra.longrope(plain, short, long, 4096, factor=32.0)
    assert spectrum.attention_factor == pytest.approx(1.190238, rel=1e-6)
    for length, divisors in ((1, short), (4096, short), (4097, long), (131072, long)):
        pinned = spectrum.for_length(length)
        expected = [f / d for f, d in zip(plain.inv_freq, divisors, strict=True)]
        assert list(pinned.inv_freq) == pytest.approx(expected, rel=1e-14)
        assert pinned.attention_factor == spectrum.attention_factor
    with pytest.raises(ValueError, match="short_factor has 47 entries; the spectrum has 48 pairs"):
        spectra.longrope(plain, short[1:], long, 4096, factor=32.0)
    with pytest.raises(ValueError, match="needs factor"):
        spectra.longrope(plain, short, long, 4096)


def kept_blended_divided(plain: Spectrum, scaled: Spectrum, factor: float) -> tuple[int, int, int]:
    pairs = list(zip(plain.inv_freq, scaled.inv_freq, strict=True))
    kept = sum(a == b for a, b in pairs)
    divided = sum(a / factor == b for a, b in pairs)
    return kept, len(pairs) - kept - divided, divided


def test_llama3():
    """Catalogue §4: 29/6/29, lowest 3.0689e-7; Llama-3.2-1B 15/3/14, lowest 9.4183e-8."""
    large = spectra.llama3(LLAMA, 8.0, 1.0, 4.0, 8192)
    assert kept_blended_divided(LLAMA, large, 8.0) == (29, 6, 29)
    assert large.inv_freq[-1] == pytest.approx(3.0689e-7, rel=1e-4)
    plain = geometric(64, 5e5)
    small = spectra.llama3(plain, 32.0, 1.0, 4.0, 8192)
    assert kept_blended_divided(plain, small, 32.0) == (15, 3, 14)
    assert small.inv_freq[-1] == pytest.approx(9.4183e-8, rel=1e-4)


def test_llama3_with_equal_bounds_is_a_hard_cut():
    scout = spectra.llama3(LLAMA, 16.0, 1.0, 1.0, 8192)
    assert kept_blended_divided(LLAMA, scout, 16.0) == (35, 0, 29)
    cut = Spectrum(((2 * math.pi / 4096,),), 2)  # turns exactly twice within 8192
    assert spectra.llama3(cut, 16.0, 2.0, 2.0, 8192).inv_freq == cut.inv_freq
    with pytest.raises(ValueError, match="at most high_freq_factor"):
        spectra.llama3(LLAMA, 16.0, 4.0, 1.0, 8192)


def test_hunyuan_alpha_is_static():
    """alpha 1000, d = 128 → base 1.11588e7."""
    spectrum = spectra.hunyuan_alpha(PLAIN, 1000.0)
    assert base_of(spectrum) == pytest.approx(1.11588e7, rel=1e-5)
    assert spectrum.for_length(10**6) is spectrum


def test_sections():
    assert interleaved([24, 20, 20]) == "THW" * 20 + "TTTT"
    assert interleaved([11, 11, 10]) == "THW" * 10 + "TH"
    assert blocks([16, 24, 24]) == "T" * 16 + "H" * 24 + "W" * 24
    along = spectra.along(geometric(8), "THWT")
    assert along.axes == 3
    assert [row.index(max(row)) for row in zip(*along.freqs, strict=True)] == [0, 1, 2, 0]
    with pytest.raises(ValueError, match="names 3 pairs; the spectrum has 4"):
        spectra.along(geometric(8), "THW")


def test_parameters_of_every_type_reach_their_function():
    given: dict[str, dict[str, Any]] = {
        "default": {},
        "linear": {"factor": 2.0},
        "ntk": {"factor": 2.0},
        "dynamic": {"factor": 2.0, "original_max_position_embeddings": 4096},
        "yarn": {"factor": 4.0, "original_max_position_embeddings": 4096, "truncate": False},
        "longrope": {
            "short_factor": [1.0] * 64,
            "long_factor": [2.0] * 64,
            "original_max_position_embeddings": 4096,
            "factor": 2.0,
        },
        "llama3": {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "ntk_by_parts": {"factor": 4.0, "original_max_position_embeddings": 4096},
        "proportional": {"partial_rotary_factor": 0.25, "factor": 8.0},
        "hunyuan_alpha": {"alpha": 1000.0},
        "resonance": {},
    }
    assert set(given) == set(SCALINGS)
    for kind, parameters in given.items():
        found = scaled(PLAIN, {"rope_type": kind, **parameters})
        assert found == SCALINGS[kind](PLAIN, **parameters)
        assert pickle.loads(pickle.dumps(found)) == found
        assert hash(found) == hash(pickle.loads(pickle.dumps(found)))


@given(
    st.integers(2, 64),
    st.floats(2.0, 1e8),
    st.floats(1.0, 100.0),
    st.integers(64, 10**6),
    st.booleans(),
)
def test_by_parts_stays_between_kept_and_divided(pairs, base, factor, length, truncate):
    plain = geometric(2 * pairs, base)
    found = spectra.ntk_by_parts(plain, factor, length, truncate=truncate, base=base)
    for before, after in zip(plain.inv_freq, found.inv_freq, strict=True):
        assert before / factor * (1 - 1e-12) <= after <= before * (1 + 1e-12)


@given(st.integers(2, 64), st.floats(2.0, 1e8), st.floats(1.0, 100.0))
def test_ntk_keeps_the_fastest_and_divides_the_slowest(pairs, base, factor):
    plain = geometric(2 * pairs, base)
    found = spectra.ntk(plain, factor)
    assert found.inv_freq[0] == plain.inv_freq[0]
    assert found.inv_freq[-1] == pytest.approx(plain.inv_freq[-1] / factor, rel=1e-12)


def test_the_base_is_read_off_only_where_it_can_be():
    assert spectra.ntk_by_parts(QWEN, 4.0, 32768) == spectra.ntk_by_parts(
        QWEN, 4.0, 32768, base=1e6
    )
    with pytest.raises(ValueError, match="base must be given"):
        spectra.ntk_by_parts(spectra.llama3(LLAMA, 8.0, 1.0, 4.0, 8192), 4.0, 32768)
    with pytest.raises(ValueError, match="beta_fast=1 must be at least beta_slow=32"):
        spectra.ntk_by_parts(QWEN, 4.0, 32768, beta_fast=1, beta_slow=32)
