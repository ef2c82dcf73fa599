"""Rotations along several axes: golden values, literal forms, gradients, and what they refuse."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import ropewalk
from ropewalk import spectra
from ropewalk.core import Rotary
from ropewalk.encodings import exponential as many
from ropewalk.encodings.rotary import (
    AxialRoPE,
    CommutingRoPE,
    GoldenRoPE,
    LieRoPE,
    MixedRoPE,
    StringRoPE,
)
from ropewalk.kernels.learned import learned_steps, learned_tables
from ropewalk.positions import grid

FAR = (0, 1, -1, 77, 131071, 2**31 + 5)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def seeded(make: Callable[[], Rotary], seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return make()


def places(tokens: int, axes: int, seed: int = 0, reach: int = 40) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(-reach, reach, (tokens, axes), generator=generator)
    return drawn[:, 0] if axes == 1 else drawn


LEARNED = {
    "mixed": lambda: MixedRoPE(8, 2),
    "mixed, three axes": lambda: MixedRoPE(12, 2, axes=3),
    "string": lambda: StringRoPE(8, 2, std=0.3),
    "commuting, ap": lambda: CommutingRoPE(8, 2, block_size=4),
    "commuting, ld": lambda: CommutingRoPE(8, 2, "ld", block_size=4, std=0.5),
    "lie": lambda: LieRoPE(8, 2, block_size=4, scale=1.0),
}
learned = pytest.mark.parametrize("make", LEARNED.values(), ids=LEARNED)


# Learned frequencies: exact phases, and derivatives.


@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=20),
    st.sampled_from((1.0, 2.0**-20, 0.5)),
)
def test_steps_of_learned_frequencies_are_those_of_a_spectrum(freqs, unit):
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        held = torch.tensor(freqs, dtype=dtype)
        expected = [spectra.step(f, unit) for f in held.tolist()]
        assert learned_steps(held, unit).tolist() == expected


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
def test_learned_tables_have_every_derivative_of_the_angle():
    freqs = random(2, 3, 4).requires_grad_()
    where = places(5, 3)

    def plainly(f: Tensor) -> tuple[Tensor, Tensor]:
        angle = torch.einsum("ta,hac->htc", where.double(), f) * 0.25
        return angle.cos(), angle.sin()

    def ours(f: Tensor) -> tuple[Tensor, Tensor]:
        return learned_tables(where, f, torch.float64, 0.25)

    torch.testing.assert_close(ours(freqs), plainly(freqs), rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(ours, freqs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(ours, freqs)
    found, expected = (torch.func.jacfwd(f)(freqs.detach()) for f in (ours, plainly))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_learned_tables_of_an_ensemble():
    freqs, where = random(3, 2, 4), places(5, 2)
    together = torch.vmap(lambda f: learned_tables(where, f, torch.float64))(freqs)
    for i in range(3):
        alone = learned_tables(where, freqs[i], torch.float64)
        assert all(torch.equal(t[i], a) for t, a in zip(together, alone, strict=True))


@learned
def test_gradients_reach_every_parameter(make):
    encoding = seeded(make).double()
    where = places(3, encoding.axes, reach=3)
    names = [name for name, _ in encoding.named_parameters()]
    q, k = random(1, 4, 3, encoding.head_dim), random(1, 2, 3, encoding.head_dim, seed=1)

    def score(*values: Tensor) -> Tensor:
        def call() -> Tensor:
            keys = encoding.encode_k(k, where).repeat_interleave(2, dim=1)
            return encoding.encode_q(q, where) @ keys.transpose(-1, -2)

        given = dict(zip([f"own.{name}" for name in names], values, strict=True))
        return torch.func.functional_call(_Calls(encoding, call), given)

    values = [p.detach().clone().requires_grad_() for p in encoding.parameters()]
    assert torch.autograd.gradcheck(score, values)


class _Calls(torch.nn.Module):
    def __init__(self, own: Rotary, call: Callable[[], Tensor]) -> None:
        super().__init__()
        self.own, self.call = own, call

    def forward(self) -> Tensor:
        return self.call()


@learned
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_inputs_are_turned_in_float32(make, dtype):
    encoding = seeded(make)
    x, where = random(2, 4, 6, encoding.head_dim, dtype=dtype), places(6, encoding.axes)
    found = encoding.encode_q(x, where)
    assert found.dtype == dtype
    assert torch.equal(found, encoding.encode_q(x.float(), where).to(dtype))


# Heads.


@learned
def test_each_head_of_k_serves_its_group_of_q(make):
    encoding = seeded(make)
    q, where = random(3, 6, 5, encoding.head_dim), places(5, encoding.axes)
    found = encoding.encode_q(q, where)
    for head, row in itertools.product(range(6), range(3)):
        for token in range(5):
            place = where[token].tolist()
            expected = encoding.reference(q[row, head, token].tolist(), place, head=head // 3)
            torch.testing.assert_close(
                found[row, head, token],
                torch.tensor(expected, dtype=torch.float64),
                rtol=0,
                atol=1e-10,
            )


@learned
def test_attention_with_grouped_heads_is_that_of_each_head_alone(make):
    encoding = seeded(make).double()
    q, k, v = random(2, 4, 6, encoding.head_dim), *random(2, 2, 2, 6, encoding.head_dim, seed=1)
    where = places(6, encoding.axes)
    found = ropewalk.attend(q, k, v, encoding, q_positions=where, kv_positions=where)
    turned_q, turned_k = encoding.encode_q(q, where), encoding.encode_k(k, where)
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    for head in range(4):
        logits = turned_q[:, head] @ turned_k[:, head // 2].mT / encoding.head_dim**0.5
        weights = logits.masked_fill(~mask, -torch.inf).softmax(-1)
        torch.testing.assert_close(found[:, head], weights @ v[:, head // 2])


@learned
def test_other_head_counts_are_refused(make):
    encoding = seeded(make)
    where = places(5, encoding.axes)
    for heads in (1, 3):
        with pytest.raises(ValueError, match=f"x has {heads} heads, not a multiple of heads=2"):
            encoding.encode_k(random(1, heads, 5, encoding.head_dim), where)
    with pytest.raises(ValueError, match="this encoding turns"):
        encoding.encode_q(random(1, 2, 5, encoding.head_dim + 2), where)
    with pytest.raises(TypeError, match="real floating"):
        encoding.encode_q(torch.zeros(1, 2, 5, encoding.head_dim, dtype=torch.int64), where)


def test_golden_refuses_other_head_counts():
    with pytest.raises(ValueError, match="not a multiple of the spectrum's heads=2"):
        GoldenRoPE(8, 2, 0.2, 20.0).encode_k(random(1, 3, 5, 8), places(5, 2))


# Mixed.


def test_mixed_starts_as_in_the_authors_code():
    torch.manual_seed(5)
    freqs = MixedRoPE(16, 3).freqs
    torch.manual_seed(5)
    for head, angle in enumerate((torch.rand(3, dtype=torch.float64) * 2 * math.pi).tolist()):
        for j, (turn, axis) in itertools.product(range(4), itertools.product((0, 1), (0, 1))):
            magnitude = 10.0 ** (-4 * j / 16)
            towards = angle + turn * math.pi / 2
            expected = magnitude * (math.cos(towards) if axis == 0 else math.sin(towards))
            assert freqs[head, axis, 4 * turn + j].item() == pytest.approx(expected, abs=1e-6)


def test_mixed_frames_are_orthonormal_along_any_number_of_axes():
    for axes in (1, 2, 3, 4):
        torch.manual_seed(0)
        encoding = MixedRoPE(4 * axes, 5, axes=axes)
        for block in range(2):
            directions = encoding.freqs[..., block::2].double() * 10.0 ** (block / 2)
            product = directions.transpose(-1, -2) @ directions
            torch.testing.assert_close(
                product, torch.eye(axes).double().expand(5, -1, -1), rtol=0, atol=1e-6
            )


def test_mixed_without_its_frame_is_axial():
    x, where = random(1, 4, 49, 16, dtype=torch.float32), grid(7, 7)
    found = MixedRoPE(16, 2, rotate=False).encode_q(x, where)
    expected = AxialRoPE(16, 10.0).encode_q(x, where)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)  # frequencies held in float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_spectrum_of_mixed_gives_the_same_bits(dtype):
    torch.manual_seed(1)
    encoding = MixedRoPE(8, 2, layout="interleaved", unit=2.0**-4)
    x = random(2, 4, len(FAR), 8, dtype=dtype)
    line = torch.tensor(FAR)
    where = torch.stack((line, line.flip(0)), dim=-1)
    found = encoding.encode_q(x, where)
    assert torch.equal(found, ropewalk.rotate(x, where, encoding.spectrum))
    assert torch.equal(found, ropewalk.RoPE(encoding.spectrum).encode_q(x, where))


def test_mixed_learns_the_frequencies_of_a_teacher():
    teacher, pupil = (seeded(lambda: MixedRoPE(8, 1), seed) for seed in (0, 0))
    with torch.no_grad():
        pupil.freqs += 0.01 * random(*pupil.freqs.shape, dtype=torch.float32)  # pyright: ignore
    x, where = random(1, 1, 16, 8, dtype=torch.float32), grid(4, 4)
    optimiser = torch.optim.Adam(pupil.parameters(), lr=2e-3)
    losses = []
    for _ in range(25):
        loss = (pupil.encode_q(x, where) - teacher.encode_q(x, where).detach()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10


# Golden.


def test_golden_directions_are_multiples_of_the_golden_angle():
    spectrum = spectra.golden(8, 0.2, 20.0, heads=3, zero_fraction=0.25)
    assert isinstance(spectrum.freqs, tuple)
    with mpmath.workdps(40):
        step = mpmath.pi * (mpmath.sqrt(5) - 1) / 2
        for head, c in itertools.product(range(3), range(4)):
            speed = (
                0 if c == 0 else mpmath.mpf(0.2) * (20 / mpmath.mpf(0.2)) ** mpmath.mpf((c - 1) / 2)
            )
            angle = (4 * head + c) * step
            expected = [float(speed * mpmath.cos(angle)), float(speed * mpmath.sin(angle))]
            found = [spectrum.matrices[head][axis][c] for axis in range(2)]
            assert found == pytest.approx(expected, rel=2e-16, abs=1e-300)


@pytest.mark.parametrize("axes", [3, 4])
def test_golden_directions_beyond_the_plane(axes):
    spectrum = spectra.golden(8, 1.0, 1.0, heads=2, axes=axes)
    with mpmath.workdps(40):
        ratio = mpmath.findroot(lambda g: g ** (axes + 1) - g - 1, 1.3)
        for i in range(8):
            raw = [
                mpmath.erfinv(2 * mpmath.frac((i + 1) / ratio**power) - 1)
                for power in range(1, axes + 1)
            ]
            length = mpmath.sqrt(sum(x * x for x in raw))
            found = [spectrum.matrices[i // 4][axis][i % 4] for axis in range(axes)]
            assert found == pytest.approx([float(x / length) for x in raw], rel=1e-15)


def test_golden_coordinates_keep_the_aspect_ratio():
    encoding = GoldenRoPE(8, 1, 0.2, 20.0, unit=2.0**-20)
    found = encoding.coordinates_of(2, 5).double() * 2.0**-20
    xlim, ylim = math.sqrt(5 / 2), math.sqrt(2 / 5)
    expected = [(x, y) for y in (-ylim, ylim) for x in torch.linspace(-xlim, xlim, 5).tolist()]
    torch.testing.assert_close(found, torch.tensor(expected).double(), rtol=0, atol=1e-6)
    assert encoding.coordinates_of(1, 1).tolist() == [[0, 0]]
    with pytest.raises(ValueError, match="3 sizes given; axes=2"):
        encoding.coordinates_of(2, 2, 2)


def similarity(spectrum: spectra.Spectrum, degrees: float) -> float:
    """Mean of cos(angle) over pairs, and over distances from ½ to 1 in a direction."""
    radii = torch.linspace(0.5, 1, 21, dtype=torch.float64)
    towards = torch.tensor([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))])
    angles = radii[:, None] * (towards.double() @ torch.tensor(spectrum.freqs).double())
    return angles.cos().mean().item()


def test_axial_sees_along_its_axes_and_golden_alike_in_all_directions():
    """Figures of the catalogue, for ω from .2 to 20 and 32 pairs."""
    axial = spectra.axial(64, 100.0 ** (16 / 15), scale=20.0)
    assert similarity(axial, 0) == pytest.approx(0.657, abs=1e-3)
    assert similarity(axial, 90) == pytest.approx(0.657, abs=1e-3)
    assert similarity(axial, 45) == pytest.approx(0.379, abs=1e-3)
    golden = spectra.golden(64, 0.2, 20.0)
    for degrees in (0, 45, 90, 135):
        assert 0.40 < similarity(golden, degrees) < 0.475


# STRING.


def test_the_basis_of_string_is_orthogonal_and_cayleys():
    encoding = seeded(lambda: StringRoPE(6, 2, axes=3, std=3.0))
    basis = encoding.basis().detach()
    torch.testing.assert_close(
        basis @ basis.mT, torch.eye(6).double().expand(2, -1, -1), rtol=0, atol=1e-12
    )
    with mpmath.workdps(30):
        a = mpmath.matrix(encoding.weight[1].double().tolist())
        s, one = a - a.T, mpmath.eye(6)
        expected = (one - s) * (one + s) ** -1
    found = basis[1].tolist()
    assert all(abs(found[i][j] - expected[i, j]) < 1e-12 for i in range(6) for j in range(6))


def test_string_scores_are_axial_ones_in_another_basis():
    encoding = seeded(lambda: StringRoPE(8, 1, std=0.5)).double()
    axial = AxialRoPE(8).double()
    q, k, v, where = random(1, 2, 9, 8), random(1, 2, 9, 8, seed=1), random(1, 2, 9, 8), grid(3, 3)
    mixed_q, mixed_k = q @ encoding.basis()[0].mT, k @ encoding.basis()[0].mT
    found = ropewalk.attend(q, k, v, encoding, kv_positions=where)
    torch.testing.assert_close(
        found, ropewalk.attend(mixed_q, mixed_k, v, axial, kv_positions=where)
    )
    start = StringRoPE(8, 1, std=0.0)
    torch.testing.assert_close(start.encode_q(q, where), axial.encode_q(q, where))


# Commuting and Lie: exponentials.


def exponential(exponent: Tensor) -> Tensor:
    with mpmath.workdps(30):
        result = mpmath.expm(mpmath.matrix(exponent.tolist()))
        rows = range(exponent.shape[0])
        entries = [[float(result[i, j]) for j in rows] for i in rows]
        return torch.tensor(entries, dtype=torch.float64)


def skew_matrices(count: int, size: int, scale: float) -> Tensor:
    drawn = random(count, size, size) * scale
    return drawn - drawn.mT


@pytest.mark.parametrize("scale", [0.0, 1e-9, 0.1, 3.0, 1e4])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_many_exponentials_are_as_good_as_their_exponents(scale, size):
    exponents = skew_matrices(3, size, scale)
    expected = torch.stack([exponential(x) for x in exponents])
    allowed = 1e-15 + 4e-16 * exponents.abs().sum(-1).max().item()
    for found in (many.rotations(exponents), many.exponential(exponents)):
        torch.testing.assert_close(found, expected, rtol=0, atol=allowed)


def test_an_exponential_does_not_know_its_neighbours(monkeypatch):
    exponents = skew_matrices(40, 8, 1.0) * torch.logspace(-3, 6, 40).double()[:, None, None]
    together = many.rotations(exponents)
    alone = torch.stack([many.rotations(x) for x in exponents])
    monkeypatch.setattr(many, "_ENTRIES", 64 * 7)
    for found in (alone, many.rotations(exponents), many.rotations(exponents.flip(0)).flip(0)):
        assert torch.equal(found, together)
    assert torch.equal(torch.vmap(many.rotations, in_dims=1)(exponents.unflatten(0, (8, 5))),
                       together.unflatten(0, (8, 5)).transpose(0, 1))  # fmt: skip
    assert many.rotations(exponents[:0]).shape == (0, 8, 8)
    assert many.exponential(torch.full((2, 3, 3), math.nan).double()).isnan().all()


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("exp", [many.exponential, lambda x: many.rotations(x - x.mT)])
def test_exponentials_have_derivatives_of_every_order(exp):
    exponents = random(2, 3, 3).mul(3).requires_grad_()
    assert torch.autograd.gradcheck(exp, exponents, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(exp, exponents, check_fwd_over_rev=True)


def operators(encoding: Any, where: Tensor) -> Tensor:
    """T(p) ``[heads, tokens, head_dim, head_dim]`` in float64."""
    heads, dim = encoding.heads, encoding.head_dim
    x = torch.eye(dim).double()[:, None, None].expand(-1, heads, len(where), -1)
    return encoding.double().encode_q(x, where).permute(1, 2, 3, 0).detach()


@pytest.mark.parametrize("kind", ["ap", "ld"])
@pytest.mark.parametrize("block", [2, 3, 4])
def test_commuting_turns_by_the_exponential_of_its_blocks(kind, block):
    encoding = seeded(lambda: CommutingRoPE(24, 2, kind, block_size=block, std=0.7, unit=0.5))
    where = torch.tensor([[3, -2], [0, 0], [0, 5]])
    found = operators(encoding, where)
    p, factors = encoding.weight.double(), encoding.factors
    for head, token, j in itertools.product(range(2), range(3), range(24 // block)):
        lanes = slice(j * block, (j + 1) * block)
        skew = p[head, j] - p[head, j].T
        x = where[token].double() * 0.5
        share = x[j % 2] if factors is None else (x * factors[:, j].double()).sum()
        expected = exponential((share * skew).detach())
        torch.testing.assert_close(found[head, token, lanes, lanes], expected, rtol=0, atol=1e-9)


def test_a_generator_of_zero_does_not_turn():
    encoding = CommutingRoPE(8, 1, block_size=4)
    with torch.no_grad():
        encoding.weight.zero_()
        encoding.weight[0, 0, 0, 1] = 2.0  # one plane turns, the rest stand
    x, where = random(1, 1, 1, 8), torch.tensor([[3, 4]])
    found = encoding.double().encode_q(x, where)[0, 0, 0]
    torch.testing.assert_close(found[2:], x[0, 0, 0, 2:])
    cos, sin = math.cos(6.0), math.sin(6.0)
    a, b = x[0, 0, 0, :2].tolist()
    expected = torch.tensor([cos * a + sin * b, cos * b - sin * a], dtype=torch.float64)
    torch.testing.assert_close(found[:2], expected)


@pytest.mark.parametrize("block", [2, 3, 8])
def test_lie_turns_by_the_exponential_of_its_generators(block):
    encoding = seeded(lambda: LieRoPE(24, 2, block_size=block, unit=0.125))
    where = torch.tensor([[3, -2], [0, 0]])
    found = operators(encoding, where)
    above = encoding.weight.double().triu(1)
    for head, token, j in itertools.product(range(2), range(2), range(24 // block)):
        lanes = slice(j * block, (j + 1) * block)
        x = where[token].double() * 0.125
        total = (x[:, None, None] * above[head, :, j]).sum(0)
        expected = exponential((total - total.T).detach())
        torch.testing.assert_close(found[head, token, lanes, lanes], expected, rtol=0, atol=1e-9)


def shift_error(encoding: Rotary) -> float:
    """Change of R(i)ᵀR(j) when both move, ÷ its own size."""
    start, shift = torch.tensor([[1, 4], [3, 2]]), torch.tensor([2, 5])
    still, moved = (operators(encoding, where)[0] for where in (start, start + shift))
    before, after = still[0].mT @ still[1], moved[0].mT @ moved[1]
    return ((after - before).norm() / before.norm()).item()


def test_generic_generators_are_not_relative_and_commuting_ones_are():
    errors = [
        shift_error(seeded(lambda: LieRoPE(8, 1, block_size=8, scale=1.0), seed))
        for seed in range(10)
    ]
    assert sum(errors) / len(errors) > 0.5
    for kind in ("ap", "ld"):
        made = seeded(lambda kind=kind: CommutingRoPE(8, 1, kind, block_size=4, unit=0.25))
        assert shift_error(made) < 1e-12


def test_lie_is_orthogonal_however_far():
    encoding = seeded(lambda: LieRoPE(8, 1))
    turned = encoding.matrices(torch.tensor([[2**31, -(2**40)], [1, 7]])).detach()
    one = torch.eye(8).double().expand_as(turned)
    torch.testing.assert_close(turned @ turned.mT, one, rtol=0, atol=1e-13)


# Axial, as known models have it: the angles of the peers' own code.


def assert_angles(encoding: AxialRoPE, where: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Tables ``[tokens, pairs]`` of a peer, in float32, against the exact ones."""
    found = encoding.spectrum.tables(where, torch.float64)
    unit = encoding.spectrum.unit
    size = float(where.abs().max()) * unit
    rounded = 4 * unit if unit < 1 else 0.0  # of a coordinate, times the largest frequency
    for ours, theirs in zip(found, (cos, sin), strict=True):
        torch.testing.assert_close(ours, theirs.double(), rtol=0, atol=1e-6 * (1 + size) + rounded)


