"""Rotations in children of every kind: a program whose output ``test_processes.py`` judges.

It prints one JSON line per case: the case, and the bits of its rotations or what became of it.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable

import torch
from torch.utils.data import DataLoader, Dataset

import ropewalk
from ropewalk.spectra import geometric

SHAPE = (1, 8, 1024, 64)
"""Large enough for two threads."""
PATIENCE = 60
"""Seconds after which a child is taken to hang."""


def bits(x: torch.Tensor) -> str:
    """A digest of the bytes of x."""
    return hashlib.sha256(x.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def rotated(seed: int) -> torch.Tensor:
    """A rotation of drawn numbers."""
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
    return ropewalk.rotate(x, None, geometric(SHAPE[-1]), offset=2**35)


def rotation(seed: int) -> str:
    """The bits of a rotation of drawn numbers."""
    return bits(rotated(seed))


def trained(seed: int) -> str:
    """The bits of a rotation's gradient."""
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    ropewalk.rotate(x, None, geometric(SHAPE[-1])).square().sum().backward()
    assert x.grad is not None
    return bits(x.grad)


def addition(seed: int) -> str:
    """The bits of an operation of PyTorch's own, of the same size."""
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
    return bits(x + x)


class Rotations(Dataset[torch.Tensor]):
    """Rotations made where the loader's worker is."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return rotated(index)


def in_fork(job: Callable[[int], str], threads: int | None, patience: float = PATIENCE) -> str:
    """What a forked child gives, ``"hangs"`` after ``patience`` seconds, or its exit status."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        if threads:
            torch.set_num_threads(threads)
        os.write(writing, job(0).encode())
        os._exit(0)
    os.close(writing)
    status = None
    end = time.monotonic() + patience
    while status is None and time.monotonic() < end:
        ended, code = os.waitpid(child, os.WNOHANG)
        status = code if ended else time.sleep(0.01)
    if status is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    return "hangs" if status is None else said if status == 0 else f"status {status}"


def tell(case: str, *values: object) -> None:
    """One line of output."""
    print(json.dumps([case, *values]), flush=True)


def main() -> None:
    """All cases, those before the first use of the thread pool first."""
    small = ropewalk.rotate(torch.ones(1, 1, 1, 64), None, geometric(64))
    tell("kernel", ropewalk.kernels.active(), torch.get_num_threads(), bits(small))
    if hasattr(os, "fork"):
        tell("fork, pool unused: addition", in_fork(addition, None))
        tell("fork, pool unused: rotation", in_fork(rotation, None))
        tell("fork, pool unused: trained", in_fork(trained, None))
    tell("here: addition", addition(0))
    tell("here: rotation", *map(rotation, range(4)))
    tell("here: trained", trained(0))
    if hasattr(os, "fork"):
        tell("fork, one thread: addition", in_fork(addition, 1))
        tell("fork, one thread: rotation", in_fork(rotation, 1))
        tell("fork, one thread: trained", in_fork(trained, 1))
        own = in_fork(addition, None, patience=4)
        tell("fork, many threads: addition", own)
        if own != "hangs":
            tell("fork, many threads: rotation", in_fork(rotation, None))
            tell("fork, many threads: trained", in_fork(trained, None))
    for kind in multiprocessing.get_all_start_methods():
        if kind != "fork":
            with multiprocessing.get_context(kind).Pool(1) as pool:
                tell(f"{kind}: rotation", *pool.map_async(rotation, range(4)).get(PATIENCE))
        loader = DataLoader(
            Rotations(),
            batch_size=None,
            num_workers=1,
            multiprocessing_context=kind,
            timeout=PATIENCE,
        )
        tell(f"{kind} loader: rotation", *(bits(x) for x in loader))
    tell("here again: rotation", *map(rotation, range(4)))


if __name__ == "__main__":
    main()
