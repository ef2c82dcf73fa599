"""Work for the lab's executors and races: what a trial does, as tests need it. No torch here."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from ropewalk import __version__
from ropewalk.lab.record import FORMAT, key_of

ROOT = Path(__file__).resolve().parent.parent
SEEN = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
"""PYTHONPATH of processes that need this checkout and its tests."""

MADE = {"format": FORMAT, "ropewalk": __version__, "torch": "2", "kernel": "-", "machine": "x"}


def record(seed: int = 0, encoding: str = "rope", **changes: Any) -> dict[str, Any]:
    """A record whose numbers come from its configuration."""
    config = {
        "encoding": encoding, "task": "copy", "task_options": {"symbols": 4}, "seed": seed,
        "train_length": 8, "lengths": [8, 16], "steps": 5, "batch": 2, "dim": 16, "layers": 1,
        "heads": 2, "rate": 0.1,
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(config).encode()).digest()
    numbers = [byte / 7 for byte in digest]
    found: dict[str, Any] = {
        "key": key_of(config),
        "config": config,
        "unit": "share",
        "better": "higher",
        "parameters": 12,
        "loss": numbers[:4],
        "scores": {"8": numbers[5], "16": None},
        "curves": {"8": numbers[6:9], "16": []},
        "diverged": None,
        "made": dict(MADE),
    }
    return {**found, **changes}


def answer(trial: str, folder: str = "") -> dict[str, Any]:
    """A trial is a word, and what it says is done; ``folder`` counts how often.

    ``N``: a record. ``fail``: an exception. ``die``: the worker is killed, each time. ``once``: it
    is killed the first time. ``exit``: it leaves by itself. ``sleep``: no answer for long.
    """
    with (Path(folder) / trial).open("a") as file:
        file.write(f"{os.getpid()}\n")
    tried = len((Path(folder) / trial).read_text().splitlines())
    print("a worker prints")
    if trial == "fail":
        raise ValueError("base=0 must be\nabove 1")
    if trial == "exit":
        sys.exit("enough")
    if trial == "die" or (trial == "once" and tried == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if trial == "sleep":
        time.sleep(600)
    threads = [os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")]
    return {"trial": trial, "tried": tried, "threads": threads, "folder": os.getcwd()}


def by_ray(folder: Path, program: str, *arguments: object) -> Any:
    """What a program that uses Ray prints, JSON, in a home and a temporary folder of its own."""
    pytest.importorskip("ray")
    home = folder / "home"
    temporary = Path(tempfile.mkdtemp(prefix="rw-"))  # sockets have short names
    home.mkdir()
    own = {"PYTHONPATH": SEEN, "HOME": str(home), "TMPDIR": str(temporary)}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program, *map(str, arguments)],
            env={**kept, **own},
            capture_output=True,
            text=True,
            timeout=150,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)  # and nothing else is printed
    finally:
        shutil.rmtree(temporary)
