"""``ropewalk check NAME|all``: measure what an encoding claims."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ropewalk.cli.output import FINE, NO, console, number, print_json
from ropewalk.cli.settings import parse


def check(
    name: Annotated[str, typer.Argument(help="An encoding, or `all`.")],
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set one of its arguments."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Measure every property; exit 1 where a measurement contradicts a claim."""
    from ropewalk import checks

    config = parse(setting)
    if name == "all":
        if config:
            raise ValueError("--set belongs to one encoding; name it instead of all")
        reports = checks.check_all()
        document: Any = {key: report.as_dict() for key, report in reports.items()}
    else:
        report = checks.check(name, config)
        reports, document = {name: report}, report.as_dict()
    if as_json:
        print_json(document)
    elif name == "all":
        _draw_all(reports)
    else:
        _draw_one(reports[name])
    return FINE if all(report.agrees for report in reports.values()) else NO


def _draw_all(reports: Any) -> None:
    from rich.text import Text

    from ropewalk.cli.scorecard import WORDS, scorecard

    out = console()
    out.print(scorecard({name: report.as_dict()["properties"] for name, report in reports.items()}))
    wrong = [
        f"{name}: {key} is {WORDS[report.properties[key].holds]}, "
        f"claimed {WORDS[report.properties[key].claimed]}"
        for name, report in reports.items()
        for key in report.disagreements
    ]
    out.print(Text("\n".join(wrong) or "every measurement agrees with its claim"))


def _draw_one(report: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    from ropewalk.cli.scorecard import WORDS, mark

    out = console()
    config = ", ".join(f"{k}={v}" for k, v in report.config.items())
    out.print(Text(f"{report.encoding}({config})", style="bold"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("property", "holds", "claimed", "error", "tolerance", "reason"):
        table.add_column(heading, overflow="fold", no_wrap=heading != "reason")
    for key, r in report.properties.items():
        claimed, cell = WORDS[r.claimed], mark(r.holds, r.claimed)
        table.add_row(key, cell, claimed, number(r.error), number(r.tolerance), r.reason or "")
    out.print(table)
