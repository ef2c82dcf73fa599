"""``ropewalk diff A B``: do two configs do the same with position?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.cli.explain import CONFIG_HELP
from ropewalk.cli.output import FINE, NO, block, console, print_json

if TYPE_CHECKING:
    from ropewalk.configs.diff import LayerDifference


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help=CONFIG_HELP)],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Compare two configs layer by layer, in frequencies and not in spelling. Exit status 1 if they
    differ."""
    from ropewalk.configs import resolve
    from ropewalk.configs.diff import diff as compare
    from ropewalk.configs.resolved import ranges

    if first == second == "-":
        raise ValueError("A and B are both standard input; name a file for one of them")
    found = compare(resolve(first), resolve(second))
    if as_json:
        print_json(found.as_dict())
        return FINE if found.same else NO
    from rich.text import Text

    out = console()
    out.print(Text("the same" if found.same else "not the same", style="bold"))
    for row in found.layers:
        for line in block(f"layers {ranges(row.layers)}", _words(row), out.width):
            out.print(line)
    for note in found.notes:
        for line in block("note", note.split(" "), out.width, " ", "dim"):
            out.print(line)
    return FINE if found.same else NO


def _words(row: LayerDifference) -> list[str]:
    """What differs in some layers, and where their phases part."""
    words = list(row.reasons) or ["the same"]
    if row.first_positions:
        passed = ", ".join(
            f"{rad:g} rad at position {'–' if at is None else f'{at:,}'}"
            for rad, at in row.first_positions.items()
        )
        words.append(f"phases differ by more than {passed}")
    return [*words, *(f"note: {note}" for note in row.notes)]
