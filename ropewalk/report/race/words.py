"""A race in plain words: what was run, who is best where, and what to be careful of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]

BEST, ALIKE = "★", "≈"
"""Signs beside a number: the best at its length, and not distinguishable from the best."""


def figure(value: float | None, missing: str = "–") -> str:
    """A number for a table: three decimals where they say something."""
    if value is None:
        return missing
    size = abs(value)
    if size == 0 or 1e-3 <= size < 1e3:
        text = f"{value:.3f}"
    elif 1e3 <= size < 1e9:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.1e}"
    return text.replace("-", "−")


def interval(curve: Mapping[str, Any], place: int, worst: str) -> tuple[str, str]:
    """The median of a curve at one of its lengths, and ``[low, high]``."""
    median, low, high = (figure(curve[key][place], worst) for key in ("median", "low", "high"))
    return median, f"[{low}, {high}]"


def worst(document: Document) -> str:
    """How the score of a trial that diverged is written."""
    return "∞" if document["better"] == "lower" else "−∞"


def listed(words: Sequence[object]) -> str:
    """``a, b and c``."""
    texts = list(map(str, words))
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def counted(count: int, what: str) -> str:
    """``1 seed``, ``3 seeds``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def title(document: Document) -> str:
    """What was raced, in a few words."""
    return f"{document['task']}, trained at length {document['train_length']:,}"


def what(document: Document) -> str:
    """What was raced, in a sentence."""
    lengths = listed([f"{n:,}" for n in document["lengths"]])
    return (
        f"{counted(len(document['curves']), 'encoding')}, {counted(document['seeds'], 'seed')}, "
        f"read at {'length' if len(document['lengths']) == 1 else 'lengths'} {lengths}; "
        f"{document['unit']}, {document['better']} is better."
    )


def verdicts(document: Document) -> list[str]:
    """One sentence for each length: the best, who is told apart from it, and who is not."""
    return [verdict(document, place) for place in range(len(document["lengths"]))]


def verdict(document: Document, place: int) -> str:
    """The sentence for one length."""
    rank = document["ranks"][place]
    best, alike = rank["best"], rank["not_distinguishable_from_best"]
    curves = {curve["encoding"]: curve for curve in document["curves"]}
    at = f"At {rank['length']:,}: "
    if curves[best]["median"][place] is None:
        return f"{at}most trials of every encoding diverged; there is no best."
    found = " ".join(interval(curves[best], place, worst(document)))
    if len(curves) == 1:
        return f"{at}{best} {found}, with nothing to compare it to."
    apart = [name for name in curves if name != best and name not in alike]
    words = [f"{at}{best} has the best median, {found}"]
    if apart:
        words.append(f"told apart from it: {listed(apart)}")
    words.append(f"not distinguishable from it: {listed(alike)}" if alike else "and so is best")
    return "; ".join(words) + "."


def comparison(compared: Mapping[str, Any], better: str) -> str:
    """How a stands to b, and which rule says so."""
    if compared["rule"] is None:
        return "not distinguishable"
    side = "better" if compared["verdict"] == better else "worse"
    return (
        f"{compared['verdict']} ({side}): {compared['rule']}; by chance {odds(compared['chance'])}"
    )


def odds(chance: float) -> str:
    """``at most 1 in 10``."""
    return f"at most 1 in {math.floor(1 / chance + 1e-9):,}"


def cautions(document: Document) -> list[str]:
    """What a reader must know before believing the table."""
    return [*_few(document), *_chance(document), *_missing(document), *_lost(document)]


def _few(document: Document) -> list[str]:
    fewest = min(len(curve["seeds"]) for curve in document["curves"])
    if fewest >= 3:
        return []
    return [f"{counted(fewest, 'seed')} of an encoding: too few to tell anything apart; take 3."]


def _chance(document: Document) -> list[str]:
    pairs, expected = document["comparisons"], document["by_chance"]
    if not expected:
        return []
    apart = sum(each["rule"] is not None for each in pairs)
    return [
        f"{apart} of {counted(len(pairs), 'comparison')} are told apart. If all encodings were "
        f"equal, chance alone would tell up to {expected:.2g} apart."
    ]


def _missing(document: Document) -> list[str]:
    seeds = sorted({seed for curve in document["curves"] for seed in curve["seeds"]})
    found = []
    for curve in document["curves"]:
        lost = [seed for seed in seeds if seed not in curve["seeds"]]
        if lost:
            word = "seed" if len(lost) == 1 else "seeds"
            found.append(
                f"{curve['encoding']} lacks {word} {listed(lost)}: "
                "pairs are taken where both ran, ranks where all did."
            )
    return found


def _lost(document: Document) -> list[str]:
    found = [
        f"{record['config']['encoding']}, seed {record['config']['seed']}, diverged"
        f"{' (' + record['diverged'] + ')' if record.get('diverged') else ''}: it counts as worst."
        for record in document["trials"]
        if record.get("diverged") or None in record["scores"].values()
    ]
    if len(document["origins"]) > 1:
        found.append(
            "The records were made by different versions or machines, listed below; between them "
            "a score may differ in its last digits."
        )
    return found
