"""``ropewalk build-kernel``: compile the C++ kernel into this installation."""

from __future__ import annotations

from typing import Annotated

import typer

from ropewalk.cli.output import print_json


def build_kernel(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Compile the C++ kernel for rotations on the CPU; needs a C++ compiler and nothing else."""
    from ropewalk.kernels import active
    from ropewalk.kernels.build import build

    path = build()
    if as_json:
        print_json({"library": str(path), "kernel": active()})
    else:
        print(f"{path}\nkernel: {active()}")
