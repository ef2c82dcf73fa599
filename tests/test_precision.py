"""Keys in few bits and narrow tables: quantisers against loops, then what is measured with them."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from audit_faults import DYNAMIC, YARN, modeling, rotary, tables_in_bfloat16, tiny  # noqa: E402
from torch import Tensor  # noqa: E402

from ropewalk import records  # noqa: E402
from ropewalk.cli.entry import main  # noqa: E402
from ropewalk.lab.trained.losses import token_losses  # noqa: E402
from ropewalk.lab.trained.passages import Passage  # noqa: E402
from ropewalk.lab.trained.precision import measure, placed  # noqa: E402
from ropewalk.lab.trained.precision_rows import Keys, Precision, Tables, together  # noqa: E402
from ropewalk.lab.trained.quantised import (  # noqa: E402
    FORMATS,
    SHARES,
    formats_of,
    quantised,
    squared_error,
)
from ropewalk.lab.trained.rotary_tables import TABLES, made_otherwise, makers  # noqa: E402
from ropewalk.report.precision import page  # noqa: E402
from ropewalk.walk import held  # noqa: E402

FLOATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
INTEGERS = {"int8": 127, "int4": 7}

# ---- quantisers ----------------------------------------------------------------------------------


def numbers_of(form: str) -> list[float]:
    """Every finite number of a format, ascending; of 8-bit floats by PyTorch's codes."""
    if form in INTEGERS:
        return [float(n) for n in range(-INTEGERS[form], INTEGERS[form] + 1)]
    codes = torch.arange(256, dtype=torch.uint8).view(FLOATS[form]).double()
    return sorted(set(codes[codes.isfinite()].tolist()))


