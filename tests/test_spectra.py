"""Spectra: exact steps, correctly rounded frequencies, and a value that cannot go wrong quietly."""

from __future__ import annotations

import copy
import dataclasses
import decimal
import json
import math
import pickle
import subprocess
import sys
from typing import Any, cast

import mpmath
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numeric_oracles import mp_angle, mp_step

from ropewalk import spectra
from ropewalk.spectra import Spectrum, exact_angle, geometric, step
from ropewalk.spectra.axial import even_assignment
from ropewalk.spectra.geometric import powers
from ropewalk.spectra.rope_parameters import scaled
from ropewalk.spectra.turns import scaled_pi

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INT64 = st.integers(-(2**63), 2**63 - 1)
DIMS, BASES = (64, 128), (1e4, 5e5, 1e6)
LARGEST, TINIEST = sys.float_info.max, 5e-324
loose = cast("Any", spectra)
"""The functions as they look to somebody who does not check types."""


@pytest.mark.parametrize("bits", [64, 1280, 2560])
def test_pi_is_right_to_the_last_bit(bits):
    with mpmath.workprec(bits + 64):
        assert scaled_pi(bits) == int(mpmath.floor(mpmath.pi * mpmath.mpf(2) ** bits))


@settings(max_examples=300, deadline=None)
@given(FLOATS, st.sampled_from([1.0, 2.0**-20, 0.04, 1e-300]))
@example(LARGEST, 1.0)
@example(-LARGEST, 1.0)
@example(LARGEST, LARGEST)
@example(TINIEST, 1.0)
@example(-TINIEST, LARGEST)
@example(0.0, 1.0)
@example(-0.0, 1.0)
@example(math.pi, 1.0)
@example(2 * math.pi, 1.0)
@example(2.0**-64 * math.pi, 1.0)
@example(3 * 2.0**-64 * math.pi, 1.0)
@example(math.nextafter(2.0**-64 * math.pi, 1.0), 1.0)
def test_step_is_the_nearest_integer(frequency, unit):
    assert step(frequency, unit) == mp_step(frequency, unit)


@settings(max_examples=300, deadline=None)
@given(INT64, FLOATS, st.sampled_from([1.0, 2.0**-20, 1e-300]))
@example(2**63 - 1, LARGEST, 1.0)
@example(-(2**63), LARGEST, LARGEST)
@example(-(2**63), TINIEST, 1.0)
@example(1, math.pi, 1.0)
@example(-1, math.pi, 1.0)
@example(10**9, 2 * math.pi, 1.0)
@example(0, 1.0, 1.0)
def test_exact_angle_is_one_rounding_away(position, frequency, unit):
    expected = mp_angle(position, frequency, unit)
    found = exact_angle(position, frequency, unit)
    with mpmath.workdps(60):
        allowed = abs(expected) * mpmath.mpf(2) ** -53 * mpmath.mpf("1.001") + TINIEST
        assert abs(mpmath.mpf(found) - expected) <= allowed
    assert -math.pi <= found <= math.pi


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["frequency", "unit"])
def test_steps_and_angles_of_nothing_finite_are_refused(value, place):
    given_ = {"frequency": 1.0, "unit": 1.0, place: value}
    with pytest.raises(ValueError, match="must be finite"):
        step(**given_)
    with pytest.raises(ValueError, match="must be finite"):
        exact_angle(3, **given_)


@pytest.mark.parametrize("dim", [*DIMS, 6, 80, 96])
@pytest.mark.parametrize("base", [*BASES, 100.0, 0.5, 1.5e8])
def test_geometric_frequencies_are_correctly_rounded(dim, base):
    row = geometric(dim, base).inv_freq
    assert len(row) == dim // 2
    with mpmath.workdps(60):
        for c, found in enumerate(row):
            exact = mpmath.power(mpmath.mpf(base), mpmath.mpf(-2 * c) / dim)
            error = abs(mpmath.mpf(found) - exact)
            for other in (math.nextafter(found, 0.0), math.nextafter(found, math.inf)):
                assert error <= abs(mpmath.mpf(other) - exact), (c, found)


