"""``ropewalk build-kernel``: compile the C++ kernel into this installation."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ropewalk.cli.output import print_json


def build_kernel(
    force: Annotated[
        bool, typer.Option("--force", help="Compile even where the same kernel is built already.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Compile the C++ kernel for rotations on the CPU; needs a C++ compiler and nothing else.

    A kernel of the same sources that is there and loads is left as it is. Exit status 1: it was
    compiled and does not load here.
    """
    from ropewalk.kernels.native import kernel

    there = None if force else _standing()
    path = _compiled(told=not as_json) if there is None else there
    found = kernel()
    if as_json:
        print_json({"library": str(path), "kernel": found.name, "compiled": there is None})
    else:
        print(f"{path}\nkernel: {found.name}")
    if there is not None and not as_json:
        print("built already, of the same sources; --force compiles it again", file=sys.stderr)
    if not found.compiled and not _unused():
        raise typer.Exit(1)


def _compiled(*, told: bool) -> Path:
    """The kernel, compiled now."""
    from ropewalk.kernels.build import build, compiler

    name = compiler()[0]
    if told:
        print(f"compiling with {name}: up to a minute or two", file=sys.stderr, flush=True)
    return build()


def _standing() -> Path | None:
    """The kernel that is built already; None where it is not, or does not load here."""
    from ropewalk.kernels.library import standing
    from ropewalk.kernels.native import kernel

    path = standing()
    if path is None:
        return None
    try:
        loads = kernel().compiled
    except ValueError:  # ROPEWALK_KERNEL insists on what does not load
        loads = False
    if loads or _unused():
        return path
    kernel.cache_clear()  # it is looked for again, once compiled
    return None


def _unused() -> bool:
    """Whether ROPEWALK_KERNEL leaves the kernel unused."""
    return os.environ.get("ROPEWALK_KERNEL") in ("pytorch", "reference")
