"""A model that cannot be loaded: what is wrong with it is said, in a line, by every command."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from gguf_files import gguf, llama
from hypothesis import given
from hypothesis import strategies as st
from reading_models import save

from ropewalk.cli.entry import main
from ropewalk.models.loading import load, load_tokenizer
from ropewalk.models.said import said

Broken = Callable[[Path], Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that nothing is wrong with, and a text beside it."""
    root = tmp_path_factory.mktemp("models")
    (root / "text.txt").write_text("the dog and the cat " * 40)
    return save(root / "whole")


def config(**changes: Any) -> Broken:
    """Keys of config.json changed; None takes one away."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        keys = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({k: v for k, v in keys.items() if v is not None}))

    return change


def replaced(name: str, content: bytes) -> Broken:
    return lambda folder: (folder / name).write_bytes(content)


def gone(*names: str) -> Broken:
    return lambda folder: [(folder / name).unlink() for name in names]


def renamed(name: str, other: str) -> Broken:
    return lambda folder: (folder / name).rename(folder / other)


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def a_shard_short(folder: Path) -> None:
    parts = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    (folder / "model.safetensors").rename(folder / parts[0])
    index = {"weight_map": {"model.norm.weight": parts[0], "lm_head.weight": parts[1]}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def a_folder_for_a_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()


CONFIGS: dict[str, tuple[Broken, str]] = {
    "none": (gone("config.json"), "has no config.json and no GGUF file"),
    "a folder": (a_folder_for_a_config, "has no config.json and no GGUF file"),
    "Meta's": (renamed("config.json", "params.json"), "its params.json is of Meta's own form"),
    "cut off": (replaced("config.json", b'{"a": '), "config.json is not JSON"),
    "empty": (replaced("config.json", b""), "config.json is empty"),
    "a list": (replaced("config.json", b"[1]"), "config.json holds an array"),
    "binary": (replaced("config.json", b"\xff\xfe\x00"), "config.json is not UTF-8"),
    "no keys": (replaced("config.json", b"{}"), "its config.json has no model_type"),
    "no type": (config(model_type=None), "its config.json has no model_type"),
    "unknown": (config(model_type="zorblax"), "model_type 'zorblax', an architecture that"),
    "no name": (config(model_type=7), "model_type 7, an architecture that"),
    "own code": (
        config(model_type="zorblax", auto_map={"AutoConfig": "own.Own"}),
        "needs code from the folder (auto_map), which is never run",
    ),
    "a word": (config(hidden_size="large"), "its config.json is unusable: .*hidden_size"),
    "heads": (config(num_attention_heads=7), "its config.json is unusable: .*heads (7)"),
    "rope type": (config(rope_parameters={"rope_type": "wobbly"}), "rope_type=wobbly is not known"),
}
WEIGHTS: dict[str, tuple[Broken, str]] = {
    "none": (gone("model.safetensors"), "has no weights: there is no .safetensors file"),
    "pickled": (renamed("model.safetensors", "model.bin"), "pickled weights are not loaded"),
    "cut off": (cut, "the weights in model.safetensors cannot be read"),
    "a shard short": (a_shard_short, "lacks the weights of model-00002-of-00002.safetensors"),
    "another index": (
        lambda folder: [
            renamed("model.safetensors", "model-1.safetensors")(folder),
            replaced("model.safetensors.index.json", b"[1]")(folder),
        ],
        "model.safetensors.index.json is no index of weights",
    ),
    "other shapes": (
        config(intermediate_size=32),
        "down_proj.weight is (64, 64), the config makes",
    ),
    "more layers": (config(num_hidden_layers=4), "lacks the weights model.layers.3"),
}
TOKENIZERS: dict[str, tuple[Broken, str]] = {
    "none": (
        gone("tokenizer.json", "tokenizer_config.json"),
        "no usable tokenizer: there is no tokenizer.json",
    ),
    "settings alone": (
        gone("tokenizer.json"),
        "no usable tokenizer: there is no tokenizer.json",
    ),
    "cut off": (replaced("tokenizer.json", b'{"x'), "no usable tokenizer: its files cannot be"),
}
WITHOUT_TEXT = [("config", name) for name in CONFIGS] + [("weights", name) for name in WEIGHTS]
ALL = {"config": CONFIGS, "weights": WEIGHTS, "tokenizer": TOKENIZERS}


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The line of a command that ends with 2."""
    capsys.readouterr()
    assert main([str(a) for a in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def lines(capsys: pytest.CaptureFixture[str], model: Path, text: Path) -> list[str]:
    """What each command that reads text says of a model that it cannot use."""
    read = ("--text", text)
    return [
        refused(capsys, "usage", model, "--lengths", 32, *read),
        refused(capsys, "precision", model, "--length", 32, *read),
        refused(capsys, "extend", model, "--to", 128, "--measure", *read, "--json"),
    ]


@pytest.mark.parametrize(
    ("kind", "name"), [*WITHOUT_TEXT, *(("tokenizer", name) for name in TOKENIZERS)]
)
def test_what_is_wrong_is_said_by_every_command(
    whole: Path, tmp_path: Path, kind: str, name: str, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "model"
    shutil.copytree(whole, folder)
    change, words = ALL[kind][name]
    change(folder)
    before, _, after = words.partition(".*")
    found = lines(capsys, folder, whole.parent / "text.txt")
    found += [refused(capsys, "audit", folder, "--quick")] if kind != "tokenizer" else []
    for line in found:
        assert before in line
        assert after in line
        assert ("tokenizer" in line) == (kind == "tokenizer"), "nothing else is blamed"
    if name != "rope type":  # which extend sees in the config, before it loads anything
        assert len(set(found)) == 1, "the same words whichever command"
        assert str(folder) in found[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GGUF" + b"\0" * 50, "has GGUF version 0"),
        (b"hello", "is not a GGUF file"),
        (None, "no such file or folder"),
    ],
)
def test_a_file_that_is_no_model(
    whole: Path, tmp_path: Path, content: bytes | None, words: str, capsys
):
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    found = lines(capsys, path, whole.parent / "text.txt")
    found += [refused(capsys, "audit", path)]
    assert len(set(found)) == 1
    assert words in found[0]
    for _ in range(2):
        with pytest.raises(ValueError, match=words):
            (load if _ else load_tokenizer)(str(path))


def test_a_gguf_file_that_is_cut_off_or_of_an_unknown_architecture(
    whole: Path, tmp_path: Path, capsys
):
    pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    keys = {**llama(), "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b"]}
    content = gguf(keys, {"token_embd.weight": [1.0] * 64})
    other = gguf({**keys, "general.architecture": "zorblax"}, {"token_embd.weight": [1.0] * 64})
    for data, words in (
        (content[:-128], "the weights in model.gguf cannot be read"),
        (other, "the config in model.gguf is unusable: .*zorblax"),
    ):
        path.write_bytes(data)
        for line in (
            refused(capsys, "usage", path, "--lengths", 32),
            refused(capsys, "precision", path, "--length", 32),
            refused(capsys, "audit", path, "--quick"),
        ):
            assert re.search(words, line)
            assert "tokenizer" not in line


def test_a_reader_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf(llama(), {"token_embd.weight": [1.0] * 64}))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r"needs gguf: pip install 'ropewalk\[models\]'"):
        load(str(path))


def test_several_gguf_files_are_no_choice(tmp_path: Path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(ValueError, match="2 GGUF files; give one of them"):
        load(str(tmp_path))


@given(st.text(), st.integers(10, 60))
def test_words_of_others_are_a_line_that_is_cut_between_words(text: str, most: int):
    words = said(ValueError(text), most)
    assert words
    assert len(words) <= most or words == "ValueError"
    assert "\n" not in words
    plain = " ".join(text.split())
    if len(plain) > most:
        kept = words.removesuffix(" …")
        assert plain.startswith(kept)
        assert plain[len(kept)] == " " or " " not in plain[: most - 1]
    else:
        assert words == (plain or "ValueError")


def test_a_key_that_was_not_found_is_told_as_such():
    assert said(KeyError("wobbly")) == "KeyError: 'wobbly'"
