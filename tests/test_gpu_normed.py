"""The Triton kernel that norms heads and turns them in one launch, interpreted, against float64.

What it compiles to is the subject of test_gpu_compiled.py.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from gpu_cases import DTYPES, EPS, assert_turned, bits, drawn, reference, rotations, strided
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreted import added, kernels
from torch import Tensor

from ropewalk.kernels import gpu
from ropewalk.kernels.gpu.meta import Lanes, Meta, Operand
from ropewalk.kernels.gpu.plan import Plan
from ropewalk.kernels.gpu.prepare import normed_launch
from ropewalk.spectra import Spectrum, geometric

SLACK = {torch.float32: 4e-7, torch.float64: 1e-15}
"""Of the mean, its root and the products, beside those of the rotation."""


def in_float64(
    x: Tensor, weight: Tensor | None, eps: float, where: Tensor, spectrum: Spectrum, inverse=False
) -> Tensor:
    """R (w ∘ x ÷ √(mean x² + eps)), by plain arithmetic."""
    y = x.double() / (x.double().square().mean(-1, keepdim=True) + eps).sqrt()
    return reference(y if weight is None else y * weight.double(), where, spectrum, inverse)


def assert_normed(found: Tensor, expected: Tensor) -> None:
    assert_turned(found, expected, SLACK.get(found.dtype, 0.0))


def blank(x: Tensor) -> Tensor:
    return torch.full(x.shape, math.nan, dtype=x.dtype)


@settings(max_examples=30)
@given(st.data())
def test_any_shape_layout_strides_and_weights(data):
    spectrum, shape, where = data.draw(rotations())
    own, dtype = spectrum.heads or 1, data.draw(st.sampled_from(DTYPES))
    size = data.draw(st.sampled_from([1e-2, 1.0, 30.0]))
    eps = data.draw(st.sampled_from([1e-6, 1e-3, 2.0]))
    heads = own * data.draw(st.integers(1, 3))
    shapes = shape, (*shape[:-3], heads, *shape[-2:])
    operands = [
        data.draw(strided(drawn(s, dtype, seed) * size)) for seed, s in enumerate(shapes, start=1)
    ]
    kinds = st.sampled_from([None, dtype, torch.float32])
    weights = [
        None if kind is None else data.draw(strided(drawn(shape[-1:], kind, seed)))
        for seed, kind in ((3, data.draw(kinds)), (4, data.draw(kinds)))
    ]
    inverse = data.draw(st.booleans())
    expected = [
        in_float64(x, w, eps, where, spectrum, inverse)
        for x, w in zip(operands, weights, strict=True)
    ]
    outs = [x if data.draw(st.booleans(), "in place") else blank(x) for x in operands]
    (q, k), (q_out, k_out), (q_weight, k_weight) = operands, outs, weights
    how: Any = eps, where, 0, spectrum.on().tensor, *spectrum.turns[inverse]
    if data.draw(st.booleans(), "q and k"):
        gpu.normed(q, k, q_out, k_out, q_weight, k_weight, *how)
        assert_normed(k_out, expected[1])
    else:
        gpu.normed(q, None, q_out, None, q_weight, None, *how)
    assert_normed(q_out, expected[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_the_mean_is_over_lanes_that_do_not_turn_too(layout, dtype):
    """Number by number, in plain Python; a large lane outside the pairs makes the others small."""
    spectrum = geometric(10, rotary_dim=4, lane_offset=3, layout=layout)
    x, weight = torch.ones(1, 1, 1, 10, dtype=dtype), torch.arange(1, 11).to(dtype)
    for large in (0, 9):
        x[..., large] = 7
        out, root = blank(x), math.sqrt(sum(n * n for n in x.flatten().tolist()) / 10 + 0.5)
        lanes = [n * w / root for n, w in zip(x.flatten().tolist(), weight.tolist(), strict=True)]
        where, (first, second) = torch.tensor([[5]]), spectrum.lanes
        for c, (a, b) in enumerate(zip(range(10)[first], range(10)[second], strict=True)):
            angle = 5 * 10_000.0 ** (-2 * c / 4)
            lanes[a], lanes[b] = (
                lanes[a] * math.cos(angle) - lanes[b] * math.sin(angle),
                lanes[a] * math.sin(angle) + lanes[b] * math.cos(angle),
            )
        steps, turn = spectrum.on().tensor, spectrum.turns[False]
        gpu.normed(x, None, out, None, weight, None, 0.5, where, 0, steps, *turn)
        assert_normed(out.flatten(), torch.tensor(lanes, dtype=torch.float64))


def test_more_lanes_pass_than_a_run_holds():
    spectrum = Spectrum(((0.5, 0.1),), 800, lane_offset=131, pairing="proportional")
    x, weight = drawn((1, 2, 3, 800), torch.float32), drawn((800,), torch.float32, 1)
    out, where = blank(x), torch.arange(3)
    steps, turn = spectrum.on().tensor, spectrum.turns[False]
    gpu.normed(x, None, out, None, weight, None, 1e-6, where, 0, steps, *turn)
    assert_normed(out, in_float64(x, weight, 1e-6, where, spectrum))


@pytest.mark.parametrize("shares", [1, 2, 3, 7])
def test_every_head_is_normed_once_whatever_its_share(shares):
    spectrum = Spectrum((((0.5, 0.1),), ((0.25, 2.0),)), 6, lane_offset=1)
    q, k = drawn((1, 6, 5, 6), torch.float64, 1), drawn((1, 2, 5, 6), torch.float64, 2)
    weight, where, outs = drawn((6,), torch.float64, 3), torch.arange(5), [blank(q), blank(k)]
    cut = Plan(block_rows=4, block_pairs=2, shares=shares, warps=1)
    operands = [Operand.of(*pair) for pair in zip((q, k), outs, strict=True)]
    steps, turn = spectrum.on().tensor, spectrum.turns[False]
    known = operands, [Meta.of(weight), None], Meta.of(where), Meta.of(steps)
    launch = normed_launch(*known, Lanes.of(turn.lanes), cut)
    assert launch is not None
    run = kernels().turn_normed[(launch.job.programs,)]
    run(q, outs[0], k, outs[1], weight, None, 1e-6, where, 0, steps, 1.0, 1.0, *launch.numbers)
    assert_normed(outs[0], in_float64(q, weight, 1e-6, where, spectrum))
    assert_normed(outs[1], in_float64(k, None, 1e-6, where, spectrum))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_else_is_written(dtype, in_place):
    """Around a result inside a larger memory full of patterns."""
    spectrum = geometric(12, rotary_dim=6, lane_offset=3)
    source = torch.arange(4 * 9 * 20, dtype=torch.int64) * 0x9E37_79B9_7F4A_7C15
    memory = source.view(dtype)[: 4 * 9 * 20].reshape(4, 9, 20).clone()
    view = memory[1:3, 2:7, 4:16]
    view.copy_(drawn((2, 5, 12), dtype))
    x, before = (view if in_place else view.clone()), bits(memory.clone())
    values, where = view.clone(), torch.arange(5)
    steps, turn = spectrum.on().tensor, spectrum.turns[False]
    gpu.normed(x, None, view, None, None, None, 1e-5, where, 0, steps, *turn)
    assert_normed(view, in_float64(values, None, 1e-5, where, spectrum))
    after = bits(memory)
    after[1:3, 2:7, 4:16] = before[1:3, 2:7, 4:16]
    assert torch.equal(after, before)


def test_bfloat16_is_rounded_once():
    """Each value is one of the two neighbours of the float32 result."""
    spectrum, where = geometric(32, rotary_dim=24), torch.arange(40) * 10**15
    x, weight = drawn((1, 1, 40, 32), torch.bfloat16), drawn((32,), torch.bfloat16, 1)
    out, full = torch.empty_like(x), torch.empty(x.shape)
    how: Any = 1e-6, where, 0, spectrum.on().tensor, *spectrum.turns[False]
    gpu.normed(x, None, out, None, weight, None, *how)
    gpu.normed(x.float(), None, full, None, weight, None, *how)
    truncated = (full.view(torch.int32) & -65536).view(torch.float32)
    near = (out.float() - full).abs() <= full.abs() * 2**-7
    assert near.all()
    assert ((out.float() == truncated) | (out == full.bfloat16())).float().mean() > 0.99


@pytest.mark.parametrize("offset", [0, -3, 2**63 - 6])
def test_positions_that_count_tokens(offset):
    spectrum = geometric(8, layout="interleaved")
    q, k = drawn((2, 2, 5, 8), torch.float64, 1), drawn((2, 1, 5, 8), torch.float64, 2)
    where, outs = torch.arange(5) + offset, [blank(q), blank(k)]
    steps, turn = spectrum.on().tensor, spectrum.turns[False]
    gpu.normed(q, k, outs[0], outs[1], None, None, 1e-6, None, offset, steps, *turn)
    for x, out in ((q, outs[0]), (k, outs[1])):
        assert_normed(out, in_float64(x, None, 1e-6, where, spectrum))


@pytest.mark.filterwarnings("ignore:invalid value")  # numpy, of inf ÷ inf
def test_a_head_keeps_infinities_and_nan_to_itself():
    spectrum = geometric(12, rotary_dim=8)
    x = drawn((1, 3, 4, 12), torch.float32)
    x[0, 1, 2, 11], x[0, 2, 0, 0] = math.nan, math.inf
    out = torch.empty_like(x)
    steps, turn = spectrum.on().tensor, spectrum.turns[False]
    gpu.normed(x, None, out, None, None, None, 1e-6, torch.arange(4), 0, steps, *turn)
    hurt = ~out.isfinite().all(-1)
    assert hurt.nonzero().tolist() == [[0, 1, 2], [0, 2, 0]]


@pytest.mark.parametrize("shape", [(0, 2, 3, 8), (2, 0, 3, 8), (2, 2, 0, 8)])
def test_empty_tensors(shape):
    x, spectrum = torch.zeros(shape), geometric(8)
    how: Any = 1e-6, torch.arange(shape[-2]), 0, spectrum.on().tensor, *spectrum.turns[False]
    gpu.normed(x, None, torch.empty_like(x), None, torch.ones(8), None, *how)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (torch.ones(7), r"weight is \(7,\).*\(8,\) on cpu"),
        (torch.ones(2, 8), r"weight is \(2, 8\)"),
        (torch.ones(8, dtype=torch.int64), "weight is .*int64.*real, floating"),
        (torch.ones(8, device="meta"), "weight is .* on meta"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weight, words):
    x, spectrum = drawn((2, 3, 8), torch.float32), geometric(8)
    out, where = blank(x), torch.arange(3)
    how: Any = 1e-6, where, 0, spectrum.on().tensor, *spectrum.turns[False]
    with pytest.raises(gpu.Misfit, match=words):
        gpu.normed(x, None, out, None, weight, None, *how)
    with pytest.raises(gpu.Misfit, match="go together"):
        gpu.normed(x, None, out, out, None, None, *how)
    assert out.isnan().all()


def test_errors_allowed_are_those_of_rounding():
    """The bounds above are far below what a mean over fewer lanes, or no eps, would change."""
    x, spectrum, where = drawn((1, 1, 4, 16), torch.float64), geometric(16), torch.arange(4)
    right = in_float64(x, None, 1e-3, where, spectrum)
    without = in_float64(x, None, 0.0, where, spectrum)
    assert (right - without).abs().max() > 100 * (EPS[torch.float32] + SLACK[torch.float32])


def test_rows_are_summed_on_a_gpu_too():
    """Where the interpreter takes a sum of its own, a GPU takes this one."""
    assert added.fn(2.0, 3.0) == 5.0
