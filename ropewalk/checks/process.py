"""Fingerprints from a fresh process: one child answers for any number of encodings.

Run as a module it reads ``[[name, config, count], …]`` from standard input and writes the list of
fingerprints, null where the catalogue cannot make the encoding there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

Request = tuple[str, Mapping[str, Any], int]

_answers: dict[str, list[float] | None] = {}
_SECONDS = 120


def fingerprints(requests: Iterable[Request]) -> list[list[float] | None]:
    """The fingerprint of each (name, config, count) as a fresh process computes it.

    None where there is none: a configuration that JSON cannot carry, an entry that only this
    process has registered, no permission to start a process. Answers are kept, so a question is
    asked once.
    """
    keys = [_key(request) for request in requests]
    new = [key for key in dict.fromkeys(keys) if key is not None and key not in _answers]
    if new:
        _answers.update(zip(new, _ask(new), strict=True))
    return [None if key is None else _answers[key] for key in keys]


def remember(request: Request, answer: list[float] | None) -> None:
    """Keep an answer that a fresh process has given elsewhere."""
    key = _key(request)
    if key is not None:
        _answers[key] = answer


def _key(request: Request) -> str | None:
    name, config, count = request
    try:
        key = json.dumps([name, dict(config), count], sort_keys=True)
    except (TypeError, ValueError):
        return None
    return key if json.loads(key)[1] == dict(config) else None


def _ask(keys: list[str]) -> list[list[float] | None]:
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        child = subprocess.run(
            [sys.executable, "-m", "ropewalk.checks.process"],
            input=f"[{', '.join(keys)}]",
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env=environment,
            check=True,
        )
        answers = json.loads(child.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return [None] * len(keys)
    return answers if len(answers) == len(keys) else [None] * len(keys)


def _answer(name: str, config: Mapping[str, Any], count: int) -> list[float] | None:
    import torch

    from ropewalk import catalog
    from ropewalk.checks.content import one_thread
    from ropewalk.checks.fingerprint import fingerprint

    torch.manual_seed(3)
    try:
        with torch.no_grad(), one_thread():
            return fingerprint(catalog.make(name, **config), count).tolist()
    except Exception:
        return None


def main() -> None:
    """Answer the questions on standard input."""
    questions = json.loads(sys.stdin.read())
    print(json.dumps([_answer(*question) for question in questions]))


if __name__ == "__main__":
    main()
