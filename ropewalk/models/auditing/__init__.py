"""Audits of live models: what runs against what the config says."""

from ropewalk.models.auditing.auditing import audit
from ropewalk.models.auditing.kinds import KINDS
from ropewalk.models.auditing.report import Audit, Check

__all__ = ["KINDS", "Audit", "Check", "audit"]