def test_frequencies_do_not_depend_on_the_callers_decimal_context():
    expected = powers(1e6, 64, 128)
    hostile = decimal.Context(
        prec=3, rounding=decimal.ROUND_UP, Emax=5, Emin=-1, traps=[decimal.Inexact]
    )
    with decimal.localcontext(hostile):
        assert powers.__wrapped__(1e6, 64, 128) == expected


def test_every_machine_has_these_steps():
    expected = (2935890503282001226, 293589050328200139, 29358905032820013, 2935890503282001)
    assert geometric(8).steps == ((expected,),)
    assert geometric(128, 5e5).steps[0][0][63] == 7208024532904


def test_proportional_golden():
    spectrum = spectra.proportional(512, 1e6, fraction=0.25)
    row = spectrum.inv_freq
    assert round(row[1], 6) == 0.947464
    assert [f > 0 for f in row] == [True] * 64 + [False] * 192
    assert row[:64] == geometric(512, 1e6).inv_freq[:64]
    assert spectrum.steps[0][0][64:] == (0,) * 192


@pytest.mark.parametrize(
    ("fraction", "turning"), [(0.0, 0), (1.0, 32), (0.75, 24), (0.7, 22), (0.55, 17)]
)
def test_proportional_keeps_the_whole_share(fraction, turning):
    row = spectra.proportional(64, fraction=fraction, factor=2.0).inv_freq
    assert row[:turning] == tuple(f / 2 for f in geometric(64).inv_freq[:turning])
    assert row[turning:] == (0.0,) * (32 - turning)


def test_linear_divides_every_frequency():
    original = geometric(64, 5e5)
    assert spectra.linear(original, 4.0).inv_freq == tuple(f / 4 for f in original.inv_freq)
    assert spectra.linear(original, 1) == original


def test_partial_rotary_runs_over_its_own_lanes():
    spectrum = geometric(80, rotary_dim=32, lane_offset=48, layout="interleaved")
    assert spectrum.inv_freq == geometric(32).inv_freq
    assert (spectrum.rotary_dim, spectrum.pairs, spectrum.head_dim) == (32, 16, 80)


def test_axial_golden():
    spectrum = spectra.axial(16, 100.0, axes=2)
    ladder = (1.0, 100.0**-0.25, 0.1, 100.0**-0.75)
    assert spectrum.axes == 2
    assert spectrum.freqs[0] == pytest.approx((*ladder, 0, 0, 0, 0), rel=1e-15)
    assert spectrum.freqs[1] == pytest.approx((0, 0, 0, 0, *ladder), rel=1e-15)


def test_axial_with_stated_axes_and_scales():
    spectrum = spectra.axial(
        12, 16.0, axes=3, assignment=[2, 0, 2, 1, 2, 2], scale=[1.0, 3.0, 0.5], unit=2.0**-20
    )
    quarter = 16.0**-0.25
    expected = (
        (0, 1, 0, 0, 0, 0),
        (0, 0, 0, 3, 0, 0),
        (0.5, 0, 0.5 * quarter, 0, 0.5 * quarter**2, 0.5 * quarter**3),
    )
    for row, wanted in zip(spectrum.freqs, expected, strict=True):
        assert row == pytest.approx(wanted, rel=1e-15)
    assert spectrum.steps[0][2][2] == mp_step(spectrum.matrices[0][2][2], 2.0**-20)


def test_axial_with_one_axis_is_geometric():
    assert spectra.axial(64, 1e4, axes=1) == geometric(64)
    assert even_assignment(3, 6) == (0, 0, 1, 1, 2, 2)


# The value


def test_equal_spectra_are_one_key():
    one, other = geometric(64), loose.Spectrum([list(geometric(64).inv_freq)], 64)
    assert one == other
    assert hash(one) == hash(other)
    assert len({one, other, geometric(64, 5e5)}) == 2
    changes = {
        "layout": "interleaved",
        "head_dim": 65,
        "attention_factor": 1.5,
        "unit": 0.5,
        "freqs": geometric(64, 9e3).freqs,
        "pairing": "proportional",
    }
    for name, value in changes.items():
        assert one.replace(**{name: value}) != one, name


