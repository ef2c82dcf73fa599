"""What was measured of a lengthened model, in plain words: who wins where, what short text pays."""

from __future__ import annotations

from ropewalk.lab.trained.curves import Bucket, Curve, Lengthened
from ropewalk.lab.trained.spread import Spread, beyond, spread

ALIKE = "≈"
NOTHING = "–"
"""Where a method that was refused would have a loss."""


def cell(found: Lengthened, curve: Curve, place: int) -> str:
    """A mean loss, and a sign if it is not apart from the best one of its bucket."""
    alike = curve.name in found.buckets()[place].tied
    return f"{spread(curve.buckets[place]).mean:.3f}{ALIKE if alike else ' '}"


def columns(found: Lengthened) -> list[str]:
    """What stands above losses: every curve, then what was refused."""
    return [*(curve.name for curve in found.curves), *(each.name for each in found.refused)]


def verdicts(found: Lengthened) -> list[str]:
    """What the numbers say, a sentence each."""
    untouched = found.curves[0]
    said = [_untouched(found, untouched)]
    said += [_method(found, curve) for curve in found.curves[1:]]
    said += [f"{each.name}: not measured, {each.reason}" for each in found.refused]
    said += _winners(found)
    if len(found.texts) == 1:
        said.append("one text has no spread: nothing is told apart; read more texts")
    return said


def _untouched(found: Lengthened, curve: Curve) -> str:
    return f"untouched: {_rise(found, curve)}"


def _method(found: Lengthened, curve: Curve) -> str:
    cost = found.change(curve, 0)
    start, stop = found.edges[0]
    if max(abs(v) for v in cost.values) == 0:
        pays = "texts of the first bucket are read as before"
    else:
        verb = "costs" if cost.mean > 0 else "gains"
        pays = f"short text ({start:,}–{stop:,}) {verb} {_size(cost)}{_sure(cost)}"
    return f"{curve.name}: {pays}; {_rise(found, curve)}"


def _rise(found: Lengthened, curve: Curve) -> str:
    """How the loss changes over the text, less what the text itself changes."""
    rise = found.rise(curve)
    start, _ = found.edges[-1]
    if not start:
        return f"loss {spread(curve.buckets[0]).mean:.3f} nats"
    what = "above" if rise.mean > 0 else "below"
    return (
        f"less the loss alone, the last bucket (from {start:,}) is {_size(rise)} {what} the first"
        f"{_sure(rise)}"
    )


def _sure(found: Spread) -> str:
    """Whether a change can be told from chance; one text says nothing of it."""
    if len(found.values) < 2 or beyond(found.values):
        return ""
    return ", within the spread over texts"


def _size(found: Spread) -> str:
    sd = f" ± {found.sd:.3f}" if len(found.values) > 1 else ""
    return f"{abs(found.mean):.3f}{sd} nats"


def _winners(found: Lengthened) -> list[str]:
    """Runs of buckets with one winner, in order."""
    runs: list[tuple[Bucket, Bucket]] = []
    for bucket in found.buckets():
        if runs and (runs[-1][1].best, runs[-1][1].tied) == (bucket.best, bucket.tied):
            runs[-1] = runs[-1][0], bucket
        else:
            runs.append((bucket, bucket))
    return [
        f"{first.start:,}–{last.stop:,}: {first.best} is best"
        + (f"; {', '.join(first.tied)} not apart from it" if first.tied else "")
        for first, last in runs
    ]
