"""Every path of attend against the dense float64 attention, and which path is chosen."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import subprocess
import sys
from pathlib import Path as File
from typing import Any

import pytest
import torch
from attention_oracle import HEAD_DIM, ORACLES, Call, calls, random
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

import ropewalk
from ropewalk import Bias, attend
from ropewalk.attention import Path, flex, mask, path, paths, score_mod, tiles
from ropewalk.attention.tiling import tiles_of
from ropewalk.encodings.bias import ALiBi
from ropewalk.encodings.rotary import RoPE

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
    call = data.draw(calls(name, 1, 14, 9, ["auto", "blockwise"]))
    call.check(gradients=data.draw(st.booleans()))


@names
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiles_in_other_dtypes(name, dtype, tiny):
    for window in (None, 3):
        call = Call(name, q_tokens=13, kv_tokens=15, window=window, dtype=dtype)
        call.check()


# Precision.


def far_apart(tokens: int, queries: int, dtype: torch.dtype, start: int = 0) -> float:
    """The largest error of ALiBi at far positions, against float64 rows."""
    shapes = ((8, queries), (1, tokens), (1, tokens))
    q, k, v = (random(1, *shape, 16, seed=s, dtype=dtype) for s, shape in enumerate(shapes))
    places = torch.arange(tokens) + start
    with torch.no_grad():
        found = attend(
            q, k, v, ALiBi(8), q_positions=places[-queries:], kv_positions=places, path="factored"
        )
    rows = torch.tensor([0, queries // 2, queries - 1])
    apart = (places[-queries:][rows][:, None] - places).double()
    slopes = torch.tensor([2.0 ** -(h + 1) for h in range(8)], dtype=torch.float64)
    logits = q.double()[:, :, rows] @ k.double().mT / 4 - slopes[:, None, None] * apart
    weights = logits.masked_fill(apart < 0, -math.inf).softmax(-1)
    return (found[:, :, rows].double() - weights @ v.double()).abs().max().item()


@pytest.mark.parametrize(
    ("tokens", "queries", "start"),
    [(3000, 3000, 0), (3000, 7, 0), (1 << 20, 3, 2**50)],
)
def test_alibi_stays_precise_at_any_length_in_any_dtype(tokens, queries, start):
    """bfloat16 rounds values to 2^-9 of them, and the largest of them here is 5."""
    assert far_apart(tokens, queries, torch.float32, start) < 2e-5
    assert far_apart(tokens, queries, torch.bfloat16, start) < 0.02
    if tokens < 4000:
        assert far_apart(tokens, queries, torch.float64, start) < 1e-11
        assert far_apart(tokens, queries, torch.float16, start) < 3e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_parts_add_up_to_the_bias(dtype):
    """The channels of a head of slope 0.7 at 4,000 tokens, as a kernel adds their products."""
    from ropewalk.attention.channels import widened
    from ropewalk.core import Factors

    slope = torch.full((1, 1, 1, 1), 0.7071067811865476, dtype=torch.float64)
    places = torch.arange(-4000.0, 1.0, dtype=torch.float64)[None, None, :, None]
    q, k = torch.zeros(1, 1, 1, 96, dtype=dtype), torch.zeros(1, 1, 4001, 96, dtype=dtype)
    scale = 96**-0.5
    wide, keys = widened(q, k, Factors(slope, places), scale, 96)
    assert wide.shape[-1] == keys.shape[-1] == 104
    logits = (wide.double() @ keys.double().mT)[0, 0, 0] * scale
    expected = slope.item() * places.flatten()
    assert (logits - expected).abs().max() < 4000 * 2.0**-23


def factoring() -> dict[str, Bias]:
    made = {
        f"{name}, {title}".removesuffix(", "): ropewalk.make(name, **spec.config, **changes)
        for name, spec in ropewalk.encodings().items()
        if spec.family == "bias"
        for title, changes in {"": {}, "centred": {"centred": True}}.items()
        if title in ("", *spec.variants)
    }
    return {
        name: bias
        for name, bias in made.items()
        if isinstance(bias, Bias) and type(bias).factors is not Bias.factors
    }


@pytest.mark.parametrize("name", factoring())
@pytest.mark.parametrize("after", [False, True])
def test_factors_are_the_bias(name, after):
    """For every encoding of the catalogue that gives some, at any place."""
    encoding = factoring()[name]
    for start in (0, -1000, 2**40):
        near, far = torch.arange(start, start + 9), torch.arange(start + 8, start + 40, 3)
        q, k = (near, far) if after else (far, near)
        q, k = torch.stack((q, q)), torch.stack((k, k))
        factors = encoding.factors(q, k, after=after)
        assert factors is not None
        found = factors.q @ factors.k.mT
        found = found if factors.row is None else found + factors.row[..., None]
        expected = encoding.bias(q, k, torch.float64)
        assert (found - expected).abs().max() <= 1e-12 * expected.abs().max().clamp_min(1.0)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sandwich_becomes_channels(centred, dtype):
    """Where head_dim allows: keys on both sides, grouped heads, gradients."""
    encoding = ropewalk.make("sandwich", heads=4, dim=32, centred=centred)
    shapes = ((4, 300, 16), (2, 300, 16), (2, 300, 16))
    q, k, v = (random(2, *s, seed=i, dtype=dtype) for i, s in enumerate(shapes))
    tolerance = 1e-11 if dtype == torch.float64 else 2e-5
    for causal in (True, False):
        results: list[tuple[torch.Tensor, ...]] = []
        for way in ("factored", "blockwise"):
            leaves = [x.clone().requires_grad_() for x in (q, k, v)]
            y = attend(leaves[0], leaves[1], leaves[2], encoding, causal=causal, path=way)
            results.append((y, *torch.autograd.grad(y.square().sum(), leaves)))
        for found, expected in zip(*results, strict=True):
            size = expected.abs().max().item()
            assert torch.allclose(found, expected, rtol=0, atol=tolerance * size)


@pytest.mark.parametrize("name", factoring())
@pytest.mark.parametrize("causal", [False, True])
def test_channels_give_what_the_bias_gives(name, causal):
    """On both sides of the queries, for every encoding of the catalogue that factors."""
    encoding = factoring()[name]
    results = []
    for way in ("factored", "blockwise"):
        q, k, v = (random(1, 8, 20, 4, seed=s).requires_grad_() for s in range(3))
        y = attend(q, k, v, encoding, causal=causal, path=way)
        results.append((y, *torch.autograd.grad(y.square().sum(), (q, k, v))))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


def test_sandwich_and_alibi_factor():
    assert {"alibi", "sandwich"} <= set(factoring())


def test_second_derivatives_go_by_plain_operations():
    q, k, v = (random(1, 2, 300, 4, seed=s).requires_grad_() for s in range(3))
    with sdpa_kernel(SDPBackend.MATH):
        y = attend(q, k, v, ALiBi(2), window=9)
        (first,) = torch.autograd.grad(y.square().sum(), q, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), k)
    assert torch.isfinite(second).all()
    assert (second != 0).any()


# Which path.

Q, K = torch.randn(1, 8, 300, 16), torch.randn(1, 2, 300, 16)
LEARNED = ORACLES["fading"].make(8)


@pytest.mark.parametrize(
    ("encoding", "rules", "name", "why"),
    [
        (None, {}, "fused", "no position; one fused kernel"),
        (RoPE(16), {}, "fused", "RoPE turns q and k"),
        (RoPE(16), {"causal": False}, "fused", "RoPE turns"),
        (RoPE(16), {"window": 5}, "blockwise", "knows no window"),
        (RoPE(16), {"segments": torch.zeros(300).long()}, "blockwise", "knows no segments"),
        (ALiBi(8), {}, "factored", "ALiBi factors into channels"),
        (ALiBi(8), {"window": 5}, "factored", "ALiBi factors"),
        (ropewalk.make("sandwich", heads=8), {}, "blockwise", "128 channels cost more than its"),
        (LEARNED, {}, "blockwise", "Fading gives no factors; the bias exists a block"),
        (ORACLES["forgetting"].make(8), {}, "blockwise", "Forgetting reads q and k"),
    ],
)
def test_the_fastest_path_is_chosen_and_says_why(encoding, rules, name, why):
    found = path(Q, K, encoding, **rules)
    assert isinstance(found, Path)
    assert found.name == name
    assert why in found.why


def test_short_and_decoding_calls():
    assert "so short" in path(Q[:, :, :9], K[:, :, :9], ALiBi(8)).why
    assert path(Q[:, :, :1], K, RoPE(16)).name == "fused"
    chunk = path(Q[:, :, :7], K, RoPE(16))
    assert chunk.name == "blockwise"
    assert "as many q as k, not 7 and 300" in chunk.why


def test_a_path_can_be_asked_for_and_gives_the_same():
    encoding = ALiBi(8)
    plain = attend(Q.double(), K.double(), K.double(), encoding, path="blockwise")
    found = attend(Q.double(), K.double(), K.double(), encoding, path="factored")
    assert torch.allclose(found, plain, rtol=0, atol=1e-11)
    turned = attend(Q.double(), K.double(), K.double(), RoPE(16), path="fused")
    blocks = attend(Q.double(), K.double(), K.double(), RoPE(16), path="blockwise")
    assert torch.allclose(turned, blocks, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("encoding", "given", "message"),
    [
        (ALiBi(8), {"path": "fast"}, "path='fast'; use one of 'auto', 'fused', 'factored'"),
        (ALiBi(8), {"path": "fused"}, "ALiBi adds to the logits; path='auto' takes 'factored'"),
        (RoPE(16), {"path": "fused", "window": 3}, "the fused kernel knows no window"),
        (RoPE(16), {"path": "factored"}, "only a bias becomes channels"),
        (LEARNED, {"path": "factored"}, "Fading gives no factors"),
        (LEARNED, {"path": "flex"}, "Fading gives no score(head, q_position, kv_position)"),
        (ORACLES["forgetting"].make(8), {"path": "flex"}, "reads whole rows of content"),
        (ORACLES["forgetting"].make(8), {"path": "fused"}, "Forgetting reads q and k"),
        (ALiBi(8), {"path": "factored", "scale": 0.0}, "scale=0 would multiply the channels"),
    ],
)
def test_a_path_that_cannot_do_it_says_why(encoding, given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        attend(Q, K, K, encoding, **given)


def test_flex_on_a_cpu_has_no_gradient():
    with pytest.raises(ValueError, match="FlexAttention has no gradient on a CPU"):
        attend(Q.clone().requires_grad_(), K, K, ALiBi(8), path="flex")


# One fused call with channels: traced graphs and other devices.


def test_channels_in_one_call(monkeypatch):
    monkeypatch.setattr(tiles, "usable", lambda *tensors: False)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        call = Call("alibi", q_tokens=9, kv_tokens=9, dtype=dtype, path="factored")
        call.check(gradients=dtype == torch.float64)
        call = Call("alibi", q_tokens=1, kv_tokens=9, spread=True, dtype=dtype, path="factored")
        queries, keys = call.places()
        assert keys is not None
        q, k, v = call.inputs()
        with pytest.raises(ValueError, match="positions are not known to put each key before"):
            attend(q, k, v, ALiBi(4), q_positions=queries, kv_positions=keys, path="factored")
    q, k, v = Call("alibi").inputs()
    refused: list[dict[str, Any]] = [
        {"window": 3},
        {"causal": False},
        {"segments": torch.zeros(7).long()},
    ]
    for rules in refused:
        with pytest.raises(ValueError, match="in one fused call, channels"):
            attend(q, k, v, ALiBi(4), path="factored", **rules)


@pytest.mark.parametrize(
    ("name", "way"), [("rope", "fused"), ("alibi", "factored"), ("alibi", "blockwise")]
)
def test_each_path_compiles(name, way):
    encoding = ORACLES[name].make(4)

    def call(q, k, v):
        return attend(q, k, v, encoding, path=way)

    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
    for tokens in (12, 40):
        leaves = [random(2, 4, tokens, HEAD_DIM, seed=s).requires_grad_() for s in range(3)]
        found, expected = compiled(*leaves), call(*leaves)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        for a, b in zip(
            *(torch.autograd.grad(y.square().sum(), leaves) for y in (found, expected)), strict=True
        ):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


# For attention of one's own.


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", ["none", "rope", "alibi", "fading"])
@pytest.mark.parametrize("q_tokens", [9, 4])
def test_score_mod_and_mask_serve_flex_attention(name, q_tokens):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    for segments in (
        None,
        torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1], [2, 2, 3, 3, 3, 3, 4, 4, 4]]),
    ):
        for window in (None, 3):
            call = Call(name, q_tokens=q_tokens, kv_tokens=9, window=window, segments=segments)
            encoding = ORACLES[name].make(call.heads)
            q, k, v = call.inputs()
            expected = call.attend(encoding, q, k, v)
            if isinstance(encoding, ropewalk.Rotary):
                q, k = encoding.encode_q(q, offset=9 - q_tokens), encoding.encode_k(k)
            rules = mask(window=window, segments=segments, offset=9 - q_tokens)
            seen = create_block_mask(
                rules, None if segments is None else 2, None, q_tokens, 9, device="cpu"
            )
            scored = score_mod(encoding, offset=9 - q_tokens)
            found = flex_attention(q, k, v, score_mod=scored, block_mask=seen, enable_gqa=True)
            assert isinstance(found, torch.Tensor)
            assert torch.allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_score_mod_takes_positions_by_row():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    call = Call("alibi", spread=True, kv_tokens=9)
    q, k, v = call.inputs()
    queries, keys = call.places()
    seen = create_block_mask(mask(offset=2), None, None, 7, 9, device="cpu")
    scored = score_mod(ALiBi(4), q_positions=queries, kv_positions=keys)
    found = flex_attention(q, k, v, score_mod=scored, block_mask=seen, enable_gqa=True)
    assert isinstance(found, torch.Tensor)
    assert torch.allclose(found, call.attend(ALiBi(4), q, k, v), rtol=0, atol=1e-5)


def test_score_mod_refuses_what_has_none():
    with pytest.raises(TypeError, match="acts on embeddings and not on scores"):
        score_mod(ropewalk.make("learned", dim=8))
    with pytest.raises(TypeError, match="reads whole rows of content"):
        score_mod(ORACLES["forgetting"].make(2))
    with pytest.raises(ValueError, match="window=0 must be at least 1"):
        mask(window=0)
    with pytest.raises(ValueError, match=r"use \[tokens\] or \[batch, tokens\]"):
        score_mod(ALiBi(2), q_positions=torch.zeros(1, 2, 3).long())


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_the_flex_path(monkeypatch):
    """Uncompiled here, which is the same function in plain operations."""
    monkeypatch.setattr(flex, "_compiled", lambda: flex.flex_attention)
    segments = torch.tensor([[0] * 4 + [1] * 5, [-1] * 2 + [0] * 7])
    kinds: list[dict[str, Any]] = [
        {},
        {"window": 3},
        {"causal": False},
        {"segments": segments},
        {"spread": True},
    ]
    for name in ("none", "rope", "alibi"):
        for rules in kinds:
            call = Call(name, q_tokens=7, kv_tokens=9, path="flex", dtype=torch.float32, **rules)
            call.check()


# Memory.


def test_memory_does_not_grow_with_the_square():
    """3,072 tokens, 8 heads: one tensor [heads, tokens, tokens] would be 288 MiB."""
    code = """
