"""Figures of encodings as SVG: what is drawn, how, and whether two of them are the same."""

from __future__ import annotations

from ropewalk.report.figures.compare import same
from ropewalk.report.figures.panels import Figure, Heat, Lines
from ropewalk.report.figures.portrait import figure
from ropewalk.report.figures.svg import svg

__all__ = ["Figure", "Heat", "Lines", "figure", "same", "svg"]
