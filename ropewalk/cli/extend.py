"""``ropewalk extend CONFIG --to N``: a plan for a longer context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.cli.explain import CONFIG_HELP
from ropewalk.cli.explained import plain
from ropewalk.cli.output import console, number, print_json

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
    from rich.table import Table
    from rich.text import Text

    from ropewalk.configs.resolved import ranges

    out = console()
    reach = f"{plan.native:,} → {plan.to:,} tokens"
    out.print(Text(f"{plan.method} ×{plan.factor:g}: {reach}", style="bold"))
    for before, after in plan.groups():
        told = plan.as_dict()["layers"][[b for b, _ in plan.groups()].index(before)]
        out.print(
            Text(
                f"layers {ranges(before.layers)}: {told['pairs_below_one_turn']} of "
                f"{len(before.inv_freq)} pairs turn less than once in {plan.native:,} tokens; "
                f"cos, sin × {after.attention_factor:.5g}"
            )
        )
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("tokens apart", "largest change, rad", "pairs moved by > 0.1 rad"):
            table.add_column(heading, justify="right")
        for row in told["short_text"]:
            table.add_row(
                number(row["distance"]), number(row["largest"]), number(row["pairs_moved"])
            )
        out.print(table)
    same = ", ".join(f"{k} {v:.7g}" for k, v in plan.equivalents().items())
    out.print(Text(f"the same stretch: {same}"))
    for warning in plan.warnings:
        out.print(Text(plain(f"note: {warning}"), style="yellow"))
    out.print(Text("write into the config:", style="bold"))
    keys = ("rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings")
    changed = {key: plan.config[key] for key in keys if key in plan.config}
    out.print(Text(json.dumps(changed, indent=1)))
