"""A measurement of low precision in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ropewalk.lab.trained.precision_rows import Precision
    from ropewalk.lab.trained.spread import Spread

MARK = "✓"
LEGEND = (
    f"{MARK} the change exceeds its spread over passages: its 95 % interval (Student's t) does not "
    "hold 0"
)
ALONE = "One passage has no spread, so no change is judged"


def signed(value: float) -> str:
    """Two digits with a sign; ``0`` where nothing changed."""
    if not math.isfinite(value):
        return "not finite"
    # The sign alone: an exponent keeps its hyphen, as in the standard deviation beside it.
    return f"{'−' if value < 0 else '+'}{abs(value):.2g}" if value else "0"


def change(found: Spread, beyond: bool) -> str:
    """Mean ± standard deviation over passages, marked if it exceeds its spread."""
    spread = f" ± {found.sd:.1g}" if len(found.values) > 1 else ""
    return f"{signed(found.mean)}{spread}{' ' + MARK if beyond else ''}"


def judged(found: Precision) -> str:
    """How the marks are to be read."""
    return LEGEND if len(found.passages) > 1 else ALONE


def contrasts(found: Precision) -> dict[str, list[str]]:
    """Differences of losses between two ways of holding keys: what is taken from what → each."""
    told: dict[str, list[str]] = {}
    for each in found.contrasts():
        a, b = each.a, each.b
        if a.when != b.when:
            heading, name = f"{a.when} − {b.when} rotation", f"{a.form} per {a.per}"
        else:
            heading, name = f"per {a.per} − per {b.per}", f"{a.form} {a.when}"
        told.setdefault(heading, []).append(f"{name} {change(each.difference, each.beyond)}")
    return told
