"""Write what the docs take from the package: pages of encodings, of claims, the README's list.

``docs/encodings`` and the list come from the catalogue, ``docs/claims`` from stored records.
``--check`` only says what is out of date. A figure is written anew only where it shows something
else: the last bit of a sine differs between machines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import docs_claims
from docs_page import image, index, listing, page

from ropewalk.catalog import builtin
from ropewalk.report.figures import same

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FOLDERS = ("encodings", "claims")
README = ROOT / "README.md"
BEGIN = "<!-- encodings: written by scripts/make_docs.py -->"
END = "<!-- end of encodings -->"


def pages() -> dict[str, str]:
    """Path below ``docs`` → content of every generated page."""
    specs = builtin()
    encodings = {"index.md": index(specs), **{f"{name}.md": page(s) for name, s in specs.items()}}
    return _placed({"encodings": encodings, "claims": docs_claims.pages(docs_claims.stored())})


def figures() -> dict[str, str]:
    """Path below ``docs`` → content of every generated figure."""
    encodings = {f"{name}.svg": image(spec) for name, spec in builtin().items()}
    return _placed({"encodings": encodings, "claims": docs_claims.figures(docs_claims.stored())})


def _placed(found: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {f"{folder}/{name}": text for folder, own in found.items() for name, text in own.items()}


def stale() -> list[str]:
    """Generated files that are missing, differ, or belong to nothing any more."""
    late = _late(pages(), "*.md", str.__eq__) + _late(figures(), "*.svg", same)
    return late + ([] if readme() == README.read_text(encoding="utf-8") else [README.name])


def _late(wanted: dict[str, str], kind: str, alike: Callable[[str, str], bool]) -> list[str]:
    present = {
        f"{folder}/{path.name}": path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in (DOCS / folder).glob(kind)
    }
    return sorted(
        name
        for name in {**wanted, **present}
        if name not in wanted or name not in present or not alike(present[name], wanted[name])
    )


def readme() -> str:
    """The README with the list of encodings between its two marks.

    Raises:
        ValueError: a mark is missing, or there is more than one.
    """
    text = README.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{README.name} needs the lines {BEGIN!r} and {END!r} once each")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{listing(builtin())}\n{END}{rest.split(END)[1]}"


def main() -> int:
    """Write what is out of date, or say it."""
    late = stale()
    if "--check" in sys.argv[1:]:
        print("\n".join(late) or "docs and README.md are up to date")
        return 1 if late else 0
    for folder in FOLDERS:
        (DOCS / folder).mkdir(parents=True, exist_ok=True)
    wanted = {**pages(), **figures()}
    for name in late:
        if name == README.name:
            README.write_text(readme(), encoding="utf-8")
        elif name in wanted:
            (DOCS / name).write_text(wanted[name], encoding="utf-8")
        else:
            (DOCS / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
