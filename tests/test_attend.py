"""attend against a dense float64 attention written out here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import ropewalk
from ropewalk import Bias, Contextual, attend
from ropewalk.attention import blockwise
from ropewalk.encodings.bias import ALiBi
from ropewalk.encodings.rotary import AxialRoPE, RoPE, p_rope

pytestmark = pytest.mark.usefixtures("poisoned")

HEAD_DIM, VALUE_DIM = 8, 6


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


# Encodings with parameters, for gradients.


class Fading(Bias):
    """−exp(w_h)·ln(1 + |i − j|)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.slope = nn.Parameter(torch.linspace(-1, 1, heads, dtype=torch.float64))

    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        distance = (q_positions[..., :, None] - kv_positions[..., None, :]).abs().unsqueeze(-3)
        slopes = self.slope.to(dtype).exp()[:, None, None]
        return -slopes * torch.log1p(distance.to(dtype))

    def reference(self, head, q_position, k_position):
        raise NotImplementedError("the dense attention below has its own")


class Forgetting(Contextual):
    """c_i − c_j, c the running sum of log σ(w·k) over the keys that a query may see."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.gate = nn.Parameter(torch.linspace(-1, 1, HEAD_DIM, dtype=torch.float64))

    def bias(self, block):
        q, k, allowed = block.q, block.k, block.allowed
        assert q.dtype == k.dtype != torch.bfloat16, "q and k come in at least float32"
        assert q.shape[-3] == k.shape[-3], "and k is repeated to the heads of q"
        forget = nn.functional.logsigmoid(k @ self.gate.to(k.dtype))
        kept = forget[..., None, :].expand(*forget.shape[:-1], q.shape[-2], k.shape[-2])
        kept = kept if allowed is None else kept.masked_fill(~allowed, 0.0)
        return kept.flip(-1).cumsum(-1).flip(-1) - kept


# The oracle: every rule spelt out, nothing shared with the code under test.


def turned(x: Tensor, places: Tensor, freqs: list[list[float]], layout: str, distance: int):
    """x ``[B, H, T, D]`` rotated pair by pair; ``freqs[axis][pair]``, places ``[B, T, axes]``."""
    lanes = list(x.unbind(-1))
    for c in range(len(freqs[0])):
        angle = sum(places[..., a].double() * freqs[a][c] for a in range(len(freqs)))
        assert isinstance(angle, Tensor)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        a, b = (c, c + distance) if layout == "half" else (2 * c, 2 * c + 1)
        lanes[a], lanes[b] = lanes[a] * cos - lanes[b] * sin, lanes[a] * sin + lanes[b] * cos
    return torch.stack(lanes, dim=-1)


def sight(
    rows: int,
    q_tokens: int,
    kv_tokens: int,
    causal: bool,
    window: int | None,
    segments: Tensor | None,
) -> Tensor:
    """Which keys each query may see, by asking of every pair."""
    shift = kv_tokens - q_tokens

    def sees(owners: list[int] | None, t: int, j: int) -> bool:
        i = t + shift
        if causal and j > i:
            return False
        if window is not None and abs(i - j) >= window:
            return False
        return owners is None or (owners[i] == owners[j] and owners[i] >= 0)

    lines = []
    for b in range(rows):
        owners = None
        if segments is not None:
            owners = (segments if segments.dim() == 1 else segments[b % len(segments)]).tolist()
        lines.append([[sees(owners, t, j) for j in range(kv_tokens)] for t in range(q_tokens)])
    return torch.tensor(lines, dtype=torch.bool).reshape(rows, q_tokens, kv_tokens)


@dataclass
class Oracle:
    """An encoding and what it does, in plain float64."""

    make: Callable[[int], Any]
    turn: Callable[[Tensor, Tensor], Tensor] = lambda x, places: x
    bias: Callable[[Any, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor] | None = None
    axes: int = 1


def rows_of_places(places: Tensor, rows: int, axes: int) -> Tensor:
    """``[rows, tokens, axes]``."""
    places = places if axes > 1 else places[..., None]
    return places if places.dim() == 3 else places.expand(rows, *places.shape)


def rotary(freqs: list[list[float]], layout: str = "half", distance: int = HEAD_DIM // 2):
    return lambda x, places: turned(x, places, freqs, layout, distance)


def alibi_bias(encoding, q, k, q_places, k_places, allowed):
    heads = q.shape[1]
    apart = (q_places[:, :, None, 0] - k_places[:, None, :, 0]).abs().double()
    lower = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8 * (h + 1) / lower) for h in range(lower)]
    slopes += [2.0 ** (-8 * (h + 1) / (2 * lower)) for h in range(0, 2 * lower, 2)]
    return torch.stack([-slopes[h] * apart for h in range(heads)], dim=1)


def fading_bias(encoding, q, k, q_places, k_places, allowed):
    apart = (q_places[:, :, None, 0] - k_places[:, None, :, 0]).abs().double()
    return torch.stack([-w.exp() * (1 + apart).log() for w in encoding.slope], dim=1)


def forgetting_bias(encoding, q, k, q_places, k_places, allowed):
    """Σ of log σ(w·k_m) over m > j that the query sees, one key j at a time."""
    gates = torch.sigmoid((k * encoding.gate).sum(-1)).log()[:, :, None, :]
    seen = torch.where(allowed[:, None], gates, 0.0)
    columns = [seen[..., j + 1 :].sum(-1) for j in range(k.shape[2])]
    if not columns:
        return q.new_zeros(*q.shape[:3], 0)
    return torch.stack(columns, dim=-1)


GEOMETRIC = [10000.0 ** (-c / 4) for c in range(4)]
LADDER = [100.0 ** (-j / 2) for j in range(2)]

ORACLES = {
    "none": Oracle(lambda heads: None),
    "rope": Oracle(lambda heads: RoPE(HEAD_DIM), rotary([GEOMETRIC])),
    "interleaved": Oracle(
        lambda heads: RoPE(HEAD_DIM, layout="interleaved"), rotary([GEOMETRIC], "interleaved")
    ),
    "p_rope": Oracle(
        lambda heads: p_rope(HEAD_DIM, fraction=0.5), rotary([[*GEOMETRIC[:2], 0.0, 0.0]])
    ),
    "axial": Oracle(
        lambda heads: AxialRoPE(HEAD_DIM),
        rotary([[*LADDER, 0.0, 0.0], [0.0, 0.0, *LADDER]]),
        axes=2,
    ),
    "alibi": Oracle(ALiBi, bias=alibi_bias),
    "fading": Oracle(Fading, bias=fading_bias),
    "forgetting": Oracle(Forgetting, bias=forgetting_bias),
}


def dense(
    name: str,
    encoding: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_places: Tensor,
    k_places: Tensor,
    allowed: Tensor,
    scale: float | None = None,
    k_encoded: bool = False,
) -> Tensor:
    """Softmax attention in float64: exponentials, sums, and 0 for queries that see nothing."""
    oracle, group = ORACLES[name], q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double(), v.double()
    q = oracle.turn(q, q_places)
    k = k if k_encoded else oracle.turn(k, k_places)
    k = torch.stack([k[:, h // group] for h in range(q.shape[1])], dim=1)
    v = torch.stack([v[:, h // group] for h in range(q.shape[1])], dim=1)
    logits = torch.einsum("bhqd,bhkd->bhqk", q, k)
    logits = logits * (q.shape[-1] ** -0.5 if scale is None else scale)
    if oracle.bias is not None:
        logits = logits + oracle.bias(encoding, q, k, q_places, k_places, allowed)
    if k.shape[2] == 0:
        return q.new_zeros(*q.shape[:3], v.shape[-1])
    # a query that sees nothing has sum 0, and gives 0
    peak = logits.masked_fill(~allowed[:, None], -1e300).amax(-1, keepdim=True).detach()
    weights = torch.where(allowed[:, None], (logits - peak).clamp_max(0).exp(), 0.0)
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total == 0, 1.0, total)
    return torch.einsum("bhqk,bhkd->bhqd", weights, v)


@dataclass
class Call:
    """One call of attend, and its like in the oracle."""

    name: str
    rows: int = 2
    heads: int = 4
    kv_heads: int = 2
    q_tokens: int = 7
    kv_tokens: int = 7
    causal: bool = True
    window: int | None = None
    segments: Tensor | None = None
    scale: float | None = None
    spread: bool = False
    dtype: torch.dtype = torch.float64

    def inputs(self) -> list[Tensor]:
        return [
            random(self.rows, heads, tokens, dim, seed=seed, dtype=self.dtype)
            for seed, (heads, tokens, dim) in enumerate(
                (
                    (self.heads, self.q_tokens, HEAD_DIM),
                    (self.kv_heads, self.kv_tokens, HEAD_DIM),
                    (self.kv_heads, self.kv_tokens, VALUE_DIM),
                )
            )
        ]

    def places(self) -> tuple[Tensor | None, Tensor | None]:
        """Positions to pass, or None where the default serves."""
        if not self.spread and ORACLES[self.name].axes == 1 and self.q_tokens <= self.kv_tokens:
            return None, None
        keys = torch.arange(self.kv_tokens) * 3 - 5
        queries = torch.arange(self.q_tokens) * 2 + 1
        if self.spread:
            keys = keys + torch.arange(self.rows)[:, None]
        if ORACLES[self.name].axes == 2:
            keys, queries = (torch.stack((p, p // 2), dim=-1) for p in (keys, queries))
        return queries, keys

    def allowed(self) -> Tensor:
        return sight(
            self.rows, self.q_tokens, self.kv_tokens, self.causal, self.window, self.segments
        )

    def attend(self, encoding: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries, keys = self.places()
        return attend(
            q,
            k,
            v,
            encoding,
            q_positions=queries,
            kv_positions=keys,
            causal=self.causal,
            window=self.window,
            segments=self.segments,
            scale=self.scale,
        )

    def dense(self, encoding: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries, keys = self.places()
        if keys is None:
            keys = torch.arange(self.kv_tokens)
        if queries is None:
            queries = torch.arange(self.kv_tokens - self.q_tokens, self.kv_tokens)
        axes = ORACLES[self.name].axes
        return dense(
            self.name,
            encoding,
            q,
            k,
            v,
            rows_of_places(queries, self.rows, axes),
            rows_of_places(keys, self.rows, axes),
            self.allowed(),
            self.scale,
        )

    def check(self, gradients: bool = False) -> None:
        encoding = ORACLES[self.name].make(self.heads)
        leaves = [x.requires_grad_(gradients) for x in self.inputs()]
        found, expected = self.attend(encoding, *leaves), self.dense(encoding, *leaves)
        assert found.dtype == self.dtype
        assert found.shape == expected.shape
        size = max(1.0, leaves[2].abs().amax().item() if leaves[2].numel() else 1.0)
        # with a bias bfloat16 rounds the result (2^-8 of it); else turned q and k and weights too
        half = 2.0**-8 if ORACLES[self.name].bias else 0.03
        tolerance = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: half}[self.dtype]
        error = (found.double() - expected).abs()
        assert (error <= tolerance * size).all(), (self, error.max())
        if not gradients or not expected.requires_grad:  # without keys nothing has a gradient
            return
        parameters = list(encoding.parameters()) if isinstance(encoding, nn.Module) else []
        cotangent = random(*found.shape, seed=9)
        mine, theirs = (
            torch.autograd.grad(y, [*leaves, *parameters], cotangent, allow_unused=True)
            for y in (found, expected)
        )
        for a, b, leaf in zip(mine, theirs, [*leaves, *parameters], strict=True):
            if b is None or not b.numel():
                continue
            a = torch.zeros_like(b) if a is None else a
            assert torch.isfinite(a).all()
            assert (a - b).abs().max() <= 1e-11 * max(1.0, b.abs().max().item()), leaf.shape


names = pytest.mark.parametrize("name", ORACLES)


def two_segments(tokens: int, first: int) -> Tensor:
    return (torch.arange(tokens) >= first).long()


# Values.


@names
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_values(name, causal, dtype):
    Call(name, causal=causal, dtype=dtype).check()


@names
@pytest.mark.parametrize(
    ("q_tokens", "kv_tokens"),
    [(1, 9), (3, 9), (0, 4), (0, 0), (1, 1), (1, 0), (3, 0), (5, 3), (1, 300), (300, 3)],
)
def test_more_and_fewer_queries_than_keys(name, q_tokens, kv_tokens):
    for causal in (True, False) if q_tokens <= kv_tokens else (False,):
        Call(name, q_tokens=q_tokens, kv_tokens=kv_tokens, causal=causal).check()


@names
@pytest.mark.parametrize("heads", [(4, 4), (4, 1), (6, 2), (1, 1), (6, 6)])
def test_grouped_heads(name, heads):
    Call(name, heads=heads[0], kv_heads=heads[1]).check(gradients=True)


@names
@pytest.mark.parametrize("window", [1, 3, 7, 100])
def test_window(name, window):
    Call(name, window=window, q_tokens=5, kv_tokens=9).check()
    Call(name, window=window, causal=False).check()


@names
def test_positions_of_their_own(name):
    Call(name, spread=True, q_tokens=4, kv_tokens=6).check(gradients=True)


@names
def test_scale(name):
    Call(name, scale=0.7).check()


@names
def test_more_queries_than_a_block(name):
    tokens = blockwise.QUERY_BLOCK + 21
    Call(name, rows=1, q_tokens=tokens, kv_tokens=tokens + 4, dtype=torch.float32).check()


@names
@settings(max_examples=12)
@given(data=st.data())
def test_any_shape_and_rule(name, data):
    group, kv_heads = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    kv_tokens = data.draw(st.integers(0, 12))
    causal = data.draw(st.booleans())
    q_tokens = data.draw(st.integers(0, kv_tokens if causal else 12))
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
        window=data.draw(st.none() | st.integers(1, 6)),
        segments=segments,
        spread=data.draw(st.booleans()),
    ).check(gradients=data.draw(st.booleans()))


# Gradients.


@names
@pytest.mark.parametrize("causal", [True, False])
def test_gradients(name, causal):
    Call(name, causal=causal, q_tokens=5, kv_tokens=7).check(gradients=True)


@names
def test_gradients_through_recomputed_blocks(name, monkeypatch):
    monkeypatch.setattr(blockwise, "QUERY_BLOCK", 4)
    Call(name, q_tokens=11, kv_tokens=13, window=5).check(gradients=True)
    Call(name, q_tokens=11, kv_tokens=11, segments=two_segments(11, 6)).check(gradients=True)


def test_gradients_of_a_long_sequence():
    tokens = blockwise.QUERY_BLOCK + 3
    call = Call("fading", rows=1, heads=2, kv_heads=1, q_tokens=tokens, kv_tokens=tokens)
    call.check(gradients=True)


def test_blocks_are_recomputed_and_not_kept():
    """What autograd keeps of a long bias is far less than the logits."""
    tokens, kept = 4 * blockwise.QUERY_BLOCK, 0

    def count(x: Tensor) -> Tensor:
        nonlocal kept
        kept = max(kept, x.numel())
        return x

    q, k, v = (random(1, 2, tokens, 8, seed=s, dtype=torch.float32) for s in range(3))
    with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
        attend(q.requires_grad_(), k, v, ALiBi(2))
    assert 0 < kept < tokens * tokens / 4


# A cache of keys.


@names
def test_decoding_equals_the_full_pass(name):
    call = Call(name, q_tokens=9, kv_tokens=9, spread=ORACLES[name].axes == 2)
    encoding = ORACLES[name].make(call.heads)
    q, k, v = call.inputs()
    rotates = isinstance(encoding, ropewalk.Rotary)
    places = torch.arange(9)
    if ORACLES[name].axes == 2:
        places = torch.stack((places // 3, places % 3), dim=-1)
    full = attend(q, k, v, encoding, q_positions=places, kv_positions=places)
    cache = encoding.encode_k(k, places) if rotates else k
    for start, stop in ((0, 4), (4, 5), (5, 6), (6, 9)):
        step = attend(
            q[:, :, start:stop],
            cache[:, :, :stop],
            v[:, :, :stop],
            encoding,
            q_positions=places[start:stop],
            kv_positions=places[:stop],
            k_encoded=rotates,
        )
        assert (step - full[:, :, start:stop]).abs().max() < 1e-12
        if ORACLES[name].axes == 1:
            default = attend(
                q[:, :, start:stop],
                cache[:, :, :stop],
                v[:, :, :stop],
                encoding,
                k_encoded=rotates,
            )
            assert torch.equal(default, step)


# Packed and padded batches.


@names
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("causal", [True, False])
def test_packed_equals_separate_passes(name, window, causal):
    lengths = [5, 1, 0, 6]
    ends = [0, 5, 6, 6, 12]
    axes = ORACLES[name].axes
    encoding = ORACLES[name].make(4)
    call = Call(name, q_tokens=12, kv_tokens=12)
    q, k, v = call.inputs()
    places, owners = ropewalk.positions.packed(ends), ropewalk.positions.segments(ends)
    if axes == 2:
        places = torch.stack((places, places + 1), dim=-1)
    common: dict[str, Any] = {"causal": causal, "window": window}
    together = attend(
        q, k, v, encoding, q_positions=places, kv_positions=places, segments=owners, **common
    )
    for start, length in zip(ends, lengths, strict=False):
        part = slice(start, start + length)
        alone = attend(
            q[:, :, part],
            k[:, :, part],
            v[:, :, part],
            encoding,
            q_positions=places[part],
            kv_positions=places[part],
            **common,
        )
        assert torch.allclose(together[:, :, part], alone, rtol=0, atol=1e-12)


@names
@pytest.mark.parametrize("causal", [True, False])
def test_left_padded_equals_separate_passes(name, causal):
    lengths, tokens = [5, 4, 0, 1], 5
    mask = torch.tensor([[t >= tokens - n for t in range(tokens)] for n in lengths])
    places = ropewalk.positions.left_padded(mask)
    if ORACLES[name].axes == 2:
        places = torch.stack((places, places * 2), dim=-1)
    call = Call(name, rows=4, q_tokens=tokens, kv_tokens=tokens)
    encoding = ORACLES[name].make(4)
    q, k, v = (x.requires_grad_() for x in call.inputs())
    together = attend(
        q,
        k,
        v,
        encoding,
        q_positions=places,
        kv_positions=places,
        segments=ropewalk.positions.mask_segments(mask),
        causal=causal,
    )
    for row, length in enumerate(lengths):
        real = slice(tokens - length, tokens)
        alone = attend(
            q[row : row + 1, :, real],
            k[row : row + 1, :, real],
            v[row : row + 1, :, real],
            encoding,
            q_positions=places[row, real],
            kv_positions=places[row, real],
            causal=causal,
        )
        assert torch.allclose(together[row : row + 1, :, real], alone, rtol=0, atol=1e-12)
        assert (together[row, :, : tokens - length] == 0).all(), "padding gives 0"
    for gradient in torch.autograd.grad(together, (q, k, v), random(*together.shape, seed=5)):
        assert torch.isfinite(gradient).all()
        assert (gradient[2] == 0).all(), "a row of padding is not read"


@names
def test_a_query_that_sees_nothing_gives_zero(name):
    owners = torch.tensor([-1, -1, 0, 0, -1, 0, -1])
    call = Call(name, segments=owners)
    call.check(gradients=True)
    encoding = ORACLES[name].make(call.heads)
    q, k, v = (x.requires_grad_() for x in call.inputs())
    y = call.attend(encoding, q, k, v)
    assert (y[:, :, owners < 0] == 0).all()
    assert (y[:, :, owners >= 0] != 0).all()
    gradients = torch.autograd.grad(y, (q, k, v), random(*y.shape, seed=4))
    for gradient in gradients:
        assert torch.isfinite(gradient).all()
        assert (gradient[:, :, owners < 0] == 0).all()


@names
def test_no_kernel_is_asked_about_a_row_without_keys(name, monkeypatch):
    """The plain softmax of such a row is NaN, and so are its gradients, on some kernels."""

    def plain(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
        group = q.shape[-3] // k.shape[-3]
        k, v = (x.repeat_interleave(group, dim=-3) for x in (k, v))
        logits = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            logits = logits.masked_fill(~attn_mask, -math.inf)
        elif attn_mask is not None:
            logits = logits + attn_mask
        return logits.softmax(-1) @ v

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", plain)
    Call(name, segments=torch.tensor([-1, -1, 0, 0, -1, 0, -1])).check(gradients=True)


def test_segments_of_every_row():
    owners = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [-1, 3, 3, 3, 2, 2, 3]])
    for name in ORACLES:
        Call(name, segments=owners, causal=False).check(gradients=True)
        Call(name, segments=owners, q_tokens=3).check()


# Dtypes and shapes.


@names
def test_autocast_does_not_round_the_bias_and_keeps_the_dtype(name):
    call = Call(name, q_tokens=300, kv_tokens=300, rows=1, dtype=torch.float32)
    encoding = ORACLES[name].make(call.heads)
    q, k, v = call.inputs()
    plain = call.attend(encoding, q, k, v)
    with torch.autocast("cpu", torch.bfloat16):
        cast = call.attend(encoding, q, k, v)
    assert cast.dtype == torch.float32
    if ORACLES[name].bias is not None:
        assert torch.equal(cast, plain)
    else:
        assert (cast - plain).abs().max() < 0.03


def test_bfloat16_keeps_distances_apart():
    """In bfloat16 −m·8192 and −m·8191 are one number; their weights must still differ."""
    q, k = (torch.zeros(1, 4, tokens, 8, dtype=torch.bfloat16) for tokens in (1, 2))
    v = torch.tensor([1.0, 0.0], dtype=torch.bfloat16)[:, None].expand(1, 4, 2, 1)
    for context in (torch.no_grad(), torch.enable_grad()):
        with context:
            found = attend(q, k, v, ALiBi(4), q_positions=torch.tensor([8192]))
        for head, slope in enumerate((2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8)):
            expected = 1 / (1 + math.exp(slope))
            assert found[0, head, 0, 0].item() == pytest.approx(expected, abs=2e-3)


@names
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_without_gradients_the_values_are_the_same(name, dtype, monkeypatch):
    """Other kernels serve inference: blocks that are not recomputed, fused ones with a mask."""
    monkeypatch.setattr(blockwise, "QUERY_BLOCK", 3)
    owners = torch.tensor([[-1, -1, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, -1, 2, 2, -1]])
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            for segments in (None, owners):
                Call(name, q_tokens=8, kv_tokens=8, segments=segments, dtype=dtype).check()
                Call(name, q_tokens=4, kv_tokens=8, segments=segments, dtype=dtype).check()
                Call(name, q_tokens=8, kv_tokens=8, window=2, causal=False, dtype=dtype).check()


def test_leading_dimensions():
    q, k, v = random(2, 3, 4, 5, 8), random(2, 3, 2, 5, 8, seed=1), random(2, 3, 2, 5, 6, seed=2)
    for name in ("none", "rope", "alibi", "fading", "forgetting"):
        encoding = ORACLES[name].make(4)
        deep = attend(q, k, v, encoding)
        flat = attend(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), encoding)
        assert torch.allclose(deep.flatten(0, 1), flat, rtol=0, atol=1e-12)
        single = attend(q[0, 0], k[0, 0], v[0, 0], encoding)
        assert torch.allclose(single, deep[0, 0], rtol=0, atol=1e-12)


@names
def test_strides_do_not_matter(name):
    call = Call(name, q_tokens=6, kv_tokens=6)
    encoding = ORACLES[name].make(call.heads)
    q, k, v = call.inputs()
    moved = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert torch.allclose(
        call.attend(encoding, *moved), call.attend(encoding, q, k, v), rtol=0, atol=1e-12
    )


@names
def test_inputs_are_left_alone(name):
    call = Call(name, segments=two_segments(7, 3))
    encoding = ORACLES[name].make(call.heads)
    inputs = call.inputs()
    kept = [x.clone() for x in inputs]
    call.attend(encoding, *inputs)
    for x, before in zip(inputs, kept, strict=True):
        assert torch.equal(x, before)


def test_no_encoding_needs_no_positions():
    """So that a comparison can pass the same positions to every encoding, of any axes."""
    q, k, v = random(1, 2, 6, 8), random(1, 2, 6, 8, seed=1), random(1, 2, 6, 8, seed=2)
    grid = ropewalk.positions.grid(2, 3)
    plain = attend(q, k, v)
    assert torch.equal(attend(q, k, v, None, q_positions=grid, kv_positions=grid), plain)


# What is refused.

Q, K, V = random(2, 4, 5, 8), random(2, 2, 5, 8), random(2, 2, 5, 6)


def refused() -> list[tuple[str, Callable[[], Any]]]:
    loose: Any = attend
    rope, alibi = RoPE(8), ALiBi(4)
    sinusoidal = ropewalk.make("sinusoidal", dim=8)
    long = torch.arange(5)
    return [
        (
            "encoding Sinusoidal is additive: it acts on embeddings, before q, k and v exist; "
            "write x = encoding(x) there and attend(q, k, v) here",
            lambda: loose(Q, K, V, sinusoidal),
        ),
        (
            "encoding must be an Encoding or None, got str; ropewalk.make(name, …) builds one",
            lambda: loose(Q, K, V, "rope"),
        ),
        ("encoding has heads=8; q has 4 heads", lambda: loose(Q, K, V, ALiBi(8))),
        ("q must be a tensor [..., heads, tokens, head_dim]", lambda: loose(Q[0, 0], K, V)),
        ("v must be a tensor", lambda: loose(Q, K, [1.0])),
        ("q has dtype torch.int64; attention needs a floating", lambda: loose(Q.long(), K, V)),
        (
            "q, k and v have dtypes torch.float32, torch.float64, torch.float64; use one",
            lambda: loose(Q.float(), K, V),
        ),
        ("q has head_dim 7, k has 8", lambda: loose(Q[..., :7], K, V)),
        ("k and v need the same heads and tokens", lambda: loose(Q, K, V[:, :, :4])),
        ("all three the same leading dimensions", lambda: loose(Q[:1], K, V)),
        ("q has 3 heads, not a multiple of the 2 of k", lambda: loose(Q[:, :3], K, V)),
        ("window=0 must be at least 1: a token sees itself", lambda: loose(Q, K, V, window=0)),
        ("window=2.0 must be an int or None", lambda: loose(Q, K, V, window=2.0)),
        ("window=True must be an int or None", lambda: loose(Q, K, V, window=True)),
        (
            "causal attention aligns queries to the end of the keys: 5 queries do not fit 3 keys",
            lambda: loose(Q, K[:, :, :3], V[:, :, :3]),
        ),
        (
            "q has 5 tokens and k 3: pass q_positions",
            lambda: loose(Q, K[:, :, :3], V[:, :, :3], rope, causal=False),
        ),
        (
            "k_encoded=True needs a rotary encoding",
            lambda: loose(Q, K, V, alibi, k_encoded=True),
        ),
        ("k_encoded=True needs a rotary encoding", lambda: loose(Q, K, V, k_encoded=True)),
        (
            "kv_positions have dtype torch.float64; they must be integers",
            lambda: loose(Q, K, V, rope, kv_positions=long.double()),
        ),
        (
            "q_positions have shape (4,), that is 4 tokens; q has shape (2, 4, 5, 8) with 5",
            lambda: loose(Q, K, V, alibi, q_positions=long[:4]),
        ),
        (
            "kv_positions have shape (3, 5), whose batch dimensions do not fit k (2, 2, 5, 8)",
            lambda: loose(Q, K, V, alibi, kv_positions=long.expand(3, 5)),
        ),
        (
            "q_positions have shape (3, 5), whose batch dimensions do not fit q (2, 4, 5, 8)",
            lambda: loose(Q, K, V, rope, q_positions=long.expand(3, 5)),
        ),
        (
            "kv_positions=None is 0 … T−1 on one axis; this encoding has axes=2",
            lambda: loose(Q, K, V, AxialRoPE(8)),
        ),
        ("segments must be an integer tensor", lambda: loose(Q, K, V, segments=[0, 0, 0, 1, 1])),
        ("segments must be an integer", lambda: loose(Q, K, V, segments=long.double())),
        (
            "for a padding mask use ropewalk.positions.mask_segments(mask)",
            lambda: loose(Q, K, V, segments=long > 1),
        ),
        (
            "segments have shape (4,); k has 5 tokens: use [kv_tokens] or [batch, kv_tokens]",
            lambda: loose(Q, K, V, segments=long[:4]),
        ),
        (
            "segments (3, 5) do not fit k (2, 2, 5, 8)",
            lambda: loose(Q, K, V, segments=long.expand(3, 5)),
        ),
        (
            "segments belong to keys; queries beyond them have none",
            lambda: loose(Q, K[:, :, :3], V[:, :, :3], causal=False, segments=long[:3]),
        ),
    ]


@pytest.mark.parametrize(
    ("message", "call"), refused(), ids=lambda v: v[:40] if isinstance(v, str) else ""
)
def test_what_is_refused_is_named(message, call):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        call()


def test_additive_encodings_are_a_type_error():
    with pytest.raises(TypeError, match="is additive"):
        attend(Q, K, V, ropewalk.make("learned", dim=8))


def test_nan_at_padding_reaches_nobody():
    """An unset cache slot holds anything; 0 · nan is nan unless it is left out."""
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 6, 8, generator=draw) for _ in range(3))
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]])
    segments = ropewalk.positions.mask_segments(mask)
    clean = ropewalk.attend(q, k, v, ropewalk.RoPE(8), segments=segments)
    for x in (q, k, v):
        x[:, :, :2] = float("nan")
    inputs = tuple(x.requires_grad_() for x in (q, k, v))
    poisoned = ropewalk.attend(q, k, v, ropewalk.RoPE(8), segments=segments)
    assert torch.equal(poisoned, clean)
    for gradient in torch.autograd.grad(poisoned, inputs, torch.ones_like(poisoned)):
        assert torch.isfinite(gradient).all()


class Loses(RoPE):
    """Returns fewer tokens than it was given."""

    def encode_q(self, q, positions=None, *, offset=None):
        return super().encode_q(q, positions, offset=offset)[..., 1:, :]


class Masks(ALiBi):
    """Returns a mask where a number is asked for."""

    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        return super().bias(q_positions, kv_positions, dtype) < 0


def test_an_encoding_that_misbehaves_is_named():
    q = torch.zeros(1, 2, 5, 8)
    with pytest.raises(ValueError, match=r"Loses.encode_q gave \(1, 2, 4, 8\)"):
        attend(q, q, q, Loses(8))
    with pytest.raises(ValueError, match=r"Masks.bias gave torch.bool \(2, 5, 5\)"):
        attend(q, q, q, Masks(2))


@pytest.mark.parametrize("encoding", [None, RoPE(16), ALiBi(4)])
def test_attend_compiles_for_any_length(encoding):
    def call(q, k, v):
        return attend(q, k, v, encoding)

    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
    for tokens in (12, 17, 40):
        q, k, v = torch.randn(3, 2, 4, tokens, 16).unbind()
        torch.testing.assert_close(compiled(q, k, v), call(q, k, v))
        torch.testing.assert_close(compiled(q[:, :, -1:], k, v), call(q[:, :, -1:], k, v))


@pytest.mark.parametrize("tokens", [200, 300])
def test_function_transforms_reach_through_blocks(tokens):
    q, k, v = torch.randn(3, 1, 2, tokens, 8).unbind()

    def loss(x):
        return attend(x, k, v, ALiBi(2), window=7).square().sum()

    leaf = q.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(loss)(q), expected)
