"""Encodings from elsewhere: of other distributions, and of a file of one's own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import ropewalk
from ropewalk import catalog, plugins
from ropewalk.cli import main

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "extend.md").read_text(encoding="utf-8"), re.S
)
FADES = BLOCKS[0]


def install(folder: Path, name: str, module: str, **entries: str) -> None:
    """What installing a wheel leaves: a module, and a dist-info with entry points."""
    (folder / f"{name}.py").write_text(module, encoding="utf-8")
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = "\n".join(f"{key} = {value}" for key, value in entries.items())
    (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{lines}\n")


def forget() -> None:
    """What a test has imported from its folder is imported anew by the next."""
    ours = ("own_fades", "own_page", "bad", "fades", "two", "none", "broken")
    for name in list(sys.modules):
        if name in ours or name.startswith("ropewalk_file_"):
            del sys.modules[name]


@pytest.fixture
def site(tmp_path, monkeypatch) -> Iterator[Path]:
    """A folder of installed distributions, for which the catalogue looks anew."""
    catalog.encodings()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(catalog, "_registry", dict(catalog._registry))
    monkeypatch.setattr(plugins, "_loaded", False)
    monkeypatch.setattr(plugins, "_broken", {})
    monkeypatch.setattr(plugins, "_everywhere", {})
    yield tmp_path
    forget()


def loaded() -> list[str]:
    """Loads the plugins; the warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ropewalk.encodings()
        ropewalk.encodings()
    assert all(warning.category is plugins.PluginWarning for warning in told)
    return [str(warning.message) for warning in told]


def test_a_class_is_registered_by_its_entry_point(site):
    install(site, "own_fades", FADES, fades="own_fades:Fades")
    assert loaded() == []
    spec = ropewalk.encodings()["fades"]
    assert (spec.family, spec.source) == ("bias", "own_fades 1.2")
    assert spec.title == "Logits fall with the logarithm of distance."
    assert ropewalk.make("fades").family == "bias"
    assert "fades" not in catalog.builtin()
    assert plugins.is_everywhere("fades")
    report = ropewalk.checks.check("fades")
    assert report.agrees
    assert report.properties["decay"].holds is True
    assert report.properties["bounded"].holds is False
    figures = report.properties["deterministic"].figures
    assert figures["processes"] == 0.0, "a fresh process finds the plugin too"


def test_a_spec_claims_and_can_be_contradicted(site, capsys):
    module = FADES + BLOCKS[3].replace('"bounded": False', '"bounded": True')
    install(site, "own_fades", module, anything="own_fades:spec")
    assert loaded() == []
    assert main(["check", "fades"]) == 1
    assert "no!" in capsys.readouterr().out


def test_a_module_registers_its_own(site):
    module = FADES + BLOCKS[3] + "ropewalk.register(spec)\nassert ropewalk.encodings()['rope']\n"
    install(site, "own_fades", module, fades="own_fades")
    assert loaded() == []
    assert "fades" in ropewalk.encodings()


@pytest.mark.parametrize(
    ("module", "entry", "says"),
    [
        ("import nothing_of_this_name", "bad", "ModuleNotFoundError: No module named 'nothing"),
        ("", "bad:Fades", "AttributeError: module 'bad' has no attribute 'Fades'"),
        ("x = 3", "bad:x", "TypeError: 'entry' is of type int; it must be a ropewalk Spec"),
        ("class C: pass", "bad:C", "'entry' is the class C; it must be"),
        ("raise SystemExit(3)", "bad", "SystemExit: 3"),
        ("import ropewalk\nclass C(ropewalk.Bias): pass", "bad:C", "lacks bias, reference"),
        (
            FADES + BLOCKS[3].replace('"fades"', '"rope"'),
            "bad:spec",
            "an encoding named 'rope' is registered already",
        ),
        (
            FADES + BLOCKS[3] + "ropewalk.register(spec)\nraise OSError('two\\nlines')",
            "bad",
            "OSError: two lines",
        ),
    ],
)
def test_a_broken_plugin_is_told_and_left_out_whole(site, module, entry, says):
    before = dict(ropewalk.encodings())
    plugins._loaded = False
    install(site, "bad", module, entry=entry)
    install(site, "own_fades", FADES, working="own_fades:Fades")
    (told,) = loaded()
    assert "the plugin 'entry' of bad 1.2" in told
    assert says in told
    assert {*ropewalk.encodings()} == {*before, "working"}
    assert all(ropewalk.encodings()[name] is spec for name, spec in before.items())
    with pytest.raises(ValueError, match=r"'entry' is not there: the plugin 'entry' of bad 1\.2"):
        catalog.get("entry")


