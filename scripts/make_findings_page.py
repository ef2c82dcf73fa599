"""Write ``docs/findings.md`` from the kinds of findings; ``--check`` only says if it is stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from one_page import command

from ropewalk.configs import resolve
from ropewalk.configs.engines import read_as
from ropewalk.configs.findings import ALL, Finding, Kind, engines

PAGE = Path(__file__).resolve().parent.parent / "docs" / "findings.md"

KINDS = (*ALL, *engines.KINDS)

HEAD = """# Findings

`ropewalk explain CONFIG` lists what the reader of a model's config should know. Each kind of
finding has a code that never changes. An **error** means that the model will not do what the file
says, or that nobody can tell what it says: `explain` ends with status 1. A **warning** is likely a
mistake, or something that programs are known to read differently. An **info** is true of valid
files too.

Each example below is a config, whole or in part, and what `explain` says of it.
"""


def shown_by(kind: Kind) -> Finding:
    """The finding that the kind's own example gives.

    Raises:
        ValueError: the example does not give it.
    """
    example = kind.example
    engine = engines.EXAMPLE_ENGINE.get(kind.code)
    if engine is not None and isinstance(example, dict):
        found = read_as(engine, example).findings
    else:
        found = resolve(example.encode() if isinstance(example, str) else example).findings
    for finding in found:
        if finding.code == kind.code:
            return finding
    raise ValueError(f"the example of {kind.code} does not show it")


def page() -> str:
    """The whole page."""
    lines = [HEAD, "| code | severity | what it says |", "|---|---|---|"]
    lines += [f"| [{k.code}](#{k.code.lower()}) | {k.severity} | {k.title} |" for k in KINDS]
    for kind in KINDS:
        finding = shown_by(kind)
        example = kind.example
        text = example if isinstance(example, str) else json.dumps(example, ensure_ascii=False)
        lines += ["", f"## {kind.code}", "", f"**{kind.title}** ({kind.severity})", ""]
        lines += ["```json", text, "```", ""]
        if kind.code in engines.EXAMPLE_ENGINE:
            lines += [f"With `--engine {engines.EXAMPLE_ENGINE[kind.code]}`:", ""]
        where = f"`{finding.key}`: " if finding.key else ""
        lines += [f"{where}{finding.message}.", "", f"To do: {finding.remedy}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(command(page(), PAGE))
