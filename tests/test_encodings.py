"""Golden values of every encoding, and what wrong input is told."""

from __future__ import annotations

import math
import re
from itertools import product

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ropewalk
from ropewalk import spectra
from ropewalk.encodings.additive import Binary, Integer, Learned, Normalised, Sinusoidal
from ropewalk.encodings.bias import ALiBi, alibi_slopes
from ropewalk.encodings.rotary import AxialRoPE, RoPE, p_rope

FAR = (0, 1, 4095, 131071, 1048575, 10_000_019, 2**31 + 5)
"""Positions of the phase checks."""

pytestmark = pytest.mark.usefixtures("poisoned")


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


# Integer.


@pytest.mark.parametrize(
    ("dtype", "distinct", "exact"), [(torch.bfloat16, 769, 256), (torch.float16, 3073, 2048)]
)
def test_integer_codes_collide_in_low_precision(dtype, distinct, exact):
    codes = Integer(3).encode(torch.arange(4096), dtype=dtype)
    assert codes.shape == (4096, 3)
    assert len(codes[:, 0].unique()) == distinct
    assert torch.equal(codes[: exact + 1, 2].long(), torch.arange(exact + 1))
    assert codes[exact + 1, 0].item() != exact + 1


# Normalised.


def test_normalised_depends_on_the_length():
    encoding = Normalised(2)
    five = torch.tensor([5])
    assert encoding.encode(five, length=10, dtype=torch.float64)[0, 0] == 5 / 9
    assert encoding.encode(five, length=10_000, dtype=torch.float64)[0, 1] == 5 / 9999
    line = encoding.encode(torch.arange(10), dtype=torch.float64)
    assert torch.equal(line[:, 0], torch.arange(10, dtype=torch.float64) / 9)


def test_normalised_length_may_differ_by_row():
    length = torch.tensor([[3], [5]])
    codes = Normalised(1).encode(torch.arange(3).expand(2, 3), length=length, dtype=torch.float64)
    assert codes[..., 0].tolist() == [[0, 0.5, 1], [0, 0.25, 0.5]]


def test_normalised_rows_are_independent_once_the_length_is_given():
    encoding, x = Normalised(4), random(2, 3, 4)
    positions = torch.tensor([[0, 1, 2], [7, 8, 9]])
    both = encoding(x, positions, length=10)
    for row in range(2):
        alone = encoding(x[row : row + 1], positions[row : row + 1], length=10)
        assert torch.equal(both[row : row + 1], alone)


def test_normalised_single_token_is_zero():
    assert Normalised(2).encode(torch.tensor([0])).tolist() == [[0.0, 0.0]]
    assert Normalised(2).reference(0, 1) == [0.0, 0.0]
    assert Normalised(2).encode(torch.tensor([0]), length=1).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("length", [0, -1, 2.0, True])
def test_normalised_refuses_a_length_that_is_none(length):
    with pytest.raises(ValueError, match=re.escape(f"length={length!r} must be an int of at")):
        Normalised(2).encode(torch.tensor([0]), length=length)


# Binary.


def test_binary_252_is_11111100():
    code = Binary(8).encode(torch.tensor([252]))[0]
    assert code.tolist() == [0, 0, 1, 1, 1, 1, 1, 1], "lane 0 holds the lowest bit"
    assert "".join(str(int(bit)) for bit in code.flip(0)) == "11111100" == f"{252:b}"


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_binary_tells_two_to_the_n_apart_and_no_more(bits):
    encoding = Binary(12, bits=bits)
    codes = encoding.encode(torch.arange(2**bits + 1))
    assert len(codes[:-1].unique(dim=0)) == 2**bits
    assert torch.equal(codes[-1], codes[0]), "2^n looks like 0 again"


def test_binary_minus_one_is_all_ones():
    encoding = Binary(63, bits=63)
    assert encoding.encode(torch.tensor([-1])).tolist() == [[1.0] * 63]
    assert encoding.reference(-1) == [1.0] * 63
    assert encoding.encode(torch.tensor([-2]))[0, :2].tolist() == [0, 1]
    assert encoding.encode(torch.tensor([2**62]))[0].nonzero().tolist() == [[62]]


def test_binary_stretches_bits_over_lanes():
    code = Binary(7, bits=3).encode(torch.tensor([0b101]))[0]
    assert code.tolist() == [1, 1, 1, 0, 0, 1, 1]


def test_binary_neighbours_can_flip_every_bit():
    codes = Binary(4).encode(torch.tensor([7, 8]))
    assert (codes[0] != codes[1]).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_binary_is_exact_in_every_dtype(dtype):
    codes = Binary(20).encode(torch.arange(1000), dtype=dtype)
    assert torch.equal(codes.double(), Binary(20).encode(torch.arange(1000)).double())


# Sinusoidal.


