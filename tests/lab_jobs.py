"""Work for the lab's executors and races: what a trial does, as tests need it. No torch here."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ropewalk import __version__
from ropewalk.lab.record import FORMAT, key_of

MADE = {"format": FORMAT, "ropewalk": __version__, "torch": "2", "kernel": "-", "machine": "x"}


def record(seed: int = 0, encoding: str = "rope", **changes: Any) -> dict[str, Any]:
    """A record whose numbers come from its configuration."""
    config = {"encoding": encoding, "task": "copy", "seed": seed, "lengths": [8, 16], "rate": 0.1}
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
    ``hold…``: no answer until there is a file ``go`` beside the folder.
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
    while trial.startswith("hold") and not Path(folder).with_name("go").exists():
        time.sleep(0.02)
    threads = [os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")]
    return {"trial": trial, "tried": tried, "threads": threads, "folder": os.getcwd()}
