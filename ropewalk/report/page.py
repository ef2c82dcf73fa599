"""The page of the walk: one HTML file that carries all it needs and asks nothing of any network.

The results travel inside the page as a JSON data block. Every ``<``, ``>`` and ``&`` in it is
written as a ``\\uXXXX`` escape, so no text can end the block; the page puts text into the document
as text only. A content security policy, with the hash of the page's own script, forbids every
other script and every request, so the two guards do not depend on each other.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import TypeVar

STEPS = (
    "problem",
    "integer",
    "normalised",
    "binary",
    "sinusoidal",
    "relative",
    "rotary",
    "axes",
    "future",
)
EVIDENCE = ("proved", "measured", "literature")

STYLES = ("vendor/text.css", "vendor/katex.css", "walk.css")
SCRIPTS = (
    "vendor/katex.js",
    "vendor/charts.js",
    "js/base.js",
    "js/frame.js",
    "js/heat.js",
    "js/lines.js",
    "js/problem.js",
    "js/integer.js",
    "js/normalised.js",
    "js/binary.js",
    "js/cube.js",
    "js/sinusoidal.js",
    "js/relative.js",
    "js/rotary.js",
    "js/axes.js",
    "js/future.js",
    "js/scorecard.js",
    "js/race.js",
    "js/page.js",
)

_DEEPEST = 32

Kind = TypeVar("Kind")


def render_walk(payload: Mapping[str, object]) -> str:
    """The page for the results of one walk.

    Arguments:
        payload: the results: ``title``, ``text``, ``tokens``, the nine ``steps`` in order,
            ``scorecard`` and, where known, ``version``, ``source`` and ``race``. Only mappings
            with text keys, lists, tuples, text, numbers, booleans and None; any drawing may be
            None, and the page then says so.

    Returns:
        One HTML document, to be written as UTF-8.

    Raises:
        ValueError: a required part is missing or not what it should be, or a number is NaN or
            infinite; the message names the path, as in ``payload.steps[4].figures.error``.
        TypeError: a value has no place in JSON, such as an array or a set; the path is named.
    """
    plain = _plain(payload, "payload", 0)
    _check_shape(plain)
    script = _joined(SCRIPTS)
    parts = {
        "styles": _joined(STYLES),
        "payload": embed_json(plain),
        "script": script,
        "script_hash": _digest(script),
    }
    page = _asset("walk.html")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], page)


def embed_json(value: object) -> str:
    r"""JSON that is safe inside an HTML script element.

    ASCII only, which covers U+2028 and U+2029, with ``<``, ``>`` and ``&`` as ``\uXXXX``: these
    stand only inside JSON strings, where the escape means the same character.

    Raises:
        ValueError: value holds a NaN or an infinity.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(value: object, path: str, depth: int) -> object:
    """``value`` as dicts, lists and scalars, or an error that names the place."""
    if depth > _DEEPEST:
        raise ValueError(f"{path} is nested deeper than {_DEEPEST} levels; flatten it")
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{path} is {value}; use None where there is no finite number")
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{path} has the key {key!r}; keys must be text")
        return {key: _plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    raise TypeError(
        f"{path} is a {type(value).__name__}; use mappings, lists, text, numbers or None "
        "(for an array: .tolist())"
    )


def _check_shape(payload: object) -> None:
    if not isinstance(payload, dict):
        raise ValueError(f"payload is a {type(payload).__name__}; it must be a mapping")
    _expect(payload, "payload", "title", str)
    _expect(payload, "payload", "text", str)
    tokens = _expect(payload, "payload", "tokens", list)
    for i, token in enumerate(tokens):
        if not isinstance(token, str):
            raise ValueError(f"payload.tokens[{i}] is {token!r}; it must be text")
    _expect(payload, "payload", "scorecard", dict)
    steps = _expect(payload, "payload", "steps", list)
    names = tuple(step.get("name") if isinstance(step, dict) else None for step in steps)
    if names != STEPS:
        raise ValueError(f"payload.steps has the names {names}; they must be {STEPS}, in order")
    for i, step in enumerate(steps):
        path = f"payload.steps[{i}]"
        for key in ("title", "question", "verdict"):
            _expect(step, path, key, str)
        evidence = _expect(step, path, "evidence", str)
        if evidence not in EVIDENCE:
            raise ValueError(f"{path}.evidence is {evidence!r}; it must be one of {EVIDENCE}")


def _expect(mapping: dict[str, object], path: str, key: str, kind: type[Kind]) -> Kind:
    if key not in mapping:
        raise ValueError(f"{path}.{key} is missing; it must be a {kind.__name__}")
    value = mapping[key]
    if not isinstance(value, kind):
        raise ValueError(f"{path}.{key} is a {type(value).__name__}; it must be a {kind.__name__}")
    return value


def _asset(name: str) -> str:
    place = files("ropewalk.report") / "assets"
    for part in name.split("/"):
        place = place / part
    return place.read_text(encoding="utf-8")


@lru_cache(maxsize=4)
def _joined(names: tuple[str, ...]) -> str:
    return "\n".join(_asset(name).strip() for name in names)


def _digest(script: str) -> str:
    """The hash by which the content security policy knows the page's own script."""
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
