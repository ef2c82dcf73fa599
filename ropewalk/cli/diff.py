"""``ropewalk diff A B``: do two configs do the same with position?"""

from __future__ import annotations

from typing import Annotated

import typer

from ropewalk.cli.explain import CONFIG_HELP
from ropewalk.cli.explained import plain
from ropewalk.cli.output import FINE, NO, console, print_json


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
        words = "; ".join(row.reasons) or "the same"
        line = f"layers {ranges(row.layers)}: {words}"
        if row.first_positions:
            passed = ", ".join(
                f"{rad:g} rad at position {'–' if at is None else f'{at:,}'}"
                for rad, at in row.first_positions.items()
            )
            line += f"; phases differ by more than {passed}"
        if row.notes:
            line += f" (note: {'; '.join(row.notes)})"
        out.print(Text(plain(line)))
    for note in found.notes:
        out.print(Text(plain(note), style="dim"))
    return FINE if found.same else NO
