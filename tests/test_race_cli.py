"""``ropewalk race`` and ``ropewalk report``: what they print, write, refuse and survive."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from race_records import MADE, race_of, record
from rich.console import Console
from rich.progress import Progress, TextColumn

import ropewalk
from ropewalk.cli import main
from ropewalk.cli.progress import Watch, about
from ropewalk.lab import executors, outcome, trial
from ropewalk.lab.executors import Failure
from ropewalk.lab.store import Store

ROOT = Path(ropewalk.__file__).resolve().parents[1]
TINY = [
    *("--steps", "4", "--batch", "2", "--dim", "16", "--layers", "1", "--heads", "2"),
    *("--train-length", "16", "--lengths", "16,32", "--set", "run=8"),
]


class Here:
    """Runs trials in this process; fails those of an encoding, or all; is stopped at another."""

    fails: str | None = ""
    stops: str = ""
    ran: int = 0

    def run(self, trials: Any, work: Any) -> Iterator[Any]:
        for each in trials:
            if each.encoding == Here.stops:
                raise KeyboardInterrupt
            failed = Here.fails in (each.encoding, None)
            Here.ran += 1
            yield each, Failure("RuntimeError: lost") if failed else work(each)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, and trials that run in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(executors, "make", lambda name, workers=None, **options: Here())
    monkeypatch.setattr(Here, "fails", "")
    monkeypatch.setattr(Here, "stops", "")
    monkeypatch.setattr(Here, "ran", 0)
    return tmp_path


def race(*arguments: str) -> int:
    return main(["race", *TINY, *arguments])


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# --- race ----------------------------------------------------------------------------------------


def test_a_race_prints_one_document_that_its_store_gives_again(capsys, place: Path) -> None:
    few = ("--encodings", "rope,alibi", "--seeds", "3", "--json")
    assert race(*few) == 0
    first = json.loads(capsys.readouterr().out)
    records = list(Store(place / "race.jsonl").records().values())
    assert first["trials"] == records
    assert first == json.loads(json.dumps(outcome.document(records)))
    assert [curve["encoding"] for curve in first["curves"]] == ["rope", "alibi"]
    assert (first["train_length"], first["lengths"], first["seeds"]) == (16, [16, 32], 3)
    assert first["config"]["task_options"] == {"run": 8}
    assert Here.ran == 6

    assert race(*few) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert Here.ran == 6, "what is stored is not run again"

    assert main(["report", "race.jsonl", "--json"]) == 0
    (again,) = json.loads(capsys.readouterr().out)["races"]
    assert {c["encoding"]: c for c in again["curves"]} == {
        c["encoding"]: c for c in first["curves"]
    }

    assert race("--encodings", "rope", "--encodings", "alibi", "--seeds", "0,2", "--json") == 0
    part = json.loads(capsys.readouterr().out)
    assert part["curves"][0]["seeds"] == [0, 2]
    assert Here.ran == 6


def test_the_usual_race_is_four_encodings_and_three_seeds(capsys) -> None:
    assert race("--json") == 0
    found = json.loads(capsys.readouterr().out)
    racers = [curve["encoding"] for curve in found["curves"]]
    assert racers == ["sinusoidal", "rope", "alibi", "none"]
    assert all(curve["seeds"] == [0, 1, 2] for curve in found["curves"])
    assert found["task"] == "characters"


def test_sizes_not_given_are_those_of_the_task(capsys) -> None:
    from ropewalk.cli.race import _grid
    from ropewalk.lab.task import tasks

    usual = tasks()["characters"].usual
    (only,) = _grid(["rope"], "characters", 1, {"steps": None, "dim": 32})
    assert (only.train_length, only.lengths) == (usual["train_length"], usual["lengths"])
    assert (only.steps, only.dim) == (usual["steps"], 32)


def test_the_table_says_who_is_best_and_who_is_like_it(capsys, place: Path) -> None:
    for each in race_of(rope=1.0, alibi=2.0, none=1.05):
        Store(place / "s.jsonl").append(each)
    assert main(["report", "s.jsonl"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    rope = next(i for i, line in enumerate(lines) if line.startswith("rope"))
    assert lines[rope].split() == ["rope", "1.100", "★", "2.200", "★"]
    assert lines[rope + 1].split() == ["[1.000,", "1.200]", "[2.000,", "2.400]"]
    assert lines[rope + 2].split() == ["rank", "1", "rank", "1"]
    assert next(li for li in lines if li.startswith("none")).split()[2] == "≈"
    words = " ".join(out.split())
    assert "told apart from it: alibi; not distinguishable from it: none." in words
    assert "At 8: rope has the best median, 1.100 [1.000, 1.200]" in words


def test_many_lengths_are_told_in_several_tables(capsys, place: Path) -> None:
    for seed in range(3):
        Store(place / "s.jsonl").append(record("rope", seed, *map(float, range(9))))
    assert main(["report", "s.jsonl"]) == 0
    out = capsys.readouterr().out
    assert all(f"at {8 * 2**i:,} " in out.replace("\n", " ") for i in range(9))
    assert max(map(len, out.splitlines())) <= 80


def test_files_are_written_beside_the_answer(capsys, place: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    outputs = ("--out", "r.html", "--csv", "r.csv", "--parquet", "r.parquet")
    assert race("--encodings", "rope,none", "--seeds", "2", *outputs) == 0
    assert "Open r.html in a browser." in capsys.readouterr().out
    assert names(place) == {"race.jsonl", "r.html", "r.csv", "r.parquet"}
    before = (place / "r.csv").read_text(encoding="utf-8")
    assert len(list(csv.DictReader(io.StringIO(before)))) == 2 * 2 * 2
    assert "rope" in (place / "r.html").read_text(encoding="utf-8")
    assert main(["report", "race.jsonl", "--csv", "again.csv"]) == 0
    again = (place / "again.csv").read_text(encoding="utf-8")
    assert sorted(again.splitlines()) == sorted(before.splitlines())


def test_own_files_may_print_and_carry_any_name(capfd, place: Path) -> None:
    (place / "mine.py").write_text(
        "print('loud')\n"
        "from ropewalk.encodings.bias.alibi import ALiBi\n"
        "class Mine(ALiBi):\n    'Mine.'\n"
    )
    assert race("--encodings", "mine.py:Mine,none", "--seeds", "1", "--json") == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["curves"][0]["encoding"] == "mine.py:Mine"
    assert "loud" in err


def test_an_interrupt_keeps_what_is_done_and_the_same_command_goes_on(capsys, place, monkeypatch):
    few = ("--encodings", "rope,alibi,none", "--seeds", "1", "--json")
    monkeypatch.setattr(Here, "stops", "alibi")
    assert race(*few) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "ropewalk: interrupted; 1 of 3 records kept in race.jsonl; the same command goes on\n"
    )
    monkeypatch.setattr(Here, "stops", "")
    assert race(*few) == 0
    assert Here.ran == 3
    assert len(json.loads(capsys.readouterr().out)["trials"]) == 3


def test_trials_that_fail_are_listed_and_the_rest_is_told(capsys, place, monkeypatch) -> None:
    monkeypatch.setattr(Here, "fails", "alibi")
    assert race("--encodings", "rope,alibi", "--seeds", "2", "--json", "--out", "r.html") == 1
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        f"ropewalk: alibi seed {seed} failed: RuntimeError: lost" for seed in (0, 1)
    ]
    found = json.loads(out)
    assert [f["encoding"] for f in found["failures"]] == ["alibi", "alibi"]
    assert [curve["encoding"] for curve in found["curves"]] == ["rope"]
    assert (place / "r.html").exists()
    monkeypatch.setattr(Here, "fails", "rope")
    assert race("--encodings", "rope", "--seeds", "5,6", "--json") == 1
    assert json.loads(capsys.readouterr().out)["failures"][1]["seed"] == 6


def test_real_processes_give_the_same_records(place: Path) -> None:
    code = "import sys; from ropewalk.cli import main; sys.exit(main(sys.argv[1:]))"
    few = ["race", *TINY, "--encodings", "rope,none", "--seeds", "1"]
    done = subprocess.run(
        [sys.executable, "-c", code, *few, "--workers", "2", "--store", "p.jsonl", "--json"],
        capture_output=True, text=True, cwd=place, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert main([*few, "--json", "--store", "here.jsonl"]) == 0
    theirs, ours = (Store(place / name).records() for name in ("p.jsonl", "here.jsonl"))
    assert theirs == ours
    assert json.loads(done.stdout)["trials"] == [theirs[key] for key in ours]


# --- what is refused -----------------------------------------------------------------------------

FAILS_LATE = """
import sys
import torch
from ropewalk.encodings.bias.alibi import ALiBi
class Mine(ALiBi):
    "Mine."
    def bias(self, *given, **also):
        raise RuntimeError("no bias")
