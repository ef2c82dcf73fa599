"""From a source to a config: dictionaries, files, folders, standard input, config objects."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ropewalk.configs.findings import Kind, spelling
from ropewalk.configs.value import Value

LARGEST = 8 << 20
"""Bytes of JSON that are read; no config is near it."""

MAGIC = b"GGUF"


@dataclass
class Material:
    """A config as it was found: its keys, the form of the file, and what was odd in it."""

    config: Mapping[str, Any]
    form: str = "json"
    extra: dict[str, Value] = field(default_factory=dict)
    findings: list[tuple[Kind, str | None, dict[str, Any]]] = field(default_factory=list)


def load(source: Any) -> Material:
    """The config of ``source``.

    Raises:
        TypeError: source is nothing of the kind.
        ValueError: it is no config; the message says what and where.
        OSError: it cannot be opened.
    """
    if isinstance(source, Mapping):
        return Material(source)
    if isinstance(source, bytes):
        return parsed(source, "the text")
    if isinstance(source, (str, os.PathLike)):
        if str(source) == "-":
            return parsed(_bounded(sys.stdin.buffer, "standard input"), "standard input")
        if str(source) == "":
            raise ValueError("the path is empty; name a config.json, a GGUF file or a folder")
        return _file(Path(source))
    to_dict = getattr(source, "to_dict", None)
    if callable(to_dict):
        config = to_dict()
        if isinstance(config, Mapping):
            return Material(_without_nothing(config))
    raise TypeError(
        f"source must be a dictionary, a path, '-' or a config object with to_dict(), got "
        f"{type(source).__name__}"
    )


def _without_nothing(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config object's dictionary without the nulls that only say that nothing was given."""
    return {key: value for key, value in config.items() if value is not None}


def _file(path: Path) -> Material:
    try:
        return _opened(path)
    except OSError as error:
        if error.filename is None:  # a failed read knows no name
            error.filename = str(path)
        raise


def _opened(path: Path) -> Material:
    try:
        mode = path.stat().st_mode
    except ValueError as error:  # a NUL in the path
        raise ValueError(f"{str(path)!r} is no path: {error}") from None
    except RuntimeError as error:  # a loop of links, on older versions of Python
        raise ValueError(f"{path}: {error}") from None
    if stat.S_ISDIR(mode):
        return _folder(path)
    if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode) and not stat.S_ISCHR(mode):
        raise ValueError(f"{path} is neither a file nor a folder")
    with _stream(path, mode) as file:
        try:
            head = file.read(4)
            if head == MAGIC:
                if not stat.S_ISREG(mode):
                    raise ValueError(
                        f"{path} is a stream of GGUF; give the path of the file itself"
                    )
                from ropewalk.configs.gguf import read

                return Material(*read(file, str(path)))
            rest = _bounded(file, str(path))
        except OSError as error:  # the system does not say which file it could not read
            raise OSError(error.errno, error.strerror, str(path)) from None
    if path.name.endswith((".gguf", ".safetensors", ".bin", ".pt", ".pth")):
        raise ValueError(
            f"{path} is not a GGUF file (it begins with {head!r}); give a config.json, a model "
            "folder or a GGUF file"
        )
    return parsed(head + rest, str(path))


PATIENCE = 0.5
"""Seconds to wait until somebody writes into a pipe."""


def _stream(path: Path, mode: int) -> BinaryIO:
    """The file, open; a named pipe that nobody writes into is no reason to wait for ever.

    Raises:
        ValueError: it is such a pipe.
        OSError: it cannot be opened.
    """
    if not stat.S_ISFIFO(mode):
        return path.open("rb")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    end, data = time.monotonic() + PATIENCE, b""
    while not data and time.monotonic() < end:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:  # a writer that has not written yet
            break
        time.sleep(0 if data else 0.01)
    else:
        if not data:
            os.close(descriptor)
            raise ValueError(f"{path} is a pipe that nobody writes into")
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "rb") as rest:
        return io.BytesIO(data + rest.read(LARGEST + 1))


