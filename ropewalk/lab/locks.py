"""One writer at a time: a lock on an open file that ends with its holder, however it ends."""

from __future__ import annotations

import errno
import sys
import time

PATIENCE = 60.0
"""Seconds to wait for others; a holder needs some milliseconds."""
PAUSE = 0.005

_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


def take(descriptor: int, *, shared: bool = False) -> None:
    """Wait for the lock of an open file, and hold it until that is closed; readers may share it.

    Raises:
        OSError: EAGAIN when others held it for ``PATIENCE`` seconds; else what the system says,
            as where a file system knows no locks.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return _try(descriptor, shared)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            if time.monotonic() > until:
                why = f"another process has kept its lock for {PATIENCE:g} s"
                raise OSError(errno.EAGAIN, why) from error
        time.sleep(PAUSE)


if sys.platform == "win32":
    import msvcrt
    import os

    _BEYOND = 1 << 40
    """A byte that no content reaches: Windows forbids reading what is locked."""

    def _try(descriptor: int, shared: bool) -> None:
        os.lseek(descriptor, _BEYOND, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _try(descriptor: int, shared: bool) -> None:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
