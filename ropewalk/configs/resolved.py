"""What a config comes to: one record for each group of layers that behave alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from ropewalk.configs.findings.finding import Finding
from ropewalk.configs.value import Value

if TYPE_CHECKING:
    from ropewalk.spectra import Layout, Pairing, Spectrum


@dataclass(frozen=True)
class Variant:
    """Frequencies at a length beyond ``above`` tokens, given at ``at`` tokens."""

    above: int
    at: int
    inv_freq: tuple[float, ...]
    attention_factor: float

    def as_dict(self) -> dict[str, Any]:
        """As ``explain --json`` prints it."""
        return {
            "when": f"length > {self.above}",
            "at": self.at,
            "inv_freq": list(self.inv_freq),
            "attention_factor": self.attention_factor,
        }


@dataclass(frozen=True)
class LayerGroup:
    """Layers that treat position alike.

    ``inv_freq`` is in radians per position, a value a pair; ``axes`` names the axis of each pair;
    ``attention_factor`` multiplies cos and sin; ``softmax_scale_factor`` multiplies the usual
    1/√head_dim. A group with kind ``"none"`` has no position of its own. ``parameters`` are the
    keys of the scaling as rope_parameters spells them.
    """

    layers: tuple[int, ...]
    kind: str
    rope_type: str | None = None
    theta: float | None = None
    head_dim: int = 0
    rotary_dim: int = 0
    layout: str | None = None
    lane_offset: int = 0
    pairing: str = "standard"
    inv_freq: tuple[float, ...] = ()
    axes: str | None = None
    attention_factor: float = 1.0
    softmax_scale_factor: float = 1.0
    variants: tuple[Variant, ...] = ()
    label: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict, hash=False)
    details: dict[str, Any] = field(default_factory=dict, hash=False)
    provenance: dict[str, Value] = field(default_factory=dict, hash=False)

    def spectrum(self, length: int | None = None) -> Spectrum:
        """The rotation as a :class:`ropewalk.Spectrum`; ``length`` pins one that depends on it.

        Raises:
            ValueError: these layers do not rotate, or their frequencies could not be resolved.
        """
        from ropewalk.spectra import Spectrum, along

        if self.kind != "rotary" or not self.inv_freq:
            raise ValueError(
                f"layers {ranges(self.layers)} have position of kind {self.kind!r} and no "
                "frequencies; choose a layer that rotates"
            )
        if "halves" in self.details:
            raise ValueError(
                f"layers {ranges(self.layers)} rotate each half of a head by itself; that is two "
                "spectra, one for each axis: use .spectra(), and rotate with both in turn"
            )
        row, factor = self.inv_freq, self.attention_factor
        for variant in self.variants:
            if length is not None and length > variant.above:
                row, factor = variant.inv_freq, variant.attention_factor
        plain = Spectrum(
            (row,),
            self.head_dim,
            layout=cast("Layout", self.layout),
            lane_offset=self.lane_offset,
            pairing=cast("Pairing", self.pairing),
            attention_factor=factor,
        )
        return along(plain, self.axes, letters(self.axes)) if self.axes else plain

    def spectra(self, length: int | None = None) -> tuple[Spectrum, ...]:
        """The rotation as spectra to apply in turn: one, or one for each half of a head.

        Raises:
            ValueError: as :meth:`spectrum`.
        """
        if "halves" not in self.details:
            return (self.spectrum(length),)
        half, width = len(self.inv_freq) // 2, self.head_dim // 2
        axes = self.axes or ""
        halves = (
            replace(
                self,
                inv_freq=self.inv_freq[i * half : (i + 1) * half],
                axes=axes[i * half : (i + 1) * half],
                lane_offset=self.lane_offset + i * width,
                details={},
            )
            for i in (0, 1)
        )
        return tuple(group.spectrum(length) for group in halves)

    def as_dict(self) -> dict[str, Any]:
        """As ``explain --json`` prints it."""
        return {
            "layers": list(self.layers),
            "kind": self.kind,
            "rope_type": self.rope_type,
            "theta": self.theta,
            "head_dim": self.head_dim,
            "rotary_dim": self.rotary_dim,
            "layout": self.layout,
            "lane_offset": self.lane_offset,
            "pairing": self.pairing if self.kind == "rotary" else None,
            "inv_freq": list(self.inv_freq),
            "axes": self.axes,
            "attention_factor": self.attention_factor,
            "softmax_scale_factor": self.softmax_scale_factor,
            "variants": [variant.as_dict() for variant in self.variants],
            **({"label": self.label} if self.label else {}),
            **({"details": self.details} if self.details else {}),
            "provenance": {name: value.as_dict() for name, value in self.provenance.items()},
        }


@dataclass(frozen=True)
class Context:
    """Lengths: first trained, reached by the scaling, and written in the file."""

    native: int | None = None
    scaled: int | None = None
    declared: int | None = None
    stated: bool = False
    """Whether the declared length stands in the file."""
    readings: tuple[tuple[int, int], ...] = ()
    """(native, scaled) of each reading, where the file can be read in two ways."""

    def as_dict(self) -> dict[str, Any]:
        """As ``explain --json`` prints it."""
        lengths: dict[str, Any] = {
            "native": self.native,
            "scaled": self.scaled,
            "declared": self.declared,
        }
        if self.readings:
            lengths["readings"] = [{"native": n, "scaled": s} for n, s in self.readings]
        return lengths


@dataclass(frozen=True)
class Resolved:
    """A config's whole answer; parts are nested configs, such as those of text and vision."""

    model_type: str | None
    layers: tuple[LayerGroup, ...]
    context: Context
    findings: tuple[Finding, ...]
    parts: dict[str, Resolved] = field(default_factory=dict, hash=False)
    dialect: str = "transformers"

    def layer(self, index: int) -> LayerGroup:
        """The group that layer ``index`` belongs to, of the text part if there are parts.

        Raises:
            TypeError: index is not an int.
            ValueError: there is no such layer.
        """
        if isinstance(index, bool) or not isinstance(index, int):
            raise TypeError(f"layer={index!r} must be an int")
        groups = self.text().layers
        for group in groups:
            if index in group.layers:
                return group
        last = max((i for group in groups for i in group.layers), default=-1)
        raise ValueError(f"layer={index} does not exist; the config has layers 0 to {last}")

    def text(self) -> Resolved:
        """This config, or the part of it that reads text if it has no layers of its own."""
        if self.layers:
            return self
        for key in ("text_config", "llm_config", "language_config", "thinker_config", *self.parts):
            if key in self.parts and self.parts[key].text().layers:
                return self.parts[key].text()
        return self

    def everything(self) -> Iterator[tuple[str, Resolved]]:
        """(key path, part) for this config, whose path is empty, and every part below it."""
        yield "", self
        for key, part in self.parts.items():
            for path, below in part.everything():
                yield f"{key}.{path}" if path else key, below

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(f for f in self.findings if f.severity == "error")

    def as_dict(self) -> dict[str, Any]:
        """The document of ``ropewalk explain --json``."""
        document: dict[str, Any] = {
            "model_type": self.model_type,
            "dialect": self.dialect,
            "layers": [group.as_dict() for group in self.layers],
            "context": self.context.as_dict(),
            "findings": [finding.as_dict() for finding in self.findings],
        }
        if self.parts:
            document["parts"] = {key: part.as_dict() for key, part in self.parts.items()}
        return document


def letters(axes: str) -> str:
    """The letters of the axes in the order of their positions."""
    from ropewalk.spectra.sections import LETTERS

    if "P" in axes:
        return "PWHT"
    return LETTERS if "T" in axes else LETTERS[1:]


def ranges(layers: tuple[int, ...]) -> str:
    """Layer numbers in words: (0, 1, 2, 5) → ``"0–2, 5"``; an even stride as ``"3, 7, …, 35"``."""
    if len(layers) > 3:
        stride = layers[1] - layers[0]
        if stride > 1 and all(b - a == stride for a, b in pairwise(layers)):
            return f"{layers[0]}, {layers[1]}, …, {layers[-1]}"
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    words = [str(a) if a == b else f"{a}–{b}" for a, b in runs]
    return ", ".join(words[:8]) + (f", … {words[-1]}" if len(words) > 8 else "")
