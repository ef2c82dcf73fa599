"""``ropewalk audit MODEL``: does a model that runs do what its config says about position?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.cli.explained import HEADINGS, told
from ropewalk.cli.output import FINE, NO, console, plain, print_json
from ropewalk.cli.settings import whole_numbers

if TYPE_CHECKING:
    from rich.table import Table

    from ropewalk.models import Audit

MARKS = {"passed": ("passed", "green"), "failed": ("failed", "bold red"), "skipped": ("–", "dim")}


def audit(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A local folder with safetensors, a GGUF file, or `smollm2` (the packaged model).",
        ),
    ],
    dtype: Annotated[
        str,
        typer.Option(
            "--dtype",
            metavar="DTYPE",
            help="Of the weights: float32 sees most; bfloat16, float16, float64, or auto.",
        ),
    ] = "float32",
    lengths: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            metavar="N,N",
            help="Tokens to run in full, however long it takes; else around the original length.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only tables and rotations, no results.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Compare a running model with its config: frequencies, lanes and layers that rotate, caching,
    padding, packing, batches, lengths. Loads local files only, and no code from them. Exit status 1
    if a finding is an error."""
    chosen = None if lengths is None else whole_numbers(lengths, "--lengths", "4096,8192")
    from ropewalk.cli.progress import bar
    from ropewalk.configs.packaged import located
    from ropewalk.models.auditing import audit as run
    from ropewalk.models.loading import hushed, load

    path = located(model)
    with hushed(), bar("audit") as progress:
        loaded = load(path, dtype)
        found = run(loaded, source=path, quick=quick, lengths=chosen, progress=progress)
    if as_json:
        print_json({"source": model, **found.as_dict()})
    else:
        _draw(found, model)
    return NO if found.errors else FINE


def _draw(found: Audit, source: str) -> None:
    from rich.text import Text

    from ropewalk.report.named import named

    out = console()
    name = plain(named(source, found.model))
    out.print(Text(f"{name} in {found.dtype}", style="bold"))
    out.print(_table(found))
    if not found.findings:
        out.print(Text("nothing to fix", style="green"))
    for severity, heading in HEADINGS.items():
        own = [f for f in found.findings if f.severity == severity]
        for line in [Text(heading, style="bold")] if own else []:
            out.print(line)
        for finding in own:
            for line in told(finding, out.width):
                out.print(line)


def _table(found: Audit) -> Table:
    from rich.table import Table
    from rich.text import Text

    from ropewalk.models.auditing.report import figure_words

    table = Table(box=None, show_header=False, pad_edge=False)
    for check in found.checks:
        mark, style = MARKS[check.status]
        words = check.reason or figure_words(check.figures)
        table.add_row(Text(mark, style=style), check.name, Text(plain(words), style="dim"))
    return table
