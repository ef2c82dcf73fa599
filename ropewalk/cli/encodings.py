"""``ropewalk encodings``: the catalogue as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.named import FAMILY, of_family
from ropewalk.cli.output import console, print_json

if TYPE_CHECKING:
    from ropewalk.catalog import Spec


def encodings(
    family: Annotated[str | None, typer.Option(help=FAMILY)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """List every encoding by family: name, what it is, source."""
    from ropewalk import plugins

    specs = of_family(family)
    if as_json:
        entries = [_entry(spec) for spec in specs.values()]
        print_json({"encodings": entries, "broken": dict(plugins.broken())})
        return
    from rich.table import Table

    from ropewalk.catalog import FAMILIES

    out = console()
    for name, words in FAMILIES.items():
        rows = [spec for spec in specs.values() if spec.family == name]
        if not rows:
            continue
        table = Table(box=None, pad_edge=False, show_header=False, title_justify="left")
        table.title = f"{name}: {words} ({len(rows)})"
        for column in ("encoding", "what it is", "source"):
            table.add_column(column, overflow="fold", no_wrap=column == "encoding")
        for spec in rows:
            table.add_row(spec.name, spec.title, spec.source.split(",")[0])
        out.print(table)


def _entry(spec: Spec) -> dict[str, Any]:
    from ropewalk.catalog import PROPERTIES

    return {
        "name": spec.name,
        "family": spec.family,
        "title": spec.title,
        "source": spec.source,
        "config": dict(spec.config),
        "variants": {name: dict(v.config) for name, v in spec.variants.items()},
        "equation": spec.equation,
        "claims": {key: spec.claim(key, spec.config) for key in PROPERTIES},
        "module": spec.factory.__module__,
    }
