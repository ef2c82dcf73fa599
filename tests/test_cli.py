"""The command line: one JSON document, one line of complaint, three exit statuses, no traceback."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ropewalk.cli import main
from ropewalk.cli.settings import parse

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = (
    "walk",
    "encodings",
    "show",
    "check",
    "build-kernel",
    "explain",
    "diff",
    "emit",
    "extend",
)


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def fails_in_one_line(capsys, *arguments: str) -> str:
    status, out, err = run(capsys, *arguments)
    assert status == 2, (status, out, err)
    assert out == ""
    assert err.startswith("ropewalk: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def test_encodings_lists_the_catalogue(capsys):
    status, out, err = run(capsys, "encodings", "--json")
    assert (status, err) == (0, "")
    names = [entry["name"] for entry in json.loads(out)["encodings"]]
    assert {"alibi", "axial", "binary", "integer", "learned", "normalised", "rope"} <= set(names)
    status, out, _ = run(capsys, "encodings")
    assert status == 0
    assert all(name in out for name in names)


def test_encodings_are_listed_by_family(capsys):
    from ropewalk.catalog import FAMILIES, encodings

    status, out, _ = run(capsys, "encodings")
    heads = [line.split(":")[0] for line in out.splitlines() if line.split(":")[0] in FAMILIES]
    assert status == 0
    assert heads == [f for f in FAMILIES if any(s.family == f for s in encodings().values())]
    status, out, _ = run(capsys, "encodings", "--family", "bias", "--json")
    entries = json.loads(out)["encodings"]
    assert status == 0
    assert {e["name"] for e in entries} == {
        s.name for s in encodings().values() if s.family == "bias"
    }
    alibi = next(e for e in entries if e["name"] == "alibi")
    assert {"name", "family", "title", "source", "config", "variants"} <= set(alibi)
    assert alibi["claims"]["decay"] is True
    assert alibi["module"] == "ropewalk.encodings.bias.alibi"


def test_check_all_of_a_family_groups_and_counts(capsys, monkeypatch):
    from ropewalk import catalog, checks

    asked: list[tuple[str, ...]] = []

    def measured(progress, *, names, processes):
        asked.append(tuple(names))
        assert processes == 1
        return {name: checks.check(name) for name in ["alibi"]}

    monkeypatch.setattr(checks, "check_all", measured)
    arguments = ("check", "all", "--family", "bias", "--processes", "1")
    status, out, err = run(capsys, *arguments)
    assert (status, err) == (0, "")
    assert set(asked[0]) == {s.name for s in catalog.encodings().values() if s.family == "bias"}
    assert "1 of 1 encodings measure as they claim" in out
    assert out.splitlines()[1].strip() == "bias"
    spec = catalog.get("alibi")
    wrong = type(spec)(**{**vars(spec), "claims": {**spec.claims, "bounded": True}})
    monkeypatch.setitem(catalog._registry, "alibi", wrong)
    status, out, _ = run(capsys, *arguments)
    assert status == 1
    assert "alibi: bounded is no, claimed yes" in out
    assert "0 of 1" in out


def test_show_json_and_text(capsys):
    status, out, _ = run(capsys, "show", "rope", "--set", "base=500000", "--json")
    shown = json.loads(out)
    assert status == 0
    assert shown["config"] == {"head_dim": 64, "base": 500000}
    assert shown["spectrum"]["freqs"][0][1] == pytest.approx(500000 ** (-2 / 64), rel=1e-15)
    status, out, _ = run(capsys, "show", "axial")
    assert status == 0
    assert "spectrum: 32 pairs" in out


def test_check_one_json_has_the_fixed_shape(capsys):
    status, out, err = run(capsys, "check", "alibi", "--json")
    document = json.loads(out)
    assert (status, err) == (0, "")
    assert set(document) >= {"encoding", "config", "properties"}
    assert document["config"] == {"heads": 8}
    for result in document["properties"].values():
        assert set(result) >= {"error", "tolerance", "holds", "claimed", "reason"}
    assert document["properties"]["bounded"]["holds"] is False
    assert document["properties"]["norm"]["holds"] is None


def test_check_says_no_where_a_claim_is_wrong(capsys, monkeypatch):
    from ropewalk import catalog

    spec = catalog.get("alibi")
    wrong = type(spec)(**{**vars(spec), "claims": {**spec.claims, "bounded": True}})
    monkeypatch.setitem(catalog._registry, "alibi", wrong)
    status, out, _ = run(capsys, "check", "alibi")
    assert status == 1
    assert "no!" in out


def test_variant_claims_follow_the_configuration(capsys):
    status, out, _ = run(capsys, "check", "rope", "--set", "phases=float32", "--json")
    properties = json.loads(out)["properties"]
    assert status == 0
    assert properties["precision"]["holds"] is False
    assert properties["precision"]["claimed"] is False


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "rpoe"), ("rpoe", "did you mean 'rope'")),
        (("check", "sinusodal"), ("did you mean 'sinusoidal'",)),
        (("show", "rope", "--set", "head_dim=63"), ("head_dim=63", "even", "64")),
        (("show", "rope", "--set", "head_dim"), ("--set 'head_dim'", "KEY=VALUE")),
        (("show", "rope", "--set", "bse=1"), ("bse", "base")),
        (("show", "rope", "--set", "base=-1"), ("base", "above 0")),
        (("show", "rope", "--set", "base=nan"), ("base",)),
        (("show", "rope", "--set", "base=1", "--set", "base=2"), ("twice",)),
        (("show", "rope", "--set", "layout=neox"), ("layout='neox'", "half", "interleaved")),
        (("show", "rope", "--set", "head_dim=1e400"), ("head_dim",)),
        (("show", "alibi", "--set", "heads=0"), ("heads=0", "at least 1")),
        (("show", "learned", "--set", "length=-4"), ("length=-4",)),
        (("show", "binary", "--set", "bits=99"), ("bits=99", "at most")),
        (("check", "all", "--set", "dim=4"), ("--set",)),
        (("check", "all", "--family", "biass"), ("did you mean 'bias'",)),
        (("check", "all", "--processes", "0"), ("processes=0", "at least 1")),
        (("check", "rope", "--family", "bias"), ("check all",)),
        (("encodings", "--family", "Rotary"), ("did you mean 'rotary'",)),
        (("show", "ALiBi"), ("did you mean 'alibi'",)),
        (("show", "rope", "--out", "/"), ("figure.svg",)),
        (("walk", "cat", "--out", "/nonexistent/dir/x.html"), ("/nonexistent/dir",)),
        (("walk", "cat", "--out", "/"), ("folder",)),
        (("walk", ""), ("text",)),
        (("walk", "   "), ("text",)),
        (("walk", "xyzzyqwerty dog"), ("xyzzyqwerty", "smollm2")),
        (("walk", "cat", "--model", "/nonexistent/model"), ("/nonexistent/model",)),
        (("wlak",), ("walk",)),
        (("walk", "--jsn"), ("--json",)),
        (("show",), ("NAME", "name")),
    ],
)
def test_wrong_input_gives_one_line(capsys, arguments, says):
    message = fails_in_one_line(capsys, *arguments)
    assert any(word in message for word in says), message


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(capsys, command):
    status, out, _ = run(capsys, command, "--help")
    assert status == 0
    assert f"Example: ropewalk {command}" in out
    assert "--json" in out


def test_no_arguments_print_the_help(capsys):
    status, out, err = run(capsys)
    assert (status, err) == (0, "")
    assert all(command in out for command in COMMANDS)


def test_version_names_the_kernel(capsys):
    status, out, _ = run(capsys, "--version")
    assert status == 0
    assert "kernel:" in out
    assert out.count("\n") == 1


def test_versions_in_json(capsys):
    for order in (("--version", "--json"), ("--json", "--version")):
        status, out, err = run(capsys, *order)
        assert (status, err) == (0, "")
        found = json.loads(out)
        assert list(found) == ["ropewalk", "torch", "kernel"]
        line = "ropewalk {ropewalk}, torch {torch}, kernel: {kernel}\n".format(**found)
        assert run(capsys, "--version") == (0, line, "")
    assert "'ropewalk show --json'" in fails_in_one_line(capsys, "--json", "show", "rope")
    assert "after a command" in fails_in_one_line(capsys, "--json")


def test_help_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys; from ropewalk.cli import main; main(['--help']); "
        "print(sorted({'torch', 'numpy', 'rich', 'transformers'} & set(sys.modules)))"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.stdout.splitlines()[-1] == "[]", result.stdout
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < 3, "start-up loads something it should not"


def test_a_closed_pipe_is_no_traceback():
    command = f"{sys.executable} -m ropewalk encodings --json | head -c 10"
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert "Traceback" not in result.stderr


QUIET = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
words = st.text(max_size=20) | st.sampled_from(["--json", "--set", "--help", "-h", "--", "rope"])


@settings(max_examples=150, deadline=None, suppress_health_check=QUIET)
@given(st.sampled_from(["encodings", "show", "nonsense", ""]), st.lists(words, max_size=4))
def test_fuzzed_arguments_never_raise(capsys, command, rest):
    status = main([command, *rest])
    capsys.readouterr()
    assert status in (0, 1, 2)


@settings(max_examples=100, deadline=None, suppress_health_check=QUIET)
@given(st.sampled_from(["head_dim", "base", "layout", "rotary_dim", "scaling"]), st.text())
def test_fuzzed_settings_never_raise(capsys, key, value):
    status = main(["show", "rope", "--json", f"--set={key}={value}"])
    out, err = capsys.readouterr()
    assert status in (0, 2)
    assert err.count("\n") == (1 if status else 0)
    if status == 0:
        json.loads(out)


def test_settings_are_read_as_literals_or_text():
    assert parse(["a=1", "b=2.5", "c=half", "d=[1, 2]", "e=true", "f=none", "g-h=x=y"]) == {
        "a": 1,
        "b": 2.5,
        "c": "half",
        "d": [1, 2],
        "e": True,
        "f": None,
        "g_h": "x=y",
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "rope", "--set", "head_dim=100000000"), "at most 65536"),
        (("show", "alibi", "--set", "heads=100000000"), "at most 65536"),
        (("show", "sinusoidal", "--set", "dim=100000000"), "at most 65536"),
        (("show", "learned", "--set", "length=1000000000000"), "cannot be held"),
        (("show", "rope", "--set", "base=inf"), "finite"),
        (("walk", "cat", "--out", "-"), "walk.html"),
        (("walk", "cat", "--out", "x" * 300), "too long"),
        (("walk", "cat", "--out", "/proc/x.html"), "--out /proc/x.html cannot be written"),
    ],
)
def test_huge_and_unwritable_values_are_refused_at_once(capsys, arguments, says):
    assert says in fails_in_one_line(capsys, *arguments)


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = line.replace("ropewalk", f"{sys.executable} -m ropewalk")
    return subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("ropewalk encodings >&-", 0),
        ("ropewalk --version >&-", 0),
        ("ropewalk show nosuch 2>&-", 2),
        ("ropewalk show nosuch 2>/dev/full", 2),
        ("ropewalk encodings --json >/dev/full", 2),
    ],
)
def test_closed_and_full_streams_give_a_status(line, status):
    result = shell(line)
    assert result.returncode == status, result
    assert "Traceback" not in result.stderr


def test_a_narrow_terminal_and_a_narrow_encoding_lose_nothing():
    narrow = shell("ropewalk encodings", COLUMNS="5")
    assert "sinusoidal" in narrow.stdout
    ascii_only = shell("ropewalk show rope --json", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert ascii_only.returncode == 0
    assert "R(−Δ)q" in json.loads(ascii_only.stdout)["reasons"]["decay"]
    assert shell("ropewalk show rope", PYTHONIOENCODING="ascii", LC_ALL="C").returncode == 0


def test_the_page_is_written_through_a_link_and_replaces_a_file_whole(tmp_path):
    from ropewalk.cli.files import require_writable, write

    target, link = tmp_path / "target.html", tmp_path / "link.html"
    target.write_text("old")
    link.symlink_to(target)
    require_writable(link, "walk.html")
    assert target.read_text() == "old"
    write(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    write(target, "newer")
    assert target.read_text() == "newer"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ValueError, match=r"--out .*loop cannot be written"):
        require_writable(tmp_path / "loop", "walk.html")


def test_what_nobody_foresaw_is_one_line(capsys, monkeypatch):
    def broken(name):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("ropewalk.catalog.get", broken)
    assert "RuntimeError: two lines" in fails_in_one_line(capsys, "show", "rope")
    monkeypatch.setenv("ROPEWALK_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        main(["show", "rope"])


def test_a_traceback_of_any_error_can_be_asked_for(capsys, monkeypatch):
    assert "heads='x'" in fails_in_one_line(capsys, "show", "alibi", "--set", "heads=x")
    monkeypatch.setenv("ROPEWALK_TRACEBACK", "1")
    with pytest.raises(TypeError):
        main(["show", "alibi", "--set", "heads=x"])


@pytest.mark.parametrize("form", [["--json"], []])
def test_the_plain_form_of_explain_needs_no_parser(form, tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "llama", "rope_theta": 500000.0}', encoding="utf-8")
    code = (
        "import sys; from ropewalk.cli import main; main(sys.argv[1:]); "
        "sys.exit(sorted({'typer', 'pydantic', 'torch', 'numpy'} & set(sys.modules)) or 0)"
    )
    command = [sys.executable, "-c", code, "explain", str(file), *form]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "status"),
    [("{}", 0), ('{"rope_theta": -1, "head_dim": 64}', 1), ("[]", 2), ("{", 2)],
)
def test_the_plain_form_of_explain_is_the_parsed_one(text, status, tmp_path, capsys):
    from ropewalk.cli.entry import plain_explain

    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    assert plain_explain(["explain", "--hf-overrides", "{}", str(file)]) is None
    assert main(["explain", str(file), "--json"]) == status
    plain = capsys.readouterr()
    assert main(["explain", "--hf-overrides", "{}", str(file), "--json"]) == status
    assert capsys.readouterr() == plain


@pytest.mark.parametrize(
    "words", [["explain"], ["explain", "--json"], ["explain", "-x"], ["explain", "a", "b"], ["-h"]]
)
def test_other_forms_are_parsed(words):
    from ropewalk.cli.entry import plain_explain

    assert plain_explain(words) is None


def test_what_leaves_the_program_from_within_is_told_and_is_no_success(monkeypatch, capsys) -> None:
    def leaves(given):
        raise SystemExit(0)

    monkeypatch.setattr("ropewalk.cli.entry._command", leaves)
    assert main(["encodings"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_interrupt_within_a_command_is_told(monkeypatch, capsys) -> None:
    def stopped(*given, **also):
        raise KeyboardInterrupt

    monkeypatch.setattr("ropewalk.cli.encodings.print_json", stopped)
    assert main(["encodings", "--json"]) == 130
    assert capsys.readouterr().err == "ropewalk: stopped\n"


@pytest.mark.parametrize("command", [["encodings"], ["encodings", "--json"], ["show", "rope"]])
def test_a_reader_that_left_is_no_error_to_tell(command):
    """As in ``ropewalk … | head -1``: 141, which is 128 + SIGPIPE, and not a word."""
    reading, writing = os.pipe()
    os.close(reading)
    program = [sys.executable, "-m", "ropewalk", *command]
    done = subprocess.run(program, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
