"""Conversions of files that are damaged, hostile, or in the way; killed runs; full disks; GGUF."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import LLAMA, files, llama_tensors, loaded, normal, save
from safetensors.numpy import save_file

from ropewalk.cli import main
from ropewalk.models import convert
from ropewalk.models.conversion import from_gguf, publish
from ropewalk.models.conversion.turns import order

ROOT = Path(__file__).resolve().parent.parent
INDEX = "model.safetensors.index.json"


def refused(source: Path, capsys: pytest.CaptureFixture[str], *more: str, out: str = "b") -> str:
    """The one line of a refusal; nothing is written beside the source, which stays as it was."""
    folder = source.parent
    before = files(folder)
    arguments = ["convert", str(source), str(folder / out), "--to", "interleaved", *more]
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("ropewalk: ")
    assert captured.err.count("\n") == 1
    assert "TRACEBACK" not in captured.err.upper(), captured.err
    assert files(folder) == before
    return captured.err


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write_header(path: Path, header: dict[str, Any] | bytes, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return save(tmp_path / "a", llama_tensors())


Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h[Q].update(dtype="Q4"), "unknown dtype"),
        (lambda h: h[Q].update(shape=[32, -32]), "no proper shape"),
        (lambda h: h[Q].update(shape=[32, 31]), "does not fill"),
        (lambda h: h[Q].update(data_offsets=[0, 1 << 70]), "no proper shape"),
        (lambda h: h[Q].update(data_offsets=[0, 4096]), "overlap others or leave a gap"),
        (lambda h: h.pop("model.norm.weight"), "leave a gap|behind its data"),
        (lambda h: h.update({Q: None}), "unknown dtype"),
        (lambda h: h.update({Q: []}), "unknown dtype"),
    ],
)
def test_headers_that_lie(a: Path, change: Any, words: str, capsys: pytest.CaptureFixture[str]):
    path = a / "model.safetensors"
    header, data = header_of(path)
    change(header)
    write_header(path, header, data)
    assert any(word in refused(a, capsys) for word in words.split("|"))


@pytest.mark.parametrize("size", [0, 4, 8, 100, 5000, -1, -4096])
def test_files_that_are_cut_off(a: Path, size: int, capsys: pytest.CaptureFixture[str]):
    path = a / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    assert "no whole safetensors file" in (line := refused(a, capsys)) or "is cut off" in line


def test_a_tensor_that_stands_twice(a: Path, capsys: pytest.CaptureFixture[str]):
    path = a / "model.safetensors"
    header, data = header_of(path)
    text = json.dumps(header)[:-1] + f', "{Q}": {json.dumps(header[Q])}}}'
    write_header(path, text.encode(), data)
    assert "stands there twice" in refused(a, capsys)


def test_random_damage_to_a_header(a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A line and status 2, or a conversion that is right; nothing else, whatever the bytes."""
    path = a / "model.safetensors"
    whole, head = path.read_bytes(), 8 + int.from_bytes(path.read_bytes()[:8], "little")
    chance = random.Random(7)
    for _ in range(40):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(head)] = chance.randrange(256)
        path.write_bytes(bytes(damaged))
        status = main(["convert", str(a), str(tmp_path / "b"), "--to", "interleaved"])
        err = capsys.readouterr().err
        assert status == 0 or (status == 2 and err.count("\n") == 1 and "_TRACEBACK" not in err), (
            err
        )
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update({Q: "../secret.safetensors"}), "no safetensors file beside it"),
        (lambda m: m.update({Q: "/etc/passwd"}), "no safetensors file beside it"),
        (lambda m: m.update({Q: "model-00009-of-00009.safetensors"}), "is not there"),
        (lambda m: m.update({Q: 3}), "no safetensors file beside it"),
        (lambda m: m.update({Q: "weights.bin"}), "no safetensors file beside it"),
        (lambda m: m.update({"ghost": m[Q]}), "is in no file"),
        (lambda m: m.pop(Q), "the index says nothing of it"),
        (lambda m: m.clear(), "no weight_map"),
    ],
)
def test_indexes_that_lie(
    tmp_path: Path, change: Any, words: str, capsys: pytest.CaptureFixture[str]
):
    a = save(tmp_path / "a", llama_tensors(), shards=2)
    index = json.loads((a / INDEX).read_text())
    change(index["weight_map"])
    (a / INDEX).write_text(json.dumps(index))
    assert words in refused(a, capsys)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"weight_map": []}', '{"weight_map": 3}', "\0"])
