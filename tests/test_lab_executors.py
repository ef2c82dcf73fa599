"""Executors: each trial is answered, whatever becomes of its worker, and nothing is left."""

from __future__ import annotations

import errno
import functools
import importlib.util
import json
import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from lab_jobs import SEEN, answer, by_ray

from ropewalk.lab import executors
from ropewalk.lab.executors import ATTEMPTS, Failure, base
from ropewalk.lab.executors import slurm as slurm_module

TRIALS = ("1", "fail", "2", "once", "die", "exit", "3")


@pytest.fixture
def where(tmp_path: Path) -> Path:
    (tmp_path / "trials").mkdir()
    return tmp_path / "trials"


def outcomes(executor: Any, where: Path, trials: Any = TRIALS) -> dict[str, Any]:
    with closing(executor.run(iter(trials), functools.partial(answer, folder=str(where)))) as run:
        return dict(run)


def tries(where: Path) -> dict[str, int]:
    """How often each trial was begun."""
    return {path.name: len(path.read_text().splitlines()) for path in where.iterdir()}


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not asked for its status does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def in_group(group: int) -> list[int]:
    """The processes of a group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group, *_ = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            found.append(int(path.parent.name))
    return found


def pids(where: Path) -> set[int]:
    """The processes that had a trial."""
    return {int(pid) for path in where.iterdir() for pid in path.read_text().split()}


def until(holds: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def judge(found: dict[str, Any], where: Path, reason: str) -> None:
    """What every executor must make of ``TRIALS``."""
    assert set(found) == set(TRIALS)
    for trial in ("1", "2", "3"):
        assert found[trial]["tried"] == 1
        assert found[trial]["threads"] == ["1", "1"]
        assert found[trial]["folder"] == os.getcwd()
    assert found["once"]["tried"] == 2
    assert found["fail"] == Failure("ValueError: base=0 must be above 1")
    assert found["exit"] == Failure("SystemExit: enough")
    assert found["die"].reason.startswith(f"its worker was lost {ATTEMPTS} times, at last {reason}")
    counted = {"once": 2, "die": ATTEMPTS}
    assert tries(where) == {trial: counted.get(trial, 1) for trial in TRIALS}


# --- this machine --------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
def test_local_answers_every_trial(
    where: Path, workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    judge(outcomes(executors.make("local", workers), where), where, "by SIGKILL; it may need more")
    assert capfd.readouterr().out == "", "what a worker prints is not on our stdout"
    assert not any(map(alive, pids(where)))
    assert os.environ.get("MKL_NUM_THREADS") is None or os.environ["MKL_NUM_THREADS"] != "1"


def test_local_takes_trials_as_it_has_room(where: Path) -> None:
    taken: list[str] = []

    def trials() -> Any:
        for trial in map(str, range(5)):
            taken.append(trial)
            yield trial

    executor: Any = executors.make("local", 2)
    with closing(executor.run(trials(), functools.partial(answer, folder=str(where)))) as run:
        assert taken == []
        next(run)
        assert len(taken) <= 4
    assert not any(map(alive, pids(where))), "closing it early ends its workers"


def test_local_uses_the_cores_that_it_may_use(tmp_path: Path) -> None:
    assert executors.make("local").workers == base.cores()  # pyright: ignore
    all_of_them = base.cores(tmp_path / "none")
    assert all_of_them == len(os.sched_getaffinity(0))
    quota = tmp_path / "cpu.max"
    for text, cores in (
        ("max 100000", all_of_them),
        ("50000 100000", 1),
        ("9000000 100000", all_of_them),
    ):
        quota.write_text(text + "\n")
        assert base.cores(quota) == cores


RACER = """
import functools, signal, sys
from lab_jobs import SEEN, answer, by_ray
from ropewalk.lab import executors
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = executors.make(sys.argv[2], 2, **eval(sys.argv[3])).run(
        iter(["1", "sleep", "2", "sleep"]), functools.partial(answer, folder=sys.argv[1]))
    try:
        for trial, outcome in run:
            print(trial, flush=True)
    except KeyboardInterrupt:
        run.close()
        print("interrupted", flush=True)
