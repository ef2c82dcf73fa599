"""The table of encodings against properties, shared by ``walk`` and ``check all``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WORDS = {True: "yes", False: "no", None: "–"}


def mark(holds: bool | None, claimed: bool | None) -> str:
    """Yes, no or not applicable; ``!`` where measurement and claim differ."""
    return WORDS[holds] + ("!" if claimed is not None and claimed != holds else "")


Card = Mapping[str, Mapping[str, Mapping[str, Any]]]


def scorecard(cards: Mapping[str, Card]) -> Any:
    """A rich table with a row an encoding; ``cards[group][encoding][property]`` says what holds.

    The name of a group stands above its rows; "" has none.
    """
    from rich.table import Table

    rows = [row for card in cards.values() for row in card.values()]
    properties = [key for key in rows[0] if any(_says_something(row[key]) for row in rows)]
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
        caption="columns: " + ", ".join(properties) + "; – does not apply, or no record",
        caption_justify="left",
    )
    table.add_column("encoding", no_wrap=True)
    for key in properties:
        table.add_column(key[:4], no_wrap=True)
    for group, card in cards.items():
        if group:
            table.add_row(group, style="italic")
        for name, row in card.items():
            marks = (mark(row[key]["holds"], row[key]["claimed"]) for key in properties)
            table.add_row(name, *marks)
    return table


def _says_something(cell: Mapping[str, Any]) -> bool:
    return cell["holds"] is not None or cell["error"] is not None
