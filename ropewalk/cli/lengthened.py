"""``ropewalk extend MODEL --to N --measure``: run each method on text and say what it does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.cli.extend import Wanted, changed_whole
from ropewalk.cli.files import write as write_file
from ropewalk.cli.output import console, plain, print_json

if TYPE_CHECKING:
    from ropewalk.configs.extend import Plan
    from ropewalk.lab.trained.curves import Curve, Lengthened

NOT_WRITTEN = ("quantization_config", "dtype", "transformers_version")
"""Keys that speak of how a GGUF file was read, not of the model."""
ABOUT = (
    "≈ not apart from the best: the 95 % interval of the difference over texts (Student's t) holds "
    "0; alone: these tokens as a short text, untouched; ± standard deviation over texts"
)


def measured(wanted: Wanted, methods: str | None, texts: int | None, files: Sequence[Path]) -> None:
    """Measure, draw, and write what was asked for.

    Raises:
        ValueError: the model, the texts or a method cannot be used.
    """
    if texts is not None and files:
        raise ValueError("--texts counts packaged plays and --text names own files; give one")
    from ropewalk.cli.progress import bar
    from ropewalk.configs import resolve
    from ropewalk.configs.packaged import located
    from ropewalk.lab.trained.lengths import DEFAULT, lengthened, plans
    from ropewalk.lab.trained.passages import COUNT, passages
    from ropewalk.models.loading import hushed, load, load_tokenizer, require_config

    source = located(wanted.config)
    require_config(source)  # what cannot be loaded is said as the other commands say it
    names = DEFAULT if methods is None else [name.strip() for name in methods.split(",")]
    found_plans = plans(resolve(source), wanted.to, names, wanted.native)
    tokenizer = load_tokenizer(source)
    read = passages(tokenizer, wanted.to, count=COUNT if texts is None else texts, files=files)
    with hushed(), bar("extend") as progress:
        model = load(source)
        found = lengthened(model, found_plans, read, told=progress)
    from ropewalk.report.lengthened import document, page

    chosen = found.chosen().plan
    if wanted.html is not None:
        write_file(wanted.html, page(found, wanted.config), "--html")
    if wanted.write is not None and chosen is not None:
        write_file(wanted.write, changed_whole(_config(source, model), chosen), "--write")
    if wanted.as_json:
        print_json(document(found, wanted.config))
    else:
        _draw(found, wanted, chosen)


def _config(source: str, model: Any) -> dict[str, Any]:
    """The whole config of a folder, or what transformers made of a GGUF file's keys."""
    from ropewalk.configs.sources import as_transformers

    if (Path(source) / "config.json").is_file():
        return as_transformers(source)
    config = json.loads(model.config.to_json_string())
    kept = {k: v for k, v in config.items() if k not in NOT_WRITTEN and not k.startswith("_")}
    return {**kept, "architectures": [type(model).__name__]}


def _draw(found: Lengthened, wanted: Wanted, chosen: Plan | None) -> None:
    from rich.text import Text

    from ropewalk.report.lengthened_words import verdicts
    from ropewalk.report.named import named

    out = console()
    name = plain(named(wanted.config, found.model))
    title = f"{name}: {found.native:,} → {found.to:,} tokens, loss in nats a token"
    out.print(Text(title, style="bold"))
    out.print(_table(found))
    out.print(Text(ABOUT, style="dim"))
    for line in verdicts(found):
        out.print(Text(f"· {line}"))
    if chosen is None:
        out.print(Text("nothing to write: the untouched model is as good", style="bold"))
    elif wanted.write is not None:
        out.print(Text(f"written: {plain(str(wanted.write))}, with {found.chosen().name}"))
    else:
        from ropewalk.cli.extend import compact

        out.print(Text(f"write into the config ({found.chosen().name}):", style="bold"))
        print(compact(chosen.changed()))


def _table(found: Lengthened) -> Any:
    """A row a bucket and a column a method; the best is bold, ``≈`` is not apart from it, ``–`` was
    refused."""
    from rich.table import Table
    from rich.text import Text

    from ropewalk.lab.trained.spread import spread
    from ropewalk.report.lengthened_words import NOTHING, cell, columns

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("tokens", justify="right")
    for name in columns(found):
        table.add_column(name, justify="right")
    table.add_column("alone", justify="right", style="dim")
    for place, bucket in enumerate(found.buckets()):
        name = f"{bucket.start:,}–{bucket.stop:,}"
        table.add_row(
            Text(name, style="" if bucket.start < found.native else "yellow"),
            *(_cell(cell(found, curve, place), curve, bucket.best) for curve in found.curves),
            *(Text(NOTHING, style="dim") for _ in found.refused),
            f"{spread(found.alone[place]).mean:.3f}",
        )
    return table


def _cell(words: str, curve: Curve, best: str) -> Any:
    from rich.text import Text

    return Text(words, style="bold green" if curve.name == best else "")