class Leaves(ALiBi):
    "Leaves while it is made."
    def __init__(self, heads):
        sys.exit(0)
class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")
class Wordless(ALiBi):
    "Raises what cannot say why."
    def __init__(self, heads):
        raise Mute
class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("no gradient")
class Stuck(ALiBi):
    "Reads, and cannot learn."
    def __init__(self, heads):
        super().__init__(heads)
        self.scale = torch.nn.Parameter(torch.ones(()))
    def bias(self, *given, **also):
        return super().bias(*given, **also) * Once.apply(self.scale)
    factors = None
"""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--task", "charakters"], r"unknown task 'charakters' (did you mean 'characters'?)"),
        (["--encodings", "rop,none"], "unknown encoding 'rop' (did you mean"),
        (["--encodings", "rope:base=-3"], "rope:base=-3 cannot race at dim=16"),
        (["--encodings", "mrope"], "mrope cannot race at dim=16"),
        (["--encodings", "mine.py:Mine"], "mine.py:Mine cannot race at dim=16"),
        (["--encodings", "mine.py:Leaves"], "mine.py:Leaves cannot race at dim=16, heads=2"),
        (["--encodings", "mine.py:Wordless"], "train_length=16: Mute"),
        (["--encodings", "mine.py:Stuck"], "train_length=16: RuntimeError: no gradient"),
        (["--encodings", "none.py:Mine"], "none.py cannot be imported"),
        (["--encodings", "rope:base"], "'base' is no option; write rope:KEY=VALUE"),
        (["--encodings", "rope:=5"], "'=5' is no option; write rope:KEY=VALUE"),
        (["--encodings", "none:x"], "'x' is no option; write none:KEY=VALUE"),
        (["--encodings", "learned:length=20"], "heads=2, lengths=32: positions hold 20"),
        (["--encodings", "rope~20"], "heads=2, train_length=16: tokens=32 different positions"),
        (["--lengths", "64,512", "--encodings", "hope_dai"], "heads=2, lengths=64: positions hold"),
        (["--encodings", ","], "encodings=[] must hold at least one"),
        (["--encodings", "rope,rope"], "must hold each once"),
        (["--lengths", "36"], "must be multiples of run=8"),
        (["--lengths", "16 32"], "--lengths '16,32,16 32' must be whole numbers"),
        (["--lengths", "x"], "--lengths '16,32,x' must be whole numbers"),
        (["--lengths", "8000000"], "8000000 needs 8000001 characters of text"),
        (["--seeds", "0"], "--seeds 0 must be at least 1"),
        (["--seeds", "a"], "--seeds 'a' must be whole numbers"),
        (["--seeds", "70000"], "seeds=70000 of 4 encodings are more than 65536 trials"),
        (["--seeds", "9" * 30], "are more than 65536 trials"),
        (["--seeds", "1,1"], "must hold each once"),
        (["--steps", "0"], "steps=0 must be"),
        (["--dim", "15"], "dim=15 must be a multiple of heads=2"),
        (["--rate", "nan"], "rate=nan must be above 0"),
        (["--set", "speed=3"], "task characters has no option 'speed'"),
        (["--set", "speed"], "--set 'speed' must be KEY=VALUE, such as --set run=32"),
        (["--set", "walk=3j"], "--set walk=3j must be text, a number"),
        (["--executor-set", "x"], "--executor-set 'x' must be KEY=VALUE"),
        (["--out", "nowhere/r.html"], "--out nowhere/r.html: nowhere does not exist"),
        (["--csv", "."], "--csv . is a folder; name a file in it, such as ./race.csv"),
        (["--parquet", "-"], "--parquet - is no file name"),
        (["--out", "race.jsonl"], "--out race.jsonl is the store of records"),
        (["--csv", "./race.jsonl"], "is the store of records"),
        (["--out", "one", "--csv", "./one"], "--out and --csv both name one"),
        (["--store", "nowhere/r.jsonl"], "there is no folder nowhere"),
        (["--store", "broken.jsonl"], "it is no store of records"),
        (["--store", "old.jsonl"], "is of ropewalk '0.0.1'"),
    ],
)
def test_what_cannot_be_raced_is_one_line_before_any_training(capsys, place, arguments, says):
    (place / "mine.py").write_text(FAILS_LATE)
    (place / "broken.jsonl").write_text("anything\n")
    old = record("rope", 0, 1.0, made={**MADE, "ropewalk": "0.0.1"})
    (place / "old.jsonl").write_text(
        '{"ropewalk": "records", "format": 1}\n' + json.dumps(old) + "\n"
    )
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    assert race("--seeds", "1", *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1
    assert Here.ran == 0
    assert {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--train-length", "64", "--encodings", "learned:length=100"],
            "train_length=64: positions",
        ),
        (["--lengths", "1048577"], "lengths=1048577 must be at most 1048576"),
        (["--lengths", "9" * 40], "must be at most 1048576"),
    ],
)
def test_what_no_example_of_a_task_can_be_is_refused_whatever_is_drawn(capsys, arguments, says):
    few = ["race", "--task", "copy", "--lengths", "8", "--dim", "16", "--heads", "2"]
    assert main([*few, *arguments]) == 2
    assert says in capsys.readouterr().err
    assert Here.ran == 0


def test_an_unknown_executor_is_refused(capsys, monkeypatch) -> None:
    monkeypatch.undo()
    for arguments, says in (
        (["--executor", "slrm"], "unknown executor 'slrm' (did you mean 'slurm'?)"),
        (["--executor-set", "partition=gpu"], "executor=local has no option 'partition'"),
        (["--workers", "0"], "workers=0 must be at least 1"),
    ):
        assert race("--store", "/dev/null", *arguments) == 2
        assert says in capsys.readouterr().err


def test_parquet_without_pyarrow_is_refused_before_training(capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert race("--parquet", "r.parquet") == 2
    assert "pip install 'ropewalk[tables]'" in capsys.readouterr().err
    assert Here.ran == 0


# --- report --------------------------------------------------------------------------------------


def test_a_store_of_several_races_is_told_in_groups(capsys, place: Path) -> None:
    store = Store(place / "s.jsonl")
    for each in [*race_of(rope=1.0), record("rope", 0, 3.0, config={"steps": 99}, better="higher")]:
        store.append(each)
    Store(place / "t.jsonl").append(record("alibi", 0, 1.0, 2.0))
    assert main(["report", "s.jsonl", "t.jsonl", "--json", "--out", "r.html"]) == 0
    races = json.loads(capsys.readouterr().out)["races"]
    assert [[c["encoding"] for c in each["curves"]] for each in races] == [
        ["alibi", "rope"],
        ["rope"],
    ]
    assert [each["config"]["steps"] for each in races] == [20, 99]
    page = (place / "r.html").read_text(encoding="utf-8")
    assert page.count('<section id="race-') == 2


def test_of_two_records_of_one_trial_the_first_is_taken_and_told(capsys, place: Path) -> None:
    Store(place / "a.jsonl").append(record("rope", 0, 1.0))
    Store(place / "b.jsonl").append(record("rope", 0, 1.5, made={**MADE, "machine": "arm64"}))
    assert main(["report", "a.jsonl", "b.jsonl", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["races"][0]["curves"][0]["median"] == [1.0]
    assert "b.jsonl has other numbers for rope seed 0" in err
    assert main(["report", "a.jsonl", "a.jsonl", "--json"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.jsonl"], "store none.jsonl does not exist"),
        (["empty.jsonl"], "store empty.jsonl holds no record yet"),
        (["text.txt"], "it is no store of records"),
        (["good.jsonl", "--out", "good.jsonl"], "--out good.jsonl is the store of records"),
        (["good.jsonl", "--csv", "link.jsonl"], "is the store of records"),
        ([], "Missing argument 'STORE…'"),
    ],
)
def test_what_cannot_be_reported_is_one_line(capsys, place, arguments, says) -> None:
    Store(place / "empty.jsonl").ready()
    Store(place / "good.jsonl").append(record("rope", 0, 1.0))
    (place / "link.jsonl").symlink_to("good.jsonl")
    (place / "text.txt").write_text("text\n")
    before = (place / "good.jsonl").read_bytes()
    assert main(["report", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1
    assert (place / "good.jsonl").read_bytes() == before


# --- the rest ------------------------------------------------------------------------------------


def test_tasks_are_listed(capsys) -> None:
    from ropewalk.lab.task import tasks

    assert main(["race", "--list-tasks", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found] == list(tasks())
    characters = next(each for each in found if each["name"] == "characters")
    assert characters["options"]["run"] == 64
    assert characters["usual"]["train_length"] == 128
    assert main(["race", "--list-tasks"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in tasks())


def test_a_bar_tells_what_runs_and_how_long_it_takes(monkeypatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("ropewalk.cli.progress.time.monotonic", lambda: clock[0])
    progress = Progress(TextColumn("{task.fields[running]}"), console=Console(file=io.StringIO()))
    watch = Watch(progress)
    (task,) = progress.tasks
    watch.ended(None, 2, 12, 2)  # two were stored, and took no time
    assert (task.completed, task.total, task.fields["end"]) == (2, 12, None)
    for name in "abcde":
        watch.started(name)
    assert task.fields["running"] == "running: a, b, c and 2 more"
    clock[0] = 110.0
    watch.ended("b", 4, 12, 2)
    assert task.fields["running"] == "running: a, c, d and 1 more"
    assert task.fields["end"] == pytest.approx(110 + 10 / 2 * 8)
    assert [about(s) for s in (40, 720, 11160)] == ["40 s left", "12 min left", "3.1 h left"]


DOCS = (ROOT / "docs" / "race.md").read_text(encoding="utf-8")


def fades(folder: Path) -> None:
    """The file of one's own that the docs race."""
    text = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
    (folder / "fades.py").write_text(re.findall(r"```python\n(.*?)```", text, re.S)[0])


