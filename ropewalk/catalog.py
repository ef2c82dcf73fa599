"""The catalogue: what each encoding is, claims, and how it is made."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ropewalk.core import Encoding

Family = Literal["additive", "rotary", "bias", "contextual"]

FAMILIES: Mapping[Family, str] = MappingProxyType(
    {
        "additive": "added to embeddings",
        "rotary": "turns q and k",
        "bias": "added to logits",
        "contextual": "logits that read content",
    }
)
"""Where each family enters attention, in the order of every list."""

PROPERTIES: tuple[str, ...] = (
    "unique",
    "linear",
    "relative",
    "norm",
    "bounded",
    "decay",
    "extends",
    "deterministic",
    "axes",
    "precision",
    "generalises",
    "learnable",
)
"""The properties that ``ropewalk check`` measures, in the order of every table."""

RECORDED: tuple[str, ...] = ("generalises", "learnable")
"""Those of them that are read from recorded races; no encoding claims them."""


@dataclass(frozen=True)
class Spec:
    """One entry of the catalogue.

    Args:
        name: the registry key.
        family: where it enters attention.
        factory: makes the encoding from keyword arguments.
        title: one line for tables.
        equation: LaTeX.
        source: paper: authors, year, title.
        config: the configuration that checks, contract and docs use (dimension 64).
        claims: property → True (holds), False (does not), None or absent (does not apply).
        reasons: property → why, for what does not hold, does not apply, or holds on a condition.
        variants: name → configuration changes and the claims that change with them.
        waivers: contract law → why this encoding is exempt (:mod:`ropewalk.checks.contract`).
    """

    name: str
    family: Family
    factory: Callable[..., Encoding]
    title: str
    equation: str
    source: str
    config: Mapping[str, Any]
    claims: Mapping[str, bool | None]
    reasons: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, Variant] = field(default_factory=dict)
    waivers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"name={self.name!r} of a spec must be a str, and not empty")
        if self.family not in tuple(FAMILIES):
            raise ValueError(
                f"spec {self.name!r} has family={self.family!r}; use one of {', '.join(FAMILIES)}"
            )
        if not callable(self.factory):
            raise TypeError(f"spec {self.name!r} has factory={self.factory!r}; it makes nothing")
        if not isinstance(self.config, Mapping):
            raise TypeError(f"spec {self.name!r} has config={self.config!r}; use a dictionary")
        unknown = (set(self.claims) | set(self.reasons)) - set(PROPERTIES)
        if unknown:
            raise ValueError(f"spec {self.name!r} names unknown properties {sorted(unknown)}")

    def make(self, /, **config: Any) -> Encoding:
        """The encoding with ``config`` over its factory's defaults.

        Raises:
            TypeError: an argument the factory does not have, with the ones it has.
            ValueError: an argument is out of range.
        """
        accepted = inspect.signature(self.factory).parameters
        catch_all = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
        for key in config:
            if key not in accepted and not catch_all:
                raise TypeError(
                    f"{self.name} has no argument {key!r}{suggestion(key, accepted)}; "
                    f"it takes {', '.join(accepted)}"
                )
        missing = [
            name
            for name, p in accepted.items()
            if p.default is p.empty
            and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
            and name not in config
        ]
        if missing:
            example = ", ".join([repr(self.name), *(f"{k}={v!r}" for k, v in self.config.items())])
            shown = f"; for example make({example})" if set(missing) <= set(self.config) else ""
            raise TypeError(f"{self.name} needs {', '.join(missing)}{shown}")
        return self.factory(**config)

    def claim(self, name: str, config: Mapping[str, Any]) -> bool | None:
        """What is claimed of a property under ``config``: that of a matching variant, or its own.

        The last variant that matches and speaks of the property decides.
        """
        claimed = self.claims.get(name)
        for variant in self.variants.values():
            if variant.matches(config):
                claimed = variant.claims.get(name, claimed)
        return claimed


@dataclass(frozen=True)
class Variant:
    """Configurations of an encoding with claims, and waivers, of their own.

    ``config`` is one such configuration, as changes. Without ``when`` it is the only one; with it,
    those for which ``when(config)`` is true. A waiver with an empty reason lifts that of the spec.
    """

    config: Mapping[str, Any]
    claims: Mapping[str, bool | None] = field(default_factory=dict)
    reason: str = ""
    waivers: Mapping[str, str] = field(default_factory=dict)
    when: Callable[[Mapping[str, Any]], bool] | None = None

    def matches(self, config: Mapping[str, Any]) -> bool:
        """Whether a whole configuration is of this variant."""
        if self.when is not None:
            return self.when(config)
        return all(key in config and config[key] == value for key, value in self.config.items())


def applies(name: str, encoding: Encoding) -> bool:
    """Whether a claim of a property can be meant: that of axes, where there are several."""
    return name != "axes" or encoding.axes > 1


_registry: dict[str, Spec] = {}


def register(spec: Spec) -> Spec:
    """Add a spec to the catalogue.

    Raises:
        ValueError: the name is taken.
    """
    if spec.name in _registry:
        raise ValueError(f"an encoding named {spec.name!r} is registered already; choose another")
    _registry[spec.name] = spec
    return spec


def unregister(name: str) -> None:
    """Remove a spec, so that an experiment can leave the catalogue as it was."""
    get(name)
    del _registry[name]


def builtin() -> Mapping[str, Spec]:
    """The encodings of ropewalk itself by name, read-only."""
    import ropewalk.encodings  # noqa: F401  (its import lines register the catalogue)

    home = "ropewalk.encodings."
    own = {n: s for n, s in _registry.items() if s.factory.__module__.startswith(home)}
    return MappingProxyType(own)


def encodings() -> Mapping[str, Spec]:
    """Every encoding by name, read-only: ropewalk's own, of plugins, and what was registered.

    Warns:
        PluginWarning: once for each plugin that cannot be loaded (:mod:`ropewalk.plugins`).
    """
    import ropewalk.encodings  # noqa: F401  (its import lines register the catalogue)
    from ropewalk import plugins

    plugins.load()
    return MappingProxyType(_registry)


def get(name: str) -> Spec:
    """The spec named ``name``.

    Raises:
        ValueError: unknown, with the closest known names.
    """
    known = encodings()
    if not isinstance(name, str) or name not in known:
        from ropewalk import plugins

        broken = plugins.broken().get(name) if isinstance(name, str) else None
        if broken is not None:
            raise ValueError(f"encoding {name!r} is not there: {broken}")
        raise ValueError(
            f"unknown encoding {repr(name)[:80]}{suggestion(str(name)[:80], known)}; "
            f"known: {', '.join(sorted(known))}"
        )
    return known[name]


def make(name: str, **config: Any) -> Encoding:
    """The encoding ``name`` with the given configuration.

    Raises:
        ValueError: unknown name, or a value out of range.
        TypeError: an argument that the encoding does not have, or one it needs is missing.

    Example:
        >>> make("rope", head_dim=64, base=500000.0)
    """
    return get(name).make(**config)


def suggestion(word: str, known: Mapping[str, object] | list[str]) -> str:
    """`` (did you mean 'x'?)`` for the closest known word, or nothing; case plays no part."""
    spelt = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower().replace("-", "_"), spelt, n=1, cutoff=0.5)
    return f" (did you mean {spelt[close[0]]!r}?)" if close else ""
