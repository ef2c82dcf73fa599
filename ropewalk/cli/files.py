"""Files that a command writes: asked for before the work, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def require_writable(path: Path, example: str, option: str = "--out") -> None:
    """Fail before the work, not after it.

    Raises:
        ValueError: the folder does not exist, or the path is a folder or cannot be written.
    """
    if str(path) == "-":
        raise ValueError(f"{option} - is no file name; write {option} {example}")
    try:
        _try_to_write(path, example, option)
    except OSError as error:
        raise _unwritable(path, error, option) from error


def _try_to_write(path: Path, example: str, option: str) -> None:
    folder = path.parent
    if not folder.is_dir():
        what = "is not a folder; choose one" if folder.exists() else "does not exist; create it"
        raise ValueError(f"{option} {path}: {folder} {what} first")
    if path.is_dir():
        raise ValueError(
            f"{option} {path} is a folder; name a file in it, such as {path}/{example}"
        )
    if _in_place(path):
        path.open("a").close()
    else:
        tempfile.TemporaryFile(dir=folder).close()


def write(path: Path, content: str | bytes, option: str = "--out") -> None:
    """The content, text as UTF-8, whole or not at all: written beside and moved into place.

    Raises:
        ValueError: it cannot be written.
    """
    try:
        _replace(path, content.encode("utf-8") if isinstance(content, str) else content)
    except OSError as error:
        raise _unwritable(path, error, option) from error


def _in_place(path: Path) -> bool:
    """Links and devices are written through; replacing them would destroy them."""
    return path.is_symlink() or (path.exists() and not path.is_file())


def _unwritable(path: Path, error: OSError, option: str) -> ValueError:
    return ValueError(
        f"{option} {path} cannot be written: {error.strerror or error}; choose another place"
    )


def _replace(path: Path, content: bytes) -> None:
    if _in_place(path):
        path.write_bytes(content)
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
