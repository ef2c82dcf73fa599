"""A plan for a longer context: the smallest scaling that reaches it, and what it changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ropewalk.configs.emit import emit
from ropewalk.configs.parameter import LARGEST_FACTOR
from ropewalk.configs.resolve import resolve
from ropewalk.configs.resolved import LayerGroup, Resolved
from ropewalk.configs.types import ORIGINAL

METHODS = ("yarn", "ntk", "linear", "dynamic", "longrope")
DISTANCES = (16, 128, 1024)
MOVED = 0.1
"""Radians; pairs whose phase changes by more are counted."""

LONGEST = 1 << 30
WRITTEN = ("rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings")


class Unsuited(ValueError):
    """This config cannot be lengthened by this method; by another it may be."""


@dataclass(frozen=True)
class Plan:
    """What to change, and what follows from it.

    ``before`` and ``after`` are resolved configs; ``config`` has the changed keys in both spellings
    of transformers where both can say it.
    """

    method: str
    native: int
    to: int
    factor: float
    config: dict[str, Any]
    before: Resolved
    after: Resolved
    warnings: tuple[str, ...]

    def groups(self) -> list[tuple[LayerGroup, LayerGroup]]:
        """(before, after) for each group of layers that rotates."""
        return [
            (group, self.after.layer(group.layers[0]))
            for group in self.before.text().layers
            if group.kind == "rotary"
        ]

    def equivalents(self) -> dict[str, float]:
        """The same stretch as other programs state it."""
        group = max((g for g, _ in self.groups()), key=lambda g: g.theta or 0)
        dim = group.rotary_dim
        stretched = float(group.theta or 1) * self.factor ** (dim / (dim - 2)) if dim > 2 else None
        found = {"factor": self.factor, "freq_scale": 1 / self.factor, "alpha": self.factor}
        return {**found, "theta": stretched} if stretched is not None else found

    def changed(self) -> dict[str, Any]:
        """The keys of the config that the plan writes."""
        return {key: self.config[key] for key in WRITTEN if key in self.config}

    def as_dict(self) -> dict[str, Any]:
        """As ``extend --json`` prints it."""
        return {
            "method": self.method,
            "native": self.native,
            "to": self.to,
            "factor": self.factor,
            "config": self.config,
            "equivalents": self.equivalents(),
            "layers": [self._layers(a, b) for a, b in self.groups()],
            "warnings": list(self.warnings),
        }

    def _layers(self, before: LayerGroup, after: LayerGroup) -> dict[str, Any]:
        ahead = frequencies_at(after, self.to)
        now = frequencies_at(before, self.to)
        return {
            "layers": list(before.layers),
            "label": before.label,
            "pairs": [
                {
                    "pair": c,
                    "wavelength_before": wavelength(a),
                    "wavelength_after": wavelength(b),
                    "turns_in_native": self.native * a / (2 * math.pi),
                }
                for c, (a, b) in enumerate(zip(now, ahead, strict=True))
            ],
            "pairs_below_one_turn": sum(self.native * f < 2 * math.pi for f in now),
            "attention_factor": {
                "before": before.attention_factor,
                "after": after.attention_factor,
            },
            "short_text": self.short_text(before, after),
        }

    def short_text(self, before: LayerGroup, after: LayerGroup) -> list[dict[str, Any]]:
        """How phases between tokens change, by distance, in texts within the native length."""
        rows = []
        for distance in sorted({*DISTANCES, self.native}):
            apart = [
                distance * abs(a - b) for a, b in zip(before.inv_freq, after.inv_freq, strict=True)
            ]
            rows.append(
                {
                    "distance": distance,
                    "largest": max(apart, default=0.0),
                    "pairs_moved": sum(value > MOVED for value in apart),
                }
            )
        return rows


def wavelength(frequency: float) -> float | None:
    """Tokens for a whole turn; None for a pair that stands."""
    return 2 * math.pi / frequency if frequency else None


def frequencies_at(group: LayerGroup, length: int) -> tuple[float, ...]:
    """The frequencies of a group at a length."""
    row = group.inv_freq
    for variant in group.variants:
        if length > variant.above:
            row = variant.inv_freq
    return row


def extend(
    resolved: Resolved,
    to: int,
    method: str = "yarn",
    *,
    native: int | None = None,
    factor: float | None = None,
) -> Plan:
    """The plan that lets a model read ``to`` tokens.

    The factor is the smallest that suffices, to ÷ native, unless one is given. Layers with a window
    of their own (sliding_attention beside full_attention) stay as they are.

    Args:
        resolved: from :func:`ropewalk.configs.resolve`.
        to: tokens, at least 1.
        method: ``"yarn"``, ``"ntk"`` (a larger theta), ``"linear"``, ``"dynamic"``, or
            ``"longrope"`` for a config that has its lists.
        native: the trained length, if the config does not state the right one.
        factor: by how much to stretch, from 1 to ``LARGEST_FACTOR``; a larger one than needed costs
            short text more.

    Raises:
        TypeError: to or native is not an int, or factor is no number.
        ValueError: unknown method, no native length, an error in the config, or a stretch that no
            config can state; :class:`Unsuited` if the method is not for this config.
    """
    for name, value in (("to", to), ("native", native)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(f"{name}={value!r} must be an int")
        if value is not None and not 1 <= value <= LONGEST:
            raise ValueError(f"{name}={value} must be from 1 to {LONGEST}")
    if method not in METHODS:
        raise ValueError(f"method={method!r} is unknown; use one of {', '.join(METHODS)}")
    if factor is not None:
        factor = _given(factor)
    text = replace(resolved.text(), findings=resolved.findings)
    trained = native or text.context.native
    if trained is None:
        raise ValueError("the config states no native length; give native= (--native N)")
    current = emit(text, "transformers5")
    needed = max(1.0, to / trained)
    if needed > LARGEST_FACTOR:
        raise ValueError(
            f"to={to} is {needed:,.0f} times the native {trained} tokens; a config states a "
            f"factor of at most {LARGEST_FACTOR}"
        )
    factor = needed if factor is None else factor
    wide = [g for g in text.layers if g.kind == "rotary" and _stretches(text, g)]
    warnings = _warnings(text, wide, trained, to, method)
    if factor < needed:
        warnings.append(f"a factor of {factor:g} reaches {int(factor * trained)} of {to} tokens")
    config = _changed(current, wide, trained, to, factor, method)
    after = _read_back(config, method, factor)
    try:
        written = emit(after, "transformers")
    except ValueError:
        written = config
    return Plan(method, trained, to, factor, written, text, after, tuple(warnings))


def _read_back(config: dict[str, Any], method: str, factor: float) -> Resolved:
    """The changed config resolved; nothing of the plan may be left out as an error."""
    after = resolve(config)
    if after.errors:
        first = after.errors[0]
        raise Unsuited(
            f"{method} ×{factor:g} cannot be stated in this config: {first.code}, {first.message}"
        )
    return after


def _given(factor: object) -> float:
    if isinstance(factor, bool) or not isinstance(factor, (int, float)):
        raise TypeError(f"factor={factor!r} must be a number")
    if not 1 <= factor <= LARGEST_FACTOR:
        raise ValueError(f"factor={factor!r} must be from 1 to {LARGEST_FACTOR}")
    return float(factor)


def _stretches(text: Resolved, group: LayerGroup) -> bool:
    """Whether a group looks further than a window of its own."""
    labels = {g.label for g in text.layers if g.kind == "rotary"}
    return group.label != "sliding_attention" or "full_attention" not in labels


def _changed(
    current: dict[str, Any],
    wide: list[LayerGroup],
    trained: int,
    to: int,
    factor: float,
    method: str,
) -> dict[str, Any]:
    block = current["rope_parameters"]
    nested = any(isinstance(v, dict) for v in block.values())
    sets = block if nested else {"": block}
    changed = dict(sets)
    for group in wide:
        label = (group.label or "") if nested else ""
        changed[label] = _block(sets[label], group, trained, factor, method)
    declared = trained if method == "dynamic" else max(to, math.ceil(trained * factor))
    return {
        **current,
        "rope_parameters": changed if nested else changed[""],
        "max_position_embeddings": declared,
    }


def _block(
    given: dict[str, Any], group: LayerGroup, trained: int, factor: float, method: str
) -> dict[str, Any]:
    kept = {
        key: given[key]
        for key in ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
        if key in given
    }
    if factor == 1.0:
        return given
    if method == "longrope":
        if group.rope_type != "longrope":
            raise Unsuited(
                "longrope needs a short_factor and a long_factor list that were searched for this "
                "model; use yarn, or a config that has them"
            )
        return {**given, ORIGINAL: trained, "factor": factor}
    if method == "ntk":
        dim = group.rotary_dim
        if dim < 4:
            raise Unsuited(f"ntk needs at least 4 rotated lanes, these layers have {dim}")
        theta = float(group.theta or 1.0) * factor ** (dim / (dim - 2))
        return {**kept, "rope_type": "default", "rope_theta": theta}
    if method == "yarn":
        own = {**kept, "rope_type": "yarn", "factor": factor, ORIGINAL: trained}
        if group.rope_type == "yarn":
            names = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")
            own |= {key: given[key] for key in names if key in given}
        return own
    own = {**kept, "rope_type": method, "factor": factor}
    return {**own, ORIGINAL: trained} if method == "linear" else own


def _warnings(
    text: Resolved, wide: list[LayerGroup], trained: int, to: int, method: str
) -> list[str]:
    told = []
    reach = text.context.scaled or text.context.declared
    if to <= trained:
        told.append(f"{to} tokens are within the native {trained}: nothing to change")
    elif reach is not None and to <= reach and any(g.rope_type != "default" for g in wide):
        told.append(f"the config already reaches {reach} tokens: nothing needs to change")
    for kind in sorted({str(g.rope_type) for g in wide} - {"default", method}):
        told.append(
            f"these layers are scaled already ({kind}): {method} replaces it, over the original "
            f"{trained}, and what the model learned with {kind} is lost"
        )
    if any(g.rope_type == "proportional" for g in wide):
        told.append("pairs that stand stay so only with rope_type proportional")
    if method in ("yarn", "linear", "ntk") and to > trained:
        told.append(f"{method} changes short text too: use it only where texts exceed {trained}")
    if method == "dynamic":
        told.append("dynamic depends on the length: pin one for a whole cache; vLLM uses one theta")
    if method == "linear" and to > trained:
        told.append("linear needs fine-tuning; without it texts of every length get worse")
    if to > 8 * trained:
        told.append(f"a factor of {to / trained:g} is rarely good without fine-tuning")
    return told
