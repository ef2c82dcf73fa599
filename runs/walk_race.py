"""The race that closes the walk: four encodings, three seeds, one small character model.

Each model is trained on windows of 128 characters of three plays and read on a fourth one, which it
has never seen, at 128, 256, 512 and 1024. A number is the mean of ``-log2 P`` over the last 64
characters of a window; windows of every length end at the same places, so the same characters are
scored each time with more and more text before them. It is what ``ropewalk race`` does unless told
otherwise, stored in the package::

    python runs/walk_race.py
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

from stored import RECORDS, told, write

from ropewalk.lab import executors, outcome, text, trial
from ropewalk.lab.race import race
from ropewalk.lab.store import Store
from ropewalk.lab.tasks.characters import Characters

SCRIPT = "runs/walk_race.py"
RECORD = RECORDS / "race_walk.json"
ENCODINGS = ("sinusoidal", "rope", "alibi", "none")
TRIALS = trial.grid(ENCODINGS)


def stored(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The document of the race, and what it read."""
    task = Characters()
    lengths = TRIALS[0].lengths
    return {
        **outcome.document(records),
        "text": "Shakespeare (public domain): trained on Macbeth, A Midsummer Night's Dream and "
        "The Tempest, read on The Comedy of Errors",
        "text_sha256": {
            name: hashlib.sha256(text.play(name).encode("ascii")).hexdigest()
            for name in text.TRAINING + text.VALIDATION
        },
        "scored": f"the last {task.run} characters of windows of the stated length; windows of "
        "every length end at the same places, so the same characters are scored at each",
        "scored_characters": task.run * len(task.windows(lengths[0], max(lengths))),
        "optimizer": {
            "name": "AdamW",
            "betas": trial.BETAS,
            "weight_decay": trial.WEIGHT_DECAY,
            "clip": trial.CLIP,
            "warm_up": trial.WARM_UP,
            "final_rate": trial.FINAL_RATE,
        },
        "script": SCRIPT,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RECORD, help="where the JSON record goes")
    parser.add_argument("--store", type=Path, default=Path("race.jsonl"), help="trials so far")
    parser.add_argument("--workers", type=int, default=None, help="trials at one time")
    given = parser.parse_args()
    local = executors.make("local", workers=given.workers)
    document = stored(race(TRIALS, Store(given.store), local, told))
    write(document, given.out)
    for curve in document["curves"]:
        shown = "  ".join(
            f"{n}: {m:.3f} [{low:.3f}, {high:.3f}]"
            for n, m, low, high in zip(
                document["lengths"], curve["median"], curve["low"], curve["high"], strict=True
            )
        )
        print(f"{curve['encoding']:>12}  {shown}")


if __name__ == "__main__":
    main()
