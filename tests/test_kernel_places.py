"""The C++ kernel wherever out lies: addresses decide on the order of work, never on the result."""

from __future__ import annotations

import pytest
import torch
from test_kernel import DTYPES, drawn, needs_kernel, plain
from torch import Tensor

import ropewalk
from ropewalk.spectra import geometric


@needs_kernel
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "lanes", [{"layout": "half"}, {"layout": "interleaved"}, {"rotary_dim": 40}]
)
@pytest.mark.parametrize("head_bytes", [4096, 4096 - 64])
def test_wherever_out_lies_beyond_x(dtype, lanes, head_bytes):
    """Every place within a page, for heads that lie alike in it or not."""
    page, heads, tokens, width = 4096 // dtype.itemsize, 7, 5, 70
    head = head_bytes // dtype.itemsize
    memory = torch.full(((2 * heads + 1) * page,), 7.0, dtype=dtype)
    spectrum = geometric(width, **lanes)

    def at(place: int) -> Tensor:
        return memory.as_strided((heads, tokens, width), (head, width, 1), place)

    x, given = at(0), drawn((heads, tokens, width), dtype)
    x.copy_(given)
    expected = plain(given, torch.arange(tokens), spectrum)
    untouched = memory.clone()
    for beyond in range(page):
        out = at(heads * page + beyond)
        ropewalk.rotate(x, None, spectrum, out=out)
        assert torch.equal(out, expected), beyond
        out.fill_(7.0)
        assert torch.equal(memory, untouched), beyond
    for place in range(0, page, 16):
        memory.fill_(7.0)
        at(place).copy_(given)
        ropewalk.rotate_(at(place), None, spectrum)
        assert torch.equal(at(place), expected), place
        at(place).fill_(7.0)
        assert (memory == 7.0).all(), place


@needs_kernel
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_out_between_the_rows_of_x(dtype, layout):
    """Rows of x and of out take turns in one buffer, whose rows are a page or less apart."""
    spectrum, tokens = geometric(64, layout=layout), 4
    for apart in (64, 128, 1024, 2048):
        memory = torch.full((5, tokens, 2, apart), 7.0, dtype=dtype)
        x, out = memory[:, :, 0, :64], memory[:, :, 1, :64]
        x.copy_(given := drawn((5, tokens, 64), dtype))
        ropewalk.rotate(x, None, spectrum, out=out)
        assert torch.equal(x, given)
        assert torch.equal(out, plain(given, torch.arange(tokens), spectrum))
        assert (memory[..., 64:] == 7.0).all()
