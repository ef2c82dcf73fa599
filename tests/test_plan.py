"""Plans of layers and logit scales, against Llama 4, SmolLM3 and Gemma 3 of transformers."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import ropewalk
from ropewalk import checks, configs
from ropewalk.plan import (
    Layer,
    Llama4Scale,
    LogScale,
    Plan,
    Tempered,
    chunks,
    interleave,
    irope,
    sliding,
    swan,
)

ROPE, NOPE = ropewalk.RoPE(64), ropewalk.make("p_rope", head_dim=64, fraction=0.0)


def kinds(plan: Plan) -> list[str]:
    return ["none" if layer.encoding is None else "rotary" for layer in plan]


def test_smollm3_has_no_position_in_every_fourth_layer():
    from transformers import SmolLM3Config

    config: Any = SmolLM3Config()
    resolved = configs.resolve(config.to_dict())
    theirs = [resolved.layer(i).kind for i in range(config.num_hidden_layers)]
    plan = interleave(ROPE, None, every=4, layers=config.num_hidden_layers)
    assert kinds(plan) == theirs
    assert theirs[:5] == ["rotary", "rotary", "rotary", "none", "rotary"]


def test_gemma_3_has_a_base_and_a_window_by_layer():
    from transformers import Gemma3TextConfig

    config: Any = Gemma3TextConfig()
    resolved = configs.resolve(config.to_dict())
    local, far = (ropewalk.RoPE(config.head_dim, base) for base in (1e4, 1e6))
    plan = sliding(
        local, far, window=config.sliding_window, every=6, layers=config.num_hidden_layers
    )
    for i, layer in enumerate(plan):
        near = config.layer_types[i] == "sliding_attention"
        assert layer.window == (config.sliding_window if near else None)
        assert isinstance(layer.encoding, ropewalk.RoPE)
        assert layer.encoding.spectrum.matrices[0][0] == resolved.layer(i).inv_freq


def test_a_window_and_a_chunk_hide_what_transformers_hides():
    from transformers.masking_utils import chunked_overlay, sliding_window_overlay

    plan = Plan([Layer(ROPE, window=5), Layer(ROPE, chunk=5)], layers=2)
    n = 23
    q, k = torch.randn(2, 1, 1, n, 64, generator=torch.Generator().manual_seed(0))
    seen = [
        ropewalk.attend(q, k, torch.eye(n)[None, None], **plan.layer(i, tokens=n)) for i in (0, 1)
    ]
    overlays = sliding_window_overlay(5), chunked_overlay(5, torch.zeros(1, dtype=torch.int64))
    for weights, overlay in zip(seen, overlays, strict=True):
        theirs = [[j <= i and bool(overlay(0, 0, i, j)) for j in range(n)] for i in range(n)]
        assert (weights[0, 0] > 0).tolist() == theirs


def llama4(**changes) -> Any:
    from transformers import Llama4TextConfig

    return Llama4TextConfig(
        hidden_size=64,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        use_qk_norm=False,
        **changes,
    )


def test_llama_4_leaves_position_out_and_chunks_where_irope_does():
    config = llama4()
    plan = irope(ROPE, NOPE, layers=8)
    resolved = configs.resolve(config.to_dict())
    for i, layer in enumerate(plan):
        rotates = resolved.layer(i).kind == "rotary"
        assert rotates == bool(config.no_rope_layers[i])
        assert layer.chunk == (config.attention_chunk_size if rotates else None)
        assert isinstance(layer.encoding, Tempered) == (not rotates)
    found: Any = plan[3].encoding
    assert found.scale == Llama4Scale(config.floor_scale, config.attn_scale)


@pytest.mark.parametrize("index", [0, 3])
def test_attention_of_llama_4(index):
    from transformers.models.llama4.modeling_llama4 import (
        Llama4TextAttention,
        Llama4TextRotaryEmbedding,
    )

    config = llama4(floor_scale=3, attn_scale=0.7, attention_chunk_size=5)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    theirs = Llama4TextAttention(config, index).double().eval()
    x = torch.randn(2, 17, 64, dtype=torch.float64)
    place = torch.arange(17)
    tables = Llama4TextRotaryEmbedding(config)(x, place[None])
    same = place[:, None] // 5 == place // 5
    visible = (place[:, None] >= place) & (same | (index == 3))
    mask = torch.zeros(17, 17, dtype=torch.float64).masked_fill(~visible, -math.inf)
    expected, _ = theirs(x, tables, mask[None, None])

    rope = ropewalk.RoPE(16, config.rope_parameters["rope_theta"], layout="interleaved")
    nope = ropewalk.make("p_rope", head_dim=16, fraction=0.0)
    plan = irope(rope, nope, chunk=5, scale=Llama4Scale(floor=3, rate=0.7), layers=8)
    q, k, v = (
        projection(x).unflatten(-1, (-1, 16)).transpose(1, 2)
        for projection in (theirs.q_proj, theirs.k_proj, theirs.v_proj)
    )
    y = ropewalk.attend(q, k, v, **plan.layer(index, tokens=17))
    found = theirs.o_proj(y.transpose(1, 2).flatten(2))
    # transformers makes its scale, and its tables, in float32
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-7)
    wrong = irope(rope, nope, chunk=5, scale=None, layers=8)
    other = ropewalk.attend(q, k, v, **wrong.layer(index, tokens=17))
    assert torch.equal(other, y) == (index == 0)


PLACES = [0, 1, 8190, 8191, 8192, 16383, 131071, 10**6, 2**31, 2**40]


def test_scales_are_those_of_the_equations():
    mpmath.mp.dps = 30
    found = Llama4Scale().at(torch.tensor(PLACES)).tolist()
    exact = [1 + mpmath.mpf("0.1") * mpmath.log(1 + (p + 1) // 8192) for p in PLACES]
    assert found == pytest.approx([float(x) for x in exact], rel=1e-15)
    assert found[:4] == [1.0, 1.0, 1.0, 1 + 0.1 * math.log(2)]
    found = LogScale(a=2.5).at(torch.tensor(PLACES)).tolist()
    exact = [mpmath.log(mpmath.mpf("2.5") + p + 1) for p in PLACES]
    assert found == pytest.approx([float(x) for x in exact], rel=1e-15)
    for scale in (Llama4Scale(floor=7, rate=0.3), LogScale(1.0)):
        line = torch.arange(-3, 40)
        assert scale.at(line).tolist() == pytest.approx([scale.reference(int(p)) for p in line])
        assert scale.at(line)[:4].tolist() == [scale.reference(0)] * 4
        assert pickle.loads(pickle.dumps(scale)) == scale


class TestTempered(checks.EncodingContract):
    def create(self):
        return Tempered(ropewalk.RoPE(8), Llama4Scale(floor=3, rate=0.5))


class TestTemperedNope(checks.EncodingContract):
    def create(self):
        return Tempered(ropewalk.make("p_rope", head_dim=8, fraction=0.0), LogScale(1.5))


def test_a_logit_scale_gives_up_relativity_and_norm():
    report = checks.check(Tempered(ROPE, Llama4Scale()))
    assert report.properties["relative"].holds is False
    assert report.properties["norm"].holds is False
    assert report.properties["extends"].holds is True
    assert report.properties["deterministic"].holds is True


def test_bfloat16_is_rounded_once():
    encoding = Tempered(ROPE, Llama4Scale(floor=5, rate=0.37))
    q = torch.randn(1, 2, 50, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert torch.equal(encoding.encode_q(q), encoding.encode_q(q.float()).bfloat16())
    assert torch.equal(encoding.encode_k(q), ROPE.encode_k(q))


def test_decoding_equals_the_whole():
    plan = irope(ROPE, NOPE, chunk=6, scale=Llama4Scale(floor=4, rate=0.5), layers=4)
    q, k, v = torch.randn(3, 1, 2, 21, 64, generator=torch.Generator().manual_seed(2))
    for i in range(4):
        whole = ropewalk.attend(q, k, v, **plan.layer(i, tokens=21))
        last = ropewalk.attend(q[..., -1:, :], k, v, **plan.layer(i, tokens=21))
        torch.testing.assert_close(last, whole[..., -1:, :], rtol=1e-5, atol=1e-6)


def test_swan_starts_without_position():
    plan = swan(ROPE, NOPE, window=512, a=3.0, layers=9)
    assert [isinstance(x.encoding, Tempered) for x in plan] == [i % 4 == 0 for i in range(9)]
    assert [x.window for x in plan] == [None if i % 4 == 0 else 512 for i in range(9)]
    assert plan[0].encoding.scale == LogScale(3.0)  # pyright: ignore


@given(st.integers(2, 9), st.integers(0, 200), st.data())
def test_the_other_encoding_comes_once_a_period(every, index, data):
    at = data.draw(st.integers(-every, every - 1))
    plan = interleave(ROPE, None, every=every, at=at)
    assert (plan[index].encoding is None) == (index % every == at % every)


def test_a_plan_is_a_sequence():
    plan = interleave(ROPE, None, every=3, layers=8)
    assert len(plan) == len(list(plan)) == 8
    assert plan[-1] is plan[7]
    assert plan[2].encoding is None
    assert plan.layer(0) == {"encoding": ROPE, "window": None}
    for index in (8, -9):
        with pytest.raises(IndexError, match="plan of 8 layers"):
            plan[index]
    endless = interleave(ROPE, None)
    assert endless[1003].encoding is None
    for asks in (len, list):
        with pytest.raises(TypeError, match="repeats without end; give layers="):
            asks(endless)
    assert endless
    with pytest.raises(IndexError, match="layer -1 is not in this plan without end"):
        endless[-1]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.plan = interleave(Offsets(), ROPE, every=2, layers=6)


class Offsets(ropewalk.Bias):
    """A learned bias by distance."""

    def __init__(self):
        super().__init__()
        self.heads = 2
        self.offsets = nn.Parameter(torch.zeros(2, 64))

    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        gap = (q_positions[..., :, None] - kv_positions[..., None, :]).abs().clamp(max=63)
        return self.offsets[:, gap].to(dtype)

    def reference(self, head, q_position, k_position):
        return self.offsets[head, min(abs(q_position - k_position), 63)].item()


def test_encodings_belong_to_the_model_that_holds_the_plan():
    model = Model()
    assert list(model.state_dict()) == ["plan.encodings.0.offsets"]
    assert model.plan[0] is model.plan[2]
    twin = copy.deepcopy(model)
    with torch.no_grad():
        next(twin.parameters()).fill_(3.0)
    bias = twin.plan[4].encoding
    assert isinstance(bias, Offsets)
    assert bias.reference(0, 5, 2) == 3.0
    assert next(model.parameters()).max() == 0.0
    q = torch.randn(1, 2, 9, 64)
    ropewalk.attend(q, q, q, **model.plan.layer(4)).sum().backward()
    assert next(model.parameters()).grad is not None
    assert model.to(torch.float64).plan[0].encoding.offsets.dtype == torch.float64  # pyright: ignore


def test_chunks_are_counted_from_the_first_key():
    assert chunks(7, 3).tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert chunks(0, 3).tolist() == []


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: interleave(ROPE, None, every=1), ValueError, "every=1 must be at least 2"),
        (lambda: interleave(ROPE, None, every=4, at=4), ValueError, "at=4 is not one of the 4"),
        (lambda: interleave(ROPE, "nope"), TypeError, "got str"),  # pyright: ignore
        (lambda: interleave(ropewalk.make("integer", dim=4), None), TypeError, "added once"),
        (lambda: interleave(ROPE, None, layers=0), ValueError, "layers=0"),
        (lambda: Plan([]), TypeError, "at least one"),
        (lambda: Plan([ROPE]), TypeError, "must hold Layers"),  # pyright: ignore
        (lambda: Layer(ROPE, window=0), ValueError, "window=0"),
        (lambda: Layer(ROPE, chunk=2.0), TypeError, "chunk=2.0"),  # pyright: ignore
        (lambda: Layer(ROPE, 3, 4), ValueError, "exclude each other"),
        (lambda: sliding(Layer(ROPE), ROPE, window=3), TypeError, "not a Layer"),
        (lambda: irope(ROPE, None), TypeError, "inner must be a rotary encoding"),  # pyright: ignore
        (lambda: irope(ROPE, NOPE).layer(0), ValueError, "plan.layer(0, tokens=k.shape[-2])"),
        (lambda: irope(ROPE, NOPE)["a"], TypeError, "layer='a' must be an int"),  # pyright: ignore
        (lambda: swan(ROPE, NOPE, window=9, a=0), ValueError, "a=0.0 must be finite and above 0"),
        (lambda: Llama4Scale(floor=0), ValueError, "floor=0"),
        (lambda: Llama4Scale(rate=-0.1), ValueError, "rate=-0.1 must be finite and at least 0"),
        (lambda: Tempered(ROPE, 2.0), TypeError, "Llama4Scale() is one"),  # pyright: ignore
        (
            lambda: Tempered(ropewalk.RoPE(8, axes=2), LogScale(1.0)),
            ValueError,
            "axes=2; a logit scale needs one axis",
        ),
    ],
)
def test_wrong_plans_are_refused(make, error, says):
    with pytest.raises(error) as told:
        make()
    assert says in str(told.value)
