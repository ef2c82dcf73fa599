"""Golden values of the additive encodings with axes, tables that are resized, random positions."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import Tensor

import ropewalk
from ropewalk import positions
from ropewalk.encodings.additive import Sinusoidal

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


WRONG = [
    ("axes=3 does not divide dim=64: each axis", lambda: Sinusoidal(64, axes=3)),
    ("use dim=66", lambda: Sinusoidal(64, axes=3)),
    ("axes=0 must be at least 1", lambda: Sinusoidal(64, axes=0)),
    ("axes=2.0 must be an int", lambda: Sinusoidal(64, axes=2.0)),  # pyright: ignore
    (
        "which dim=2 for each of axes=2 makes zero or less; use dim ≥ 8",
        lambda: Sinusoidal(4, axes=2, shift=1),
    ),
    ("unit=0.0 must be finite and above 0", lambda: Sinusoidal(8, unit=0.0)),
]  # fmt: skip


@pytest.mark.parametrize(("message", "build"), WRONG, ids=[w[0][:40] for w in WRONG])
def test_a_wrong_configuration_is_named(message, build):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        build()


def test_make_takes_axes():
    assert ropewalk.make("sinusoidal", dim=8, axes=2).axes == 2
