"""Biases by position: golden values, literal loops, peers, and attention with each of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

import ropewalk
from ropewalk.checks.content import seeded
from ropewalk.encodings.bias import (
    T5,
    ALiBi,
    Fire,
    Kerple,
    Sandwich,
    alibi_slopes,
    geometric_slopes,
)
from ropewalk.encodings.bias.sandwich import exact_products

pytestmark = pytest.mark.usefixtures("poisoned")


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


# T5.

BACK = {0: 0, 1: 1, 15: 15, 16: 16, 17: 16, 18: 16, 20: 17, 32: 21, 64: 26, 100: 30}
BACK |= {113: 31, 127: 31, 1000: 31, 2**31: 31, -1: 0, -500: 0}
BOTH = {0: 0, 1: 1, 7: 7, 8: 8, 9: 8, 16: 10, 64: 14, 127: 15}
BOTH |= {-1: 17, -7: 23, -8: 24, -127: 31, -(2**31): 31}


@pytest.mark.parametrize(("bidirectional", "golden"), [(False, BACK), (True, BOTH)])
def test_t5_buckets_of_the_literature(bidirectional, golden):
    encoding = T5(2, bidirectional=bidirectional)
    found = encoding.bucket(torch.tensor(list(golden)))
    assert dict(zip(golden, found.tolist(), strict=True)) == golden


def distances(encoding: T5) -> Tensor:
    """Distances up to 2³¹ of every size, and those around the beginnings of buckets."""
    generator = torch.Generator().manual_seed(1)
    sizes = torch.rand(200_000, generator=generator, dtype=torch.float64) * 31
    edges = torch.tensor([start + d for start in encoding.starts for d in (-1, 0, 1)])
    places = torch.cat((torch.arange(5000), (2**sizes).long(), edges, torch.tensor([2**31])))
    return torch.cat((places, -places)).unique()


def transformers_buckets(encoding: T5, offset: Tensor) -> Tensor:
    return T5Attention._relative_position_bucket(
        -offset,
        bidirectional=encoding.bidirectional,
        num_buckets=encoding.buckets,
        max_distance=encoding.max_distance,
    )


@pytest.mark.parametrize(
    ("buckets", "max_distance"), [(32, 128), (64, 128), (32, 256), (320, 800), (128, 1024)]
)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_t5_buckets_are_those_of_transformers(buckets, max_distance, bidirectional):
    encoding = T5(1, buckets=buckets, max_distance=max_distance, bidirectional=bidirectional)
    offset = distances(encoding)
    assert torch.equal(encoding.bucket(offset), transformers_buckets(encoding, offset))


@pytest.mark.parametrize(("buckets", "max_distance"), [(64, 2**20), (1024, 2**30)])
def test_t5_buckets_differ_from_transformers_only_by_its_float32_logarithm(buckets, max_distance):
    encoding = T5(1, buckets=buckets, max_distance=max_distance)
    offset = distances(encoding)
    ours, theirs = encoding.bucket(offset), transformers_buckets(encoding, offset)
    differ = (ours != theirs).nonzero()[:, 0].tolist()
    assert differ
    near = buckets // 2
    with mpmath.workdps(60):
        for i in differ:
            share = mpmath.log(mpmath.mpf(int(offset[i])) / near)
            share *= (buckets - near) / mpmath.log(mpmath.mpf(max_distance) / near)
            assert int(ours[i]) == near + int(mpmath.floor(share))
            assert abs(share - mpmath.nint(share)) < 2**-23 * buckets
            assert abs(int(ours[i]) - int(theirs[i])) == 1


@given(side=st.integers(2, 40), reach=st.integers(1, 10**6), distance=st.integers(0, 2**31))
def test_t5_buckets_are_the_floor_of_the_logarithm(side, reach, distance):
    near, limit = side // 2, side // 2 + reach
    found = int(T5(1, buckets=side, max_distance=limit).bucket(torch.tensor([distance])))
    if distance < near:
        assert found == distance
        return
    with mpmath.workdps(80):
        share = mpmath.log(mpmath.mpf(distance) / near) / mpmath.log(mpmath.mpf(limit) / near)
        share *= side - near
        whole = mpmath.nint(share)  # both sides may be equal: the floor of 5 is 5
        floor = whole if abs(share - whole) < mpmath.mpf(10) ** -60 else mpmath.floor(share)
        assert found == min(side - 1, near + int(floor))


def test_t5_bias_is_a_row_of_the_table():
    encoding = T5(3)
    with torch.no_grad():
        encoding.weight.copy_(torch.arange(96.0).reshape(32, 3))
    bias = encoding.bias(torch.tensor([64]), torch.tensor([0, 64, 70]))
    assert bias[:, 0].tolist() == [[3 * 26 + h, h, h] for h in range(3)]


def test_t5_starts_at_the_width_of_a_model():
    with seeded(0):
        weight = T5(64, std=0.1).weight
    assert weight.std().item() == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"buckets": 1}, "buckets=1 must be at least 2 for each side"),
        ({"buckets": 2, "bidirectional": True}, "buckets=1 must be at least 2 for each side"),
        ({"buckets": 7, "bidirectional": True}, r"buckets=7 must be even .* use 8"),
        ({"max_distance": 16}, "max_distance=16 must be above 16"),
        ({"std": 0.0}, "std=0.0 must be finite and above 0"),
    ],
)
def test_t5_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        T5(2, **arguments)
    with pytest.raises(TypeError, match="bidirectional=1 must be True or False"):
        T5(2, bidirectional=1)  # pyright: ignore[reportArgumentType]


# KERPLE.


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_kerple_by_its_definition(kernel):
    encoding = Kerple(2, kernel)
    with torch.no_grad():
        encoding.a.copy_(torch.tensor([0.5, 1.5]))
        encoding.p.copy_(torch.tensor([1.25, 0.75]))
    places = torch.tensor([0, 1, 7, 5000, 2**31])
    bias = encoding.bias(torch.tensor([7]), places, torch.float64)
    with mpmath.workdps(40):
        for h, (a, p) in enumerate([(0.5, 1.25), (1.5, 0.75)]):
            for j, place in enumerate(places.tolist()):
                gap = mpmath.mpf(abs(7 - place))
                exact = -p * mpmath.log(1 + a * gap) if kernel == "log" else -a * gap**p
                assert bias[h, 0, j].item() == pytest.approx(float(exact), rel=1e-14)


def test_kerple_starts_in_the_ranges_of_the_authors():
    with seeded(0):
        encoding = Kerple(4000)
    for values, most in ((encoding.a, 1.0), (encoding.p, 2.0)):
        assert values.min() >= 0.01
        assert values.max() < most
        assert values.mean().item() == pytest.approx((most + 0.01) / 2, rel=0.05)


def test_kerple_holds_its_parameters_and_lets_them_return():
    encoding = Kerple(3, "power")
    with torch.no_grad():
        encoding.a.copy_(torch.tensor([-1.0, 0.5, 0.5]))
        encoding.p.copy_(torch.tensor([1.0, 0.0, 9.0]))
    bias = encoding.bias(torch.tensor([10]), torch.tensor([0]), torch.float64)
    expected = [-0.01 * 10, -0.5 * 10**0.01, -0.5 * 10**2]
    assert bias.flatten().tolist() == pytest.approx(expected, rel=1e-7)  # .01 in float32
    stored = encoding.a.detach().clone()
    bias.sum().backward()
    assert encoding.a.grad is not None
    assert encoding.p.grad is not None
    assert encoding.a.grad[0].item() == pytest.approx(-10)
    assert (encoding.p.grad[1:] != 0).all()
    assert torch.equal(encoding.a, stored)
    encoding.hold_()
    assert encoding.a.tolist() == pytest.approx([0.01, 0.5, 0.5])
    assert encoding.p.tolist() == pytest.approx([1, 0.01, 2])
    log = Kerple(1)
    with torch.no_grad():
        log.p.fill_(9.0)
    log.hold_()
    assert log.p.item() == 9


def test_kerple_has_no_gradient_at_distance_zero():
    encoding = Kerple(2, "power")
    encoding.bias(torch.arange(3), torch.arange(3)).diagonal(dim1=-2, dim2=-1).sum().backward()
    assert encoding.p.grad is not None
    assert torch.equal(encoding.p.grad, torch.zeros(2))


def test_kerple_refuses_an_unknown_kernel():
    with pytest.raises(ValueError, match=re.escape("kernel='wei' is unknown; use one of")):
        Kerple(2, "wei")  # pyright: ignore[reportArgumentType]


# ALiBi: slopes by the authors' rule are in test_encodings.py.


@pytest.mark.parametrize("heads", [1, 2, 6, 8, 12, 40])
def test_alibi_has_the_slopes_of_bloom(heads):
    """BLOOM adds m·j, which softmax cannot tell from −m·(i − j)."""
    theirs = build_alibi_tensor(torch.ones(1, 20, dtype=torch.int64), heads, torch.float32)
    ours = -ALiBi(heads).bias(torch.tensor([0]), torch.arange(20))
    assert torch.allclose(ours, theirs, rtol=1e-6, atol=0)


def test_geometric_slopes_are_another_convention():
    assert geometric_slopes(8) == alibi_slopes(8)
    assert geometric_slopes(12) == pytest.approx([2 ** (-2 * h / 3) for h in range(1, 13)])
    bias = ALiBi(12, slopes="geometric").bias(torch.tensor([3]), torch.tensor([0]), torch.float64)
    assert bias.flatten().tolist() == [-3 * m for m in geometric_slopes(12)]


def test_alibi_tells_sides_apart():
    encoding = ALiBi(2, slopes=(0.5, 1.0), ahead=(2.0, 0.0), past_bonus=0.5)
    bias = encoding.bias(torch.arange(3), torch.arange(3), torch.float64)
    assert bias.tolist() == [
        [[0.0, -2.0, -4.0], [0.0, 0.0, -2.0], [-0.5, 0.0, 0.0]],
        [[0.0, 0.0, 0.0], [-0.5, 0.0, 0.0], [-1.5, -0.5, 0.0]],
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"slopes": "press"}, "slopes='press' is unknown; use 'authors', 'geometric' or 3 numbers"),
        ({"slopes": (1.0, 2.0)}, "slopes holds 2 numbers; heads=3 needs one per head"),
        ({"ahead": (1.0, 2.0, -1.0)}, r"ahead\[2\]=-1.0 must be finite and at least 0"),
        ({"past_bonus": math.inf}, "past_bonus=inf must be finite"),
    ],
)
def test_alibi_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        ALiBi(3, **arguments)


# Sandwich.


def test_sandwich_has_the_gaps_of_the_literature():
    """Smallest gap 3.9e-8 and 4,029 rises over offsets ≤ 8192, with d̄ = 128."""
    encoding = Sandwich(1)
    total = encoding.bias(torch.tensor([0]), torch.arange(8193), torch.float64)[0, 0] * 8
    assert f"{total.sort().values.diff().min().item():.1e}" == "3.9e-08"
    assert int((total.diff() > 0).sum()) == 4029
    assert total[0] == 64


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("centred", [False, True])
def test_sandwich_by_its_definition(first, centred):
    encoding = Sandwich(4, dim=32, first=first, centred=centred)
    places = [0, 1, 100, 131071, 2**31]
    bias = encoding.bias(torch.tensor([7]), torch.tensor(places), torch.float64)
    with mpmath.workdps(40):
        for h in range(4):
            for j, place in enumerate(places):
                exact = mpmath.fsum(
                    mpmath.cos((7 - place) * mpmath.mpf(10) ** (-mpmath.mpf(k) / 4))
                    for k in range(first, 16 + first)
                )
                exact = (exact - 16 * centred) / (8 * mpmath.mpf(h + 1) / 4)
                allowed = 2e-14 + 32 * 3e-19 * place + 16 * 1.2e-16 * place
                assert abs(bias[h, 0, j].item() - exact) <= allowed


def test_sandwich_is_the_formula_of_nemo():
    """(Σ cos(Δω) − d/2) ÷ (8h/H) with ω counted from 1, in float32."""
    heads, dim, tokens = 6, 64, 40
    offset = torch.arange(tokens)[:, None] - torch.arange(tokens)
    rate = 10000.0 ** (-2 * torch.arange(1, dim // 2 + 1) / dim)
    total = (offset[..., None] * rate).cos().sum(-1) - dim / 2
    theirs = total / (torch.arange(1, heads + 1)[:, None, None] * 8 / heads)
    line = torch.arange(tokens)
    ours = Sandwich(heads, dim=dim, first=1, centred=True).bias(line, line)
    assert torch.allclose(ours, theirs, atol=3e-5)


@pytest.mark.parametrize("width", [2, 128, 1000])
def test_exact_products_do_not_depend_on_the_order_of_sums(width):
    x, y = (random(9, width, seed=seed).sin() for seed in (1, 2))
    order = torch.randperm(width, generator=torch.Generator().manual_seed(0))
    found = exact_products(x, y)
    assert torch.equal(found, exact_products(x[:, order], y[:, order]))
    assert torch.equal(found[3:4], exact_products(x[3:4], y))
    for i, j in ((0, 0), (4, 7), (8, 8)):
        exact = math.fsum(a * b for a, b in zip(x[i].tolist(), y[j].tolist(), strict=True))
        assert found[i, j].item() == pytest.approx(exact, rel=1e-14, abs=1e-17 * width)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 7}, "dim=7 must be even"),
        ({"base": 0.0}, "base=0.0 must be finite and above 0"),
        ({"first": 2}, "first=2 must be 0, or 1"),
    ],
)
def test_sandwich_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sandwich(2, **arguments)
    with pytest.raises(TypeError, match="centred=1 must be True or False"):
        Sandwich(2, centred=1)  # pyright: ignore[reportArgumentType]


# FIRE.


def layers(encoding: Fire) -> list[nn.Linear]:
    return [layer for layer in encoding.mlp if isinstance(layer, nn.Linear)]


def literal_fire(encoding: Fire, q_places: Tensor, k_places: Tensor) -> Tensor:
    """The network of the paper's appendix on every pair of positions."""
    distance = (q_places[:, None] - k_places).abs()
    reach = torch.maximum(q_places.double(), (encoding.L_multiplier * encoding.length).abs())
    scale = (encoding.c * reach).abs()
    x = ((encoding.c * distance).abs() + 1).log() / ((scale + 1).log() + 1e-6)[:, None]
    return encoding.mlp(x[..., None]).movedim(-1, 0)