def test_indexes_that_are_none(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]):
    a = save(tmp_path / "a", llama_tensors(), shards=2)
    (a / INDEX).write_text(text)
    assert INDEX in refused(a, capsys)


def test_a_tensor_in_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a = save(tmp_path / "a", llama_tensors(), shards=2)
    for path in a.glob("*.safetensors"):
        header, data = header_of(path)
        if Q not in header:
            header[Q] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
            write_header(path, header, data + bytes(4))
    assert "is in another file too" in refused(a, capsys)


def test_links_are_read_and_files_written(a: Path, tmp_path: Path):
    """As in a hub's cache, where every file is a link to a blob."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    a.rename(blobs)
    snapshot.mkdir()
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../blobs/{path.name}")
    convert(snapshot, tmp_path / "b", to="interleaved")
    assert not any(path.is_symlink() for path in (tmp_path / "b").iterdir())
    assert set(files(tmp_path / "b")) == set(files(blobs))


def test_links_to_nowhere(a: Path, capsys: pytest.CaptureFixture[str]):
    (a / "model.safetensors").unlink()
    (a / "model.safetensors").symlink_to("model.safetensors")
    assert "is not a file" in refused(a, capsys)
    (a / "model.safetensors").unlink()
    (a / "model.safetensors").mkdir()
    assert "is not a file" in refused(a, capsys)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": 8}, "32 rows for queries; the config describes 8 query"),
        ({"num_key_value_heads": 4}, "16 rows for keys; the config describes 4 query and 4 key"),
        ({"head_dim": 16}, "rows for "),
        ({"num_hidden_layers": 3}, "layer 2 rotates by the config, and no attention"),
        ({"model_type": "mystery"}, "model_type 'mystery' packs q and k is not known"),
        ({"model_type": "bert"}, "no layer of this model rotates"),
        ({"rope_theta": None}, "the config has an error"),
    ],
)
def test_configs_that_do_not_fit(
    tmp_path: Path, changes: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
):
    assert words in refused(save(tmp_path / "a", llama_tensors(), LLAMA | changes), capsys)


@pytest.mark.parametrize(
    ("rename", "words"),
    [
        ("model.layers.0.self_attn.q_proj.qweight", "a quantised projection?"),
        ("model.layers.0.self_attn.q_magic.weight", "what q_magic does to q and k is not known"),
        ("model.layers.0.strange.query.weight", "what strange.query.weight does"),
        ("model.layers.0.mlp.other.weight", "has no queries by name"),
        ("other.layers.0.self_attn.q_proj.weight", "has no queries by name"),
    ],
)
def test_names_that_are_not_known(
    tmp_path: Path, rename: str, words: str, capsys: pytest.CaptureFixture[str]
):
    tensors = llama_tensors()
    tensors[rename] = tensors.pop(Q)
    assert words in refused(save(tmp_path / "a", tensors), capsys)


def test_two_stacks_of_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tensors = llama_tensors()
    tensors |= {f"decoder.{name}": x for name, x in tensors.items()}
    assert "which of them the config describes" in refused(save(tmp_path / "a", tensors), capsys)


def test_pickles_are_never_opened(a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (a / "model.safetensors").rename(a / "pytorch_model.bin")
    assert "can run code" in refused(a, capsys)
    assert "can run code" in refused(a / "pytorch_model.bin", capsys)


def test_what_is_in_the_way(a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("file", "link"):
        path = tmp_path / name
        path.symlink_to("nowhere") if name == "link" else path.write_text("mine")
        assert "exists; name a folder that does not" in refused(a, capsys, out=name)
    assert "exists; name a folder" in refused(a, capsys, out="a")
    assert "is within" in refused(a, capsys, out="a/b")
    assert "is not a folder; create it first" in refused(a, capsys, out="none/b")
    assert "looks like a file" in refused(a, capsys, out="b.gguf")
    assert "no layout" in refused(a, capsys, "--from", "neox")
    assert "is for GGUF" in refused(a, capsys, "--dtype", "float16")
    assert "base is for adapters" in refused(a, capsys, "--base", str(a))
    assert "does not exist" in refused(tmp_path / "nothing", capsys)


def test_no_space_is_said_at_once(a: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    usage = shutil.disk_usage(a)._replace(free=1000)
    monkeypatch.setattr(publish.shutil, "disk_usage", lambda _: usage)
    assert "GB are needed" in refused(a, capsys)


COMMAND = [sys.executable, "-m", "ropewalk", "convert"]
QUIET = os.environ | {"OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}


def test_a_disk_that_fills_leaves_nothing(a: Path, tmp_path: Path):
    """A limit on the size of files stands for a full disk: writing fails half-way."""
    done = subprocess.run(
        [*COMMAND, str(a), str(tmp_path / "b"), "--to", "interleaved"],
        cwd=ROOT,
        env=QUIET,
        capture_output=True,
        text=True,
        preexec_fn=lambda: (
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        ),
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"ropewalk: no space for {tmp_path / 'b'}")
    assert done.stderr.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


FORKS = """
import os, sys, time
from ropewalk.models import convert
from ropewalk.models.conversion import writing
convert(sys.argv[1], sys.argv[2] + "-reference", to="interleaved")
chunks = writing.chunks
def slowly(*arguments):
    for block in chunks(*arguments):
        time.sleep(0.003)
        yield block
