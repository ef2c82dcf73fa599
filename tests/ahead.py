"""Compile the Triton kernels for a GPU that need not be there, and say what the machine code uses.

    python tests/ahead.py CAPABILITY        # 80 or 90; prints one JSON list

A process of its own, since in a process whose kernels are interpreted nothing can be compiled.
Registers and stack are read from the cubin by cuobjdump and spills counted in nvdisasm's listing,
both of which come with Triton.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ropewalk.kernels.gpu import prepare
from ropewalk.kernels.gpu.job import Launch
from ropewalk.kernels.gpu.launch import kernels
from ropewalk.kernels.gpu.meta import Lanes, Meta, Operand
from ropewalk.kernels.gpu.plan import Plan
from ropewalk.kernels.gpu.prepare_pages import pages_launch

DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
LAYOUTS = ("half", "interleaved")
PROCESSORS = 132


@dataclass(frozen=True)
class Case:
    """One launch; q, and k where there is one, are [batch, heads, tokens, head_dim].

    Into pages go q without its batch, and as values k.
    """

    dtype: str
    layout: str = "half"
    kernel: str = "phases"
    q: tuple[int, ...] = (2, 32, 4096, 128)
    k: tuple[int, ...] | None = None
    rotary_dim: int | None = None
    axes: int = 1
    spectrum_heads: int = 1
    token_major: bool = False
    slots: str = "int64"
    cut: Plan | None = None


def cases() -> Iterator[Case]:
    """Every dtype × layout × source of angles, then other block sizes, options and kernels."""
    for dtype in DTYPES:
        for layout in LAYOUTS:
            yield Case(dtype, layout, k=(2, 8, 4096, 128))
            yield Case(dtype, layout, "tables", k=(2, 8, 4096, 128))
    for dtype in ("bfloat16", "float32"):
        yield Case(dtype, q=(1, 32, 1, 128), k=(1, 8, 1, 128))
    yield Case("float32", "interleaved", q=(1, 16, 512, 1024))
    yield Case("bfloat16", q=(8, 128, 1024, 192), rotary_dim=64, token_major=True)
    yield Case("float32", q=(1, 12, 300, 80), axes=3, spectrum_heads=12)
    yield Case("bfloat16", "interleaved", q=(1, 8, 70000, 2))
    for dtype, layout in FEW:
        yield Case(dtype, layout, "normed", k=(2, 8, 4096, 128))
        yield Case(dtype, layout, "pages", (1, 8, 4096, 128), (1, 8, 4096, 128))
    yield Case("bfloat16", kernel="normed", q=(1, 32, 1, 128), k=(1, 8, 1, 128))
    yield Case("float32", "interleaved", "normed", (1, 16, 512, 1024))
    for dtype in ("bfloat16", "float32"):
        yield Case(dtype, kernel="normed", q=(1, 64, 4096, 256), k=(1, 4, 4096, 256), rotary_dim=64)
    yield Case(
        "bfloat16", "half", "pages", (1, 8, 64, 192), (1, 2, 64, 80), rotary_dim=64, slots="int32"
    )


FEW = (
    ("bfloat16", "half"),
    ("bfloat16", "interleaved"),
    ("float32", "half"),
    ("float64", "half"),
)
"""Of dtypes and layouts, where all of them would take the tests too long."""

TOO_MUCH = Case("float32", cut=Plan(block_rows=64, block_pairs=64, shares=1, warps=1))
"""128 values of each half a thread, and their sin and cos: more than a thread has registers."""


def launch_of(case: Case) -> tuple[Launch, list[Any]]:
    """What the launcher would run, and with which pointers and factors."""
    tokens, head_dim = case.q[-2:]
    pairs = (case.rotary_dim or head_dim) // 2
    lanes = Lanes(0, pairs, 1, False) if case.layout == "half" else Lanes(0, 1, 2, False)
    made, arguments = FORMS[case.kernel](case, tokens, pairs, lanes)
    assert made is not None
    return made, arguments


def _by_phases(case: Case, tokens: int, pairs: int, lanes: Lanes) -> tuple[Launch | None, list]:
    operands, pointers = _operands(case)
    metas, angles = _angles(case, tokens, pairs)
    made = prepare.phases_launch(operands, *metas, lanes, case.cut)
    return made, [*pointers, *angles]


def _by_tables(case: Case, tokens: int, pairs: int, lanes: Lanes) -> tuple[Launch | None, list]:
    operands, pointers = _operands(case)
    wide = torch.float64 if case.dtype == "float64" else torch.float32
    table = torch.empty(tokens, pairs, dtype=wide)
    made = prepare.tables_launch(operands, Meta.of(table), Meta.of(table), lanes, case.cut)
    return made, [*pointers, table, table]


def _normed(case: Case, tokens: int, pairs: int, lanes: Lanes) -> tuple[Launch | None, list]:
    operands, pointers = _operands(case)
    metas, angles = _angles(case, tokens, pairs)
    weight = torch.empty(case.q[-1], dtype=getattr(torch, case.dtype))
    weights = [Meta.of(weight)] * len(operands)
    made = prepare.normed_launch(operands, weights, *metas, lanes, case.cut)
    return made, [*pointers, weight, weight if case.k else None, 1e-6, *angles]


def _into_pages(case: Case, tokens: int, pairs: int, lanes: Lanes) -> tuple[Launch | None, list]:
    metas, angles = _angles(case, tokens, pairs)
    tensors = []
    for shape in (case.q, case.k):
        assert shape is not None
        x = _tensor(case, shape)[0]
        tensors.append((x, torch.empty(99, 16, shape[1], shape[3], dtype=x.dtype)))
    (k, pages), (v, v_pages) = tensors
    slots = torch.empty(tokens, dtype=getattr(torch, case.slots))
    (at, rates), of = metas, [Meta.of(t) for t in (k, v, pages, v_pages, slots)]
    made = pages_launch(*of, positions=at, steps=rates, lanes=lanes, cut=case.cut)
    return made, [k, pages, v, v_pages, slots, *angles]


FORMS = {"phases": _by_phases, "tables": _by_tables, "normed": _normed, "pages": _into_pages}


def _operands(case: Case) -> tuple[list[Operand], list[torch.Tensor | None]]:
    """q, and k or None: what is known of them, and each twice, as x and as out."""
    operands, pointers = [], []
    for shape in (case.q, case.k):
        tensor = _tensor(case, shape) if shape else None
        pointers += [tensor, tensor]
        if tensor is not None:
            operands.append(Operand.of(tensor, tensor)._replace(in_place=False))
    return operands, pointers


def _angles(case: Case, tokens: int, pairs: int) -> tuple[tuple[Meta, Meta], list[Any]]:
    places = torch.empty((tokens, case.axes)[: 1 + (case.axes > 1)], dtype=torch.int64)
    own = (case.spectrum_heads,) if case.spectrum_heads > 1 else ()
    steps = torch.empty((*own, case.axes, pairs), dtype=torch.int64)
    return (Meta.of(places), Meta.of(steps)), [places, 0, steps, 1.0, 1.0]


def _tensor(case: Case, shape: tuple[int, ...]) -> torch.Tensor:
    """Of the shape and strides of the case, on hardly any memory: only its outside is looked at."""
    _, heads, tokens, head_dim = shape
    strides = (heads * tokens * head_dim, tokens * head_dim, head_dim, 1)
    if case.token_major:
        strides = (tokens * heads * head_dim, head_dim, heads * head_dim, 1)
    size = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
    memory = torch.empty(size, dtype=getattr(torch, case.dtype))
    return memory.as_strided(shape, strides)


def compiled(case: Case, capability: int) -> dict[str, Any]:
    """The case in machine code: registers, bytes of stack, spilling instructions, instructions."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import create_function_from_signature

    launch, arguments = launch_of(case)
    kernel = getattr(kernels(), launch.kernel)
    target = GPUTarget("cuda", capability, 32)
    backend = make_backend(target)
    options = {"num_warps": launch.job.cut.warps, "enable_fp_fusion": True}
    # As at a launch: types, constants and alignments are read off the arguments.
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, special, rest = bind(*arguments, *launch.numbers, **options)
    parsed, signature, constants, facts = kernel._pack_args(backend, options, bound, special, rest)
    source = ASTSource(kernel, signature, constants, facts)
    made = triton.compile(source, target=target, options=parsed.__dict__)
    return {**_use(made.asm["cubin"]), "case": asdict(case), "cut": launch.job.cut._asdict()}


def _use(cubin: bytes) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        report = _tool("cuobjdump", "-res-usage", file.name)
        listing = _tool("nvdisasm", "-c", file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+)", report)
    assert found is not None, report
    instructions = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9._]*)", listing)
    return {
        "registers": int(found[1]),
        "stack": int(found[2]),
        "spills": sum(i.split(".")[0] in ("LDL", "STL") for i in instructions),
        "instructions": sorted(set(instructions)),
    }


def _tool(name: str, *arguments: str) -> str:
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    command = [str(tools / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    prepare.processors = lambda device: PROCESSORS
    print(json.dumps([compiled(case, int(sys.argv[1])) for case in (*cases(), TOO_MUCH)]))
