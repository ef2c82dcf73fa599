"""The kernel's library as a file: where it may lie, and how to know that it is the right one.

Its name is ``rotate-<machine>-<sources>-<content>.so``. ``<sources>`` hashes what it was built
from, so a stale library is never loaded; ``<content>`` hashes the file itself, so a truncated or
damaged one is never loaded either, which could end the process. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "cpu"
_BUILD = SOURCES.parent / "build.py"
"""Holds the compiler's flags, so it counts as a source."""
_DIGITS = 12
_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"


def machine() -> str:
    """The processor family, such as ``x86_64``, ``aarch64`` or ``arm64``."""
    name = platform.machine().lower()
    return "x86_64" if name == "amd64" else name


@cache
def _stem() -> str:
    """``rotate-<machine>-<sources>``."""
    digest = hashlib.sha256()
    for path in (_BUILD, *sorted(SOURCES.iterdir())):
        if path.suffix in (".py", ".cpp", ".h"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"rotate-{machine()}-{digest.hexdigest()[:_DIGITS]}"


def name_of(content: bytes) -> str:
    """The name of a library with this content, built from the sources as they are now."""
    return f"{_stem()}-{hashlib.sha256(content).hexdigest()[:_DIGITS]}{_SUFFIX}"


def is_whole(path: Path) -> bool:
    """Whether the file at ``path`` is what its name says.

    Raises:
        OSError: it cannot be read.
    """
    return path.name == name_of(path.read_bytes())


def folders() -> list[Path]:
    """Where libraries lie: beside the sources, or else in the user's cache."""
    cached = _cache_folder()
    return [SOURCES] if cached is None else [SOURCES, cached]


def _cache_folder() -> Path | None:
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "ropewalk"
    try:
        return Path.home() / ".cache" / "ropewalk"
    except RuntimeError:  # a user without a home
        return None


def built(where: list[Path] | None = None) -> Iterator[Path]:
    """Libraries of these sources for this machine, in the order in which to try them."""
    for folder in folders() if where is None else where:
        try:
            names = sorted(os.listdir(folder))
        except OSError:  # not there, or not for this user
            continue
        for name in names:
            if name.startswith(_stem() + "-") and name.endswith(_SUFFIX):
                yield folder / name


def standing() -> Path | None:
    """The first library of these sources that is whole, where libraries lie; None if none is."""
    for path in built():
        with suppress(OSError):
            if is_whole(path):
                return path
    return None


def remove_outdated(folder: Path) -> None:
    """Delete libraries of other sources from ``folder``, which serves this package alone."""
    for path in folder.glob(f"rotate-*{_SUFFIX}"):
        if not path.name.startswith(_stem() + "-"):
            path.unlink(missing_ok=True)
