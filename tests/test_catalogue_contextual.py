"""Contextual encodings against literal loops, decoding, packing and the numbers of their papers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import ropewalk
from ropewalk import Block, Contextual, Rotary, attend, checks
from ropewalk.encodings.contextual.rerope import ReRoPE
from ropewalk.spectra import geometric

HEADS, DIM, CONTENT = 4, 8, 12


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def sight(queries: int, keys: int, causal: bool = True) -> Tensor:
    allowed = torch.ones(queries, keys, dtype=torch.bool)
    return allowed.tril(keys - queries) if causal else allowed


def block(q: Tensor, k: Tensor, places: Tensor | None = None, **how: Any) -> Block:
    """All of q against all of k, under a causal mask unless ``allowed`` is given."""
    line = torch.arange(k.shape[-2]) if places is None else places
    first = k.shape[-2] - q.shape[-2]
    how = {"allowed": sight(q.shape[-2], k.shape[-2]), "causal": True, **how}
    return Block(q, k, line[first:], line, first=first, **how)


def make(name: str, **config: Any) -> Any:
    """An encoding, whose own attributes a type checker does not know."""
    return ropewalk.make(name, **config)


class Case(NamedTuple):
    name: str
    config: dict[str, Any]

    def make(self, kv_heads: int | None = None, dtype: torch.dtype = torch.float64) -> Any:
        torch.manual_seed(1)
        config = dict(self.config)
        if kv_heads is not None and self.name in ("path", "selective_rope"):
            config["kv_heads"] = kv_heads
        return make(self.name, **config).to(dtype)


READS = {"content_dim": CONTENT, "heads": HEADS}
CASES = (
    Case("cope", {"head_dim": DIM, "npos_max": 6, "std": 1.0}),
    Case("fox", READS),
    Case("dape", {"heads": HEADS}),
    Case("dape", {"heads": HEADS, "kernel": 3, "width": 5}),
    Case("path", {**READS, "head_dim": DIM}),
    Case("selective_rope", {**READS, "head_dim": DIM}),
    Case("rerope", {"head_dim": DIM, "window": 5}),
    Case("rerope", {"head_dim": DIM, "window": 5, "leak": 3.0, "log_length": 4}),
    Case("self_extend", {"head_dim": DIM, "group": 2, "window": 5}),
    Case("dual_chunk", {"head_dim": DIM, "chunk_size": 7, "local": 3}),
)
EVERY = pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.name}{len(c.config)}")


def bound(encoding: Any, x: Tensor, **how: Any) -> Any:
    return encoding if encoding.content_dim is None else encoding.read(x, **how)


def dense(encoding: Any, q: Tensor, k: Tensor, v: Tensor, x: Tensor, allowed: Tensor) -> Tensor:
    """Attention in one piece, from the logits of one block in float64."""
    k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], dim=-3) for t in (k, v))
    seen = bound(encoding, x)
    scale = 1 / math.sqrt(q.shape[-1])
    if isinstance(seen, Rotary):
        logits = seen.encode_q(q) @ seen.encode_k(k).transpose(-1, -2) * scale
    else:
        logits = seen.logits(block(q, k, allowed=allowed, scale=scale))
    return logits.masked_fill(~allowed, -math.inf).softmax(-1) @ v


def tokens(count: int, kv_heads: int = HEADS, seed: int = 0) -> tuple[Tensor, ...]:
    """q, k, v and hidden states of two rows."""
    q = random(2, HEADS, count, DIM, seed=seed)
    k, v = random(2, 2, kv_heads, count, DIM, seed=seed + 1)
    return q, k, v, random(2, count, CONTENT, seed=seed + 2)


# Attention with every one of them.


@EVERY
@pytest.mark.parametrize("kv_heads", [HEADS, 2])
def test_attention_by_blocks_is_attention_in_one_piece(case, kv_heads):
    q, k, v, x = tokens(290, kv_heads)
    encoding = case.make(kv_heads)
    found = attend(q, k, v, bound(encoding, x))
    torch.testing.assert_close(found, dense(encoding, q, k, v, x, sight(290, 290)))


@EVERY
def test_decoding_gives_the_last_row(case):
    q, k, v, x = tokens(150, 2)
    encoding = bound(case.make(2), x)
    full = attend(q, k, v, encoding)
    for last in (1, 3):
        torch.testing.assert_close(attend(q[..., -last:, :], k, v, encoding), full[..., -last:, :])


@EVERY
def test_low_precision_is_rounded_once(case):
    q, k, v, x = (t.to(torch.bfloat16) for t in tokens(40))
    encoding = case.make(dtype=torch.float32)
    found = attend(q, k, v, bound(encoding, x))
    exact = attend(q.float(), k.float(), v.float(), bound(encoding, x.float()))
    assert found.dtype == torch.bfloat16
    error = (found.float() - exact).abs().max()
    turned = case.name == "selective_rope"  # q and k are rounded after they have turned
    assert error <= exact.abs().max() * 2**-8 * (4 if turned else 1)


@EVERY
def test_gradients_reach_every_parameter(case):
    q, k, v, x = (t.requires_grad_() for t in tokens(290))
    encoding = case.make()
    leaves = [q, k, v, *encoding.parameters()]
    leaves += [x] if encoding.content_dim is not None else []
    found, expected = (
        torch.autograd.grad((y * random(*y.shape, seed=9)).sum(), leaves)
        for y in (
            attend(q, k, v, bound(encoding, x)),
            dense(encoding, q, k, v, x, sight(290, 290)),
        )
    )
    for a, b, leaf in zip(found, expected, leaves, strict=True):
        assert bool(a.abs().max() > 0), leaf.shape
        torch.testing.assert_close(a, b)


@EVERY
def test_what_comes_later_changes_nothing(case):
    q, k, v, x = tokens(30)
    encoding = case.make()
    before = attend(q, k, v, bound(encoding, x))
    for t in (q, k, v, x):
        t[..., 20:, :] += 5 * random(*t[..., 20:, :].shape, seed=11)
    after = attend(q, k, v, bound(encoding, x))
    torch.testing.assert_close(after[..., :20, :], before[..., :20, :], rtol=0, atol=1e-13)
    assert not torch.allclose(after[..., 20:, :], before[..., 20:, :])


@EVERY
def test_packed_texts_do_not_see_one_another(case):
    q, k, v, x = tokens(24)
    encoding = case.make()
    cuts = ((0, 9), (9, 24))
    segments = torch.tensor([0] * 9 + [1] * 15)
    places = torch.cat([torch.arange(b - a) for a, b in cuts])
    how = {"segments": segments} if case.name in ("path", "selective_rope") else {}
    found = attend(q, k, v, bound(encoding, x, **how), segments=segments, kv_positions=places)
    for a, b in cuts:
        q1, k1, v1, x1 = (t[..., a:b, :] for t in (q, k, v, x))
        torch.testing.assert_close(found[..., a:b, :], attend(q1, k1, v1, bound(encoding, x1)))


@EVERY
def test_both_directions(case):
    q, k, v, x = tokens(12)
    encoding = bound(case.make(), x)
    if case.name == "path":
        with pytest.raises(ValueError, match="use causal=True"):
            attend(q, k, v, encoding, causal=False)
        return
    expected = dense(case.make(), q, k, v, x, sight(12, 12, causal=False))
    torch.testing.assert_close(attend(q, k, v, encoding, causal=False), expected)


@EVERY
def test_what_reads_hidden_states_must_be_read(case):
    q, k, v, x = tokens(6)
    encoding = case.make()
    if encoding.content_dim is None:
        with pytest.raises(TypeError, match="reads q and k"):
            encoding.read(x)
        return
    with pytest.raises(ValueError, match=r"encoding\.read\(x\)"):
        attend(q, k, v, encoding)
    with pytest.raises(ValueError, match="hidden states"):
        encoding.read(x[..., :5])
    with pytest.raises(TypeError, match="real floating"):
        encoding.read(x.long())
    with pytest.raises(ValueError, match="read the hidden states of all"):
        attend(q, k, v, encoding.read(x[:, :4]))


# CoPE.


def literal_cope(q: Tensor, k: Tensor, table: Tensor, allowed: Tensor, scale: float) -> Tensor:
    """One pair at a time, from the paper's text and the scaling of its listing."""
    rows = []
    for i in range(q.shape[0]):
        gates = [
            torch.sigmoid(scale * q[i] @ k[j]) if allowed[i, j] else torch.zeros(())
            for j in range(k.shape[0])
        ]
        row = []
        for j in range(k.shape[0]):
            place = torch.stack([g.double() for g in gates[j:]]).sum()
            place = torch.clamp(place, max=len(table) - 1)
            low = math.floor(place.item())
            high = min(low + 1, len(table) - 1)
            vector = table[low] * (low + 1 - place) + table[high] * (place - low)
            row.append(q[i] @ vector)
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize("allowed", [sight(9, 9), sight(9, 9).triu(-3), sight(4, 9, causal=False)])
def test_cope_is_its_literal_loop(allowed):
    encoding = Case("cope", {"head_dim": DIM, "npos_max": 4, "std": 1.0}).make()
    q, k = random(len(allowed), DIM, seed=3), random(9, DIM, seed=4)
    q, k = q.requires_grad_(), k.requires_grad_()
    leaves = [q, k, encoding.weight]
    found = encoding.bias(block(q[None], k[None], allowed=allowed, scale=0.4))[0]
    expected = literal_cope(q, k, encoding.weight, allowed, 0.4)
    grads = []
    for y in (found, expected):
        y = y.masked_fill(~allowed, 0.0)
        grads.append(torch.autograd.grad((y * random(*y.shape, seed=5)).sum(), leaves))
    torch.testing.assert_close(found[allowed], expected[allowed])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_cope_starts_without_position():
    encoding = make("cope", head_dim=DIM)
    q, k, v, _ = tokens(20)
    torch.testing.assert_close(attend(q, k, v, encoding.double()), attend(q, k, v))


