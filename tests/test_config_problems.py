"""Problems that people reported, each a config with the right reading; items of the collection."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ropewalk.configs import LayerGroup, Resolved, resolve
from ropewalk.configs.emit import emit
from ropewalk.configs.engines import read_as

LLAMA31 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
QWEN3 = {
    "model_type": "qwen3",
    "max_position_embeddings": 40960,
    "rope_theta": 1e6,
    "head_dim": 128,
    "num_hidden_layers": 36,
    "rope_scaling": YARN,
}


def group_of(config: dict[str, Any]) -> LayerGroup:
    """The only group of layers that rotates."""
    (group,) = [g for g in resolve(config).text().layers if g.kind == "rotary"]
    return group


def codes(config: dict[str, Any] | Resolved) -> set[str]:
    resolved = config if isinstance(config, Resolved) else resolve(config)
    return {finding.code for finding in resolved.findings}


def message(config: dict[str, Any], code: str) -> str:
    """The message of the one finding with this code."""
    (found,) = [f for f in resolve(config).findings if f.code == code]
    return found.message


def theta_of(group: LayerGroup) -> float:
    return group.inv_freq[-1] ** (-group.rotary_dim / (group.rotary_dim - 2))


def test_1_llama_31_is_valid():
    config = {"model_type": "llama", "rope_theta": 500000.0, "rope_scaling": LLAMA31}
    config["max_position_embeddings"] = 131072
    resolved = resolve(config)
    assert not [f for f in resolved.findings if f.severity != "info"]
    assert group_of(config).inv_freq[-1] == pytest.approx(3.0689e-7, rel=1e-4)
    assert resolved.context.as_dict() == {"native": 8192, "scaled": 131072, "declared": 131072}


@pytest.mark.parametrize("block", ["rope_scaling", "rope_parameters"])
def test_1_the_version_that_is_needed(block):
    """Before 4.43 transformers takes {type, factor} alone."""
    config = {"model_type": "llama", "rope_theta": 5e5, "max_position_embeddings": 131072}
    told = read_as("transformers4", {**config, block: LLAMA31}).findings
    needed = [f for f in told if f.code == "RW103"]
    # version 4 does not see rope_parameters at all, so it does not stop at what is in it
    assert bool(needed) == (block == "rope_scaling")
    assert all("4.43" in f.message and "4.43" in f.remedy for f in needed)
    assert not read_as("transformers5", {**config, block: LLAMA31}).findings


def test_16_the_layers_that_differ_are_told():
    """Gemma 3 without rope_scaling: the global layers lose their factor, the others nothing."""
    full = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
    blocks = {"full_attention": full, "sliding_attention": {"rope_type": "default"}}
    config = {"model_type": "gemma3_text", "num_hidden_layers": 12, "rope_parameters": blocks}
    told = next(f for f in read_as("transformers4", config).findings if f.code == "RW100")
    assert "theta=1e+06, default in place of theta=1e+06, linear in layers 5, 11" in told.message


def test_2_type_is_rope_type_and_nesting_is_entered():
    assert group_of({"head_dim": 64, "rope_scaling": {"type": "linear", "factor": 4.0}}).inv_freq[
        0
    ] == pytest.approx(0.25)
    nested = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    config = {"model_type": "gemma3_text", "num_hidden_layers": 12, "rope_parameters": nested}
    groups = {g.label: g for g in resolve(config).layers}
    assert groups["full_attention"].layers == (5, 11)
    assert groups["full_attention"].inv_freq[0] == 0.125
    assert groups["sliding_attention"].inv_freq[0] == 1.0


def test_3_type_and_rope_type_that_differ_are_an_error():
    config = {"rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2.0}}
    assert "RW002" in codes(config)
    assert resolve(config).errors
    assert group_of(config).rope_type == "dynamic", "rope_type is what transformers reads"
    same = {"rope_scaling": {**YARN, "type": "yarn"}}
    assert "RW002" not in codes(same)


@pytest.mark.parametrize("value", [1.0, 1])
def test_5_6_attention_factor_is_final(value):
    block = {**YARN, "factor": 64, "attention_factor": value}
    config = {"head_dim": 128, "rope_scaling": block}
    assert group_of(config).attention_factor == 1.0
    assert "1.415888" in message(config, "RW072")
    kept = {**YARN, "factor": 8.0, "attention_factor": 1.2079441541679836}
    assert "RW072" not in codes({"head_dim": 128, "rope_scaling": kept})


def test_7_yarn_of_qwen_gives_no_warning():
    block = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = {"model_type": "qwen2", "max_position_embeddings": 32768, "rope_scaling": block}
    assert not [f for f in resolve(config).findings if f.severity != "info"]


def test_9_finetuned_is_inert():
    block = {"factor": 16.0, "original_max_position_embeddings": 4096, "type": "yarn"}
    plain = {"model_type": "llama", "rope_scaling": block}
    marked = {"model_type": "llama", "rope_scaling": {**block, "finetuned": True}}
    assert group_of(plain).inv_freq == group_of(marked).inv_freq
    assert codes(plain) == codes(marked)


def test_10_12_the_explicit_factor_wins_and_three_lengths_are_told_apart():
    group = group_of(QWEN3)
    assert group.inv_freq[-1] == pytest.approx(3.1023e-7, rel=1e-4)
    assert group.attention_factor == pytest.approx(1.13863, rel=1e-5)
    resolved = resolve(QWEN3)
    assert resolved.context.as_dict() == {"native": 32768, "scaled": 131072, "declared": 40960}
    assert all(n in message(QWEN3, "RW031") for n in ("32768", "131072", "40960", "1.25"))


def test_11_a_missing_original_length_is_told_with_the_window():
    block = {"rope_type": "yarn", "factor": 4.0}
    config = {"model_type": "llama", "max_position_embeddings": 131072, "rope_scaling": block}
    assert "524288" in message(config, "RW030")
    assert resolve(config).layer(0).provenance["original"].source == "assumed"


def test_11_of_llama3_the_missing_length_is_no_window():
    block = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = {"model_type": "llama", "max_position_embeddings": 65536, "rope_scaling": block}
    assert "decides which pairs are divided" in message(config, "RW030")
    assert "524288" not in message(config, "RW030")
    assert resolve(config).context.scaled == 65536


def test_13_deepseek_v3_is_ramped_over_the_original_length():
    block = {
        "type": "yarn",
        "factor": 40,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
    }
    config = {"model_type": "deepseek_v3", "max_position_embeddings": 163840, "rope_scaling": block}
    plain = [10000 ** (-2 * c / 64) for c in range(32)]
    changed = [c for c, f in enumerate(group_of(config).inv_freq) if abs(f / plain[c] - 1) > 1e-9]
    assert changed[0] == 11, "the ramp starts after pair 10"
    assert not resolve(config).errors


def test_15_linear_reports_both_readings():
    block = {"type": "linear", "factor": 4.0}
    config = {"model_type": "llama", "max_position_embeddings": 16384, "rope_scaling": block}
    assert all(n in message(config, "RW032") for n in ("16384", "65536", "4096"))
    readings = resolve(config).context.as_dict()["readings"]
    assert readings == [{"native": 16384, "scaled": 65536}, {"native": 4096, "scaled": 16384}]


def test_16_17_a_file_that_only_version_5_reads_is_told():
    block = {"rope_type": "default", "rope_theta": 500000.0}
    config = {"model_type": "llama", "rope_parameters": block}
    assert group_of(config).theta == 500000.0
    assert "500000" in message(config, "RW011")
    assert "10000" in message(config, "RW011")
    assert "RW011" not in codes({**config, "rope_theta": 500000.0})
    newer = {"model_type": "glm_moe_dsa", "rope_parameters": block}
    assert "RW011" not in codes(newer), "no transformers 4 has the class"
    scaled = {"model_type": "llama", "rope_parameters": {**LLAMA31, "rope_theta": 500000.0}}
    scaled["max_position_embeddings"] = 131072
    assert group_of(scaled).inv_freq[-1] == pytest.approx(3.0689e-7, rel=1e-4)
    assert "llama3" in message(scaled, "RW011")


def test_18_old_and_new_spelling_are_one():
    old = {"model_type": "llama", "rope_theta": 5e5, "rope_scaling": LLAMA31}
    new = {"model_type": "llama", "rope_parameters": {**LLAMA31, "rope_theta": 5e5}}
    assert group_of(old).inv_freq == group_of(new).inv_freq


def test_20_theta_lost_by_an_override_is_told():
    block = {**YARN, "rope_theta": None}
    config = {"model_type": "llama", "rope_parameters": block}
    assert "RW024" in codes(config)
    assert resolve(config).errors


def test_23_default_rope_in_the_new_spelling_is_no_scaling():
    block = {"rope_type": "default", "rope_theta": 1e4}
    config = {"model_type": "deepseek_v3", "rope_parameters": block, "qk_rope_head_dim": 64}
    group = group_of(config)
    assert (group.rope_type, group.softmax_scale_factor, group.rotary_dim) == ("default", 1.0, 64)


def test_25_the_factor_of_the_file_counts():
    block = {**LLAMA31, "factor": 32.0}
    config = {"model_type": "llama", "head_dim": 64, "rope_theta": 5e5, "rope_scaling": block}
    assert group_of(config).inv_freq[-1] == pytest.approx(9.4183e-8, rel=1e-4)


def test_28_numbers_of_llama3_with_type_default_contradict():
    config = {"model_type": "llama", "rope_scaling": {**LLAMA31, "rope_type": "default"}}
    (finding,) = [f for f in resolve(config).findings if f.code == "RW005"]
    assert finding.severity == "error"
    assert "llama3" in finding.remedy


def test_30_equal_bounds_are_a_hard_cut():
    block = {**LLAMA31, "factor": 16.0, "high_freq_factor": 1.0}
    config = {"head_dim": 128, "rope_theta": 5e5, "rope_scaling": block, "model_type": "llama"}
    assert "RW084" in codes(config)
    assert not resolve(config).errors
    assert all(math.isfinite(f) for f in group_of(config).inv_freq)


@pytest.mark.parametrize(
    ("block", "code"),
    [
        ({"rope_type": "linear", "factor": 0.5}, "RW025"),
        ({"rope_type": "linear", "factor": "2"}, "RW020"),
        ({"rope_type": "linear", "factor": [2]}, "RW021"),
        ({"rope_type": "linear", "factor": float("nan")}, "RW022"),
        ({"rope_type": "linear", "factor": -2.0}, "RW026"),
        ({"rope_type": "linear"}, "RW006"),
        ({"rope_type": "linar", "factor": 2.0}, "RW003"),
        ({"rope_type": "yarn", "factor": 4.0, "orginal_max_position_embeddings": 4096}, "RW004"),
        ({"rope_type": "linear", "factor": 2.0, "beta_fast": 32}, "RW004"),
        ("linear", "RW021"),
    ],
)
def test_32_wrong_values_are_told_early(block, code):
    config = {"model_type": "llama", "max_position_embeddings": 4096, "rope_scaling": block}
    found = [f for f in resolve(config).findings if f.code == code]
    assert found, codes(config)
    assert found[0].key is not None
    assert found[0].key.startswith("rope_scaling")


def test_32_an_integer_factor_is_fine_and_unknown_types_are_guessed():
    config = {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 8}}
    assert not resolve(config).errors
    wrong = {"model_type": "llama", "rope_scaling": {"rope_type": "longrop", "factor": 8.0}}
    assert "did you mean longrope" in message(wrong, "RW003")


def test_34_overrides_are_laid_over_the_config():
    block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 262144}
    config = {"model_type": "qwen3", "max_position_embeddings": 262144, "rope_theta": 1e6}
    changed = resolve(config, overrides={"rope_parameters": block})
    assert changed.layer(0).rope_type == "yarn"
    assert changed.layer(0).theta == 1e6
    assert changed.context.scaled == 1048576
    nested = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}
    deep = resolve(nested, overrides={"text_config": {"num_hidden_layers": 6}})
    assert len(deep.parts["text_config"].layers) == 2


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_36_sections_in_either_block(key):
    block = {"type": "default", "mrope_section": [16, 24, 24]}
    config = {"model_type": "qwen2_vl_text", "hidden_size": 8192, "num_attention_heads": 64}
    assert group_of({**config, key: block}).axes == "T" * 16 + "H" * 24 + "W" * 24


def test_39_40_dynamic_follows_the_length():
    block = {"type": "dynamic", "factor": 2.0}
    config = {"model_type": "llama", "max_position_embeddings": 4096, "rope_scaling": block}
    group = group_of(config)
    assert theta_of(group) == pytest.approx(10000, rel=1e-9)
    variant = group.variants[0]
    assert variant.inv_freq[-1] ** (-128 / 126) == pytest.approx(30527.74, rel=1e-6)
    assert "RW083" in codes(config)


def test_47_longrope_switches_after_the_original_length():
    block = {
        "type": "longrope",
        "short_factor": [1.0] * 64,
        "long_factor": [2.0] * 64,
        "original_max_position_embeddings": 4096,
    }
    config = {"head_dim": 128, "max_position_embeddings": 131072, "rope_scaling": block}
    group = group_of(config)
    assert group.spectrum(4096).inv_freq[0] == 1.0
    assert group.spectrum(4097).inv_freq[0] == 0.5


@pytest.mark.parametrize("model_type", ["minimax_m2", None])
def test_33_50_a_share_is_applied_once(model_type):
    config = {"head_dim": 128, "rotary_dim": 64, "partial_rotary_factor": 0.5}
    config = {**config, "model_type": model_type} if model_type else config
    assert group_of(config).rotary_dim == 64
    assert "32" in message(config, "RW040")
    wrong = {**config, "rotary_dim": 32}
    assert "RW041" in codes(wrong)
    assert resolve(wrong).errors


def test_53_glm_rotates_half_although_the_file_does_not_say_so():
    config = {"model_type": "glm", "head_dim": 128}
    group = group_of(config)
    assert (group.rotary_dim, group.layout) == (64, "interleaved")
    assert group.provenance["rotary_dim"].source == "class default"
    assert "64 of 128" in message(config, "RW047")


def test_54_a_share_and_sections_together():
    block = {"mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25, "rope_theta": 1e7}
    block = {**block, "rope_type": "default", "mrope_interleaved": True}
    config = {"model_type": "qwen3_5_text", "head_dim": 256, "rope_parameters": block}
    assert group_of(config).rotary_dim == 64
    wrong = {**config, "rope_parameters": {**block, "mrope_section": [24, 20, 20]}}
    assert "RW043" in codes(wrong)


def test_56_phi_4_keeps_its_attention_factor():
    block = {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
    config = {
        "model_type": "phi3",
        "hidden_size": 3072,
        "num_attention_heads": 24,
        "partial_rotary_factor": 0.75,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": block,
    }
    group = group_of(config)
    assert (group.head_dim, group.rotary_dim) == (128, 96)
    assert group.attention_factor == pytest.approx(1.190238, rel=1e-6)


def test_61_a_rope_key_does_not_prove_rotation():
    config = {"model_type": "nemotron_h", "rope_theta": 10000, "partial_rotary_factor": 1.0}
    resolved = resolve({**config, "num_hidden_layers": 4})
    assert [g.kind for g in resolved.layers] == ["none"]
    assert "RW055" in codes(resolved)
    kimi = {"qk_rope_head_dim": 64, "mla_use_nope": True, "num_hidden_layers": 4}
    assert [g.kind for g in resolve(kimi).layers] == ["none"]


def test_63_gemma_3_scales_global_layers_only():
    config = {"model_type": "gemma3_text", "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
    groups = {g.label: g for g in resolve(config).layers}
    wide, local = groups["full_attention"], groups["sliding_attention"]
    assert wide.layers == tuple(i for i in range(26) if (i + 1) % 6 == 0)
    assert (wide.theta, wide.inv_freq[0]) == (1e6, 0.125)
    assert (local.theta, local.inv_freq[0]) == (1e4, 1.0)
    assert "full_attention" in message(config, "RW056")


def test_65_66_smollm3():
    config = {"model_type": "smollm3", "num_hidden_layers": 36, "num_attention_heads": 16}
    off = [i for g in resolve(config).layers if g.kind == "none" for i in g.layers]
    assert off == list(range(3, 36, 4))
    flags = {**config, "no_rope_layers": [1, 1, 1, 0] * 9}
    assert [i for g in resolve(flags).layers if g.kind == "none" for i in g.layers] == off
    assert "rope is on in layers 0–2" in message(flags, "RW053")
    assert "RW054" in codes({**config, "no_rope_layers": []})
    assert "RW052" in codes({**config, "no_rope_layers": [1, 0]})


def test_75_one_model_with_two_layouts():
    assert "half" in message({"model_type": "deepseek_v32", "index_head_dim": 128}, "RW049")
    glm5 = {"model_type": "glm_moe_dsa", "index_head_dim": 128, "indexer_rope_interleave": True}
    assert "RW049" not in codes(glm5)


def test_108_tables_with_rows_to_spare():
    """BART and OPT: position + 2; RoBERTa: 514 rows, padding_idx 1 → 512 tokens."""
    opt = resolve({"model_type": "opt", "max_position_embeddings": 2048})
    assert opt.layers[0].kind == "learned"
    assert opt.layers[0].details == {"row_of_first_position": 2, "rows": 2050, "tokens": 2048}
    roberta = resolve({"model_type": "roberta", "max_position_embeddings": 514})
    assert roberta.layers[0].details == {"row_of_first_position": 2, "rows": 514, "tokens": 512}
    assert resolve({"model_type": "gpt2"}).layers[0].details["row_of_first_position"] == 0


@pytest.mark.parametrize("model_type", ["roberta", "xlm-roberta", "camembert", "longformer"])
@pytest.mark.parametrize(("pad", "first"), [(0, 1), (3, 4), (None, 2)])
def test_108_rows_behind_that_of_the_padding_token(model_type, pad, first):
    """transformers: cumsum of real tokens + padding_idx, so the first token has row pad + 1."""
    config = {"model_type": model_type, "max_position_embeddings": 514, "pad_token_id": pad}
    found = resolve(config).layers[0].details
    assert found == {"row_of_first_position": first, "rows": 514, "tokens": 514 - first}
    assert f"position 0 is row {first} " in message(config, "RW087")


def test_108_classes_with_an_offset_of_their_own_ignore_the_padding_token():
    for model_type in ("mpnet", "opt", "bart"):
        config = {"model_type": model_type, "max_position_embeddings": 514, "pad_token_id": 0}
        assert resolve(config).layers[0].details["row_of_first_position"] == 2
    assert "RW026" in codes({"model_type": "roberta", "pad_token_id": -1})


def test_112_alibi_of_heads_that_are_no_power_of_two():
    config = {"model_type": "mpt", "n_heads": 24, "attn_config": {"alibi": True}}
    assert resolve(config).layers[0].kind == "alibi"
    assert "16 heads, then every second one of 32" in message(config, "RW086")
    baichuan = {"model_type": "baichuan", "num_attention_heads": 40, "hidden_size": 5120}
    assert resolve(baichuan).layers[0].kind == "alibi"
    assert "RW086" not in codes({"model_type": "bloom", "num_attention_heads": 16})
    falcon = {"model_type": "falcon", "alibi": True}
    assert resolve(falcon).layers[0].kind == "alibi"


def test_117_truncate_false_keeps_the_ramp_fractional():
    block = {**YARN, "factor": 32.0, "original_max_position_embeddings": 4096}
    config = {"model_type": "gpt_oss", "head_dim": 64, "rope_theta": 150000.0}
    exact = group_of({**config, "rope_scaling": {**block, "truncate": False}}).inv_freq[17]
    whole = group_of({**config, "rope_scaling": block}).inv_freq[17]
    assert max(exact, whole) / min(exact, whole) - 1 == pytest.approx(0.76, abs=0.01)


def test_118_mscale_goes_to_the_softmax_scale():
    block = {**YARN, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707}
    group = group_of({"model_type": "deepseek_v2", "rope_scaling": block})
    assert group.attention_factor == 1.0
    assert group.softmax_scale_factor == pytest.approx(1.58963, rel=1e-5)
    alone = {**YARN, "mscale": 0.707}
    assert "RW074" in codes({"model_type": "llama", "rope_scaling": alone})
    ministral = group_of({"model_type": "ministral3", "rope_parameters": {**block, "factor": 16.0}})
    assert ministral.softmax_scale_factor == 1.0


def test_125_what_a_static_scaling_does_to_short_text():
    assert "pairs turn by another angle" in message(QWEN3, "RW080")
    assert "1.13863" in message(QWEN3, "RW080")
    longer = {**QWEN3, "rope_scaling": {**YARN, "factor": 8.0}}
    assert message(longer, "RW080") != message(QWEN3, "RW080")


@pytest.mark.parametrize(("theta", "code"), [(-1, "RW023"), (0, "RW023"), (None, "RW024")])
def test_theta_that_cannot_be(theta, code):
    config = {"model_type": "modernbert", "global_rope_theta": 10000.0, "local_rope_theta": theta}
    if theta is None:
        config = {"model_type": "llama", "rope_theta": None}
    resolved = resolve(config)
    assert code in codes(resolved)
    assert resolved.errors
    for group in resolved.layers:
        assert all(math.isfinite(f) for f in group.inv_freq)


def test_an_exporter_that_wrote_one_theta_for_both_kinds_of_layers():
    config = {"model_type": "gemma3_text", "rope_theta": 10000.0, "rope_local_base_freq": 10000.0}
    assert "1000000" in message(config, "RW058")


def test_a_length_off_by_a_digit_swap():
    block = {**YARN, "original_max_position_embeddings": 32786}
    config = {"model_type": "llama", "max_position_embeddings": 131144, "rope_scaling": block}
    assert "32768" in message(config, "RW033")
    assert "RW033" not in codes({"model_type": "llama", "max_position_embeddings": 40960})


def test_spellings_that_disagree():
    block = {"rope_type": "default", "rope_theta": 1e6}
    config = {"model_type": "llama", "rope_theta": 5e5, "rope_parameters": block}
    assert all(n in message(config, "RW001") for n in ("500000", "1000000"))
    both = {"rope_scaling": YARN, "rope_parameters": {**YARN, "factor": 2.0}}
    assert "RW001" in codes({"model_type": "llama", **both})
    same = {"model_type": "llama", "rope_theta": 1e6, "rope_parameters": block}
    assert "RW001" not in codes(same)


def test_attn_factor_multiplies():
    block = {**YARN, "attn_factor": 0.8782488562869419}
    config = {"model_type": "qwen3", "rope_scaling": block}
    assert group_of(config).attention_factor == pytest.approx(1.0, abs=1e-9)
    assert "1.138629" in message(config, "RW070")
    both = {**block, "attention_factor": 1.2}
    assert "RW071" in codes({"model_type": "qwen3", "rope_scaling": both})


def test_parameters_of_layer_kinds_without_a_list_of_layers():
    nested = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    config = {"num_hidden_layers": 4, "head_dim": 64, "rope_parameters": nested}
    assert "RW051" in codes(config)
    kinds = ["sliding_attention", "full_attention"] * 2
    assert "RW051" not in codes({**config, "layer_types": kinds})


@pytest.mark.parametrize(
    "block",
    [
        {"rope_theta": 1000000.0, "rope_scaling": YARN},
        {"rope_parameters": {**YARN, "rope_theta": 1000000.0}},
        {"rope_theta": 1000000, "rope_scaling": {**YARN, "type": "yarn"}},
        {"rotary_emb_base": 1000000.0, "rope_scaling": YARN},
        {"rope_scaling": {**YARN, "rope_theta": 1000000.0}},
    ],
)
def test_every_spelling_gives_one_result(block):
    group = group_of({"head_dim": 128, **block})
    assert group.inv_freq == group_of(QWEN3).inv_freq
    assert group.attention_factor == group_of(QWEN3).attention_factor


def test_a_theta_for_each_layer():
    """granite_swa: layer_rope_theta, where 0 is no rotation."""
    config = {"model_type": "granite_swa", "num_hidden_layers": 4}
    resolved = resolve({**config, "layer_rope_theta": [1e4, 0, 1e6, 1e4]})
    assert [(g.layers, g.theta) for g in resolved.layers] == [
        ((0, 3), 1e4),
        ((1,), None),
        ((2,), 1e6),
    ]
    listed = {"num_hidden_layers": 3, "head_dim": 64}
    groups = resolve({**listed, "rope_theta": [1e4, 1e6, 1e4]}).layers
    assert [g.layers for g in groups] == [(0, 2), (1,)]
    assert "RW052" in codes({**listed, "rope_theta": [1e4, 1e6]})
    assert "RW021" in codes({**listed, "rope_theta": [1e4, "x", 1e4]})
    assert "RW023" in codes({**listed, "rope_theta": [1e4, -1, 1e4]})


def test_overrides_of_vllm_stand_beside_the_config():
    block = {**YARN, "rope_theta": 1e6}
    beside = {"model_type": "qwen3", "head_dim": 128, "hf_overrides": {"rope_parameters": block}}
    assert group_of(beside).inv_freq == group_of(QWEN3).inv_freq


def test_first_files_of_qwen2_vl_have_their_text_keys_at_the_top():
    config = {
        "model_type": "qwen2_vl",
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "rope_theta": 1000000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "vision_config": {"depth": 32, "embed_dim": 1280, "num_heads": 16, "hidden_size": 3584},
    }
    resolved = resolve(config)
    assert [g.layers for g in resolved.layers] == [tuple(range(28))]
    assert resolved.layers[0].axes == "T" * 16 + "H" * 24 + "W" * 24
    vision = resolved.parts["vision_config"].layers[0]
    assert (vision.head_dim, vision.axes, len(vision.layers)) == (80, "H" * 20 + "W" * 20, 32)
    assert not resolved.errors


def test_longrope_with_a_magnitude_for_each_list():
    block = {"type": "longrope", "short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
    block |= {"short_mscale": 1.243163121016122, "long_mscale": 1.243163121016122}
    block["original_max_position_embeddings"] = 4096
    config = {"model_type": "phimoe", "max_position_embeddings": 131072, "rope_scaling": block}
    group = group_of(config)
    assert group.attention_factor == group.variants[0].attention_factor == 1.243163121016122


def test_alpha_counts_for_the_classes_that_read_it():
    block = {"type": "dynamic", "alpha": 1000.0, "factor": 2.0}
    sizes = {"head_dim": 128, "max_position_embeddings": 4096, "rope_scaling": block}
    static = group_of({"model_type": "hunyuan_v1_dense", **sizes})
    assert theta_of(static) == pytest.approx(1.11588e7, rel=1e-5)
    assert not static.variants
    dynamic = group_of({"model_type": "llama", **sizes})
    assert theta_of(dynamic) == pytest.approx(1e4)
    assert dynamic.variants
    assert "RW004" in codes({"model_type": "llama", **sizes})


@pytest.mark.parametrize(
    ("model_type", "sections", "axes"),
    [
        ("cosmos3_edge_text", None, "THW" * 20 + "TTTT"),
        ("cosmos3_edge_text", [16, 24, 24], "THW" * 21 + "T"),
        ("qwen2_vl_text", None, "T" * 16 + "H" * 24 + "W" * 24),
    ],
)
@pytest.mark.parametrize("flag", [None, True, False])
def test_36_102_the_class_orders_its_axes(model_type, sections, axes, flag):
    """Rotary classes of transformers 5.24: none of them reads mrope_interleaved."""
    block: dict = {"rope_type": "default", "rope_theta": 1e6}
    if sections is not None:
        block["mrope_section"] = sections
    if flag is not None:
        block["mrope_interleaved"] = flag
    config = {"model_type": model_type, "head_dim": 128, "rope_parameters": block}
    config = {**config, "hidden_size": 1024, "num_attention_heads": 8}
    assert resolve(config).layers[0].axes == axes
    contradicts = flag is not None and flag != axes.startswith("THW")
    assert ("RW076" in codes(config)) == contradicts


@pytest.mark.parametrize("name", ["Qwen3VLText", "Cosmos3EdgeText", "HYV4VLText", "Qwen4ExpText"])
@pytest.mark.parametrize("flag", [None, False])
def test_36_102_axes_are_those_of_the_running_class(name, flag):
    """One position of three is moved by one; the lanes that turn are that axis's."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    import importlib

    config = getattr(transformers, f"{name}Config")()
    sections = {"qwen4_exp_text": [11, 11, 10], "hy_v4_vl_text": [12, 10, 10]}
    share = {"partial_rotary_factor": 0.25} if name == "Qwen4ExpText" else {}
    block = {"rope_type": "default", "rope_theta": 1e4, **share}
    block["mrope_section"] = sections.get(config.model_type, [24, 20, 20])
    if flag is not None:
        block["mrope_interleaved"] = flag
    config.rope_parameters = block
    family = config.model_type.removesuffix("_text")
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    kind = next(
        c for n, c in vars(module).items() if n.endswith("RotaryEmbedding") and "Vision" not in n
    )
    rotary, still = kind(config), torch.zeros(3, 1, 1, dtype=torch.long)
    turned = []
    for axis in range(3):
        where = still.clone()
        where[axis] = 1
        sines = rotary(torch.zeros(1, 1, 8), where)[1].flatten()
        turned.append(sines[: len(sines) // 2] != 0)
    ran = "".join("THW"[[bool(t[i]) for t in turned].index(True)] for i in range(len(turned[0])))
    resolved = resolve({**config.to_dict(), "rope_parameters": block})
    assert {g.axes for g in resolved.layers if g.kind == "rotary"} == {ran}


def test_36_sections_for_a_class_of_one_axis():
    block = {"rope_type": "default", "mrope_section": [16, 24, 24]}
    llama = {"model_type": "llama", "head_dim": 128, "rope_scaling": block}
    assert "every pair by one position" in message(llama, "RW075")
    assert "RW075" not in codes({**llama, "model_type": "qwen2_5_vl_text"})
    assert "RW075" not in codes({**llama, "model_type": "of_its_own"})
    assert "RW075" not in codes({**llama, "model_type": "hunyuan_vl_text"})


@pytest.mark.parametrize(
    ("model_type", "key", "value", "contradicts"),
    [
        ("glm_moe_dsa", "rope_interleave", False, True),
        ("glm_moe_dsa", "indexer_rope_interleave", False, True),
        ("glm_moe_dsa", "indexer_rope_interleave", True, False),
        ("deepseek_v32", "indexer_rope_interleave", True, True),
        ("deepseek_v32", "indexer_rope_interleave", False, False),
        ("llama", "rope_interleaved", True, True),
        ("deepseek_v3", "rope_interleave", False, False),
        ("of_its_own", "rope_interleave", True, False),
    ],
)
def test_75_a_flag_of_layout_that_the_class_does_not_read(model_type, key, value, contradicts):
    """transformers 5.24: GLM-5's indexer interleaves, DeepSeek-V3.2's halves, without a key."""
    config = {"model_type": model_type, "index_head_dim": 128, key: value}
    assert ("RW077" in codes(config)) == contradicts
    usual = {"model_type": model_type, "index_head_dim": 128}
    if contradicts:
        assert ("RW049" in codes(config)) == ("RW049" in codes(usual))
        assert resolve(config).layers[0].layout == resolve(usual).layers[0].layout


def test_36_every_class_with_sections_is_known_to_have_axes():
    """Else a multimodal model would be read as one of a single axis, without a word."""
    transformers = pytest.importorskip("transformers")
    from pathlib import Path

    from ropewalk.configs.architectures import facts

    models = Path(transformers.__file__).parent / "models"
    files = [f for f in models.glob("*/modeling_*.py") if "mrope_section" in f.read_text("utf-8")]
    assert len(files) >= 20
    for file in files:
        name = file.parent.name
        rows = [facts(t).row for t in (f"{name}_text", name)]
        assert any("order" in row or "axes_rule" in row for row in rows), name


def test_36_rows_and_columns_in_turns():
    """NeoMME: even pairs turn by the row, odd ones by the column."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.models.neomme.modeling_neomme import NeoMMERotaryEmbedding

    config = transformers.NeoMMEConfig()
    rotary = NeoMMERotaryEmbedding(config)
    for group in resolve(config.to_dict()).layers:
        kind = config.layer_types[group.layers[0]]
        for axis, letter in enumerate("HW"):
            where = torch.zeros(2, 1, 1, dtype=torch.long)
            where[axis] = 1
            sines = rotary(torch.zeros(1, 1, 8), where, kind)[1].flatten()
            turned = (sines[: len(sines) // 2] != 0).tolist()
            assert turned == [a == letter for a in group.axes or ""]


SMOLLM3 = {"model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16}
OF_GPT_OSS = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}


@pytest.mark.parametrize(
    ("layers", "keys"),
    [
        (9, {"no_rope_layer_interval": 3}),
        (8, {"no_rope_layers": [1] * 8}),
        (8, {}),
        (8, {"no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0]}),
    ],
)
def test_65_llama_cpp_has_one_rule_for_layers_that_stand(layers, keys):
    config = {**SMOLLM3, "num_hidden_layers": layers, **keys}
    built_in = not keys or keys == {"no_rope_layers": [1, 1, 1, 0] * 2}
    reading = read_as("llama.cpp", config)
    assert ("RW100" in {f.code for f in reading.findings}) == (not built_in)
    off = [i for g in reading.resolved.layers if g.kind == "none" for i in g.layers]
    assert off == [i for i in range(layers) if (i + 1) % 4 == 0]
    if built_in:
        assert emit(resolve(config), "llama.cpp")
    else:
        with pytest.raises(ValueError, match="but every fourth"):
            emit(resolve(config), "llama.cpp")


@pytest.mark.parametrize("truncate", [True, False, None])
def test_117_llama_cpp_rounds_the_ramp(truncate):
    """gpt-oss: 8.0928 … 17.3980 becomes 8 … 18, which moves pair 17."""
    block = {**OF_GPT_OSS, **({} if truncate is None else {"truncate": truncate})}
    config = {"model_type": "qwen2", "head_dim": 64, "rope_theta": 150000, "rope_scaling": block}
    reading = read_as("llama.cpp", {**config, "max_position_embeddings": 131072})
    found = {f.code for f in reading.findings}
    assert ("RW100" in found) == (truncate is False)
    mine, theirs = (r.layers[0].inv_freq for r in (resolve(config), reading.resolved))
    assert (mine[17] == theirs[17]) == (truncate is not False)


@pytest.mark.parametrize("model_type", ["gptj", "codegen", "roformer"])
def test_37_a_theta_that_no_key_changes(model_type):
    told = resolve({"model_type": model_type, "rope_theta": 5e5}).findings
    assert any("remove it" in f.remedy for f in told if f.code == "RW012")
    other = resolve({"model_type": "llama", "rotary_emb_base": 5e5}).findings
    assert any(f.remedy == "write it as rope_theta" for f in other if f.code == "RW012")
