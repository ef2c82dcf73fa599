"""The answer of ``ropewalk explain``, as JSON or drawn on a screen."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from ropewalk.cli.output import FINE, NO, console, number, print_json

if TYPE_CHECKING:
    from ropewalk.configs import LayerGroup, Resolved
    from ropewalk.configs.engines import Reading

SHOWN = {"error": 8, "warning": 6, "info": 5}
"""How many findings of each severity fit on a screen; --json has them all."""

COLOURS = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def answer(config: str, overrides: str | None, engine: str | None, as_json: bool) -> int:
    """Explain a config; the exit status is 1 if a finding is an error."""
    from ropewalk.configs import resolve

    if engine is not None:
        return _explain_engine(config, engine, parsed_overrides(overrides), as_json)
    resolved = resolve(config, overrides=parsed_overrides(overrides))
    if as_json:
        print_json(resolved.as_dict())
    else:
        _draw(resolved)
    return NO if resolved.errors else FINE


def _explain_engine(
    source: str, engine: str, overrides: dict[str, Any] | None, as_json: bool
) -> int:
    """The config, and beside it what an engine would read from it."""
    from ropewalk.configs import resolve
    from ropewalk.configs.engines import read_as, with_engine
    from ropewalk.configs.sources import as_transformers

    config = as_transformers(source, overrides)
    reading = read_as(engine, config)
    resolved = with_engine(resolve(config), reading)
    if as_json:
        told = {"name": engine, "refused": reading.refused, **reading.resolved.as_dict()}
        print_json({**resolved.as_dict(), "engine": told})
    else:
        _draw(resolved)
        _draw_engine(reading)
    return NO if resolved.errors else FINE


def _draw_engine(reading: Reading) -> None:
    from rich.text import Text

    out = console()
    if reading.refused:
        out.print(Text(f"{reading.engine} cannot run it", style="bold"))
        return
    if not reading.findings:
        out.print(Text(f"{reading.engine} is known to read nothing otherwise", style="bold"))
        return
    out.print(Text(f"{reading.engine} would use:", style="bold"))
    for _, part in reading.resolved.everything():
        if part.layers:
            out.print(_layers(part))


def parsed_overrides(text: str | None) -> dict[str, Any] | None:
    """The object that ``--hf-overrides`` holds.

    Raises:
        ValueError: it is not a JSON object.
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--hf-overrides is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(
            "--hf-overrides must be a JSON object, such as '{\"rope_parameters\": {…}}'"
        )
    return value


def _draw(resolved: Resolved) -> None:
    from rich.text import Text

    out = console()
    for path, part in resolved.everything():
        if not part.layers:
            continue
        out.print(Text(_title(path, part), style="bold"))
        out.print(_layers(part))
        out.print(Text(_context(part)))
    if not any(part.layers for _, part in resolved.everything()):
        out.print(Text("no layers found"))
    _findings(out, resolved)


def _title(path: str, part: Resolved) -> str:
    count = sum(len(group.layers) for group in part.layers)
    name = part.model_type or "no model_type"
    where = f"{path}: " if path else ""
    return f"{where}{plain(name)}, {count} layer{'' if count == 1 else 's'}"


def plain(text: str) -> str:
    """Text from a file without control characters."""
    return "".join(c if c.isprintable() else "�" for c in text)


def _layers(part: Resolved) -> Any:
    from rich.table import Table
    from rich.text import Text

    from ropewalk.configs.resolved import ranges

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("layers", "position", "theta", "lanes", "one turn takes", "not in the file"):
        table.add_column(heading, overflow="fold")
    for group in part.layers:
        cells = (
            ranges(group.layers),
            _position(group),
            "–" if group.theta is None else f"{group.theta:g}",
            _lanes(group),
            _turns(group),
            _origin(group),
        )
        table.add_row(*(Text(plain(cell)) for cell in cells))
    return table


