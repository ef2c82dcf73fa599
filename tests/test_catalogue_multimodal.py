"""Rotations by sections: axis strings, transformers' own rotations, and what is refused."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.ernie4_5_vl_moe import modeling_ernie4_5_vl_moe as ernie
from transformers.models.glm4v import modeling_glm4v as glm4v
from transformers.models.qwen2_5_omni import modeling_qwen2_5_omni as qwen2_5_omni
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen2_5_vl
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2_vl
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen3_5
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as qwen3_omni
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3_vl

import ropewalk
from ropewalk import positions, spectra
from ropewalk.encodings.rotary import RoPE, TMRoPE, VideoRoPE, mrope, rope
from ropewalk.positions import Audio, AudioVideo, Image, Text, Video
from ropewalk.spectra.sections import (
    ORDERS,
    alternating,
    blocks,
    interleaved,
    sectioned,
)


def owners(encoding: RoPE) -> str:
    """The axis that turns each pair, read off the frequencies."""
    columns = list(zip(*encoding.spectrum.freqs, strict=True))
    assert all(sum(f != 0 for f in column) == 1 for column in columns)
    return "".join("THW"[next(a for a, f in enumerate(c) if f)] for c in columns)


# Axis strings: catalogue of the models' code.


def test_the_owners_of_the_pairs():
    assert owners(mrope(128)) == blocks([16, 24, 24]) == "T" * 16 + "H" * 24 + "W" * 24
    assert owners(mrope(128, order="interleaved")) == "THW" * 20 + "TTTT"
    assert owners(mrope(128, order="alternating")) == "HW" * 22 + "T" * 20
    assert owners(mrope(64)) == "T" * 8 + "H" * 12 + "W" * 12
    assert owners(VideoRoPE(128)) == "HW" * 24 + "T" * 16
    assert owners(TMRoPE(128)) == blocks([16, 24, 24])
    third = mrope(256, sections=[11, 11, 10], order="interleaved", rotary_dim=64)
    assert owners(third) == interleaved([11, 11, 10]) == "THW" * 10 + "TH"
    assert third.head_dim == 256
    assert alternating([3, 1, 2]) == "HWHHTT"
    assert alternating([1, 2, 0]) == "HWW"


@given(st.sampled_from(tuple(ORDERS)), st.integers(3, 200))
def test_usual_sections_serve_every_axis_of_any_width(order, pairs):
    letters = owners(mrope(2 * pairs, order=order))
    assert len(letters) == pairs
    assert set(letters) == set("THW")


# transformers' own rotations. float32 angles there: positions stay below 2000, where the product
# position · inv_freq is within 1.3e-4 rad.

MODELS: dict[str, tuple[Any, str, Any, dict[str, Any], int, dict[str, Any]]] = {
    "qwen2_vl": (
        qwen2_vl,
        "Qwen2VLRotaryEmbedding",
        qwen2_vl.apply_rotary_pos_emb,
        {"rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        128,
        {"base": 1e6, "sections": [16, 24, 24]},
    ),
    "qwen2_5_vl": (
        qwen2_5_vl,
        "Qwen2_5_VLRotaryEmbedding",
        qwen2_5_vl.apply_rotary_pos_emb,
        {"rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        128,
        {"base": 1e6},
    ),
    "qwen3_vl": (
        qwen3_vl,
        "Qwen3VLTextRotaryEmbedding",
        qwen3_vl.apply_rotary_pos_emb,
        {"rope_theta": 5e6, "mrope_section": [24, 20, 20]},
        128,
        {"base": 5e6, "sections": [24, 20, 20], "order": "interleaved"},
    ),
    "qwen3_5": (
        qwen3_5,
        "Qwen3_5TextRotaryEmbedding",
        qwen3_5.apply_rotary_pos_emb,
        {"rope_theta": 1e7, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25},
        256,
        {"base": 1e7, "sections": [11, 11, 10], "order": "interleaved", "rotary_dim": 64},
    ),
    "glm4v": (
        glm4v,
        "Glm4vTextRotaryEmbedding",
        glm4v.apply_rotary_pos_emb,
        {"rope_theta": 1e4, "mrope_section": [8, 12, 12], "partial_rotary_factor": 0.5},
        128,
        {"sections": [8, 12, 12], "rotary_dim": 64, "layout": "interleaved"},
    ),
    "ernie4_5_vl_moe": (
        ernie,
        "Ernie4_5_VLMoeTextRotaryEmbedding",
        ernie.apply_rotary_pos_emb,
        {"rope_theta": 5e5, "mrope_section": [22, 22, 20]},
        128,
        {
            "base": 5e5,
            "sections": [22, 22, 20],
            "order": "alternating",
            "layout": "interleaved",
        },
    ),
    "qwen2_5_omni": (
        qwen2_5_omni,
        "Qwen2_5OmniRotaryEmbedding",
        qwen2_5_omni.apply_rotary_pos_emb,
        {"rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        128,
        {"base": 1e6},
    ),
}


def turned_there(name: str, q: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    module, kind, apply, parameters, head_dim, _ = MODELS[name]
    config = SimpleNamespace(
        rope_parameters={"rope_type": "default", **parameters},
        head_dim=head_dim,
        hidden_size=head_dim,
        num_attention_heads=1,
        max_position_embeddings=4096,
    )
    cos, sin = getattr(module, kind)(config)(q, where.movedim(-1, 0))
    return apply(q, q, cos, sin)[0]


@pytest.mark.parametrize("name", MODELS)
def test_q_turns_as_in_transformers(name):
    head_dim, config = MODELS[name][-2:]
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(2, 3, 9, head_dim, generator=generator)
    where = torch.randint(0, 2000, (2, 9, 3), generator=generator)
    found = mrope(head_dim, **config).encode_q(q, where)
    expected = turned_there(name, q, where)
    torch.testing.assert_close(found, expected, rtol=0, atol=6e-4)


def test_q_of_qwen3_omni_turns_at_fractional_times():
    """Their times are float32; ours are integers in units of 2⁻²⁰ id."""
    family = positions.family("qwen3_omni")
    spans = [Text(3), Video(4, 4, 4, 2 / 30), Text(2)]
    placed = positions.multimodal(spans, family).positions
    q = torch.randn(1, 2, len(placed), 128, generator=torch.Generator().manual_seed(2))
    config: Any = SimpleNamespace(
        rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [24, 20, 20]},
        head_dim=128,
        max_position_embeddings=4096,
    )
    module = qwen3_omni.Qwen3OmniMoeThinkerTextRotaryEmbedding(config)
    times = (placed.double() * family.unit).float().T[:, None]
    cos, sin = module(q, times)
    expected = qwen3_omni.apply_rotary_pos_emb(q, q, cos, sin)[0]
    encoding = mrope(128, 1e6, sections=[24, 20, 20], order="interleaved", unit=family.unit)
    torch.testing.assert_close(encoding.encode_q(q, placed), expected, rtol=0, atol=2e-5)
    whole = mrope(128, 1e6, sections=[24, 20, 20], order="interleaved").encode_q(q, placed)
    assert (whole - expected).abs().max() > 0.1


@pytest.mark.parametrize("name", [n for n in MODELS if n != "qwen2_5_omni"])
def test_the_config_of_each_model_says_the_same(name):
    *_, parameters, head_dim, config = MODELS[name]
    told = {
        "model_type": name,
        "text_config": {
            "model_type": f"{name}_text",
            "hidden_size": 4 * head_dim,
            "num_attention_heads": 4,
            "head_dim": head_dim,
            "num_hidden_layers": 4,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", **parameters},
        },
    }
    found = RoPE.from_config(told, layer=3).spectrum
    assert found == mrope(head_dim, **config).spectrum


# What sections mean.


@pytest.mark.parametrize("order", ORDERS)
@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=4), st.integers(3, 40))
def test_on_text_it_is_rope(order, line, pairs):
    where = torch.tensor(line)
    x = torch.randn(2, len(line), 2 * pairs, generator=torch.Generator().manual_seed(pairs))
    found = mrope(2 * pairs, order=order).encode_q(x, where[:, None].expand(-1, 3))
    assert torch.equal(found, rope(2 * pairs).encode_q(x, where))


def test_scaling_comes_before_the_sections():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    line = RoPE(128, 1e6, scaling=yarn).spectrum
    found = mrope(128, 1e6, scaling=yarn).spectrum
    assert found == sectioned(line, [16, 24, 24])
    assert found.attention_factor == line.attention_factor > 1
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 64}
    pinned = mrope(64, scaling=dynamic).spectrum.for_length(256)
    expected = RoPE(64, scaling=dynamic).spectrum.for_length(256)
    assert pinned == sectioned(expected, [8, 12, 12])


def test_encodings_build_the_positions_of_their_families():
    spans = [Text(2), Image(4, 4), Video(3, 4, 4, 0.5), Text(1)]
    video = VideoRoPE(64).positions_of(spans)
    assert torch.equal(video.positions, positions.multimodal(spans, "video_rope").positions)
    slow = VideoRoPE(64, temporal_scale=1.0).positions_of(spans)
    assert slow.next == video.next - 2
    fine = VideoRoPE(64, temporal_scale=0.25, unit=0.25)
    assert fine.positions_of([Video(3, 2, 2)]).positions[:, 0].tolist() == [0, 1, 2]
    heard = [*spans, AudioVideo(Video(2, 2, 2, 1.0), Audio(5))]
    omni = TMRoPE(64).positions_of(heard)
    assert torch.equal(omni.positions, positions.multimodal(heard, "qwen2_5_omni").positions)
    slower = TMRoPE(64, ids_per_second=10.0).positions_of(spans).positions
    assert slower[6:, 0].tolist()[::4][:3] == [4, 9, 14]


def test_a_late_frame_keeps_its_score_with_an_equal_one():
    """Scores depend on the differences of t, h and w: what is attended to moves along."""
    encoding = VideoRoPE(64)
    placed = encoding.positions_of([Text(3), Video(4, 4, 6), Text(5)]).positions
    q, k = torch.randn(2, 2, len(placed), 64, generator=torch.Generator().manual_seed(3)).double()
    shift = torch.tensor([100_003, -7, 2**40])
    scores = [
        encoding.encode_q(q, p) @ encoding.encode_k(k, p).mT for p in (placed, placed + shift)
    ]
    torch.testing.assert_close(scores[0], scores[1], rtol=0, atol=1e-12)


loose: Any = ropewalk

REFUSED = [
    (lambda: loose.make("mrope", head_dim=63), "head_dim=63 must be even"),
    (lambda: loose.make("mrope", head_dim=4), "2 pairs cannot serve three axes"),
    (
        lambda: loose.make("mrope", head_dim=64, sections=[8, 12, 11]),
        "sections=[8, 12, 11] sum to 31; the spectrum has 32 pairs: use three that sum to 32, such "
        "as [8, 12, 12]",
    ),
    (lambda: loose.make("mrope", head_dim=64, sections=[16, 16]), "sections=[16, 16] sum to 32"),
    (lambda: loose.make("mrope", head_dim=64, sections="THW"), "sections='THW' must be a sequen"),
    (lambda: loose.make("mrope", head_dim=64, sections=[8, 12.0, 12]), "sections[1]=12.0 must be"),
    (lambda: loose.make("mrope", head_dim=64, sections=[-1, 21, 12]), "sections[0]=-1 must be at"),
    (
        lambda: loose.make("mrope", head_dim=64, sections=[8, 12, 12], order="interleaved"),
        "sections=[8, 12, 12] cannot be interleaved: height owns every third pair from 1, width",
    ),
    (lambda: loose.make("mrope", head_dim=64, order="THW"), "order='THW' is unknown; use one of"),
    (lambda: loose.make("mrope", head_dim=64, unit=0), "unit=0.0 must be finite and above 0"),
    (lambda: loose.make("mrope", head_dim=64, base=0), "base=0.0 must be finite and above 0"),
    (lambda: loose.make("video_rope", head_dim=4), "head_dim=4 must be even and at least 6"),
    (lambda: loose.make("video_rope", head_dim=64, temporal_scale=0), "temporal_scale=0.0 must be"),
    (lambda: loose.make("tm_rope", head_dim=64, ids_per_second=-1), "ids_per_second=-1.0 must be"),
    (lambda: alternating([2, 2]), "sections=[2, 2] must be three: height, width, time"),
    (
        lambda: mrope(64).encode_q(torch.zeros(1, 3, 64), torch.zeros(3, dtype=torch.int64)),
        "with axes=3 the last dimension must be 3",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[m[:40] for _, m in REFUSED])
def test_what_is_refused_is_named(call, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        call()


def test_an_axis_without_pairs_is_not_told_apart():
    encoding = mrope(12, sections=[0, 3, 3])
    assert encoding.axes == 3
    x = torch.randn(1, 2, 12, generator=torch.Generator().manual_seed(4))
    where = torch.tensor([[0, 5, 6], [9, 5, 6]])
    same = encoding.encode_q(x[:, :1].expand(1, 2, 12), where)
    assert torch.equal(same[:, 0], same[:, 1])
    assert spectra.sectioned(spectra.geometric(12), [3, 3, 0]).axes == 3
