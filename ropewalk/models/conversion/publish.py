"""A folder that appears whole or not at all.

It is filled beside its place under a hidden name, ``.NAME.XXXX.part``, written to the disk, and
then renamed, which a file system does at once. A run that was killed leaves only such a folder; the
next run to the same place removes it, and knows by a lock that nobody fills it any more.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def require_place(out: Path, source: Path, needed: int) -> None:
    """Refuse a place that is taken, within the source, or too small.

    Raises:
        ValueError: it is; the message says what to do.
    """
    if os.path.lexists(out):
        raise ValueError(f"{out} exists; name a folder that does not, nothing is overwritten")
    if out.suffix in (".safetensors", ".gguf", ".bin", ".pt"):
        raise ValueError(f"{out} looks like a file; OUT is a folder, with the config in it")
    if not out.parent.is_dir():
        raise ValueError(f"{out.parent} is not a folder; create it first")
    inside = source if source.is_dir() else source.parent
    if source.is_dir() and out.parent.resolve().is_relative_to(inside.resolve()):
        raise ValueError(f"{out} is within {source}, which stays as it is; choose another place")
    free = shutil.disk_usage(out.parent).free
    if needed > free:
        raise ValueError(
            f"{out.parent} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB are needed; free "
            "some space, or choose another place"
        )


@contextmanager
def beside(out: Path) -> Iterator[Path]:
    """A folder to fill, which becomes ``out`` when the block ends well and vanishes otherwise.

    Raises:
        ValueError: there is no space, or ``out`` appeared meanwhile.
    """
    _sweep(out)
    made = None
    try:
        made = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".part", dir=out.parent))
        with _locked(made):
            yield made
            _finish(made, out)
    except BaseException as error:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in _FULL:
            raise ValueError(f"no space for {out}: {error.strerror}; nothing was written") from None
        raise


def _finish(made: Path, out: Path) -> None:
    os.chmod(made, 0o777 & ~_umask())
    for path in made.iterdir():
        _settle(path)
    _settle(made)
    if os.path.lexists(out):
        raise ValueError(f"{out} appeared meanwhile; nothing is overwritten")
    try:
        os.rename(made, out)
    except OSError as error:
        raise ValueError(f"{out} cannot be made: {error.strerror}") from None
    _settle(out.parent)


def _settle(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk.

    Raises:
        OSError: the disk could not take a file.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
            os.fsync(handle)  # some file systems cannot do it with folders
    finally:
        os.close(handle)


def _sweep(out: Path) -> None:
    """Remove what killed runs to the same place left."""
    for path in out.parent.glob(f".{_literal(out.name)}.*.part"):
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(BlockingIOError), _locked(path):
                shutil.rmtree(path, ignore_errors=True)


def _literal(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder; the system lets go of it when the process ends, in whatever way.

    Raises:
        BlockingIOError: another process holds it.
    """
    try:
        import fcntl
    except ImportError:  # another system: killed runs are not swept there
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
