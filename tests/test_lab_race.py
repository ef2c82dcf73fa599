"""Races: killed and gone on with, on every executor, several on a store: the same records."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_jobs import ROOT, SEEN, by_ray

from ropewalk.lab import executors, trial
from ropewalk.lab.executors import Failure
from ropewalk.lab.executors.base import attempt
from ropewalk.lab.race import Failed, Progress, race
from ropewalk.lab.store import HEADER, Store
from ropewalk.lab.trial import Trial

SMALL: dict[str, Any] = {
    "task": "characters",
    "task_options": (("run", 16),),
    "train_length": 16,
    "lengths": (16, 32),
    "steps": 4,
    "batch": 2,
    "dim": 16,
    "heads": 2,
    "layers": 1,
}


def grid(seeds: int = 2, **changes: Any) -> list[Trial]:
    return trial.grid(["rope", "none"], seeds=seeds, **{**SMALL, **changes})


class Here:
    """An executor that runs trials where it is, taking one or all of them at a time."""

    def __init__(self, take: Any = iter) -> None:
        self.take = take
        self.ran: list[Trial] = []
        self.closed = False

    def run(self, trials: Iterable[Trial], work: Any) -> Any:
        try:
            for each in self.take(trials):
                self.ran.append(each)
                yield each, attempt(work, each)
        finally:
            self.closed = True


def invented(config: Trial) -> dict[str, Any]:
    """A record without training, made of its configuration."""
    if config.encoding == "alibi":
        raise ValueError("alibi cannot\nbe trained today")
    numbers = random.Random(trial.key(config))
    return {
        "key": trial.key(config),
        "config": trial.config_of(config),
        "unit": "bits per character",
        "better": "lower",
        "parameters": 3,
        "loss": [numbers.random()],
        "scores": {str(n): numbers.random() for n in config.lengths},
        "curves": {},
        "diverged": None,
        "made": trial.origin(),
    }


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "race.jsonl")


@pytest.fixture(scope="module")
def undisturbed() -> list[dict[str, Any]]:
    """The records of the grid, from this process and no race."""
    return [trial.run(each) for each in grid()]


def lines(store: Store) -> list[bytes]:
    return sorted(store.path.read_bytes().splitlines())


def line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


# --- what a race does ----------------------------------------------------------------------------


@pytest.mark.parametrize("take", [iter, list])
def test_records_come_in_the_order_of_the_trials_and_run_once(store: Store, take: Any) -> None:
    wanted = grid()
    asked = [wanted[2], wanted[0], wanted[2], wanted[3], wanted[1], wanted[0]]
    executor = Here(take)
    found = race(asked, store, executor, work=invented)
    assert found == [invented(each) for each in asked]
    assert executor.ran == [wanted[2], wanted[0], wanted[3], wanted[1]]
    assert store.records() == {record["key"]: record for record in found}
    again = Here()
    assert race(wanted, Store(store.path), again, work=invented) == [invented(t) for t in wanted]
    assert again.ran == []


def test_progress_counts_what_was_there_and_what_comes(store: Store) -> None:
    told: list[Progress] = []
    wanted = grid(3)
    race(wanted[:2], store, Here(), work=invented)
    race(wanted, store, Here(), told.append, work=invented)
    assert [(each.done, each.total, each.stored) for each in told] == [
        (done, 6, 2) for done in (2, 3, 4, 5, 6)
    ]
    assert [each.trial for each in told] == [None, *wanted[2:]]
    assert told[1].outcome == invented(wanted[2])


def test_what_fails_is_told_at_the_end_and_all_else_is_stored(store: Store) -> None:
    wanted = trial.grid(["rope", "alibi", "none"], seeds=2, **SMALL)
    told: list[Progress] = []
    with pytest.raises(Failed, match=r"^2 of 6 trials failed") as caught:
        race(wanted, store, Here(), told.append, work=invented)
    reason = "ValueError: alibi cannot be trained today"
    assert f": alibi seed 0: {reason}; alibi seed 1: {reason}" in str(caught.value)
    assert caught.value.failures == [(wanted[i], Failure(reason)) for i in (1, 4)]
    assert [each.done for each in told] == list(range(7))
    assert sum(isinstance(each.outcome, Failure) for each in told) == 2
    assert len(store.records()) == 4
    again = Here()
    with pytest.raises(Failed, match="2 of 6"):
        race(wanted, store, again, work=invented)
    assert again.ran == [wanted[1], wanted[4]]


@pytest.mark.parametrize("trouble", ["corrupt", "no folder", "another version"])
def test_nothing_runs_on_a_store_that_cannot_be_used(store: Store, trouble: str) -> None:
    record = invented(grid()[0])
    path = store.path
    if trouble == "corrupt":
        path.write_bytes(HEADER + b"{\n")
    elif trouble == "another version":
        record["made"]["ropewalk"] = "0.0.9"
        path.write_bytes(HEADER + line(record) + b"\n")
    else:
        path = path.parent / "nowhere" / "race.jsonl"
    executor, told = Here(), []
    with pytest.raises(ValueError, match=re.escape(f"store {path}: ")):
        race(grid(), Store(path), executor, told.append, work=invented)
    assert (executor.ran, told) == ([], [])


def test_a_store_that_is_full_ends_the_race_and_its_workers(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    race(grid()[:1], store, Here(), work=invented)
    before, executor = store.path.read_bytes(), Here()
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, content: write(descriptor, content[:50]))
        with pytest.raises(ValueError, match="No space left on device"):
            race(grid(), store, executor, work=invented)
    assert (len(executor.ran), executor.closed) == (1, True)
    assert store.path.read_bytes() == before
    assert len(race(grid(), store, Here(), work=invented)) == 4


def test_what_is_no_record_ends_the_race(store: Store) -> None:
    with pytest.raises(ValueError, match="nothing was added to store"):
        race(grid(), store, Here(), work=lambda each: {"made": 1})
    assert store.records() == {}


def test_a_trial_that_differs_from_run_to_run_is_told(store: Store) -> None:
    changes = iter(range(9))

    def restless(config: Trial) -> dict[str, Any]:
        Store(store.path).append({**invented(config), "parameters": next(changes)})
        return {**invented(config), "parameters": next(changes)}

    with pytest.raises(ValueError, match="on the same machine and versions"):
        race(grid(), store, Here(), work=restless)


def test_another_race_may_store_a_trial_first(store: Store) -> None:
    """Before its turn: it does not run. Meanwhile, on another machine: that record stays."""
    wanted, there = grid(), Store(store.path)
    theirs = {
        **invented(wanted[1]),
        "made": {**trial.origin(), "machine": "arm64"},
        "parameters": 4,
    }

    def work(config: Trial) -> dict[str, Any]:
        if config == wanted[1]:
            there.append(theirs)
            there.append(invented(wanted[2]))
        return invented(config)

    executor, told = Here(), []
    found = race(wanted, store, executor, told.append, work=work)
    assert executor.ran == [wanted[0], wanted[1], wanted[3]]
    assert found == [invented(wanted[0]), theirs, *map(invented, wanted[2:])]
    assert (told[-1].done, told[-1].stored) == (4, 1)
    assert len(store.origins()) == 2


# --- wherever it runs ----------------------------------------------------------------------------


def make(name: str, folder: Path) -> Any:
    options = {"cluster": "local", "folder": folder / "jobs"} if name == "slurm" else {}
    return executors.make(name, 2, **options)


def test_jobs_of_submitit_give_the_same_records(
    store: Store,
    undisturbed: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    executor = executors.make("slurm", 2, cluster="local", folder=tmp_path / "jobs")
    assert race(grid(1), store, executor) == undisturbed[:2]
    assert lines(store) == sorted([HEADER.rstrip(), *map(line, undisturbed[:2])])


def held(folder: Path, config: Trial) -> dict[str, Any]:
    """A trial that waits for a file ``go``, and counts its tries."""
    with (folder / f"{config.encoding}-{config.seed}").open("a") as file:
        file.write(f"{os.getpid()}\n")
    while not (folder / "go").exists():
        time.sleep(0.02)
    return trial.run(config)


CLUSTER = """
import functools, json, os, sys, threading, time
from pathlib import Path
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # this simulated cluster is on loopback too
import psutil, ray
from ray.cluster_utils import Cluster
import test_lab_race as t

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)
folder = Path(sys.argv[1])

