"""Every property of an encoding in one report, beside what the catalogue claims."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ropewalk import catalog
from ropewalk.catalog import PROPERTIES, RECORDED, Spec
from ropewalk.checks.axes import axes_error
from ropewalk.checks.bounded import bounded_error
from ropewalk.checks.content import seeded
from ropewalk.checks.decay import decay_error
from ropewalk.checks.deterministic import deterministic_error
from ropewalk.checks.extends import extends_error
from ropewalk.checks.generalises import generalises_error
from ropewalk.checks.learnable import learnable_error
from ropewalk.checks.linear import linear_error
from ropewalk.checks.measurement import Measurement
from ropewalk.checks.norm import norm_error
from ropewalk.checks.precision import precision_error
from ropewalk.checks.process import fingerprints
from ropewalk.checks.reach import pristine, reach
from ropewalk.checks.relative import relative_error
from ropewalk.checks.unique import unique_error
from ropewalk.core import Encoding

MEASURES: dict[str, Callable[..., Measurement]] = {
    "unique": unique_error,
    "linear": linear_error,
    "relative": relative_error,
    "norm": norm_error,
    "bounded": bounded_error,
    "decay": decay_error,
    "extends": extends_error,
    "deterministic": deterministic_error,
    "axes": axes_error,
    "precision": precision_error,
    "generalises": generalises_error,
    "learnable": learnable_error,
}
"""The measure of each property, in the order of every table."""


@dataclass(frozen=True)
class Result:
    """One property in a report: its measurement, and the catalogue's claim."""

    error: float | None
    tolerance: float | None
    holds: bool | None
    claimed: bool | None
    reason: str | None
    figures: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The result for JSON; numbers that are not finite become null."""
        shown: dict[str, Any] = {
            "error": _finite(self.error),
            "tolerance": self.tolerance,
            "holds": self.holds,
            "claimed": self.claimed,
            "reason": self.reason,
        }
        if self.figures:
            shown["figures"] = {name: _finite(value) for name, value in self.figures.items()}
        return shown


@dataclass(frozen=True)
class Report:
    """All properties of one encoding under one configuration."""

    encoding: str
    config: dict[str, Any]
    properties: dict[str, Result]

    @property
    def agrees(self) -> bool:
        """True if every property that is claimed, or claimed not to hold, measures so."""
        return not self.disagreements

    @property
    def disagreements(self) -> list[str]:
        """The properties whose measurement contradicts the catalogue's claim."""
        return [
            name
            for name, result in self.properties.items()
            if result.claimed is not None and result.holds != result.claimed
        ]

    def as_dict(self) -> dict[str, Any]:
        """``{"encoding", "config", "properties": {property: {"error", …}}}``, strictly JSON."""
        return {
            "encoding": self.encoding,
            "config": {name: _plain(value) for name, value in self.config.items()},
            "properties": {name: result.as_dict() for name, result in self.properties.items()},
        }


def check(encoding: str | Spec | Encoding, config: Mapping[str, Any] | None = None) -> Report:
    """Measure every property of an encoding.

    Args:
        encoding: a name in the catalogue, a spec, or an encoding object of any family; the last
            two need not be in the catalogue. An object is copied first, so checking leaves it as
            it was.
        config: with a name or spec, changes to the configuration that the catalogue checks.

    Returns:
        The report. An encoding that raises, gives nan or a wrong shape fails the property with a
        reason; ``check`` itself raises only for what it cannot make.

    Raises:
        ValueError: unknown name, or a value of config out of range.
        TypeError: config beside an object, or an argument the encoding does not have.

    Example:
        >>> check("sinusoidal", {"dim": 128}).properties["linear"].holds
        True
    """
    if isinstance(encoding, (str, Spec)):
        if config is not None and not isinstance(config, Mapping):
            raise TypeError(f"config must be a mapping of arguments, got {type(config).__name__}")
        spec = catalog.get(encoding) if isinstance(encoding, str) else encoding
        return _check_entry(spec, dict(config or {}))
    if config is not None:
        raise TypeError("config changes a catalogue entry; an encoding object has its own")
    if not isinstance(encoding, Encoding):
        raise TypeError(
            f"encoding must be a name, Spec or Encoding, got {type(encoding).__name__}; "
            "subclass Additive, Rotary, Bias or Contextual"
        )
    measured = {name: MEASURES[name](pristine(encoding)) for name in PROPERTIES}
    results = {name: _result(found, None, None) for name, found in measured.items()}
    return Report(type(encoding).__name__, {}, results)


