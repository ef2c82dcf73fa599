"""Every collected config resolves to what transformers, or a stated value, says."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from config_reference import config_class, frequencies, rotary_module, text_config

from ropewalk.configs import LayerGroup, Resolved, resolve
from ropewalk.configs.architectures import HERE, facts

ROOT = Path(__file__).resolve().parent.parent
ROWS = [
    json.loads(line)
    for line in (ROOT / "tests" / "data" / "configs.jsonl").read_text(encoding="utf-8").splitlines()
]
BY_NAME: dict[str, dict[str, Any]] = {row["name"]: row["config"] for row in ROWS}
CLOSE = 1e-6


def config_of(start: str) -> dict[str, Any]:
    """The config whose name starts so."""
    (name,) = [name for name in BY_NAME if name.startswith(start)]
    return BY_NAME[name]


def rotating(resolved: Resolved) -> list[LayerGroup]:
    return [group for group in resolved.text().layers if group.kind == "rotary"]


def only(resolved: Resolved) -> LayerGroup:
    (group,) = rotating(resolved)
    return group


def geometric(theta: float, dim: int) -> list[float]:
    return [theta ** (-2 * c / dim) for c in range(dim // 2)]


def as_transformers_reads(config: dict[str, Any]) -> Any | None:
    """The text part's config object, or None if transformers has no class or refuses the file."""
    own = config_class(config.get("model_type"))
    if own is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return text_config(own(**{k: v for k, v in config.items() if k != "model_type"}))


FRAGMENTS = {
    "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B": "factor is missing, which transformers refuses",
    "tencent/HunyuanOCR (text part)": "the text part alone is not what the class takes",
    "tencent/HY-MT1.5-1.8B": "the type key is missing; transformers takes default",
    "ModernBERT pretrain export with -1": "theta −1 gives nan there",
    "nvidia/Nemotron-H-56B-Base-8K": "no rotation",
    "nvidia/Kimi-K2.7-Code-NVFP4": "its vision part is empty",
    "Salesforce/codegen-2B-mono [CodeGenConfig default]": "a table in place of a rotary module",
    "facebook/dinov3-vits16-pretrain-lvd1689m [DINOv3ViTConfig default]": "not of text",
}
"""Configs that transformers cannot be asked about, and why."""


def comparable() -> list[str]:
    return [
        row["name"]
        for row in ROWS
        if facts(row["config"].get("model_type")).known
        and config_class(row["config"].get("model_type")) is not None
        and row["name"] not in FRAGMENTS
    ]


@pytest.fixture(autouse=True, scope="module")
def quiet():
    import transformers

    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(50)
    yield
    transformers.logging.set_verbosity(before)


