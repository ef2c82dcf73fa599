"""diff, engines, emit and extend: what follows from a resolved config."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from gguf_files import gguf, llama
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.cli import main
from ropewalk.configs import LayerGroup, Resolved, resolve
from ropewalk.configs.diff import diff
from ropewalk.configs.emit import TARGETS, emit, whole
from ropewalk.configs.engines import ENGINES, read_as
from ropewalk.configs.extend import METHODS, extend
from ropewalk.configs.findings import engines as engine_findings

ROOT = Path(__file__).resolve().parent.parent
ROWS = [
    json.loads(line)
    for line in (ROOT / "tests" / "data" / "configs.jsonl").read_text(encoding="utf-8").splitlines()
]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
QWEN = {
    "model_type": "qwen3",
    "head_dim": 128,
    "num_hidden_layers": 4,
    "rope_theta": 1000000.0,
    "max_position_embeddings": 32768,
}


def only(resolved: Resolved) -> LayerGroup:
    (group,) = [g for g in resolved.text().layers if g.kind == "rotary"]
    return group


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def saved(tmp_path: Path, config: dict[str, Any], name: str = "config.json") -> str:
    path = tmp_path / name
    path.write_text(json.dumps(config))
    return str(path)


# ------------------------------------------------------------------------------ diff


def test_spelling_is_no_difference(tmp_path):
    new = {"rope_parameters": {**LLAMA3, "rope_theta": 5e5}, "max_position_embeddings": 131072}
    old = {"rope_scaling": LLAMA3, "rope_theta": 5e5, "max_position_embeddings": 131072}
    sizes = {"model_type": "llama", "num_hidden_layers": 4, "head_dim": 64}
    a, b = resolve({**sizes, **new}), resolve({**sizes, **old})
    assert diff(a, b).same
    path = tmp_path / "model.gguf"
    plain = resolve({**sizes, "rope_theta": 5e5}).layer(0).inv_freq
    rows = [x / y for x, y in zip(plain, a.layer(0).inv_freq, strict=True)]
    path.write_bytes(gguf(llama(context_length=131072), {"rope_freqs.weight": rows}))
    found = diff(a, resolve(path))
    assert found.same
    assert found.layers[0].notes == ("layout half against interleaved",)


def test_first_positions_at_which_phases_part():
    """Pair 0 alone: frequencies 1 and 1/1.25 part by 0.2 rad a token."""
    a = resolve({"head_dim": 2, "rope_theta": 1e4})
    b = resolve({"head_dim": 2, "rope_scaling": {"type": "linear", "factor": 1.25}})
    found = diff(a, b)
    assert not found.same
    assert found.layers[0].first_positions == {0.1: 1, 1.0: 6}
    assert found.layers[0].largest == pytest.approx(0.2)


def test_differences_are_told_by_layer():
    a = resolve({"model_type": "gemma3_text", "num_hidden_layers": 12})
    b = resolve({"model_type": "gemma3_text", "num_hidden_layers": 12, "rope_theta": 5e5})
    found = diff(a, b)
    same, other = sorted(found.layers, key=lambda row: row.same, reverse=True)
    assert other.layers == (5, 11)
    assert same.layers == tuple(i for i in range(12) if i not in (5, 11))
    assert "theta 1e+06" in other.reasons[0]
    nope = resolve({"model_type": "smollm3", "num_hidden_layers": 12})
    roped = {"model_type": "smollm3", "num_hidden_layers": 12, "no_rope_layers": [1] * 12}
    (row,) = [r for r in diff(nope, resolve(roped)).layers if not r.same]
    assert row.layers == (3, 7, 11)
    assert row.reasons == ("kind none against rotary",)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rope_scaling": {**YARN, "factor": 1.0, "attention_factor": 1.1}}, "attention_factor"),
        ({"partial_rotary_factor": 0.5}, "rotary_dim 128 against 64"),
        ({"rope_scaling": {"type": "default", "mrope_section": [16, 24, 24]}}, "axes one against"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "beyond 32,768 tokens"),
    ],
)
def test_everything_that_changes_attention_is_a_difference(change, reason):
    found = diff(resolve(QWEN), resolve({**QWEN, **change}))
    assert not found.same
    assert reason in "; ".join(found.layers[0].reasons)


def test_a_draft_model_against_its_target():
    draft = {**QWEN, "num_hidden_layers": 1}
    found = diff(resolve(draft), resolve(QWEN))
    assert found.same
    assert "1 layers against 4" in found.notes[0]
    plain = resolve({**draft, "model_type": "llama", "rope_theta": 10000.0})
    assert not diff(plain, resolve(QWEN)).same


def test_diff_of_the_command_line(capsys, tmp_path):
    a, b = saved(tmp_path, QWEN, "a.json"), saved(tmp_path, {**QWEN, "rope_theta": 1e4}, "b.json")
    status, out, _ = run(capsys, "diff", a, b, "--json")
    document = json.loads(out)
    assert (status, document["same"]) == (1, False)
    assert document["layers"][0]["layers"] == [0, 1, 2, 3]
    assert document["layers"][0]["first_position"]["1 rad"] >= 1
    assert run(capsys, "diff", a, a)[:2] == (0, "the same\nlayers 0–3: the same\n")
    status, out, _ = run(capsys, "diff", a, b)
    assert status == 1
    assert "phases differ by more than 0.1 rad at position" in " ".join(out.split())
    assert "both standard input" in run(capsys, "diff", "-", "-")[2]


# ------------------------------------------------------------------------------ engines


def test_transformers_4_does_not_know_rope_parameters():
    block = {**LLAMA3, "rope_theta": 500000.0}
    config = {"model_type": "llama", "head_dim": 128, "rope_parameters": block}
    reading = read_as("transformers4", config)
    group = only(reading.resolved)
    assert (group.theta, group.rope_type) == (10000.0, "default")
    assert group.inv_freq[-1] == pytest.approx(1.155e-4, rel=1e-3)
    assert reading.findings[0].code == "RW100"
    assert not read_as("transformers5", config).findings
    assert read_as("transformers4", {**config, "model_type": "glm_moe_dsa"}).refused


def test_transformers_4_takes_the_ratio_for_the_factor():
    """huggingface/transformers#38224: lowest inv_freq 9.9275e-7, scale 1.02231."""
    config = {**QWEN, "max_position_embeddings": 40960, "rope_scaling": YARN}
    group = only(read_as("transformers4", config).resolved)
    assert group.inv_freq[-1] == pytest.approx(9.9275e-7, rel=1e-4)
    assert group.attention_factor == pytest.approx(1.02231, rel=1e-5)
    assert not read_as("transformers4", {**config, "max_position_embeddings": 131072}).findings