def test_axial_is_the_vision_tower_of_qwen2_vl():
    from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLVisionRotaryEmbedding

    config = Qwen2VLVisionConfig(embed_dim=160, num_heads=2)
    config.num_attention_heads = 2
    where = grid(5, 9)
    tables = Qwen2VLVisionRotaryEmbedding(config)(torch.zeros(1), where)
    assert_angles(AxialRoPE(80, 10000.0), where, *(t[:, :40] for t in tables))


def test_axial_is_pixtral():
    from transformers import PixtralVisionConfig
    from transformers.models.pixtral.modeling_pixtral import PixtralVisionRotaryEmbedding

    config = PixtralVisionConfig(hidden_size=128, num_attention_heads=2)
    where = grid(5, 9)
    tables = PixtralVisionRotaryEmbedding(config)(torch.zeros(1), where)
    encoding = AxialRoPE(64, 10000.0, scale=(1.0, 10000.0 ** (-2 / 64)))
    assert_angles(encoding, where, *(t[:, :32] for t in tables))


def test_axial_is_dinov3():
    from transformers import DINOv3ViTConfig
    from transformers.models.dinov3_vit.modeling_dinov3_vit import DINOv3ViTRopePositionEmbedding

    config = DINOv3ViTConfig(hidden_size=128, num_attention_heads=2, patch_size=16)
    rope = DINOv3ViTRopePositionEmbedding(config).eval()
    tables = rope(torch.zeros(1, 3, 5 * 16, 9 * 16))
    encoding = AxialRoPE(64, 100.0, coordinates="normalised", scale=2 * math.pi)
    assert_angles(encoding, encoding.coordinates_of(5, 9), *(t[:, :32] for t in tables))


