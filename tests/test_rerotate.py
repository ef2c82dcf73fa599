"""Keys moved by one rotation: against literal loops, against recomputation, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numeric_oracles import HALF_STEP, loop_rotate, odd_views
from torch import Tensor

import ropewalk
from ropewalk import RoPE, Spectrum, rotate, spectra
from ropewalk.models import differences, rerotate, rerotate_

FULL = spectra.geometric(8)
LONG = spectra.geometric(64, 1e5)
YARN = spectra.yarn(LONG, 4.0, 32768)
UNIT = {torch.float64: 2.0**-51, torch.float32: 2.0**-22, torch.bfloat16: 2.0**-8}
UNIT[torch.float16] = 2.0**-11
"""Largest rounding of a result that is rounded once, relative to the largest number in it."""
ENDS = st.sampled_from([-(2**63), 2**63 - 1, 0, -1, 131072])
ANYWHERE = st.integers(-(2**63), 2**63 - 1) | ENDS


def drawn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)


def largest(a: Tensor, b: Tensor) -> float:
    """max-abs difference over max-abs."""
    return ((a - b).abs().max() / b.abs().max()).item()


# ---- values --------------------------------------------------------------------------------------


@st.composite
def cases(draw) -> dict[str, Any]:
    """Two spectra on the same lanes, keys and positions of any kind."""
    pairs = draw(st.integers(1, 4))
    front, behind = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    layout = draw(st.sampled_from(["half", "interleaved", "proportional"]))
    heads = draw(st.integers(1, 2))
    width = front + 2 * pairs + behind
    if layout == "proportional":
        width = 2 * (front + pairs + behind)

    def spectrum() -> Spectrum:
        axes = draw(st.integers(1, 3))
        one = st.lists(st.floats(-3, 3) | st.just(0.0), min_size=pairs, max_size=pairs)
        matrix = st.lists(one, min_size=axes, max_size=axes)
        freqs: Any = draw(st.lists(matrix, min_size=heads, max_size=heads))
        return Spectrum(
            freqs if draw(st.booleans()) else freqs[0],
            width,
            layout="half" if layout == "proportional" else layout,
            pairing="proportional" if layout == "proportional" else "standard",
            lane_offset=front,
            attention_factor=draw(st.floats(0.5, 2)),
            unit=draw(st.sampled_from([1.0, 0.25, 0.1])),
        )

    old = spectrum()
    new = draw(st.sampled_from([old, spectrum(), old.replace(attention_factor=1.5)]))
    batch, tokens = draw(st.integers(0, 2)), draw(st.integers(0, 3))

    def positions(axes: int) -> Tensor:
        shape = draw(st.sampled_from([(tokens,), (batch, tokens)]))
        shape = shape if axes == 1 else (*shape, axes)
        count = int(torch.Size(shape).numel())
        numbers = draw(st.lists(ANYWHERE, min_size=count, max_size=count))
        return torch.tensor(numbers, dtype=torch.int64).reshape(shape)

    stay = draw(st.booleans()) and old.axes == new.axes
    group = draw(st.integers(1, 2))
    return {
        "old": old,
        "new": new,
        "k": drawn(batch, heads * group, tokens, width, seed=pairs),
        "p": positions(old.axes),
        "q": None if stay else positions(new.axes),
        "dtype": draw(st.sampled_from(list(UNIT))),
        "view": draw(st.integers(0, 5)),
    }


def planes(positions: Tensor, spectrum: Spectrum, batch: int) -> Tensor:
    positions = positions[..., None] if spectrum.axes == 1 else positions
    return positions.expand(batch, *positions.shape[-2:])


@settings(max_examples=150)
@given(cases())
def test_moved_keys_are_those_rotated_anew(case):
    old, new, k, p = case["old"], case["new"], case["k"], case["p"]
    q = p if case["q"] is None else case["q"]
    dtype = case["dtype"]
    keys = rotate(k, p, old)
    views = [keys, *(view for _, view in odd_views(keys))] if keys.numel() else [keys]
    narrow = views[case["view"] % len(views)].to(dtype)
    expected = rotate(k, q, new)
    if dtype != torch.float64:  # what is left of the keys after rounding them is what moves
        exact = rotate(rotate(narrow.double(), p, old, inverse=True), q, new)
    else:
        exact = expected
    found = rerotate(narrow, old, new, p, case["q"])
    assert found.dtype == dtype
    assert found.shape == narrow.shape
    if found.numel():
        scale = exact.abs().max()
        assert (found.double() - exact).abs().max() <= UNIT[dtype] * scale + 1e-13
    copy = narrow.clone()
    assert rerotate_(copy, old, new, p, case["q"]) is copy
    assert torch.equal(copy, found)
    out = torch.empty_like(narrow)
    assert rerotate(narrow, old, new, p, case["q"], out=out) is out
    assert torch.equal(out, found)
    back = rerotate(found, new, old, q, p)
    torch.testing.assert_close(back, narrow, rtol=0, atol=8 * UNIT[dtype] * 8)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_moved_keys_are_those_of_the_loop(layout):
    old = spectra.geometric(10, rotary_dim=6, lane_offset=3, layout=layout)
    new = Spectrum(
        ((0.3, -1.0, 0.0), (0.01, 2.0, 0.5)), 10, layout=layout, lane_offset=3, attention_factor=1.2
    )
    k, p = drawn(2, 2, 3, 10), torch.tensor([131072, 7, -(2**31)])
    q = torch.tensor([[5, 2**31], [-9, 131072], [0, 1]])
    keys = loop_rotate(k, planes(p, old, 2), old)
    expected = loop_rotate(k, planes(q, new, 2), new)
    tolerance = 1e-13 + 8 * HALF_STEP * 2**31
    torch.testing.assert_close(rerotate(keys, old, new, p, q), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("far", [0, 8192, 131072 - 256])
@pytest.mark.parametrize("phases", ["integer", "float32"])
@pytest.mark.parametrize(
    ("old", "new", "shift"),
    [
        (LONG, LONG, -100),
        (LONG, spectra.ntk(LONG, 8.0), 0),
        (LONG, YARN, 0),
        (YARN, spectra.linear(LONG, 4.0), 17),
    ],
    ids=["shift", "ntk", "yarn", "yarn to linear, shifted"],
)
def test_float32_keys_are_within_1e_5_of_recomputed_ones(old, new, shift, far, phases):
    k, p = drawn(1, 2, 256, 64, dtype=torch.float32), torch.arange(far, far + 256)
    before, after = (RoPE(s, phases=phases) for s in (old, new))
    keys, expected = before.encode_k(k, p), after.encode_k(k, p + shift)
    found = rerotate(keys, old, new, p, p + shift, phases=phases)
    assert largest(found, expected) < 1e-6
    assert torch.equal(found, rerotate(keys, before, after, p, p + shift))


def test_one_kind_of_phases_becomes_the_other():
    p = torch.arange(131000, 131072)
    usual, exact = RoPE(LONG, phases="float32"), RoPE(LONG)
    k = drawn(1, 2, 72, 64, dtype=torch.float32)
    there, here = usual.encode_k(k, p), exact.encode_k(k, p)
    assert largest(there, here) > 1e-4
    assert largest(rerotate(there, usual, exact, p), here) < 1e-6
    assert largest(rerotate(here, exact, usual, p), there) < 1e-6


def test_longrope_switches_where_the_length_passes_the_original():
    longrope = spectra.longrope(
        spectra.geometric(16),
        short_factor=[1.0] * 8,
        long_factor=[1.0, 1.5, 2, 4, 8, 16, 32, 64],
        original_max_position_embeddings=4096,
        factor=32.0,
    )
    short, long = longrope.for_length(4096), longrope.for_length(4097)
    k, p = drawn(1, 1, 64, 16), torch.arange(4032, 4096)
    assert short.freqs != long.freqs
    moved = rerotate(rotate(k, p, short), short, long, p)
    assert largest(moved, rotate(k, p, long)) < 1e-12
    with pytest.raises(ValueError, match=r"pin the length.*old\.for_length\(n\)"):
        rerotate(k, longrope, long, p)


def test_mrope_keys_move_along_their_axes():
    mrope = spectra.sectioned(spectra.geometric(16), [2, 3, 3])
    k, p = drawn(1, 2, 5, 16), torch.arange(15).reshape(5, 3)
    q = p - torch.tensor([4, 2, 1])
    assert largest(rerotate(rotate(k, p, mrope), mrope, mrope, p, q), rotate(k, q, mrope)) < 1e-13
    text = spectra.geometric(16)
    t = torch.arange(5)
    moved = rerotate(rotate(k, t, text), text, mrope, t, p)
    assert largest(moved, rotate(k, p, mrope)) < 1e-13
    with pytest.raises(ValueError, match="new has axes=3, old has axes=1"):
        rerotate(k, text, mrope, t)
    with pytest.raises(ValueError, match=r"movedim\(0, -1\)"):
        rerotate(k, mrope, mrope, p.T[:, None], q.T[:, None])


def test_heads_with_their_own_frequencies_move_each_by_its_own():
    old = Spectrum((((1.0, 0.1),), ((2.0, 0.3),)), 4, layout="interleaved")
    new = Spectrum(((0.5, 0.05),), 4, layout="interleaved")
    k, p, q = drawn(1, 2, 3, 4), torch.tensor([5, 6, 7]), torch.tensor([1, 2, 9])
    for a, b in ((old, new), (new, old), (old, old.replace(attention_factor=2.0))):
        for phases in ("integer", "float32"):
            got = rerotate(RoPE(a, phases=phases).encode_k(k, p), a, b, p, q, phases=phases)
            assert largest(got, RoPE(b, phases=phases).encode_k(k, q)) < 1e-12


def test_pairs_that_stand_keep_their_factor():
    old = spectra.proportional(16, fraction=0.5)
    new = old.replace(attention_factor=1.25)
    k, p = drawn(1, 1, 4, 16), torch.arange(4)
    assert largest(rerotate(rotate(k, p, old), old, new, p), rotate(k, p, new)) < 1e-14


def test_a_shift_is_one_rotation_by_the_difference():
    """Any positions so far apart that their difference wraps, with the same difference, agree."""
    k = drawn(1, 1, 2, 8)
    far = torch.tensor([2**63 - 1, -(2**63)])
    near = torch.tensor([0, 1])
    moved = rerotate(rotate(k, far, FULL), FULL, FULL, far, near)
    torch.testing.assert_close(moved, rotate(k, near, FULL), rtol=0, atol=1e-13)
    steps = differences.steps_between(FULL, FULL, False, torch.device("cpu"))
    assert steps.tensor.tolist() == [list(FULL.steps[0][0])]


def test_bfloat16_rounds_once_more():
    k, p = drawn(1, 4, 256, 64, dtype=torch.bfloat16), torch.arange(256)
    keys = rotate(k, p, LONG)
    found = rerotate(keys, LONG, YARN, p)
    assert torch.equal(found, rerotate(keys.float(), LONG, YARN, p).to(torch.bfloat16))


# ---- gradients and kinds of tensors --------------------------------------------------------------


@pytest.mark.parametrize("phases", ["integer", "float32"])
def test_gradients_flow_to_the_keys(phases):
    k, p, q = drawn(1, 2, 3, 8).requires_grad_(), torch.arange(3), torch.arange(3) + 9
    new = spectra.ntk(FULL, 4.0)
    rerotate(k, FULL, new, p, q, phases=phases).square().sum().backward()
    torch.testing.assert_close(k.grad, 2 * k.detach())
    with pytest.raises(ValueError, match="leaf that requires grad"):
        rerotate_(k, FULL, new, p, q, phases=phases)
    k.grad = None
    moved = rerotate_(k * 3, FULL, new, p, q, phases=phases)
    moved.square().sum().backward()
    torch.testing.assert_close(k.grad, 18 * k.detach())


@pytest.mark.parametrize("phases", ["integer", "float32"])
def test_compiled_it_gives_the_same(phases):
    k, p = drawn(1, 2, 3, 8, dtype=torch.float32), torch.arange(3)
    new = spectra.ntk(FULL, 4.0)

    def move(k: Tensor, p: Tensor) -> Tensor:
        return rerotate(k, FULL, new, p, p + 3, phases=phases) * 2

    compiled = torch.compile(move, backend="eager")
    torch.testing.assert_close(compiled(k, p), move(k, p), rtol=0, atol=1e-6)


# ---- refusals ------------------------------------------------------------------------------------

K, P = drawn(1, 2, 3, 8), torch.arange(3)


class Scaling(RoPE):
    """Stands for xPos: it scales keys by position as it turns them."""

    def encode_k(self, k, positions=None, *, offset=None):
        return super().encode_k(k, positions, offset=offset) * 2


REFUSED = [
    ({"k": "keys"}, TypeError, "k must be a tensor"),
    ({"k": K.to(torch.int8)}, TypeError, "torch.int8: quantised keys.*dequantise"),
    ({"k": K.to(torch.float8_e4m3fn)}, TypeError, "float8_e4m3fn: quantised keys"),
    ({"k": K.to(torch.complex64)}, TypeError, "complex64; a rotation needs a real floating dtype"),
    ({"k": K[..., :6]}, ValueError, r"shape \(1, 2, 3, 6\); old rotates.*8\]"),
    ({"new": spectra.geometric(8, layout="interleaved")}, ValueError, "layout='interleaved'"),
    ({"new": spectra.geometric(8, rotary_dim=4)}, ValueError, "rotary_dim=8, new has rotary_dim=4"),
    ({"new": spectra.geometric(16)}, ValueError, "head_dim=8, new has head_dim=16"),
    (
        {
            "old": spectra.geometric(8, rotary_dim=4),
            "new": spectra.geometric(8, rotary_dim=4, lane_offset=4),
        },
        ValueError,
        "lane_offset=4",
    ),
    (
        {
            "old": Spectrum((((1.0,) * 4,),) * 2, 8),
            "new": Spectrum((((1.0,) * 4,),) * 4, 8),
        },
        ValueError,
        "frequencies for 2 heads, new for 4",
    ),
    ({"old": Spectrum((((1.0,) * 4,),) * 3, 8)}, ValueError, "2 heads, not a multiple"),
    ({"new": FULL.replace(attention_factor=1e-300)}, ValueError, "no digits of the keys"),
    ({"old": FULL.replace(attention_factor=1e-300)}, ValueError, "attention_factor=1e-300"),
    ({"old": Scaling(FULL)}, TypeError, "old is a Scaling.*not undone"),
    ({"old": ropewalk.make("alibi", heads=2)}, TypeError, "old is a .*fixed rotation"),
    ({"new": [1.0]}, TypeError, "new is a list; give the Spectrum"),
    ({"phases": "float64"}, ValueError, "phases='float64' is unknown"),
    (
        {"old": FULL.replace(unit=0.5), "phases": "float32"},
        ValueError,
        "old has unit=0.5.*phases='integer'",
    ),
    ({"positions": torch.arange(4)}, ValueError, "positions have shape.*4 tokens.*k has shape"),
    ({"new_positions": torch.arange(2)}, ValueError, "new_positions have shape.*2 tokens"),
    ({"new_positions": torch.arange(3.0)}, TypeError, "new_positions have dtype"),
    ({"positions": [0, 1, 2]}, TypeError, "positions must be a tensor"),
    ({"positions": P.to("meta")}, ValueError, "k is on cpu, positions are on meta"),
    (
        {"positions": torch.tensor([0, 1, 2**63], dtype=torch.uint64)},
        ValueError,
        "9223372036854775808, which does not fit int64",
    ),
    ({"positions": torch.arange(9).reshape(3, 3)}, ValueError, "do not broadcast over"),
]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("changed", "kind", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_undone_is_refused(changed, kind, words, in_place):
    given: dict[str, Any] = {"k": K, "old": FULL, "new": FULL, "positions": P, **changed}
    with pytest.raises(kind, match=words):
        (rerotate_ if in_place else rerotate)(**given)


def test_an_attention_factor_of_zero_is_no_spectrum():
    with pytest.raises(ValueError, match="attention_factor"):
        FULL.replace(attention_factor=0.0)
