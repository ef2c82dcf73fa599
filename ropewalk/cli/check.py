"""``ropewalk check NAME|all``: measure what an encoding claims."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.named import FAMILY, WHAT, made, named, of_family
from ropewalk.cli.output import FINE, NO, console, number, print_json
from ropewalk.cli.progress import bar
from ropewalk.cli.settings import parse

if TYPE_CHECKING:
    from ropewalk.checks import Report

MOST_WORKERS = 8
"""Processes that measure at once; each holds PyTorch."""
LEAST_WORK = 4
"""Entries for which a process of its own is worth its start."""


def check(
    name: Annotated[str, typer.Argument(help=f"{WHAT} `all` for the whole catalogue.")],
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set one of its arguments."),
    ] = None,
    family: Annotated[str | None, typer.Option(help=f"With `all`: {FAMILY}")] = None,
    processes: Annotated[
        int | None, typer.Option(help="With `all`: how many measure at once.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Measure every property; exit 1 where a measurement contradicts a claim."""
    config = parse(setting)
    if name == "all":
        if config:
            raise ValueError("--set belongs to one encoding; name it instead of all")
        reports = _all(family, processes)
        document: Any = {key: report.as_dict() for key, report in reports.items()}
    else:
        from ropewalk import checks

        if family is not None or processes is not None:
            raise ValueError("--family and --processes belong to `check all`")
        spec = named(name)
        made(spec, {**spec.config, **config})  # what cannot be made is told before measuring
        with redirect_stdout(sys.stderr):
            report = checks.check(spec, config)
        reports, document = {name: report}, report.as_dict()
    if as_json:
        print_json(document)
    elif name == "all":
        _draw_all(reports)
    else:
        _draw_one(reports[name])
    return FINE if all(report.agrees for report in reports.values()) else NO


def _all(family: str | None, processes: int | None) -> dict[str, Report]:
    from ropewalk import checks

    names = list(of_family(family))
    workers = processes
    if workers is None:
        workers = min(_processors(), MOST_WORKERS, -(-len(names) // LEAST_WORK))
    with bar("checking") as told:
        return checks.check_all(lambda _, done, of: told(done, of), names=names, processes=workers)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _draw_all(reports: Mapping[str, Report]) -> None:
    from rich.text import Text

    from ropewalk.catalog import FAMILIES, encodings
    from ropewalk.cli.scorecard import WORDS, scorecard

    out = console()
    specs = encodings()
    cards = {
        family: {
            n: r.as_dict()["properties"] for n, r in reports.items() if specs[n].family == family
        }
        for family in FAMILIES
    }
    out.print(scorecard({family: card for family, card in cards.items() if card}))
    wrong = [
        f"{name}: {key} is {WORDS[report.properties[key].holds]}, "
        f"claimed {WORDS[report.properties[key].claimed]}"
        for name, report in reports.items()
        for key in report.disagreements
    ]
    agree = sum(report.agrees for report in reports.values())
    count = f"{agree} of {len(reports)} encodings measure as they claim"
    out.print(Text("\n".join([*wrong, count])))


def _draw_one(report: Report) -> None:
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
