"""Step: what one stage of the walk measured and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from ropewalk.report.page import STEPS as NAMES

__all__ = ["NAMES", "Evidence", "Figure", "Step", "order", "rounded"]

Evidence = Literal["proved", "measured", "literature"]


@dataclass(frozen=True)
class Figure:
    """One number with the words that say what it is; the page shows headlines only."""

    value: float
    label: str
    headline: bool = True


@dataclass(frozen=True)
class Step:
    """One stage of the walk.

    ``figures`` are the headline numbers, ``evidence`` the kind of ground the verdict stands on,
    ``drawing`` plain lists that the page draws.
    """

    name: str
    title: str
    question: str
    verdict: str
    evidence: Evidence
    figures: Mapping[str, Figure]
    paragraphs: tuple[str, ...] = ()
    equations: tuple[str, ...] = ()
    drawing: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    """Further lines for the terminal, which has no drawing."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form of the fixed surface: name, figures, verdict, evidence."""
        return {
            "name": self.name,
            "figures": {name: figure.value for name, figure in self.figures.items()},
            "verdict": self.verdict,
            "evidence": self.evidence,
        }

    def as_page(self) -> dict[str, Any]:
        """All that the page shows of this step."""
        shown = {name: figure for name, figure in self.figures.items() if figure.headline}
        return {
            **self.as_dict(),
            "figures": {name: figure.value for name, figure in shown.items()},
            "title": self.title,
            "question": self.question,
            "labels": {name: figure.label for name, figure in shown.items()},
            "paragraphs": list(self.paragraphs),
            "equations": list(self.equations),
            "drawing": dict(self.drawing),
        }


def order(value: float) -> str:
    """A small number by its order of magnitude, such as ``4e-16``; 0 is ``0``."""
    return f"{value:.0e}" if value else "0"


def rounded(value: Tensor | float, digits: int = 5) -> Any:
    """Numbers for the page at ``digits`` significant digits, as nested lists or one float."""
    if isinstance(value, Tensor):
        return [rounded(item, digits) for item in value] if value.dim() else rounded(value.item())
    if not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")