def _folder(path: Path) -> Material:
    """config.json of a model folder, or params.json; shapes from safetensors headers."""
    for name in ("config.json", "params.json"):
        if (path / name).is_file():
            material = _file(path / name)
            from ropewalk.configs.shapes import head_dim_of

            head = head_dim_of(path, material.config)
            if head is not None and material.form == "json":
                material.extra["@head_dim"] = head
            return material
    found = sorted(path.glob("*.gguf"))
    if len(found) == 1:
        return _file(found[0])
    raise ValueError(
        f"{path} has no config.json and no params.json"
        + (f"; name one of its {len(found)} GGUF files" if found else "")
    )


def _bounded(file: BinaryIO, name: str) -> bytes:
    data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(
            f"{name} is larger than {LARGEST >> 20} MiB; a config is a small JSON file"
        )
    return data


def parsed(data: bytes, name: str) -> Material:
    """JSON as a config, with findings for keys that stand twice.

    Raises:
        ValueError: not UTF-8, not JSON, nested too deep, or not an object.
    """
    findings: list[tuple[Kind, str | None, dict[str, Any]]] = []
    if data[:4] == MAGIC:
        raise ValueError(f"{name} is a stream of GGUF; give the path of the file itself")
    try:
        text = data.decode("utf-8-sig")
        config = json.loads(text, object_pairs_hook=_watching(findings), parse_int=_whole)
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        what = "is empty" if not data.strip() else f"is not JSON: {error.msg} at {place}"
        raise ValueError(f"{name} {what}") from None
    except RecursionError:
        raise ValueError(f"{name} is nested too deep for a config") from None
    if not isinstance(config, dict):
        raise ValueError(f"{name} holds {_json_name(config)}; a config is a JSON object")
    if _depth(config) > 64:
        raise ValueError(f"{name} is nested too deep for a config")
    return Material(config, findings=findings)


def _whole(digits: str) -> int | float:
    """A whole number; infinite, as 1e400 is, if no float reaches it."""
    return int(digits) if len(digits) <= 308 else float(digits)


def _json_name(value: object) -> str:
    return {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(
        type(value), "a number"
    )


def _watching(
    findings: list[tuple[Kind, str | None, dict[str, Any]]],
) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            seen: dict[str, int] = {}
            for key, _ in pairs:
                seen[key] = seen.get(key, 0) + 1
            for key, count in seen.items():
                if count > 1:
                    values = {"key": key, "count": count, "value": made[key]}
                    findings.append((spelling.DUPLICATE, key, values))
        return made

    return build


def _depth(config: object) -> int:
    """How deep objects and arrays are nested, without recursion."""
    deepest, todo = 0, [(config, 1)]
    while todo:
        value, depth = todo.pop()
        deepest = max(deepest, depth)
        if depth > 64:
            break
        if isinstance(value, dict):
            todo.extend(
                (item, depth + 1) for item in value.values() if isinstance(item, (dict, list))
            )
        elif isinstance(value, list):
            todo.extend((item, depth + 1) for item in value if isinstance(item, (dict, list)))
    return deepest


def as_transformers(source: Any, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The config of ``source`` if it is written in the keys of transformers.

    Raises:
        TypeError, OSError: as :func:`load`.
        ValueError: as there, or it is written in other keys.
    """
    from ropewalk.configs import dialects

    material = load(source)
    config = material.config if overrides is None else overlaid(material.config, overrides)
    name = dialects.of(config, material.form).NAME
    if name in ("gguf", "params.json"):
        raise ValueError(
            f"this needs a config in the keys of transformers, and got one of {name}; write one "
            "with ropewalk emit --for transformers"
        )
    return dict(config)


def overlaid(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """``config`` with ``overrides`` laid over it, objects into objects.

    Raises:
        TypeError: overrides is not a dictionary.
    """
    from ropewalk.configs.dialects.vllm import merged

    if not isinstance(overrides, Mapping):
        raise TypeError(f"overrides must be a dictionary, got {type(overrides).__name__}")
    return merged(config, overrides)
