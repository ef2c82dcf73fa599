"""Step 9's part on low precision: what a trained model loses on text, from the stored record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.walk.step import Figure, rounded

RECORD = "precision_smollm2"
_KEYS = ("int4_before_per_channel", "int4_after_per_channel")


def on_text(record: Mapping[str, Any] | None) -> tuple[dict[str, Figure], tuple[str, ...]]:
    """Figures and a paragraph; neither without a record."""
    if record is None:
        return {}, ()
    found = record["measured"]
    rows = {_name(row): row for row in (*found["keys"], *found["tables"])}
    figures = {
        f"nats_{name}": Figure(
            rounded(row["change"]["mean"]),
            f"nats a token more, {name.replace('_', ' ')}, {_judged(row)}",
            name in (*_KEYS, _far_angles(found)),
        )
        for name, row in rows.items()
    }
    nats = {name: f"{_signed(row)} ({_judged(row)})" for name, row in rows.items()}
    far = _far(found)
    return figures, (
        f"Loss of SmolLM2-135M on {len(found['passages'])} plays, {found['length']:,} tokens each: "
        "int4 keys with a scale a channel change it by "
        f"{nats['int4_before_per_channel']} nats a token before rotation and by "
        f"{nats['int4_after_per_channel']} after it; with a scale a token by "
        f"{nats['int4_before_per_token']} and {nats['int4_after_per_token']}. Angles in bfloat16 "
        f"change it by {nats['angles_in_bfloat16_from_0']} at positions from 0 and by "
        f"{nats[_far_angles(found)]} from {far:,}; exact phases by "
        f"{nats[f'exact_phases_from_{far}']} there.",
    )


def _name(row: Mapping[str, Any]) -> str:
    if "how" in row:
        return f"{row['how'].replace(' ', '_')}_from_{row['first']}"
    return f"{row['form']}_{row['when']}_per_{row['per']}"


def _far(found: Mapping[str, Any]) -> int:
    return max(row["first"] for row in found["tables"])


def _far_angles(found: Mapping[str, Any]) -> str:
    return f"angles_in_bfloat16_from_{_far(found)}"


def _judged(row: Mapping[str, Any]) -> str:
    return f"{'beyond' if row['beyond_spread'] else 'within'} the spread over texts"


def _signed(row: Mapping[str, Any]) -> str:
    mean = row["change"]["mean"]
    return f"{'−' if mean < 0 else '+'}{abs(mean):.2g}"