def literally(rows: list[list[float]], form: str, per: str) -> list[list[float]]:
    """Tokens of lanes through a format, a number at a time."""
    numbers = numbers_of(form)
    evens = {n for i, n in enumerate(numbers) if (i - len(numbers) // 2) % 2 == 0}
    found = []
    for row in rows:
        line = []
        for lane, x in enumerate(row):
            shares = [other[lane] for other in rows] if per == "channel" else row
            a = max(abs(s) for s in shares)
            if a == 0:
                line.append(0.0)
                continue
            code = numbers[-1] * (x / a)
            near = min(numbers, key=lambda n: (abs(n - code), n not in evens))
            line.append(near / numbers[-1] * a)
        found.append(line)
    return found


tables = arrays.arrays(
    "float64",
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(-1e30, 1e30, allow_subnormal=True) | st.sampled_from([0.0, 0.5, 1.0, -3.5]),
)
formats, shares = st.sampled_from(list(FORMATS)), st.sampled_from(list(SHARES))


@given(x=tables, form=formats, per=shares)
def test_a_quantiser_does_what_the_loop_does(x, form: str, per: str):
    assert quantised(torch.from_numpy(x), form, per).tolist() == literally(x.tolist(), form, per)


@given(x=tables, form=formats, per=shares)
def test_what_was_quantised_stays_and_the_largest_comes_back(x, form: str, per: str):
    x = torch.from_numpy(x)
    y = quantised(x, form, per)
    assert torch.allclose(quantised(y, form, per), y, rtol=1e-14, atol=0)
    dim = -2 if per == "channel" else -1
    assert torch.equal(x.abs().amax(dim), y.abs().amax(dim))
    assert not (x * y < 0).any()


@given(x=tables, form=st.sampled_from(list(INTEGERS)), per=shares)
def test_integers_err_by_half_a_step_at_most(x, form: str, per: str):
    x = torch.from_numpy(x)
    largest = x.abs().amax(-2 if per == "channel" else -1, keepdim=True)
    apart = (quantised(x, form, per) - x).abs()
    assert (apart <= largest / INTEGERS[form] * (0.5 + 1e-12)).all()


@pytest.mark.parametrize("form", FLOATS)
def test_floats_round_as_pytorch_does(form: str):
    """All bfloat16 numbers of the range, ties among them, and a random million of float32."""
    top = FORMATS[form].largest
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    x = torch.cat((every, torch.randn(1 << 20) * torch.randn(1 << 20).exp()))
    x = x[x.abs() <= top]
    assert torch.equal(FORMATS[form].nearest(x.double()), x.to(FLOATS[form]).double())


def test_a_float64_is_rounded_once():
    x = torch.tensor([[1.0625 + 2.0**-40, 448.0]], dtype=torch.float64)
    assert quantised(x, "e4m3", "token").tolist() == [[1.125, 448.0]]


def test_scales_are_of_a_lane_or_of_a_token_and_never_of_two_heads():
    x = torch.randn(2, 3, 7, 8, generator=torch.Generator().manual_seed(0))
    for form in FORMATS:
        for per in SHARES:
            whole = quantised(x, form, per)
            for row in range(2):
                for head in range(3):
                    alone = quantised(x[row, head], form, per)
                    assert torch.equal(whole[row, head], alone), "ragged or not, it is its own"
        channel, token = (quantised(x, form, per) for per in SHARES)
        assert not torch.equal(channel, token)
        assert torch.equal(quantised(x[..., :1], form, "channel"), channel[..., :1])
        assert torch.equal(quantised(x[..., :1, :], form, "token"), token[..., :1, :])
        back = quantised(x.transpose(1, 2), form, "channel", tokens=1).transpose(1, 2)
        assert torch.equal(back, channel)


def test_what_is_small_large_or_nothing():
    for form in FORMATS:
        for per in SHARES:
            for value in (0.0, 5e-324, 1.7e308):
                x = torch.full((2, 3), value, dtype=torch.float64)
                assert torch.equal(quantised(x, form, per), x)
            assert quantised(torch.zeros(0, 4), form, per).shape == (0, 4)
            half = torch.randn(4, 4).to(torch.bfloat16)
            assert quantised(half, form, per).dtype == torch.bfloat16


def test_what_no_scale_can_hold_is_refused():
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="nan or infinity"):
            quantised(torch.tensor([[1.0, bad]]), "int8", "token")
    with pytest.raises(ValueError, match="form='int3' is unknown; use one of int8"):
        quantised(torch.ones(2, 2), "int3", "token")
    with pytest.raises(ValueError, match="per='head' is unknown; use one of channel, token"):
        quantised(torch.ones(2, 2), "int8", "head")
    with pytest.raises(ValueError, match="tokens and lanes"):
        quantised(torch.ones(2), "int8", "token")
    with pytest.raises(TypeError, match=r"torch.int64"):
        quantised(torch.ones(2, 2, dtype=torch.int64), "int8", "token")
    assert formats_of([" int8", "e5m2", "int8"]) == ("int8", "e5m2")
    for names in (["int8", "fp6"], [""], []):
        with pytest.raises(ValueError, match="use int8, int4, e4m3, e5m2"):
            formats_of(names)


def test_squared_error():
    x = torch.tensor([3.0, 4.0])
    assert squared_error(torch.tensor([3.0, 4.5]), x) == 0.01
    assert squared_error(x, x) == 0.0
    assert squared_error(torch.zeros(2), torch.zeros(2)) == 0.0


# ---- keys ----------------------------------------------------------------------------------------

TOKENS = 24
MODELS = {
    "Llama": {},
    "Cohere": {},
    "StableLm": {"partial_rotary_factor": 0.5},
    "GPTNeoX": {"rotary_pct": 0.5, "partial_rotary_factor": 0.5},
    "Gemma3": {"sliding_window": 8},
}
"""Halves and neighbours, all lanes and some, grouped heads and not, tables by layer type."""


def texts(count: int = 2, tokens: int = TOKENS) -> list[Passage]:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(3, 128, (count, tokens), generator=generator)
    return [Passage(f"text {i}", ids) for i, ids in enumerate(drawn)]


def everything(model: Any) -> list[Any]:
    """What a model holds: classes, hooks, attributes that are tensors, numbers or names."""
    return [
        (
            name,
            type(module),
            list(module._forward_hooks) + list(module._forward_pre_hooks),
            {k: v for k, v in vars(module).items() if isinstance(v, (int, str, float, bool))},
            {k: v.clone() for k, v in module._buffers.items() if v is not None},
            "forward" in vars(module),
        )
        for name, module in model.named_modules()
    ]


@pytest.mark.parametrize("kind", MODELS)
def test_every_variant_of_an_architecture(kind: str):
    model = tiny(kind, **MODELS[kind])
    (text,) = texts(1)
    weights, held = copy.deepcopy(model.state_dict()), everything(model)
    plain = token_losses(model, text.ids)
    found = measure(model, [text], forms=["int4"])
    assert str(everything(model)) == str(held), "the model is left as it was"
    assert all(torch.equal(w, weights[k]) for k, w in model.state_dict().items())
    assert torch.equal(token_losses(model, text.ids), plain)
    assert found.own[0].mean == plain.mean().item()
    keys = found.keys
    assert set(keys) == {Keys("int4", w, p) for w in ("before", "after") for p in SHARES}
    assert len({row.loss.mean for row in keys.values()}) == len(keys), "no two are the same"
    assert all(0.001 < row.error.mean < 0.1 for row in keys.values() if row.error)
    last = 128 - TOKENS
    assert set(found.tables) == {Tables(h, f) for f in (0, last) for h in TABLES} - {
        Tables("own", 0)
    }
    changes = {str(v): abs(row.change.mean) for v, row in found.tables.items()}
    assert changes[f"own, from position {last}"] < 1e-5
    assert changes["exact phases, from position 0"] < 1e-5
    assert changes[f"angles in bfloat16, from position {last}"] > 1e-5
    split_off = kind == "StableLm"
    assert any("only the 8 lanes of a key" in note for note in found.notes) == split_off


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("per", SHARES)
def test_keys_are_those_of_a_rotary_function_written_anew(when: str, per: str, monkeypatch):
    model = tiny("Llama")
    (text,) = texts(1)
    found = measure(model, [text], forms=["e4m3"]).keys[Keys("e4m3", when, per)]
    usual, errors = modeling(model).apply_rotary_pos_emb, []

    def through(k: Tensor) -> Tensor:
        held = torch.stack(
            [torch.tensor(literally(head.tolist(), "e4m3", per)) for head in k[0].double()]
        ).to(k)[None]
        errors.append(((held - k).double().norm() / k.double().norm()).item() ** 2)
        return held

    def anew(q, k, cos, sin, unsqueeze_dim=1):
        q, k = usual(q, through(k) if when == "before" else k, cos, sin, unsqueeze_dim)
        return q, through(k) if when == "after" else k

    monkeypatch.setattr(modeling(model), "apply_rotary_pos_emb", anew)
    assert found.loss.mean == pytest.approx(token_losses(model, text.ids).mean().item(), abs=1e-7)
    assert found.error is not None
    assert found.error.mean == pytest.approx(sum(errors) / len(errors), rel=1e-4)


def test_a_format_of_all_numbers_changes_no_bit(monkeypatch):
    from ropewalk.lab.trained import precision

    monkeypatch.setattr(precision, "quantised", lambda k, form, per: k.clone())
    for kind in ("Llama", "Cohere", "StableLm"):
        found = measure(tiny(kind, **MODELS[kind]), texts(), forms=["int8"])
        for row in found.keys.values():
            assert row.change.values == (0.0, 0.0)
            assert row.error is not None
            assert row.error.values == (0.0, 0.0)
            assert not row.beyond


BIASED = {
    "Llama": {"attention_bias": True},
    "Cohere": {"attention_bias": True},
    "StableLm": {"partial_rotary_factor": 0.5, "use_qkv_bias": True},
}


@pytest.mark.parametrize("kind", BIASED)
def test_offsets_of_channels_survive_before_the_rotation_and_not_after(kind: str):
    """Rotation carries the offset of one lane into both of its pair, and so into two scales."""
    model = tiny(kind, **BIASED[kind])
    for layer in model.model.layers:
        bias = layer.self_attn.k_proj.bias.data.view(-1, 16)
        bias[:, 0], bias[:, 2] = 400.0, -300.0
    keys = measure(model, texts(), forms=["int4"]).keys
    error = {v.when: row.error.mean for v, row in keys.items() if row.error and v.per == "channel"}
    assert error["after"] > 5 * error["before"]


def test_contrasts_and_marks_follow_the_passages():
    found = measure(tiny("Llama"), texts(3), forms=["int4", "int8"])
    contrasts = {(str(c.a), str(c.b)): c for c in found.contrasts()}
    assert len(contrasts) == 8
    each = contrasts["int4 after rotation, per token", "int4 before rotation, per token"]
    rows = [found.keys[Keys("int4", when, "token")].loss.values for when in ("after", "before")]
    assert each.difference.values == tuple(a - b for a, b in zip(*rows, strict=True))
    for variant, row in found.tables.items():
        plain = found.own[variant.first if variant.how != "own" else 0].values
        assert row.change.values == tuple(
            a - b for a, b in zip(row.loss.values, plain, strict=True)
        )
    parts = [measure(tiny("Llama"), [text], forms=["int4", "int8"]) for text in texts(3)]
    assert together(parts) == found
    assert not any(row.beyond for row in parts[0].rows), "one passage has no spread"
    with pytest.raises(ValueError, match="2 kinds"):
        together([parts[0], measure(tiny("Llama"), texts(1), forms=["int8"])])


# ---- tables --------------------------------------------------------------------------------------


def tables_of(module: Any, how: str, positions: Tensor) -> tuple[Tensor, Tensor]:
    (made,) = makers(module)
    with made_otherwise([made], how):
        return module(torch.zeros(1, 1), position_ids=positions)


@pytest.mark.parametrize("config", [{}, {"rope_parameters": YARN}], ids=["plain", "yarn"])
def test_tables_are_what_the_loop_gives(config: dict[str, Any]):
    module = rotary(tiny("Llama", max_position_embeddings=1 << 17, **config))
    positions = torch.tensor([[0, 1, 100, 257, 99_999, 131_071]])
    frequencies, factor = module.inv_freq.tolist(), module.attention_scaling

    def narrow(value: float) -> float:
        return torch.tensor(value, dtype=torch.float64).to(torch.bfloat16).item()

    ways = {
        "exact phases": lambda p, f: (math.cos(p * f) * factor, 1e-6),
        "inv_freq in bfloat16": lambda p, f: (math.cos(p * narrow(f)) * factor, 1e-6 + 1e-7 * p),
        "angles in bfloat16": lambda p, f: (
            narrow(narrow(math.cos(narrow(narrow(p) * narrow(f)))) * factor),
            2.0**-7,
        ),
    }
    own = tables_of(module, "own", positions)
    for how, way in ways.items():
        cos, sin = tables_of(module, how, positions)
        assert cos.dtype == sin.dtype == torch.float32
        for i, p in enumerate(positions[0].tolist()):
            for c, f in enumerate(frequencies * 2):
                wanted, limit = way(p, f)
                assert abs(cos[0, i, c].item() - wanted) <= limit, (how, p, c)
        size = (cos.square() + sin.square()).sqrt() / factor
        assert (size - 1).abs().max() < (1e-2 if "angles" in how else 1e-6)
    for table, before in zip(
        tables_of(module, "cos and sin in bfloat16", positions), own, strict=True
    ):
        assert torch.equal(table, before.bfloat16().float())
    assert all(
        torch.equal(a, b) for a, b in zip(tables_of(module, "own", positions), own, strict=True)
    )


def test_losses_are_those_of_models_with_the_fault_built_in():
    texts_ = texts()
    found = measure(tiny("Llama"), texts_, forms=["int8"]).tables
    rounded = tiny("Llama")
    rotary(rounded).inv_freq.copy_(rotary(rounded).inv_freq.bfloat16())
    narrow = tiny("Llama")
    tables_in_bfloat16(narrow)
    built = {"inv_freq in bfloat16": rounded, "cos and sin in bfloat16": narrow}
    for how, model in built.items():
        losses = [token_losses(model, text.ids).mean().item() for text in texts_]
        assert list(found[Tables(how, 0)].loss.values) == losses


def test_tokens_stand_where_they_are_placed():
    model, seen = tiny("Llama"), []
    hook = rotary(model).register_forward_pre_hook(
        lambda _, args, given: seen.append(given["position_ids"]), with_kwargs=True
    )
    ids = texts(1)[0].ids
    with placed(model.model, 100):
        token_losses(model, ids)
    token_losses(model, ids)
    hook.remove()
    assert [p[0].tolist() for p in seen] == [list(range(n, n + TOKENS)) for n in (100, 0)]


# ---- what cannot be measured ---------------------------------------------------------------------


def test_tables_that_cannot_be_made_otherwise_are_told():
    found = measure(tiny("Llama", rope_parameters=DYNAMIC), texts(), forms=["int8"])
    assert not found.tables
    assert len(found.keys) == 4
    assert any("dynamic" in note for note in found.notes)
    found = measure(tiny("Llama"), texts(1, 128), forms=["int8"])
    assert {v.first for v in found.tables} == {0}
    assert any("no room" in note for note in found.notes)


def test_what_cannot_be_measured_is_refused():
    import transformers

    with pytest.raises(ValueError, match="no rotation"):
        measure(tiny("GPT2"), texts())
    encoder = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=128,
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            initializer_range=0.2,
        )
    )
    with pytest.raises(TypeError, match="encoder"):
        measure(encoder, texts())
    broken = tiny("Llama")
    broken.lm_head.weight.data[5] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        measure(broken, texts())
    with pytest.raises(ValueError, match="one length"):
        measure(tiny("Llama"), [*texts(1, 8), *texts(1, 9)])
    with pytest.raises(ValueError, match="int3"):
        measure(tiny("Llama"), texts(), forms=["int3"])


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a tokenizer that makes a token of each character."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("model")
    tiny("Llama").save_pretrained(path)
    words = {chr(i) if i > 2 else f"<{i}>": i for i in range(128)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<0>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")  # pyright: ignore
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<0>").save_pretrained(path)
    return path


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main(["precision", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_command_prints_a_document_and_writes_a_page(folder: Path, tmp_path: Path, capsys):
    out = tmp_path / "precision.html"
    given = (str(folder), "--length", "24", "--texts", "2", "--formats", "int4, e5m2")
    status, text, err = command(capsys, *given, "--json", "--html", str(out))
    assert (status, err) == (0, "")
    found = json.loads(text)
    assert (found["source"], found["arithmetic"], found["length"]) == (str(folder), "float32", 24)
    assert len(found["passages"]) == 2
    assert [k["form"] for k in found["keys"]] == ["int4"] * 4 + ["e5m2"] * 4
    assert len(found["tables"]) == 9
    assert len(found["contrasts"]) == 8
    assert all(len(row["change"]["values"]) == 2 for row in found["keys"] + found["tables"])
    written = out.read_text(encoding="utf-8")
    assert written.count("<svg") == 1, "one figure"
    assert "http" not in written.replace("http-equiv", ""), "nothing is asked of any network"
    for name in ("int4 before rotation, per channel", "angles in bfloat16, from position 104"):
        assert written.count(f">{name}<") == 2, "in the figure and in a table"

    status, text, err = command(capsys, *given)
    assert (status, err) == (0, "")
    for words in ("untouched", "e5m2", "exact phases", "after − before rotation", "spread"):
        assert words in text


def test_own_text_is_read(folder: Path, tmp_path: Path, capsys):
    file = tmp_path / "own.txt"
    file.write_text("The dog chased another dog. " * 9, encoding="utf-8")
    given = (str(folder), "--length", "16", "--formats", "int8")
    status, text, _ = command(capsys, *given, "--text", str(file), "--json")
    assert status == 0
    assert json.loads(text)["passages"] == [str(file)]
    _, text, _ = command(capsys, *given, "--text", str(file))
    assert "no change is judged" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--formats", "int3"), "int3"),
        (("--length", "1"), "--length"),
        (("--length", "10000000"), "tokens"),
        (("--texts", "0"), "--texts"),
        (("--texts", "99"), "count=99"),
        (("--text", "missing.txt"), "missing.txt"),
        (("--html", "missing/page.html"), "missing"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(folder: Path, capsys, arguments, words):
    status, out, err = command(capsys, str(folder), *arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert words in err


def test_a_model_without_rotation_is_refused_in_a_line(folder: Path, tmp_path: Path, capsys):
    import shutil

    where = tmp_path / "gpt2"
    shutil.copytree(folder, where)
    tiny("GPT2").save_pretrained(where)
    for arguments in ((str(where),), (str(where), "--json")):
        status, out, err = command(capsys, *arguments, "--length", "16")
        assert (status, out) == (2, "")
        assert err.count("\n") == 1
        assert "no rotation" in err
    status, _, err = command(capsys, str(tmp_path / "nowhere"))
    assert status == 2
    assert "nowhere" in err


def test_a_name_in_a_page_is_text():
    found = measure(tiny("Llama"), [Passage("<script>", texts(1)[0].ids)], forms=["int8"])
    assert isinstance(found, Precision)
    assert "<script>" not in page(found, "<script>alert(1)</script>")


# ---- the record ----------------------------------------------------------------------------------


def test_the_walk_tells_what_the_record_says():
    record = records.load(held.RECORD)
    assert record is not None
    assert (Path(__file__).resolve().parent.parent / record["script"]).is_file()
    assert held.on_text(None) == ({}, ())
    figures, (paragraph,) = held.on_text(record)
    found = record["measured"]
    assert len(figures) == len(found["keys"]) + len(found["tables"]) == 21
    for row in found["keys"]:
        figure = figures[f"nats_{row['form']}_{row['when']}_per_{row['per']}"]
        assert figure.value == pytest.approx(row["change"]["mean"], rel=1e-3)
        if row["form"] == "int4":
            assert f"{row['change']['mean']:+.2g}".replace("-", "−") in paragraph
        losses = row["loss"]["values"]
        plain = found["own"][0]["loss"]["values"]
        assert row["change"]["values"] == [a - b for a, b in zip(losses, plain, strict=True)]


def test_an_exponent_keeps_its_hyphen():
    from ropewalk.report.precision_words import signed

    assert signed(-2.5e-7) == "−2.5e-07"
    assert signed(4.1e-8) == "+4.1e-08"
    assert signed(0.0) == "0"