def check_all(
    progress: Callable[[str, int, int], None] | None = None,
    *,
    names: Iterable[str] | None = None,
    processes: int = 1,
) -> dict[str, Report]:
    """The report of every catalogue entry, in the catalogue's order.

    Args:
        progress: called with (name, number of entries done, number of entries) before each entry;
            with several processes, after one is done.
        names: of the entries; all if None.
        processes: that measure at once. They know what ropewalk and plugins register; a spec
            registered in this process alone is measured here.

    Raises:
        ValueError: a name is unknown, or ``processes`` is below 1.
    """
    if processes < 1:
        raise ValueError(f"processes={processes} must be at least 1")
    known = catalog.encodings()
    specs = {n: catalog.get(n) for n in (known if names is None else names)}
    answers = fingerprints([_request(spec, dict(spec.config)) for spec in specs.values()])
    if processes > 1:
        from ropewalk.checks.pool import checked

        return checked(dict(zip(specs, answers, strict=True)), processes, progress)
    reports = {}
    for done, (name, spec) in enumerate(specs.items()):
        if progress is not None:
            progress(name, done, len(specs))
        reports[name] = _check_entry(spec, {})
    return reports


def _check_entry(spec: Spec, changes: Mapping[str, Any]) -> Report:
    config = {**spec.config, **changes}
    with seeded(0):
        encoding = spec.make(**config)
    recorded = spec.name if config == dict(spec.config) else None
    extra: dict[str, dict[str, Any]] = {
        "deterministic": {
            "rebuild": lambda: spec.make(**config),
            "elsewhere": _elsewhere(spec, config),
        },
        **{key: {"name": recorded} for key in RECORDED},
    }
    results = {}
    for name in PROPERTIES:
        found = MEASURES[name](pristine(encoding), **extra.get(name, {}))
        claimed = spec.claim(name, config), _explained(spec, name, config)
        meant = catalog.applies(name, encoding)
        results[name] = _result(found, *(claimed if meant else (None, None)))
    return Report(spec.name, config, results)


def _elsewhere(spec: Spec, config: Mapping[str, Any]) -> list[float] | None:
    """What another process answers; None for a spec that the catalogue there cannot know."""
    known = catalog.encodings().get(spec.name) is spec
    return fingerprints([_request(spec, config)])[0] if known else None


def _request(spec: Spec, config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], int]:
    try:
        with seeded(0):
            count = reach(spec.make(**config)).count
    except Exception:
        count = 0
    return spec.name, config, count


def _explained(spec: Spec, name: str, config: Mapping[str, Any]) -> str | None:
    """Why the catalogue claims what it claims of a property under ``config``."""
    why = spec.reasons.get(name)
    for variant in spec.variants.values():
        if variant.matches(config) and name in variant.claims and variant.reason:
            why = variant.reason
    return why


def _result(found: Measurement, claimed: bool | None, explained: str | None) -> Result:
    """The measurement with its claim; the catalogue's reason where they agree on a measurement."""
    failed = found.holds is False and found.error is None
    as_claimed = found.holds == claimed and explained is not None and not failed
    reason = explained if as_claimed else found.reason
    return Result(found.error, found.tolerance, found.holds, claimed, reason, found.figures)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _plain(value: Any) -> Any:
    """A configuration value for JSON; what JSON lacks is shown as text."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value
