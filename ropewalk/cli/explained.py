"""The answer of ``ropewalk explain``, as JSON or drawn on a screen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ropewalk.cli.in_words import context_words, layer_words, origin_words, phrases
from ropewalk.cli.output import FINE, NO, block, console, plain, print_json

if TYPE_CHECKING:
    from rich.text import Text

    from ropewalk.configs import Resolved
    from ropewalk.configs.engines import Reading
    from ropewalk.configs.findings import Finding

SHOWN = {"error": 8, "warning": 6, "info": 5}
"""How many findings of each severity are drawn at most; --json has them all."""

HEADINGS = {"error": "fix first:", "warning": "check:", "info": "to know:"}
MOST_GROUPS, LONGEST_NAME, LEAST_LINES = 12, 60, 6

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
        for line in _layers(part, out.width):
            out.print(line)


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
    lines: list[Text] = []
    for path, part in resolved.everything():
        if part.layers:
            lines.append(Text(_title(path, part), style="bold"))
            lines += _layers(part, out.width)
            lines += block("context", context_words(part), out.width)
            if origins := origin_words(part):
                lines += block("not in the file", origins, out.width)
    if not lines:
        lines.append(Text("no layers found"))
    left = max(LEAST_LINES, out.height - len(lines) - 2) if out.is_terminal else None
    for line in (*lines, *_findings(resolved, out.width, left)):
        out.print(line)


def _title(path: str, part: Resolved) -> str:
    count = sum(len(group.layers) for group in part.layers)
    name = plain(shortened(part.model_type or "no model_type"))
    where = f"{plain(shortened(path))}: " if path else ""
    return f"{where}{name}, {count} layer{'' if count == 1 else 's'}"


def shortened(name: str) -> str:
    """A name from a file, cut to what fits on a line."""
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def _layers(part: Resolved, width: int) -> list[Text]:
    """A block for each group of layers that do the same."""
    from rich.text import Text

    lines: list[Text] = []
    for group in part.layers[:MOST_GROUPS]:
        label = "layer" if len(group.layers) == 1 else "layers"
        lines += block(f"{label} {layer_words(group, part)}", phrases(group), width)
    more = len(part.layers) - MOST_GROUPS
    if more > 0:
        lines.append(Text(f"and {more} more groups of layers: --json has them all", style="dim"))
    return lines


def _findings(resolved: Resolved, width: int, lines_left: int | None) -> list[Text]:
    """The findings under a heading for each severity, as many as the screen holds."""
    from rich.text import Text

    lines: list[Text] = []
    if all(finding.severity == "info" for finding in resolved.findings):
        lines.append(Text("nothing to fix", style="green"))
    hidden = 0
    for severity, heading in HEADINGS.items():
        found = [f for f in resolved.findings if f.severity == severity]
        for i, finding in enumerate(found):
            more = [] if i else [Text(heading, style="bold")]
            more += told(finding, width)
            if hidden or i >= SHOWN[severity] or not _fits(lines, more, lines_left):
                hidden += len(found) - i
                break
            lines += more
    if hidden:
        lines.append(Text(f"and {hidden} more: --json has them all", style="dim"))
    return lines


def _fits(lines: list[Text], more: list[Text], left: int | None) -> bool:
    return left is None or len(lines) <= 1 or len(lines) + len(more) <= left


def told(finding: Finding, width: int) -> list[Text]:
    """A finding in words, and what to do about it unless that is nothing."""
    where = f"{shortened(finding.key)}: " if finding.key else ""
    lines = block(
        f"{finding.severity} {finding.code}",
        f"{where}{finding.message}".split(" "),
        width,
        " ",
        COLOURS[finding.severity],
    )
    if finding.severity != "info":
        lines += block("  To do:", finding.remedy.split(" "), width, " ", "bold", indent=9)
    return lines
