"""Findings: what a config says that its reader should know, with stable codes."""

from ropewalk.configs.findings import (
    behaviour,
    lanes,
    layers,
    lengths,
    magnitude,
    numbers,
    spelling,
)
from ropewalk.configs.findings.finding import Finding, Kind, Notes, Severity

ALL: tuple[Kind, ...] = (
    *spelling.KINDS,
    *numbers.KINDS,
    *lengths.KINDS,
    *lanes.KINDS,
    *layers.KINDS,
    *magnitude.KINDS,
    *behaviour.KINDS,
)
"""Every kind of finding, by code."""

__all__ = [
    "ALL",
    "Finding",
    "Kind",
    "Notes",
    "Severity",
    "behaviour",
    "lanes",
    "layers",
    "lengths",
    "magnitude",
    "numbers",
    "spelling",
]
