"""The examples run under torchrun, say that they equal one process, and fail where they do not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
SECONDS = 240
LIMIT = 1e-12

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this PyTorch is built without gloo", allow_module_level=True)


def launched(script: Path, processes: int) -> tuple[int, str, str]:
    """Exit status, output and errors, from a torchrun with a rendezvous of its own."""
    running = subprocess.Popen(
        [*LAUNCH, str(processes), str(script)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = running.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        running.terminate()  # it ends its workers
        out, err = running.communicate(timeout=SECONDS)
        pytest.fail(f"{script.name} did not end within {SECONDS} s\n{out}\n{err}")
    return running.returncode, out, err


def told(out: str, name: str, processes: int) -> float:
    """The error in the one line that an example prints."""
    (line,) = out.splitlines()
    assert line.startswith(f"{name} processes={processes}: ")
    (error,) = re.findall(r"differs? from one process by (\S+)$", line)
    return float(error)


def test_there_are_examples():
    names = {path.stem for path in EXAMPLES}
    assert names == {"context_parallel", "fsdp2", "tensor_parallel"}


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_equals_one_process(script):
    status, out, err = launched(script, 2)
    assert status == 0, err
    assert told(out, script.stem, 2) <= LIMIT


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_how_to_run_it(script):
    text = script.read_text(encoding="utf-8")
    assert f"    torchrun --nproc-per-node 2 examples/{script.name}\n" in text.split('"""')[1]
    assert len(text.splitlines()) <= 120


def test_positions_that_start_at_zero_on_every_process_are_seen(tmp_path):
    text = (ROOT / "examples" / "context_parallel.py").read_text(encoding="utf-8")
    wrong = text.replace("self.rope(q, k, share.positions)", "self.rope(q, k)")
    assert wrong != text
    planted = tmp_path / "context_parallel.py"
    planted.write_text(wrong, encoding="utf-8")
    status, out, err = launched(planted, 2)
    assert status == 1, err
    assert told(out, "context_parallel", 2) > 1e-3


def test_the_docs_page_quotes_the_examples():
    """Every line of code in docs/distributed.md stands in the example of its section."""
    page = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
    for script in EXAMPLES:
        assert f"examples/{script.name}" in page
    scripts = "\n".join(path.read_text(encoding="utf-8") for path in EXAMPLES)
    own = {line.strip() for line in scripts.splitlines()}
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(blocks) == len(EXAMPLES)
    for line in "\n".join(blocks).splitlines():
        assert line.strip() in own, line
