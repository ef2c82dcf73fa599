"""Compiling a Triton launch for a GPU that need not be there, and what the machine code uses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime import jit

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


class Code(NamedTuple):
    """Machine code and what it uses: registers a thread, bytes of stack, that is of spills."""

    registers: int
    stack: int
    sass: str
    ptx: str
    ttgir: str

    @property
    def spills(self) -> int:
        """Instructions that read or write local memory, where spilled registers go."""
        return len(re.findall(r"\b(LDL|STL)\b", self.sass))


def compiled(kernel: Any, arguments: tuple[Any, ...], capability: int, warps: int) -> Code:
    """``kernel[...](*arguments, num_warps=warps)`` compiled for ``sm_<capability>``.

    The arguments become types and constants just as at a launch.
    """
    target = GPUTarget("cuda", capability, 32)
    backend = make_backend(target)
    options = {"num_warps": warps, "enable_fp_fusion": True}
    bind = jit.create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, rest = bind(*arguments, **options)
    parsed, signature, constants, attributes = kernel._pack_args(
        backend, options, bound, specialization, rest
    )
    source = ASTSource(kernel, signature, constants, attributes)
    made = triton.compile(source, target=target, options=parsed.__dict__)
    return inspected(made)


def inspected(made: Any) -> Code:
    """The resource report and disassembly of a cubin by the tools that Triton brings."""
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage = _tool("cuobjdump", "-res-usage", file.name)
        sass = _tool("nvdisasm", "-c", file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert found is not None, usage
    return Code(
        int(found[1]), int(found[2]), sass, made.asm["ptx"], made.asm["ttgir"]
    )


def _tool(name: str, *arguments: str) -> str:
    run = [str(TOOLS / name), *arguments]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout
