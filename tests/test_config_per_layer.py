"""Layers with sizes of their own, against the rotary modules of transformers."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import torch
from config_reference import frequencies, rotary_module
from hypothesis import given
from hypothesis import strategies as st

from ropewalk import RoPE
from ropewalk.configs import Resolved, resolve
from ropewalk.configs.emit import emit
from ropewalk.models import audit

GEMMA = {"num_hidden_layers": 6, "head_dim": 32, "global_head_dim": 64}
DOTS = {"num_hidden_layers": 7}
SWA = {"swa_head_dim": 96, "swa_qk_nope_head_dim": 56, "swa_num_attention_heads": 4}
SWA |= {"swa_num_key_value_heads": 4}
STEP_KINDS = {"layer_types": ["full_attention", *["sliding_attention"] * 3], "num_hidden_layers": 4}
STEP_LISTS = {
    "rope_theta": [5e6, 1e4, 1e4, 1e4, 7.0],  # the last is for a layer that predicts ahead
    "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0, 7.0],
    "num_nextn_predict_layers": 1,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 2.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 32.0,
        "original_max_position_embeddings": 8192,
    },
}
CASES = [
    ("gemma4_text", GEMMA),
    ("gemma4_text", {**GEMMA, "global_head_dim": 32}),
    ("gemma4_unified_text", GEMMA),
    ("diffusion_gemma_text", GEMMA),
    ("embedding_gemma2_text", GEMMA),
    ("dots3_note_text", DOTS),
    ("dots3_note_text", {**DOTS, **SWA, "qk_rope_head_dim": 16, "qk_nope_head_dim": 24}),
    ("dots3_note_text", {**DOTS, "swa_rope_theta": 3e4, "rope_theta": 5e5, "use_dsa": False}),
    ("step3p5", {**STEP_KINDS, "num_attention_heads": 8, "num_sliding_attention_heads": 4}),
    ("step3p5", {**STEP_KINDS, **STEP_LISTS}),
    ("neomme", {"num_hidden_layers": 6}),
]
PLAIN = {"model_type": "llama", "num_hidden_layers": 4, "head_dim": 64, "rope_theta": 1e4}


def live(model_type: str, given: dict[str, Any]) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CONFIG_MAPPING[model_type](**given)


def module_of(config: Any) -> torch.nn.Module:
    if config.model_type == "step3p5":  # its module names the whole config in its signature
        from transformers.models.step3p7.modeling_step3p7 import Step3p7RotaryEmbedding

        return Step3p7RotaryEmbedding(config)
    module = rotary_module(config)
    assert module is not None
    return module


def codes(resolved: Resolved) -> set[str]:
    return {finding.code for finding in resolved.findings}


@pytest.mark.parametrize("form", ["saved", "as given", "object"])
@pytest.mark.parametrize(("model_type", "given"), CASES)
def test_every_layer_has_the_frequencies_of_the_live_module(model_type, given, form):
    config = live(model_type, given)
    theirs = frequencies(module_of(config))
    source = {
        "saved": json.loads(json.dumps(config.to_dict())),
        "as given": {"model_type": model_type, **given},
        "object": config,
    }[form]
    resolved = resolve(source)
    assert not codes(resolved) & {"RW051", "RW064", "RW065"}
    for layer, kind in enumerate(config.layer_types):
        ours = torch.tensor(resolved.layer(layer).inv_freq, dtype=torch.float64)
        expected = torch.tensor(theirs[kind], dtype=torch.float64)
        assert ours.shape == expected.shape, (layer, kind)
        assert torch.allclose(ours, expected, rtol=1e-6, atol=0), (layer, kind)


def test_latent_heads_of_dots_differ_by_kind_of_layer():
    """As Dots3NoteTextAttention: rotated lanes stand behind those without position."""
    config = live("dots3_note_text", {**DOTS, **SWA})
    for source in (config, {"model_type": "dots3_note_text", **DOTS, **SWA}):
        resolved = resolve(source)
        for layer, kind in enumerate(config.layer_types):
            own, group = config.per_layer_config[layer], resolved.layer(layer)
            assert group.label == kind
            assert group.lane_offset == own.qk_nope_head_dim
            assert group.rotary_dim == own.qk_rope_head_dim
            assert group.head_dim == own.qk_nope_head_dim + own.qk_rope_head_dim
            assert group.layout == "interleaved"


def test_the_plan_of_dots_is_that_of_its_class_for_any_number_of_layers():
    for count in (1, 2, 5, 9, 46):
        config = live("dots3_note_text", {"num_hidden_layers": count})
        resolved = resolve({"model_type": "dots3_note_text", "num_hidden_layers": count})
        assert [resolved.layer(i).label for i in range(count)] == config.layer_types


@given(st.lists(st.sampled_from([None, 32, 64, 96]), min_size=4, max_size=4))
def test_each_layer_has_its_own_width(widths):
    overrides = {f"{i:02}": {"head_dim": w} for i, w in enumerate(widths) if w is not None}
    resolved = resolve({**PLAIN, "model_type": "of_its_own", "per_layer_config": overrides})
    assert not resolved.errors
    assert sorted(i for group in resolved.layers for i in group.layers) == [0, 1, 2, 3]
    for layer, width in enumerate(widths):
        group = resolved.layer(layer)
        assert group.inv_freq == resolve({**PLAIN, "head_dim": width or 64}).layer(0).inv_freq
        if group.layers == (layer,):
            key = f"per_layer_config.{layer:02}.head_dim" if width else "head_dim"
            assert group.provenance["head_dim"].source == f"file:{key}"


def test_other_names_of_a_size_are_replaced_too():
    config = {"model_type": "of_its_own", "n_layer": 2, "n_embd": 512, "n_head": 8}
    config |= {"per_layer_config": {"1": {"num_attention_heads": 4}}}
    assert [resolve(config).layer(i).head_dim for i in (0, 1)] == [64, 128]


def test_what_has_nothing_to_do_with_rotation_changes_nothing():
    plain = resolve(PLAIN)
    for own in ({"intermediate_size": 8}, {"sliding_window": None}, {"num_key_value_heads": 1}, {}):
        found = resolve({**PLAIN, "per_layer_config": {"1": own}})
        assert found.layers == plain.layers
        assert found.findings == plain.findings


def test_a_class_that_computes_frequencies_once_stops_and_it_is_told():
    """transformers raises when its rotary module reads head_dim off the whole config."""
    given = {"1": {"head_dim": 128}}
    found = resolve({**PLAIN, "per_layer_config": given})
    assert [f.key for f in found.findings if f.code == "RW065"] == ["per_layer_config.1.head_dim"]
    assert [found.layer(i).head_dim for i in range(4)] == [64, 128, 64, 64]
    sizes = {"num_hidden_layers": 4, "head_dim": 64, "per_layer_config": given}
    with pytest.raises(RuntimeError, match="per-layer attribute"):
        rotary_module(live("llama", sizes))


def test_layers_of_one_kind_that_differ_are_told_where_the_class_reads_kinds():
    config = json.loads(
        json.dumps(live("gemma4_text", {**GEMMA, "num_hidden_layers": 12}).to_dict())
    )
    assert "RW065" not in codes(resolve(config))
    config["per_layer_config"]["05"] = {"head_dim": 128}
    found = resolve(config)
    assert "RW065" in codes(found)
    assert (found.layer(5).head_dim, found.layer(11).head_dim) == (128, 64)


@pytest.mark.parametrize(
    "own",
    [
        {"rope_theta": 1e6},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"partial_rotary_factor": 0.5},
    ],
)
def test_rope_parameters_of_one_layer_are_an_error(own):
    found = resolve({**PLAIN, "per_layer_config": {"2": own}})
    (error,) = found.errors
    assert (error.code, error.key) == ("RW064", f"per_layer_config.2.{next(iter(own))}")
    with pytest.raises(ValueError, match="RW064"):
        RoPE.from_config({**PLAIN, "per_layer_config": {"2": own}})


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ([{"head_dim": 32}], "per_layer_config"),
        ({"4": {"head_dim": 32}}, "per_layer_config.4"),
        ({"-1": {"head_dim": 32}}, "per_layer_config.-1"),
        ({"all": {"head_dim": 32}}, "per_layer_config.all"),
        ({"1": 32}, "per_layer_config.1"),
        ({"1": {"head_dim": "wide"}}, "per_layer_config.1.head_dim"),
        ({"1": {"head_dim": 0}}, "per_layer_config.1.head_dim"),
    ],
)
def test_what_cannot_be_read_is_an_error(given, key):
    assert [f.key for f in resolve({**PLAIN, "per_layer_config": given}).errors] == [key]


def test_a_skipped_attention_is_told():
    found = resolve({**PLAIN, "per_layer_config": {"3": {"skip": ["self_attn"]}}})
    assert "RW066" in codes(found)
    assert "RW066" not in codes(resolve({**PLAIN, "per_layer_config": {"3": {"skip": ["mlp"]}}}))


def test_lists_by_layer_that_differ_within_a_kind_are_an_error():
    kinds = {"layer_types": ["full_attention", "sliding_attention"] * 2, "num_hidden_layers": 4}
    for key in ("rope_theta", "partial_rotary_factors"):
        config = {"model_type": "step3p5", **kinds, key: [0.25, 0.5, 0.25, 0.75]}
        (error,) = resolve(config).errors
        assert (error.code, error.key) == ("RW067", f"{key}[3]")
    config = {"model_type": "step3p5", **kinds, "rope_theta": [1e4, 1e6, 1e4]}
    assert [error.code for error in resolve(config).errors] == ["RW052"]


def test_a_class_that_is_not_known_may_have_a_share_for_each_layer():
    config = {**PLAIN, "model_type": "of_its_own", "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5]}
    resolved = resolve({**config, "rope_theta": [1e4, 1e4, 1e6, 1e4]})
    found = [(g.layers, g.rotary_dim, g.theta) for g in resolved.layers]
    assert found == [((0, 3), 32, 1e4), ((1,), 64, 1e4), ((2,), 64, 1e6)]
    assert [resolve(config).layer(i).rotary_dim for i in range(4)] == [32, 64, 64, 32]
    with pytest.raises(ValueError, match="for each layer"):
        emit(resolved, "transformers5")


def test_a_kind_of_layer_without_parameters_is_told():
    config = {"model_type": "gemma3_text", "num_hidden_layers": 2}
    found = resolve({**config, "layer_types": ["full_attention", "global_attention"]})
    assert "RW068" in codes(found)
    assert found.layer(1).kind == "none"
    for kind in ("linear_attention", "sliding_attention"):
        found = resolve({**config, "layer_types": ["full_attention", kind]})
        assert "RW068" not in codes(found)


def test_widths_by_layer_are_not_lost_on_the_way_out():
    config = {**PLAIN, "per_layer_config": {"1": {"head_dim": 128}}}
    for target in ("transformers5", "mlx"):
        with pytest.raises(ValueError, match=r"rotate otherwise|one set of rope"):
            emit(resolve(config), target)


def tiny_dots() -> torch.nn.Module:
    """A model whose sliding layers have heads of their own width."""
    from transformers.models.dots3_note.modeling_dots3_note import Dots3NoteTextModel

    config = live(
        "dots3_note_text",
        {
            "vocab_size": 64,
            "hidden_size": 32,
            "intermediate_size": 32,
            "moe_intermediate_size": 16,
            "shared_experts_intermediate_size": 16,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 24,
            "head_dim": 32,
            "v_head_dim": 16,
            "index_head_dim": 16,
            "index_n_heads": 32,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "max_position_embeddings": 256,
            **{f"swa_{key}": 4 for key in ("num_attention_heads", "num_key_value_heads")},
            **{f"swa_{key}": 16 for key in ("q_lora_rank", "kv_lora_rank", "v_head_dim")},
            "swa_head_dim": 64,
            "swa_qk_nope_head_dim": 48,
        },
    )
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Dots3NoteTextModel(config).eval()


def test_a_live_model_with_widths_by_layer_does_what_its_config_says():
    """Its tables, rotated lanes, caching and lengths: 8 lanes of 32 turn, and 16 of 64."""
    model = tiny_dots()
    resolved = resolve(model.config)
    assert [(g.layers, g.head_dim, g.rotary_dim) for g in resolved.layers] == [
        ((0, 1), 32, 8),
        ((2,), 64, 16),
    ]
    for kind, group in (("indexed", resolved.layer(0)), ("sliding", resolved.layer(2))):
        buffer = model.get_buffer(f"rotary_emb.{kind}_attention_inv_freq")
        ours = torch.tensor(group.inv_freq, dtype=torch.float32)
        assert torch.allclose(buffer, ours, rtol=1e-6, atol=0)
    found = audit(model)
    assert [(f.code, f.message) for f in found.findings if f.severity != "info"] == []
    assert len(found.checks) - len(found.skipped) >= 13
