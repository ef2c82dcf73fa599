"""What the stored record of SmolLM2-135M says of texts longer than it was trained on."""

from __future__ import annotations

from typing import Any

from ropewalk.walk.step import Figure, rounded

SHORT = 2_048
FAR = 12_288
"""Places from here on are far beyond the 8,192 tokens of training, and within the 16,384 read."""


def curves(record: dict[str, Any]) -> list[dict[str, Any]]:
    """For the drawing: a mean loss for each bucket, of the untouched model and of every method at
    the largest factor that was tried."""
    most = max(method["factor"] or 0.0 for method in record["methods"])
    return [
        {
            "method": method["name"],
            "from": bucket["from"],
            "to": bucket["to"],
            "loss": rounded(bucket["loss"]["mean"]),
        }
        for method in record["methods"]
        for bucket in method["buckets"]
        if method["factor"] in (None, most)
    ]


def figures(record: dict[str, Any]) -> dict[str, Figure]:
    """For each method: the loss at the start of a text less that of the untouched model there, and
    how it has changed far beyond the trained length, against the same tokens read alone."""
    start = {method["name"]: _mean(method, 0, SHORT) for method in record["methods"]}
    excess = {method["name"]: _mean(method, 0, SHORT, "excess") for method in record["methods"]}
    found = {}
    for method in record["methods"]:
        name = method["name"]
        key = name.replace(" ×", "_")
        rise = _mean(method, FAR, record["to"], "excess") - excess[name]
        if name != "untouched":
            found[f"{key}_short"] = Figure(
                start[name] - start["untouched"],
                f"nats that {name} costs in the first 2,048 tokens",
            )
        found[f"{key}_far"] = Figure(
            rise,
            f"nats by which the loss rises beyond {FAR:,} tokens, {name}",
            name == "untouched",
        )
    return found


def paragraph(record: dict[str, Any]) -> str:
    """What was measured, in a few sentences."""
    value = {key: figure.value for key, figure in figures(record).items()}
    return (
        f"Longer texts: SmolLM2-135M, trained to {record['native']:,} tokens, reads plays of "
        f"{record['to']:,}. Untouched, its loss rises by {value['untouched_far']:.1f} nats beyond "
        f"{FAR:,} (against the same tokens read alone). With YaRN ×4 it stays flat "
        f"({_signed(value['yarn_4_far'])} there against its own start), for "
        f"{value['yarn_4_short']:.2f} nats on short text; linear interpolation ×4 without tuning "
        f"costs {value['linear_4_short']:.1f} on short text."
    )


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _mean(method: dict[str, Any], start: int, stop: int, what: str = "loss") -> float:
    losses = [
        bucket[what]["mean"]
        for bucket in method["buckets"]
        if start <= bucket["from"] and bucket["to"] <= stop
    ]
    return sum(losses) / len(losses)
