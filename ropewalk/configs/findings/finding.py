"""A finding, the kinds of findings, and the notebook in which a resolution collects them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ropewalk.configs.value import Value, shown

Severity = Literal["error", "warning", "info"]
ORDER: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """Something a reader of the config should know; ``key`` is the key path in the file."""

    code: str
    severity: Severity
    key: str | None
    message: str
    remedy: str

    def as_dict(self) -> dict[str, Any]:
        """As ``explain --json`` prints it."""
        return {
            "code": self.code,
            "severity": self.severity,
            "key": self.key,
            "message": self.message,
            "remedy": self.remedy,
        }


@dataclass(frozen=True)
class Kind:
    """One kind of finding.

    Args:
        code: stable, ``RW`` and three digits; never given to another kind.
        severity: ``"error"`` (the model will not do what the file says, or nobody can tell),
            ``"warning"`` (likely a mistake, or known to be read differently), ``"info"``.
        title: a line for the docs.
        message: what is so, with the values in braces.
        remedy: what to do.
        example: a config that shows it; as text where only the text does.
    """

    code: str
    severity: Severity
    title: str
    message: str
    remedy: str
    example: dict[str, Any] | str

    def finding(self, where: str | None, /, **values: Any) -> Finding:
        """The finding for these values."""
        words = {name: shown(value) for name, value in values.items()}
        return Finding(
            self.code,
            self.severity,
            where,
            self.message.format(**words),
            self.remedy.format(**words),
        )


MOST = 100
"""How many findings of one kind are told of one part of a config."""


class Notes:
    """Collects findings; the prefix is the key path of the part being read."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._found: dict[Finding, None] = {}
        self._counts: dict[str, int] = {}

    @property
    def findings(self) -> list[Finding]:
        """Each finding once, in the order found."""
        return list(self._found)

    def add(self, kind: Kind, where: Value | str | None = None, /, **values: Any) -> None:
        """A finding at a key, or at the key that a value came from; the same one only once."""
        count = self._counts.get(kind.code, 0)
        if count > MOST:
            return
        key = where.key if isinstance(where, Value) else where
        finding = kind.finding(None if key is None else self.prefix + key, **values)
        if finding in self._found:
            return
        if count == MOST:
            words = f"there are more of this kind; the first {MOST} are told"
            finding = Finding(kind.code, kind.severity, self.prefix or None, words, "see those")
        self._counts[kind.code] = count + 1
        self._found[finding] = None

    def sorted(self) -> tuple[Finding, ...]:
        """Errors first, each severity in the order found."""
        return tuple(sorted(self.findings, key=lambda f: ORDER.index(f.severity)))
