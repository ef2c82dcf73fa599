"""The page of a usage: heat maps of norms, and the loss without each band."""

from ropewalk.report.usage.page import page

__all__ = ["page"]
