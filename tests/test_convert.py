"""Conversions between pair layouts: what moves, what is proved, and through which doors."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import LLAMA, files, llama_tensors, loaded, normal, save
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from ropewalk import RoPE, rotate
from ropewalk.cli import main
from ropewalk.configs import resolve
from ropewalk.models import convert
from ropewalk.models.conversion import families, packing, rules, turns, writing
from ropewalk.models.conversion.families import Family
from ropewalk.models.conversion.names import Part
from ropewalk.models.conversion.turns import Turn, order
from ropewalk.spectra import Spectrum

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))


def test_the_order_of_lanes():
    """problems.md 69: llama.cpp's permutation of a head of 8, and the way back."""
    assert order(8, "half") == (0, 2, 4, 6, 1, 3, 5, 7)
    assert order(8, "interleaved") == (0, 4, 1, 5, 2, 6, 3, 7)


@pytest.mark.parametrize("width", [2, 4, 6, 8, 64])
@pytest.mark.parametrize("to", ["half", "interleaved"])
def test_the_way_back_undoes_the_way_there(width: int, to: str):
    back = {"half": "interleaved", "interleaved": "half"}[to]
    there = np.array(order(width, to))
    assert (there[np.array(order(width, back))] == np.arange(width)).all()


@st.composite
def packed(draw: Any) -> tuple[str, int, int, int]:
    kind = draw(st.sampled_from(sorted(packing.PACKINGS)))
    keys = draw(st.integers(1, 3)) * (4 if kind == "quarters" else 1)
    shared = 1 if kind in ("by_head", "quarters") else draw(st.integers(1, 3))
    return kind, keys * shared, keys, draw(st.sampled_from([2, 4, 8]))


