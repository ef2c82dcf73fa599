"""``ropewalk encodings``: the catalogue as a table."""

from __future__ import annotations

from typing import Annotated

import typer

from ropewalk.cli.output import console, print_json


def encodings(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """List every encoding: name, where it enters attention, what it is, source."""
    from ropewalk.catalog import encodings as catalogue

    specs = catalogue()
    if as_json:
        print_json(
            {
                "encodings": [
                    {
                        "name": spec.name,
                        "family": spec.family,
                        "title": spec.title,
                        "source": spec.source,
                        "config": dict(spec.config),
                        "variants": {name: dict(v.config) for name, v in spec.variants.items()},
                    }
                    for spec in specs.values()
                ]
            }
        )
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("encoding", "family", "what it is", "source"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("encoding", "family"))
    for spec in specs.values():
        table.add_row(spec.name, spec.family, spec.title, spec.source.split(",")[0])
    console().print(table)
