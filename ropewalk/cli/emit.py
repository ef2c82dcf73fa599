"""``ropewalk emit CONFIG --for TARGET``: the keys or flags that make a program do the same."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from ropewalk.cli.explain import CONFIG_HELP
from ropewalk.cli.output import print_json

NO_FLAGS = "no flags are needed: the GGUF file holds it all (its keys: --json)"
TARGET_NAMES = "transformers, transformers4, transformers5, vllm, llama.cpp or mlx"


def emit(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help=CONFIG_HELP)],
    target: Annotated[str, typer.Option("--for", metavar="TARGET", help=TARGET_NAMES)],
    whole: Annotated[
        bool, typer.Option("--whole", help="The whole config with its position keys replaced.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Write the position keys of a config as another program reads them. It refuses what that
    program cannot do."""
    from ropewalk.configs import resolve
    from ropewalk.configs.emit import emit as write
    from ropewalk.configs.emit import whole as merged
    from ropewalk.configs.sources import as_transformers

    if whole:
        source = as_transformers(config)
        print_json(merged(source, write(resolve(source), target)))
        return
    written = write(resolve(config), target)
    if as_json or "flags" not in written:
        print_json(written)
        return
    print(shlex.join(written["flags"]) or NO_FLAGS)