def literal_sinusoid(position: int, dim: int, base: float, layout: str, shift: int) -> list:
    """The definition in 50 digits, for one position, from the exact frequencies."""
    half = mpmath.mpf(dim) / 2 if shift == 0 else mpmath.mpf(dim // 2 - 1)
    sines, cosines = [], []
    for i in range((dim + 1) // 2):
        angle = position * mpmath.mpf(base) ** (-mpmath.mpf(i) / half)
        sines.append(mpmath.sin(angle))
        cosines.append(mpmath.cos(angle))
    cosines = cosines[: dim // 2]
    if layout == "interleaved":
        return [(cosines if j % 2 else sines)[j // 2] for j in range(dim)]
    return sines + cosines if layout == "sin_cos" else cosines + sines


@pytest.mark.parametrize("layout", ["interleaved", "sin_cos", "cos_sin"])
@pytest.mark.parametrize(("dim", "shift"), [(1, 0), (2, 0), (7, 0), (7, 1), (8, 1), (64, 0)])
def test_sinusoids_are_those_of_the_definition(dim, shift, layout):
    encoding = Sinusoidal(dim, layout=layout, shift=shift)
    codes = encoding.encode(torch.tensor(FAR), dtype=torch.float64)
    single = encoding.encode(torch.tensor(FAR))
    with mpmath.workdps(50):
        for row, position in enumerate(FAR):
            exact = [float(value) for value in literal_sinusoid(position, dim, 1e4, layout, shift)]
            # the frequency is rounded once to float64, which moves the angle by 1.1e-16 of itself
            allowed = 1e-15 + (1.2e-16 + 1.7e-19) * position
            found = codes[row].tolist()
            assert max(abs(f - e) for f, e in zip(found, exact, strict=True)) <= allowed
            found = single[row].tolist()
            assert max(abs(f - e) for f, e in zip(found, exact, strict=True)) <= 1.2e-7 + allowed


@pytest.mark.parametrize("base", [1e4, 5e5, 1e6])
@pytest.mark.parametrize("dim", [64, 128])
def test_sinusoids_of_the_float64_frequency_at_any_position(dim, base):
    encoding = Sinusoidal(dim, base)
    codes = encoding.encode(torch.tensor(FAR))
    with mpmath.workdps(50):
        for row, position in enumerate(FAR):
            for i, frequency in enumerate(encoding.spectrum.inv_freq):
                angle = position * mpmath.mpf(frequency)
                for lane, exact in ((2 * i, mpmath.sin(angle)), (2 * i + 1, mpmath.cos(angle))):
                    assert abs(codes[row, lane].item() - exact) <= 1.2e-7 + 1.7e-19 * position


@pytest.mark.parametrize("dim", [1, 2, 6, 9])
def test_layouts_are_permutations_of_one_another(dim):
    places = torch.arange(-40, 40)
    woven, sin_cos, cos_sin = (
        Sinusoidal(dim, layout=layout).encode(places)
        for layout in ("interleaved", "sin_cos", "cos_sin")
    )
    even, odd = woven[:, 0::2], woven[:, 1::2]
    assert torch.equal(sin_cos, torch.cat((even, odd), dim=-1))
    assert torch.equal(cos_sin, torch.cat((odd, even), dim=-1))


def test_the_first_lane_is_the_sine():
    assert Sinusoidal(4).encode(torch.tensor([0])).tolist() == [[0, 1, 0, 1]]
    assert Sinusoidal(4, layout="sin_cos").encode(torch.tensor([0])).tolist() == [[0, 0, 1, 1]]
    assert Sinusoidal(4, layout="cos_sin").encode(torch.tensor([0])).tolist() == [[1, 1, 0, 0]]
    assert Sinusoidal(4).encode(torch.tensor([1]))[0, 0].item() == pytest.approx(math.sin(1))


def test_both_divisors():
    assert Sinusoidal(8).spectrum.inv_freq[-1] == pytest.approx(1e4 ** (-3 / 4), rel=1e-15)
    assert Sinusoidal(8, shift=1).spectrum.inv_freq[-1] == pytest.approx(1e-4, rel=1e-15)


def test_scale_multiplies():
    plain = Sinusoidal(6).encode(torch.arange(50), dtype=torch.float64)
    scaled = Sinusoidal(6, scale=0.03).encode(torch.arange(50), dtype=torch.float64)
    assert torch.equal(scaled, plain * 0.03)


@pytest.mark.parametrize("layout", ["interleaved", "sin_cos", "cos_sin"])
@pytest.mark.parametrize("k", [0, 1, -1, 17, -4096, 2**31 + 5, -(2**40)])
def test_shift_matrix_shifts(layout, k):
    encoding = Sinusoidal(10, layout=layout, scale=0.5)
    matrix = encoding.shift_matrix(k)
    assert matrix is not None
    assert matrix.dtype == torch.float64
    places = torch.tensor([0, 1, 77, -5, 131071])
    start = encoding.encode(places, dtype=torch.float64)
    moved = encoding.encode(places + k, dtype=torch.float64)
    assert (start @ matrix.T - moved).abs().max() <= 1e-14 + 4e-19 * abs(k)
    wrong = encoding.shift_matrix(-k)
    assert wrong is not None
    assert k == 0 or (start @ wrong.T - moved).abs().max() > 1e-2
    assert (matrix @ matrix.T - torch.eye(10).double()).abs().max() < 1e-14, "a rotation"


def test_shift_matrix_turns_the_pair_by_minus_k():
    matrix = Sinusoidal(2).shift_matrix(1)
    assert matrix is not None
    cos, sin = math.cos(1), math.sin(1)
    assert matrix.tolist() == pytest.approx(torch.tensor([[cos, sin], [-sin, cos]]).double())


def test_an_odd_width_has_no_shift_matrix():
    assert Sinusoidal(7).shift_matrix(1) is None
    assert Integer(4).shift_matrix(1) is None


# Learned.


@pytest.mark.parametrize(
    ("rows", "offset", "tokens"),
    [(1026, 2, 1024), (514, 2, 512)],
    ids=["BART and OPT", "RoBERTa, padding_idx 1"],
)
def test_learned_row_offset(rows, offset, tokens):
    encoding = Learned(3, rows, row_offset=offset)
    assert encoding.positions == tokens
    codes = encoding.encode(torch.tensor([0, tokens - 1]))
    assert torch.equal(codes[0], encoding.weight[offset])
    assert torch.equal(codes[1], encoding.weight[rows - 1])
    message = (
        f"positions hold {tokens}, outside this learned table of {rows} rows, which serves "
        rf"0 … {tokens - 1} \(position 0 is row {offset}\); shorten the text or train a longer"
    )
    with pytest.raises(ValueError, match=message):
        encoding(random(1, tokens + 1, 3))


@pytest.mark.parametrize("position", [-1, 5, 2**40])
def test_learned_never_wraps(position):
    with pytest.raises(ValueError, match=rf"positions hold {position}, .* serves 0 … 4; shorten"):
        Learned(3, 5).encode(torch.tensor([0, position, 4]))


def test_learned_reads_the_weight_as_it_is_now():
    encoding = Learned(2, 4)
    with torch.no_grad():
        encoding.weight.fill_(3.0)
    assert encoding(torch.ones(4, 2)).tolist() == [[4.0, 4.0]] * 4
    assert encoding.reference(3) == [3.0, 3.0]


def test_learned_starts_at_two_hundredths():
    torch.manual_seed(0)
    assert Learned(64, 512).weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert Learned(64, 512, std=1.5).weight.std().item() == pytest.approx(1.5, rel=0.02)


# Added to embeddings.


def test_forward_adds_the_code_and_rounds_once():
    x = random(2, 5, 8, dtype=torch.bfloat16)
    encoding = Sinusoidal(8)
    exact = x.double() + encoding.encode(torch.arange(5), dtype=torch.float64)
    assert torch.equal(encoding(x), exact.to(torch.bfloat16))


def test_the_default_dtype_does_not_choose_the_dtype_of_codes(wide):
    assert torch.zeros(1).dtype == wide
    places = torch.arange(-50, 50)
    for encoding in (Sinusoidal(8), Binary(8), Integer(8), Normalised(8)):
        codes = encoding.encode(places)
        assert codes.dtype == torch.float32
        assert torch.equal(codes, encoding.encode(places, dtype=torch.float64).float())


# ALiBi.

SLOPES = {
    6: [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125],
    8: [2.0**-h for h in range(1, 9)],
    12: [2.0**-h for h in range(1, 9)] + [2.0 ** -(h + 0.5) for h in range(4)],
}


@pytest.mark.parametrize("heads", SLOPES)
def test_alibi_slopes(heads):
    assert alibi_slopes(heads) == pytest.approx(SLOPES[heads], rel=1e-15, abs=0)
    bias = ALiBi(heads).bias(torch.tensor([3]), torch.tensor([0, 3, 5]), torch.float64)
    expected = [[[-3 * m, 0.0, -2 * m]] for m in alibi_slopes(heads)]
    assert bias.tolist() == expected


def test_alibi_slopes_of_powers_of_two_are_exact():
    assert alibi_slopes(8) == SLOPES[8]
    assert alibi_slopes(6) == SLOPES[6]
    assert alibi_slopes(1) == [2.0**-8]
    assert [f"{m:.4f}" for m in alibi_slopes(12)[8:]] == ["0.7071", "0.3536", "0.1768", "0.0884"]


def test_alibi_of_other_numbers_is_not_geometric():
    slopes = alibi_slopes(12)
    assert slopes != pytest.approx([2.0 ** (-8 * (h + 1) / 12) for h in range(12)], rel=1e-3)


def test_alibi_batches_positions():
    q, k = torch.tensor([[4, 5], [0, 9]]), torch.arange(6)
    bias = ALiBi(6).bias(q, k, torch.float64)
    assert bias.shape == (2, 6, 2, 6)
    for b, h, i, j in product(range(2), range(6), range(2), range(6)):
        assert bias[b, h, i, j].item() == -SLOPES[6][h] * abs(int(q[b, i]) - j)


def test_alibi_far_distances_are_exact():
    q = torch.tensor([2**31 + 5])
    bias = ALiBi(8).bias(q, torch.tensor([0]), torch.float64)
    assert bias[0, 0, 0].item() == -(2**31 + 5) / 2


# p-RoPE.


def test_p_rope_of_gemma_4():
    encoding = p_rope(512, 1e6, fraction=0.25)
    inv_freq = encoding.spectrum.inv_freq
    assert f"{inv_freq[1]:.6f}" == "0.947464"
    assert len(inv_freq) == 256
    assert all(inv_freq[:64])
    assert not any(inv_freq[64:])
    probe = torch.zeros(1, 2, 512, dtype=torch.float64)
    probe[..., 0] = 1.0
    turned = encoding.encode_q(probe, torch.tensor([0, 1]))[0, 1]
    assert turned.nonzero().flatten().tolist() == [0, 256]
    assert turned[[0, 256]].tolist() == pytest.approx([math.cos(1), math.sin(1)], rel=1e-15)


def test_p_rope_leaves_slow_pairs_alone():
    encoding = p_rope(512, 1e6, fraction=0.25)
    x = random(1, 9, 512, dtype=torch.float32)
    turned = encoding.encode_k(x, torch.arange(9) * 1000 + 1)
    still = [*range(64, 256), *range(320, 512)]
    assert torch.equal(turned[..., still], x[..., still])
    moving = [*range(64), *range(256, 320)]
    assert (turned[..., moving] != x[..., moving]).all()


def test_p_rope_is_rope_where_it_turns():
    x = random(1, 7, 16)
    full, part = RoPE(16).encode_q(x), p_rope(16, fraction=0.75).encode_q(x)
    turning = [*range(6), *range(8, 14)]
    assert torch.equal(part[..., turning], full[..., turning])
    assert torch.equal(part[..., [6, 7, 14, 15]], x[..., [6, 7, 14, 15]])
    divided = p_rope(16, fraction=0.75, factor=8.0).spectrum.inv_freq
    assert divided == tuple(f / 8 for f in p_rope(16).spectrum.inv_freq)


# Axial.


def by_hand(x: torch.Tensor, places: torch.Tensor, owner: list[int], freqs: list[float]):
    """Half layout, one pair at a time, plain float64."""
    result, pairs = x.clone(), len(owner)
    for c, (axis, frequency) in enumerate(zip(owner, freqs, strict=True)):
        angle = places[:, axis].double() * frequency
        a, b = x[..., c], x[..., c + pairs]
        result[..., c] = a * angle.cos() - b * angle.sin()
        result[..., c + pairs] = a * angle.sin() + b * angle.cos()
    return result


@pytest.mark.parametrize(
    ("axes", "assignment", "owner", "ladder"),
    [
        (2, None, [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2]),
        (3, None, [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1]),
        (2, (0, 1, 0, 1, 1, 1), [0, 1, 0, 1, 1, 1], [0, 0, 1, 1, 2, 3]),
    ],
)
def test_every_pair_turns_along_its_axis(axes, assignment, owner, ladder):
    encoding = AxialRoPE(12, axes=axes, assignment=assignment)
    places = ropewalk.positions.grid(*(3, 2, 2)[:axes])
    freqs = [100.0 ** (-j / owner.count(a)) for a, j in zip(owner, ladder, strict=True)]
    x = random(2, len(places), 12)
    found = encoding.encode_q(x, places)
    assert (found - by_hand(x, places, owner, freqs)).abs().max() < 1e-14
    for axis in range(axes):
        alone = torch.zeros_like(places)
        alone[:, axis] = places[:, axis]
        moved = (encoding.encode_q(x, alone) != x).any(dim=0).any(dim=0)
        lanes = [c % 6 for c in range(12)]
        assert all(owner[lane] == axis for lane, m in zip(lanes, moved, strict=True) if m)


def test_scale_is_one_number_or_one_per_axis():
    plain = AxialRoPE(8).spectrum.freqs
    both = AxialRoPE(8, scale=3.0).spectrum.freqs
    each = AxialRoPE(8, scale=(3.0, 0.5)).spectrum.freqs
    for axis, factor in enumerate((3.0, 0.5)):
        assert both[axis] == tuple(3.0 * f for f in plain[axis])  # pyright: ignore
        assert each[axis] == tuple(factor * f for f in plain[axis])  # pyright: ignore


def test_raw_coordinates_are_indices():
    assert AxialRoPE(8).coordinates_of(2, 3).tolist() == [
        [0, 0],
        [0, 1],
        [0, 2],
        [1, 0],
        [1, 1],
        [1, 2],
    ]
    assert AxialRoPE(8, axes=1).coordinates_of(3).tolist() == [0, 1, 2]


def test_grid_coordinates_shrink_to_the_pretraining_grid():
    encoding = AxialRoPE(8, coordinates="grid")
    x = random(1, 16, 8)
    places = encoding.coordinates_of(4, 4, pretrained=(2, 8))
    assert (places.double() * 2.0**-20)[5].tolist() == [0.5, 2.0]
    index = ropewalk.positions.grid(4, 4).double() * torch.tensor([0.5, 2.0])
    expected = by_hand(x, index, [0, 0, 1, 1], [1.0, 0.1, 1.0, 0.1])
    assert (encoding.encode_q(x, places) - expected).abs().max() < 2e-12, "positions reach 2²³"


def test_normalised_coordinates_lie_in_the_unit_square():
    encoding = AxialRoPE(8, coordinates="normalised", scale=2 * math.pi)
    places = encoding.coordinates_of(4, 2)
    values = places.double() * 2.0**-20
    assert values[:, 0].unique().tolist() == [-0.75, -0.25, 0.25, 0.75]
    assert values[:, 1].unique().tolist() == [-0.5, 0.5]
    x = random(1, 8, 8)
    freqs = [2 * math.pi * f for f in (1.0, 0.1, 1.0, 0.1)]
    expected = by_hand(x, values, [0, 0, 1, 1], freqs)
    assert (encoding.encode_q(x, places) - expected).abs().max() < 2e-12


def test_coordinates_are_the_same_place_at_any_resolution():
    encoding = AxialRoPE(8, coordinates="normalised")
    coarse, fine = encoding.coordinates_of(3, 3), encoding.coordinates_of(9, 9)
    assert torch.equal(coarse[4], fine[40]), "both centres"


def test_scores_on_a_grid_depend_on_the_offset_of_both_axes():
    encoding = AxialRoPE(16)
    q, k = random(1, 1, 16), random(1, 1, 16, seed=1)

    def score(i: tuple[int, int], j: tuple[int, int]) -> float:
        turned_q = encoding.encode_q(q, torch.tensor([i]))
        turned_k = encoding.encode_k(k, torch.tensor([j]))
        return float((turned_q * turned_k).sum())

    assert score((5, 9), (2, 3)) == pytest.approx(score((1005, 2009), (1002, 2003)), rel=1e-12)
    assert abs(score((5, 9), (2, 3)) - score((5, 9), (3, 2))) > 1e-3


# RoPE.


def test_rope_layouts_are_one_permutation_apart():
    woven, half = RoPE(10, layout="interleaved"), RoPE(10)
    order = [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
    x = random(3, 11, 10)
    assert torch.equal(woven.encode_q(x)[..., order], half.encode_q(x[..., order]))


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("position", [0, 1, -3, 4095, 2**31 + 5])
def test_rope_matrix_elements_and_operator_agree(layout, position):
    encoding = RoPE(10, layout=layout)
    x = random(4, 1, 10)
    operator = encoding.encode_q(x, torch.tensor([position]))
    matrix = encoding.matrix(position)
    assert (operator - x @ matrix.T).abs().max() < 1e-14 + 2e-18 * abs(position)
    literal = x.clone()
    with mpmath.workdps(50):
        for c, frequency in enumerate(encoding.spectrum.inv_freq):
            a, b = (c, c + 5) if layout == "half" else (2 * c, 2 * c + 1)
            angle = position * mpmath.mpf(frequency)
            cos, sin = float(mpmath.cos(angle)), float(mpmath.sin(angle))
            literal[..., a] = x[..., a] * cos - x[..., b] * sin
            literal[..., b] = x[..., a] * sin + x[..., b] * cos
    assert (operator - literal).abs().max() < 1e-14 + 2e-18 * abs(position)
    assert (matrix @ matrix.T - torch.eye(10).double()).abs().max() < 1e-15 * 4


@pytest.mark.parametrize(
    ("head_dim", "base"), [(64, 1e4), (128, 5e5), (96, 1e6)], ids=["64", "Llama 3", "96"]
)
def test_float32_phases_are_those_of_transformers_bit_for_bit(head_dim, base):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        max_position_embeddings=131072,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    theirs = llama.LlamaRotaryEmbedding(config)
    ours = RoPE(head_dim, base, phases="float32")
    places = torch.cat((torch.arange(100), torch.tensor([4095, 8191, 65537, 131071, 131072])))
    q = random(2, 3, len(places), head_dim, dtype=torch.float32)
    k = random(2, 1, len(places), head_dim, seed=1, dtype=torch.float32)
    cos, sin = theirs(q, places[None].expand(2, -1))
    their_q, their_k = llama.apply_rotary_pos_emb(q, k, cos, sin)
    assert torch.equal(ours.encode_q(q, places), their_q)
    assert torch.equal(ours.encode_k(k, places), their_k)
    exact = RoPE(head_dim, base).encode_q(q, places)
    assert not torch.equal(exact, their_q), "exact phases are not as trained"
    assert (exact - their_q)[..., :100, :].abs().max() < 1e-4


# A checkpoint's inv_freq.


def held(head_dim: int, base: float, dtype: torch.dtype = torch.float32) -> dict:
    """What float32 code writes into a checkpoint."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    return {"inv_freq": (1.0 / base**exponents).to(dtype)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("head_dim", "base"), [(64, 1e4), (96, 1e6), (128, 5e5), (192, 1e7)])
@pytest.mark.parametrize("phases", ["integer", "float32"])
def test_the_right_inv_freq_is_accepted_and_changes_nothing(head_dim, base, dtype, phases):
    encoding = RoPE(head_dim, base, phases=phases)
    x = random(1, 5, head_dim)
    before = encoding.encode_q(x)
    for assign in (False, True):
        encoding.load_state_dict(held(head_dim, base, dtype), assign=assign)
        assert torch.equal(encoding.encode_q(x), before)
    assert not encoding.state_dict()


def test_an_inv_freq_inside_a_model_is_accepted():
    model = torch.nn.ModuleDict({"rotary": RoPE(16), "out": torch.nn.Linear(2, 2)})
    state = {**model.state_dict(), "rotary.inv_freq": held(16, 1e4)["inv_freq"]}
    model.load_state_dict(state)
    assert "rotary.inv_freq" in state, "the caller's dictionary is not written"
    state["rotary.inv_freq"] = held(16, 5e5)["inv_freq"]
    with pytest.raises(RuntimeError, match=r"rotary\.inv_freq differs from the spectrum"):
        model.load_state_dict(state)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_wrong_base_is_an_error(strict, dtype):
    message = (
        r"inv_freq differs from the spectrum by 0\.\d+ relative at pair 31: checkpoint "
        r"2\.5\d+e-06, spectrum 0\.000133\d+; build the encoding with the checkpoint's base "
        "and scaling"
    )
    with pytest.raises(RuntimeError, match=message):
        RoPE(64).load_state_dict(held(64, 6e5, dtype), strict=strict)


@pytest.mark.parametrize(
    ("near", "dtype"), [(10_001, torch.float32), (10_300, torch.float16), (10_300, torch.bfloat16)]
)
def test_a_base_nearby_is_an_error_too(near, dtype):
    with pytest.raises(RuntimeError, match="differs from the spectrum by"):
        RoPE(64).load_state_dict(held(64, near, dtype))


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (torch.ones(7), r"has shape \(7,\); the spectrum has \(8,\)"),
        (torch.ones(8, dtype=torch.int64), "is torch.int64 on cpu; it must hold floating values"),
        (torch.full((8,), math.nan), "differs from the spectrum by nan"),
    ],
)
def test_an_inv_freq_that_is_none(stored, message):
    with pytest.raises(RuntimeError, match=message):
        RoPE(16).load_state_dict({"inv_freq": stored})


# Wrong input.

WRONG = [
    ("head_dim=63 must be even and at least 2, since lanes turn in pairs; use 64", RoPE, (63,), {}),
    ("head_dim=0 must be even and at least 2", RoPE, (0,), {}),
    ("head_dim=64.0 must be an int", RoPE, (64.0,), {}),
    ("rotary_dim=5 must be even", RoPE, (8,), {"rotary_dim": 5}),
    ("rotary_dim=10 at lane_offset=0 does not fit in head_dim=8", RoPE, (8,), {"rotary_dim": 10}),
    ("base=-1.0 must be finite and above 0, such as 10000.0", RoPE, (8, -1), {}),
    ("base='big' must be a number", RoPE, (8, "big"), {}),
    ("layout='halved' is unknown; use one of ('half',", RoPE, (8,), {"layout": "halved"}),
    ("phases='exact' is unknown; use one of ('integer',", RoPE, (8,), {"phases": "exact"}),
    ("layout given beside a Spectrum", RoPE, (spectra.geometric(8),), {"layout": "interleaved"}),
    ("rotary_dim=4 with axes=2: state the lanes", RoPE, (8,), {"axes": 2, "rotary_dim": 4}),
    ("fraction=1.5 must lie in [0, 1]: the share of pairs", p_rope, (8,), {"fraction": 1.5}),
    ("factor=0.5 must be finite and at least 1", p_rope, (8,), {"factor": 0.5}),
    ("axes=3 does not divide the 4 pairs evenly; use a head_dim", AxialRoPE, (8,), {"axes": 3}),
    ("assignment has 3 entries; head_dim=8 has 4", AxialRoPE, (8,), {"assignment": (0, 1, 0)}),
    ("assignment uses axes [0]; each of 0 … 1 needs", AxialRoPE, (8,), {"assignment": [0] * 4}),
    ("scale has 3 entries; axes=2 needs one per axis", AxialRoPE, (8,), {"scale": (1.0, 1.0, 1.0)}),
    ("coordinates='pixels' is unknown; use one of", AxialRoPE, (8,), {"coordinates": "pixels"}),
    ("dim=0 must be at least 1", Integer, (0,), {}),
    ("dim=2.0 must be an int", Normalised, (2.0,), {}),
    ("dim=True must be an int", Binary, (True,), {}),
    ("bits=9 must be at most dim=8 (each bit needs a lane) and at most 63", Binary, (8, 9), {}),
    ("layout='sincos' is unknown; use one of", Sinusoidal, (8,), {"layout": "sincos"}),
    ("shift=2 must be 0 (divisor D/2) or 1 (divisor D/2 − 1)", Sinusoidal, (8,), {"shift": 2}),
    ("which dim=2 makes zero or less; use dim ≥ 4", Sinusoidal, (2,), {"shift": 1}),
    ("which dim=3 makes zero or less; use dim ≥ 4", Sinusoidal, (3,), {"shift": 1}),
    ("scale=0.0 must be finite and above 0", Sinusoidal, (8,), {"scale": 0}),
    ("length=0 must be at least 1", Learned, (8, 0), {}),
    ("row_offset=4 leaves no row of length=4", Learned, (8, 4), {"row_offset": 4}),
    ("row_offset=-1 must be at least 0", Learned, (8, 4), {"row_offset": -1}),
    ("std=0.0 must be finite and above 0", Learned, (8, 4), {"std": 0}),
    ("heads=0 must be at least 1", ALiBi, (0,), {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "build", "given", "named"), WRONG, ids=[w[0][:28] for w in WRONG]
)
def test_a_wrong_configuration_is_named(message, build, given, named):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        build(*given, **named)


CALLS = [
    (
        "positions have dtype torch.float32; they must be integers. For fractional coordinates use "
        "ropewalk.positions.fixed(x, unit)",
        lambda: RoPE(8).encode_q(torch.zeros(1, 3, 8), torch.arange(3.0)),
    ),
    (
        "positions have dtype torch.float64",
        lambda: Sinusoidal(8)(torch.zeros(3, 8), torch.arange(3.0).double()),
    ),
    (
        "positions have dtype torch.float32",
        lambda: Binary(8).encode(torch.arange(3.0)),
    ),
    (
        "q_positions have dtype torch.float32",
        lambda: ALiBi(2).bias(torch.arange(3.0), torch.arange(3)),
    ),
    (
        "kv_positions have dtype torch.bool",
        lambda: ALiBi(2).bias(torch.arange(3), torch.arange(3) > 1),
    ),
    (
        "positions have dtype torch.bool; for a padding mask use ropewalk.positions.left_padded",
        lambda: Integer(8).encode(torch.tensor([True])),
    ),
    (
        "positions must be a tensor of integers, got list; write torch.tensor(positions)",
        lambda: RoPE(8).encode_q(torch.zeros(1, 3, 8), [0, 1, 2]),  # pyright: ignore
    ),
    (
        "positions have shape (4,), that is 4 tokens; x has shape (1, 3, 8) with 3 tokens",
        lambda: RoPE(8).encode_q(torch.zeros(1, 3, 8), torch.arange(4)),
    ),
    (
        "positions have shape (3,), that is 3 tokens; x has shape (2, 4, 8) with 4 tokens",
        lambda: Integer(8)(torch.zeros(2, 4, 8), torch.arange(3)),
    ),
    (
        "positions have shape (5, 4), whose batch dimensions do not fit x (2, 4, 8); use [tokens] "
        "or [batch, tokens]",
        lambda: Integer(8)(torch.zeros(2, 4, 8), torch.zeros(5, 4).long()),
    ),
    (
        "positions have shape (5, 4), whose batch dimensions do not fit x (1, 4, 8)",
        lambda: Integer(8)(torch.zeros(1, 4, 8), torch.zeros(5, 4).long()),
    ),
    (
        "positions have shape (1, 4), whose batch dimensions do not fit x (4, 8)",
        lambda: Integer(8)(torch.zeros(4, 8), torch.zeros(1, 4).long()),
    ),
    (
        "positions and offset are both given; add the offset to positions",
        lambda: RoPE(8).encode_q(torch.zeros(1, 3, 8), torch.arange(3), offset=1),
    ),
    (
        "offset=1.5 must be an int or an integer tensor [batch]",
        lambda: RoPE(8).encode_q(torch.zeros(1, 3, 8), offset=1.5),  # pyright: ignore
    ),
    (
        "positions=None is 0 … T−1 on one axis; this encoding has axes=2: pass [tokens, 2]",
        lambda: AxialRoPE(8).encode_q(torch.zeros(1, 3, 8)),
    ),
    (
        "positions have shape (3,); with axes=2 the last dimension must be 2",
        lambda: AxialRoPE(8).encode_q(torch.zeros(1, 3, 8), torch.arange(3)),
    ),
    (
        "x has shape (2, 4, 7); this encoding adds [..., T, 8]",
        lambda: Integer(8)(torch.zeros(2, 4, 7)),
    ),
    (
        "x has dtype torch.int64; embeddings are real floating",
        lambda: Integer(8)(torch.zeros(2, 4, 8).long()),
    ),
    (
        "1 sizes given; axes=2 needs one per axis",
        lambda: AxialRoPE(8).coordinates_of(3),
    ),
    (
        "pretrained=None with coordinates='grid': it is needed for 'grid' and only there",
        lambda: AxialRoPE(8, coordinates="grid").coordinates_of(3, 3),
    ),
    (
        "pretrained=(3, 3) with coordinates='raw': it is needed for 'grid' and only there",
        lambda: AxialRoPE(8).coordinates_of(3, 3, pretrained=(3, 3)),
    ),
    (
        "pretrained=(3,) must hold a size of at least 1 for each of axes=2",
        lambda: AxialRoPE(8, coordinates="grid").coordinates_of(3, 3, pretrained=(3,)),
    ),
    (
        "pretrained=(3, 0) must hold a size of at least 1 for each of axes=2",
        lambda: AxialRoPE(8, coordinates="grid").coordinates_of(3, 3, pretrained=(3, 0)),
    ),
]


@pytest.mark.parametrize(("message", "call"), CALLS, ids=[c[0][:40] for c in CALLS])
def test_a_wrong_call_is_named(message, call):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        call()


# The catalogue.


def test_the_catalogue_holds_nine_and_can_be_asked_again():
    for _ in range(2):  # importing the package of the same name must not hide the function
        assert set(ropewalk.encodings()) >= {
            "integer", "normalised", "binary", "sinusoidal", "learned",
            "rope", "axial", "p_rope", "alibi",
        }  # fmt: skip
    import ropewalk.encodings as package

    assert package.rotary.RoPE is ropewalk.RoPE
    assert package() == ropewalk.encodings()  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ropewalk.make("rop"), "unknown encoding 'rop' (did you mean 'rope'?); known: al"),
        (lambda: ropewalk.make("sinusoid", dim=4), "did you mean 'sinusoidal'?"),
        (lambda: ropewalk.make("zzz"), "unknown encoding 'zzz'; known: alibi, axial,"),
        (lambda: ropewalk.make(3), "unknown encoding 3"),  # pyright: ignore
        (
            lambda: ropewalk.make("rope", headdim=64),
            "rope has no argument 'headdim' (did you mean 'head_dim'?); it takes head_dim, base,",
        ),
        (
            lambda: ropewalk.make("rope"),
            "rope needs head_dim; for example make('rope', head_dim=64",
        ),
        (lambda: ropewalk.make("alibi", dim=4), "alibi has no argument 'dim'; it takes heads"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_one(call, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        call()


def test_every_spec_makes_its_example():
    for name, spec in ropewalk.encodings().items():
        made = ropewalk.make(name, **spec.config)
        assert made.family == spec.family
        assert isinstance(made, ropewalk.Encoding)


@given(st.sampled_from(sorted(ropewalk.encodings())), st.integers(0, 3), st.data())
def test_a_slip_in_a_name_is_forgiven_with_advice(name, cut, data):
    slip = name[:cut] + data.draw(st.sampled_from("xyz")) + name[cut:]
    with pytest.raises(ValueError, match=r"did you mean '\w+'\?"):
        ropewalk.make(slip)


@pytest.mark.parametrize("where", [[-1], [18], [0, 3, 2**40]])
def test_compiled_learned_tables_check_their_bounds_too(where):
    table = Learned(4, 20, row_offset=2)
    compiled = torch.compile(table.encode, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(torch.arange(18)), table.encode(torch.arange(18)))
    with pytest.raises(ValueError, match="outside this learned table of 20 rows"):
        compiled(torch.tensor(where))


def test_rope_takes_head_dim_by_name():
    assert ropewalk.RoPE(head_dim=64).spectrum == ropewalk.RoPE(64).spectrum
    for wrong in (lambda: ropewalk.RoPE(), lambda: ropewalk.RoPE(64, head_dim=64)):
        with pytest.raises(TypeError, match="a Spectrum or head_dim"):
            wrong()
    with pytest.raises(TypeError, match="head_dim='64' must be an int"):
        ropewalk.RoPE("64")  # pyright: ignore[reportArgumentType]


def test_float32_phases_know_the_unit():
    spectrum = ropewalk.spectra.geometric(8).replace(unit=0.25)
    x = torch.ones(1, 1, 3, 8, dtype=torch.float64)
    quarters = RoPE(spectrum, phases="float32").encode_q(x, torch.tensor([0, 4, 40]))
    torch.testing.assert_close(quarters, RoPE(8).encode_q(x, torch.tensor([0, 1, 10])))