@pytest.mark.parametrize("line", re.findall(r"^ropewalk race (.*)$", DOCS, re.M))
def test_the_commands_of_the_docs_can_be_typed(capsys, place: Path, monkeypatch, line: str) -> None:
    fades(place)
    monkeypatch.setattr(Here, "fails", None)
    arguments = shlex.split(line)
    assert main(["race", *arguments]) == (0 if "--list-tasks" in arguments else 1)
    err = capsys.readouterr().err
    assert all(said.endswith("failed: RuntimeError: lost") for said in err.splitlines()), err


def test_the_script_of_the_docs_runs(capsys, place: Path) -> None:
    fades(place)
    (script,) = re.findall(r"```python\n(.*?)```", DOCS, re.S)
    small = "seeds=1, steps=2, batch=1, dim=16, layers=1, train_length=64, lengths=(64, 128)"
    changed = script.replace("seeds=5, steps=300", small)
    assert changed != script
    exec(changed, {"__name__": "__main__"})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["64", "128"]
    assert "fades.py" in (place / "race.html").read_text(encoding="utf-8")


def test_a_record_of_the_command_is_that_of_a_trial(capsys) -> None:
    assert race("--encodings", "rope", "--seeds", "1", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["trials"]
    given = trial.Trial("rope", 0, task_options=(("run", 8),), train_length=16, lengths=(16, 32),
                        steps=4, batch=2, dim=16, layers=1, heads=2)  # fmt: skip
    assert found == trial.run(given)
