"""The race that closes the walk: four encodings, three seeds, one small character model.

Each model is trained on windows of 128 characters of three plays and read on a fourth one, which it
has never seen, at 128, 256, 512 and 1024. A number is the mean of ``-log2 P`` over the last 64
characters of a window; windows of every length end at the same places, so the same characters are
scored each time with more and more text before them. Encodings differ in nothing else: same
windows in the same order, same initial weights, same steps (:mod:`ropewalk.lab.trial`).

Two processes of one thread each, some six minutes on two free cores::

    python runs/walk_race.py
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from ropewalk import __version__, kernels
from ropewalk.lab import statistics, text, trial

SCRIPT = "runs/walk_race.py"
RECORD = Path(__file__).parents[1] / "ropewalk" / "data" / "records" / "race_walk.json"
ENCODINGS = ("sinusoidal", "rope", "alibi", "none")
SEEDS = 3


def trials(seeds: int, steps: int) -> list[trial.Trial]:
    """All configurations, seed by seed."""
    return [
        trial.Trial(encoding, seed=seed, steps=steps)
        for seed in range(seeds)
        for encoding in ENCODINGS
    ]


def run_all(configs: list[trial.Trial], workers: int) -> list[dict[str, Any]]:
    """The records of ``configs``, in their order; a line of progress on stderr as each ends."""
    began = time.monotonic()
    records: list[dict[str, Any]] = [{} for _ in configs]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting = {pool.submit(trial.run, config): i for i, config in enumerate(configs)}
        for done, future in enumerate(as_completed(waiting), start=1):
            at = waiting[future]
            records[at] = future.result()
            left = (time.monotonic() - began) / done * (len(configs) - done)
            found = " ".join(f"{n}:{runs[-1]:.3f}" for n, runs in records[at]["bits"].items())
            print(
                f"{done}/{len(configs)} {configs[at].encoding} seed {configs[at].seed}  {found}"
                f"  about {left / 60:.1f} min left",
                file=sys.stderr,
                flush=True,
            )
    return records


def race(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The stored document."""
    config = dict(records[0]["config"])
    for changing in ("encoding", "seed", "options"):
        config.pop(changing)
    lengths = list(config["lengths"])
    found = statistics.curves(records)
    seeds = len(found[0]["values"][0])
    optimizer = {
        "name": "AdamW",
        "betas": trial.BETAS,
        "weight_decay": trial.WEIGHT_DECAY,
        "clip": trial.CLIP,
        "warm_up": trial.WARM_UP,
        "final_rate": trial.FINAL_RATE,
    }
    return {
        "kind": "race",
        "task": "characters",
        "text": "Shakespeare (public domain): trained on Macbeth, A Midsummer Night's Dream and "
        "The Tempest, read on The Comedy of Errors",
        "text_sha256": {
            name: hashlib.sha256(text.play(name).encode("ascii")).hexdigest()
            for name in text.TRAINING + text.VALIDATION
        },
        "train_length": config["train_length"],
        "lengths": lengths,
        "unit": "bits per character",
        "scored": f"the last {config['run']} characters of windows of the stated length; windows "
        "of every length end at the same places, so the same characters are scored at each",
        "scored_characters": config["run"]
        * len(text.plays().windows(lengths[0], longest=max(lengths))),
        "seeds": seeds,
        "interval": statistics.INTERVAL,
        "chance": statistics.chance(seeds),
        "curves": found,
        "comparisons": statistics.comparisons(found, lengths),
        "config": {**config, "optimizer": optimizer, "threads": 1},
        "trials": records,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "ropewalk": __version__,
            "kernel": kernels.active(),
            "machine": platform.machine(),
        },
        "script": SCRIPT,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RECORD, help="where the JSON record goes")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=trial.Trial.steps)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    record = race(run_all(trials(options.seeds, options.steps), options.workers))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    partial = options.out.with_name(options.out.name + ".partial")
    partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, options.out)
    for curve in record["curves"]:
        shown = "  ".join(
            f"{n}: {m:.3f} [{low:.3f}, {high:.3f}]"
            for n, m, low, high in zip(
                record["lengths"], curve["median"], curve["low"], curve["high"], strict=True
            )
        )
        print(f"{curve['encoding']:>12}  {shown}")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