# FoX.


def test_fox_is_the_sum_of_log_gates_in_between():
    encoding = Case("fox", READS).make()
    q, k, _, x = tokens(11)
    found = encoding.read(x).bias(block(q, k, allowed=None, causal=False)).detach()
    weight, bias = (p.detach() for p in encoding.gate.parameters())
    for row in range(2):
        for h in range(HEADS):
            logs = [math.log(1 / (1 + math.exp(-(t @ weight[h] + bias[h]).item()))) for t in x[row]]
            for i in range(11):
                for j in range(11):
                    low, high = min(i, j), max(i, j)
                    expected = math.fsum(logs[low + 1 : high + 1])
                    assert found[row, h, i, j].item() == pytest.approx(expected, abs=1e-12)


def test_fox_keeps_digits_over_a_million_tokens():
    count = 1_000_000
    encoding = Case("fox", {"content_dim": 1, "heads": 1}).make(dtype=torch.float32)
    x = random(count, 1, dtype=torch.float32)
    q = torch.zeros(1, 3, 2)
    found = encoding.read(x).bias(block(q, torch.zeros(1, count, 2), allowed=None))[0, -1]
    z = x.double() * encoding.gate.weight.double() + encoding.gate.bias.double()
    logs = nn.functional.logsigmoid(z).squeeze(-1)
    for back in (1, 2, 100, 5000, 999_999):
        expected = math.fsum(logs[count - back :].tolist())
        assert found[count - 1 - back].item() == pytest.approx(expected, rel=1e-6)
    naive = logs.float().cumsum(0)
    assert abs((naive[-1] - naive[-2]).item() - logs[-1].item()) > 1e-3, "float32 sums would not do"


