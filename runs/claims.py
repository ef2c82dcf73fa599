"""What the scripts of claims share: train, judge statements seed by seed, store one record.

A statement says on which side of a margin a number lies. The number is taken for each seed, mostly
as a difference of two encodings with the same seed, and the statement is

- *reproduced* if the interval of its median over seeds lies on the side that was claimed,
- *refuted* if the interval lies on the other side,
- *undecided* at this scale if the margin is inside it, or if no model learned the task at all.

With five seeds the interval is their range (:mod:`ropewalk.lab.statistics`), so a number that is as
likely on one side as on the other is called reproduced once in 32 times, and refuted as often.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stored import RECORDS, told, write

from ropewalk.lab import executors, outcome, statistics
from ropewalk.lab.race import race
from ropewalk.lab.store import Store
from ropewalk.lab.trial import Trial, origin

SEEDS = 5

BySeed = Mapping[int, float]
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Statement:
    """A number per seed, and the side of a margin on which it is said to lie.

    ``idle`` says why the number decides nothing, where it does not: no model learned the task.
    """

    words: str
    unit: str
    values: BySeed
    side: Literal["below", "above"]
    margin: float = 0.0
    idle: str = ""

    def judged(self) -> dict[str, Any]:
        """The statement with its median, interval and verdict, as JSON."""
        median, low, high = statistics.interval(self.values.values())
        below, above = high < self.margin, low > self.margin
        verdict = "undecided"
        if (below or above) and not self.idle:
            verdict = "reproduced" if below == (self.side == "below") else "refuted"
        return {
            "words": self.words,
            "unit": self.unit,
            "side": self.side,
            "margin": self.margin,
            "median": finite(median),
            "low": finite(low),
            "high": finite(high),
            "values": [finite(value) for value in self.values.values()],
            "verdict": verdict,
            "idle": self.idle,
        }


@dataclass(frozen=True)
class Claim:
    """What somebody said, and how it is tried here.

    Args:
        number: in the list of claims.
        title: one line.
        said: what the source reports, with its numbers.
        source: authors, year, title.
        setting: what is trained here, in words.
        script: the file in ``runs/``.
    """

    number: int
    title: str
    said: str
    source: str
    setting: str
    script: str


def minus(a: BySeed, b: BySeed) -> dict[int, float]:
    """a − b, seed by seed."""
    if a.keys() != b.keys():
        raise ValueError(f"seeds {sorted(a)} and {sorted(b)} are not the same")
    return {seed: a[seed] - b[seed] for seed in sorted(a)}


def scores(records: Sequence[Record], task: str, length: int) -> dict[str, dict[int, float]]:
    """Encoding → seed → score of a task at a length."""
    return outcome.scores([r for r in records if r["config"]["task"] == task], length)


def shares(records: Sequence[Record], task: str, length: int) -> dict[str, dict[int, float]]:
    """Encoding → seed → mean over the places of an answer of the share that is right."""
    found: dict[str, dict[int, float]] = {}
    for record in records:
        if record["config"]["task"] == task:
            curve = record["curves"][str(length)]
            mean = math.fsum(curve) / len(curve)
            found.setdefault(record["config"]["encoding"], {})[record["config"]["seed"]] = mean
    return found


def unlearned(trained: Mapping[str, BySeed], least: float) -> str:
    """Why a comparison of shares is idle: no encoding learned the task it was trained on; or ""."""
    medians = {name: statistics.interval(own.values()).median for name, own in trained.items()}
    best = max(medians, key=medians.__getitem__)
    if medians[best] >= least:
        return ""
    return (
        f"no encoding learned it at the trained length: the best, {best}, has {medians[best]:.2f}, "
        f"and {least:g} is asked for"
    )


def verdict(statements: Sequence[Mapping[str, Any]]) -> str:
    """Of a claim: reproduced if all its statements are, in part if some are, else as they are."""
    found = {each["verdict"] for each in statements}
    if "reproduced" in found:
        return "reproduced" if len(found) == 1 else "in part"
    return "refuted" if "refuted" in found else "undecided"


def written(
    claim: Claim, statements: Sequence[Statement], path: Path, more: Mapping[str, Any]
) -> dict[str, Any]:
    """Judge, print and store."""
    judged = [each.judged() for each in statements]
    document = {
        "kind": "claim",
        "number": claim.number,
        "title": claim.title,
        "said": claim.said,
        "source": claim.source,
        "setting": claim.setting,
        "script": f"runs/{claim.script}",
        "seeds": len(statements[0].values),
        "interval": statistics.INTERVAL,
        "statements": judged,
        "verdict": verdict(judged),
        **more,
        "made": origin(),
    }
    write(document, path)
    for each in judged:
        print(
            f"{each['verdict']:>10}  {each['words']}: {each['median']:.4g} "
            f"[{each['low']:.4g}, {each['high']:.4g}] {each['unit']}, "
            f"said {each['side']} {each['margin']:g}"
        )
    print(f"{claim.title}: {document['verdict']}")
    return document


def options(claim: Claim) -> argparse.Namespace:
    """The command line of a script."""
    parser = argparse.ArgumentParser(description=claim.title)
    path = RECORDS / f"claim_{claim.number:02}.json"
    parser.add_argument("--out", type=Path, default=path, help="where the JSON record goes")
    parser.add_argument("--store", type=Path, default=Path("claims.jsonl"), help="trials so far")
    parser.add_argument("--workers", type=int, default=None, help="trials at one time")
    return parser.parse_args()


def main(
    claim: Claim,
    trials: Sequence[Trial],
    judge: Callable[[Sequence[Record]], Sequence[Statement]],
) -> None:
    """Run the trials that the store lacks, judge, and store the record of the claim."""
    given = options(claim)
    records = race(trials, Store(given.store), executors.make("local", workers=given.workers), told)
    groups = outcome.comparable(records)
    curves = [
        {
            key: document[key]
            for key in ("task", "unit", "better", "train_length", "lengths", "seeds", "curves")
        }
        | {"config": document["config"]}
        for document in map(outcome.document, groups)
    ]
    more: dict[str, Any] = {"races": curves}
    if len(curves) == 1:
        more |= {key: curves[0][key] for key in ("train_length", "lengths", "unit", "curves")}
    written(claim, judge(records), given.out, more)


def finite(value: float) -> float | None:
    """A number as JSON holds it."""
    return value if math.isfinite(value) else None