def _position(group: LayerGroup) -> str:
    if group.kind == "none":
        return "none: no rotation here"
    if group.kind == "other":
        return "other: no rotation in its class"
    if group.kind != "rotary":
        details = ", ".join(f"{k} {v}" for k, v in group.details.items() if v is not None)
        return f"{group.kind}{f' ({details})' if details else ''}"
    words = [f"rotary, {group.rope_type}"]
    factor = group.provenance.get("factor")
    if factor is not None:
        words[0] += f" ×{number(factor.value)}"
    if group.attention_factor != 1:
        words.append(f"cos, sin × {group.attention_factor:.5g}")
    if group.softmax_scale_factor != 1:
        words.append(f"softmax scale × {group.softmax_scale_factor:.5g}")
    words += [f"other frequencies beyond {v.above:,} tokens" for v in group.variants]
    if group.axes:
        words.append(f"axes {group.axes[:6]}{'…' if len(group.axes) > 6 else ''}")
    return "; ".join(words)


def _lanes(group: LayerGroup) -> str:
    if group.kind != "rotary":
        return "–"
    if group.pairing == "proportional":
        turning = sum(f != 0 for f in group.inv_freq)
        return f"{2 * turning} of {group.head_dim}, i with i+{group.head_dim // 2}"
    share = "all" if group.rotary_dim == group.head_dim else f"{group.rotary_dim} of"
    first = f" from lane {group.lane_offset}" if group.lane_offset else ""
    half = group.rotary_dim // (4 if "halves" in group.details else 2)
    pairs = "2i with 2i+1" if group.layout == "interleaved" else f"i with i+{half}"
    return f"{share} {group.head_dim}{first}, {pairs}"


def _turns(group: LayerGroup) -> str:
    """Tokens for a whole turn of the fastest and the slowest pair."""
    turning = [f for f in group.inv_freq if f]
    if not turning:
        return "–"
    fast, slow = (2 * math.pi / f for f in (max(turning), min(turning)))
    return f"{fast:.3g} … {slow:,.0f}"


def _origin(group: LayerGroup) -> str:
    """Which of the main values the file does not state."""
    sources: dict[str, list[str]] = {}
    for name in ("theta", "rope_type", "head_dim", "rotary_dim", "layout", "layers"):
        value = group.provenance.get(name)
        if value is not None and not value.source.startswith("file:"):
            sources.setdefault(value.source, []).append(name)
    words = [f"{s}: {', '.join(sources[s])}" for s in ("assumed", "class default") if s in sources]
    return "; ".join(words) or "–"


def _context(part: Resolved) -> str:
    context = part.context
    words = [
        f"{name} {number(length)}"
        for name, length in (
            ("native", context.native),
            ("scaled", context.scaled),
            ("declared", context.declared),
        )
        if length is not None
    ]
    either = " or ".join(f"{n:,} → {s:,}" for n, s in context.readings)
    return f"context: {', '.join(words) or 'not stated'}{f'; read as {either}' if either else ''}"


def _findings(out: Any, resolved: Resolved) -> None:
    from rich.text import Text

    if not resolved.findings:
        out.print(Text("nothing to fix", style="green"))
        return
    left = dict(SHOWN)
    hidden = 0
    for i, finding in enumerate(resolved.findings):
        if left[finding.severity] == 0:
            hidden += 1
            continue
        left[finding.severity] -= 1
        if i == 0:
            first = "fix first" if finding.severity == "error" else "findings"
            out.print(Text(f"{first}:", style="bold"))
        line = Text(f"{finding.severity} {finding.code} ", style=COLOURS[finding.severity])
        where = f"{finding.key}: " if finding.key else ""
        line.append(plain(f"{where}{finding.message}"), style="default not bold")
        if finding.severity != "info":
            line.append(plain(f". To do: {finding.remedy}"), style="default not bold")
        out.print(line)
    if hidden:
        out.print(Text(f"and {hidden} more: --json has them all", style="dim"))
