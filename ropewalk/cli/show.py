"""``ropewalk show NAME``: one encoding — equation, arguments, claims, spectrum, figure."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from ropewalk.cli.files import require_writable, write
from ropewalk.cli.named import WHAT, made, named
from ropewalk.cli.output import console, number, print_json
from ropewalk.cli.settings import parse


def show(
    name: Annotated[str, typer.Argument(help=WHAT)],
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set one of its arguments."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write its figure, one SVG file, for these settings.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Show one encoding: equation, source, arguments, claims with reasons, and its spectrum."""
    if out is not None:
        require_writable(out, "figure.svg")
    spec = named(name)
    config = {**spec.config, **parse(setting)}
    encoding = made(spec, config)
    document = _document(spec, config, encoding)
    if out is not None:
        from ropewalk.report.figures import figure, svg

        title = f"{spec.name}({', '.join(f'{k}={v}' for k, v in config.items())})"
        drawn = figure(encoding, title)
        write(out, svg(drawn))
        document["figure"] = {"file": str(out), "caption": drawn.caption}
    if as_json:
        print_json(document)
    else:
        _draw(document)


def _document(spec: Any, config: dict[str, Any], encoding: Any) -> dict[str, Any]:
    from ropewalk.catalog import PROPERTIES, RECORDED, applies

    parameters = inspect.signature(spec.factory).parameters.values()
    spectrum = getattr(encoding, "spectrum", None)
    moot = {} if applies("axes", encoding) else {"axes": None}
    return {
        "name": spec.name,
        "family": spec.family,
        "title": spec.title,
        "equation": spec.equation,
        "source": spec.source,
        "config": config,
        "arguments": {
            p.name: "required" if p.default is p.empty else repr(p.default) for p in parameters
        },
        "claims": {key: spec.claim(key, config) for key in PROPERTIES} | moot,
        "reasons": {**dict.fromkeys(RECORDED, "read from a recorded race"), **spec.reasons}
        | dict.fromkeys(moot, "one axis"),
        "variants": {
            key: {"config": dict(v.config), "claims": dict(v.claims), "reason": v.reason}
            for key, v in spec.variants.items()
        },
        "spectrum": None if spectrum is None else _spectrum(spectrum),
    }


def _spectrum(spectrum: Any) -> dict[str, Any]:
    columns = zip(*spectrum.matrices[0], strict=True)
    return {
        "axes": spectrum.axes,
        "pairs": spectrum.pairs,
        "rotary_dim": spectrum.rotary_dim,
        "head_dim": spectrum.head_dim,
        "layout": spectrum.layout,
        "attention_factor": spectrum.attention_factor,
        "unit": spectrum.unit,
        "freqs": [list(row) for row in spectrum.matrices[0]],
        "wavelengths": [_wavelength(column, spectrum.unit) for column in columns],
    }


def _wavelength(column: tuple[float, ...], unit: float) -> float | None:
    """Positions for a whole turn along the fastest axis of a pair; None if it never turns."""
    fastest = max(abs(f) for f in column)
    return 2 * math.pi / (fastest * unit) if fastest else None


def _draw(document: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from ropewalk.cli.scorecard import WORDS

    out = console()
    out.print(Text(f"{document['name']} — {document['title']}", style="bold"))
    out.print(Text(f"{document['family']}; {document['source']}"))
    if document["equation"]:
        out.print(Text(document["equation"], style="italic"))
    arguments = ", ".join(
        name if default == "required" else f"{name}={default}"
        for name, default in document["arguments"].items()
    )
    out.print(Text(f"arguments: {arguments}"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("property", "claimed", "why"):
        table.add_column(heading, overflow="fold")
    for key, claim in document["claims"].items():
        table.add_row(key, WORDS[claim], document["reasons"].get(key, ""))
    out.print(table)
    for key, variant in document["variants"].items():
        change = ", ".join(f"{k}={v}" for k, v in variant["config"].items())
        claims = ", ".join(f"{k}: {WORDS[v]}" for k, v in variant["claims"].items())
        out.print(Text(f"variant {key} ({change}): {claims or 'the same claims'}"))
    spectrum = document["spectrum"]
    if spectrum:
        lengths = [w for w in spectrum["wavelengths"] if w is not None]
        still = len(spectrum["wavelengths"]) - len(lengths)
        ends = f"{number(min(lengths))} … {number(max(lengths))}" if lengths else "none"
        out.print(
            Text(
                f"spectrum: {spectrum['pairs']} pairs, axes: {spectrum['axes']}, wavelengths"
                f" {ends} positions, {still} standing still"
            )
        )
    figure = document.get("figure")
    if figure:
        out.print(Text(f"figure in {figure['file']}: {figure['caption']}"))
