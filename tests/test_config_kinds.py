"""Kinds of mistakes in configs, each in several spellings and places."""

from __future__ import annotations

from math import isclose
from typing import Any

import pytest

from ropewalk.configs import resolve
from ropewalk.configs.diff import diff
from ropewalk.configs.emit import emit

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
HEAD = {"head_dim": 128, "rope_theta": 1e6, "max_position_embeddings": 131072}


def found(config: dict[str, Any], code: str) -> list[str | None]:
    return [f.key for f in resolve(config).findings if f.code == code]


def errors(config: dict[str, Any]) -> list[str]:
    return [f.code for f in resolve(config).errors]


@pytest.mark.parametrize(
    "block",
    [
        {"rope_type": "linear", "factor": 2},
        {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
        {"rope_type": "dynamic", "factor": 2.0},
    ],
)
@pytest.mark.parametrize("model_type", ["minimax_m3_vl_vision", "qwen2_vl_vision", "gemma4_vision"])
def test_image_axes_are_never_scaled(model_type, block):
    sizes = {"hidden_size": 512, "embed_dim": 512, "num_attention_heads": 4, "num_heads": 4}
    config = {"model_type": model_type, **sizes, "max_position_embeddings": 4096}
    plain, scaled = resolve(config).layers[0], resolve({**config, "rope_scaling": block}).layers[0]
    assert scaled.inv_freq == plain.inv_freq
    assert (scaled.attention_factor, scaled.variants) == (1.0, ())
    assert len(found({**config, "rope_scaling": block}, "RW061")) == 1


@pytest.mark.parametrize(
    ("config", "key", "usual"),
    [
        ({"max_position_embeddings": 40906}, "max_position_embeddings", 40960),
        ({"max_position_embeddings": 163480}, "max_position_embeddings", 163840),
        (
            {
                "layer_types": ["full_attention"],
                "rope_parameters": {
                    "full_attention": {**YARN, "original_max_position_embeddings": 32786}
                },
            },
            "rope_parameters.full_attention.original_max_position_embeddings",
            32768,
        ),
    ],
)
def test_digits_in_another_order(config, key, usual):
    findings = resolve({"head_dim": 64, **config}).findings
    told = [f for f in findings if f.code == "RW033"]
    assert [f.key for f in told] == [key]
    assert str(usual) in told[0].message


def test_lengths_that_are_usual_are_not_suspicious():
    for length in (2048, 40960, 163840, 202752, 204800, 514, 1026, 131072, 12288):
        assert not found({"head_dim": 64, "max_position_embeddings": length}, "RW033")


def test_original_length_inside_and_outside_the_block():
    config = {**HEAD, "original_max_position_embeddings": 4096, "rope_scaling": YARN}
    assert found(config, "RW001") == ["rope_scaling.original_max_position_embeddings"]
    same = {**config, "original_max_position_embeddings": 32768}
    assert not errors(same)


def test_a_theta_that_repeats_that_of_one_kind_of_layers_is_no_contradiction():
    sets = {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    config = {"head_dim": 64, "num_hidden_layers": 2, "rope_parameters": sets}
    config["layer_types"] = list(sets)
    assert not errors({**config, "rope_theta": 1e6})
    assert [g.theta for g in resolve({**config, "rope_theta": 1e6}).layers] == [1e6, 1e4]
    assert "RW001" in errors({**config, "rope_theta": 5e5})


def test_a_rotated_share_under_a_name_that_the_class_does_not_read():
    config = {"model_type": "gpt_neox", "hidden_size": 256, "num_attention_heads": 2}
    config |= {"rotary_pct": 0.25}
    assert found({**config, "partial_rotary_factor": 0.5}, "RW012") == ["partial_rotary_factor"]
    assert not found({**config, "partial_rotary_factor": 0.25}, "RW012")


@pytest.mark.parametrize(
    ("model_type", "name"),
    [("llama", "mrope"), ("qwen3", "deepseek_yarn"), ("mistral", "su"), ("llama", "xdrope")],
)
def test_a_rope_type_of_another_library_stops_a_class_of_transformers(model_type, name):
    lists = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64, "alpha": 2.0}
    sections = {"mrope_section": [16, 24, 24]} if name == "mrope" else {}
    extra = lists if name in ("su", "xdrope") else {}
    block = {**YARN, **extra, **sections, "rope_type": name}
    config = {"model_type": model_type, **HEAD, "rope_scaling": block}
    assert found(config, "RW013") == ["rope_scaling.rope_type"]


@pytest.mark.parametrize(
    ("name", "config", "rotary"),
    [
        ("su", "Phi3Config", "phi3.modeling_phi3.Phi3RotaryEmbedding"),
        ("su", "PhiConfig", "phi.modeling_phi.PhiRotaryEmbedding"),
        ("su", "PhimoeConfig", "phimoe.modeling_phimoe.PhimoeRotaryEmbedding"),
        ("phi3", "PhiConfig", "phi.modeling_phi.PhiRotaryEmbedding"),
        ("none", "LlamaConfig", "llama.modeling_llama.LlamaRotaryEmbedding"),
        ("mrope", "Qwen2VLTextConfig", "qwen2_vl.modeling_qwen2_vl.Qwen2VLRotaryEmbedding"),
        ("mrope", "Qwen3VLTextConfig", "qwen3_vl.modeling_qwen3_vl.Qwen3VLTextRotaryEmbedding"),
        ("mrope", "Glm4vTextConfig", "glm4v.modeling_glm4v.Glm4vTextRotaryEmbedding"),
        (
            "mrope",
            "PaddleOCRTextConfig",
            "paddleocr_vl.modeling_paddleocr_vl.PaddleOCRRotaryEmbedding",
        ),
        (
            "xdrope",
            "HunYuanVLTextConfig",
            "hunyuan_vl.modeling_hunyuan_vl.HunYuanVLRotaryEmbedding",
        ),
        (
            "xdrope",
            "HunYuanDenseV1Config",
            "hunyuan_v1_dense.modeling_hunyuan_v1_dense.HunYuanDenseV1RotaryEmbedding",
        ),
        (
            "ntk_alpha",
            "HunYuanDenseV1Config",
            "hunyuan_v1_dense.modeling_hunyuan_v1_dense.HunYuanDenseV1RotaryEmbedding",
        ),
    ],
)
def test_32_an_alias_is_told_just_where_the_class_stops(name, config, rotary):
    transformers = pytest.importorskip("transformers")
    import importlib

    lists = {"short_factor": [1.0] * 32, "long_factor": [1.0] * 32}
    mscales = {"short_mscale": 1.0, "long_mscale": 1.0}
    alphas = {"alpha": 50.0, "xdrope_section": [8, 8, 8, 8]}
    sections = {"mrope_section": [8, 12, 12] if name == "mrope" else [8, 8, 8, 8]}
    extra = {"su": {**lists, **mscales}, "phi3": lists}.get(name, {**alphas, **sections})
    block = {"type": name, "factor": 2.0, "rope_theta": 1e4, "partial_rotary_factor": 1.0, **extra}
    block["original_max_position_embeddings"] = 64
    sizes = {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2}
    sizes |= {"head_dim": 64, "num_hidden_layers": 1, "max_position_embeddings": 128}
    kind = getattr(transformers, config)
    file, _, class_name = rotary.rpartition(".")
    module = importlib.import_module(f"transformers.models.{file}")
    try:
        getattr(module, class_name)(kind(**sizes, pad_token_id=0, rope_scaling=dict(block)))
        stops = False
    except KeyError:
        stops = True
    told = found({"model_type": kind.model_type, **sizes, "rope_scaling": block}, "RW013")
    assert bool(told) == stops


def test_what_to_write_for_an_alias_can_be_written():
    block = {"rope_type": "xdrope", "alpha": 50.0}
    told = resolve({"model_type": "llama", **HEAD, "rope_scaling": block}).findings
    remedies = [f.remedy for f in told if f.code in ("RW007", "RW013")]
    assert len(remedies) == 2
    assert all("rope_type=default and rope_theta" in remedy for remedy in remedies)
    shouted = resolve({"rope_scaling": {"rope_type": "YARN", "factor": 2.0}}).findings
    assert any("did you mean yarn?" in f.message for f in shouted)


def test_names_that_a_class_replaces_are_fine():
    mrope = {"type": "mrope", "mrope_section": [16, 24, 24]}
    assert not errors({"model_type": "qwen2_vl_text", "rope_scaling": mrope})
    lists = {"short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
    su = {"type": "su", **lists}
    phi = {"model_type": "phi3", "original_max_position_embeddings": 4096, "rope_scaling": su}
    assert not errors(phi)
    assert not errors({"model_type": "of_its_own", **HEAD, "rope_scaling": mrope})


def test_a_list_of_texts_is_one_mistake():
    block = {"type": "longrope", "short_factor": [1.0] * 64, "long_factor": ["2.0"] * 64}
    config = {**HEAD, "rope_scaling": {**block, "original_max_position_embeddings": 4096}}
    assert found(config, "RW020") == ["rope_scaling.long_factor[0]"]


def test_class_defaults_are_no_mistake_of_the_file():
    for model_type in ("efficientloftr", "qwen3_omni_moe_text", "glm5_next_text"):
        assert errors({"model_type": model_type}) == []


def test_a_rotation_of_the_whole_row():
    """efficientloftr: f = base^(−2c/(hidden/2)), each for rows and for columns."""
    group = resolve({"model_type": "efficientloftr"}).layers[0]
    assert (group.rotary_dim, group.axes, group.layout) == (256, "HW" * 64, "interleaved")
    for c in range(64):
        want = 10000.0 ** (-c / 64)
        assert all(isclose(group.inv_freq[2 * c + i], want, rel_tol=1e-12) for i in (0, 1))


def test_halves_of_a_head_are_two_spectra():
    group = resolve({"model_type": "gemma4_vision"}).layers[0]
    with pytest.raises(ValueError, match="spectra"):
        group.spectrum()
    rows, columns = group.spectra()
    assert (rows.lane_offset, columns.lane_offset) == (0, group.head_dim // 2)
    assert rows.rotary_dim == columns.rotary_dim == group.head_dim // 2
    assert rows.matrices[0][0] == columns.matrices[0][1] == group.inv_freq[:16]
    assert set(columns.matrices[0][0]) == {0.0}


def test_a_flat_theta_belongs_to_the_layers_whose_theta_it_is():
    """deepseek_v4: compressed layers keep compress_rope_theta."""
    block = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e6}
    kinds = ["sliding_attention", "compressed_sparse_attention"]
    config = {"model_type": "deepseek_v4", "num_hidden_layers": 2, "layer_types": kinds}
    thetas = {g.theta for g in resolve({**config, "rope_parameters": block}).layers}
    assert thetas == {160000.0, 5e6}


def test_a_theta_for_each_layer_is_written_for_the_class_that_reads_it():
    config = {"model_type": "granite_swa", "num_hidden_layers": 4}
    resolved = resolve({**config, "layer_rope_theta": [1e4, 0, 1e6, 1e4]})
    written = emit(resolved, "transformers5")
    assert written["layer_rope_theta"] == [1e4, 0, 1e6, 1e4]
    assert diff(resolved, resolve(written)).same
    with pytest.raises(ValueError, match="version 5"):
        emit(resolved, "transformers4")


@pytest.mark.parametrize("model_type", ["mimo_v2_flash", "dory", "embedding_gemma2_text"])
def test_nothing_is_written_that_reads_back_otherwise(model_type):
    resolved = resolve({"model_type": model_type})
    with pytest.raises(ValueError, match=r"transformers 4|version 5"):
        emit(resolved, "transformers4")
    assert diff(resolved, resolve(emit(resolved, "transformers5"))).same


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "mistral", "gemma2", "cohere"])
def test_a_share_that_the_class_does_not_read_is_told(model_type):
    """transformers rotates all lanes with rope_type default, and the share with a scaling."""
    from config_reference import config_class, frequencies, rotary_module

    given: dict[str, Any] = {"hidden_size": 256, "num_attention_heads": 4, "head_dim": 64}
    given["partial_rotary_factor"] = 0.25
    made = config_class(model_type)
    assert made is not None
    module = rotary_module(made(**given))
    assert module is not None
    assert [len(f) for f in frequencies(module).values()] == [32]
    config = {"model_type": model_type, **given}
    assert found(config, "RW062") == ["partial_rotary_factor"]
    assert resolve(config).layers[0].rotary_dim == 16
    scaled = {**config, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    module = rotary_module(made(**given, rope_scaling=scaled["rope_scaling"]))
    assert module is not None
    assert [len(f) for f in frequencies(module).values()] == [8]
    assert not found(scaled, "RW062")
    assert not found({**config, "partial_rotary_factor": 1.0}, "RW062")


@pytest.mark.parametrize("model_type", ["phi", "glm4", "minimax_m2", "stablelm", "of_its_own"])
def test_a_share_that_the_class_reads_is_not_told(model_type):
    config = {"model_type": model_type, "head_dim": 64, "partial_rotary_factor": 0.25}
    assert not found(config, "RW062")


def test_keys_of_an_unknown_type_are_not_called_a_contradiction():
    block = {**YARN, "rope_type": "yarm"}
    assert errors({**HEAD, "rope_scaling": block}) == ["RW003"]


@pytest.mark.parametrize(
    "model_type",
    [
        "qwen2_5_omni_audio_encoder",
        "qwen3_omni_moe_audio_encoder",
        "mllama_vision_model",
        "gemma3n_vision",
        "phi4_multimodal_vision",
        "hunyuan_vl_vision",
    ],
)
def test_parts_beside_a_rotating_text_do_not_rotate_for_its_sake(model_type):
    """Their files hold a rotating function, which only the text part calls."""
    assert [g.kind for g in resolve({"model_type": model_type}).layers] == ["other"]


def test_the_scaling_of_mpt():
    attention = {"alibi": False, "rope": True, "rope_theta": 500000, "rope_impl": "hf"}
    sizes = {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 2}

    def first(**more: Any) -> Any:
        return resolve({**sizes, "attn_config": {**attention, **more}}).layers[0]

    plain = first()
    scaled = first(rope_hf_config={"type": "linear", "factor": 2.0})
    assert scaled.rope_type == "linear"
    assert scaled.inv_freq[1] == plain.inv_freq[1] / 2
    assert scaled.provenance["factor"].key == "attn_config.rope_hf_config.factor"
    assert first(rope_hf_config={"type": "no_scaling", "factor": 1.0}).rope_type == "default"
    dail = first(rope_impl="dail", rope_hf_config={"type": "linear", "factor": 2.0})
    assert dail.inv_freq == plain.inv_freq


def test_clvp_rotates_32_lanes():
    group = resolve({"model_type": "clvp_encoder"}).layers[0]
    assert (group.kind, group.rotary_dim, len(group.inv_freq)) == ("rotary", 32, 16)


def test_a_head_too_narrow_for_three_axes():
    config = {"model_type": "minimax_m3_vl_vision", "hidden_size": 64, "num_attention_heads": 16}
    group = resolve(config).layers[0]
    assert (group.rotary_dim, group.axes) == (4, None)
