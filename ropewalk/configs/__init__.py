"""Configs: what a model's config really does to position, with the source of every value.

Standard library only.
"""

from ropewalk.configs.findings import Finding
from ropewalk.configs.resolve import resolve
from ropewalk.configs.resolved import Context, LayerGroup, Resolved, Variant
from ropewalk.configs.value import Value

__all__ = ["Context", "Finding", "LayerGroup", "Resolved", "Value", "Variant", "resolve"]
