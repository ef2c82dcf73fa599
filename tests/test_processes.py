"""Rotations in children and in threads: the same bits everywhere, and no hang that is ours.

A forked child behaves as PyTorch's own operations on the CPU do, since the kernel runs on their
thread pool. With GNU OpenMP that pool does not survive a fork: once the parent has used it, a child
hangs in any large operation, ours or PyTorch's, unless it calls ``torch.set_num_threads(1)`` first,
as the workers of a DataLoader do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

import ropewalk
from ropewalk.kernels import native
from ropewalk.spectra import geometric

HERE = Path(__file__).resolve().parent
FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def program(*command: str | Path) -> str:
    """The output of a program of its own, which may not take long: a hang is a failure."""
    result = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        cwd=HERE,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "2",
            "PYTHONPATH": os.pathsep.join((str(HERE.parent), str(HERE))),
        },
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def said() -> dict[str, list[str]]:
    """What ``process_jobs.py`` tells, by case."""
    lines = [json.loads(line) for line in program("process_jobs.py").splitlines()]
    return {case: values for case, *values in lines}


def test_the_cases_run_on_the_kernel_and_two_threads(said):
    assert said["kernel"][:2] == [native.kernel().name, 2]


@FORK
@pytest.mark.parametrize("how", ["pool unused", "one thread", "many threads"])
@pytest.mark.parametrize("job", ["rotation", "trained"])
def test_a_forked_child_does_what_pytorch_itself_does_there(how, job, said):
    own, ours = said[f"fork, {how}: addition"], said.get(f"fork, {how}: {job}")
    if how == "many threads" and own == ["hangs"]:
        assert ours is None, "not even tried"
    else:
        assert own == said["here: addition"]
        assert ours == said[f"here: {job}"][:1]


def test_children_and_workers_of_every_kind_rotate_to_the_same_bits(said):
    children = {case: bits for case, bits in said.items() if case.endswith(": rotation")}
    found = {case: bits for case, bits in children.items() if not case.startswith("fork, ")}
    assert len(found) >= 2 + 2  # here, here again, a pool and a loader
    for case, bits in found.items():
        assert bits == said["here: rotation"], case


def together(jobs: int, work: Callable[[int], Tensor]) -> list[Tensor]:
    """``work`` of 0 … jobs − 1 by as many Python threads, all starting at once."""
    start = threading.Barrier(jobs)

    def job(index: int) -> Tensor:
        start.wait(60)
        return work(index)

    with ThreadPoolExecutor(jobs) as pool:
        return [future.result(60) for future in [pool.submit(job, i) for i in range(jobs)]]


def drawn(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(1, 2, 5, 32), (1, 8, 1024, 64), (2, 3, 257, 80)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_python_threads_rotate_side_by_side(shape, dtype):
    spectrum = geometric(shape[-1])
    apart = [drawn(shape, seed).to(dtype) for seed in range(8)]
    expected = [ropewalk.rotate(x, None, spectrum, offset=2**33) for x in apart]
    for _ in range(5):
        found = together(8, lambda i: ropewalk.rotate(apart[i], None, spectrum, offset=2**33))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        shared = together(8, lambda _: ropewalk.rotate(apart[0], None, spectrum, offset=2**33))
        assert all(torch.equal(a, expected[0]) for a in shared)


def test_python_threads_write_into_one_cache():
    """Each its own tokens of the same tensor, in place and by ``out=``."""
    spectrum, shape = geometric(64), (1, 4, 8 * 128, 64)
    x = drawn(shape, 0)
    expected = ropewalk.rotate(x, None, spectrum)
    cache, inside = torch.zeros(shape), x.clone()

    def part(i: int) -> Tensor:
        span = slice(128 * i, 128 * (i + 1))
        ropewalk.rotate_(inside[:, :, span], None, spectrum, offset=128 * i)
        return ropewalk.rotate(x[:, :, span], None, spectrum, offset=128 * i, out=cache[:, :, span])

    together(8, part)
    assert torch.equal(cache, expected)
    assert torch.equal(inside, expected)


def test_python_threads_train_side_by_side():
    spectrum, shape = geometric(64), (1, 8, 512, 64)

    def gradient(i: int) -> Tensor:
        x = drawn(shape, i).requires_grad_()
        y = ropewalk.rotate(x, None, spectrum)
        (found,) = torch.autograd.grad(y, x, drawn(shape, 100 + i))
        return found

    expected = [gradient(i) for i in range(8)]
    found = together(8, gradient)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_number_of_threads_changes_no_bit(threads):
    x, spectrum = drawn((3, 8, 700, 64), 1), geometric(64)
    expected = ropewalk.rotate(x, None, spectrum)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(ropewalk.rotate(x, None, spectrum), expected)
        found = together(3, lambda _: ropewalk.rotate(x, None, spectrum))
        assert all(torch.equal(y, expected) for y in found)
    finally:
        torch.set_num_threads(before)


FIRST = """
import threading, torch, ropewalk
torch.set_num_interop_threads(4)
x = torch.linspace(-3, 3, 8 * 1024 * 64).reshape(1, 8, 1024, 64)
spectrum, start, found = ropewalk.spectra.geometric(64), threading.Barrier(8), []
def first():
    start.wait(60)
    found.append(ropewalk.rotate(x, None, spectrum))
threads = [threading.Thread(target=first) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join(60)
assert len(found) == 8 and all(torch.equal(y, found[0]) for y in found)
print(ropewalk.kernels.active())
"""


def test_the_first_rotations_of_a_process_may_come_at_once():
    """The kernel is loaded by whichever thread is first."""
    assert program("-c", FIRST).strip() == native.kernel().name
