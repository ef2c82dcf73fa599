"""What ``race`` and ``report`` do with what was found: files, and a table on the screen."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import typer

from ropewalk.cli.files import require_writable, write
from ropewalk.cli.output import block, console, plain

Document = Mapping[str, Any]

Page = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a self-contained HTML page.")
]
Csv = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a row for each trial and length.")
]
Parquet = Annotated[Path | None, typer.Option(metavar="FILE", help="The same rows as Parquet.")]

COLUMN = 20
"""Width of a length in the table."""


@dataclass(frozen=True)
class Outputs:
    """The files that were asked for.

    Args:
        out: the page.
        csv, parquet: the rows.
        stores: files that are read, and must be none of these.
    """

    out: Path | None
    csv: Path | None
    parquet: Path | None
    stores: Sequence[Path]

    def check(self) -> None:
        """Before the work: raise ValueError where a file cannot be written, or is another's."""
        named = [("--out", self.out), ("--csv", self.csv), ("--parquet", self.parquet)]
        asked = [(option, path) for option, path in named if path is not None]
        for option, path in asked:
            if any(_same(path, store) for store in self.stores):
                raise ValueError(f"{option} {path} is the store of records; name another file")
            require_writable(path, f"race{_ENDINGS[option]}", option)
        for (one, path), (other, second) in combinations(asked, 2):
            if _same(path, second):
                raise ValueError(f"{one} and {other} both name {path}; name two files")
        if self.parquet is not None:
            from ropewalk.report.race.tables import require_pyarrow

            require_pyarrow()

    def write(self, documents: Sequence[Document]) -> None:
        """The files.

        Raises:
            ValueError: one cannot be written any more.
        """
        from ropewalk.report.race import csv_text, parquet_bytes, render

        records = [record for document in documents for record in document["trials"]]
        if self.out is not None:
            write(self.out, render(documents))
        if self.csv is not None:
            write(self.csv, csv_text(records), "--csv")
        if self.parquet is not None:
            write(self.parquet, parquet_bytes(records), "--parquet")

    def draw(self, documents: Sequence[Document]) -> None:
        """The tables and verdicts on stdout, and where the page is."""
        for document in documents:
            _draw(document)
        if self.out is not None:
            print(plain(f"Open {self.out} in a browser."))
        else:
            print("--out race.html writes the page with figures.")


_ENDINGS = {"--out": ".html", "--csv": ".csv", "--parquet": ".parquet"}


def _same(one: Path, other: Path) -> bool:
    """Whether two paths are one file, there or not."""
    return os.path.realpath(one) == os.path.realpath(other) or (
        one.exists() and other.exists() and os.path.samefile(one, other)
    )


def _draw(document: Document) -> None:
    from rich.text import Text

    from ropewalk.report.race import words

    screen = console()
    screen.print(Text(plain(words.title(document)), style="bold"))
    screen.print(Text(plain(words.what(document))))
    names = max(len(curve["encoding"]) for curve in document["curves"])
    room = max(1, (screen.width - min(names, screen.width // 3)) // COLUMN)
    places = list(range(len(document["lengths"])))
    for start in range(0, len(places), room):
        screen.print(_table(document, places[start : start + room]))
    signs = f"{words.BEST} best median, {words.ALIKE} not distinguishable from it"
    screen.print(Text(f"{signs}; below: interval, mean rank over seeds", style="dim"))
    for text in words.verdicts(document):
        at, said = text.split(": ", 1)
        for line in block(f"{at}:", said.split(" "), screen.width, " ", "bold"):
            screen.print(line)
    for text in words.cautions(document):
        for line in block("note:", text.split(" "), screen.width, " ", "yellow"):
            screen.print(line)


def _table(document: Document, places: Sequence[int]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("encoding", overflow="fold")
    for place in places:
        table.add_column(f"at {document['lengths'][place]:,}", no_wrap=True)
    for curve in document["curves"]:
        cells = (_cell(document, curve, place) for place in places)
        table.add_row(Text(plain(curve["encoding"])), *cells)
    return table


def _cell(document: Document, curve: Mapping[str, Any], place: int) -> Any:
    """Median and sign, the best in bold; the interval and the rank below."""
    from rich.text import Text

    from ropewalk.report.race import words

    ranking, encoding = document["ranks"][place], curve["encoding"]
    median, span = words.interval(curve, place, words.worst(document))
    rank = ranking["mean_rank"].get(encoding)
    best = encoding == ranking["best"] and curve["median"][place] is not None
    alike = encoding in ranking["not_distinguishable_from_best"]
    sign = f" {words.BEST}" if best else f" {words.ALIKE}" if alike else ""
    cell = Text(f"{median}{sign}", style="bold" if best else "")
    cell.append(f"\n{span}", style="not bold dim")
    return cell if rank is None else cell.append(f"\nrank {rank:.3g}", style="not bold dim")