writing.chunks = slowly
while sys.stdin.readline():
    child = os.fork()
    if child == 0:
        convert(sys.argv[1], sys.argv[2], to="interleaved")
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()
    print(os.waitpid(child, 0)[1], flush=True)
"""
"""A process that has everything loaded, and forks one that converts for each line it reads."""


def test_kill_at_any_moment(a: Path, tmp_path: Path):
    """The source is whole, and OUT is either not there or all there; the next run cleans up."""
    chance = random.Random(1)
    source, out, reference = files(a), tmp_path / "b", tmp_path / "b-reference"
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(a), str(out)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    killed = 0
    with subprocess.Popen(command, cwd=ROOT, env=QUIET, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(16):
            process.stdin.write("\n")
            process.stdin.flush()
            child = int(process.stdout.readline())
            time.sleep(chance.uniform(0, 0.35))
            os.kill(child, signal.SIGKILL)  # not waited for yet, so the number is still its own
            process.stdin.write("\n")
            process.stdin.flush()
            killed += int(process.stdout.readline()) == signal.SIGKILL
            assert files(a) == source
            if out.exists():
                assert files(out) == files(reference)
                shutil.rmtree(out)
        process.stdin.close()
    assert killed >= 4
    assert len(list(tmp_path.glob(".b.*.part"))) <= 1, "each run removes what a killed one left"
    convert(a, out, to="interleaved")
    assert files(out) == files(reference)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "b-reference"]


def test_a_run_that_still_writes_is_left_alone(a: Path, tmp_path: Path):
    out = tmp_path / "b"
    with publish.beside(out) as folder:
        publish._sweep(out)
        assert folder.is_dir()
    assert out.is_dir()


def test_a_place_taken_meanwhile_is_not_overwritten(a: Path, tmp_path: Path):
    out = tmp_path / "b"

    def meanwhile() -> None:
        with publish.beside(out):
            out.mkdir()
            (out / "mine").write_text("kept")

    with pytest.raises(ValueError, match="appeared meanwhile"):
        meanwhile()
    assert files(out) == {"mine": b"kept"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_one_tensor_at_a_time_is_in_memory(tmp_path: Path):
    """A model of 130 MB in twelve layers, converted with the memory of one."""
    config = LLAMA | {
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "num_hidden_layers": 12,
    }
    a = save(tmp_path / "a", llama_tensors(config), config, shards=2)
    size = sum(len(data) for data in files(a).values())
    code = (
        "import resource, sys, torch, safetensors, transformers\n"
        "from ropewalk.models import convert\n"
        "from transformers import AutoModel, LlamaModel\n"
        "def peak(): return [int(l.split()[1]) for l in open('/proc/self/status')"
        " if l.startswith('RssAnon')][0]\n"
        "before, most = peak(), [0]\n"
        "def tell(done, of): most[0] = max(most[0], peak())\n"
        "convert(sys.argv[1], sys.argv[2], to='interleaved', progress=tell)\n"
        "print((most[0] - before) * 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(a), str(tmp_path / "b")],
        cwd=ROOT, env=QUIET, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert size > 1.2e8
    assert int(done.stdout) < 3e7


# GGUF


def gguf_of(
    path: Path, config: dict[str, Any], tensors: dict[str, np.ndarray], **kinds: Any
) -> Path:
    """A GGUF file as llama.cpp's own converter makes it from a llama: q and k permuted."""
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quantize

    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
    }
    inner = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(1e-5)
    for name, x in tensors.items():
        own = names.get(name)
        if own is None:
            _, _, layer, rest = name.split(".", 3)
            own = f"blk.{layer}.{inner[rest.removesuffix('.weight')]}.weight"
        if "attn_q" in own or "attn_k" in own:
            heads = config["num_attention_heads" if "attn_q" in own else "num_key_value_heads"]
            halves = x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:])
            x = halves.swapaxes(1, 2).reshape(x.shape)
        kind = kinds.get("kind")
        if kind is not None and x.ndim == 2:
            kind = getattr(GGMLQuantizationType, kind)
            writer.add_tensor(own, quantize(x, kind), raw_dtype=kind)
        else:
            writer.add_tensor(own, x)
    for name, x in kinds.get("more", {}).items():
        writer.add_tensor(name, x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_gguf_to_half_is_the_model_that_it_was_made_from(tmp_path: Path):
    tensors = llama_tensors()
    source = gguf_of(tmp_path / "m.gguf", LLAMA, tensors)
    done = convert(source, tmp_path / "b", to="half")
    after = loaded(tmp_path / "b")
    assert after.keys() == tensors.keys()
    for name, x in tensors.items():
        np.testing.assert_array_equal(after[name], x, name)
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert {k: config[k] for k in LLAMA if k != "vocab_size"} == {
        k: LLAMA[k] for k in LLAMA if k != "vocab_size"
    }
    assert (done.was, done.recorded, done.dtype) == ("interleaved", None, "F32")
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "b")
    assert torch.equal(model.state_dict()[Q], torch.from_numpy(tensors[Q]))


