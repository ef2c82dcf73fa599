"""``ropewalk bench``: rotation against copying the same bytes and its peers; and attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from ropewalk.cli.bench_attend import attend
from ropewalk.cli.output import FINE, NO, console, print_json
from ropewalk.cli.progress import bar

bench = typer.Typer(
    help="Measure: every figure a ratio taken in one run, behind a check that the result is right.",
    epilog="Example: ropewalk bench rotate --shape 1,32,4096,128 --threads 1 --json",
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@bench.callback()
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


bench.command("attend", epilog="Example: ropewalk bench attend alibi --tokens 4096 --json")(attend)


@bench.command(
    "rotate", epilog="Example: ropewalk bench rotate --dtype bfloat16 --mode out --threads 1"
)
def rotate(
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="B,H,T,D",
            help="Repeatable; 1,32,4096,128 and 1,32,128,128 unless given.",
        ),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(help="float32 and bfloat16 unless given; also float16, float64."),
    ] = None,
    layout: Annotated[
        list[str] | None,
        typer.Option(help="half, interleaved, partial or axes; all of them if --mode is given."),
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            help="fresh, out, in-place, forward+backward, decode or decode-in-place; all of them "
            "if --layout is given. With neither: half in every mode, "
            "and other layouts with out for the first shape and dtype."
        ),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="transformers, transformers-compiled, complex, addcmul, onnxruntime, mlx, jax, "
            "rotary-embedding-torch, torchtune, or none; every one that is installed unless given."
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Of every library; PyTorch's own number unless given.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="In which the forms take turns.")] = 31,
    processes: Annotated[int, typer.Option(help="Measured one after the other.")] = 1,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Slow forms sit no round out, three processes at least: hours, not minutes.",
        ),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small shape and few rounds: does it run?")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Rotate in every mode; exit 1 if ropewalk's own result is wrong anywhere.

    The time of copying the same bytes is 1. Every form takes its turn in every round, and the
    figures are medians of ratios within a round; a form that is very slow sits some out.
    """
    from ropewalk.bench.processes import in_processes

    plan = _plan(shape, dtype, layout, mode, peer, threads, rounds, full=full, quick=quick)
    with bar("rotating") as told:
        document = in_processes(plan, max(processes, 3) if full else processes, told)
    if as_json:
        print_json(document)
    else:
        _draw(document)
    ours = [row for row in document["rows"] if row["form"] == "ropewalk"]
    return FINE if all(row["verdict"] == "right" for row in ours) else NO


def _plan(
    shape: list[str] | None,
    dtype: list[str] | None,
    layout: list[str] | None,
    mode: list[str] | None,
    peer: list[str] | None,
    threads: int | None,
    rounds: int,
    *,
    full: bool,
    quick: bool,
) -> Any:
    from ropewalk.bench.cases import SHAPES, USUAL_DTYPES, require_known, shape_of
    from ropewalk.bench.peers import PEERS
    from ropewalk.bench.rotate import Plan
    from ropewalk.bench.timing import LEAST_ROUNDS, Effort

    if rounds < LEAST_ROUNDS:
        raise ValueError(f"--rounds {rounds} is too few for a median; use at least {LEAST_ROUNDS}")
    if threads is not None and threads < 1:
        raise ValueError(f"--threads {threads} must be at least 1")
    peers = list(PEERS) if peer is None else peer
    if peers == ["none"]:
        peers = []
    for name in peers:
        require_known("peer", name, [*PEERS, "none"])
    if "none" in peers:
        raise ValueError("--peer none stands alone")
    usual = ("transformers", "addcmul") if peer is None else tuple(peers)
    effort = Effort(rounds, None) if full else Effort(rounds)
    return Plan(
        tuple(shape_of(text) for text in shape)
        if shape
        else (((1, 4, 16, 64),) if quick else SHAPES),
        tuple(dtype or USUAL_DTYPES),
        tuple(layout) if layout else None,
        tuple(mode) if mode else None,
        usual if quick else tuple(peers),
        threads,
        Effort(5, 0.01, 20e-6) if quick else effort,
    )


