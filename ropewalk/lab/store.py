"""One file of records that many processes may write and none can spoil.

The file is JSON, a line each: a header, then records. A record is written under a lock with one
write and is on the disk when :meth:`Store.append` returns. A line without an end is what a killed
writer left: readers pass over it, and the next writer puts its own record there. Nothing else that
stands in the file is ever changed; a file that is not as it should be is refused.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from ropewalk.lab import locks
from ropewalk.lab import record as records
from ropewalk.lab.record import Record

LAYOUT = 1
"""Of the file: what a line is."""
HEADER = b'{"ropewalk": "records", "format": %d}\n' % LAYOUT

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


class Differs(ValueError):
    """The store holds another record under the same key, ``stored``."""

    def __init__(self, message: str, stored: Record) -> None:
        super().__init__(message)
        self.stored = stored


class Store:
    """Records by key, in one file.

    Args:
        path: of the file; made by the first writer, in a folder that exists.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._seen: tuple[tuple[int, ...], dict[str, Record], int] | None = None

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def records(self) -> dict[str, Record]:
        """Every record by its key, in the order of the file; none where there is no file.

        Raises:
            ValueError: the file is no store, or a line of it is no record of this version; the
                message names file, line and remedy.
        """
        try:
            with self._opened(_READ) as descriptor:
                return self._parsed(self._content(descriptor))[0]
        except FileNotFoundError:
            return {}

    def origins(self) -> list[dict[str, Any]]:
        """What the records were made with: each distinct ``made`` once, in the order of the file.

        Several mean that records of several machines or versions stand side by side; their last
        digits need not agree.

        Raises:
            ValueError: as :meth:`records`.
        """
        found: list[dict[str, Any]] = []
        for record in self.records().values():
            if record["made"] not in found:
                found.append(record["made"])
        return found

    def ready(self) -> dict[str, Record]:
        """:meth:`records`, after making sure that more can be written: to be asked before the work.

        Raises:
            ValueError: as :meth:`records`, or the file cannot be made or written.
        """
        with self._writing() as descriptor:
            found, end = self._parsed(self._content(descriptor))
            if not end:
                self._write(descriptor, 0, HEADER)
            return found

    def append(self, record: Record) -> None:
        """Add a record, or nothing where the very same one is there.

        Raises:
            ValueError: as :meth:`ready`; or ``record`` is none; or the disk is full, and the file
                is what it was.
            Differs: another record with the same key is there.
        """
        try:
            records.check(record)
            line = json.dumps(record, allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"nothing was added to store {self.path}: {error}") from error
        with self._writing() as descriptor:
            found, end = self._known(descriptor)
            stored = found.get(record["key"])
            if stored is None:
                self._write(descriptor, end, line if end else HEADER + line)
                found[record["key"]] = json.loads(line)
                end += len(line) if end else len(HEADER + line)
            elif not _same(stored, record):
                raise Differs(self._differing(stored, record), stored)
            self._seen = (_stamp(descriptor), found, end)

    # --- the file --------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[int]:
        try:
            with self._opened(_WRITE) as descriptor:
                yield descriptor
        except FileNotFoundError as error:
            self._refuse(f"there is no folder {self.path.parent}: make it first", error)

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        """The file, open and locked; FileNotFoundError passes, all else is told in one line."""
        try:
            descriptor = os.open(self.path, flags, 0o666)
        except FileNotFoundError:
            raise
        except OSError as error:
            self._refuse(f"{error.strerror}: name a file that can be opened", error)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                self._refuse("it is no ordinary file: name another")
            self._lock(descriptor, shared=flags == _READ)
            yield descriptor
        finally:
            os.close(descriptor)  # and with it goes the lock

    def _lock(self, descriptor: int, *, shared: bool) -> None:
        try:
            locks.take(descriptor, shared=shared)
        except OSError as error:
            if shared and error.errno in _NO_LOCKS:
                return  # no store is written where there are no locks, so nothing can interfere
            remedy = (
                "wait for it, or end it"
                if error.errno == errno.EAGAIN
                else "put the store on a file system that has locks"
            )
            self._refuse(f"{error.strerror}: {remedy}", error)

    def _content(self, descriptor: int) -> bytes:
        os.lseek(descriptor, 0, os.SEEK_SET)
        parts = []
        try:
            while part := os.read(descriptor, 1 << 24):
                parts.append(part)
        except OSError as error:
            self._refuse(f"{error.strerror}: it cannot be read", error)
        return b"".join(parts)

    def _write(self, descriptor: int, end: int, content: bytes) -> None:
        """``content`` after the whole lines; what a killed writer left behind them goes."""
        try:
            os.ftruncate(descriptor, end)
            os.lseek(descriptor, end, os.SEEK_SET)
            if os.write(descriptor, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
            if not end:
                _sync_folder(self.path.parent)
        except OSError as error:
            with suppress(OSError):  # half a line is passed over, wherever it stays
                os.ftruncate(descriptor, end)
            self._refuse(
                f"{error.strerror}: nothing was added, and the file is as it was; make room and "
                "start again",
                error,
            )

    def _known(self, descriptor: int) -> tuple[dict[str, Record], int]:
        """Records and where their lines end; read anew only when another has written."""
        if self._seen is not None and self._seen[0] == _stamp(descriptor):
            return self._seen[1:]
        return self._parsed(self._content(descriptor))

    # --- its lines -------------------------------------------------------------------------------

    def _parsed(self, content: bytes) -> tuple[dict[str, Record], int]:
        """Records by key, and where their last whole line ends."""
        *lines, rest = content.split(b"\n")
        if not lines:
            if not HEADER.startswith(rest):
                self._no_store()
            return {}, 0  # empty, or its first writer was killed
        header = _parsed_line(lines[0])
        if not isinstance(header, dict) or header.get("ropewalk") != "records":
            self._no_store()
        if header != json.loads(HEADER):
            self._refuse(
                f"line 1 says {lines[0][:80]!r}, and this ropewalk reads format {LAYOUT}; "
                "name another file, or read it with the ropewalk that made it"
            )
        found: dict[str, Record] = {}
        lines_of: dict[str, int] = {}
        for number, line in enumerate(lines[1:], start=2):
            record = self._record(number, line)
            other = found.setdefault(record["key"], record)
            if other is not record and not _same(other, record):
                self._refuse(
                    f"lines {lines_of[record['key']]} and {number} are two records of one trial: "
                    "delete the wrong one"
                )
            lines_of.setdefault(record["key"], number)
        return found, len(content) - len(rest)

    def _record(self, number: int, line: bytes) -> Record:
        record = _parsed_line(line)
        if record is None:
            self._refuse(f"line {number} is not JSON: delete that line, and its trial runs again")
        try:
            records.check(record)
        except (ValueError, RecursionError) as error:
            self._refuse(f"line {number}: {error}", error)
        return record

    def _differing(self, stored: Record, record: Record) -> str:
        config = record["config"]
        ours, theirs = record["made"], stored["made"]
        changed = [name for name in ours if ours[name] != theirs.get(name)]
        why = (
            "its " + ", ".join(f"{name} was {theirs.get(name)}" for name in changed)
            if changed
            else "on the same machine and versions, so this trial is not the same each time"
        )
        return (
            f"store {self.path} holds other numbers for {config['encoding']} seed "
            f"{config['seed']}: {why}; nothing was added; name another file"
        )

    def _no_store(self) -> NoReturn:
        self._refuse("it is no store of records: name another file")

    def _refuse(self, why: str, error: BaseException | None = None) -> NoReturn:
        raise ValueError(f"store {self.path}: {' '.join(why.split())}") from error


def _parsed_line(line: bytes) -> Any:
    """The JSON of a line, or None where it is none; NaN and infinities are none."""

    def no_number(word: str) -> NoReturn:
        raise ValueError(f"{word} is not JSON")

    try:
        return json.loads(line.decode("utf-8"), parse_constant=no_number)
    except (ValueError, RecursionError):
        return None


def _same(a: Record, b: Record) -> bool:
    """Equal to the last bit: numbers are written so that they are read back exactly."""
    try:
        return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
    except RecursionError:  # no record of ours is so deep
        return False


def _stamp(descriptor: int) -> tuple[int, ...]:
    """What changes when anyone writes."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _sync_folder(folder: Path) -> None:
    """A new file's name is on the disk too, where the system can be asked for that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