def lose_a_node():
    while sum(bool(path.read_text()) for path in folder.iterdir()) < 2:  # made is not yet written
        time.sleep(0.05)
    pids = [int(path.read_text()) for path in folder.iterdir()]
    cluster.remove_node(second, allow_graceful=False)
    while all(map(psutil.pid_exists, pids)):
        time.sleep(0.05)
    (folder / "go").touch()

threading.Thread(target=lose_a_node, daemon=True).start()
executor = t.executors.make("ray", address=cluster.address)
found = t.race(t.grid(), t.Store(sys.argv[2]), executor, work=functools.partial(t.held, folder))
lives = not ray.is_initialized() and cluster.head_node.any_processes_alive()
cluster.shutdown()
print(json.dumps({"found": found, "lives": lives}))
"""


def test_a_cluster_that_loses_a_node_gives_the_same_records(
    store: Store, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "trials"
    folder.mkdir()
    told = by_ray(tmp_path, CLUSTER, folder, store.path)
    assert told == {"found": undisturbed, "lives": True}, "and a guest ends nothing"
    assert lines(store) == sorted([HEADER.rstrip(), *map(line, undisturbed)])
    tries = sorted(len(path.read_text().splitlines()) for path in folder.glob("*-*"))
    assert tries == [1, 1, 1, 2]


# --- killed --------------------------------------------------------------------------------------

RACES = """
import os, signal, sys, time
import test_lab_race as t

