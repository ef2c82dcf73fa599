"""Two processes: sharded rotations equal whole ones, and models train as one process does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.multiprocessing.spawn import spawn

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 150

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this PyTorch is built without gloo", allow_module_level=True)

from two_processes import CHECKS, run  # noqa: E402 (it needs torch.distributed)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> list[dict[str, str]]:
    """What went wrong in each check, by rank; both processes run once for all tests."""
    folder = tmp_path_factory.mktemp("ranks")
    workers = spawn(run, (str(folder),), nprocs=2, join=False)
    assert workers is not None
    end = time.monotonic() + SECONDS
    while not workers.join(timeout=1):
        if time.monotonic() > end:
            for process in workers.processes:
                if process is not None:
                    process.kill()
            pytest.fail(f"the two processes did not end within {SECONDS} s")
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("name", CHECKS)
def test_two_processes(name, results):
    for rank, found in enumerate(results):
        assert found[name] == "", f"rank {rank}:\n{found[name]}"


def test_without_distributed_nothing_of_it_is_loaded():
    code = (
        "import sys, torch, ropewalk\n"
        "x = torch.randn(1, 2, 5, 8, requires_grad=True)\n"
        "ropewalk.rotate(x, None, ropewalk.spectra.geometric(8)).sum().backward()\n"
        "assert not torch.distributed.is_initialized()\n"
        "print([m for m in sys.modules if m.startswith('torch.distributed.tensor')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr
