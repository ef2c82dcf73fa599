"""extend --measure where a model refuses a method: the others are measured, and it is told why."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from reading_models import made, save

from ropewalk.cli.entry import main
from ropewalk.configs import resolve
from ropewalk.configs.extend import Plan, Unsuited, extend
from ropewalk.lab.trained import lengths
from ropewalk.lab.trained.curves import Lengthened, Refused
from ropewalk.lab.trained.lengths import lengthened, plans
from ropewalk.lab.trained.passages import Passage
from ropewalk.lab.trained.variants import variant

LARGEST = 1 << 20
PHI = {"original_max_position_embeddings": 64}
SHORT = {"hidden_size": 16, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 2}
"""Two lanes a head, which are too few for a larger theta."""


def texts(to: int = 128, count: int = 2) -> list[Passage]:
    generators = [torch.Generator().manual_seed(i) for i in range(count)]
    return [
        Passage(f"text {i}", torch.randint(3, 98, (to,), generator=g))
        for i, g in enumerate(generators)
    ]


def measured(model: Any, *methods: str) -> Lengthened:
    wanted = plans(resolve(model.config.to_dict()), 128, methods, None)
    return lengthened(model, wanted, texts(), bucket=64)


def names(found: Lengthened) -> tuple[list[str], list[str]]:
    return [c.name for c in found.curves], [each.name for each in found.refused]


def test_what_transformers_refuses_is_told_and_the_others_are_measured():
    """Phi-3's config lets no rope type be but default and longrope."""
    model = made("Phi3Config", **PHI)
    found = measured(model, "yarn", "ntk", "linear", "dynamic:3")
    assert names(found) == (["untouched", "ntk ×2"], ["yarn ×2", "linear ×2", "dynamic ×3"])
    alone = measured(model, "ntk")
    assert (alone.curves, alone.alone, alone.refused) == (found.curves, found.alone, ())
    linear = found.refused[1]
    assert (linear.method, linear.factor) == ("linear", 2.0)
    assert "must be one of ['longrope'], got linear" in linear.reason
    told = found.as_dict()
    assert [each["name"] for each in told["refused"]] == names(found)[1]
    assert all(each["reason"] for each in told["refused"])


@pytest.mark.parametrize(
    ("changes", "method", "words"),
    [({}, "longrope", "longrope needs a short_factor"), (SHORT, "ntk", "ntk needs at least 4")],
)
def test_what_the_config_has_nothing_for_is_refused_alone(changes, method: str, words: str):
    model = made(**changes)
    found = measured(model, method, "linear")
    assert names(found) == (["untouched", "linear ×2"], [method])
    assert words in found.refused[0].reason
    with pytest.raises(ValueError, match=f"no method can be measured: {method}: {words}"):
        measured(model, method)
    with pytest.raises(Unsuited, match=words):
        extend(resolve(model.config.to_dict()), 128, method)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("the loss is not finite"), "the loss is not finite"),
        (RuntimeError("size 3\nmust match 4"), "size 3 must match 4"),
        (KeyError("wobbly"), "KeyError: 'wobbly'"),
    ],
)
def test_what_fails_only_when_it_runs_is_refused_too(monkeypatch, error: Exception, words: str):
    def one_is_broken(model: Any, plan: Plan) -> Any:
        found: Any = variant(model, plan)
        if plan.method == "yarn":
            found.model.layers[1].register_forward_pre_hook(lambda *_: fail(error))
        return found

    monkeypatch.setattr(lengths, "variant", one_is_broken)
    model = made()
    found = measured(model, "yarn", "linear")
    assert names(found) == (["untouched", "linear ×2"], ["yarn ×2"])
    assert found.refused[0].reason == words
    with pytest.raises(ValueError, match="no method can be measured: yarn ×2"):
        measured(model, "yarn")
    model.model.layers[1].register_forward_pre_hook(lambda *_: fail(error))
    # The model itself fails: there is nothing to compare with.
    with pytest.raises(
        (type(error), ValueError), match=re.escape(words.removeprefix("KeyError: "))
    ):
        measured(model, "linear")


def fail(error: Exception) -> None:
    raise error


def test_memory_that_runs_out_is_no_word_about_a_method(monkeypatch):
    def too_large(model: Any, plan: Plan) -> Any:
        found: Any = variant(model, plan)
        found.model.layers[0].register_forward_pre_hook(lambda *_: fail(MemoryError()))
        return found

    monkeypatch.setattr(lengths, "variant", too_large)
    with pytest.raises(MemoryError):
        measured(made(), "yarn", "linear")