def test_fire_is_the_network_with_its_gradients():
    with seeded(0):
        encoding = Fire(3, length=40.0).double()
    first, _ = layers(encoding)
    with torch.no_grad():
        first.weight[4:6] = 0.0
        first.bias[5] = -0.3
        encoding.L_multiplier.fill_(-1.1)
        encoding.c.fill_(-0.2)
    q, k = torch.tensor([0, 3, 39, 100, 9000]), torch.arange(0, 9000, 77)
    weight = random(3, 5, len(k))
    pair = []
    for bias in (encoding.bias(q, k, torch.float64), literal_fire(encoding, q, k)):
        grads = torch.autograd.grad((bias * weight).sum(), list(encoding.parameters()))
        pair.append((bias, *grads))
    for found, expected in zip(*pair, strict=True):
        assert torch.allclose(found, expected, rtol=1e-11, atol=1e-12)


def test_fire_of_equal_knots():
    encoding = Fire(2, width=4).double()
    first, _ = layers(encoding)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0], [2.0], [-1.0], [-2.0]]))
        first.bias.copy_(torch.tensor([-0.5, -1.0, 0.5, 1.0]))
    q, k = torch.arange(60), torch.arange(60)
    expected = literal_fire(encoding, q, k)
    assert torch.allclose(encoding.bias(q, k, torch.float64), expected, atol=1e-13)


