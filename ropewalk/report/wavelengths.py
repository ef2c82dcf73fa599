"""A self-contained figure: wavelengths of every pair against the context, before and after."""

from __future__ import annotations

import html
import json
import math
from typing import TYPE_CHECKING

from ropewalk.configs.resolved import ranges

if TYPE_CHECKING:
    from ropewalk.configs import LayerGroup
    from ropewalk.configs.extend import Plan

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 360, 84, 26, 46
LABEL = 14
"""Height of a label; lines closer than that have theirs on either side."""

STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #595959; --paper: #fff; --grid: #e6e6e6;
  --code: #f4f4f2; --native: #2a7f62; --scaled: #b3541e; --declared: #5b5bd6; }
@media (prefers-color-scheme: dark) { :root { --ink: #eee; --soft: #aaa; --paper: #181818;
  --grid: #333; --code: #242424; --native: #5cc49d; --scaled: #e58a55; --declared: #9c9cff; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.6rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.figure { overflow-x: auto; } svg { width: 100%; min-width: 30rem; height: auto; }
text { font-size: 12px; fill: var(--soft); } .grid { stroke: var(--grid); }
.native { stroke: var(--native); } .scaled { stroke: var(--scaled); }
.declared { stroke: var(--declared); }
.before { fill: none; stroke: var(--soft); stroke-width: 2; stroke-dasharray: 5 4; }
.after { fill: none; stroke: var(--ink); stroke-width: 2; }
pre { background: var(--code); padding: .8rem; overflow-x: auto; }
"""


def page(plan: Plan) -> str:
    """The figure of a plan as one HTML file that asks for nothing elsewhere."""
    title = f"{plan.method} ×{plan.factor:g}: {plan.native:,} → {plan.to:,} tokens"
    figures = "\n".join(_figure(plan, a, b) for a, b in plan.groups())
    notes = "".join(f"<li>{html.escape(w)}</li>" for w in plan.warnings)
    keys = html.escape(json.dumps(plan.changed(), indent=2))
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title>"
        f"<style>{STYLE}</style>\n<h1>{html.escape(title)}</h1>\n"
        "<p>Each pair of lanes turns once in its wavelength, so many tokens. A pair whose "
        "wavelength exceeds the native context never turned once in training. Dashed: before. "
        "Solid: after.</p>\n"
        f"{figures}\n<ul>{notes}</ul>\n<h2>Write into the config</h2>\n<pre>{keys}</pre>\n"
        "</html>\n"
    )


def _figure(plan: Plan, before: LayerGroup, after: LayerGroup) -> str:
    from ropewalk.configs.extend import frequencies_at

    rows = [frequencies_at(group, plan.to) for group in (before, after)]
    waves = [[2 * math.pi / f if f else None for f in row] for row in rows]
    lengths = _lengths(plan)
    values = [w for row in waves for w in row if w] + [float(n) for n in lengths]
    low, high = math.log10(min(values)), math.log10(max(values)) + 0.2
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Wavelength of each pair">',
        '<text x="0" y="12">tokens a turn</text>',
        *_grid(low, high),
        *_marks(lengths, low, high),
    ]
    for kind, row in zip(("before", "after"), waves, strict=True):
        parts.append(f'<polyline class="{kind}" points="{_points(row, low, high)}"/>')
    parts.append(
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">pair, 0 … {len(rows[0]) - 1}'
        "</text></svg>"
    )
    label = f" ({html.escape(before.label)})" if before.label else ""
    still = sum(w is None for w in waves[1])
    stands = f"; {still} pairs stand still" if still else ""
    same = "; unchanged" if rows[0] == rows[1] else ""
    heading = f"<h2>Layers {html.escape(ranges(before.layers))}{label}{stands}{same}</h2>"
    return f'{heading}\n<div class="figure">{"".join(parts)}</div>'


def _lengths(plan: Plan) -> dict[int, list[str]]:
    """length → its names, the longest first."""
    declared = plan.before.context.declared
    named = (("native", plan.native), ("declared", declared), ("scaled", plan.to))
    lengths: dict[int, list[str]] = {}
    for name, length in sorted(named, key=lambda pair: -(pair[1] or 0)):
        if length:
            lengths.setdefault(length, []).append(name)
    return lengths


def _marks(lengths: dict[int, list[str]], low: float, high: float) -> list[str]:
    """A line for each length; its name above it, or below if another line is close above."""
    parts, above = [], -math.inf
    for length, names in lengths.items():
        y = _y(math.log10(length), low, high)
        text = y + 13 if y - above < LABEL else y - 4
        above = y
        parts.append(
            f'<line class="{names[0]}" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT + 6}" y="{text:.1f}">{names[0]} {length:,}'
            f"{''.join(f' = {name}' for name in names[1:])}</text>"
        )
    return parts


def _grid(low: float, high: float) -> list[str]:
    parts = []
    first, last = math.ceil(low), math.floor(high)
    for power in range(first, last + 1, max(1, (last - first) // 8)):
        y = _y(power, low, high)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_tick(power)}</text>'
        )
    return parts


def _tick(power: int) -> str:
    return f"{10**power:,}" if 0 <= power < 9 else f"1e{power}"


def _y(value: float, low: float, high: float) -> float:
    return TOP + (HEIGHT - BOTTOM - TOP) * (1 - (value - low) / (high - low))


def _points(row: list[float | None], low: float, high: float) -> str:
    step = (WIDTH - LEFT) / max(1, len(row) - 1)
    return " ".join(
        f"{LEFT + c * step:.1f},{_y(math.log10(w), low, high):.1f}"
        for c, w in enumerate(row)
        if w is not None
    )
