"""Commands that measure a model name it alike: as it was given, and its class."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from reading_models import save

from ropewalk.cli.entry import main

COMMANDS = {
    "extend": ["--to", "128", "--measure", "--methods", "ntk"],
    "usage": ["--lengths", "32", "--bands", "1"],
    "precision": ["--length", "32", "--formats", "int8"],
}
CLASS = "LlamaForCausalLM"


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("named")
    (root / "text.txt").write_text("the dog and the cat " * 40)
    save(root / "a <b> & c")
    return root


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("source", ["a <b> & c", "./a <b> & c/", "../{root}/a <b> & c"])
def test_a_model_is_named_as_it_was_given(
    where: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, source: str, capsys
):
    monkeypatch.chdir(where)
    monkeypatch.setenv("COLUMNS", "200")
    source, html = source.format(root=where.name), tmp_path / "page.html"
    given = [command, source, *COMMANDS[command], "--text", "text.txt"]
    capsys.readouterr()
    assert main([*given, "--html", str(html)]) == 0
    assert capsys.readouterr().out.startswith(f"{source} ({CLASS}): ")
    page = html.read_text(encoding="utf-8")
    escaped = source.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    (title,) = re.findall(r"<h1>(.*?)</h1>", page)
    assert title.endswith(f": {escaped} ({CLASS})")
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert next(iter(found)) == "source"
    assert (found["source"], found["model"]) == (source, CLASS)
    for inside in re.findall(r'href="data:application/json;base64,([^"]+)"', page):
        assert json.loads(base64.b64decode(inside)) == found


def test_an_audit_names_it_too(where: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(where)
    assert main(["audit", "a <b> & c", "--quick"]) == 0
    assert capsys.readouterr().out.startswith(f"a <b> & c ({CLASS}) in float32")