def test_fire_starts_as_in_the_paper():
    encoding = Fire(12)
    assert [p.shape for p in encoding.mlp.parameters()] == [(32, 1), (32,), (12, 32), (12,)]
    assert (encoding.c.item(), encoding.L_multiplier.item()) == (pytest.approx(0.1), 1)
    with seeded(3):
        encoding.reset_parameters()
    with seeded(3):
        linear = nn.Linear(1, 32), nn.Linear(32, 12)
    for ours, theirs in zip(layers(encoding), linear, strict=True):
        assert torch.equal(ours.weight, theirs.weight)
        assert torch.equal(ours.bias, theirs.bias)


def test_fire_depends_on_the_offset_below_its_length_and_not_beyond():
    with seeded(0):
        encoding = Fire(2, length=100.0)
    q, k = torch.arange(20), torch.arange(20)
    still = encoding.bias(q, k)
    assert torch.equal(encoding.bias(q + 80, k + 80), still)
    assert not torch.allclose(encoding.bias(q + 200, k + 200), still)


def test_fire_refuses():
    with pytest.raises(ValueError, match=r"c=0.0 must be finite and above 0"):
        Fire(2, c=0.0)
    with pytest.raises(ValueError, match=r"length=-1.0 must be finite and above 0"):
        Fire(2, length=-1.0)


