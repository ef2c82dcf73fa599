"""What an audit looked at, what it measured, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ropewalk.configs.findings.finding import ORDER, Finding, Kind

Status = Literal["passed", "failed", "skipped"]


@dataclass
class Check:
    """One check: whether it passed, and its figures; or why it did not apply.

    ``figures`` are relative differences unless their names say otherwise.
    """

    name: str
    status: Status = "passed"
    reason: str | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @staticmethod
    def skipped(name: str, reason: str) -> Check:
        """A check that does not apply."""
        return Check(name, "skipped", reason)

    def find(self, kind: Kind, where: str | None, /, **values: Any) -> None:
        """Add a finding, at the check itself if nowhere else; but for an info, the check fails."""
        found = kind.finding(where or self.name, **values)
        if found not in self.findings:
            self.findings.append(found)
        if found.severity != "info":
            self.status = "failed"

    def as_dict(self) -> dict[str, Any]:
        """As ``audit --json`` prints it."""
        return {
            "name": self.name,
            "status": self.status,
            "reason": self.reason,
            "figures": self.figures,
            "codes": [finding.code for finding in self.findings],
        }


@dataclass
class Audit:
    """The outcome of :func:`ropewalk.models.audit`; ``print(found)`` shows it.

    True if no finding is an error. ``checks`` are all that were tried, those that did not apply
    with the reason; ``findings`` are theirs, errors first.
    """

    model: str
    dtype: str
    checks: list[Check] = field(default_factory=list)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding once, errors first."""
        every = dict.fromkeys(f for check in self.checks for f in check.findings)
        return tuple(sorted(every, key=lambda f: ORDER.index(f.severity)))

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(f for f in self.findings if f.severity == "error")

    @property
    def skipped(self) -> dict[str, str]:
        """The checks that did not apply, with the reason."""
        return {c.name: c.reason or "" for c in self.checks if c.status == "skipped"}

    def __getitem__(self, name: str) -> Check:
        """The check of this name.

        Raises:
            KeyError: there is none.
        """
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"{name!r}; the checks are {', '.join(c.name for c in self.checks)}")

    def __bool__(self) -> bool:
        return not self.errors

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def as_dict(self) -> dict[str, Any]:
        """The document of ``ropewalk audit --json``."""
        return {
            "model": self.model,
            "dtype": self.dtype,
            "checks": [check.as_dict() for check in self.checks],
            "findings": [finding.as_dict() for finding in self.findings],
        }

    def _lines(self) -> Iterator[str]:
        counts = {s: sum(c.status == s for c in self.checks) for s in ("passed", "failed")}
        yield (
            f"{self.model} in {self.dtype}: {counts['passed']} checks passed, "
            f"{counts['failed']} failed, {len(self.skipped)} did not apply"
        )
        for check in self.checks:
            yield f"  {check.status:8}{check.name}{_after(check)}"
        for finding in self.findings:
            where = f"{finding.key}: " if finding.key else ""
            yield f"{finding.severity} {finding.code} {where}{finding.message}"
            yield f"  To do: {finding.remedy}"


def _after(check: Check) -> str:
    if check.reason is not None:
        return f": {check.reason}"
    words = figure_words(check.figures)
    return f": {words}" if words else ""


def figure_words(figures: Mapping[str, Any]) -> str:
    """Figures in a line."""
    return ", ".join(
        f"{name.replace('_', ' ')} {value:.2g}"
        if isinstance(value, float)
        else f"{name.replace('_', ' ')} {value}"
        for name, value in figures.items()
    )
