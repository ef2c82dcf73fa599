"""Every path of attend against the dense float64 attention, and which path is chosen."""

from __future__ import annotations

import math

import pytest
import torch
from attention_oracle import ORACLES, Call
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ropewalk.attention import paths, tiles

pytestmark = pytest.mark.usefixtures("poisoned")

names = pytest.mark.parametrize("name", ORACLES)


@pytest.fixture
def tiny(monkeypatch):
    """Tiles of four tokens, for the shortest sequence."""
    monkeypatch.setattr(tiles, "TILE", 4)
    monkeypatch.setattr(tiles, "BIAS_TILE", 4)
    monkeypatch.setattr(tiles, "SQUARE", {torch.float64: 2, torch.float32: 2})
    monkeypatch.setattr(paths, "SHORT", 0)


def segments_of(tokens: int) -> list[torch.Tensor | None]:
    packed = torch.arange(tokens) // 5
    padded = torch.where(torch.arange(tokens) < 5, -1, 0)
    mixed = torch.tensor([2, -1, 0, 2, 1] * tokens)[:tokens]
    return [None, packed, padded, mixed, torch.stack((packed, padded))]


# Tiles.


@names
@pytest.mark.parametrize("causal", [True, False])
def test_tiles_give_values_and_gradients(name, causal, tiny):
    for q_tokens, kv_tokens in ((13, 13), (5, 14), (1, 9), (16, 16), (8, 11)):
        for window in (None, 1, 3, 6):
            call = Call(name, q_tokens=q_tokens, kv_tokens=kv_tokens, causal=causal, window=window)
            call.check(gradients=True)


@names
@pytest.mark.parametrize("causal", [True, False])
def test_tiles_know_segments(name, causal, tiny):
    for segments in segments_of(13):
        for q_tokens in (13, 6):
            call = Call(name, q_tokens=q_tokens, kv_tokens=13, causal=causal, segments=segments)
            call.check(gradients=True)
            call.spread = True
            call.check()


@names
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_tiles_for_any_shape_and_rule(name, tiny, data):
    group, kv_heads = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    kv_tokens = data.draw(st.integers(1, 14))
    causal = data.draw(st.booleans())
    q_tokens = data.draw(st.integers(1, kv_tokens if causal else 14))
    rows = data.draw(st.integers(1, 3))
    segments = None
    if q_tokens <= kv_tokens and data.draw(st.booleans()):
        shape = data.draw(st.sampled_from([(kv_tokens,), (rows, kv_tokens), (1, kv_tokens)]))
        count = math.prod(shape)
        owners = data.draw(st.lists(st.integers(-1, 2), min_size=count, max_size=count))
        segments = torch.tensor(owners, dtype=torch.int64).reshape(shape)
    Call(
        name,
        rows=rows,
        heads=group * kv_heads,
        kv_heads=kv_heads,
        q_tokens=q_tokens,
        kv_tokens=kv_tokens,
        causal=causal,
        window=data.draw(st.none() | st.integers(1, 9)),
        segments=segments,
        spread=data.draw(st.booleans()),
        path=data.draw(st.sampled_from(["auto", "blockwise"])),
    ).check(gradients=data.draw(st.booleans()))


@names
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiles_in_other_dtypes(name, dtype, tiny):
    for window in (None, 3):
        call = Call(name, q_tokens=13, kv_tokens=15, window=window, dtype=dtype)
        call.check()