# Attention with each of them.

HEADS, DIM = 4, 8
ALL: dict[str, Callable[[], ropewalk.Bias]] = {
    "alibi": lambda: ALiBi(HEADS, past_bonus=0.5, ahead="geometric"),
    "fire": lambda: Fire(HEADS, length=20.0),
    "kerple": lambda: Kerple(HEADS),
    "kerple power": lambda: Kerple(HEADS, "power"),
    "sandwich": lambda: Sandwich(HEADS),
    "t5": lambda: T5(HEADS, buckets=8, max_distance=20, bidirectional=True),
}


def made(name: str) -> ropewalk.Bias:
    with seeded(0):
        return ALL[name]()


def dense(encoding: ropewalk.Bias, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Attention by definition in float64, one logit at a time by the literal reference."""
    rows, keys = q.shape[-2], k.shape[-2]
    group = q.shape[-3] // k.shape[-3]
    result = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64)
    for h in range(q.shape[-3]):
        bias = torch.tensor(
            [[encoding.reference(h, keys - rows + i, j) for j in range(keys)] for i in range(rows)],
            dtype=torch.float64,
        )
        if causal:
            later = torch.arange(keys) > torch.arange(keys - rows, keys)[:, None]
            bias = bias.masked_fill(later, -math.inf)
        scores = q[:, h].double() @ k[:, h // group].double().mT / DIM**0.5 + bias
        result[:, h] = scores.softmax(-1) @ v[:, h // group].double()
    return result


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_that_of_the_definition(name, causal):
    encoding = made(name)
    q, k, v = random(2, HEADS, 30, DIM), random(2, 2, 30, DIM, seed=1), random(2, 2, 30, 5, seed=2)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-6), (torch.bfloat16, 0.02)):
        q, k, v = (x.to(dtype) for x in (q, k, v))
        found = ropewalk.attend(q, k, v, encoding, causal=causal)
        assert found.dtype == dtype
        expected = dense(encoding, q, k, v, causal)
        assert (found - expected).abs().max().item() <= tolerance


@pytest.mark.parametrize("name", ALL)
def test_a_decode_step_is_the_last_row_of_the_whole(name):
    encoding = made(name)
    tokens = 300  # more than a block of queries
    q, k, v = (random(1, HEADS, tokens, DIM, seed=s, dtype=torch.float32) for s in range(3))
    whole = ropewalk.attend(q, k, v, encoding)
    step = ropewalk.attend(q[..., -1:, :], k, v, encoding)
    assert torch.allclose(step, whole[..., -1:, :], rtol=1e-5, atol=1e-6)
    line = torch.arange(tokens)
    row = encoding.bias(line[-1:], line)
    assert torch.equal(row, encoding.bias(line, line)[..., -1:, :])


@pytest.mark.parametrize("name", ["fire", "kerple", "kerple power", "t5"])
@pytest.mark.parametrize("causal", [True, False])
def test_gradients_reach_every_parameter(name, causal):
    encoding = made(name)
    q, k, v = (random(1, HEADS, 270, DIM, seed=s, dtype=torch.float32) for s in range(3))
    ropewalk.attend(q, k, v, encoding, causal=causal).square().sum().backward()
    for title, parameter in encoding.named_parameters():
        assert parameter.grad is not None, title
        assert parameter.grad.abs().sum() > 0, title
        assert parameter.grad.isfinite().all(), title
