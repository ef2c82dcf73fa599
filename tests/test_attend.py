"""attend against a dense float64 attention written out here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_oracle import ORACLES, Call, calls, random
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import ropewalk
from ropewalk import attend
from ropewalk.attention import blockwise
from ropewalk.encodings.bias import ALiBi
from ropewalk.encodings.rotary import AxialRoPE, RoPE

pytestmark = pytest.mark.usefixtures("poisoned")

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
    call = data.draw(calls(name, 0, 12, 6, ["auto"]))
    call.check(gradients=data.draw(st.booleans()))


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
