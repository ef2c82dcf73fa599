"""Keys in few bits and narrow tables: quantisers against loops, then what is measured with them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from ropewalk.lab.trained.quantised import FORMATS, SHARES, quantised, squared_error  # noqa: E402

FLOATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
INTEGERS = {"int8": 127, "int4": 7}

# ---- quantisers ----------------------------------------------------------------------------------


def numbers_of(form: str) -> list[float]:
    """Every finite number of a format, ascending; those of 8-bit floats from PyTorch's own codes."""
    if form in INTEGERS:
        return [float(n) for n in range(-INTEGERS[form], INTEGERS[form] + 1)]
    codes = torch.arange(256, dtype=torch.uint8).view(FLOATS[form]).double()
    return sorted(set(codes[codes.isfinite()].tolist()))


def literally(rows: list[list[float]], form: str, per: str) -> list[list[float]]:
    """Tokens of lanes through a format, a number at a time."""
    numbers = numbers_of(form)
    evens = {n for i, n in enumerate(numbers) if (i - len(numbers) // 2) % 2 == 0}
    found = []
    for row in rows:
        line = []
        for lane, x in enumerate(row):
            shares = [other[lane] for other in rows] if per == "channel" else row
            a = max(abs(s) for s in shares)
            if a == 0:
                line.append(0.0)
                continue
            code = numbers[-1] * (x / a)
            near = min(numbers, key=lambda n: (abs(n - code), n not in evens))
            line.append(near / numbers[-1] * a)
        found.append(line)
    return found


tables = arrays.arrays(
    "float64",
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(-1e30, 1e30, allow_subnormal=True) | st.sampled_from([0.0, 0.5, 1.0, -3.5]),
)
formats, shares = st.sampled_from(list(FORMATS)), st.sampled_from(list(SHARES))


@given(x=tables, form=formats, per=shares)
def test_a_quantiser_does_what_the_loop_does(x, form: str, per: str):
    assert quantised(torch.from_numpy(x), form, per).tolist() == literally(x.tolist(), form, per)


@given(x=tables, form=formats, per=shares)
def test_what_was_quantised_stays_and_the_largest_comes_back(x, form: str, per: str):
    x = torch.from_numpy(x)
    y = quantised(x, form, per)
    assert torch.allclose(quantised(y, form, per), y, rtol=1e-14, atol=0)
    dim = -2 if per == "channel" else -1
    assert torch.equal(x.abs().amax(dim), y.abs().amax(dim))
    assert not (x * y < 0).any()


@given(x=tables, form=st.sampled_from(list(INTEGERS)), per=shares)
def test_integers_err_by_half_a_step_at_most(x, form: str, per: str):
    x = torch.from_numpy(x)
    largest = x.abs().amax(-2 if per == "channel" else -1, keepdim=True)
    apart = (quantised(x, form, per) - x).abs()
    assert (apart <= largest / INTEGERS[form] * (0.5 + 1e-12)).all()


@pytest.mark.parametrize("form", FLOATS)
def test_floats_round_as_pytorch_does(form: str):
    """All bfloat16 numbers of the range, ties among them, and a random million of float32."""
    top = FORMATS[form].largest
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    x = torch.cat((every, torch.randn(1 << 20) * torch.randn(1 << 20).exp()))
    x = x[x.abs() <= top]
    assert torch.equal(FORMATS[form].nearest(x.double()), x.to(FLOATS[form]).double())


def test_a_float64_is_rounded_once():
    x = torch.tensor([[1.0625 + 2.0**-40, 448.0]], dtype=torch.float64)
    assert quantised(x, "e4m3", "token").tolist() == [[1.125, 448.0]]


def test_scales_are_of_a_lane_or_of_a_token_and_never_of_two_heads():
    x = torch.randn(2, 3, 7, 8, generator=torch.Generator().manual_seed(0))
    for form in FORMATS:
        for per in SHARES:
            whole = quantised(x, form, per)
            for row in range(2):
                for head in range(3):
                    alone = quantised(x[row, head], form, per)
                    assert torch.equal(whole[row, head], alone), "ragged or not, it is its own"
        channel, token = (quantised(x, form, per) for per in SHARES)
        assert not torch.equal(channel, token)
        assert torch.equal(quantised(x[..., :1], form, "channel"), channel[..., :1])
        assert torch.equal(quantised(x[..., :1, :], form, "token"), token[..., :1, :])
        back = quantised(x.transpose(1, 2), form, "channel", tokens=1).transpose(1, 2)
        assert torch.equal(back, channel)


def test_what_is_small_large_or_nothing():
    for form in FORMATS:
        for per in SHARES:
            for value in (0.0, 5e-324, 1.7e308):
                x = torch.full((2, 3), value, dtype=torch.float64)
                assert torch.equal(quantised(x, form, per), x)
            assert quantised(torch.zeros(0, 4), form, per).shape == (0, 4)
            half = torch.randn(4, 4).to(torch.bfloat16)
            assert quantised(half, form, per).dtype == torch.bfloat16


def test_what_no_scale_can_hold_is_refused():
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="nan or infinity"):
            quantised(torch.tensor([[1.0, bad]]), "int8", "token")
    with pytest.raises(ValueError, match="form='int3' is unknown; use one of int8"):
        quantised(torch.ones(2, 2), "int3", "token")
    with pytest.raises(ValueError, match="per='head' is unknown; use one of channel, token"):
        quantised(torch.ones(2, 2), "int8", "head")
    with pytest.raises(ValueError, match="tokens and lanes"):
        quantised(torch.ones(2), "int8", "token")
    with pytest.raises(TypeError, match=r"torch.int64"):
        quantised(torch.ones(2, 2, dtype=torch.int64), "int8", "token")


def test_squared_error():
    x = torch.tensor([3.0, 4.0])
    assert squared_error(torch.tensor([3.0, 4.5]), x) == 0.01
    assert squared_error(x, x) == 0.0
    assert squared_error(torch.zeros(2), torch.zeros(2)) == 0.0
