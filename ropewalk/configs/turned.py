"""What a set of rope parameters comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ropewalk.configs.resolved import Variant
from ropewalk.configs.value import ASSUMED, Value
from ropewalk.spectra import Spectrum


@dataclass
class Rotation:
    """What a set of parameters comes to."""

    kind: Value
    spectrum: Spectrum | None
    plain: Spectrum | None
    softmax: Value = field(default_factory=lambda: Value(1.0, ASSUMED))
    attention: Value = field(default_factory=lambda: Value(1.0, ASSUMED))
    variants: tuple[Variant, ...] = ()
    original: Value | None = None
    factor: Value | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def unscale(self) -> None:
        """Take back what the scaling did."""
        self.kind = Value("default", self.kind.source)
        self.spectrum, self.variants = self.plain, ()
        self.factor = self.original = None
        self.softmax = self.attention = Value(1.0, ASSUMED)
