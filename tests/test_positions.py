"""Builders of positions, and what they refuse."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk import positions

pytestmark = pytest.mark.usefixtures("poisoned")


# Text.


def test_text_counts_from_the_offset():
    assert positions.text(3).tolist() == [0, 1, 2]
    assert positions.text(3, offset=7).tolist() == [7, 8, 9]
    assert positions.text(2, offset=-5).tolist() == [-5, -4]
    assert positions.text(0).shape == (0,)
    assert positions.text(4).dtype == torch.int64


def test_text_of_rows_with_offsets_of_their_own():
    starts = torch.tensor([0, 2**31 + 5, -3], dtype=torch.int64)
    rows = positions.text(2, offset=starts)
    assert rows.tolist() == [[0, 1], [2**31 + 5, 2**31 + 6], [-3, -2]]
    assert positions.text(2, offset=torch.tensor([1], dtype=torch.int32)).dtype == torch.int64
    assert positions.text(0, offset=starts).shape == (3, 0)


# Packed sequences.


def test_packed_restarts_in_every_sequence():
    assert positions.packed([0, 5, 9]).tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert positions.segments([0, 5, 9]).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_packed_takes_empty_sequences_and_none_at_all():
    assert positions.packed([0, 2, 2, 3]).tolist() == [0, 1, 0]
    assert positions.segments([0, 2, 2, 3]).tolist() == [0, 0, 2]
    assert positions.packed([0]).shape == positions.segments([0]).shape == (0,)
    assert positions.packed([0]).dtype == positions.segments([0]).dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_packed_takes_the_tensor_of_other_libraries(dtype):
    ends = torch.tensor([0, 5, 9], dtype=dtype)
    assert torch.equal(positions.packed(ends), positions.packed([0, 5, 9]))
    assert positions.segments(ends).dtype == torch.int64


@given(st.lists(st.integers(0, 9), max_size=8))
def test_packed_is_each_sequence_alone(lengths):
    ends = [0, *itertools.accumulate(lengths)]
    expected = [p for n in lengths for p in range(n)]
    owners = [i for i, n in enumerate(lengths) for _ in range(n)]
    assert positions.packed(ends).tolist() == expected
    assert positions.segments(ends).tolist() == owners


# Padding.


def test_left_padded_counts_real_tokens():
    assert positions.left_padded(torch.tensor([[0, 0, 1, 1, 1]])).tolist() == [[1, 1, 0, 1, 2]]
    assert positions.left_padded(torch.tensor([False, True, True])).tolist() == [1, 0, 1]
    assert positions.mask_segments(torch.tensor([[0, 1, 1]])).tolist() == [[-1, 0, 0]]


def test_lengths_five_and_four():
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1]])
    rows = positions.left_padded(mask)
    assert rows[0].tolist() == [0, 1, 2, 3, 4]
    assert rows[1, 1:].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64])
def test_masks_of_any_integer_dtype(dtype):
    mask = torch.tensor([[0, 1, 0, 1]]).to(dtype)
    assert positions.left_padded(mask).tolist() == [[1, 0, 1, 1]]
    assert positions.left_padded(mask).dtype == torch.int64
    assert positions.mask_segments(mask).tolist() == [[-1, 0, -1, 0]]


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=5))
def test_left_padded_is_the_place_among_real_tokens(rows):
    mask = torch.tensor(rows)
    found = positions.left_padded(mask).tolist()
    for row, line in zip(rows, found, strict=True):
        assert line == [sum(row[:t]) if real else 1 for t, real in enumerate(row)]
    owners = positions.mask_segments(mask).tolist()
    assert owners == [[0 if real else -1 for real in row] for row in rows]


# Grids.


def test_grid_runs_row_by_row():
    assert positions.grid(2, 3).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert positions.grid(4).tolist() == [[0], [1], [2], [3]]
    assert positions.grid(2, 1, 2).tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]]
    assert positions.grid(3, 0).shape == (0, 2)
    assert positions.grid(2, 2).dtype == torch.int64


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_grid_is_the_product_in_order(sizes):
    expected = [list(place) for place in itertools.product(*map(range, sizes))]
    found = positions.grid(*sizes)
    assert found.shape == (math.prod(sizes), len(sizes))
    assert found.tolist() == expected


# Fractional coordinates.


def test_fixed_is_the_nearest_multiple_of_the_unit():
    x = torch.tensor([0.0, 0.25, -0.25, 0.3], dtype=torch.float64)
    assert positions.fixed(x, 0.125).tolist() == [0, 2, -2, 2]
    assert positions.fixed(x.float(), 2**-20)[3].item() == round(float(x[3].float()) * 2**20)
    assert positions.fixed(torch.zeros(2, 0, 3), 1.0).shape == (2, 0, 3)


@given(
    st.floats(-1e6, 1e6),
    st.integers(-20, 0),
    st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_fixed_is_off_by_half_a_unit_at_most(value, exponent, dtype):
    x, unit = torch.tensor([value]).to(dtype), 2.0**exponent
    place = positions.fixed(x, unit)
    assert place.dtype == torch.int64
    assert abs(place.item() * unit - x.double().item()) <= unit / 2


# Refusals.

loose: Any = positions
"""The same, without the types that forbid most of this."""

REFUSED = [
    (lambda: loose.text(-1), "tokens=-1 must be at least 0"),
    (lambda: loose.text(2.0), "tokens=2.0 must be an int"),
    (lambda: loose.text(True), "tokens=True must be an int"),
    (lambda: loose.text(2, offset=1.5), "offset=1.5 must be an int or an integer tensor"),
    (lambda: loose.text(2, offset=torch.ones(2)), "offset has dtype torch.float32 and shape"),
    (lambda: loose.text(2, offset=torch.tensor([[1]])), "and shape (1, 1); use an int or"),
    (lambda: loose.packed([5, 9]), "cu_seqlens=[5, 9] must start at 0 and never fall"),
    (lambda: loose.packed([0, 5, 3]), "lengths [5, 4] are written [0, 5, 9]"),
    (lambda: loose.segments([0, 5, 3]), "cu_seqlens=[0, 5, 3] must start at 0"),
    (lambda: loose.packed(torch.zeros(0).long()), "cu_seqlens=[] must start at 0"),
    (lambda: loose.packed([0.0, 5.0]), "cu_seqlens has dtype torch.float32"),
    (lambda: loose.packed([[0, 5]]), "and shape (1, 2); it must be a one-dimensional list"),
    (lambda: loose.packed(torch.tensor([False, True])), "cu_seqlens has dtype torch.bool"),
    (lambda: loose.left_padded([[0, 1]]), "with 1 at real tokens, got list"),
    (lambda: loose.left_padded(torch.ones(2, 2)), "got dtype torch.float32"),
    (lambda: loose.left_padded(torch.tensor([0, 2])), "values other than 0 and 1"),
    (lambda: loose.mask_segments(torch.tensor(1)), "mask must be a boolean or integer tensor"),
    (lambda: loose.grid(), "grid needs at least one size"),
    (lambda: loose.grid(2, -1), "size=-1 must be at least 0"),
    (lambda: loose.grid(2, 1.0), "size=1.0 must be an int"),
    (lambda: loose.fixed(torch.ones(2), 0), "unit=0 must be a finite number above 0"),
    (lambda: loose.fixed(torch.ones(2), math.inf), "unit=inf must be a finite number"),
    (lambda: loose.fixed(torch.ones(2).long(), 1.0), "integers are positions already"),
    (lambda: loose.fixed(torch.tensor([math.nan]), 1.0), "coordinates hold nan or inf"),
    (lambda: loose.fixed(torch.tensor([1e30]), 1.0), "passes 2**53; use a larger unit"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[m[:36] for _, m in REFUSED])
def test_what_is_refused_is_named(call, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        call()