# --- drawing -------------------------------------------------------------------------------------

KEYS = ("shape", "dtype", "layout", "mode")
"""What tells the rows of a table apart."""


def _draw(document: dict[str, Any]) -> None:
    from rich.text import Text

    out = console()
    threads = document["threads"]
    out.print(
        Text(
            f"kernel: {document['kernel']}; torch {document['torch']}; "
            f"{threads} thread{'s' if threads > 1 else ''}, {document['rounds']} rounds, "
            f"{document['processes']} process{'es' if document['processes'] > 1 else ''}"
        )
    )
    forms = list(dict.fromkeys(row["form"] for row in document["rows"]))
    for place, table in enumerate(
        _ratios(document["rows"], [form for form in forms if form != "copy"], out.width)
    ):
        out.print(*([""] if place else []), table, sep="\n")
    out.print(
        Text(
            "ropewalk: time ÷ copying the same bytes. Peers: time ÷ ropewalk's, above 1 is slower. "
            "~ noisy; * a fresh result copied to its place; wrong: refused by the check; "
            "– not offered.",
            style="dim",
        )
    )
    out.print(_errors(document))


def _ratios(rows: list[dict[str, Any]], forms: list[str], width: int) -> Iterator[Any]:
    """Every case a row, every form a column; as many tables beneath each other as it takes."""
    from rich.table import Table

    cases: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        key = ("×".join(map(str, row["shape"])), row["dtype"], row["layout"], row["mode"])
        cases.setdefault(key, {})[row["form"]] = _cell(row)
    columns = {
        form: (form.replace("-", "-\n"), [found[form] for found in cases.values()])
        for form in forms
    }
    keys = [_widest(column) for column in zip(KEYS, *cases, strict=True)]
    room = width - sum(keys) - len(keys)
    for block in _blocks({f: _widest([h, *cells]) for f, (h, cells) in columns.items()}, room):
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for heading in KEYS:
            table.add_column(heading, no_wrap=True)
        for form in block:
            table.add_column(columns[form][0], justify="right", overflow="fold", min_width=5)
        for key, found in cases.items():
            table.add_row(*key, *(found[form] for form in block))
        yield table


def _widest(cells: Iterable[str]) -> int:
    return max(len(line) for cell in cells for line in cell.split("\n"))


def _blocks(widths: dict[str, int], room: int) -> Iterator[list[str]]:
    """Columns in their order, as many at a time as there is room for, and one at least."""
    block: list[str] = []
    used = -1
    for name, width in widths.items():
        if block and used + 1 + width > room:
            yield block
            block, used = [], -1
        block.append(name)
        used += 1 + width
    if block:
        yield block


def _cell(row: dict[str, Any]) -> str:
    ratio = row["ratio_to_copy" if row["form"] == "ropewalk" else "ratio_to_ropewalk"]
    if ratio is None:
        return "wrong" if row["verdict"] == "wrong" else "–"
    digits = f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.0f}"
    return digits + ("*" if row["copies"] else "") + ("~" if row["noisy"] else "")


def _errors(document: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    dtypes = list(dict.fromkeys(row["dtype"] for row in document["rows"]))
    table.add_column("form", no_wrap=True)
    for dtype in dtypes:
        table.add_column(f"{dtype}:\nerror", justify="right", no_wrap=True)
        table.add_column("at\n131,071", justify="right", no_wrap=True)
    table.add_column("angles")
    table.add_column("version\nor why not", overflow="fold", min_width=10)
    peers = {"ropewalk": {"status": "installed", "version": "", "angles": "its own"}}
    for name, peer in {**peers, **document["peers"]}.items():
        mine = [row for row in document["rows"] if row["form"] == name]
        cells = []
        for dtype in dtypes:
            for key in ("error", "error_at_131071"):
                values = [r[key] for r in mine if r["dtype"] == dtype and r[key] is not None]
                cells.append(f"{max(values):.1e}" if values else "–")
        here = peer["status"] == "installed"
        version = (peer["version"] or "") if here else peer["status"]
        table.add_row(name, *cells, peer["angles"] if here else "", version)
    return table
