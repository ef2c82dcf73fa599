"""The command line: ``ropewalk COMMAND``."""

from ropewalk.cli.entry import main, run

__all__ = ["main", "run"]
