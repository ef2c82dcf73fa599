"""How many steps a small model needs to learn to attend k places back, for the property learnable.

The task is ``back``: at each of 32 places, the symbol three before. Every tenth step the model is
scored at the trained length on examples it has never seen; the number is the first step at which
it is right at 99 % of the places. A model that has not got there after 500 steps has none::

    python runs/learnable.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from stored import RECORDS, write

from ropewalk.checks.content import one_thread
from ropewalk.lab import executors, trial
from ropewalk.lab.executors.base import Failure
from ropewalk.lab.trial import Trial

SCRIPT = "runs/learnable.py"
RECORD = RECORDS / "learnable.json"
ENCODINGS = (
    *("none", "integer", "normalised", "binary", "sinusoidal", "learned"),
    *("rope", "p_rope", "pope", "alibi", "t5"),
)
SEEDS, STEPS, EVERY, SHARE = 5, 500, 10, 0.99
TRIALS = trial.grid(ENCODINGS, task="back", seeds=SEEDS, steps=STEPS, lengths=(32,))


def measure(config: Trial) -> dict[str, Any]:
    """``steps``: the first scored step with a share of at least ``SHARE``; null if none."""
    task = trial.task_of(config)
    with one_thread():
        model = trial.build(config, task)

        def learned(step: int) -> bool:
            return step % EVERY == 0 and task.score(model, 32, 32).value >= SHARE

        losses, _ = trial.train(model, config, task, until=learned)
        done = task.score(model, 32, 32).value >= SHARE
    return {"steps": len(losses) if done else None}


def document(found: Mapping[str, Mapping[int, int | None]]) -> dict[str, Any]:
    """The stored record: per encoding the steps of each seed, null where they did not suffice."""
    return {
        "kind": "learnable",
        "task": "back",
        "question": "the symbol 3 places back, at each of 32 places",
        "share": SHARE,
        "every": EVERY,
        "most": STEPS,
        "seeds": SEEDS,
        "encodings": {
            name: {"steps": [own[seed] for seed in sorted(own)]} for name, own in found.items()
        },
        "config": {
            key: value
            for key, value in trial.config_of(TRIALS[0]).items()
            if key not in ("encoding", "seed")
        },
        "made": trial.origin(),
        "script": SCRIPT,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RECORD, help="where the JSON record goes")
    parser.add_argument("--workers", type=int, default=None, help="trials at one time")
    given = parser.parse_args()
    found: dict[str, dict[int, int | None]] = {name: {} for name in ENCODINGS}
    with closing(executors.make("local", workers=given.workers).run(TRIALS, measure)) as outcomes:
        for each, answer in outcomes:
            if isinstance(answer, Failure):
                raise SystemExit(f"{each.encoding}, seed {each.seed}: {answer.reason}")
            found[each.encoding][each.seed] = answer["steps"]
            print(f"{each.encoding} seed {each.seed}: {answer['steps']}", file=sys.stderr)
    write(document(found), given.out)


if __name__ == "__main__":
    main()