def test_vllm_makes_dynamic_a_constant():
    """vllm-project/vllm#3488: 3 for a factor of 2, whatever the length."""
    config = {"model_type": "llama", "head_dim": 128, "max_position_embeddings": 2048}
    config["rope_scaling"] = {"type": "dynamic", "factor": 2.0}
    group = only(read_as("vllm", config).resolved)
    assert group.theta == pytest.approx(10000 * 3 ** (128 / 126), rel=1e-12)
    assert not group.variants


@pytest.mark.parametrize("engine", ["vllm", "mlx", "llama.cpp"])
def test_engines_that_drop_attention_factor(engine):
    block = {**YARN, "factor": 64, "attention_factor": 1.0}
    reading = read_as(engine, {**QWEN, "rope_scaling": block})
    assert only(reading.resolved).attention_factor == pytest.approx(1.4158883, rel=1e-6)
    usual = {**YARN, "factor": 8.0, "attention_factor": 0.1 * math.log(8) + 1}
    assert not read_as(engine, {**QWEN, "rope_scaling": usual}).findings


@pytest.mark.parametrize("engine", ["transformers4", "transformers5", "mlx"])
def test_engines_that_do_not_know_attn_factor(engine):
    block = {**YARN, "attn_factor": 0.8782488562869419}
    config = {**QWEN, "rope_scaling": block, "max_position_embeddings": 131072}
    assert only(read_as(engine, config).resolved).attention_factor == pytest.approx(1.1386294)
    assert only(read_as("vllm", config).resolved).attention_factor == pytest.approx(1.0)