def test_axial_is_flux():
    from diffusers.models.transformers.transformer_flux import FluxPosEmbed

    where = grid(2, 5, 9)
    tables = FluxPosEmbed(10000, [16, 56, 56])(where)
    encoding = AxialRoPE(128, 10000.0, axes_dim=(16, 56, 56), layout="interleaved")
    assert encoding.axes == 3
    assert_angles(encoding, where, *(t[:, ::2] for t in tables))


def test_axial_is_eva_on_another_grid():
    """timm's formula: index · pretraining size / size, one ladder of d/4 steps an axis."""
    encoding = AxialRoPE(16, 10000.0, coordinates="grid", layout="interleaved")
    where = encoding.coordinates_of(3, 6, pretrained=(2, 2))
    bands = 10000.0 ** (-torch.arange(4).double() / 4)
    index = grid(3, 6).double() * torch.tensor([2 / 3, 2 / 6]).double()
    angle = (index[:, :, None] * bands).flatten(1)
    assert_angles(encoding, where, angle.cos(), angle.sin())


# Wrong configurations.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MixedRoPE(10, 1), "axes=2 does not divide the 5 pairs evenly"),
        (lambda: MixedRoPE(8, 0), "heads=0 must be at least 1"),
        (lambda: MixedRoPE(8, 1, base=-1.0), "base=-1.0 must be finite and above 0"),
        (lambda: MixedRoPE(8, 1, unit=0.0), "unit=0.0 must be finite and above 0"),
        (lambda: GoldenRoPE(8, 1, 0.2, 0.1), "max_freq=0.1 must be finite and at least 0.2"),
        (lambda: GoldenRoPE(8, 1, 0.0, 1.0), "min_freq=0.0 must be finite and above 0"),
        (lambda: GoldenRoPE(8, 1, 0.2, 20.0, axes=1), "axes=1 leaves no direction to choose"),
        (lambda: GoldenRoPE(8, 1, 0.2, 20.0, zero_fraction=1.5), "zero_fraction=1.5 must be"),
        (lambda: StringRoPE(8, 1, std=-1.0), "std=-1.0 must be finite and at least 0"),
        (lambda: StringRoPE(6, 1), "axes=2 does not divide the 3 pairs evenly"),
        (lambda: CommutingRoPE(8, 1, "xy"), "kind='xy' is unknown; use one of ('ap', 'ld')"),  # pyright: ignore
        (lambda: CommutingRoPE(8, 1), "head_dim=8 is not a multiple of 16: blocks of block_size=8"),
        (lambda: CommutingRoPE(8, 1, block_size=1), "block_size=1 cannot turn; use at least 2"),
        (lambda: CommutingRoPE(16, 1, std=0.0), "std=0.0 must be finite and above 0"),
        (lambda: LieRoPE(12, 1), "head_dim=12 is not a multiple of 8: blocks of block_size=8"),
        (lambda: AxialRoPE(8, axes_dim=(4, 6)), "axes_dim=(4, 6) adds up to 10; head_dim=8"),
        (lambda: AxialRoPE(8, axes_dim=(3, 5)), "axes_dim[0]=3 must be even"),
        (lambda: AxialRoPE(8, axes=3, axes_dim=(4, 4)), "axes_dim=(4, 4) has 2 axes; axes=3"),
        (
            lambda: AxialRoPE(8, axes_dim=(4, 4), assignment=(0, 0, 1, 1)),
            "axes_dim and assignment both say",
        ),
        (lambda: LieRoPE(8, 1, axes=0), "axes=0 must be at least 1"),
    ],
)
def test_wrong_values_are_named(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: MixedRoPE(8, True),
        lambda: MixedRoPE(8, 1, rotate=1),  # pyright: ignore[reportArgumentType]
        lambda: GoldenRoPE(8, 1.5, 0.2, 20.0),  # pyright: ignore[reportArgumentType]
        lambda: LieRoPE(8, 1, block_size="8"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_wrong_types_are_refused(make):
    with pytest.raises(TypeError, match="must be"):
        make()
