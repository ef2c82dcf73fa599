"""A self-contained figure: wavelengths of every pair against the context, before and after."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from ropewalk.configs.resolved import ranges

if TYPE_CHECKING:
    from ropewalk.configs import LayerGroup
    from ropewalk.configs.extend import Plan

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 340, 70, 46
LINES = {"native": "#2a7f62", "scaled": "#b3541e", "declared": "#5b5bd6"}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff; }
svg { width: 100%; height: auto; } text { font-size: 12px; fill: #444; }
.before { fill: none; stroke: #888; stroke-width: 2; stroke-dasharray: 5 4; }
.after { fill: none; stroke: #111; stroke-width: 2; }
pre { background: #f4f4f2; padding: .8rem; overflow-x: auto; }
"""


def page(plan: Plan) -> str:
    """The figure of a plan as one HTML file that asks for nothing elsewhere."""
    title = f"{plan.method} ×{plan.factor:g}: {plan.native:,} → {plan.to:,} tokens"
    figures = "\n".join(_figure(plan, a, b) for a, b in plan.groups())
    notes = "".join(f"<li>{html.escape(w)}</li>" for w in plan.warnings)
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title>"
        f"<style>{STYLE}</style>\n<h1>{html.escape(title)}</h1>\n"
        "<p>Each pair of lanes turns once in its wavelength. A pair whose wavelength exceeds the "
        "native context never turned once in training. Dashed: before. Solid: after.</p>\n"
        f"{figures}\n<ul>{notes}</ul>\n</html>\n"
    )


def _figure(plan: Plan, before: LayerGroup, after: LayerGroup) -> str:
    from ropewalk.configs.extend import frequencies_at

    rows = [frequencies_at(group, plan.to) for group in (before, after)]
    waves = [[2 * math.pi / f if f else None for f in row] for row in rows]
    lengths = {"native": plan.native, "scaled": plan.to}
    if plan.before.context.declared:
        lengths["declared"] = plan.before.context.declared
    values = [w for row in waves for w in row if w] + [float(n) for n in lengths.values()]
    low, high = math.log10(min(values)), math.log10(max(values)) + 0.2
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    parts += _grid(low, high)
    for name, length in lengths.items():
        y = _y(math.log10(length), low, high)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINES[name]}"/>'
            f'<text x="{WIDTH - 4}" y="{y - 4:.1f}" text-anchor="end">{name} {length:,}</text>'
        )
    for kind, row in zip(("before", "after"), waves, strict=True):
        parts.append(f'<polyline class="{kind}" points="{_points(row, low, high)}"/>')
    parts.append(
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">pair, 0 … {len(rows[0]) - 1}'
        "</text></svg>"
    )
    label = f" ({html.escape(before.label)})" if before.label else ""
    still = sum(w is None for w in waves[1])
    stands = f"; {still} pairs stand still" if still else ""
    heading = f"<h2>Layers {html.escape(ranges(before.layers))}{label}{stands}</h2>"
    return heading + "\n" + "".join(parts)


def _grid(low: float, high: float) -> list[str]:
    parts = []
    for power in range(math.ceil(low), math.floor(high) + 1):
        y = _y(power, low, high)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eee"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10**power:,}</text>'
        )
    return parts


def _y(value: float, low: float, high: float) -> float:
    return (HEIGHT - BOTTOM) * (1 - (value - low) / (high - low)) + 8


def _points(row: list[float | None], low: float, high: float) -> str:
    step = (WIDTH - LEFT) / max(1, len(row) - 1)
    return " ".join(
        f"{LEFT + c * step:.1f},{_y(math.log10(w), low, high):.1f}"
        for c, w in enumerate(row)
        if w is not None
    )
