"""``ropewalk usage MODEL``: which pairs a trained model uses, and what it loses without them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.output import block, console, plain, print_json
from ropewalk.cli.settings import whole_numbers

if TYPE_CHECKING:
    from rich.table import Table

    from ropewalk.lab.trained.usage import Effect, Usage

ABOUT = (
    "Δ: change of the loss in nats a token, mean ± standard deviation over passages; * beyond the "
    "spread: the 95 % interval of the mean (Student's t) does not hold 0. p-RoPE: the fastest p of "
    "the pairs turn, the others are position-free. Wavelengths in tokens"
)


def usage(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A local folder with safetensors, a GGUF file, or `smollm2` (the packaged model).",
        ),
    ],
    lengths: Annotated[
        str, typer.Option("--lengths", metavar="N,N", help="Tokens of the passages.")
    ] = "512,4096",
    texts: Annotated[
        int, typer.Option("--texts", metavar="N", help="How many of the packaged plays to read.")
    ] = 3,
    text: Annotated[
        list[Path] | None,
        typer.Option("--text", metavar="FILE", help="A text of your own; may be repeated."),
    ] = None,
    bands: Annotated[
        int, typer.Option("--bands", metavar="K", help="Equal bands to take the pairs in.")
    ] = 4,
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="DTYPE", help="Of the weights, as in `audit`.")
    ] = "float32",
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with heat maps.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Norms of q and k by pair, layer and head; the loss when bands of pairs stop rotating or are
    zeroed, at each length; p-RoPE by truncation. Nothing is trained. Loads local files only. Takes
    minutes: 33 passes for each length with three texts and four bands."""
    chosen = _parsed(lengths)
    if bands < 1:
        raise ValueError(f"--bands {bands} must be 1 or more")
    from ropewalk.cli.files import require_writable, write

    if html is not None:
        require_writable(html, "usage.html", "--html")
    from ropewalk.cli.progress import bar
    from ropewalk.configs.packaged import located
    from ropewalk.lab.trained.passages import passages
    from ropewalk.lab.trained.usage import usage as measure
    from ropewalk.lab.trained.usage_document import document
    from ropewalk.models.loading import hushed, load, load_tokenizer

    path = located(model)
    tokenizer = load_tokenizer(path)
    read = {n: passages(tokenizer, n, count=texts, files=text or ()) for n in chosen}
    with hushed(), bar("usage") as told:
        found = measure(load(path, dtype), read, bands=bands, told=told)
    whole = {"source": model, "dtype": dtype, **document(found)}
    if html is not None:
        from ropewalk.report.usage import page

        write(html, page(whole), "--html")
    if as_json:
        print_json(whole)
    else:
        _draw(found, model)


def _parsed(text: str) -> list[int]:
    """Lengths, the shortest first."""
    found = sorted(whole_numbers(text, "--lengths", "512,4096"))
    from ropewalk.lab.trained.usage import LEAST

    if found[0] < LEAST:
        raise ValueError(f"--lengths {found[0]} is too short; the least is {LEAST} tokens")
    twice = next((a for a, b in pairwise(found) if a == b), None)
    if twice is not None:
        raise ValueError(f"--lengths names {twice} twice; name each length once")
    return found


def _draw(found: Usage, model: str) -> None:
    from rich.text import Text

    from ropewalk.lab.trained.usage_words import cautions, verdicts
    from ropewalk.report.named import named

    out = console()
    word = "passage" if len(found.texts) == 1 else "passages"
    passages = (
        f"{len(found.texts)} {word} of {' and '.join(f'{n:,}' for n in found.lengths)} tokens"
    )
    out.print(Text(f"{plain(named(model, found.model))}: {passages}", style="bold"))
    untouched = [f"{loss.mean:.3f} at {n:,}" for n, loss in sorted(found.untouched.items())]
    out.print(f"loss of the untouched model, nats a token: {', '.join(untouched)}")
    out.print(_bands(found))
    out.print(_truncated(found))
    out.print(Text(ABOUT, style="dim"))
    for caution in cautions(found):
        for line in block("note", caution.split(" "), out.width, " ", "yellow"):
            out.print(line)
    for verdict in verdicts(found):
        out.print(Text(verdict))


def _bands(found: Usage) -> Table:
    """Two rows for each band: what is changed when it stands still, and when it is zeroed."""
    from ropewalk.lab.trained.bands import FREE, ZEROED

    table = _table("pairs, wavelengths", "share", "", *(f"Δ at {n:,}" for n in found.lengths))
    cells = {(e.band, e.treatment, e.length): _change(e) for e in found.bands}
    for band in dict.fromkeys(effect.band for effect in found.bands):
        free, zeroed = ([cells[band, how, n] for n in found.lengths] for how in (FREE, ZEROED))
        table.add_row(band.name, _share(found, band), FREE, *free)
        table.add_row(f"  {_wavelengths(found, band)}", "", ZEROED, *zeroed)
    return table


def _truncated(found: Usage) -> Table:
    table = _table("p-RoPE", *(f"Δ at {n:,}" for n in found.lengths))
    cells = {(e.band, e.length): _change(e) for e in found.p_rope}
    for band in dict.fromkeys(effect.band for effect in found.p_rope):
        table.add_row(band.name, *(cells[band, n] for n in found.lengths))
    return table


def _table(*headings: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left")
    return table


def _change(effect: Effect) -> str:
    from ropewalk.lab.trained.usage_words import signed

    change = effect.change
    return f"{signed(change.mean)} ± {change.sd:.4f}{'*' if effect.beyond else ' '}"


def _wavelengths(found: Usage, band: Any) -> str:
    """From the shortest to the longest, in tokens."""
    own = [g.wavelengths[c] for g in found.groups for c in band.of(g.order)]
    low, high = (f"{w:,.3g}" if w < 1000 else f"{w:,.0f}" for w in (min(own), max(own)))
    return low if low == high else f"{low} – {high}"


def _share(found: Usage, band: Any) -> str:
    """Of ‖q‖‖k‖, averaged over layers."""
    groups = [g for g in found.groups if g.shares]
    layers = sum(len(g.layers) for g in groups)
    if not layers:
        return "–"
    own = [len(g.layers) * sum(g.shares[c].mean for c in band.of(g.order)) for g in groups]
    return f"{sum(own) / layers:.1%}"
