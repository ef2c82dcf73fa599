"""What a race says, as one JSON document: records of comparable trials and what they say together.

Trials are comparable if their configurations differ in encoding and seed alone. The document holds
no time and nothing drawn at random: equal records give equal documents.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from ropewalk.lab import statistics
from ropewalk.lab.record import FILES

Record = Mapping[str, Any]

RACERS = ("encoding", "seed")
"""What comparable trials differ in."""


def comparable(records: Sequence[Record]) -> list[list[Record]]:
    """The records in groups that differ in encoding and seed alone, as they first occur.

    Where the file of an encoding was edited between trials, each further edition of it is in a
    group of its own.
    """
    groups: dict[str, list[Record]] = {}
    editions: dict[str, list[Any]] = {}
    for record in records:
        own = editions.setdefault(record["config"]["encoding"], [])
        files = record["config"].get(FILES)
        if files not in own:
            own.append(files)
        shared = json.dumps([_shared(record), own.index(files)], sort_keys=True)
        groups.setdefault(shared, []).append(record)
    return list(groups.values())


def document(records: Sequence[Record]) -> dict[str, Any]:
    """The document of comparable records, encodings in the order in which they first occur.

    Args:
        records: of :func:`ropewalk.lab.trial.run`.

    Returns:
        ``curves``: per encoding lists over ``lengths``: ``median``, ``low``, ``high`` and
        ``values``, a list over the encoding's ``seeds``. ``comparisons``: each two encodings at
        each length (:class:`~ropewalk.lab.statistics.Comparison`). ``ranks``: at each length
        (:class:`~ropewalk.lab.statistics.Ranking`). ``by_chance``: how many comparisons would be
        told apart at most if all encodings were equal. ``config``: what all trials share.
        ``origins``: each set of versions and machines that made records, and how many;
        ``versions``: what all of them have in common. ``trials``: the records. A number is null
        where a trial diverged: worse than any number.

    Raises:
        ValueError: no records, records that are not comparable or disagree on what a score is, or
            two of one trial.
    """
    if len(comparable(records)) != 1:
        raise ValueError(
            f"records: {len(records)} in {len(comparable(records))} groups of comparable trials; "
            "a document is of one group, see comparable"
        )
    config, first = _shared(records[0]), records[0]
    for record in records:
        for name in ("unit", "better"):
            if record[name] != first[name]:
                encoding, seed = (record["config"][key] for key in RACERS)
                raise ValueError(
                    f"{name}={record[name]!r} of {encoding}, seed {seed}, is not that of other "
                    f"records of the same task, {first[name]!r}: one of them was changed"
                )
    lengths, lower = list(config["lengths"]), first["better"] == "lower"
    found = {n: scores(records, n) for n in lengths}
    curves = [_curve(encoding, found) for encoding in found[lengths[0]]]
    compared = [
        {"length": n, "a": a, "b": b, **_comparison(statistics.compare(at[a], at[b]))}
        for n, at in found.items()
        for a, b in combinations(at, 2)
    ]
    return {
        "kind": "race",
        "task": config["task"],
        "unit": first["unit"],
        "better": first["better"],
        "train_length": config["train_length"],
        "lengths": lengths,
        "seeds": len({record["config"]["seed"] for record in records}),
        "interval": statistics.INTERVAL,
        "curves": curves,
        "comparisons": compared,
        "by_chance": round(math.fsum(each["risk"] for each in compared), 9),
        "ranks": [
            _ranking(n, statistics.rank(at, lower_is_better=lower)) for n, at in found.items()
        ],
        "config": config,
        "versions": _common([record["made"] for record in records]),
        "origins": _origins(records),
        "trials": list(records),
    }


def scores(records: Sequence[Record], length: int) -> dict[str, dict[int, float]]:
    """Encoding → seed → score at a length; a trial that diverged scores worst of all.

    Raises:
        ValueError: a record has no score at ``length``, or a trial occurs twice.
    """
    found: dict[str, dict[int, float]] = {}
    for record in records:
        encoding, seed = (record["config"][key] for key in RACERS)
        if str(length) not in record["scores"]:
            raise ValueError(f"the record of {encoding}, seed {seed}, has no score at {length}")
        own = found.setdefault(encoding, {})
        if seed in own:
            raise ValueError(f"two records are of one trial: {encoding}, seed {seed}")
        own[seed] = _worst_if_none(record["scores"][str(length)], record["better"])
    return found


def _shared(record: Record) -> dict[str, Any]:
    return {k: value for k, value in record["config"].items() if k not in (*RACERS, FILES)}


def _worst_if_none(score: float | None, better: str) -> float:
    if score is None:
        return math.inf if better == "lower" else -math.inf
    return float(score)


def _curve(encoding: str, found: Mapping[int, Mapping[str, Mapping[int, float]]]) -> dict[str, Any]:
    own = [dict(sorted(at[encoding].items())) for at in found.values()]
    sides = [statistics.interval(at.values()) for at in own]
    return {
        "encoding": encoding,
        "seeds": list(own[0]),
        **{key: [_json(getattr(side, key)) for side in sides] for key in ("median", "low", "high")},
        "values": [[_json(value) for value in at.values()] for at in own],
    }


def _comparison(compared: statistics.Comparison) -> dict[str, Any]:
    difference = compared.difference
    return {
        "difference": None
        if difference is None
        else {key: _json(value) for key, value in difference._asdict().items()},
        "pairs": compared.pairs,
        "unpaired": compared.unpaired,
        "verdict": compared.verdict,
        "rule": compared.rule,
        "chance": compared.chance,
        "risk": compared.risk,
    }


def _ranking(length: int, ranked: statistics.Ranking) -> dict[str, Any]:
    return {
        "length": length,
        "best": ranked.best,
        "not_distinguishable_from_best": list(ranked.alike),
        "seeds": list(ranked.seeds),
        "mean_rank": ranked.ranks,
    }


def _common(made: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: v for key, v in made[0].items() if all(other.get(key) == v for other in made)}


def _origins(records: Sequence[Record]) -> list[dict[str, Any]]:
    """What made the records, and how many; the most first."""
    counts: dict[str, int] = {}
    for record in records:
        key = json.dumps(record["made"], sort_keys=True)
        counts[key] = counts.get(key, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{**json.loads(key), "trials": count} for key, count in ordered]


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None