def splitted(kind: str, x: np.ndarray, h: int, k: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """q and k heads as the code of models takes a fused projection apart."""
    if kind == "blocks":  # phi3: slices one after the other
        return x[: h * d].reshape(h, d), x[h * d : (h + k) * d].reshape(k, d)
    if kind == "by_head":  # GPT-NeoX: view(heads, 3 · d).chunk(3)
        parts = x.reshape(h, 3, d)
        return parts[:, 0], parts[:, 1]
    if kind == "by_group":  # Falcon 40B, InternLM2: view(groups, heads a group + 2, d)
        parts = x.reshape(k, h // k + 2, d)
        return parts[:, :-2].reshape(h, d), parts[:, -2]
    parts = x.reshape(4, 3, h // 4, d)  # CodeGen: view(4, …), then q, v, k
    return parts[:, 0].reshape(h, d), parts[:, 2].reshape(h, d)


@given(packed())
def test_heads_are_where_the_models_take_them_from(case: tuple[str, int, int, int]):
    kind, h, k, d = case
    q, keys, rows = packing.PACKINGS[kind](h, k, d)
    x = np.arange(rows)
    wanted = splitted(kind, x, h, k, d)
    assert [list(range(s, s + d)) for s in q] == wanted[0].tolist()
    assert [list(range(s, s + d)) for s in keys] == wanted[1].tolist()


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_scores_are_kept_for_any_lanes(
    heads: int, pairs: int, before: int, after: int, to_half: bool
):
    """Leading and trailing lanes around the rotated ones stay where they are."""
    was, to = ("interleaved", "half") if to_half else ("half", "interleaved")
    d, width = before + 2 * pairs + after, 2 * pairs
    turn = Turn(0, tuple(i * d + before for i in range(heads)), (), width)
    index = turn.sources(heads * d, to)
    spectra = [
        Spectrum((tuple(0.7**i for i in range(pairs)),), d, layout=layout, lane_offset=before)
        for layout in (was, to)
    ]
    q, k = torch.randn(2, heads, 3, d, dtype=torch.float64)
    scores = []
    for spectrum, sources in zip(spectra, (np.arange(heads * d), index), strict=True):
        moved = [
            x.transpose(0, 1).reshape(3, -1)[:, sources].reshape(3, heads, d).transpose(0, 1)
            for x in (q, k)
        ]
        a, b = (rotate(x, torch.tensor([3, 70, 901]), spectrum) for x in moved)
        scores.append(a @ b.transpose(-1, -2))
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-12, atol=1e-12)
    kept = [i for i in range(heads * d) if not before <= i % d < before + width]
    assert (index[kept] == kept).all()


def test_lanes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="do not fit 8 entries"):
        Turn(0, (0, 2), (), 4).sources(8, "half")
    with pytest.raises(ValueError, match="do not fit"):
        Turn(0, (6,), (), 4).sources(8, "half")


ARCHITECTURES = [
    "llama",  # separate, shared keys
    "qwen2",  # biases
    "qwen3",  # a norm of each head's lanes
    "olmo2",  # a norm of all lanes
    "stablelm",  # a part of the lanes
    "phi",  # a part, with biases
    "cohere",  # interleaved
    "glm",  # interleaved, a part
    "gpt_neox",  # packed head by head
    "phi3",  # packed in blocks
    "falcon",  # packed in blocks or groups
    "codegen",  # packed in quarters
    "gptj",
    "deepseek_v3",  # latent, with a key for the layout
    "deepseek_v2",  # latent
    "gemma3",  # two kinds of layers
    "smollm3",  # layers without rotation
    "gpt_oss",
]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_model_of_transformers_computes_the_same(name: str, tmp_path: Path):
    """Its own class, its rotation replaced by the one for the other layout; and it must show."""
    convert_sweep, tiny_models = map(importlib.import_module, ("convert_sweep", "tiny_models"))
    unit = next(
        u for u in tiny_models.units(tiny_models.file_of(name)) if u.name.endswith("ForCausalLM")
    )
    tried = convert_sweep.try_out(unit, tmp_path)
    assert tried.error < convert_sweep.BOUND
    assert tried.effect > convert_sweep.SEEN


OPTIONS: dict[str, dict[str, Any]] = {
    "stablelm": {"qk_layernorm": True},  # a norm for each head by itself
    "persimmon": {"qk_layernorm": True},
    "falcon": {"new_decoder_architecture": True},
    "falcon: one key head": {"new_decoder_architecture": False, "multi_query": True},
    "falcon: head by head": {
        "new_decoder_architecture": False,
        "multi_query": False,
        "num_kv_heads": 4,
    },
    "cohere": {"use_qk_norm": True},  # a norm with rows for heads
    "deepseek_v3": {"q_lora_rank": None, "rope_interleave": False},
    "phi": {"qk_layernorm": True},
}


@pytest.mark.parametrize(("name", "options"), OPTIONS.items())
def test_options_of_a_class_that_change_its_weights(
    name: str, options: dict[str, Any], tmp_path: Path
):
    sweep, tiny, configs = map(
        importlib.import_module, ("convert_sweep", "tiny_models", "tiny_configs")
    )
    units = tiny.units(tiny.file_of(name.split(":")[0]))
    unit = next(u for u in units if u.name.endswith("ForCausalLM"))
    config = configs.tiny_config(unit.config)
    config.update({"alibi": False, **options} if "falcon" in name else options)
    torch.manual_seed(0)
    with sweep.quiet():
        model = unit.model(config).float().eval()
        tiny.energise(model)
        tried = sweep.compared(model, tiny.inputs(model), tmp_path)
    assert tried.error < sweep.BOUND
    assert tried.effect > sweep.SEEN


def test_the_page_lists_what_is_known_and_proved():
    page = (ROOT / "docs" / "converted.md").read_text(encoding="utf-8")
    listed = {line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")}
    assert listed - {"model_type"} == families.PROVED


@pytest.mark.parametrize("shards", [1, 3])
def test_there_and_back_is_the_same_files(shards: int, tmp_path: Path):
    a = save(tmp_path / "a", llama_tensors(), shards=shards)
    there = convert(a, tmp_path / "b", to="interleaved")
    back = convert(tmp_path / "b", tmp_path / "c", to="half")
    names = set(files(a))
    assert names == set(files(tmp_path / "b")) == set(files(tmp_path / "c"))
    for name in names - {"config.json"}:
        assert files(a)[name] == files(tmp_path / "c")[name], name
    assert json.loads((tmp_path / "c" / "config.json").read_text()) == LLAMA
    assert (there.tensors, there.of, there.layers) == (4, 20, 2)
    assert (there.was, there.to, back.to) == ("half", "interleaved", "half")
    assert there.scores < 1e-12
    assert all(value < 1e-5 for value in there.modules.values()), there.modules


def test_only_rows_of_q_and_k_move(tmp_path: Path):
    before = llama_tensors()
    convert(save(tmp_path / "a", before), tmp_path / "b", to="interleaved")
    after = loaded(tmp_path / "b")
    there = [0, 4, 1, 5, 2, 6, 3, 7]
    for name, x in before.items():
        if "q_proj" in name or "k_proj" in name:
            x = x.reshape(-1, 8, 32)[:, there].reshape(x.shape)
        np.testing.assert_array_equal(after[name], x, name)


def test_explain_reads_the_layout_of_the_output(tmp_path: Path):
    a = save(tmp_path / "a", llama_tensors())
    done = convert(a, tmp_path / "b", to="interleaved")
    resolved = resolve(tmp_path / "b")
    assert resolved.layer(0).layout == "interleaved"
    assert resolved.layer(0).provenance["layout"].source == "file:ropewalk_layout"
    assert [f.severity for f in resolved.findings if f.code == "RW063"] == ["warning"]
    assert RoPE.from_config(tmp_path / "b").spectrum.layout == "interleaved"
    assert done.recorded == "ropewalk_layout"
    assert any("wrong" in words and "transformers" in words for words in done.consumers)


def test_a_layout_that_is_no_layout_is_an_error():
    found = resolve({**LLAMA, "ropewalk_layout": ["half"]})
    assert [f.key for f in found.errors] == ["ropewalk_layout"]
    assert found.layer(0).layout == "half"


def test_a_key_of_the_class_is_used_where_it_has_one(tmp_path: Path):
    config = {
        "model_type": "deepseek_v3",
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "kv_lora_rank": 16,
        "q_lora_rank": 24,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
    }
    attention = "model.layers.0.self_attn."
    tensors = {
        "q_a_proj": normal(24, 32),
        "q_a_layernorm": normal(24),
        "q_b_proj": normal(2 * 12, 24),
        "kv_a_proj_with_mqa": normal(20, 32),
        "kv_a_layernorm": normal(16),
        "kv_b_proj": normal(2 * 16, 16),
        "o_proj": normal(32, 16),
    }
    named = {f"{attention}{name}.weight": x for name, x in tensors.items()}
    done = convert(save(tmp_path / "a", named, config), tmp_path / "b", to="half")
    assert done.recorded == "rope_interleave"
    assert json.loads((tmp_path / "b" / "config.json").read_text())["rope_interleave"] is False
    assert resolve(tmp_path / "b").layer(0).layout == "half"
    assert all(isinstance(v, float) for v in done.modules.values()), done.modules
    after = loaded(tmp_path / "b")
    q = tensors["q_b_proj"].reshape(2, 12, 24)[:, [*range(8), 8, 10, 9, 11]].reshape(24, 24)
    np.testing.assert_array_equal(after[f"{attention}q_b_proj.weight"], q)
    k = tensors["kv_a_proj_with_mqa"][[*range(16), 16, 18, 17, 19]]
    np.testing.assert_array_equal(after[f"{attention}kv_a_proj_with_mqa.weight"], k)
    for name in ("q_a_proj", "q_a_layernorm", "kv_a_layernorm", "kv_b_proj", "o_proj"):
        np.testing.assert_array_equal(after[f"{attention}{name}.weight"], tensors[name])


@settings(
    deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    keys=st.integers(1, 3),
    shared=st.integers(1, 3),
    dim=st.sampled_from([4, 8, 12]),
    norm=st.sampled_from(["none", "lanes", "all"]),
    bias=st.booleans(),
)
def test_any_heads_biases_and_norms(
    tmp_path_factory: pytest.TempPathFactory,
    keys: int,
    shared: int,
    dim: int,
    norm: str,
    bias: bool,
):
    folder = tmp_path_factory.mktemp("m")
    config = LLAMA | {
        "model_type": {"none": "llama", "lanes": "qwen3", "all": "olmo2"}[norm],
        "num_hidden_layers": 1,
        "num_attention_heads": keys * shared,
        "num_key_value_heads": keys,
        "head_dim": dim,
        "attention_bias": bias,
    }
    tensors = llama_tensors(config)
    rows = {"q": keys * shared * dim, "k": keys * dim}
    for side, size in rows.items():
        if norm != "none":
            width = dim if norm == "lanes" else size
            tensors[f"model.layers.0.self_attn.{side}_norm.weight"] = normal(width, seed=5)
        if bias:
            tensors[f"model.layers.0.self_attn.{side}_proj.bias"] = normal(size, seed=6)
    done = convert(save(folder / "a", tensors, config), folder / "b", to="interleaved")
    assert done.tensors == 2 + 2 * bias + 2 * (norm != "none")
    there = list(order(dim, "interleaved"))
    after = loaded(folder / "b")
    for name, x in tensors.items():
        moves = any(f"{side}_{what}" in name for side in "qk" for what in ("proj", "norm"))
        wanted = x.reshape(-1, dim, *x.shape[1:])[:, there].reshape(x.shape) if moves else x
        np.testing.assert_array_equal(after[name], wanted, name)


def test_dtypes_stay_and_scales_of_blocks_too(tmp_path: Path):
    """fp8 in blocks of 128 rows: heads do not leave their block, so scales stay as they are."""
    config = LLAMA | {
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
    from safetensors.torch import load_file as load
    from safetensors.torch import save_file as store

    tensors: dict[str, Any] = {}
    for name, x in llama_tensors(config).items():
        tensors[name] = torch.from_numpy(x).to(torch.bfloat16)
        if "self_attn" in name:
            tensors[name] = tensors[name].to(torch.float8_e4m3fn)
            tensors[name + "_scale_inv"] = torch.rand(-(-x.shape[0] // 128), 1)
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    store(tensors, folder / "model.safetensors")
    done = convert(folder, tmp_path / "b", to="interleaved")
    after = load(tmp_path / "b" / "model.safetensors")
    assert {n: t.dtype for n, t in after.items()} == {n: t.dtype for n, t in tensors.items()}
    assert done.dtype == "F8_E4M3"
    name = "model.layers.0.self_attn.q_proj.weight"
    there = list(order(64, "interleaved"))
    wanted = tensors[name].view(torch.uint8).reshape(4, 64, -1)[:, there].reshape(256, -1)
    assert torch.equal(after[name].view(torch.uint8), wanted)
    assert torch.equal(after[name + "_scale_inv"], tensors[name + "_scale_inv"])
    small = {**config, "head_dim": 96, "quantization_config": {"weight_block_size": [64, 64]}}
    heads = rules.Heads(96, 0, 96, 4, 2, None, rules.block_rows(small))
    part = Part("", 0, "q_proj", "q", "weight_scale_inv")
    with pytest.raises(ValueError, match="lanes would leave their block"):
        rules.turn_of(part, (6, 1), heads, Family(), 384)


def test_a_file_alone_goes_with_the_config_beside_it(tmp_path: Path):
    a = save(tmp_path / "a", llama_tensors())
    convert(a / "model.safetensors", tmp_path / "b", to="interleaved")
    assert set(files(tmp_path / "b")) == {"config.json", "model.safetensors"}


def test_the_layout_that_the_caller_knows_wins(tmp_path: Path):
    a = save(tmp_path / "a", llama_tensors())
    done = convert(a, tmp_path / "b", to="half", from_="interleaved")
    assert (done.was, done.recorded) == ("interleaved", None)
    assert (a / "config.json").read_bytes() == (tmp_path / "b" / "config.json").read_bytes()
    x = llama_tensors()["model.layers.0.self_attn.k_proj.weight"]
    wanted = x.reshape(2, 8, 32)[:, [0, 2, 4, 6, 1, 3, 5, 7]].reshape(x.shape)
    np.testing.assert_array_equal(
        loaded(tmp_path / "b")["model.layers.0.self_attn.k_proj.weight"], wanted
    )


def test_weights_of_meta_with_their_own_names(tmp_path: Path):
    params = {"dim": 32, "n_layers": 1, "n_heads": 4, "n_kv_heads": 2, "head_dim": 8}
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "params.json").write_text(json.dumps(params))
    tensors = {
        "layers.0.attention.wq.weight": normal(32, 32),
        "layers.0.attention.wk.weight": normal(16, 32),
        "layers.0.attention.wv.weight": normal(16, 32, seed=1),
        "layers.0.attention.wo.weight": normal(32, 32, seed=1),
    }
    save_file(tensors, folder / "consolidated.safetensors")
    done = convert(folder, tmp_path / "b", to="half")
    assert (done.was, done.tensors) == ("interleaved", 2)
    assert resolve(tmp_path / "b").layer(0).layout == "half"
    with pytest.raises(ValueError, match="pairs its lanes half already"):
        convert(tmp_path / "b", tmp_path / "c", to="half")


def lora(folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    config = {"peft_type": "LORA", "base_model_name_or_path": "some/llama", "r": 4} | changes
    (folder / "adapter_config.json").write_text(json.dumps(config))
    tensors = {}
    for module, rows in (("q_proj", 32), ("k_proj", 16), ("v_proj", 16)):
        name = f"base_model.model.model.layers.1.self_attn.{module}."
        tensors[name + "lora_A.weight"] = normal(4, 32)
        tensors[name + "lora_B.weight"] = normal(rows, 4)
        tensors[name + "lora_magnitude_vector"] = normal(rows, seed=3)
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def test_an_adapter_moves_as_its_base_does(tmp_path: Path):
    """W + B·A of the converted base and adapter is the converted sum."""
    base = save(tmp_path / "base", llama_tensors())
    convert(base, tmp_path / "base2", to="interleaved")
    a = lora(tmp_path / "a")
    done = convert(a, tmp_path / "b", to="interleaved", base=base)
    assert done.tensors == 4
    before, after = loaded(a), loaded(tmp_path / "b")
    weights, turned = loaded(base), loaded(tmp_path / "base2")
    there = list(order(8, "interleaved"))
    for module in ("q_proj", "k_proj", "v_proj"):
        name = f"model.layers.1.self_attn.{module}."
        full = "base_model.model." + name
        total = (
            weights[name + "weight"]
            + before[full + "lora_B.weight"] @ before[full + "lora_A.weight"]
        )
        wanted = (
            total if module == "v_proj" else total.reshape(-1, 8, 32)[:, there].reshape(total.shape)
        )
        summed = (
            turned[name + "weight"] + after[full + "lora_B.weight"] @ after[full + "lora_A.weight"]
        )
        np.testing.assert_allclose(summed, wanted, atol=1e-6)
        rows = before[full + "lora_magnitude_vector"]
        rows = rows if module == "v_proj" else rows.reshape(-1, 8)[:, there].ravel()
        np.testing.assert_array_equal(after[full + "lora_magnitude_vector"], rows)
    record = json.loads((tmp_path / "b" / "ropewalk_layout.json").read_text())
    assert record["layout"] == "interleaved"
    assert done.consumers[1].endswith("on one that pairs them half")
    back = convert(tmp_path / "b", tmp_path / "c", to="half", base=base)
    assert files(tmp_path / "c") == files(a)
    assert back.recorded is None


@pytest.mark.parametrize(
    ("changes", "base", "words"),
    [
        ({"peft_type": "LOHA"}, LLAMA, "peft_type 'LOHA'"),
        ({"layer_replication": [[0, 2]]}, LLAMA, "layer_replication"),
        ({}, None, "give the config of that model with --base"),
        ({}, LLAMA | {"num_key_value_heads": 4}, "k_proj.lora_B.weight: it has 16 rows"),
    ],
)
def test_adapters_that_cannot_be_proved_are_refused(
    changes: dict[str, Any], base: Any, words: str, tmp_path: Path
):
    with pytest.raises(ValueError, match=words):
        convert(lora(tmp_path / "a", **changes), tmp_path / "b", to="interleaved", base=base)


def swapped(width: int, to: str) -> tuple[int, ...]:
    """A permutation that comes back, and puts the second lane of each pair first."""
    n = width // 2
    there = [i // 2 + n * (1 - i % 2) for i in range(width)]
    return tuple(there if to == "interleaved" else np.argsort(there).tolist())


def test_bugs_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Planted: keys left as they were; lanes of every pair swapped."""
    a = save(tmp_path / "a", llama_tensors())
    with monkeypatch.context() as patched:
        move = writing.moved
        patched.setattr(
            writing,
            "moved",
            lambda data, e, t, to: data if "k_proj" in e.name else move(data, e, t, to),
        )
        with pytest.raises(ValueError, match=r"k_proj\.weight does not come back as it was"):
            convert(a, tmp_path / "b", to="interleaved")
    with monkeypatch.context() as patched:
        patched.setattr(turns, "order", swapped)
        with pytest.raises(ValueError, match="scores of q and k differ"):
            convert(a, tmp_path / "b", to="interleaved")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_wrong_packing_is_seen_by_the_real_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The conversion agrees with itself whatever it believes; the model's class can tell."""
    config = {
        "model_type": "phi3", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4,
        "num_hidden_layers": 1, "intermediate_size": 32, "vocab_size": 32, "pad_token_id": 0,
    }  # fmt: skip
    tensors = {
        "model.layers.0.self_attn.qkv_proj.weight": normal(96, 32),
        "model.layers.0.self_attn.o_proj.weight": normal(32, 32),
    }
    a = save(tmp_path / "a", tensors, config)
    done = convert(a, tmp_path / "b", to="interleaved")
    assert all(value < 1e-5 for value in done.modules.values()), done.modules
    monkeypatch.setitem(packing.PACKINGS, "blocks", packing.by_head)
    with pytest.raises(ValueError, match="attention of transformers gives outputs that differ"):
        convert(a, tmp_path / "c", to="interleaved")


def test_the_command_says_what_was_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a = save(tmp_path / "a", llama_tensors())
    (a / "pytorch_model.bin").write_bytes(b"")
    assert main(["convert", str(a), str(tmp_path / "b"), "--to", "interleaved"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("llama: half → interleaved", "4 of 20 tensors", "equal byte for byte"):
        assert words in shown
    assert "wrong, without a word, in transformers" in shown
    assert "pytorch_model.bin" in shown
    assert (
        main(["convert", str(tmp_path / "b"), str(tmp_path / "c"), "--to", "half", "--json"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["was"], told["to"], told["recorded"]) == ("interleaved", "half", None)
    assert load_file(tmp_path / "c" / "model.safetensors").keys() == llama_tensors().keys()


def test_progress_counts_up_to_all(tmp_path: Path):
    seen: list[tuple[int, int]] = []
    big = llama_tensors() | {"model.embed_tokens.weight": normal(32, 1 << 17)}
    a = save(tmp_path / "a", big)
    convert(a, tmp_path / "b", to="interleaved", progress=lambda *now: seen.append(now))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1] == 32


def test_the_examples_of_the_page_run():
    page = (ROOT / "docs" / "convert.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.S)
    scope: dict[str, Any] = {}
    exec(example, scope)
    assert scope["done"].to == scope["rope"].spectrum.layout == "interleaved"
    for name in families.KNOWN.keys() - families.PROVED:
        assert name in page, name