@pytest.mark.parametrize("name", comparable())
def test_frequencies_are_those_of_transformers(name):
    config = as_transformers_reads(BY_NAME[name])
    assert config is not None
    module = rotary_module(config)
    resolved = resolve(BY_NAME[name])
    groups = rotating(resolved)
    if module is None:
        assert groups == [], "no rotary module, yet layers that rotate"
        return
    used = {group.label or "" for group in groups}
    theirs = frequencies(module)
    for group in groups:
        label = group.label or ""
        wanted = theirs.get(label) or next(iter(theirs.values()))
        if "H" * 4 in (group.axes or ""):  # theirs once, ours for each of two axes
            wanted = wanted * (len(group.inv_freq) // len(wanted))
        assert list(group.inv_freq) == pytest.approx(wanted, rel=CLOSE, abs=0), label
        name_of = f"{label}_attention_scaling" if label else "attention_scaling"
        scaling = getattr(module, name_of, 1.0)
        assert group.attention_factor == pytest.approx(scaling, rel=CLOSE)
    assert used <= set(theirs) or used == {""}


def test_most_of_the_collection_is_compared():
    assert len(ROWS) >= 110
    assert len(comparable()) >= 70


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_config_gives_the_fixed_document(row):
    document = json.loads(json.dumps(resolve(row["config"]).as_dict(), allow_nan=False))
    parts = [document, *document.get("parts", {}).values()]
    for part in parts:
        assert {"model_type", "layers", "context", "findings"} <= set(part)
        assert {"native", "scaled", "declared"} <= set(part["context"])
        for group in part["layers"]:
            assert group["layers"] == sorted(set(group["layers"]))
            assert {"kind", "rope_type", "theta", "head_dim", "rotary_dim", "layout"} <= set(group)
            if group["kind"] == "rotary":
                assert len(group["inv_freq"]) == group["rotary_dim"] // 2
                assert group["axes"] is None or len(group["axes"]) == len(group["inv_freq"])
                for value in group["provenance"].values():
                    source = value["source"]
                    assert source.startswith("file:") or source in ("class default", "assumed")
        for finding in part["findings"]:
            assert finding["severity"] in ("error", "warning", "info")
            assert finding["message"]
            assert finding["remedy"]
    if row["kind"] == "published" and row["name"] not in PARTIAL:
        assert not [f for f in document["findings"] if f["severity"] == "error"]


PARTIAL = (
    "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
    "poolside/Laguna-XS.2",
    "openbmb/MiniCPM-V-4",
    "Tele-AI/TeleChat3-36B-Thinking",
    "sarvamai/sarvam-105b",
)
"""Published files of which only a fragment is at hand; what is missing is an error."""

LAYOUTS = {
    "CohereForAI/aya-23-8B": "interleaved",
    "THUDM/chatglm2-6b": "interleaved",
    "THUDM/chatglm3-6b": "interleaved",
    "THUDM/glm-4-9b-chat (remote-code format)": "interleaved",
    "THUDM/glm-4-9b-chat [GlmConfig default]": "interleaved",
    "Salesforce/codegen-2B-mono [CodeGenConfig default]": "interleaved",
    "deepseek-ai/DeepSeek-V3": "interleaved",
    "deepseek-ai/DeepSeek-V3.2": "interleaved",
    "deepseek-ai/DeepSeek-V2-Lite": "interleaved",
    "moonshotai/Kimi-K2-Instruct": "interleaved",
    "zai-org/GLM-5": "interleaved",
    "zai-org/GLM-4.5 [Glm4MoeConfig default]": "half",
    "EleutherAI/gpt-neox-20b [GPTNeoXConfig default]": "half",
    "meta-llama/Meta-Llama-3.1-8B": "half",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": "interleaved",
    "Qwen/Qwen3-8B": "half",
    "google/gemma-3-1b-it": "half",
    "microsoft/phi-2 (phi-msft format)": "half",
}
"""Problems item 73, and the papers and code of the models."""


@pytest.mark.parametrize(("name", "layout"), LAYOUTS.items())
def test_layouts(name, layout):
    assert {group.layout for group in rotating(resolve(BY_NAME[name]))} == {layout}


@pytest.mark.parametrize(
    ("name", "theta", "head_dim", "rotary_dim", "offset"),
    [
        ("THUDM/chatglm3-6b", 1e4, 128, 64, 0),
        ("THUDM/glm-4-9b-chat (remote-code format)", 5e6, 128, 64, 0),
        ("THUDM/codegeex4-all-9b", 5e6, 128, 64, 0),
        ("microsoft/phi-1_5 (phi-msft format)", 1e4, 64, 32, 0),
        ("microsoft/phi-2 (phi-msft format)", 1e4, 80, 32, 0),
        ("Qwen/Qwen-1_8B (qwen1 format)", 1e4, 128, 128, 0),
        ("baichuan-inc/Baichuan2-7B", 1e4, 128, 128, 0),
        ("Salesforce/codegen-2B-mono [CodeGenConfig default]", 1e4, 256, 64, 0),
        ("OrionStarAI/Orion-14B", 1e4, 128, 128, 0),
        ("inclusionAI/Ling-1T", 1e4, 128, 64, 0),
        ("inclusionAI/Ling-2.6-flash", 1e4, 64, 64, 0),
        ("inclusionAI/Ling-flash-2.0", 6e5, 128, 64, 0),
        ("XiaomiMiMo/MiMo-7B-Base", 64e4, 128, 128, 0),
        ("MiniMaxAI/MiniMax-M3", 5e6, 128, 64, 0),
        ("zai-org/GLM-5", 1e6, 256, 64, 192),
        ("zai-org/GLM-5.2", 8e6, 256, 64, 192),
    ],
)
def test_formats_that_transformers_has_no_class_for(name, theta, head_dim, rotary_dim, offset):
    """From the models' own code, as problems and catalogue state it."""
    group = only(resolve(BY_NAME[name]))
    assert (group.theta, group.head_dim, group.rotary_dim) == (theta, head_dim, rotary_dim)
    assert group.lane_offset == offset
    assert list(group.inv_freq) == pytest.approx(geometric(theta, rotary_dim), rel=1e-14)


@pytest.mark.parametrize(
    ("name", "off", "count"),
    [
        ("HuggingFaceTB/SmolLM3", range(3, 36, 4), 36),
        ("meta-llama/Llama-4-Maverick", range(3, 48, 4), 48),
        ("meta-llama/Llama-4-Scout", range(3, 48, 4), 48),
        ("Qwen/Qwen3.5-27B", [i for i in range(64) if i % 4 != 3], 64),
        ("Qwen/Qwen3-Next", [i for i in range(48) if i % 4 != 3], 48),
        ("LGAI-EXAONE/EXAONE-4.0", range(3, 32, 4), 32),
        ("nvidia/Nemotron-H-56B", range(118), 118),
        ("meta-llama/Meta-Llama-3.1-8B", [], 32),
    ],
)
def test_which_layers_rotate(name, off, count):
    layers = resolve(config_of(name)).text().layers
    still = sorted(i for group in layers if group.kind == "none" for i in group.layers)
    turning = sorted(i for group in layers if group.kind == "rotary" for i in group.layers)
    assert still == list(off)
    assert sorted(still + turning) == list(range(count))


@pytest.mark.parametrize(
    ("name", "wide"),
    [
        ("google/gemma-3-1b-it", [i for i in range(26) if (i + 1) % 6 == 0]),
        ("answerdotai/ModernBERT-base [", list(range(0, 22, 3))),
        ("google/gemma-3n-E4B", [i for i in range(35) if (i + 1) % 5 == 0]),
    ],
)
def test_layers_with_the_larger_theta(name, wide):
    groups = rotating(resolve(config_of(name)))
    large = max(groups, key=lambda group: group.theta or 0)
    assert list(large.layers) == wide
    assert len(groups) == 2


def test_axes():
    assert only(resolve(config_of("Qwen/Qwen3.5-27B"))).axes == "THW" * 10 + "TH"
    assert only(resolve(config_of("Qwen3-VL mrope"))).axes == "THW" * 20 + "TTTT"
    assert only(resolve(config_of("GLM-4.1V"))).axes == "T" * 8 + "H" * 12 + "W" * 12
    assert only(resolve(config_of("PaddleOCR"))).axes == "T" * 16 + "H" * 24 + "W" * 24
    ernie = resolve({"model_type": "ernie4_5_vl_moe_text", "head_dim": 128})
    assert only(ernie).axes == "HW" * 22 + "T" * 20
    assert list(only(ernie).inv_freq) == pytest.approx(geometric(500000.0, 128), rel=1e-14)


def test_lanes_of_gemma_4():
    """Catalogue §3: exponents over 512, 64 turning pairs of 256, lane 0 with lane 256."""
    groups = {g.label: g for g in rotating(resolve(config_of("google/gemma-4")))}
    wide = groups["full_attention"]
    assert (wide.head_dim, wide.pairing, wide.rope_type) == (512, "proportional", "proportional")
    assert wide.inv_freq[1] == pytest.approx(0.947464, rel=1e-6)
    assert len(wide.inv_freq) == 256
    assert sum(f != 0 for f in wide.inv_freq) == 64
    from ropewalk.spectra.lanes import pair_slices

    s = wide.spectrum()
    first, second = pair_slices(s.head_dim, s.pairs, s.layout, s.lane_offset, s.pairing)
    lanes = range(512)
    assert (lanes[first][0], lanes[second][0]) == (0, 256)


def test_softmax_scales_of_deepseek():
    """Catalogue §4: V3 1.87385, V2-Lite 1.58963; cos and sin are not scaled."""
    for name, scale in (("deepseek-ai/DeepSeek-V3", 1.87385), ("deepseek-ai/DeepSeek-V2", 1.58963)):
        config = next(BY_NAME[n] for n in BY_NAME if n.startswith(name))
        group = only(resolve(config))
        assert group.softmax_scale_factor == pytest.approx(scale, rel=1e-5)
        assert group.attention_factor == 1.0


def test_degenerate_but_published_values_resolve_without_error():
    """Llama-4-Scout low = high, Kimi-K2 β = β, MiMo 0.334 × 192, GLM-5 and 5.2 head_dim."""
    scout = {
        "model_type": "llama4_text",
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 16.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
        },
    }
    group = only(resolve(scout))
    kept = sum(a == b for a, b in zip(group.inv_freq, geometric(5e5, 128), strict=True))
    assert kept >= 34, "a hard cut keeps 35 pairs"
    assert all(math.isfinite(f) for f in group.inv_freq)
    kimi = only(resolve(BY_NAME["moonshotai/Kimi-K2-Instruct"]))
    assert kimi.inv_freq[19] == pytest.approx(1.6218e-3, rel=1e-4)
    assert kimi.inv_freq[20] == pytest.approx(3.614e-5, rel=1e-4)
    mimo = resolve({"model_type": "mimo_v2_flash", "head_dim": 192, "num_hidden_layers": 48})
    assert {group.rotary_dim for group in rotating(mimo)} == {64}
    for config in (scout, BY_NAME["moonshotai/Kimi-K2-Instruct"], config_of("zai-org/GLM-5.2")):
        assert not resolve(config).errors
    assert not mimo.errors


