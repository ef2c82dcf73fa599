"""``ropewalk precision MODEL``: what keys in few bits and narrow tables cost on text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.cli.output import block, console, number, plain, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from ropewalk.lab.trained.precision_rows import Precision, Row


def precision(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A local folder with safetensors, a GGUF file, or `smollm2` (the packaged model).",
        ),
    ],
    length: Annotated[
        int, typer.Option("--length", metavar="N", min=2, help="Tokens of a passage.")
    ] = 2048,
    texts: Annotated[
        int, typer.Option("--texts", metavar="N", min=1, help="Passages, of the packaged plays.")
    ] = 3,
    text: Annotated[
        list[Path] | None,
        typer.Option("--text", metavar="FILE", help="Own text in their place; may be repeated."),
    ] = None,
    formats: Annotated[
        str,
        typer.Option("--formats", metavar="F,F", help="Of keys: int8, int4, e4m3, e5m2."),
    ] = "int8,int4,e4m3",
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with a figure.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Measure loss on text with keys held in few bits, quantised before and after rotation, a scale
    a channel or a token; and with rotary tables that are exact, or bfloat16 at some point, near by
    and at the end of the context. Float32 arithmetic. Loads local files only, and no code from
    them."""
    from ropewalk.cli.files import require_writable, write
    from ropewalk.cli.progress import bar
    from ropewalk.configs.packaged import located
    from ropewalk.lab.trained.passages import passages
    from ropewalk.lab.trained.precision import measure
    from ropewalk.lab.trained.quantised import formats_of
    from ropewalk.models.loading import hushed, load, load_tokenizer

    if html is not None:
        require_writable(html, "precision.html", "--html")
    forms, path = formats_of(formats.split(",")), located(model)
    read = passages(load_tokenizer(path), length, count=texts, files=text or ())
    loaded = load(path)
    with hushed(), bar("layers") as progress:
        found = measure(loaded, read, forms=forms, told=progress)
    if html is not None:
        from ropewalk.report.precision import page

        write(html, page(found, model), "--html")
    if as_json:
        print_json({"source": model, **found.as_dict()})
    else:
        _draw(found, model)


def _draw(found: Precision, source: str) -> None:
    from rich.text import Text

    from ropewalk.report.named import named
    from ropewalk.report.precision_words import contrasts, judged

    out = console()
    count = len(found.passages)
    name = plain(named(source, found.model))
    title = f"{name}: {count} × {found.length:,} tokens, {found.arithmetic}"
    out.print(Text(title, style="bold"))
    out.print(_keys(found))
    if found.tables:
        out.print(_tables(found))
    for heading, each in contrasts(found).items():
        for line in block(heading, each, out.width):
            out.print(line)
    out.print(Text(judged(found), style="dim"))
    for note in found.notes:
        for line in block("note", note.split(" "), out.width, " ", "yellow"):
            out.print(line)


def _keys(found: Precision) -> Table:
    table = _empty("keys", "rotation", "a scale per", "error of keys")
    table.add_row("untouched", "", "", "", number(found.own[0].mean), "")
    for variant, row in found.keys.items():
        error = "" if row.error is None else number(row.error.mean)
        table.add_row(variant.form, variant.when, variant.per, error, *_loss(row))
    return table


def _tables(found: Precision) -> Table:
    table = _empty("tables", "positions from")
    for variant, row in found.tables.items():
        table.add_row(variant.how, f"{variant.first:,}", *_loss(row))
    return table


def _empty(*heads: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head)
    for head in ("nats", "change"):
        table.add_column(head, justify="right")
    return table


def _loss(row: Row) -> tuple[str, str]:
    from ropewalk.report.precision_words import change

    return number(row.loss.mean), change(row.change, row.beyond)