trials = t.grid(4)
t.trial.run(trials[0])  # all that is loaded late is loaded
began = time.monotonic()
t.trial.run(trials[0])
usual = time.monotonic() - began
delays = list(map(float, sys.argv[1].split()))
for delay in [*delays, None]:
    children = []
    for path in sys.argv[2:]:
        if not (pid := os.fork()):
            t.race(trials, t.Store(path), t.Here())
            os._exit(0)
        children.append(pid)
    if delay is not None:
        time.sleep(delay * usual)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
    ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    print(*ends, *(len(t.Store(path).records()) for path in sys.argv[2:]), flush=True)
"""


def races(delays: list[float], *paths: Path) -> list[list[int]]:
    """Races that are killed after ``delays``, in the time of a trial, and one that is not.

    Returns the exit codes and the counts of stored records of each.

    They are forked from a process that has loaded everything, so a kill meets a race at work.
    """
    words = [sys.executable, "-c", RACES, " ".join(map(str, delays)), *map(str, paths)]
    env = {
        **os.environ,
        "PYTHONPATH": SEEN,
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [list(map(int, each.split())) for each in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def eight() -> list[bytes]:
    return sorted([HEADER.rstrip(), *(line(trial.run(each)) for each in grid(4))])


def test_killed_ten_times_at_random_a_race_ends_as_if_undisturbed(
    store: Store, eight: list[bytes]
) -> None:
    chance = random.Random()
    delays = [chance.uniform(0, 1.8) for _ in range(10)]
    told = races(delays, store.path)
    assert told[-1] == [0, 8]
    assert sum(code == -signal.SIGKILL for code, _ in told) >= 4, (told, delays)
    counts = [count for _, count in told]
    assert counts == sorted(counts), "nothing is lost"
    assert lines(store) == eight, delays


def test_two_races_on_one_store_killed_and_gone_on_with(store: Store, eight: list[bytes]) -> None:
    told = races([1.5, 2.5], store.path, store.path)
    assert told[-1] == [0, 0, 8, 8]
    assert lines(store) == eight


RACE = """
import sys
import test_lab_race as t
if __name__ == "__main__":
    t.race(t.grid(), t.Store(sys.argv[1]), t.executors.make("local", 2),
           lambda progress: print(progress.done, flush=True))
"""


def children_of(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, *_ = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(path.parent.name))
    return found


def outputs(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    return iter(process.stdout.readline, "")


def test_a_race_with_workers_is_killed_with_them_and_goes_on(
    store: Store, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    script = tmp_path / "race.py"
    script.write_text(RACE)

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(script), str(store.path)],
            env={**os.environ, "PYTHONPATH": SEEN},
            stdout=subprocess.PIPE,
            text=True,
        )

    with started() as first:
        for told in outputs(first):
            if told.strip() == "1":
                break
        workers = children_of(first.pid)
        first.kill()
    assert len(workers) >= 2
    end = time.monotonic() + 60
    while any(Path(f"/proc/{pid}/cmdline").exists() and _works(pid) for pid in workers):
        assert time.monotonic() < end, "a worker outlived its race"
        time.sleep(0.02)
    kept = len(store.records())
    assert kept >= 1
    assert race(grid(), store, executors.make("local", 2)) == undisturbed
    assert lines(store) == sorted([HEADER.rstrip(), *map(line, undisturbed)])


def _works(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
