"""Made-up records of a race, in the form that a trial leaves and a store takes."""

from __future__ import annotations

from typing import Any

from ropewalk import __version__
from ropewalk.lab.record import FORMAT, Record, key_of

MADE = {"format": FORMAT, "ropewalk": __version__, "torch": "2.13.0", "machine": "x86_64"}


def record(encoding: str, seed: int, *scores: float | None, **changes: Any) -> Record:
    """A record with these scores at lengths 8, 16, …; ``config`` changes parts of the config."""
    lengths = [8 * 2**i for i in range(len(scores))]
    config = {
        "encoding": encoding, "seed": seed, "task": "made-up", "task_options": {"k": 3},
        "train_length": 8, "lengths": lengths, "steps": 20, "batch": 4, "dim": 16, "layers": 2,
        "heads": 2, "rate": 0.003, **changes.pop("config", {}),
    }  # fmt: skip
    return {
        "key": key_of(config),
        "config": config,
        "unit": "bits",
        "better": "lower",
        "parameters": 1000,
        "loss": [2.0, 1.5, 1.25],
        "scores": {str(n): score for n, score in zip(lengths, scores, strict=True)},
        "curves": {},
        "diverged": None if None not in scores else "the loss was not finite at step 3",
        "made": MADE,
        **changes,
    }


def race_of(**bases: float) -> list[Record]:
    """Three seeds of each encoding, ``base + seed/10`` at length 8 and twice that at 16.

    Each has losses, and a curve by position at either length.
    """
    return [
        record(
            name,
            seed,
            base + seed / 10,
            2 * base + seed / 5,
            curves={"8": [base, base + seed], "16": [base, base, base + seed, 2 * base]},
        )
        for seed in range(3)
        for name, base in bases.items()
    ]
