"""``ropewalk walk [TEXT]``: the story of positional encodings, measured on real embeddings."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ropewalk.cli.files import require_writable, write
from ropewalk.cli.output import FINE, NO, console, print_json

DEFAULT_TEXT = "The dog chased another dog"


def walk(
    text: Annotated[str, typer.Argument(help="A sentence; best with a repeated word.")] = (
        DEFAULT_TEXT
    ),
    model: Annotated[
        str | None,
        typer.Option(
            help="Whose embeddings: a local folder, `smollm2` (the packaged model) or a hub id. "
            "Without it, the words of SmolLM2-135M that ship with ropewalk."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the page, one self-contained HTML file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Walk from two equal tokens to rotation along n axes: measured, step by step."""
    if out is not None:
        require_writable(out, "walk.html")
    from ropewalk.walk.journey import walk as run

    with _progress(quiet=as_json) as tell:
        found = run(text, model, on_step=tell)
    if out is not None:
        from ropewalk.report.page import render_walk

        write(out, render_walk(found.as_page()))
    if as_json:
        print_json(found.as_dict())
    else:
        _draw(found, out)
    agree = all(
        cell["claimed"] is None or cell["claimed"] == cell["holds"]
        for row in found.scorecard.values()
        for cell in row.values()
    )
    return FINE if agree else NO


class _progress:
    """A spinner with the name of the stage on stderr, where a person watches."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console

        err = Console(stderr=True)
        self._status = err.status("walking") if err.is_terminal and not quiet else None

    def __enter__(self):
        if self._status is None:
            return None
        status = self._status
        status.start()
        return lambda name: status.update(f"walking: {name}")

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()


def _draw(found: Any, out: Path | None) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from ropewalk.cli.scorecard import scorecard

    screen = console()
    tokens = " ".join(f"[{token}]" for token in found.embedded.tokens)
    screen.print(Text(f"ropewalk walk — {tokens}", style="bold"))
    screen.print(Text(found.embedded.source, style="dim"))
    for place, step in enumerate(found.steps, 1):
        head = Text(f"\n{place}  {step.title}", style="bold")
        head.append(f"  [{step.evidence}]", style="dim")
        screen.print(head)
        screen.print(Padding(Text(step.question, style="italic"), (0, 0, 0, 3), expand=False))
        screen.print(Padding(Text(step.verdict), (0, 0, 0, 3), expand=False))
        for remark in step.remarks:
            screen.print(Padding(Text(remark, style="dim"), (0, 0, 0, 3), expand=False))
    screen.print(Text("\nScorecard", style="bold"))
    screen.print(scorecard({"": found.scorecard}))
    if found.race:
        screen.print(Text(f"\n{_race_title(found.race)}", style="bold"))
        screen.print(_race(found.race))
        screen.print(Text(_race_words(found.race)))
    screen.print(Text("\n" + _what_next(out)))


def _race_title(race: Any) -> str:
    return (
        f"A small model of Shakespeare, trained at {race['train_length']} characters, read further"
    )


def _race_words(race: Any) -> str:
    at = {curve["encoding"]: curve["median"] for curve in race["curves"]}
    best = [min(at, key=lambda name, i=i: at[name][i]) for i in (0, -1)]
    return (
        f"{race['unit']}, lower is better; median (lowest–highest) of {race['seeds']} seeds. "
        f"Best at the trained length: {best[0]}; at {race['lengths'][-1]:,}: {best[1]}. "
        "Lengthening a rotary model takes a scaling of its frequencies."
    )


def _what_next(out: Path | None) -> str:
    page = f"Open {out} in a browser." if out else "--out walk.html writes the page with figures."
    here = Path(sys.argv[0]) if sys.argv else Path("ropewalk")
    command = here if here.name == "ropewalk" and shutil.which("ropewalk") is None else "ropewalk"
    return f"{page} Next: {command} show rope; {command} check rope"


def _race(race: Any) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("encoding", no_wrap=True)
    for length in race["lengths"]:
        table.add_column(f"{length:,}", no_wrap=True)
    for curve in race["curves"]:
        spans = zip(curve["median"], curve["low"], curve["high"], strict=True)
        table.add_row(curve["encoding"], *(f"{m:.2f} ({lo:.2f}–{hi:.2f})" for m, lo, hi in spans))
    return table
