"""What the config says of every layer: which lanes of a key turn, and how fast."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ropewalk.configs import LayerGroup, Resolved
from ropewalk.configs.value import ASSUMED
from ropewalk.models.cached_form import as_cached, require_own_layers
from ropewalk.spectra import Spectrum


@dataclass(frozen=True)
class Expected:
    """A layer's rotation by its config.

    group       what explain says of it
    cached      the same, of keys as a cache keeps them; None where that is not known
    reason      why it is not known
    """

    layer: int
    group: LayerGroup
    cached: LayerGroup | None
    reason: str | None = None

    @property
    def rotates(self) -> bool:
        """Whether the layer turns its keys at all."""
        return self.group.kind == "rotary" and bool(self.group.inv_freq)

    @property
    def sign(self) -> int:
        """1, or −1 for models that turn the other way."""
        return -1 if self.cached is not None and self.cached.inv_freq[:1] < (0.0,) else 1

    @property
    def switches(self) -> tuple[int, ...]:
        """The lengths beyond which the frequencies are others."""
        return tuple(variant.above for variant in self.group.variants)

    def spectra(self, length: int | None = None) -> tuple[Spectrum, ...]:
        """What turns a cached key by its position, without the factor that all keys have alike."""
        assert self.cached is not None
        return tuple(
            replace(spectrum, attention_factor=1.0) for spectrum in self.cached.spectra(length)
        )


def assumed(group: LayerGroup) -> bool:
    """Whether nothing says how the lanes of these layers pair."""
    value = group.provenance.get("layout")
    return value is not None and value.source == ASSUMED


def expected_layers(resolved: Resolved) -> list[Expected]:
    """What the text part of a config says of each of its layers, in order."""
    text = resolved.text()
    described = sum(len(group.layers) for group in text.layers)
    try:
        require_own_layers("the model", text.model_type, described, described)
        others = None
    except ValueError as error:
        others = str(error).split("; give", 1)[0]
    found = []
    for group in text.layers:
        cached, reason = None, others
        if group.kind == "rotary" and group.inv_freq and others is None:
            try:
                cached = as_cached(group, text.model_type)
            except ValueError as error:
                reason = str(error).split("; give", 1)[0]
        found += [Expected(layer, group, cached, reason) for layer in group.layers]
    return sorted(found, key=lambda e: e.layer)
