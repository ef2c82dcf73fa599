"""What README and docs say can be typed in."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.S)


def test_the_readme_example_runs(capsys):
    (example,) = blocks("README.md")
    scope: dict[str, object] = {}
    exec(example, scope)
    assert scope["report"].agrees  # pyright: ignore[reportAttributeAccessIssue]
    assert capsys.readouterr().out.split()[-1] == "True"


def test_the_readme_names_every_encoding_and_command():
    from ropewalk.catalog import builtin
    from ropewalk.cli.app import app

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = text[text.index("<!-- encodings:") : text.index("<!-- end of encodings")]
    assert set(re.findall(r"`(\w+)`", listed)) == set(builtin()), "run make docs-pages"
    for command in app.registered_commands:
        assert f"`ropewalk {command.name}" in text


def test_the_encodings_of_the_docs_pass_their_contracts(capsys, tmp_path, monkeypatch):
    source = "\n".join(blocks("docs/checks.md"))
    (tmp_path / "own_encodings.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("own_encodings")
    assert "bounded True" in capsys.readouterr().out
    cases = [module.TestTurns(), module.TestSpin(), module.TestFades(), module.TestFogs()]
    families = {case.create().family for case in cases}
    assert families == {"additive", "rotary", "bias", "contextual"}
    for case in cases:
        laws = [name for name in dir(case) if name.startswith("test_") and name != "test_compile"]
        assert len(laws) > 10
        for law in laws:
            getattr(case, law)()


def test_the_plans_of_the_docs_run():
    (example,) = blocks("docs/layers.md")
    scope: dict[str, object] = {}
    exec(example, scope)
    plan = scope["llama4"]
    assert len(plan) == 48  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "name",
    ["README.md", "CONTRIBUTING.md", *(f"docs/{n}.md" for n in ("checks", "index", "extend"))],
)
def test_links_lead_somewhere(name):
    path = ROOT / name
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target