"""


def racer(where: Path, name: str = "local", options: str = "{}") -> subprocess.Popen[str]:
    script = where.parent / "racer.py"
    script.write_text(RACER)
    child = subprocess.Popen(
        [sys.executable, str(script), str(where), name, options],
        env={**os.environ, "PYTHONPATH": SEEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=where.parent,
    )
    until(lambda: tries(where).get("sleep", 0) == 2, 60)
    return child


def test_local_workers_end_when_their_parent_is_killed(where: Path) -> None:
    with racer(where) as child:
        workers = pids(where)
        assert all(map(alive, workers))
        child.kill()
        try:
            until(lambda: not any(map(alive, workers)), 30)
        finally:
            for pid in filter(alive, workers):
                os.kill(pid, signal.SIGKILL)


def test_an_interrupt_leaves_no_process_and_no_noise(where: Path) -> None:
    child = racer(where)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to all of them
    out, err = child.communicate(timeout=60)
    assert out.split() == ["1", "2", "interrupted"] or out.split() == ["2", "1", "interrupted"]
    assert set(err.splitlines()) <= {"a worker prints"}
    until(lambda: not in_group(child.pid))


def test_a_script_without_a_guard_is_told_so(where: Path) -> None:
    script = where.parent / "bare.py"
    script.write_text(
        "from lab_jobs import answer\nfrom ropewalk.lab import executors\n"
        "print(list(executors.make('local', 1).run(iter(['1']), answer)))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": SEEN},
        capture_output=True,
        text=True,
        timeout=60,
        cwd=where,
    )
    assert done.returncode == 1
    assert (
        "ended as they started (with exit code 1): a script that races needs `if __name"
        in (done.stderr.splitlines()[-1])
    )


def test_a_machine_that_is_full_is_told(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(process: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", full)
    with pytest.raises(ValueError, match=r"could not start a worker \(.*\): give fewer workers"):
        outcomes(executors.make("local", 2), where)


# --- what is asked for ---------------------------------------------------------------------------


def test_an_executor_that_cannot_be_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"unknown executor 'locl'.*did you mean 'local'"):
        executors.make("locl")
    with pytest.raises(TypeError, match="executor=local has no option 'partition'; it has none"):
        executors.make("local", partition="a")
    with pytest.raises(TypeError, match="executor=ray has no option 'adress'; it has address"):
        executors.make("ray", adress="a")
    for name in executors.NAMES:
        options = {"cluster": "local"} if name == "slurm" else {}
        with pytest.raises(ValueError, match="workers=0 must be at least 1"):
            executors.make(name, 0, **options)
        with pytest.raises(TypeError, match=r"workers=1.5 must be a whole number"):
            executors.make(name, 1.5, **options)  # pyright: ignore[reportArgumentType]
    for address in ("ray://a:1", "host", "host:port", "host:0", "", 5):
        with pytest.raises(ValueError, match=r"address=.* must be HOST:PORT or 'auto'"):
            executors.make("ray", address=address)
    with pytest.raises(ValueError, match="cluster='sge' must be 'slurm' or 'local'"):
        executors.make("slurm", cluster="sge")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ValueError, match=r"finds no srun and sbatch: .*or use executor=local"):
        executors.make("slurm")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(slurm_module, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs submitit: pip install 'ropewalk\[slurm\]'"):
        executors.make("slurm")
    monkeypatch.setattr("ropewalk.lab.executors.ray.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs Ray: pip install 'ropewalk\[ray\]'"):
        executors.make("ray")


# --- Slurm ---------------------------------------------------------------------------------------


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs find this checkout and the tests' work, wherever they start."""
    pytest.importorskip("submitit")
    monkeypatch.setenv("PYTHONPATH", SEEN)


def test_submitit_answers_every_trial(where: Path, seen: None) -> None:
    jobs = where.parent / "jobs"
    executor = executors.make("slurm", 4, cluster="local", folder=jobs)
    found = outcomes(executor, where)
    judge(found, where, "(it ended without an answer); its log is ")
    log = Path(found["die"].reason.rsplit(" ", 1)[1])
    assert log.is_file(), "the folder of a race that lost a job stays"
    assert log.is_relative_to(jobs.resolve())
    assert stat.S_IMODE(log.parent.parent.stat().st_mode) == 0o700 or (
        stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    )


def test_submitit_leaves_no_folder_and_no_process(where: Path, seen: None) -> None:
    jobs = where.parent / "jobs"
    executor: Any = executors.make("slurm", 2, cluster="local", folder=jobs)
    work = functools.partial(answer, folder=str(where))
    with closing(executor.run(iter(["1", "sleep"]), work)) as run:
        assert next(run)[0] == "1"
        until(lambda: "sleep" in tries(where))
    assert not jobs.exists()
    until(lambda: not any(map(alive, pids(where))))
    jobs.write_text("")
    with pytest.raises(ValueError, match=r"folder=.*File exists; name another"):
        next(executor.run(iter(["1"]), work))


