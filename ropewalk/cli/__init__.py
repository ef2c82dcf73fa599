"""The command line: ``ropewalk COMMAND``."""

from ropewalk.cli.app import main, run

__all__ = ["main", "run"]
