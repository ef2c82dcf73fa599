"""Golden values of the additive encodings with axes, tables that are resized, random positions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from random import Random as random_of
from types import SimpleNamespace
from typing import Any, ClassVar

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

import ropewalk
from ropewalk import positions
from ropewalk.checks import EncodingContract
from ropewalk.checks.reach import _Largest as largest_tensor
from ropewalk.encodings import randomized
from ropewalk.encodings.additive import (
    BiPE,
    Fourier,
    Learned,
    LearnedFourier,
    Normalised,
    Sinusoidal,
)
from ropewalk.encodings.additive.bipe import SegmentALiBi
from ropewalk.encodings.bias import ALiBi
from ropewalk.encodings.resize import resize_table
from ropewalk.encodings.rotary import AxialRoPE, RoPE
from ropewalk.spectra.gaussian import gaussian_matrix

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


# Random positions.


@given(st.integers(0, 60), st.integers(0, 200), st.sampled_from([0, 1, 2**31, 2**53]), st.data())
def test_random_positions_rise_below_their_limit(tokens, room, far, data):
    limit = max(1, min(tokens + room + far, 2**53))
    batch = data.draw(st.sampled_from([None, 0, 1, 3]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    drawn = positions.randomized(tokens, limit, batch=batch, generator=generator)
    assert drawn.dtype == torch.int64
    assert drawn.shape == ((tokens,) if batch is None else (batch, tokens))
    assert (drawn.diff(dim=-1) > 0).all()
    assert ((drawn >= 0) & (drawn < limit)).all()


@pytest.mark.parametrize(("tokens", "limit"), [(2, 5), (1, 4), (1, 9), (2, 9), (4, 4)])
def test_every_set_is_equally_likely(tokens, limit):
    """Both ways of drawing: few of many and many of few."""
    draws, sets = 6000, math.comb(limit, tokens)
    generator = torch.Generator().manual_seed(5)
    drawn = positions.randomized(tokens, limit, batch=draws, generator=generator)
    found, counts = drawn.unique(dim=0, return_counts=True)
    assert len(found) == sets
    expected = draws / sets
    chi = float(((counts - expected) ** 2 / expected).sum())
    assert chi < (sets - 1) + 5 * math.sqrt(2 * max(sets - 1, 1)), "five standard deviations"


def test_a_draw_follows_from_its_generator_and_uses_no_other_chance():
    def draw(seed: int) -> Tensor:
        return positions.randomized(9, 2**31, generator=torch.Generator().manual_seed(seed))

    before = torch.random.get_rng_state()
    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(1)
    first = positions.randomized(9, 2**31)
    torch.manual_seed(1)
    assert torch.equal(positions.randomized(9, 2**31), first)


def test_few_of_many_take_no_memory_of_the_many():
    with largest_tensor() as largest:
        positions.randomized(1000, 2**31)
    assert largest.numbers <= 5000


def test_random_positions_follow_the_default_device():
    with torch.device("meta"):
        assert positions.randomized(3, 9).is_meta
    assert positions.randomized(3, 9, device="meta").is_meta


class TestRandomizedRoPE(EncodingContract):
    def create(self):
        return randomized(RoPE(16), tokens=320)


class TestRandomizedALiBi(EncodingContract):
    def create(self):
        return randomized(ALiBi(4), tokens=320, limit=500)


class TestRandomizedLearned(EncodingContract):
    def create(self):
        return randomized(Learned(6, 600), tokens=320, limit=600)


class TestRandomizedAxial(EncodingContract):
    test_compile: Any = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def create(self):
        return randomized(AxialRoPE(8), tokens=320)


def test_every_family_is_wrapped_in_its_own():
    for made in (RoPE(8), AxialRoPE(8), ALiBi(3), Sinusoidal(8, axes=2), Normalised(4)):
        wrapped = randomized(made, 5)
        assert wrapped.family == made.family
        assert (wrapped.axes, wrapped.positions, wrapped.limit) == (made.axes, 5, 2048)


def test_a_wrapper_gives_the_base_its_drawn_positions():
    wrapped = randomized(RoPE(16), tokens=7, limit=100, seed=3)
    where = wrapped.sample[0]
    assert torch.equal(
        where, positions.randomized(7, 100, batch=1, generator=torch.Generator().manual_seed(3))[0]
    )
    x = random(2, 3, 7, 16)
    assert torch.equal(wrapped.encode_q(x), RoPE(16).encode_q(x, where))
    assert torch.equal(
        wrapped.encode_k(x[..., :2, :], offset=4), RoPE(16).encode_k(x[..., :2, :], where[4:6])
    )
    both = wrapped(x, x)
    assert torch.equal(both[0], both[1]), "q and k share the draw"
    bias = randomized(ALiBi(2), tokens=7, limit=100, seed=3)
    line = torch.arange(7)
    assert torch.equal(bias.bias(line, line), ALiBi(2).bias(where, where))
    plane = randomized(Sinusoidal(8, axes=2), tokens=7, limit=100)
    rows, columns = plane.sample
    assert not torch.equal(rows, columns), "each axis has its own"
    places = positions.grid(7, 7)
    drawn = torch.stack((rows[places[:, 0]], columns[places[:, 1]]), dim=-1)
    assert torch.equal(plane.encode(places), Sinusoidal(8, axes=2).encode(drawn))


def test_a_length_is_that_of_the_simulated_text():
    wrapped = randomized(Normalised(1), tokens=3, limit=101)
    codes = wrapped.encode(torch.arange(3), length=3, dtype=torch.float64)
    assert torch.equal(codes[:, 0], wrapped.sample[0].double() / 100)


def test_attention_with_a_wrapper_is_that_with_its_positions():
    q, k, v = random(3, 2, 4, 9, 16)
    for base in (RoPE(16), ALiBi(4)):
        wrapped = randomized(base, tokens=9)
        where = wrapped.sample[0]
        found = ropewalk.attend(q, k, v, wrapped)
        given = ropewalk.attend(q, k, v, base, q_positions=where, kv_positions=where)
        assert torch.equal(found, given)
        last = ropewalk.attend(q[..., -1:, :], k, v, wrapped)
        assert (last - found[..., -1:, :]).abs().max() < 1e-12, "decoding sees the same draw"


class Reading(ropewalk.Contextual):
    """A bias that reads keys and distances."""

    heads, head_dim = 4, 16

    def bias(self, block):
        gaps = block.q_positions[..., :, None] - block.kv_positions[..., None, :]
        return block.k.sum(-1)[..., None, :] * -gaps.to(block.k.dtype) / 100


def test_a_contextual_encoding_is_wrapped_too():
    wrapped = randomized(Reading(), tokens=9)
    q, k, v = random(3, 2, 4, 9, 16)
    where = wrapped.sample[0]
    found = ropewalk.attend(q, k, v, wrapped)
    given = ropewalk.attend(q, k, v, Reading(), q_positions=where, kv_positions=where)
    assert torch.equal(found, given)
    assert not torch.equal(found, ropewalk.attend(q, k, v, Reading()))


def test_resampling_is_explicit_and_keeps_memory():
    wrapped = randomized(Sinusoidal(8), tokens=6)
    line, first, memory = torch.arange(6), wrapped.sample.clone(), wrapped.sample.data_ptr()
    codes = wrapped.encode(line)
    assert torch.equal(wrapped.train().encode(line), wrapped.eval().encode(line))
    chance = torch.Generator().manual_seed(8)
    assert wrapped.resample(generator=chance) is wrapped
    assert wrapped.sample.data_ptr() == memory
    assert not torch.equal(wrapped.sample, first)
    assert not torch.equal(wrapped.encode(line), codes)
    assert wrapped.half().float().sample.tolist() == wrapped.drawn.tolist(), "casts keep the draw"
    wrapped.resample(40, generator=chance)
    assert wrapped.positions == 40
    assert wrapped.encode(torch.arange(40)).shape == (40, 8)
    with pytest.raises(ValueError, match=r"40, outside this draw of 40 random .*resample\(tokens"):
        wrapped.encode(torch.tensor([40]))
    torch.manual_seed(0)
    one = wrapped.resample().sample.clone()
    assert not torch.equal(wrapped.resample().sample, one), "the global generator moves on"


def test_with_positions_leaves_the_encoding_alone():
    wrapped = randomized(Learned(4, 50), tokens=3, limit=50)
    before = wrapped.sample.clone()
    other = wrapped.with_positions(torch.tensor([5, 9, 30, 49]))
    assert torch.equal(other.encode(torch.tensor([3, 0])), wrapped.base.weight[[49, 5]])
    assert other.base is wrapped.base
    assert torch.equal(wrapped.sample, before)


def test_compiled_code_sees_a_new_draw_without_a_new_graph():
    graphs: list[object] = []

    def counting(graph, examples):
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    wrapped = randomized(RoPE(8), tokens=12)
    compiled = torch.compile(lambda x: wrapped.encode_q(x), fullgraph=True, backend=counting)
    x = random(1, 2, 12, 8)
    for _ in range(3):
        assert torch.equal(compiled(x), RoPE(8).encode_q(x, wrapped.sample[0]))
        wrapped.resample()
    torch.compiler.reset()
    assert len(graphs) == 1


def test_an_entry_randomizes_any_additive_encoding():
    made: Any = ropewalk.make("randomized", dim=8, tokens=9, limit=30, of="binary", bits=5, seed=2)
    assert (made.base.bits, made.positions, made.limit) == (5, 9, 30)
    again: Any = ropewalk.make("randomized", dim=8, tokens=9, limit=30, of="binary", bits=5, seed=2)
    assert torch.equal(made.sample, again.sample)
    with pytest.raises(TypeError, match="sinusoidal has no argument 'bits'"):
        ropewalk.make("randomized", dim=8, bits=5)


# Fourier features.


def test_fixed_features_are_those_of_sam_in_transformers():
    from transformers.models.sam.modeling_sam import SamPositionalEmbedding

    torch.manual_seed(0)
    model = SamPositionalEmbedding(SimpleNamespace(num_pos_feats=16, scale=3.0))
    matrix = model.positional_embedding.detach()
    places = positions.grid(9, 6).flip(-1)  # SAM takes (x, y)
    coordinates = (2 * places + 1) / torch.tensor([2.0 * 6, 2.0 * 9])
    theirs = model(coordinates)
    unit = 2.0**-24
    encoding = Fourier(32, axes=2, unit=unit, matrix=matrix.tolist())
    found = encoding.encode(positions.fixed(2 * coordinates.double() - 1, unit))
    assert (found - theirs).abs().max() < 2e-5, "theirs are float32 angles"


def test_fixed_features_are_those_of_the_definition_at_any_position():
    matrix = ((1.5, -0.25, 3.0), (0.0, 2.0, 1e-3))
    encoding = Fourier(6, axes=2, unit=0.125, matrix=matrix)
    places = torch.tensor([[0, 0], [3, -5], [2**31 + 5, 131071]])
    found = encoding.encode(places, dtype=torch.float64)
    with mpmath.workdps(50):
        for row, (y, x) in enumerate(places.tolist()):
            for c in range(3):
                cycles = mpmath.mpf(matrix[0][c]) * y + mpmath.mpf(matrix[1][c]) * x
                angle = 2 * mpmath.pi * cycles * mpmath.mpf(0.125)
                allowed = 1e-15 + 2e-16 * (abs(y) + abs(x)) * 3
                assert abs(found[row, c].item() - mpmath.sin(angle)) <= allowed
                assert abs(found[row, 3 + c].item() - mpmath.cos(angle)) <= allowed


def test_products_of_fixed_features_approximate_a_gaussian():
    std, dim = 2.0, 4096
    codes = Fourier(dim, axes=2, std=std).encode(positions.grid(150, 2) * 2, dtype=torch.float64)
    products = codes @ codes[0] / (dim / 2)
    distances = (positions.grid(150, 2) * 2).double().norm(dim=-1) / 1024
    expected = (-2 * math.pi**2 * std**2 * distances**2).exp()
    assert (products - expected).abs().max() < 5 / math.sqrt(dim / 2)


def test_the_seed_gives_the_matrix_on_every_machine():
    first = gaussian_matrix(2, 3, seed=0)
    assert first == gaussian_matrix(2, 3, seed=0)
    assert first != gaussian_matrix(2, 3, seed=1)
    assert all((number * 2**32).is_integer() for row in first for number in row)
    assert gaussian_matrix(1, 3, 4.0) == (tuple(4 * n for n in first[0]),)
    # Python's documented generator and the distribution's inverse in 30 digits
    twister = random_of(0)
    with mpmath.workdps(30):
        for number in first[0]:
            share = (mpmath.mpf(twister.getrandbits(52)) + 0.5) / mpmath.mpf(2) ** 52
            exact = mpmath.sqrt(2) * mpmath.erfinv(2 * share - 1)
            assert abs(number - exact) < 2.0**-32
    many = torch.tensor(gaussian_matrix(1, 20_000, 3.0, seed=5))
    assert many.std().item() == pytest.approx(3.0, rel=0.02)
    assert abs(many.mean().item()) < 0.07


def test_learned_features_are_those_of_the_definition():
    encoding = LearnedFourier(5, axes=2, unit=0.5, features=8, hidden=3).double()
    places = positions.grid(4, 3)
    waves = (places.double() * 0.5) @ encoding.frequencies
    features = torch.cat((waves.cos(), waves.sin()), dim=-1) / math.sqrt(8)
    inner, outer = encoding.inner, encoding.outer
    hidden = functional.gelu(features @ inner.weight.T + inner.bias)
    expected = hidden @ outer.weight.T + outer.bias
    assert (encoding.encode(places, dtype=torch.float64) - expected).abs().max() < 1e-14


def test_learned_frequencies_start_with_their_deviation():
    torch.manual_seed(0)
    made = LearnedFourier(8, axes=2, std=0.3, features=4096)
    assert made.frequencies.shape == (2, 2048)
    assert made.frequencies.std().item() == pytest.approx(0.3, rel=0.05)


class TestLearnedFourierNear(EncodingContract):
    """Every law, that of gradients too, where a difference quotient is one."""

    positions: ClassVar = (0, 1, 2, 7, -3)

    def create(self):
        return LearnedFourier(6, axes=2, features=8, hidden=5)


def test_a_code_does_not_depend_on_other_tokens():
    encoding = LearnedFourier(24, features=48)
    codes = encoding.encode(torch.arange(300))
    for count in (1, 2, 31, 299):
        assert torch.equal(encoding.encode(torch.arange(count)), codes[:count])


# Two levels.


def their_levels(ends: list[bool], cap: int) -> tuple[list[int], list[int]]:
    """A literal walk over one row: the boundary closes its own segment."""
    segment, place, segments, places = 0, 0, [], []
    for end in ends:
        segments.append(segment)
        places.append(min(place, cap))
        segment, place = (segment + 1, 0) if end else (segment, place + 1)
    return segments, places


def test_a_full_stop_ends_its_own_segment():
    ids = torch.tensor([[5, 7, 869, 4, 13, 13, 8], [869, 1, 1, 1, 1, 1, 1]])
    segments, places = positions.bilevel(torch.isin(ids, torch.tensor([869, 13])))
    assert segments.tolist() == [[0, 0, 0, 1, 1, 2, 3], [0, 1, 1, 1, 1, 1, 1]]
    assert places.tolist() == [[0, 1, 2, 0, 1, 0, 0], [0, 0, 1, 2, 3, 4, 5]]


@given(st.lists(st.lists(st.booleans(), min_size=9, max_size=9), max_size=4), st.integers(0, 9))
def test_levels_are_those_of_a_walk(rows, cap):
    ends = torch.tensor(rows, dtype=torch.bool).reshape(len(rows), 9)
    for boundaries in (ends, ends.int()):
        segments, places = positions.bilevel(boundaries, cap=cap)
        assert segments.dtype == places.dtype == torch.int64
        for row, line in enumerate(rows):
            assert (segments[row].tolist(), places[row].tolist()) == their_levels(line, cap)
    if rows:
        alone = positions.bilevel(ends[0], cap=None)
        assert alone[1].tolist() == their_levels(rows[0], 99)[1]


def test_levels_of_no_tokens_and_of_long_segments():
    empty = positions.bilevel(torch.zeros(2, 0, dtype=torch.bool))
    assert [level.shape for level in empty] == [(2, 0)] * 2
    places = positions.bilevel(torch.zeros(3000, dtype=torch.bool))[1]
    assert torch.equal(places, torch.arange(3000).clamp_max(1023))


def test_levels_compile_whole():
    compiled = torch.compile(positions.bilevel, fullgraph=True, backend="aot_eager")
    ends = torch.tensor([[True, False, False, True, False]])
    for found, expected in zip(compiled(ends), positions.bilevel(ends), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("inter", ["rope", "alibi"])
def test_the_documented_example_is_bipe(inter):
    """x + E(place), then attention by segment: against a plain softmax in float64."""
    encoding: Any = ropewalk.make("bipe", dim=32, heads=4, inter=inter).double()
    ends = torch.arange(14) % 5 == 3
    segments, places = positions.bilevel(ends)
    x = random(2, 14, 32)
    embedded = encoding(x, places)
    assert torch.equal(embedded, x + encoding.intra.weight[places])
    q, k, v = (embedded @ random(32, 32, seed=s) for s in (1, 2, 3))
    q, k, v = (y.unflatten(-1, (4, 8)).transpose(1, 2) for y in (q, k, v))
    found = ropewalk.attend(q, k, v, encoding.inter, q_positions=segments, kv_positions=segments)
    if inter == "rope":
        rope = RoPE(8)
        logits = rope.encode_q(q, segments) @ rope.encode_k(k, segments).mT / 8**0.5
    else:
        slopes = torch.tensor([96 * 2.0 ** (-2 * h) for h in range(1, 5)], dtype=torch.float64)
        gaps = (segments[:, None] - segments).abs().double()
        logits = q @ k.mT / 8**0.5 - slopes[:, None, None] * gaps
    hidden = torch.ones(14, 14, dtype=torch.bool).triu(1)
    expected = logits.masked_fill(hidden, -math.inf).softmax(-1) @ v
    assert (found - expected).abs().max() < 1e-12
    further = segments + 1000
    moved = ropewalk.attend(q, k, v, encoding.inter, q_positions=further, kv_positions=further)
    assert (moved - found).abs().max() < 1e-12, "relative in segment ids"


class TestSegmentALiBi(EncodingContract):
    def create(self):
        return SegmentALiBi(6)


def test_bipe_of_any_two_encodings():
    made = BiPE(Sinusoidal(12), RoPE(6, layout="interleaved"))
    assert (made.dim, made.positions) == (12, None)
    assert not made.state_dict()
    places = torch.tensor([0, 5, 2000])
    assert torch.equal(made.encode(places), Sinusoidal(12).encode(places))
    table: Any = ropewalk.make("bipe", dim=12, heads=2, length=10)
    assert (table.positions, list(table.state_dict())) == (10, ["intra.weight"])
    with pytest.raises(ValueError, match="outside this learned table of 10 rows"):
        table.encode(torch.tensor([10]))


# Wrong input.

TABLE = torch.zeros(10, 2)

resized: Any = resize_table
sinusoidal: Any = Sinusoidal
random_positions: Any = positions.randomized
wrap: Any = randomized
two_levels: Any = BiPE
fixed_features: Any = Fourier
DRAWN = randomized(Sinusoidal(8), 2)

WRONG: list[tuple[str, Callable[[], Any]]] = [
    ("axes=3 does not divide dim=64: each axis", lambda: Sinusoidal(64, axes=3)),
    ("use dim=66", lambda: Sinusoidal(64, axes=3)),
    ("axes=0 must be at least 1", lambda: Sinusoidal(64, axes=0)),
    ("axes=2.0 must be an int", lambda: sinusoidal(64, axes=2.0)),
    (
        "which dim=2 for each of axes=2 makes zero or less; use dim ≥ 8",
        lambda: Sinusoidal(4, axes=2, shift=1),
    ),
    ("unit=0.0 must be finite and above 0", lambda: Sinusoidal(8, unit=0.0)),
    ("size=2.5 must be an int or (height, width): sizes", lambda: resized(TABLE, 2.5)),
    ("size[0]=1.5 must be an int, got float; a size, never", lambda: resized(TABLE, (1.5, 2))),
    ("size=0 must be at least 1", lambda: resized(TABLE, 0)),
    (
        "grid=(2, 2) with one size; give size=(height, width)",
        lambda: resized(TABLE, 3, grid=(2, 2)),
    ),
    (
        "grid=(2, 4) has 8 places; the table has 10 rows",
        lambda: resized(TABLE, (3, 3), grid=(2, 4)),
    ),
    (
        "grid=None takes the table for a square, and 10 rows are none",
        lambda: resized(TABLE, (3, 3)),
    ),
    ("prefix=10 leaves none of the 10 rows", lambda: resized(TABLE, 3, prefix=10)),
    ("prefix=-1 must be at least 1", lambda: resized(TABLE, 3, prefix=-1)),
    (
        "mode='bicubic' is unknown; use one of ('linear', 'cubic')",
        lambda: resized(TABLE, 3, mode="bicubic"),
    ),
    ("tokens=5 different positions do not fit below limit=4", lambda: positions.randomized(5, 4)),
    ("limit=0 must be at least 1", lambda: positions.randomized(0, 0)),
    ("limit=9007199254740993 must be at most 2**53", lambda: positions.randomized(1, 2**53 + 1)),
    ("tokens=2.0 must be an int", lambda: random_positions(2.0, 9)),
    ("batch=-1 must be at least 0", lambda: positions.randomized(1, 9, batch=-1)),
    ("tokens=0 must be at least 1: an encoding serves", lambda: randomized(RoPE(8), 0)),
    (
        "limit=2048 passes the 100 positions that Learned serves",
        lambda: randomized(Learned(4, 100), 9),
    ),
    ("encoding must be an Encoding, got int", lambda: wrap(3, 9)),
    ("drawn must rise, each row from 0", lambda: DRAWN.with_positions(torch.tensor([3, 3]))),
    ("less than limit=2048", lambda: DRAWN.with_positions(torch.tensor([3, 2048]))),
    (
        "drawn has shape (2, 2); this encoding takes [tokens]",
        lambda: DRAWN.with_positions(torch.ones(2, 2).long()),
    ),
    ("drawn have dtype torch.float32", lambda: DRAWN.with_positions(torch.ones(2))),
    (
        "of='rope' is rotary; ropewalk.encodings.randomized(",
        lambda: ropewalk.make("randomized", dim=8, of="rope"),
    ),
    ("table must be a floating tensor [..., rows, dim]", lambda: resized(torch.ones(3), 2)),
]


@pytest.mark.parametrize(("message", "build"), WRONG, ids=[w[0][:40] for w in WRONG])
def test_a_wrong_configuration_is_named(message, build):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        build()


def test_make_takes_axes():
    assert ropewalk.make("sinusoidal", dim=8, axes=2).axes == 2
