"""Findings by layer, told once for all layers that have the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ropewalk.configs.findings.finding import Kind
from ropewalk.configs.resolved import ranges
from ropewalk.models.auditing.report import Check


class Notebook:
    """Collects findings of single layers and writes them into a check."""

    def __init__(self) -> None:
        self._found: dict[tuple[Kind, tuple[tuple[str, Any], ...]], list[int]] = {}

    @property
    def layers(self) -> set[int]:
        """The layers with a finding."""
        return {layer for layers in self._found.values() for layer in layers}

    def add(self, kind: Kind, layer: int, **values: Any) -> None:
        """A finding in one layer; of each kind the first."""
        if any(own is kind and layer in layers for (own, _), layers in self._found.items()):
            return
        self._found.setdefault((kind, tuple(values.items())), []).append(layer)

    def write(self, check: Check, worded: Callable[[str], str] = str) -> None:
        """Each finding, at the layers that have it."""
        for (kind, values), layers in self._found.items():
            label = "layer" if len(layers) == 1 else "layers"
            where = worded(f"{label} {ranges(tuple(sorted(layers)))}")
            check.find(kind, where, **dict(values))