# DAPE.


def literal_dape(encoding: Any, scores: Tensor, base: Tensor, allowed: Tensor) -> Tensor:
    """B + f([S; B]) one pair of tokens at a time."""
    first, second = encoding.first, encoding.second
    reach = first.weight.shape[-1] // 2
    _, queries, keys = scores.shape
    x = torch.cat((scores, base))

    def layer(weight: Tensor, bias: Tensor, x: Tensor, i: int, j: int) -> Tensor:
        total = bias
        for tap in range(2 * reach + 1):
            near = j + tap - reach
            if 0 <= near < keys and (reach == 0 or bool(allowed[i, near])):
                total = total + weight[:, :, 0, tap] @ x[:, i, near]
        return total

    hidden = torch.stack(
        [
            torch.stack([layer(first.weight, first.bias, x, i, j) for j in range(keys)])
            for i in range(queries)
        ]
    )
    hidden = torch.where(hidden > 0, hidden, 0.01 * hidden).permute(2, 0, 1)
    added = torch.stack(
        [
            torch.stack([layer(second.weight, second.bias, hidden, i, j) for j in range(keys)])
            for i in range(queries)
        ]
    )
    return base + added.permute(2, 0, 1)


@pytest.mark.parametrize("kernel", [1, 3])
def test_dape_is_its_literal_loop(kernel):
    encoding = Case("dape", {"heads": HEADS, "kernel": kernel, "width": 5}).make()
    q, k = random(2, HEADS, 7, DIM, seed=6).requires_grad_()
    allowed = sight(7, 7)
    found = encoding.bias(block(q, k, scale=0.3))
    line = torch.arange(7)
    base = encoding.base.bias(line, line, torch.float64)
    expected = literal_dape(encoding, 0.3 * q @ k.transpose(-1, -2), base, allowed)
    leaves = [q, k, *encoding.parameters()]
    weight = random(*found.shape, seed=7).masked_fill(~allowed, 0.0)
    grads = [torch.autograd.grad((y * weight).sum(), leaves) for y in (found, expected)]
    torch.testing.assert_close(found[:, allowed], expected[:, allowed])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_dape_without_the_mask_would_leak():
    """What the mask is for: unmasked scores let a key after the query through the convolution."""
    encoding = Case("dape", {"heads": HEADS, "kernel": 3}).make()
    q, k = random(2, HEADS, 7, DIM, seed=6)
    moved = k.clone()
    moved[:, 5:] += 1
    rows = [encoding.bias(block(q, x))[:, :5, :5].tril() for x in (k, moved)]
    assert torch.equal(*rows)
    rows = [encoding.bias(block(q, x, allowed=None))[:, :5, :5].tril() for x in (k, moved)]
    assert not torch.allclose(*rows)


