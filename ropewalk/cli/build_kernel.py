"""``ropewalk build-kernel``: compile the C++ kernel into this installation."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ropewalk.cli.output import print_json


def build_kernel(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Compile the C++ kernel for rotations on the CPU; needs a C++ compiler and nothing else.

    Exit status 1: it was compiled and does not load here.
    """
    from ropewalk.kernels.build import build
    from ropewalk.kernels.native import kernel

    path = build()
    found = kernel()
    if as_json:
        print_json({"library": str(path), "kernel": found.name})
    else:
        print(f"{path}\nkernel: {found.name}")
    unused = os.environ.get("ROPEWALK_KERNEL") in ("pytorch", "reference")
    if not found.compiled and not unused:
        raise typer.Exit(1)
