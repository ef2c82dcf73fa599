"""Golden values of the additive encodings with axes, tables that are resized, random positions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

import ropewalk
from ropewalk import positions
from ropewalk.encodings.additive import Learned, Sinusoidal
from ropewalk.encodings.resize import resize_table

pytestmark = pytest.mark.usefixtures("poisoned")


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


# Sinusoidal along several axes.


def timm_order(height: int, width: int, dim: int) -> list[list[float]]:
    """timm's build_sincos2d_pos_embed, one number at a time: all sines, then all cosines."""
    bands = [10000.0 ** (-i / (dim // 4)) for i in range(dim // 4)]
    return [
        [turn(p * b) for turn in (math.sin, math.cos) for p in (y, x) for b in bands]
        for y in range(height)
        for x in range(width)
    ]


@pytest.mark.parametrize(("height", "width"), [(14, 14), (3, 20), (1, 1)])
def test_two_axes_are_those_of_vit_mae_in_transformers(height, width):
    from transformers.models.vit_mae.modeling_vit_mae import build_2d_sinusoidal_position_embedding

    theirs = build_2d_sinusoidal_position_embedding(height, width, 64, dtype=torch.float64)
    encoding = Sinusoidal(64, axes=2, layout="sin_cos")
    found = encoding.encode(positions.grid(height, width), dtype=torch.float64)
    assert (found - theirs).abs().max() < 1e-14
    if height != width:
        flipped = encoding.encode(positions.grid(height, width).flip(-1), dtype=torch.float64)
        assert (flipped - theirs).abs().max() > 0.1, "the row comes first"


def test_two_axes_are_those_of_detr_which_counts_from_one():
    from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding

    height, width, dim = 5, 9, 32
    theirs = DetrSinePositionEmbedding(dim // 2)(
        torch.Size((1, 3, height, width)), "cpu", torch.float64
    )
    encoding = Sinusoidal(dim, axes=2)
    found = encoding.encode(positions.grid(height, width) + 1, dtype=torch.float64)
    assert (found - theirs[0].flatten(1).T).abs().max() < 1e-14


def test_fractional_coordinates_are_those_of_detr_scaled_to_a_turn():
    from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding

    height, width, dim = 5, 9, 32
    theirs = DetrSinePositionEmbedding(dim // 2, normalize=True)(
        torch.Size((1, 3, height, width)), "cpu", torch.float64
    )
    sizes = torch.tensor([height, width], dtype=torch.float64)
    unit = 2.0**-30
    where = positions.fixed((positions.grid(height, width) + 1) / (sizes + 1e-6) * math.tau, unit)
    found = Sinusoidal(dim, axes=2, unit=unit).encode(where, dtype=torch.float64)
    assert (found - theirs[0].flatten(1).T).abs().max() < 2e-9, "half a unit, and 2π/unit phases"


def test_timm_swaps_the_middle_quarters():
    theirs = torch.tensor(timm_order(4, 6, 32), dtype=torch.float64)
    found = Sinusoidal(32, axes=2, layout="sin_cos").encode(
        positions.grid(4, 6), dtype=torch.float64
    )
    sin_y, cos_y, sin_x, cos_x = found.chunk(4, dim=-1)
    assert (torch.cat((sin_y, sin_x, cos_y, cos_x), dim=-1) - theirs).abs().max() < 1e-14


@pytest.mark.parametrize("sizes", [(7,), (4, 6), (3, 4, 5)])
def test_one_to_three_axes_are_those_of_positional_encodings(sizes):
    from positional_encodings import torch_encodings as peer

    axes = len(sizes)
    kind = (peer.PositionalEncoding1D, peer.PositionalEncoding2D, peer.PositionalEncoding3D)
    dim = 12 * axes
    theirs = kind[axes - 1](dim)(torch.zeros(1, *sizes, dim))[0].reshape(-1, dim)
    places = positions.grid(*sizes).squeeze(-1) if axes == 1 else positions.grid(*sizes)
    found = Sinusoidal(dim, axes=axes).encode(places)
    assert (found - theirs).abs().max() < 1e-6, "theirs are float32 angles"


@pytest.mark.parametrize("layout", ["interleaved", "sin_cos", "cos_sin"])
def test_each_axis_has_its_block(layout):
    whole, one = (
        Sinusoidal(15, axes=3, layout=layout, scale=0.5),
        Sinusoidal(5, layout=layout, scale=0.5),
    )
    places = torch.tensor([[0, 2**31 + 5, -7], [131071, 3, 1]])
    codes = whole.encode(places)
    for axis in range(3):
        block = codes[:, 5 * axis : 5 * axis + 5]
        assert torch.equal(block, one.encode(places[:, axis])), "exact at any position"
    assert whole.encode(places[None, :, None]).shape == (1, 2, 1, 15)


@pytest.mark.parametrize("axes", [2, 3])
def test_shifts_of_every_axis_are_one_matrix(axes):
    encoding = Sinusoidal(8 * axes, axes=axes, layout="sin_cos")
    matrix = encoding.shift_matrix(17)
    assert matrix is not None
    places = torch.arange(5 * axes).reshape(5, axes) ** 3
    start, end = (encoding.encode(p, dtype=torch.float64) for p in (places, places + 17))
    assert (start @ matrix.T - end).abs().max() < 1e-13
    assert Sinusoidal(6, axes=2).shift_matrix(1) is None


def test_positions_without_axes_are_refused():
    with pytest.raises(ValueError, match=r"with axes=2 the last dimension must be 2"):
        Sinusoidal(8, axes=2).encode(torch.arange(3))
    with pytest.raises(ValueError, match=r"this encoding has axes=2: pass \[tokens, 2\]"):
        Sinusoidal(8, axes=2)(torch.zeros(3, 8))


# A learned table for other lengths and grids.


def keys(x: float, a: float) -> float:
    """Keys' cubic convolution kernel."""
    x = abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def triangle(x: float, _: float) -> float:
    return max(0.0, 1 - abs(x))


def literal_resize(rows: list[float], wanted: int, kernel, antialias: bool) -> list[float]:
    """One lane of a line of rows, one row at a time."""
    present, result = len(rows), []
    scale = present / wanted
    stretch = max(scale, 1.0) if antialias else 1.0
    for i in range(wanted):
        centre = (i + 0.5) * scale - 0.5
        near = range(math.floor(centre - 3 * stretch), math.ceil(centre + 3 * stretch) + 1)
        weights = {j: kernel((j - centre) / stretch, -0.5 if antialias else -0.75) for j in near}
        if antialias:  # rows beyond the ends have no share, and shares add up to 1
            weights = {j: w for j, w in weights.items() if 0 <= j < present}
        total = sum(weights.values())
        result.append(
            sum(w * rows[min(max(j, 0), present - 1)] for j, w in weights.items()) / total
        )
    return result


@pytest.mark.parametrize("antialias", [False, True], ids=["", "antialias"])
@pytest.mark.parametrize(("mode", "kernel"), [("linear", triangle), ("cubic", keys)])
@pytest.mark.parametrize(("present", "wanted"), [(10, 23), (23, 10), (7, 1), (1, 5), (16, 32)])
def test_rows_are_those_of_the_definition(present, wanted, mode, kernel, antialias):
    table = random(present, 3)
    found = resize_table(table, wanted, mode=mode, antialias=antialias)
    for lane in range(3):
        exact = literal_resize(table[:, lane].tolist(), wanted, kernel, antialias)
        assert found[:, lane].tolist() == pytest.approx(exact, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("wanted", [5, 64, 77, 200])
def test_lines_are_those_of_interpolate(wanted, align_corners):
    table = random(77, 8, dtype=torch.float32)
    theirs = functional.interpolate(
        table.T[None], size=wanted, mode="linear", align_corners=align_corners
    )
    found = resize_table(table, wanted, mode="linear", align_corners=align_corners)
    assert (found - theirs[0].T).abs().max() < 1e-6


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize(("mode", "name"), [("linear", "bilinear"), ("cubic", "bicubic")])
@pytest.mark.parametrize("wanted", [(16, 16), (37, 20), (5, 30)])
def test_grids_are_those_of_interpolate_bit_for_bit(wanted, mode, name, antialias):
    table = random(1 + 14 * 14, 8, dtype=torch.float32)
    plane = table[1:].reshape(1, 14, 14, 8).permute(0, 3, 1, 2)
    theirs = functional.interpolate(plane, size=wanted, mode=name, antialias=antialias)
    found = resize_table(table, wanted, prefix=1, mode=mode, antialias=antialias)
    assert torch.equal(found[:1], table[:1]), "the class token stays"
    assert torch.equal(found[1:], theirs[0].flatten(1).T)


def test_a_grid_need_not_be_square():
    table = random(6 * 4, 5)
    found = resize_table(table, (9, 8), grid=(6, 4), mode="linear")
    rows = resize_table(table.reshape(6, 20), 9, mode="linear").reshape(9, 4, 5)
    both = resize_table(rows.transpose(0, 1).reshape(4, 45), 8, mode="linear")
    assert (found - both.reshape(8, 9, 5).transpose(0, 1).reshape(72, 5)).abs().max() < 1e-14


def test_a_table_is_that_of_dinov2_in_transformers():
    from transformers import Dinov2Config
    from transformers.models.dinov2.modeling_dinov2 import Dinov2Embeddings

    model = Dinov2Embeddings(Dinov2Config(hidden_size=16, image_size=70, patch_size=14))
    table = random(1 + 5 * 5, 16, dtype=torch.float32)
    with torch.no_grad():
        model.position_embeddings.copy_(table[None])
        theirs = model.interpolate_pos_encoding(torch.zeros(1, 1 + 7 * 9, 16), 7 * 14, 9 * 14)
    assert torch.equal(resize_table(table, (7, 9), prefix=1), theirs[0])


def test_a_scale_factor_with_a_tenth_added_samples_elsewhere():
    """DINO and DINOv2: the size comes out right, and every patch is read from another place."""
    column = torch.arange(37.0).reshape(1, 1, 37, 1)  # row j holds j: what is read is where

    def read(wanted: int, **how) -> Tensor:
        return functional.interpolate(column, mode="bilinear", align_corners=False, **how).flatten()

    wanted = 16
    offset = read(wanted, scale_factor=((wanted + 0.1) / 37, 1.0))
    sized = resize_table(column.reshape(37, 1), wanted, mode="linear").flatten()
    places = (torch.arange(wanted) + 0.5) * 37 / wanted - 0.5
    assert len(offset) == wanted
    assert (sized - places).abs().max() < 1e-5
    drift = (sized - offset).abs()
    assert drift.max() > 0.2, "a fifth of a patch at the far edge"
    assert drift[1:].min() > drift[0] > 0.0

    lost = [(n, m) for n in range(1, 60) for m in range(1, 60) if math.floor(n * (m / n)) != m]
    assert lost, "without the tenth a patch is lost here and there"
    n, m = lost[0]
    short = functional.interpolate(torch.zeros(1, 1, n), scale_factor=m / n, mode="linear")
    assert short.shape[-1] == m - 1
    assert resize_table(torch.zeros(n, 1), m, mode="linear").shape[0] == m


def test_the_same_size_is_a_copy():
    table = random(10, 3)
    same = resize_table(table, 10, antialias=True)
    assert torch.equal(same, table)
    assert same.data_ptr() != table.data_ptr()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_tables_are_computed_wide_and_rounded_once(dtype):
    table = random(3, 9, 4, dtype=dtype)
    found = resize_table(table, 14)
    assert found.dtype == dtype
    assert torch.equal(found, resize_table(table.float(), 14).to(dtype))
    assert torch.equal(found[1], resize_table(table[1], 14)), (
        "leading dimensions are rows of tables"
    )


def test_resizing_is_differentiable():
    table = random(12, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: resize_table(t, (5, 2), grid=(5, 2), prefix=2), table)
    assert torch.autograd.gradcheck(lambda t: resize_table(t, (4, 3), grid=(5, 2), prefix=2), table)


def test_a_learned_encoding_is_resized_and_stays():
    encoding = Learned(6, 2 + 1 + 12, row_offset=2)
    before, chance = encoding.weight.detach().clone(), torch.random.get_rng_state()
    larger = encoding.resized((6, 8), grid=(3, 4), prefix=1)
    assert torch.equal(torch.random.get_rng_state(), chance), "nothing is drawn"
    assert torch.equal(encoding.weight, before)
    assert (larger.positions, larger.row_offset, larger.length) == (49, 2, 51)
    assert torch.equal(larger.weight[:3], before[:3]), "offset rows and the class token stay"
    grown = resize_table(before[3:], (6, 8), grid=(3, 4))
    assert torch.equal(larger.encode(torch.arange(1, 49)), grown)
    assert list(larger.state_dict()) == ["weight"]
    assert larger.weight.requires_grad
    assert larger.weight.device.type == "cpu"
    frozen = Learned(6, 9, dtype=torch.bfloat16).requires_grad_(False).eval().resized(5)
    assert (frozen.weight.requires_grad, frozen.training) == (False, False)
    assert frozen.weight.dtype == torch.bfloat16
    with pytest.raises(ValueError, match="outside this learned table of 51 rows"):
        larger.encode(torch.tensor([49]))


@given(
    st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), st.integers(1, 12),
    st.sampled_from(["linear", "cubic"]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_a_constant_table_stays_constant(h, w, new_h, new_w, mode, antialias, align):
    table = torch.full((h * w, 2), 0.7, dtype=torch.float64)
    found = resize_table(
        table, (new_h, new_w), grid=(h, w), mode=mode, antialias=antialias, align_corners=align
    )
    assert found.shape == (new_h * new_w, 2)
    assert (found - 0.7).abs().max() < 1e-14


# Wrong input.

TABLE = torch.zeros(10, 2)

WRONG: list[tuple[str, Callable[[], Any]]] = [
    ("axes=3 does not divide dim=64: each axis", lambda: Sinusoidal(64, axes=3)),
    ("use dim=66", lambda: Sinusoidal(64, axes=3)),
    ("axes=0 must be at least 1", lambda: Sinusoidal(64, axes=0)),
    ("axes=2.0 must be an int", lambda: Sinusoidal(64, axes=2.0)),  # pyright: ignore
    (
        "which dim=2 for each of axes=2 makes zero or less; use dim ≥ 8",
        lambda: Sinusoidal(4, axes=2, shift=1),
    ),
    ("unit=0.0 must be finite and above 0", lambda: Sinusoidal(8, unit=0.0)),
    ("size=2.5 must be an int or (height, width): sizes", lambda: resize_table(TABLE, 2.5)),
    ("size[0]=1.5 must be an int, got float; a size, never", lambda: resize_table(TABLE, (1.5, 2))),
    ("size=0 must be at least 1", lambda: resize_table(TABLE, 0)),
    (
        "grid=(2, 2) with one size; give size=(height, width)",
        lambda: resize_table(TABLE, 3, grid=(2, 2)),
    ),
    (
        "grid=(2, 4) has 8 places; the table has 10 rows",
        lambda: resize_table(TABLE, (3, 3), grid=(2, 4)),
    ),
    (
        "grid=None takes the table for a square, and 10 rows are none",
        lambda: resize_table(TABLE, (3, 3)),
    ),
    ("prefix=10 leaves none of the 10 rows", lambda: resize_table(TABLE, 3, prefix=10)),
    ("prefix=-1 must be at least 1", lambda: resize_table(TABLE, 3, prefix=-1)),
    (
        "mode='bicubic' is unknown; use one of ('linear', 'cubic')",
        lambda: resize_table(TABLE, 3, mode="bicubic"),
    ),
    ("table must be a floating tensor [..., rows, dim]", lambda: resize_table(torch.ones(3), 2)),
]


@pytest.mark.parametrize(("message", "build"), WRONG, ids=[w[0][:40] for w in WRONG])
def test_a_wrong_configuration_is_named(message, build):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        build()


def test_make_takes_axes():
    assert ropewalk.make("sinusoidal", dim=8, axes=2).axes == 2
