"""``ropewalk extend CONFIG --to N``: a plan for a longer context."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.explain import CONFIG_HELP
from ropewalk.cli.files import require_writable
from ropewalk.cli.files import write as write_file
from ropewalk.cli.output import block, console, number, print_json

if TYPE_CHECKING:
    from ropewalk.configs.extend import Plan

METHOD_NAMES = "yarn, ntk, linear, dynamic or longrope"


@dataclass(frozen=True)
class Wanted:
    """What ``extend`` was asked for, whether it plans or measures."""

    config: str
    to: int
    native: int | None
    html: Path | None
    write: Path | None
    as_json: bool


def extend(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help=CONFIG_HELP)],
    to: Annotated[int, typer.Option("--to", metavar="N", help="Tokens to reach.")],
    method: Annotated[
        str | None, typer.Option("--method", help=f"{METHOD_NAMES}; yarn if nothing is said.")
    ] = None,
    native: Annotated[
        int | None, typer.Option("--native", metavar="N", help="The trained length, if not stated.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a figure: wavelengths, or what was measured."
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="FILE", help="Write the changed config, whole."),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Run the model on text and give its loss by place for each method. CONFIG is then "
            "a model folder, a GGUF file, or `smollm2` (the packaged model).",
        ),
    ] = False,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            metavar="M,M",
            help="To measure, `yarn:4` for a factor that is given; yarn,ntk,linear if nothing is "
            "said.",
        ),
    ] = None,
    texts: Annotated[
        int | None, typer.Option("--texts", metavar="K", help="Packaged plays to read, 1 to 4; 3.")
    ] = None,
    text: Annotated[
        list[Path] | None,
        typer.Option("--text", metavar="FILE", help="Own text instead; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Plan a longer context: the changed config, the smallest factor that suffices, and what
    happens to short text; measured on the model itself, if asked."""
    for option, path, example in (("--html", html, "figure.html"), ("--write", write, "new.json")):
        if path is not None:
            require_writable(path, example, option)
    if html is not None and write is not None and html.resolve() == write.resolve():
        raise ValueError(f"--html and --write both name {html}; give each a file of its own")
    if write is not None and write.suffix != ".json":
        raise ValueError(f"--write {write} must end in .json: it is the whole config")
    wanted = Wanted(config, to, native, html, write, as_json)
    if measure:
        _refuse_both(method, methods)
        from ropewalk.cli.lengthened import measured

        measured(wanted, method if methods is None else methods, texts, text or [])
        return
    _require_measure(methods=methods, texts=texts, text=text)
    _planned(wanted, method or "yarn")


def _planned(wanted: Wanted, method: str) -> None:
    """From the config alone."""
    from ropewalk.configs import resolve
    from ropewalk.configs.extend import extend as plan
    from ropewalk.configs.sources import as_transformers

    found = plan(resolve(wanted.config), wanted.to, method, native=wanted.native)
    changed = None if wanted.write is None else changed_whole(as_transformers(wanted.config), found)
    if wanted.html is not None:
        from ropewalk.report.wavelengths import page

        write_file(wanted.html, page(found), "--html")
    if wanted.write is not None and changed is not None:
        write_file(wanted.write, changed, "--write")
    if wanted.as_json:
        print_json(found.as_dict())
    else:
        _draw(found)


def changed_whole(config: dict[str, Any], plan: Plan) -> str:
    """The whole config under a plan, as the text of a file."""
    from ropewalk.configs.emit import whole

    return json.dumps(whole(config, plan.config), indent=2, ensure_ascii=False) + "\n"


def _refuse_both(method: str | None, methods: str | None) -> None:
    if method is not None and methods is not None:
        raise ValueError(f"--method {method} and --methods {methods} say the same; give one")


def _require_measure(**given: object) -> None:
    for name, value in given.items():
        if value not in (None, []):
            raise ValueError(f"--{name} says what is measured; add --measure, or leave it out")


def _draw(plan: Plan) -> None:
    from rich.text import Text

    out = console()
    reach = f"{plan.native:,} → {plan.to:,} tokens"
    out.print(Text(f"{plan.method} ×{plan.factor:g}: {reach}", style="bold"))
    for told in plan.as_dict()["layers"]:
        _draw_layers(out, plan, told)
    same = [f"{key} {value:.7g}" for key, value in plan.equivalents().items()]
    for line in block("the same stretch in other words", same, out.width):
        out.print(line)
    for warning in plan.warnings:
        for line in block("note", warning.split(" "), out.width, " ", "yellow"):
            out.print(line)
    out.print(Text("write into the config:", style="bold"))
    print(compact(plan.changed()))


def _draw_layers(out: Any, plan: Plan, told: dict[str, Any]) -> None:
    """What changes in a group of layers, and how phases within the native length move."""
    from rich.table import Table

    from ropewalk.configs.resolved import ranges

    moved = [row for row in told["short_text"] if row["largest"]]
    factor = told["attention_factor"]["after"]
    words = [
        f"{told['pairs_below_one_turn']} of {len(told['pairs'])} pairs turn less than once in "
        f"{plan.native:,} tokens"
    ]
    words += [] if factor == 1 else [f"cos and sin × {factor:.5g}"]
    words += [] if moved else [f"texts up to {plan.native:,} tokens are read as before"]
    for line in block(f"layers {ranges(tuple(told['layers']))}", words, out.width):
        out.print(line)
    if not moved:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("  tokens apart", "largest change, rad", "pairs moved by > 0.1 rad"):
        table.add_column(heading, justify="right")
    for row in told["short_text"]:
        table.add_row(_short(row["distance"]), _short(row["largest"]), _short(row["pairs_moved"]))
    out.print(table)


def _short(value: float) -> str:
    """A number with a few digits, grouped where it is large."""
    if 1000 <= abs(value) < 1e12:
        return f"{value:,.0f}"
    return number(value)


def compact(value: Any, indent: int = 0) -> str:
    """JSON with one key a line and each list on one."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value)
    inner = " " * (indent + 2)
    items = [f"{inner}{json.dumps(key)}: {compact(v, indent + 2)}" for key, v in value.items()]
    return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"
