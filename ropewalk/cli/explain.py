"""``ropewalk explain CONFIG``: what a config does to position, and what is wrong with it."""

from __future__ import annotations

from typing import Annotated

import typer

from ropewalk.cli.explained import answer

ENGINE_NAMES = "transformers4, transformers5, vllm, llama.cpp or mlx"
CONFIG_HELP = "A config.json, params.json or GGUF file, a model folder, or - for standard input."


def explain(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help=CONFIG_HELP)],
    overrides: Annotated[
        str | None,
        typer.Option("--hf-overrides", metavar="JSON", help="Keys laid over it, as in vLLM."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="ENGINE", help=f"What it would read: {ENGINE_NAMES}."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Say what each layer of a model does with position, where every number comes from, and what
    to fix. Exit status 1 if a finding is an error."""
    return answer(config, overrides, engine, as_json)