@pytest.mark.parametrize("name", ["freqs", "head_dim", "attention_factor", "steps", "matrices"])
def test_a_spectrum_is_frozen(name):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(geometric(8), name, None)


def test_replace_and_map_leave_the_original():
    original = geometric(8, layout="interleaved")
    before = (original.freqs, original.steps)
    doubled = original.map(lambda f: 2 * f)
    assert doubled.inv_freq == tuple(2 * f for f in original.inv_freq)
    assert doubled.layout == "interleaved"
    assert doubled.steps[0][0] == tuple(mp_step(f) for f in doubled.inv_freq)
    assert original.replace(unit=0.5).steps[0][0] == tuple(
        mp_step(f, 0.5) for f in original.inv_freq
    )
    assert (original.freqs, original.steps) == before
    with pytest.raises(TypeError, match="frequency"):
        original.replace(frequency=3)


@pytest.mark.parametrize(
    "spectrum",
    [
        geometric(64, 5e5, rotary_dim=32, lane_offset=16, layout="interleaved"),
        spectra.axial(16, axes=2, unit=2.0**-20).replace(attention_factor=1.19),
        loose.Spectrum([[[1.0, 0.25]], [[2.0, 0.0]]], 6, lane_offset=1),
        spectra.proportional(16, fraction=0.5).replace(pairing="proportional"),
    ],
    ids=["partial", "axial", "heads", "proportional"],
)
def test_copies_are_equal_down_to_the_steps(spectrum):
    copies = [pickle.loads(pickle.dumps(spectrum, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)]
    copies += [copy.copy(spectrum), copy.deepcopy(spectrum), spectrum.replace()]
    fields = {f.name: getattr(spectrum, f.name) for f in dataclasses.fields(spectrum) if f.init}
    copies.append(Spectrum(**json.loads(json.dumps(fields))))
    copies.append(eval(repr(spectrum), {"Spectrum": Spectrum}))
    for twin in copies:
        assert twin == spectrum
        assert hash(twin) == hash(spectrum)
        assert (twin.steps, twin.matrices) == (spectrum.steps, spectrum.matrices)


def test_heads_have_their_own_frequencies():
    spectrum = loose.Spectrum([[[1.0, 0.25]], [[2.0, 0.0]], [[-1.0, 4.0]]], 6)
    assert (spectrum.heads, spectrum.axes, spectrum.pairs) == (3, 1, 2)
    assert spectrum.steps[2][0] == (mp_step(-1.0), mp_step(4.0))
    assert spectrum.map(lambda f: f / 2).freqs[1] == ((1.0, 0.0),)
    with pytest.raises(ValueError, match=r"heads=3.*use freqs"):
        _ = spectrum.inv_freq
    with pytest.raises(ValueError, match=r"axes=2.*use freqs"):
        _ = spectra.axial(8, axes=2).inv_freq


def test_numbers_are_kept_as_floats():
    spectrum = loose.Spectrum([[1, 2]], 4, attention_factor=2, unit=1)
    assert [type(f) for f in spectrum.inv_freq] == [float, float]
    assert type(spectrum.attention_factor) is float
    assert type(spectrum.unit) is float


def test_for_length_returns_the_same_spectrum():
    spectrum = geometric(8)
    assert spectrum.for_length(1) is spectrum
    assert spectrum.for_length(10**9) is spectrum


def test_spectra_need_no_torch():
    code = (
        "import sys, ropewalk.spectra as s; s.geometric(64).replace(unit=.5); "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Errors: argument, value, remedy

HUGE_INT = 10**400
LOOP: list = []
LOOP.append(LOOP)

BAD_SPECTRA = [
    ({"freqs": [[math.nan]]}, ValueError, r"freqs\[0\]\[0\]=nan must be finite.*0\.0"),
    ({"freqs": [[1.0, -math.inf]]}, ValueError, r"freqs\[0\]\[1\]=-inf must be finite"),
    ({"freqs": [[HUGE_INT]]}, ValueError, r"freqs\[0\]\[0\]=inf must be finite"),
    ({"freqs": [[True]]}, TypeError, r"freqs\[0\]\[0\]=True must be a number"),
    ({"freqs": [["1"]]}, TypeError, r"freqs\[0\]\[0\]='1' must be a number"),
    ({"freqs": [[None]]}, TypeError, r"freqs\[0\]\[0\]=None must be a number"),
    ({"freqs": [1.0]}, ValueError, r"nested as \[axes\]\[pairs\].*list of depth 1"),
    ({"freqs": 1.0}, ValueError, r"got float of depth 0"),
    ({"freqs": "12"}, ValueError, r"got str of depth 0"),
    ({"freqs": []}, ValueError, r"at least one of each"),
    ({"freqs": [[]]}, ValueError, r"at least one of each"),
    ({"freqs": [[[[1.0]]]]}, ValueError, r"depth 4"),
    ({"freqs": LOOP}, ValueError, r"nested as"),
    ({"freqs": [[1.0], []]}, ValueError, r"rectangular.*lengths \[0, 1\]"),
    ({"freqs": [[1.0, 2.0], [1.0]]}, ValueError, r"rectangular.*lengths \[1, 2\]"),
    ({"freqs": [[[1.0]], [[1.0], [2.0]]]}, ValueError, r"rectangular.*lengths \[1, 2\]"),
    ({"freqs": [[1.0], 2.0]}, TypeError, r"freqs\[1\]=2\.0 must be a sequence"),
    ({"freqs": [[1.0], [[2.0]]]}, TypeError, r"freqs\[1\]\[0\]=\[2\.0\] must be a number"),
    ({"head_dim": 3}, ValueError, r"rotary_dim=4 at lane_offset=0.*head_dim=3; rotate at most"),
    ({"head_dim": 4.0}, TypeError, r"head_dim=4\.0 must be an int"),
    ({"head_dim": True}, TypeError, r"head_dim=True must be an int"),
    ({"lane_offset": 5}, ValueError, r"rotary_dim=4 at lane_offset=5 does not fit in head_dim=8"),
    ({"lane_offset": -1}, ValueError, r"lane_offset=-1 does not fit"),
    ({"lane_offset": "0"}, TypeError, r"lane_offset='0' must be an int"),
    ({"layout": "neox"}, ValueError, r"layout='neox' is unknown; use one of \('half'"),
    ({"pairing": "gemma"}, ValueError, r"pairing='gemma' is unknown; use one of"),
    (
        {"pairing": "proportional", "layout": "interleaved"},
        ValueError,
        r"needs layout='half', got layout='interleaved'",
    ),
    (
        {"pairing": "proportional", "lane_offset": 3},
        ValueError,
        r"does not fit in half of head_dim",
    ),
    ({"pairing": "proportional", "head_dim": 9}, ValueError, r"does not fit in half of head_dim=9"),
    ({"attention_factor": 0.0}, ValueError, r"attention_factor=0\.0 must be finite and above 0"),
    ({"attention_factor": -1}, ValueError, r"attention_factor=-1\.0 must be finite and above 0"),
    ({"attention_factor": math.nan}, ValueError, r"attention_factor=nan must be finite"),
    ({"attention_factor": HUGE_INT}, ValueError, r"attention_factor=inf must be finite"),
    ({"attention_factor": True}, TypeError, r"attention_factor=True must be a number"),
    ({"attention_factor": "1"}, TypeError, r"attention_factor='1' must be a number"),
    ({"unit": 0}, ValueError, r"unit=0\.0 must be finite and above 0"),
    ({"unit": math.inf}, ValueError, r"unit=inf must be finite"),
    ({"unit": None}, TypeError, r"unit=None must be a number"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD_SPECTRA)
def test_a_bad_spectrum_says_what_and_why(change, error, message):
    with pytest.raises(error, match=message):
        loose.Spectrum(**{"freqs": [[1.0, 0.5]], "head_dim": 8, **change})


BAD_CALLS = [
    (lambda: loose.geometric(7), ValueError, r"head_dim=7 must be even.*use 8"),
    (lambda: loose.geometric(0), ValueError, r"head_dim=0 must be even and at least 2.*use 2"),
    (lambda: loose.geometric(-3), ValueError, r"head_dim=-3 must be even"),
    (lambda: loose.geometric(8.0), TypeError, r"head_dim=8\.0 must be an int"),
    (lambda: loose.geometric(8, rotary_dim=3), ValueError, r"rotary_dim=3 must be even.*use 4"),
    (lambda: loose.geometric(8, rotary_dim=10), ValueError, r"rotary_dim=10.*fit in head_dim=8"),
    (lambda: loose.geometric(8, 0.0), ValueError, r"base=0\.0 must be finite and above 0, such as"),
    (lambda: loose.geometric(8, -1e4), ValueError, r"base=-10000\.0 must be finite and above 0"),
    (lambda: loose.geometric(8, math.inf), ValueError, r"base=inf must be finite"),
    (lambda: loose.geometric(8, HUGE_INT), ValueError, r"base=inf must be finite"),
    (lambda: loose.geometric(8, "1e4"), TypeError, r"base='1e4' must be a number.*such as 10000"),
    (lambda: loose.geometric(8, True), TypeError, r"base=True must be a number"),
    (lambda: loose.geometric(8, layout="gptj"), ValueError, r"layout='gptj' is unknown"),
    (lambda: loose.linear(loose.geometric(8), 0.5), ValueError, r"factor=0\.5.*at least 1"),
    (lambda: loose.linear(loose.geometric(8), math.nan), ValueError, r"factor=nan must be finite"),
    (lambda: loose.linear(loose.geometric(8), "4"), TypeError, r"factor='4' must be a number"),
    (lambda: loose.proportional(8, fraction=1.5), ValueError, r"fraction=1\.5.*\[0, 1\]"),
    (lambda: loose.proportional(8, fraction=-0.1), ValueError, r"fraction=-0\.1.*\[0, 1\]"),
    (lambda: loose.proportional(8, fraction="all"), TypeError, r"fraction='all' must be a num"),
    (lambda: loose.proportional(8, factor=math.inf), ValueError, r"factor=inf must be finite"),
    (lambda: loose.proportional(8, factor=0.9), ValueError, r"factor=0\.9.*at least 1"),
    (lambda: loose.proportional(9), ValueError, r"head_dim=9 must be even"),
    (lambda: loose.axial(8, axes=3), ValueError, r"axes=3 does not divide the 4 pairs.*assign"),
    (lambda: loose.axial(8, axes=0), ValueError, r"axes=0 must be at least 1"),
    (lambda: loose.axial(8, axes=2.0), TypeError, r"axes=2\.0 must be an int"),
    (
        lambda: loose.axial(8, axes=2, assignment=[0, 1, 0]),
        ValueError,
        r"assignment has 3 entries; head_dim=8 has 4 pairs",
    ),
    (
        lambda: loose.axial(8, axes=2, assignment=[0, 0, 0, 0]),
        ValueError,
        r"assignment uses axes \[0\]; each of 0 … 1 needs a pair",
    ),
    (
        lambda: loose.axial(8, axes=2, assignment=[0, 1, 2, 0]),
        ValueError,
        r"assignment uses axes \[0, 1, 2\]",
    ),
    (
        lambda: loose.axial(8, axes=2, assignment=[0, 1.0, 1, 0]),
        TypeError,
        r"assignment\[1\]=1\.0 must be an int",
    ),
    (lambda: loose.axial(8, axes=2, assignment="0101"), TypeError, r"assignment='0101' must be"),
    (lambda: loose.axial(8, axes=2, assignment=3), TypeError, r"assignment=3 must be a sequence"),
    (lambda: loose.axial(8, axes=2, scale=[1.0]), ValueError, r"scale has 1 entries; axes=2"),
    (lambda: loose.axial(8, scale=[1.0, "2"]), TypeError, r"scale\[1\]='2' must be a number"),
    (lambda: loose.axial(8, scale=math.nan), ValueError, r"scale=nan must be finite"),
    (lambda: loose.axial(8, unit=0.0), ValueError, r"unit=0\.0 must be finite and above 0"),
    (lambda: loose.geometric(8).for_length(0), ValueError, r"length=0 must be at least 1"),
    (lambda: loose.geometric(8).for_length("8"), TypeError, r"length='8' must be an int"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS)
def test_a_bad_argument_says_what_and_why(call, error, message):
    with pytest.raises(error, match=message):
        call()


# Scaling

SPECTRUM = geometric(64, 5e5)


def test_scaling_by_none_function_or_dictionary():
    assert scaled(SPECTRUM, None) is SPECTRUM
    assert scaled(SPECTRUM, lambda s: s.map(lambda f: f / 3)) == spectra.linear(SPECTRUM, 3)
    for key in ("rope_type", "type"):
        assert scaled(SPECTRUM, {key: "default"}) == SPECTRUM
        assert scaled(SPECTRUM, {key: "linear", "factor": 4.0}) == spectra.linear(SPECTRUM, 4.0)
    both = {"type": "linear", "rope_type": "linear", "factor": 2}
    assert scaled(SPECTRUM, both) == spectra.linear(SPECTRUM, 2)
    assert both == {"type": "linear", "rope_type": "linear", "factor": 2}


@pytest.mark.parametrize(
    ("scaling", "error", "message"),
    [
        ({}, ValueError, r"exactly one rope_type, got \[\]; one of default, linear"),
        ({"factor": 2.0}, ValueError, r"exactly one rope_type"),
        ({"type": "linear", "rope_type": "default"}, ValueError, r"\['default', 'linear'\]"),
        ({"rope_type": "wurzel"}, ValueError, r"rope_type='wurzel'.*known: default, linear.*Any"),
        ({"rope_type": None}, ValueError, r"rope_type='None'"),
        ({"rope_type": ["linear"]}, ValueError, r"is not known here"),
        ({"rope_type": "linear"}, ValueError, r"takes factor; missing: factor; not used: none"),
        (
            {"rope_type": "linear", "factor": 2.0, "beta_fast": 32, "low": 1},
            ValueError,
            r"missing: none; not used: beta_fast, low",
        ),
        ({"rope_type": "default", "factor": 2.0}, ValueError, r"takes no other key.*factor"),
        ({"rope_type": "linear", "factor": "2"}, TypeError, r"factor='2' must be a number"),
        ({"rope_type": "linear", "factor": 0.0}, ValueError, r"factor=0\.0.*at least 1"),
        ("linear", TypeError, r"scaling must be a function.*got str"),
        (3, TypeError, r"scaling must be a function.*got int"),
        (lambda s: s.freqs, TypeError, r"scaling returned tuple; it must return a Spectrum"),
    ],
)
def test_bad_scaling_says_what_and_why(scaling, error, message):
    with pytest.raises(error, match=message):
        scaled(SPECTRUM, scaling)


def test_rope_theta_may_stand_in_the_dictionary():
    from ropewalk import RoPE

    parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}
    assert RoPE(64, scaling=parameters).spectrum == spectra.linear(SPECTRUM, 2.0)
    assert RoPE(64, 5e5, scaling=parameters).spectrum == spectra.linear(SPECTRUM, 2.0)
    assert RoPE(64, scaling={"rope_type": "default", "rope_theta": 5e5}).spectrum == SPECTRUM
    assert "rope_theta" in parameters
    with pytest.raises(ValueError, match=r"base=10000\.0 and scaling's rope_theta=500000\.0"):
        RoPE(64, 10000.0, scaling=parameters)
    with pytest.raises(ValueError, match="base given beside a Spectrum"):
        RoPE(SPECTRUM, scaling=parameters)
    with pytest.raises(TypeError, match="base='x' must be a number"):
        RoPE(64, scaling={"rope_type": "default", "rope_theta": "x"})