def test_engines_that_refuse_or_choose_by_capacity():
    dynamic = {**QWEN, "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    for engine in ("llama.cpp", "mlx"):
        assert read_as(engine, dynamic).refused
    lists = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
    longrope = {**YARN, **lists, "rope_type": "longrope"}
    for engine in ("llama.cpp", "vllm"):
        codes = [f.code for f in read_as(engine, {**QWEN, "rope_scaling": longrope}).findings]
        assert "RW102" in codes
    glm = {"model_type": "glm", "head_dim": 128}
    assert only(read_as("mlx", glm).resolved).rotary_dim == 128
    with pytest.raises(ValueError, match="engine='tgi' is unknown; use one of transformers4"):
        read_as("tgi", glm)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reads_the_whole_collection(engine):
    for row in ROWS:
        reading = read_as(engine, row["config"])
        changed = not diff(resolve(row["config"]), reading.resolved).same
        assert not changed or reading.findings, row["name"]


@pytest.mark.parametrize("kind", engine_findings.KINDS, ids=lambda kind: kind.code)
def test_engine_findings_are_shown_by_their_examples(kind):
    assert isinstance(kind.example, dict)
    found = read_as(engine_findings.EXAMPLE_ENGINE[kind.code], kind.example).findings
    assert kind.code in {finding.code for finding in found}


def test_engine_of_the_command_line(capsys, tmp_path):
    config = {**QWEN, "max_position_embeddings": 40960, "rope_scaling": YARN}
    path = saved(tmp_path, config)
    status, out, _ = run(capsys, "explain", path, "--engine", "transformers4", "--json")
    document = json.loads(out)
    assert status == 0
    assert document["engine"]["name"] == "transformers4"
    assert document["engine"]["layers"][0]["attention_factor"] == pytest.approx(1.02231, rel=1e-5)
    assert "RW100" in {f["code"] for f in document["findings"]}
    assert "transformers4 would use" in run(capsys, "explain", path, "--engine", "transformers4")[1]
    assert run(capsys, "explain", path, "--engine", "tgi")[0] == 2
    model = tmp_path / "model.gguf"
    model.write_bytes(gguf(llama()))
    assert (
        "in the keys of transformers" in run(capsys, "explain", str(model), "--engine", "vllm")[2]
    )


# ------------------------------------------------------------------------------ emit


def identical(resolved: Resolved, written: dict[str, Any]) -> None:
    """Resolving what was written gives the same layers, lanes and lengths."""
    back = resolve(written)
    assert diff(resolved, back).same
    assert not back.errors
    ours, theirs = resolved.text(), back.text()
    assert [(g.layers, g.layout) for g in ours.layers] == [
        (g.layers, g.layout) for g in theirs.layers
    ]
    assert ours.context.declared == theirs.context.declared


@pytest.mark.parametrize("target", ["transformers", "transformers4", "transformers5"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_what_is_written_resolves_to_the_same(row, target):
    resolved = resolve(row["config"])
    try:
        written = emit(resolved, target)
    except ValueError as error:
        reasons = "no layer|has an error|transformers 4|needs 5|ask for"
        assert re.search(reasons, str(error))  # noqa: PT017 (a refusal is right for some)
        return
    identical(resolved, json.loads(json.dumps(written)))


BLOCKS = st.one_of(
    st.none(),
    st.fixed_dictionaries({"rope_type": st.just("linear"), "factor": st.floats(1.0, 64.0)}),
    st.fixed_dictionaries({"rope_type": st.just("dynamic"), "factor": st.floats(1.1, 8.0)}),
    st.fixed_dictionaries(
        {
            "rope_type": st.just("yarn"),
            "factor": st.floats(1.0, 64.0),
            "original_max_position_embeddings": st.integers(512, 65536),
        },
        optional={
            "attention_factor": st.floats(0.5, 2.0),
            "beta_fast": st.floats(8.0, 64.0),
            "beta_slow": st.floats(0.5, 4.0),
            "truncate": st.booleans(),
        },
    ),
    st.fixed_dictionaries(
        {
            "rope_type": st.just("llama3"),
            "factor": st.floats(1.0, 64.0),
            "low_freq_factor": st.floats(0.5, 2.0),
            "high_freq_factor": st.floats(2.0, 8.0),
            "original_max_position_embeddings": st.integers(512, 65536),
        }
    ),
    st.fixed_dictionaries(
        {
            "rope_type": st.just("longrope"),
            "short_factor": st.lists(st.floats(1.0, 4.0), min_size=16, max_size=16),
            "long_factor": st.lists(st.floats(1.0, 64.0), min_size=16, max_size=16),
            "original_max_position_embeddings": st.integers(512, 65536),
        }
    ),
)


@settings(max_examples=150)
@given(
    st.sampled_from(["llama", "qwen3", "gpt_neox", "cohere", "glm", "smollm3", None]),
    st.floats(100.0, 1e8),
    BLOCKS,
    st.sampled_from(["transformers", "transformers4", "transformers5"]),
)
def test_emit_then_resolve_is_the_identity(model_type, theta, block, target):
    config: dict[str, Any] = {
        "head_dim": 32,
        "num_hidden_layers": 8,
        "max_position_embeddings": 131072,
        "rope_theta": theta,
        "partial_rotary_factor": 1.0,
        **({"model_type": model_type} if model_type else {}),
        **({"rope_scaling": block} if block else {}),
    }
    if model_type == "gpt_neox":
        config["rotary_emb_base"] = config.pop("rope_theta")
        config["rotary_pct"] = config.pop("partial_rotary_factor")
    resolved = resolve(config)
    identical(resolved, json.loads(json.dumps(emit(resolved, target))))


def test_flags_of_llama_cpp_and_vllm(tmp_path):
    resolved = resolve({**QWEN, "rope_scaling": YARN, "max_position_embeddings": 131072})
    written = emit(resolved, "llama.cpp")
    flags = dict(zip(written["flags"][::2], written["flags"][1::2], strict=True))
    assert flags["--rope-scaling"] == "yarn"
    assert float(flags["--rope-freq-scale"]) == 0.25
    assert flags["--yarn-orig-ctx"] == "32768"
    keys = {
        "general.architecture": "qwen3",
        "qwen3.block_count": 4,
        "qwen3.attention.head_count": 8,
        "qwen3.attention.key_length": 128,
        **{f"qwen3.{k}": v for k, v in written["gguf"].items()},
    }
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf(keys))
    assert diff(resolved, resolve(path)).same
    vllm = emit(resolved, "vllm")
    assert vllm["flags"][0] == "--hf-overrides"
    assert vllm["flags"][2:] == ["--max-model-len", "131072"]
    over = resolve(QWEN, overrides=json.loads(vllm["flags"][1]))
    assert diff(resolved, over).same
    assert diff(resolved, resolve({**QWEN, **vllm})).same


def test_an_attention_factor_becomes_a_multiplier_for_llama_cpp():
    resolved = resolve({**QWEN, "rope_scaling": {**YARN, "attention_factor": 1.0}})
    flags = emit(resolved, "llama.cpp")["flags"]
    times = float(flags[flags.index("--yarn-attn-factor") + 1])
    assert times == pytest.approx(0.8782488562869419, rel=1e-9)


@pytest.mark.parametrize(
    ("config", "target", "reason"),
    [
        ({"model_type": "gpt2"}, "transformers", "no layer of this config rotates"),
        ({"num_hidden_layers": 2, "rope_theta": [1e4, 1e6]}, "transformers5", "for each layer"),
        ({**QWEN, "rope_theta": -1}, "transformers", "RW023"),
        (
            {**QWEN, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
            "vllm",
            "one constant theta",
        ),
        ({**QWEN, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, "llama.cpp", "dynamic"),
        ({"model_type": "gemma3_text"}, "llama.cpp", "one set of rope parameters"),
        ({"model_type": "gemma4_text"}, "transformers4", "needs version 5|needs 5"),
        ({**QWEN, "rope_scaling": {**YARN, "attention_factor": 1.0}}, "mlx", "attention_factor"),
        (QWEN, "tgi", "target='tgi' is unknown; use one of transformers"),
    ],
)
def test_what_a_program_cannot_do_is_refused(config, target, reason):
    with pytest.raises(ValueError, match=reason):
        emit(resolve(config), target)


def test_a_whole_config_keeps_its_other_keys(capsys, tmp_path):
    config = {**QWEN, "architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936}
    config = {**config, "rope_parameters": {**YARN, "rope_theta": 1e6}}
    del config["rope_theta"]
    path = saved(tmp_path, config)
    status, out, _ = run(capsys, "emit", path, "--for", "transformers", "--whole")
    fixed = json.loads(out)
    assert status == 0
    assert fixed["architectures"] == ["Qwen3ForCausalLM"]
    assert fixed["rope_theta"] == 1e6
    assert fixed["rope_scaling"]["factor"] == fixed["rope_parameters"]["factor"] == 4.0
    assert diff(resolve(config), resolve(fixed)).same
    assert not read_as("transformers4", {**fixed, "max_position_embeddings": 131072}).findings
    with pytest.raises(ValueError, match="flags are no config"):
        whole(config, {"flags": []})
    assert run(capsys, "emit", path, "--for", "vllm")[1].startswith("--hf-overrides '{")
    assert set(json.loads(run(capsys, "emit", path, "--for", "vllm", "--json")[1])) >= {"flags"}
    assert run(capsys, "emit", path, "--for", "tgi")[0] == 2
    assert set(TARGETS) == {
        "transformers",
        "transformers4",
        "transformers5",
        "vllm",
        "llama.cpp",
        "mlx",
    }


# ------------------------------------------------------------------------------ extend


def test_a_plan_takes_the_smallest_sufficient_factor():
    plan = extend(resolve(QWEN), 131072)
    assert (plan.factor, plan.native, plan.method) == (4.0, 32768, "yarn")
    expected = resolve({**QWEN, "rope_scaling": YARN, "max_position_embeddings": 131072})
    assert diff(plan.after, expected).same
    assert diff(resolve(plan.config), expected).same
    layers = plan.as_dict()["layers"][0]
    below = sum(32768 * f < 2 * math.pi for f in resolve(QWEN).layer(0).inv_freq)
    assert layers["pairs_below_one_turn"] == below
    assert len(layers["pairs"]) == 64
    near, far = layers["short_text"][0], layers["short_text"][-1]
    assert near["largest"] < far["largest"]
    assert far["distance"] == 32768


def test_equivalents():
    """Catalogue §4: NTK with s = 4, d = 128, base 10000 → 40,890."""
    plan = extend(resolve({**QWEN, "rope_theta": 10000.0}), 131072, "ntk")
    same = plan.equivalents()
    assert same["theta"] == pytest.approx(40890, rel=1e-4)
    assert (same["freq_scale"], same["alpha"]) == (0.25, 4.0)
    assert only(plan.after).theta == pytest.approx(same["theta"])


def test_methods_reach_the_length():
    for method in ("yarn", "linear", "dynamic"):
        plan = extend(resolve(QWEN), 100_000, method)
        assert plan.after.context.scaled == 100_000, method
    dynamic = extend(resolve(QWEN), 131072, "dynamic")
    assert only(dynamic.after).variants[0].above == 32768
    assert dynamic.as_dict()["layers"][0]["short_text"][0]["largest"] == 0.0
    with pytest.raises(ValueError, match="that were searched for this"):
        extend(resolve(QWEN), 131072, "longrope")


def test_warnings_about_combinations():
    llama3 = {"model_type": "llama", "rope_theta": 5e5, "rope_scaling": LLAMA3}
    plan = extend(resolve({**llama3, "max_position_embeddings": 131072}), 262144)
    assert any("scaled already (llama3)" in w for w in plan.warnings)
    (only,) = extend(resolve(QWEN), 1000).warnings
    assert "within the native" in only
    assert extend(resolve(QWEN), 1000).factor == 1.0
    assert diff(extend(resolve(QWEN), 1000).after, resolve(QWEN)).same


def test_layers_with_a_window_stay():
    config = {"model_type": "gemma3_text", "num_hidden_layers": 12}
    plan = extend(resolve(config), 524288, native=131072)
    changed = {a.label: a.inv_freq != b.inv_freq for a, b in plan.groups()}
    assert changed == {"full_attention": True, "sliding_attention": False}


@pytest.mark.parametrize(
    ("arguments", "error", "reason"),
    [
        ((0,), ValueError, "to=0 must be from 1"),
        ((2**40,), ValueError, "must be from 1"),
        ((1.5,), TypeError, "must be an int"),
        ((1024, "magic"), ValueError, "use one of yarn"),
    ],
)
def test_plans_that_cannot_be(arguments, error, reason):
    with pytest.raises(error, match=reason):
        extend(resolve(QWEN), *arguments)
    with pytest.raises(ValueError, match="states no native length"):
        extend(resolve({"head_dim": 64, "rope_theta": 1e4}), 1024)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_extend_of_the_command_line(capsys, tmp_path):
    path, figure = saved(tmp_path, QWEN), tmp_path / "figure.html"
    status, out, _ = run(capsys, "extend", path, "--to", "131072", "--html", str(figure))
    assert status == 0
    for words in ("yarn ×4", "32,768 → 131,072", "original_max_position_embeddings", "freq_scale"):
        assert words in out
    text = figure.read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(text)
    names = [tag for tag, _ in tags.found]
    assert names.count("svg") == 1
    assert names.count("polyline") == 2
    assert "script" not in names
    assert not re.search(r"https?://|src=|@import|url\(", text), "no request to anywhere"
    assert "native 32,768" in text
    status, out, _ = run(capsys, "extend", path, "--to", "131072", "--json")
    assert json.loads(out)["factor"] == 4.0
    assert run(capsys, "extend", path, "--to", "131072", "--method", "magic")[0] == 2
    assert set(METHODS) == {"yarn", "ntk", "linear", "dynamic", "longrope"}


def test_a_label_cannot_write_html(tmp_path):
    from ropewalk.report.wavelengths import page

    nested = {"<script>x</script>": {"rope_theta": 1e4}, "full_attention": {"rope_theta": 1e6}}
    kinds = ["<script>x</script>", "full_attention"]
    config = {"num_hidden_layers": 2, "head_dim": 64, "layer_types": kinds}
    config |= {"rope_parameters": nested, "max_position_embeddings": 4096}
    assert "<script" not in page(extend(resolve(config), 8192))
