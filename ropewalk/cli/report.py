"""``ropewalk report STORE…``: what stored races say, without training anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ropewalk.cli.output import complain, print_json
from ropewalk.cli.raced import Csv, Outputs, Page, Parquet


def report(
    stores: Annotated[
        list[Path], typer.Argument(metavar="STORE…", help="Files of records of `ropewalk race`.")
    ],
    out: Page = None,
    csv: Csv = None,
    parquet: Parquet = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Compare what stored trials found, trials that differ in encoding and seed alone together."""
    outputs = Outputs(out, csv, parquet, stores)
    outputs.check()
    from ropewalk.lab import outcome

    documents = [outcome.document(group) for group in outcome.comparable(_records(stores))]
    outputs.write(documents)
    if as_json:
        print_json({"kind": "races", "races": documents})
    else:
        outputs.draw(documents)


def _records(stores: list[Path]) -> list[dict[str, Any]]:
    """The records of all stores, by encoding and seed; of two of one trial the first is taken.

    Raises:
        ValueError: a store is missing, holds nothing or cannot be read.
    """
    from ropewalk.lab.store import Store

    found: dict[str, dict[str, Any]] = {}
    for path in stores:
        if not path.exists():
            raise ValueError(
                f"store {path} does not exist; `ropewalk race --store {path}` makes it"
            )
        own = Store(path).records()
        if not own:
            raise ValueError(f"store {path} holds no record yet")
        for key, record in own.items():
            if found.setdefault(key, record) != record:
                config = record["config"]
                complain(
                    f"{path} has other numbers for {config['encoding']} seed {config['seed']} than "
                    "a store named before it, which are the ones taken"
                )
    return sorted(found.values(), key=lambda r: (r["config"]["encoding"], r["config"]["seed"]))