@pytest.mark.parametrize(
    ("kind", "name"), [("Q8_0", "F32"), ("Q4_0", "F32"), ("F16", "F16"), ("BF16", "BF16")]
)
def test_gguf_keeps_its_lanes_for_interleaved(kind: str, name: str, tmp_path: Path):
    """Quantised numbers become the float32 that they stand for; nothing else happens to them."""
    from gguf import GGUFReader, dequantize

    source = gguf_of(tmp_path / "m.gguf", LLAMA, llama_tensors(), kind=kind)
    done = convert(source, tmp_path / "b", to="interleaved")
    assert (done.was, done.to, done.tensors, done.recorded) == (
        "interleaved", "interleaved", 0, "ropewalk_layout",
    )  # fmt: skip
    assert done.dtype == name
    from safetensors.torch import load_file

    after = load_file(tmp_path / "b" / "model.safetensors")
    stored = next(t for t in GGUFReader(source).tensors if t.name == "blk.0.attn_q.weight")
    wanted = torch.from_numpy(dequantize(stored.data, stored.tensor_type))
    assert torch.equal(after[Q].float(), wanted)
    half = convert(source, tmp_path / "c", to="half", dtype="bfloat16")
    rounded = load_file(tmp_path / "c" / "model.safetensors")[Q]
    assert (half.dtype, rounded.dtype) == ("BF16", torch.bfloat16)
    back = list(order(8, "half"))
    lanes = wanted.reshape(4, 8, 32)[:, back].reshape(32, 32)
    assert torch.equal(rounded, lanes.to(torch.bfloat16))


def test_large_gguf_files_are_cut_into_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(from_gguf, "SHARD", 20_000)
    source = gguf_of(tmp_path / "m.gguf", LLAMA, llama_tensors())
    convert(source, tmp_path / "b", to="half")
    index = json.loads((tmp_path / "b" / INDEX).read_text())["weight_map"]
    assert len(set(index.values())) > 2
    back = convert(tmp_path / "b", tmp_path / "c", to="interleaved")
    assert back.of == len(llama_tensors())


@pytest.mark.parametrize("size", [3, 30, 700, -1, -5000])
def test_gguf_that_is_cut_off(tmp_path: Path, size: int, capsys: pytest.CaptureFixture[str]):
    source = gguf_of(tmp_path / "m.gguf", LLAMA, llama_tensors())
    source.write_bytes(source.read_bytes()[:size])
    refused(source, capsys)


def test_gguf_with_tensors_that_are_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    more = {"blk.0.ffn_gate_inp.weight": normal(4, 32)}
    source = gguf_of(tmp_path / "m.gguf", LLAMA, llama_tensors(), more=more)
    assert "what tensor blk.0.ffn_gate_inp.weight becomes" in refused(source, capsys)


def test_gguf_without_a_tensor_of_one_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tensors = llama_tensors()
    del tensors["model.layers.1.mlp.up_proj.weight"]
    source = gguf_of(tmp_path / "m.gguf", LLAMA, tensors)
    assert "layer 1 has no mlp.up_proj.weight" in refused(source, capsys)


def test_files_without_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "a").mkdir()
    save_file(llama_tensors(), tmp_path / "a" / "model.safetensors")
    assert "has none of config.json" in refused(tmp_path / "a", capsys)
    (tmp_path / "a" / "config.json").write_text("{")
    assert "is not JSON" in refused(tmp_path / "a", capsys)