def test_longrope_variants_switch_after_the_original_length():
    short, long = [1.0 + 0.04 * c for c in range(48)], [1.08 + c for c in range(48)]
    config = {
        "model_type": "phi3",
        "hidden_size": 3072,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "longrope", "short_factor": short, "long_factor": long},
    }
    group = only(resolve(config))
    plain = geometric(1e4, 96)
    assert list(group.inv_freq) == pytest.approx([f / d for f, d in zip(plain, short, strict=True)])
    (variant,) = group.variants
    assert variant.as_dict()["when"] == "length > 4096"
    assert list(variant.inv_freq) == pytest.approx(
        [f / d for f, d in zip(plain, long, strict=True)]
    )
    assert group.attention_factor == variant.attention_factor == pytest.approx(1.190238, rel=1e-6)
    assert group.spectrum(4096).inv_freq == group.inv_freq
    assert group.spectrum(4097).inv_freq == variant.inv_freq


def test_dynamic_variant():
    config = {**config_of("m42-health"), "max_position_embeddings": 4096}
    group = only(resolve(config))
    (variant,) = group.variants
    assert (variant.above, variant.at) == (4096, 8192)
    assert list(group.inv_freq) == pytest.approx(geometric(1e4, 128), rel=1e-14)
    assert list(variant.inv_freq) == pytest.approx(geometric(30527.74, 128), rel=1e-6)


