"""``ropewalk extend CONFIG --to N``: a plan for a longer context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.explain import CONFIG_HELP
from ropewalk.cli.output import block, console, number, print_json

if TYPE_CHECKING:
    from ropewalk.configs.extend import Plan

METHOD_NAMES = "yarn, ntk, linear, dynamic or longrope"


def extend(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help=CONFIG_HELP)],
    to: Annotated[int, typer.Option("--to", metavar="N", help="Tokens to reach.")],
    method: Annotated[str, typer.Option("--method", help=METHOD_NAMES)] = "yarn",
    native: Annotated[
        int | None, typer.Option("--native", metavar="N", help="The trained length, if not stated.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a figure of wavelengths.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Plan a longer context: the changed config, the smallest factor that suffices, and what
    happens to short text."""
    from ropewalk.configs import resolve
    from ropewalk.configs.extend import extend as plan

    found = plan(resolve(config), to, method, native=native)
    if html is not None:
        from ropewalk.report.wavelengths import page

        html.write_text(page(found), encoding="utf-8")
    if as_json:
        print_json(found.as_dict())
    else:
        _draw(found)


def _draw(plan: Plan) -> None:
    from rich.text import Text

    out = console()
    reach = f"{plan.native:,} → {plan.to:,} tokens"
    out.print(Text(f"{plan.method} ×{plan.factor:g}: {reach}", style="bold"))
    for told in plan.as_dict()["layers"]:
        _draw_layers(out, plan, told)
    same = [f"{key} {value:.7g}" for key, value in plan.equivalents().items()]
    for line in block("the same stretch in other words", same, out.width):
        out.print(line)
    for warning in plan.warnings:
        for line in block("note", warning.split(" "), out.width, " ", "yellow"):
            out.print(line)
    out.print(Text("write into the config:", style="bold"))
    print(_compact(plan.changed()))


def _draw_layers(out: Any, plan: Plan, told: dict[str, Any]) -> None:
    """What changes in a group of layers, and how phases within the native length move."""
    from rich.table import Table

    from ropewalk.configs.resolved import ranges

    moved = [row for row in told["short_text"] if row["largest"]]
    factor = told["attention_factor"]["after"]
    words = [
        f"{told['pairs_below_one_turn']} of {len(told['pairs'])} pairs turn less than once in "
        f"{plan.native:,} tokens"
    ]
    words += [] if factor == 1 else [f"cos and sin × {factor:.5g}"]
    words += [] if moved else [f"texts up to {plan.native:,} tokens are read as before"]
    for line in block(f"layers {ranges(tuple(told['layers']))}", words, out.width):
        out.print(line)
    if not moved:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("  tokens apart", "largest change, rad", "pairs moved by > 0.1 rad"):
        table.add_column(heading, justify="right")
    for row in told["short_text"]:
        table.add_row(_short(row["distance"]), _short(row["largest"]), _short(row["pairs_moved"]))
    out.print(table)


def _short(value: float) -> str:
    """A number with a few digits, grouped where it is large."""
    if 1000 <= abs(value) < 1e12:
        return f"{value:,.0f}"
    return number(value)


def _compact(value: Any, indent: int = 0) -> str:
    """JSON with one key a line and each list on one."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value)
    inner = " " * (indent + 2)
    items = [f"{inner}{json.dumps(key)}: {_compact(v, indent + 2)}" for key, v in value.items()]
    return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"
