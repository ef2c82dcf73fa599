"""Write ``docs/encodings/*.md`` from the catalogue; ``--check`` only says what is out of date."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from ropewalk.catalog import PROPERTIES, RECORDED, Spec, encodings

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "encodings"
WORDS = {True: "yes", False: "no", None: "–"}
CALLS = {
    "additive": "x = encoding(x)  # x: [batch, tokens, dim]",
    "rotary": "y = ropewalk.attend(q, k, v, encoding)  # q: [batch, heads, tokens, head_dim]",
    "bias": "y = ropewalk.attend(q, k, v, encoding)  # q: [batch, heads, tokens, head_dim]",
    "contextual": "y = ropewalk.attend(q, k, v, encoding)",
}


def page(spec: Spec) -> str:
    """The page of one encoding."""
    module = inspect.getmodule(spec.factory)
    about = inspect.getdoc(module) if module is not None else None
    if not about:
        raise ValueError(f"{spec.name}: its module has no docstring")
    arguments = ", ".join(f"{key}={value!r}" for key, value in spec.config.items())
    lines = [
        f"# {spec.name}",
        "",
        f"*{spec.family}* — {spec.title}. Source: {spec.source}.",
        "",
        f"$$ {spec.equation} $$",
        "",
        "```python",
        "import ropewalk",
        "",
        f'encoding = ropewalk.make("{spec.name}", {arguments})',
        CALLS[spec.family],
        "```",
        "",
        "| property | claimed | why |",
        "|---|---|---|",
    ]
    lines += [
        f"| {key} | {WORDS[spec.claim(key, spec.config)]} | {why(spec, key)} |"
        for key in PROPERTIES
    ]
    lines += ["", f"Measure it: `ropewalk check {spec.name}`.", ""]
    for name, variant in spec.variants.items():
        change = ", ".join(f"`{key}={value}`" for key, value in variant.config.items())
        claims = ", ".join(f"{key}: {WORDS[value]}" for key, value in variant.claims.items())
        because = f" — {variant.reason}" if variant.reason else ""
        lines.append(f"- {name} ({change}): {claims or 'the same claims'}{because}")
    lines += ["", f"::: {spec.factory.__module__}.{spec.factory.__name__}", ""]
    return "\n".join(lines)


def why(spec: Spec, key: str) -> str:
    """The reason beside a claim, for a cell of a table."""
    recorded = "read from a recorded race" if key in RECORDED else ""
    return spec.reasons.get(key, recorded).replace("|", r"\|")


def index() -> str:
    """The table of all encodings."""
    rows = [
        f"| [{s.name}]({s.name}.md) | {s.family} | {s.title} | {s.source} |"
        for s in encodings().values()
    ]
    return "\n".join(
        [
            "# Encodings",
            "",
            "Generated from the catalogue by `make docs-pages`.",
            "",
            "| name | family | what it is | source |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def pages() -> dict[str, str]:
    """File name → content of every generated page."""
    return {"index.md": index(), **{f"{s.name}.md": page(s) for s in encodings().values()}}


def stale() -> list[str]:
    """Generated files that are missing, differ, or belong to no encoding any more."""
    wanted = pages()
    present = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    return sorted(
        {name for name in wanted if present.get(name) != wanted[name]}
        | {name for name in present if name not in wanted}
    )


def main() -> int:
    """Write the pages, or check them."""
    if "--check" in sys.argv[1:]:
        out_of_date = stale()
        print("\n".join(out_of_date) or "docs/encodings is up to date")
        return 1 if out_of_date else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale():
        (FOLDER / name).unlink(missing_ok=True)
    for name, content in pages().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
