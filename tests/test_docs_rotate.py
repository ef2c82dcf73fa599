"""The examples of docs/rotate.md run in order, and its table is that of the signatures."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import ropewalk

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "rotate.md").read_text("utf-8")
ROWS = re.findall(r"^\| `(\w+)\((.*?)\)` \| .* \| (yes|)\s*\|$", PAGE, re.M)
NAMES = ["rotate", "rotate_", "rotate_qk", "rotate_qk_", "rotate_by", "rotate_by_"]


def test_the_examples_run():
    torch.manual_seed(0)
    scope: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(block, scope)
    assert scope["layer"].spectrum.head_dim == 32
    assert scope["k_cache"][:, :, :12].all()
    assert not scope["k_cache"][:, :, 12:].any()


def test_every_function_is_told():
    assert [name for name, *_ in ROWS] == NAMES


@pytest.mark.parametrize(("name", "given", "out"), ROWS, ids=NAMES)
def test_the_table_tells_the_signatures(name, given, out):
    parameters = inspect.signature(getattr(ropewalk, name)).parameters
    assert ("out" in parameters) == bool(out)
    assert ("offset" in parameters) == ("positions" in given)
    assert "inverse" in parameters
    positional = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == given.split(", ")


@pytest.mark.parametrize("phases", ["integer", "float32"])
def test_q_and_k_of_different_tokens_are_refused(phases):
    rope = ropewalk.RoPE(8, phases=phases)
    q, k = torch.randn(1, 4, 1, 8), torch.randn(1, 2, 5, 8)
    for turn in (rope, lambda q, k, **at: ropewalk.rotate_qk(q, k, None, rope.spectrum, **at)):
        with pytest.raises(ValueError, match=r"1 tokens, and k"):
            turn(q, k, offset=3)


@pytest.mark.parametrize("name", ["rotate_", "rotate_by_"])
def test_a_leaf_is_not_changed_in_place(name):
    leaf, spectrum = torch.randn(1, 5, 8, requires_grad=True), ropewalk.spectra.geometric(8)
    tables = spectrum.tables(torch.arange(5)) if name == "rotate_by_" else (None, spectrum)
    with pytest.raises(ValueError, match="leaf"):
        getattr(ropewalk, name)(leaf, *tables)