import re, torch
from pathlib import Path
from ropewalk import RoPE, attend
from ropewalk.encodings.bias import ALiBi
from attention_oracle import Fading

def status(key):
    text = Path("/proc/self/status").read_text()
    return int(re.search(key + r":\\s+(\\d+)", text).group(1)) / 1024

def run(tokens, encoding, rules):
    leaves = [torch.randn(1, 8, tokens, 8, requires_grad=True) for _ in range(3)]
    attend(*leaves, encoding, **rules).sum().backward()

packed = torch.arange(3072) // 700
for name, encoding, rules in (
    ("alibi", ALiBi(8), {}),
    ("alibi, both sides", ALiBi(8), {"causal": False}),
    ("alibi, window", ALiBi(8), {"window": 300}),
    ("alibi, packed", ALiBi(8), {"segments": packed}),
    ("rope, window", RoPE(8), {"window": 300}),
    ("rope, packed", RoPE(8), {"segments": packed}),
    ("a bias that learns", Fading(8), {}),
):
    run(300, encoding, {k: v if k != "segments" else v[:300] for k, v in rules.items()})
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    run(3072, encoding, rules)
    print(name, round(status("VmHWM") - before), flush=True)
"""
    if not File("/proc/self/clear_refs").exists():
        pytest.skip("peak memory is read from /proc, which Linux has")
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=File(__file__).parent,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(File(ropewalk.__file__).parent.parent),
        },
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert int(line.split()[-1]) < 200, done.stdout
    assert len(done.stdout.splitlines()) == 7


def test_a_window_reads_only_the_keys_inside_it():
    """Tiles, and blocks, cover T·window logits and not T²."""
    tokens, window = 100_000, 200
    call = paths.checked(
        torch.empty(1, 1, tokens, 8),
        torch.empty(1, 1, tokens, 8),
        torch.empty(1, 1, tokens, 8),
        None, None, None, True, None, None, window, False,
    )  # fmt: skip
    found = list(tiles_of(call.mask, 256))
    covered = sum((t.q1 - t.q0) * (t.k1 - t.k0) for t in found)
    assert covered <= 2 * 256 * tokens
    first, last = call.mask.reach(50_000, 50_256)
    assert (first, last) == (50_000 - window + 1, 50_256)


# The benchmark.


@pytest.mark.parametrize("window", [None, 100])
def test_the_benchmark_lets_nothing_wrong_through(window, monkeypatch):
    spec = importlib.util.spec_from_file_location(
        "bench_attend", File(__file__).parent.parent / "bench" / "attend.py"
    )
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    options = bench.parsed(["--tokens=300", "--heads=4", "--head-dim=8", "--rounds=1"])
    options.window = window
    assert {name: right for name, (_, right) in bench.gate(options).items()} == {
        "plain": True,
        "alibi": True,
        "rope": True,
    }
    assert bench.ratios(options, backward=True)["plain"] == 1
    monkeypatch.setattr(bench, "attend", lambda q, k, v, encoding, window: v)
    assert [n for n, (_, right) in bench.gate(options).items() if not right] == ["alibi", "rope"]