def test_the_command_line_tells_a_broken_plugin_in_a_line_and_goes_on(site):
    install(site, "bad", "1/0", entry="bad")
    install(site, "own_fades", FADES, fades="own_fades:Fades")
    ran = subprocess.run(
        [sys.executable, "-m", "ropewalk", "encodings", "--json"],
        capture_output=True,
        text=True,
        cwd=site,
        env={"PYTHONPATH": f"{ROOT}:{site}", "PATH": ""},
    )
    document = json.loads(ran.stdout)
    assert ran.returncode == 0
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith("ropewalk: the plugin 'entry' of bad 1.2 (bad) cannot be loaded")
    assert "ZeroDivisionError" in document["broken"]["entry"]
    assert {"fades", "rope"} <= {entry["name"] for entry in document["encodings"]}


@pytest.fixture
def own(tmp_path, monkeypatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "fades.py"
    file.write_text(FADES, encoding="utf-8")
    yield file
    forget()


@pytest.mark.parametrize("name", ["{file}", "{file}:Fades", "fades.py:Fades", "fades:Fades"])
def test_a_file_is_checked_without_being_installed(own, name, capsys):
    assert main(["check", name.format(file=own), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["encoding"] == "Fades"
    decay = document["properties"]["decay"]
    assert (decay["holds"], decay["claimed"]) == (True, None)


def test_settings_reach_a_class_of_ones_own(own, capsys):
    own.write_text(
        FADES.replace("heads = 8", "def __init__(self, heads):\n        super().__init__()\n"
                      "        self.heads = heads\n"),
        encoding="utf-8",
    )  # fmt: skip
    assert main(["show", "fades.py", "--set", "heads=3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"] == {"heads": 3}
    assert main(["check", "fades.py"]) == 2
    assert "needs heads" in capsys.readouterr().err


def test_a_spec_of_ones_own_is_not_taken_for_its_namesake_elsewhere(own):
    """Another process would answer for the catalogue's alibi."""
    fades = plugins.from_file("fades.py").factory
    alibi = vars(ropewalk.encodings()["alibi"])
    mine = ropewalk.Spec(**{**alibi, "factory": lambda heads: fades()})
    figures = ropewalk.checks.check(mine).properties["deterministic"].figures
    assert "processes" not in figures
    assert set(figures.values()) == {0.0}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nosuch.py:Fades", "nosuch.py cannot be imported: FileNotFoundError"),
        ("nosuch_module:Fades", "No module named 'nosuch_module'"),
        ("fades.py:Fadse", "fades.py has no 'Fadse' (did you mean 'Fades'?)"),
        ("fades.py:", "names no class after the colon"),
        ("fades.py:math", "'math' is of type module; it must be a ropewalk Spec or a subclass"),
        ("two.py", "two.py defines these encodings: A, B; name one: two.py:Class"),
        ("none.py", "none.py defines these encodings: none"),
        ("broken.py:X", "broken.py cannot be imported: SyntaxError"),
        (":X", "cannot be imported"),
    ],
)
def test_what_is_no_encoding_is_one_line(own, name, says, capsys):
    own.with_name("two.py").write_text(
        "import fades\nclass A(fades.Fades): pass\nclass B(fades.Fades): pass\n"
    )
    own.with_name("none.py").write_text("")
    own.with_name("broken.py").write_text("def")
    assert main(["check", name]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert says in error


def test_the_page_about_ones_own_encoding_runs_as_it_stands(own, capsys, monkeypatch):
    assert len(FADES.strip().splitlines()) <= 11, "ten lines and a blank"
    (own.parent / "own_page.py").write_text("\n".join(BLOCKS), encoding="utf-8")
    monkeypatch.syspath_prepend(str(own.parent))
    import own_page  # pyright: ignore[reportMissingImports]

    assert capsys.readouterr().out == "True\n"
    assert own_page.y.shape == own_page.q.shape
    assert ropewalk.checks.check(own_page.spec).agrees
    case = own_page.TestFades()
    laws = [name for name in dir(case) if name.startswith("test_") and name != "test_compile"]
    assert len(laws) > 10
    for law in laws:
        getattr(case, law)()
