"""``ropewalk convert IN OUT --to LAYOUT``: weights for programs that pair lanes in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.output import block, console, print_json

if TYPE_CHECKING:
    from ropewalk.models.conversion import Converted

IN_HELP = "A model folder, a safetensors file beside its config, an adapter's folder, or GGUF."


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help=IN_HELP)],
    out: Annotated[str, typer.Argument(metavar="OUT", help="A folder that does not exist.")],
    to: Annotated[str, typer.Option("--to", metavar="LAYOUT", help="half or interleaved.")],
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="LAYOUT", help="The layout of IN, if its config is wrong."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="CONFIG", help="The config that an adapter is for."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", help="From GGUF: float32, float16 or bfloat16 for all tensors."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Write a checkpoint whose q and k pair lanes in the other layout: (i, i + n) or (2i, 2i + 1).

    Written beside, read back and proved, then moved into place; IN is never touched. Safetensors
    keep their dtypes. Quantised tensors of a GGUF file become float32."""
    from ropewalk.cli.progress import bar
    from ropewalk.models import convert as run

    with bar("MiB written and read back") as progress:
        done = run(source, out, to=to, from_=from_, base=base, dtype=dtype, progress=progress)
    if as_json:
        print_json(done.as_dict())
    else:
        _draw(done)


def _draw(done: Converted) -> None:
    from rich.text import Text

    screen = console()
    screen.print(Text(f"{done.model_type or 'model'}: {done.was} → {done.to}", style="bold"))
    told: dict[str, list[str]] = {
        "written": [
            f"{done.out}",
            f"{done.tensors} of {done.of} tensors changed in {done.layers} layers ({done.dtype})",
            f"{done.size / 1e6:,.1f} MB of weights",
        ],
        "proved": _proofs(done),
        "the config says it": [done.recorded or "no key is needed: it is the layout of the class"],
        "for whom": done.consumers,
        "note": done.notes,
        "not copied": done.left,
    }
    for label, phrases in told.items():
        if phrases:
            for line in block(label, phrases, screen.width):
                screen.print(line)


def _proofs(done: Converted) -> list[str]:
    ran = {name: value for name, value in done.modules.items() if isinstance(value, float)}
    words: list[Any] = [
        f"{done.round_trip} tensors read back and turned back, equal byte for byte",
        f"scores on random inputs differ by {done.scores:.1e} at most",
    ]
    if ran:
        layers = ", ".join(ran)
        words.append(f"attention of transformers ({layers}) differs by {max(ran.values()):.1e}")
    left = [f"{name}: {value}" for name, value in done.modules.items() if isinstance(value, str)]
    return [*words, *(f"not run in transformers: {reason}" for reason in left)]
