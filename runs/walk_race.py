"""The race that closes the walk: four encodings, three seeds, one small character model.

Each model is trained on windows of 128 characters of three plays and read on a fourth one, which it
has never seen, at 128, 256, 512 and 1024. A number is the mean of ``-log2 P`` over the last 64
characters of a window; windows of every length end at the same places, so the same characters are
scored each time with more and more text before them. Encodings differ in nothing else: same
windows in the same order, same initial weights, same steps (:mod:`ropewalk.lab.trial`).

Two processes of one thread each, some six minutes on two free cores; stopped, it goes on where it
was::

    python runs/walk_race.py
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from ropewalk.lab import executors, outcome, text, trial
from ropewalk.lab.race import Progress, label, race
from ropewalk.lab.store import Store
from ropewalk.lab.task import get
from ropewalk.lab.tasks.characters import Characters

SCRIPT = "runs/walk_race.py"
RECORD = Path(__file__).parents[1] / "ropewalk" / "data" / "records" / "race_walk.json"
ENCODINGS = ("sinusoidal", "rope", "alibi", "none")
SEEDS = 3


def document(records: list[dict[str, Any]]) -> dict[str, Any]:
    """What is stored: what the race says, and what was read and how it was trained."""
    task = get("characters").make()
    assert isinstance(task, Characters)
    lengths = records[0]["config"]["lengths"]
    found = outcome.document(records)
    optimizer = {
        "name": "AdamW",
        "betas": trial.BETAS,
        "weight_decay": trial.WEIGHT_DECAY,
        "clip": trial.CLIP,
        "warm_up": trial.WARM_UP,
        "final_rate": trial.FINAL_RATE,
    }
    return {
        **found,
        "text": "Shakespeare (public domain): trained on Macbeth, A Midsummer Night's Dream and "
        "The Tempest, read on The Comedy of Errors",
        "text_sha256": {
            name: hashlib.sha256(text.play(name).encode("ascii")).hexdigest()
            for name in text.TRAINING + text.VALIDATION
        },
        "scored": f"the last {task.run} characters of windows of the stated length; windows of "
        "every length end at the same places, so the same characters are scored at each",
        "scored_characters": task.run * len(task.windows(min(lengths), max(lengths))),
        "config": {**found["config"], "optimizer": optimizer, "threads": 1},
        "script": SCRIPT,
    }


def told(progress: Progress) -> None:
    """A line on stderr as each trial ends."""
    if progress.trial is not None:
        line = f"{progress.done}/{progress.total} {label(progress.trial)}"
        print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RECORD, help="where the JSON record goes")
    parser.add_argument("--store", type=Path, default=Path("walk_race.jsonl"), help="trials so far")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=trial.Trial.steps)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    trials = trial.grid(ENCODINGS, seeds=options.seeds, steps=options.steps)
    executor = executors.make("local", options.workers)
    record = document(race(trials, Store(options.store), executor, told))
    partial = options.out.with_name(options.out.name + ".partial")
    partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, options.out)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
