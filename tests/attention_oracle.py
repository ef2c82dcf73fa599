"""A dense float64 attention written out, and calls of attend to compare with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from ropewalk import Bias, Contextual, attend
from ropewalk.encodings.bias import ALiBi
from ropewalk.encodings.rotary import AxialRoPE, RoPE, p_rope

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
    path: str = "auto"

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
            path=self.path,
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


@st.composite
def calls(draw: st.DrawFn, name: str, fewest: int, most: int, widest: int, ways: Sequence[str]):
    """Calls of any shape and rule: ``fewest`` to ``most`` tokens, windows up to ``widest``."""
    group, kv_heads = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    kv_tokens = draw(st.integers(fewest, most))
    causal = draw(st.booleans())
    q_tokens = draw(st.integers(fewest, kv_tokens if causal else most))
    rows = draw(st.integers(1, 3))
    segments = None
    if q_tokens <= kv_tokens and draw(st.booleans()):
        shape = draw(st.sampled_from([(kv_tokens,), (rows, kv_tokens), (1, kv_tokens)]))
        count = math.prod(shape)
        owners = draw(st.lists(st.integers(-1, 2), min_size=count, max_size=count))
        segments = torch.tensor(owners, dtype=torch.int64).reshape(shape)
    return Call(
        name,
        rows=rows,
        heads=group * kv_heads,
        kv_heads=kv_heads,
        q_tokens=q_tokens,
        kv_tokens=kv_tokens,
        causal=causal,
        window=draw(st.none() | st.integers(1, widest)),
        segments=segments,
        spread=draw(st.booleans()),
        path=draw(st.sampled_from(ways)),
    )
