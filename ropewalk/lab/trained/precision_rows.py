"""What a measurement of low precision says: rows, contrasts between them, and all of it as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ropewalk.lab.trained.spread import Spread, apart, beyond, spread


@dataclass(frozen=True)
class Keys:
    """Keys held in ``form``, quantised ``when`` (before or after rotation), a scale ``per``."""

    form: str
    when: str
    per: str

    def __str__(self) -> str:
        return f"{self.form} {self.when} rotation, per {self.per}"


@dataclass(frozen=True)
class Tables:
    """Rotary tables made ``how``, for a passage whose first token stands at ``first``."""

    how: str
    first: int

    def __str__(self) -> str:
        return f"{self.how}, from position {self.first:,}"


Variant = Keys | Tables


@dataclass(frozen=True)
class Row:
    """One variant over passages.

    Args:
        variant: what was done.
        loss: nats a token.
        change: the same minus that of the untouched model at the same positions; of its own
            tables elsewhere, minus that at positions from 0.
        error: of keys, Σ (k' − k)² ÷ Σ k², the mean over layers; None of tables.
    """

    variant: Variant
    loss: Spread
    change: Spread
    error: Spread | None = None

    @property
    def beyond(self) -> bool:
        """Whether the change exceeds its spread over passages."""
        return beyond(self.change.values)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        error = {} if self.error is None else {"error": self.error.as_dict()}
        return {
            **asdict(self.variant),
            "loss": self.loss.as_dict(),
            "change": self.change.as_dict(),
            "beyond_spread": self.beyond,
            **error,
        }


@dataclass(frozen=True)
class Contrast:
    """The loss of ``a`` minus that of ``b``, passage by passage."""

    a: Keys
    b: Keys
    difference: Spread

    @property
    def beyond(self) -> bool:
        """Whether the difference exceeds its spread over passages."""
        return beyond(self.difference.values)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "a": str(self.a),
            "b": str(self.b),
            "difference": self.difference.as_dict(),
            "beyond_spread": self.beyond,
        }


@dataclass(frozen=True)
class Precision:
    """What was measured.

    Args:
        model: its class.
        arithmetic: dtype of its weights and of all that is not said otherwise.
        length: tokens of a passage.
        passages: their names.
        context: the model's native length, if its config says one.
        own: the untouched model's loss, by the position of the first token.
        rows: keys first.
        notes: what could not be measured, or only in part, and why.
    """

    model: str
    arithmetic: str
    length: int
    passages: tuple[str, ...]
    context: int | None
    own: Mapping[int, Spread]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def keys(self) -> dict[Keys, Row]:
        """Rows of quantised keys."""
        return {row.variant: row for row in self.rows if isinstance(row.variant, Keys)}

    @property
    def tables(self) -> dict[Tables, Row]:
        """Rows of tables made otherwise."""
        return {row.variant: row for row in self.rows if isinstance(row.variant, Tables)}

    def contrasts(self) -> list[Contrast]:
        """After rotation against before it, and a scale a token against one a channel."""
        rows = self.keys
        pairs = [
            *((v, Keys(v.form, "before", v.per)) for v in rows if v.when == "after"),
            *((v, Keys(v.form, v.when, "channel")) for v in rows if v.per == "token"),
        ]
        return [Contrast(a, b, apart(rows[a].loss.values, rows[b].loss.values)) for a, b in pairs]

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "model": self.model,
            "arithmetic": self.arithmetic,
            "length": self.length,
            "passages": list(self.passages),
            "context": self.context,
            "unit": "nats per token",
            "own": [{"first": n, "loss": loss.as_dict()} for n, loss in self.own.items()],
            "keys": [row.as_dict() for row in self.keys.values()],
            "tables": [row.as_dict() for row in self.tables.values()],
            "contrasts": [contrast.as_dict() for contrast in self.contrasts()],
            "notes": list(self.notes),
        }


def together(parts: Sequence[Precision]) -> Precision:
    """Measurements of one model on different passages as one measurement.

    Raises:
        ValueError: there are none, or they measured different things.
    """
    kinds = {(p.model, p.arithmetic, p.length, p.context, p.notes, *_names(p)) for p in parts}
    if len(kinds) != 1:
        raise ValueError(f"parts hold {len(kinds)} kinds of measurement; give some of one kind")
    first = parts[0]
    rows = [_joined(list(same)) for same in zip(*(p.rows for p in parts), strict=True)]
    return replace(
        first,
        passages=tuple(name for p in parts for name in p.passages),
        own={n: _all([p.own[n] for p in parts]) for n in first.own},
        rows=tuple(rows),
    )


def _names(part: Precision) -> list[Variant]:
    return [row.variant for row in part.rows]


def _joined(rows: list[Row]) -> Row:
    errors = [row.error for row in rows if row.error is not None]
    return replace(
        rows[0],
        loss=_all([row.loss for row in rows]),
        change=_all([row.change for row in rows]),
        error=_all(errors) if errors else None,
    )


def _all(parts: list[Spread]) -> Spread:
    return spread([value for part in parts for value in part.values])
