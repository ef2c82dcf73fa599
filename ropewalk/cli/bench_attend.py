"""``ropewalk bench attend NAME``: attention with an encoding beside attention without."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ropewalk.cli.named import WHAT, made, named
from ropewalk.cli.output import FINE, NO, console, print_json
from ropewalk.cli.progress import bar
from ropewalk.cli.settings import parse


def attend(
    name: Annotated[str, typer.Argument(help=WHAT)],
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set one of its arguments."),
    ] = None,
    tokens: Annotated[list[int] | None, typer.Option(help="Repeatable; 1024 unless given.")] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(help="float32 and bfloat16 unless given; also float16, float64."),
    ] = None,
    mode: Annotated[
        list[str] | None, typer.Option(help="forward or forward+backward; both unless given.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Sequences at once.")] = 1,
    threads: Annotated[int | None, typer.Option(help="PyTorch's own number unless given.")] = None,
    rounds: Annotated[int, typer.Option(help="In which the two take turns.")] = 31,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few tokens and rounds: does it run?")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Attend causally with an encoding; exit 1 if the result is wrong anywhere.

    The time of PyTorch's fused causal attention without position is 1. Both take their turn in
    every round, and the figures are medians of ratios within a round. Heads and head_dim are those
    of the encoding, else 8 and 64.
    """
    from ropewalk.bench.attend import MODES, Plan, run
    from ropewalk.bench.cases import USUAL_DTYPES
    from ropewalk.bench.timing import LEAST_ROUNDS, Effort

    if rounds < LEAST_ROUNDS:
        raise ValueError(f"--rounds {rounds} is too few for a median; use at least {LEAST_ROUNDS}")
    plan = Plan(
        tokens=tuple(tokens or ((64,) if quick else (1024,))),
        dtypes=tuple(dtype or USUAL_DTYPES),
        modes=tuple(mode or MODES),
        batch=batch,
        threads=threads,
        effort=Effort(5, 0.05, 20e-6) if quick else Effort(rounds, 2.0),
    )
    spec = named(name)
    config = {**spec.config, **parse(setting)}
    with bar("attending") as told:
        document = run(made(spec, config), plan, told)
    document = {**document, "encoding": spec.name, "config": config}
    if as_json:
        print_json(document)
    else:
        _draw(document)
    return FINE if all(row["verdict"] == "right" for row in document["rows"]) else NO


def _draw(document: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    config = ", ".join(f"{key}={value}" for key, value in document["config"].items())
    out.print(Text(f"{document['encoding']}({config})", style="bold"))
    threads = document["threads"]
    out.print(
        Text(
            f"kernel: {document['kernel']}; torch {document['torch']}; "
            f"{threads} thread{'s' if threads > 1 else ''}"
        )
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("shape", "dtype", "mode"):
        table.add_column(heading, no_wrap=True)
    for heading in ("time ÷ plain", "ms", "plain ms", "error"):
        table.add_column(heading, justify="right")
    for row in document["rows"]:
        shape = "×".join(map(str, row["shape"]))
        table.add_row(shape, row["dtype"], row["mode"], *_cells(row), f"{row['error']:.1e}")
    out.print(table)
    out.print(Text("plain: fused causal attention without position. ~ noisy.", style="dim"))


def _cells(row: dict[str, Any]) -> list[str]:
    if row["ratio_to_plain"] is None:
        return ["wrong", "–", "–"]
    ratio = f"{row['ratio_to_plain']:.2f}{'~' if row['noisy'] else ''}"
    return [ratio, f"{row['milliseconds']:.2f}", f"{row['plain_ms']:.2f}"]