SBATCH = """#!/bin/sh
cp "$1" {folder}/submitted.$$.sh
SLURM_JOB_ID=$$ SLURM_NTASKS=1 SLURM_PROCID=0 setsid sh "$1" >{folder}/log.$$ 2>&1 &
echo "Submitted batch job $$"
"""
SRUN = """#!/bin/sh
while [ "$1" != "{python}" ]; do shift; done
exec "$@"
"""
SACCT = """#!/bin/sh
echo "JobID|State|NodeList"
"""


def test_slurm_is_asked_for_what_the_options_say(
    where: Path, seen: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = where.parent / "bin"
    tools.mkdir()
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("sacct", SACCT), ("scancel", SACCT)):
        path = tools / name
        path.write_text(text.format(folder=tools, python=sys.executable))
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    executor = executors.make(
        "slurm",
        2,
        partition="cpu",
        account="me",
        qos="low",
        time=7,
        memory=3,
        folder=where.parent / "jobs",
    )
    found = outcomes(executor, where, ["1", "fail", "2"])
    assert [found["1"]["tried"], found["2"]["tried"]] == [1, 1]
    assert found["fail"] == Failure("ValueError: base=0 must be above 1")
    asked = sorted(tools.glob("submitted.*"))
    assert len(asked) == 3
    for line in ("partition=cpu", "account=me", "qos=low", "time=7", "mem=3GB", "cpus-per-task=1"):
        assert f"#SBATCH --{line}\n" in asked[0].read_text(), line
    assert not (where.parent / "jobs").exists()
    (tools / "sbatch").write_text("#!/bin/sh\necho 'invalid partition' >&2\nexit 1\n")
    with pytest.raises(
        ValueError, match=r"executor=slurm could not submit a job:.*invalid partition"
    ):
        outcomes(executor, where, ["3"])


# --- Ray -----------------------------------------------------------------------------------------

ALONE = """
import functools, json, os, sys, tempfile
import psutil
from lab_jobs import SEEN, answer, by_ray
from ropewalk.lab import executors

work = functools.partial(answer, folder=sys.argv[1])
run = executors.make("ray", 2).run(iter(json.loads(sys.argv[2])), work)
found = dict([next(run)])
everyone = [psutil.Process(), *psutil.Process().children(recursive=True)]
sockets = [socket for process in everyone for socket in process.net_connections("inet")]
listens = sorted({socket.laddr.ip for socket in sockets if socket.status == "LISTEN"})
names = [" ".join(p.cmdline()) for p in everyone]
environ = {k: v for k, v in os.environ.items() if k.startswith("RAY_")}
found.update(run)
gone, left = psutil.wait_procs(everyone[1:], timeout=60)
print(json.dumps({
    "found": {k: v if isinstance(v, dict) else v.reason for k, v in found.items()},
    "listens": listens, "names": names, "left": len(left),
    "files": sorted(os.listdir(tempfile.gettempdir())),
    "home": sorted(os.listdir(os.environ["HOME"])),
    "during": sorted(environ), "after": sorted(k for k in os.environ if k.startswith("RAY_AUTH")),
}))
"""


def test_ray_answers_every_trial_on_loopback_and_leaves_nothing(where: Path) -> None:
    told = by_ray(where.parent, ALONE, where, json.dumps(TRIALS))
    found = {k: v if isinstance(v, dict) else Failure(v) for k, v in told["found"].items()}
    judge(found, where, "(")
    assert set(told["listens"]) == {"127.0.0.1", "::ffff:127.0.0.1"}
    assert all("--disable-frontend" in name for name in told["names"] if "dashboard.py" in name)
    assert "RAY_AUTH_TOKEN" in told["during"], "only those who know its token may use it"
    assert told["after"] == []
    assert told["left"] == 0
    assert told["files"] == []
    assert told["home"] == [], "no token is written"


def test_a_cluster_that_is_not_there_is_told(where: Path) -> None:
    script = """
from ropewalk.lab import executors
try:
    list(executors.make("ray", address="127.0.0.1:1").run(iter(["1"]), str))
except ValueError as error:
    import json
    print(json.dumps(str(error)))
"""
    words = str(by_ray(where.parent, script))
    assert words.startswith(
        "executor=ray: nothing answers at address=127.0.0.1:1 (Connection refused)"
    )
