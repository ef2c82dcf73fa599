"""Every kind of finding of an audit, with stable codes; ``example`` is a fault that shows it."""

from __future__ import annotations

from ropewalk.configs.findings.finding import Kind
from ropewalk.models.auditing.kinds import results, rotation, tables

KINDS: tuple[Kind, ...] = (*tables.KINDS, *rotation.KINDS, *results.KINDS)