@pytest.mark.parametrize("method", ["yarn", "linear", "ntk", "dynamic"])
@pytest.mark.parametrize("factor", [1000001, LARGEST])
def test_the_largest_factor_is_what_runs(method: str, factor: int):
    """What a plan may ask for is what a config may state: nothing of it is left out."""
    model = made()
    (plan,) = plans(resolve(model.config.to_dict()), 128, (f"{method}:{factor}",), None)
    assert isinstance(plan, Plan)
    assert not plan.after.errors
    found = variant(model, plan)
    (live,) = (b for n, b in found.named_buffers() if n.endswith("rotary_emb.inv_freq"))
    wanted = torch.tensor(plan.after.layer(0).inv_freq, dtype=torch.float64)
    torch.testing.assert_close(live.double(), wanted, rtol=1e-6, atol=0)
    if method == "linear":
        assert live[0].item() == pytest.approx(1 / factor)
    names_ = [c.name for c in measured(model, f"{method}:{factor}").curves]
    assert names_[1].startswith(method)


def test_a_stretch_that_no_config_can_state_is_refused():
    config = made().config.to_dict()
    for method in ("yarn", "ntk", "linear", "dynamic"):
        with pytest.raises(ValueError, match="a config states a factor of at most 1048576"):
            extend(resolve(config), 64 * LARGEST + 1, method)
        assert not extend(resolve(config), 64 * LARGEST, method).after.errors


def test_one_plan_that_reads_back_as_an_error_is_unsuited(monkeypatch):
    from ropewalk.configs import parameter

    resolved = resolve(made().config.to_dict())
    monkeypatch.setattr(parameter, "LARGEST_FACTOR", 3)
    with pytest.raises(Unsuited, match="yarn ×4 cannot be stated in this config: RW026"):
        extend(resolved, 128, "yarn", factor=4.0)
    wanted = plans(resolved, 128, ("yarn:4", "linear"), None)
    assert [type(each) for each in wanted] == [Refused, Plan]


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def phi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("phi")
    for name, word in (("a", "dog"), ("b", "cat")):
        (root / f"{name}.txt").write_text(f"the {word} and the other {word} " * 40)
    return save(root / "model", made("Phi3Config", **PHI))


def given(phi: Path, methods: str) -> list[str]:
    read = [part for name in "ab" for part in ("--text", str(phi.parent / f"{name}.txt"))]
    return ["extend", str(phi), "--to", "128", "--measure", "--methods", methods, *read]


def test_the_command_tells_a_refused_method_everywhere(
    phi: Path, tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    html = tmp_path / "lengths.html"
    capsys.readouterr()
    assert main([*given(phi, "yarn,ntk,linear"), "--html", str(html)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    (heads,) = (line for line in out.splitlines() if line.startswith(" tokens"))
    assert re.split(r"\s{2,}", heads.strip()) == [
        "tokens", "untouched", "ntk ×2", "yarn ×2", "linear ×2", "alone",
    ]  # fmt: skip
    (row,) = (line for line in out.splitlines() if line.lstrip().startswith("0–16 "))
    assert row.split()[3:5] == ["–", "–"]
    page = html.read_text(encoding="utf-8")
    for words in ("yarn ×2: not measured, ", "linear ×2: not measured, ", "got linear"):
        assert words in out.replace("\n", " ")
        assert words in page
    assert page.count("<td>–</td>") == 2 * 8
    assert ">yarn ×2</th>" in page

    assert main([*given(phi, "yarn,ntk,linear"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [m["name"] for m in found["methods"]] == ["untouched", "ntk ×2"]
    assert [m["method"] for m in found["refused"]] == ["yarn", "linear"]
    assert found["chosen"] in ("untouched", "ntk ×2")


def test_the_command_ends_where_every_method_is_refused(phi: Path, capsys):
    for more in ([], ["--json"]):
        capsys.readouterr()
        assert main([*given(phi, "yarn,linear"), *more]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert "no method can be measured: yarn ×2: " in err
        assert "; linear ×2: " in err


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ("ntk,ntk", "names ntk ×2 twice"),
        ("ntk,magic", "method='magic' is unknown"),
        ("ntk:1", "without 1 itself, which is the untouched model"),
        ("ntk:nan", "factor=nan must be from 1"),
        ("", "methods has an empty name"),
    ],
)
def test_what_is_no_method_ends_the_command(phi: Path, methods: str, words: str, capsys):
    """A slip of the pen is said at once, and nothing is measured for minutes first."""
    assert main(given(phi, methods)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err