def test_config_objects_and_their_dictionaries_resolve_alike():
    from transformers import GemmaConfig, Qwen3Config

    qwen: Any = Qwen3Config
    for config in (qwen(rope_theta=1e6), GemmaConfig()):
        group = only(resolve(config))
        module = rotary_module(config)
        assert module is not None
        assert list(group.inv_freq) == pytest.approx(frequencies(module)[""], rel=CLOSE)
    with pytest.raises(TypeError, match="source must be a dictionary, a path"):
        resolve(42)


def test_facts_were_probed_with_the_installed_transformers():
    import transformers

    made = json.loads((HERE / "architectures.json").read_text(encoding="utf-8"))["made_with"]
    assert made == {"transformers": transformers.__version__}, "run scripts/probe_architectures.py"


def test_facts_are_what_the_probe_finds_now():
    types = ["llama", "smollm3", "deepseek_v3", "opt"]
    code = (
        "import sys, json; sys.path.insert(0, 'scripts'); import probe_architectures as p;"
        f"print('@' + json.dumps({{t: p.facts(t) for t in {types!r}}}, sort_keys=True))"
    )
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT
    )
    found = json.loads(result.stdout.rpartition("@")[2])
    table = json.loads((HERE / "architectures.json").read_text(encoding="utf-8"))["types"]
    assert found == {model_type: table[model_type] for model_type in types}


def test_explaining_loads_neither_torch_nor_numpy_nor_transformers():
    code = (
        "import sys; from ropewalk.cli import main; "
        "status = main(['explain', '-', '--json']); "
        "print(status, {'torch', 'numpy', 'transformers'} & set(sys.modules), file=sys.stderr)"
    )
    config = json.dumps(BY_NAME["Qwen/Qwen3-8B"])
    result = subprocess.run(
        [sys.executable, "-c", code], input=config, capture_output=True, text=True, cwd=ROOT
    )
    assert result.stderr.strip() == "0 set()"
    assert json.loads(result.stdout)["model_type"] == "qwen3"


def test_the_python_of_the_docs_runs(capsys):
    text = (ROOT / "docs" / "configs.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.S)
    scope: dict[str, Any] = {}
    exec(example, scope)
    assert "1000000.0" in capsys.readouterr().out
    assert scope["rope"].spectrum.inv_freq[1] == pytest.approx(1e6 ** (-2 / 256))