def test_dape_takes_any_bias():
    names = [name for name, spec in ropewalk.encodings().items() if spec.family == "bias"]
    for name in names:
        config = dict(ropewalk.encodings()[name].config)
        encoding = make("dape", heads=config.pop("heads"), base=name, base_config=config)
        assert type(encoding.base) is type(make(name, heads=encoding.heads, **config))
    own = make("alibi", heads=3)
    assert make("dape", heads=3, base=own).base is own


# PaTH.


def literal_path(q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> Tensor:
    """One head; each new token reflects all earlier keys, as a cache is kept in decoding."""
    rows, held = [], k[:0]
    for t in range(len(q)):
        reflection = torch.eye(len(w[0]), dtype=w.dtype) - beta[t] * torch.outer(w[t], w[t])
        held = torch.cat((held @ reflection, k[t : t + 1]))
        rows.append(nn.functional.pad(held @ q[t], (0, len(q) - t - 1)))
    return torch.stack(rows)


def literal_projections(encoding: Any, x: Tensor, head: int) -> tuple[Tensor, Tensor]:
    """w and β of one head of k, a token at a time."""
    down, up = (layer.weight for layer in encoding.to_w)
    low = [up @ (down @ t) for t in x]
    own = slice(head * DIM, (head + 1) * DIM)
    rows = []
    for t in range(len(x)):
        taps = encoding.taps
        total = sum(low[t - lag] * taps[:, 2 - lag] for lag in range(3) if t >= lag)
        assert isinstance(total, Tensor)
        mixed = (total * torch.sigmoid(total))[own]
        rows.append(mixed / mixed.norm())
    beta = 2 * torch.sigmoid(x @ encoding.to_beta.weight[head] + encoding.to_beta.bias[head])
    return torch.stack(rows), beta


@pytest.mark.parametrize("count", [1, 5, 64, 65, 150])
def test_path_is_its_literal_loop(count):
    encoding = Case("path", {**READS, "head_dim": DIM, "kv_heads": 2}).make()
    q, k, _, x = (t[0].requires_grad_() for t in tokens(count))
    found = encoding.read(x).logits(block(q, k, scale=0.5)).tril()
    each = [literal_projections(encoding, x, h // 2) for h in range(HEADS)]
    expected = 0.5 * torch.stack([literal_path(q[h], k[h], *each[h]) for h in range(HEADS)])
    torch.testing.assert_close(found, expected)
    leaves = [q, k, x, *encoding.parameters()]
    weight = random(*found.shape, seed=8)
    grads = [
        torch.autograd.grad((y * weight).sum(), leaves, allow_unused=True)
        for y in (found, expected)
    ]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b)


def test_path_of_full_reflections_keeps_length():
    """β near 2 and unit w: each H is a mirror, so that singular values are 1."""
    torch.manual_seed(0)
    encoding = make("path", **READS, head_dim=DIM)
    nn.init.constant_(encoding.to_beta.bias, 1000.0)
    assert checks.norm_error(encoding.double()).holds
    nn.init.constant_(encoding.to_beta.bias, 0.0)
    assert not checks.norm_error(encoding).holds


# Selective RoPE.


def test_selective_rope_is_its_literal_loop():
    config = {**READS, "head_dim": DIM, "kv_heads": 2}
    encoding = Case("selective_rope", config).make()
    q, k, _, x = (t[0] for t in tokens(9))
    encoding.requires_grad_(False)
    turned = encoding.read(x)
    pairs = DIM // 2
    found = turned.encode_q(q) @ turned.encode_k(k).transpose(-1, -2)
    taps = encoding.taps
    for h in range(HEADS):
        own = h // 2
        lanes = range(own * pairs, (own + 1) * pairs)
        steps = []
        for t in x:
            parts = t.reshape(2, -1)
            unit = (parts / parts.norm(dim=-1, keepdim=True)).reshape(-1)
            steps.append(encoding.up.weight @ (encoding.down.weight @ unit))
        angles = [[0.0] * pairs for _ in x]
        for c, lane in enumerate(lanes):
            total = 0.0
            for t in range(len(x)):
                for lag in range(4):
                    if t >= lag:
                        total += float(taps[lane, 3 - lag] * steps[t - lag][lane])
                angles[t][c] = total * 500000.0 ** (-2 * c / DIM)
        for i in range(9):
            for j in range(9):
                score = 0.0
                for c in range(pairs):
                    apart = angles[i][c] - angles[j][c]
                    a, b = q[h, i, c].item(), q[h, i, c + pairs].item()
                    e, f = k[h, j, c].item(), k[h, j, c + pairs].item()
                    score += math.cos(apart) * (a * e + b * f) + math.sin(apart) * (a * f - b * e)
                assert found[h, i, j].item() == pytest.approx(score, abs=1e-12)


def test_selective_rope_gives_a_rotation_that_a_cache_can_hold():
    encoding = Case("selective_rope", {**READS, "head_dim": DIM}).make()
    q, k, v, x = tokens(20)
    turned = encoding.read(x)
    assert isinstance(turned, Rotary)
    cached = attend(q[..., -1:, :], turned.encode_k(k), v, turned, k_encoded=True)
    torch.testing.assert_close(cached, attend(q, k, v, turned)[..., -1:, :])
    torch.testing.assert_close(
        turned.encode_q(q[..., 3:7, :], offset=3), turned.encode_q(q)[..., 3:7, :]
    )
    one = turned.reference(q[0, 0, 5].tolist(), 5)
    torch.testing.assert_close(turned.encode_q(q)[0, 0, 5], torch.tensor(one, dtype=q.dtype))
    with pytest.raises(ValueError, match="20 that were read"):
        turned.encode_q(q, offset=1)


def test_selective_angles_keep_digits_over_many_tokens():
    count = 300_000
    encoding = Case("selective_rope", {"content_dim": 2, "heads": 1}).make(dtype=torch.float32)
    x = random(count, 2, dtype=torch.float32).abs() + 1  # every step of about one sign
    k = torch.ones(1, count, 2)
    ends = [encoding.read(part).encode_k(k[:, : len(part)])[0] for part in (x, x[-1000:])]
    apart = [math.atan2(*(y[-1].tolist())) - math.atan2(*(y[-500].tolist())) for y in ends]
    assert abs(encoding.read(x).angles[0, -1]) > 1000
    assert math.remainder(apart[0] - apart[1], 2 * math.pi) == pytest.approx(0, abs=1e-6)


# Rotations chosen per pair.


def scores_by_distance(
    q: Tensor, k: Tensor, places: list[int], distance: Callable[[int, int], float]
) -> Tensor:
    """qᵀ R(−d) k with R turned by d·θ, one pair of tokens and of lanes at a time."""
    half = q.shape[-1] // 2
    rows = []
    for i, p in enumerate(places):
        row = []
        for j, r in enumerate(places):
            d = distance(p, r)
            score = 0.0
            for c in range(half):
                angle = d * 10000.0 ** (-c / half)
                a, b, e, f = (t.item() for t in (q[i, c], q[i, c + half], k[j, c], k[j, c + half]))
                score += math.cos(angle) * (a * e + b * f) + math.sin(angle) * (a * f - b * e)
            row.append(score)
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


PIECES = (
    ("rerope", {"window": 5}),
    ("rerope", {"window": 5, "leak": 3.0}),
    ("self_extend", {"group": 2, "window": 4}),
    ("self_extend", {"group": 3, "window": 7}),
    ("dual_chunk", {"chunk_size": 9, "local": 3}),
    ("dual_chunk", {"chunk_size": 9, "local": 0}),
)


@pytest.mark.parametrize(("name", "config"), PIECES)
def test_pieces_are_rotations_by_the_distance(name, config):
    encoding = make(name, head_dim=DIM, **config)
    places = [*range(14), 40, 100, 1001, 5000]
    q, k = random(2, len(places), DIM, seed=5)
    found = encoding.logits(block(q[None], k[None], torch.tensor(places), allowed=None))[0]
    torch.testing.assert_close(found, scores_by_distance(q, k, places, encoding.distance))


def row(encoding: Any, i: int) -> list[float]:
    return [encoding.distance(i, j) for j in range(i + 1)]


def test_distances_of_the_papers():
    """Golden: each worked out from the text of the paper, and by its code's positions."""
    rerope = make("rerope", head_dim=DIM, window=4)
    assert row(rerope, 7) == [4, 4, 4, 4, 3, 2, 1, 0]
    leaky = make("rerope", head_dim=DIM, window=4, leak=2.0)
    assert row(leaky, 7) == [5.5, 5, 4.5, 4, 3, 2, 1, 0]
    # Self-Extend, figure 3: ten tokens, G = 2, w = 4, and nothing beyond the 7 trained positions
    extended = make("self_extend", head_dim=DIM, group=2, window=4)
    assert row(extended, 9) == [6, 6, 5, 5, 4, 4, 3, 2, 1, 0]
    assert row(extended, 8) == [6, 6, 5, 5, 4, 3, 2, 1, 0]
    # dual chunks, figure 2: chunks of 6, trained on 10, and so a largest distance of 9
    chunks = make("dual_chunk", head_dim=DIM, chunk_size=9, local=3)
    keys = [0, 1, 2, 3, 4, 5]
    assert row(chunks, 5) == [5, 4, 3, 2, 1, 0]
    for place, successive in enumerate((6, 7, 8, 9, 9, 9)):
        assert row(chunks, 6 + place)[:6] == [successive - k for k in keys]
        assert row(chunks, 12 + place)[:6] == [9 - k for k in keys]


def test_dual_chunk_defaults_are_those_of_the_code():
    encoding = make("dual_chunk", head_dim=DIM)
    assert (encoding.chunk_size, encoding.local, encoding.chunk) == (3072, 512, 2560)


@pytest.mark.parametrize(("name", "config"), PIECES)
def test_pieces_by_encoded_queries_and_keys(name, config):
    """Each piece's keys can be cached turned: the logits are those of the turned ones."""
    encoding = make(name, head_dim=DIM, **config)
    q, k = random(2, 1, 30, DIM, seed=5)
    whole = encoding.logits(block(q, k))
    line = torch.arange(30)
    i, j = line[:, None], line[None, :]
    left = torch.ones(30, 30, dtype=torch.bool).tril()
    for piece in encoding.pieces[::-1]:
        part = encoding.encode_q(q, piece=piece) @ encoding.encode_k(k, piece=piece).mT
        first = piece == encoding.pieces[0]
        here = left & (i >= j if first else encoding.applies(piece, i, j))
        torch.testing.assert_close(part[:, here], whole[:, here])
        left &= ~here
    assert not left.any()
    if name == "dual_chunk":  # one cache serves all
        for piece in encoding.pieces:
            assert torch.equal(encoding.encode_k(k, piece=piece), encoding.encode_k(k))
    with pytest.raises(ValueError, match="piece='far away' is unknown"):
        encoding.encode_k(k, piece="far away")


def test_dual_chunks_are_three_attentions_merged():
    """As the code runs them: each with its own softmax, merged by log-sum-exp."""
    encoding = make("dual_chunk", head_dim=DIM, chunk_size=9, local=3)
    q, k, v, _ = tokens(30)
    size = encoding.chunk
    keys = encoding.encode_k(k)
    number = torch.arange(30) // size
    between = number[:, None] - number[None, :]
    outputs, sums = [], []
    for piece, here in (
        ("intra", (between == 0).tril()),
        ("successive", between == 1),
        ("inter", between > 1),
    ):
        logits = encoding.encode_q(q, piece=piece) @ keys.mT / math.sqrt(DIM)
        logits = logits.masked_fill(~here, -math.inf)
        sums.append(logits.logsumexp(-1))
        outputs.append(logits.softmax(-1).nan_to_num() @ v)
    shares = torch.stack(sums).softmax(0)[..., None]
    torch.testing.assert_close(attend(q, k, v, encoding), (shares * torch.stack(outputs)).sum(0))


def test_within_the_window_they_are_rope():
    q, k, v, _ = tokens(40)
    expected = attend(q, k, v, ropewalk.RoPE(DIM))
    for name, config in (
        ("rerope", {"window": 40}),
        ("rerope", {"window": 3, "leak": 1.0}),
        ("rerope", {"log_length": 40}),
        ("self_extend", {"window": 40}),
        ("self_extend", {"window": 5, "group": 1}),
        ("dual_chunk", {"chunk_size": 60, "local": 20}),
    ):
        torch.testing.assert_close(attend(q, k, v, make(name, head_dim=DIM, **config)), expected)


def test_pieces_of_any_spectrum():
    spectrum = geometric(DIM, 500.0, rotary_dim=4, layout="interleaved")
    q, k, v, _ = tokens(10)
    torch.testing.assert_close(
        attend(q, k, v, ReRoPE(spectrum)), attend(q, k, v, ropewalk.RoPE(spectrum))
    )


def test_the_log_factor():
    encoding = make("rerope", head_dim=DIM, log_length=4)
    q, k, _, _ = tokens(30)
    plain = make("rerope", head_dim=DIM).logits(block(q, k))
    factors = [max(1.0, math.log(i + 1) / math.log(4)) for i in range(30)]
    expected = plain * torch.tensor(factors, dtype=torch.float64)[:, None]
    torch.testing.assert_close(encoding.logits(block(q, k)), expected)


def test_far_positions_cost_no_digits():
    """Integer phases: the same distances a billion tokens further on, to the last bits."""
    encoding = make("rerope", head_dim=DIM, window=5, leak=4.0)
    q, k = random(2, 1, 12, DIM, seed=5)
    line = torch.arange(12)
    near, far = (encoding.logits(block(q, k, line + by)) for by in (0, 10**9))
    torch.testing.assert_close(far, near, rtol=0, atol=1e-13)


# Wrong configurations, and the checks of T(i, j).


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("cope", {"head_dim": 0}, "head_dim=0"),
        ("cope", {"head_dim": 8, "npos_max": 0}, "npos_max=0"),
        ("cope", {"head_dim": 8, "std": -1.0}, "std=-1.0"),
        ("fox", {"content_dim": 8, "heads": 0}, "heads=0"),
        ("fox", {"content_dim": 8, "heads": 2, "gate_bias": math.inf}, "gate_bias=inf"),
        ("dape", {"heads": 4, "kernel": 2}, "kernel=2 must be odd"),
        ("dape", {"heads": 4, "base": "rope"}, "no argument 'heads'"),
        ("dape", {"heads": 4, "base": "alibbi"}, "did you mean 'alibi'"),
        ("dape", {"heads": 4, "base": 3}, "base=3 is no bias"),
        ("path", {"content_dim": 10, "heads": 4}, "state head_dim"),
        ("path", {"content_dim": 8, "heads": 4, "kv_heads": 3}, "not a multiple of kv_heads=3"),
        ("path", {"content_dim": 8, "heads": 4, "rank": 0}, "rank=0"),
        ("selective_rope", {"content_dim": 8, "heads": 8}, "head_dim"),
        ("selective_rope", {"content_dim": 9, "heads": 2, "head_dim": 4}, "unit length"),
        ("selective_rope", {"content_dim": 8, "heads": 2, "layout": "x"}, "layout='x'"),
        ("selective_rope", {"content_dim": 8, "heads": 2, "base": -1.0}, "base"),
        ("rerope", {"head_dim": 8, "window": 0}, "window=0"),
        ("rerope", {"head_dim": 8, "leak": 0.5}, "leak=0.5"),
        ("rerope", {"head_dim": 8, "log_length": 1}, "log_length=1"),
        ("self_extend", {"head_dim": 8, "group": 9, "window": 8}, "group=9 is larger"),
        ("dual_chunk", {"head_dim": 8, "chunk_size": 4, "local": 4}, "local=4"),
        ("dual_chunk", {"head_dim": 8, "local": 1.5}, "local=1.5"),
    ],
)
def test_wrong_configurations_say_what_is_wrong(name, config, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make(name, **config)


def test_a_spectrum_of_several_axes_is_refused():
    with pytest.raises(ValueError, match="axes=2"):
        ReRoPE(ropewalk.RoPE(8, axes=2).spectrum)


class Stretched(ReRoPE):
    """Queries a little longer than they were."""

    def stretch(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        return torch.full(positions.shape, 1.0 + 1e-9, dtype=dtype)


class Drifting(ReRoPE):
    """Distances that grow with the place of the query."""

    def place(self, piece, side, positions):
        found = super().place(piece, side, positions)
        return found + torch.div(found, 100, rounding_mode="floor") if side == "q" else found


class Longer(Stretched):
    """Queries that grow with their position."""

    def stretch(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        return 1 + positions.to(dtype) * 1e-6


def test_checks_see_what_is_wrong_with_t():
    assert checks.norm_error(ReRoPE(DIM)).holds
    assert not checks.norm_error(Stretched(DIM)).holds
    assert checks.relative_error(ReRoPE(DIM)).holds
    assert not checks.relative_error(Drifting(DIM)).holds
    assert checks.bounded_error(Stretched(DIM)).holds
    assert not checks.bounded_error(Longer(DIM)).holds


class OneMap(Contextual):
    """Reads hidden states and turns by the same map for every token: linear, unlike the others."""

    bilinear = True
    heads, head_dim, content_dim = 1, 2, 3

    def read(self, content: Tensor) -> Rotary:
        config = {"content_dim": 3, "heads": 1, "head_dim": 2}
        turned = make("selective_rope", **config).double().read(content)
        turned.angles = torch.arange(content.shape[-2]).double()[None, :, None] * 0.1
        return turned


def test_linear_along_hidden_states():
    assert checks.linear_error(OneMap()).holds
    torch.manual_seed(0)
    assert not checks.linear_error(make("selective_rope", **READS, head_dim=DIM)).holds


def test_decay_is_asked_for_all_contents():
    """Random gates make FoX fall; gates that a loud token opens leave it flat."""
    torch.manual_seed(0)
    encoding = make("fox", **READS)
    assert checks.decay_error(encoding).holds is False
