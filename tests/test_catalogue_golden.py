"""Golden numbers of rotations and precision, through the public interface.

Provenance: computed in float64 (NumPy, mpmath) for the catalogue of encodings, apart from this
library, or read in the papers and configs that each test names. Those of one encoding alone stand
beside its other tests: T5, ALiBi and Sandwich in test_catalogue_bias.py, wavelets in
test_catalogue_contextual_bias.py, ranges of xPos and HoPE in test_catalogue_rotary.py, scalings in
test_scalings.py, axis strings in test_catalogue_multimodal.py.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import ropewalk
from ropewalk import RoPE, make, spectra
from ropewalk.encodings.additive import Integer
from ropewalk.spectra import geometric

BASES = (0, 256, 4096, 131072)
FAR = 131072


def angles(rope: RoPE, positions: Tensor) -> Tensor:
    """By how much each pair turns, read off a rotated vector, in (−π, π]."""
    x = torch.zeros(1, len(positions), rope.head_dim, dtype=torch.float64)
    x[..., : rope.head_dim // 2] = 1
    cos, sin = rope.encode_q(x, positions)[0].chunk(2, dim=-1)
    return torch.atan2(sin, cos)


def apart(one: Tensor, other: Tensor) -> float:
    """The largest difference of angles."""
    return torch.remainder(one - other + math.pi, 2 * math.pi).sub(math.pi).abs().max().item()


# Precision, catalogue §9.


def test_float32_angles_drift_by_what_the_literature_says():
    """d = 128, base 1e4: 7.8e-3 is the largest below 131,072; up to 1.5e-4 or so around 4k."""
    single, exact = RoPE(geometric(128), phases="float32"), RoPE(geometric(128))
    chunks = torch.arange(FAR // 2, FAR).split(8192)  # errors double with each power of two
    largest = max(apart(angles(single, p), angles(exact, p)) for p in chunks)
    assert f"{largest:.1e}" == "7.8e-03"
    near = torch.tensor([4095])
    assert 1e-4 < apart(angles(single, near), angles(exact, near)) < 2e-4


def test_integer_phases_keep_the_angle_of_the_frequency():
    """1.7e-19·p rad: 2e-14 at 131k, 2e-12 at 10M, 4e-10 at 2³¹; reading it off rounds by 4e-16."""
    exact = RoPE(geometric(128))
    for position, allowed in ((FAR, 2.3e-14), (10**7, 1.8e-12), (2**31, 3.7e-10)):
        found = angles(exact, torch.tensor([position]))[0].tolist()
        for angle, frequency in zip(found, exact.spectrum.inv_freq, strict=True):
            off = angle - spectra.exact_angle(position, frequency)
            assert abs(math.remainder(off, 2 * math.pi)) <= allowed + 8e-16


@pytest.mark.parametrize(("base", "radians"), [(5e5, 14.7), (1e4, 10.0)])
def test_a_cast_that_rounds_frequencies_would_turn_by_whole_turns(base, radians):
    """bfloat16 frequencies: .33 % off at base 5e5, 14.7 rad (10.0 at 1e4) at position 8191."""
    row = torch.tensor(geometric(128, base).inv_freq, dtype=torch.float64)
    rounded = row.bfloat16().double()
    assert (rounded - row).abs().max() * 8191 == pytest.approx(radians, rel=5e-3)
    if base == 5e5:
        assert ((rounded - row) / row).abs().max() == pytest.approx(0.0033, rel=5e-3)
    where, rope = torch.tensor([8191]), RoPE(128, base)
    before = angles(rope, where)
    for cast in (torch.bfloat16, torch.float16):
        assert torch.equal(angles(rope.to(cast), where), before), "steps are integers"


def test_float16_frequencies_of_llama_3_would_be_a_twentieth_off():
    """.half() on its table: 5.07 %."""
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    row = torch.tensor(RoPE(128, 5e5, scaling=scaling).spectrum.inv_freq, dtype=torch.float64)
    assert ((row.half().double() - row) / row).abs().max() == pytest.approx(0.0507, rel=2e-3)


@pytest.mark.parametrize(("tokens", "distinct"), [(8192, 897), (1024, 513)])
def test_bfloat16_tells_few_positions_apart(tokens, distinct):
    codes = Integer(1).encode(torch.arange(tokens), dtype=torch.bfloat16)
    assert len(codes.unique()) == distinct


def vectors() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 4000, 64, dtype=torch.float64, generator=generator)
    return q, k


def logits(rope: RoPE, places: tuple[Tensor, Tensor], dtype: torch.dtype = torch.float64) -> Tensor:
    """⟨q, k⟩ of each token, of encoded vectors rounded to ``dtype``."""
    q, k = (rope.encode_q(x, p).to(dtype).double() for x, p in zip(vectors(), places, strict=True))
    return (q * k).sum(-1)


def rms(found: Tensor, expected: Tensor) -> float:
    """RMS error ÷ ‖q‖‖k‖."""
    q, k = vectors()
    return ((found - expected) / (q.norm(dim=-1) * k.norm(dim=-1))).square().mean().sqrt().item()


def places_from(base: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    q, k = torch.randint(base, base + 64, (2, 4000), generator=generator)
    return q, k


@pytest.mark.parametrize(
    ("dtype", "error"),
    [
        (torch.float32, 4.5e-9),
        (torch.float16, 3.6e-5),
        (torch.bfloat16, 2.9e-4),
        (torch.float8_e4m3fn, 4.7e-3),
        (torch.float8_e5m2, 9.3e-3),
    ],
)
def test_rounding_encoded_vectors_costs_the_same_at_every_position(dtype, error):
    rope = RoPE(64)
    for base in BASES:
        places = places_from(base)
        assert rms(logits(rope, places, dtype), logits(rope, places)) == pytest.approx(
            error, rel=0.06
        )


def test_rounded_frequencies_stay_relative_and_rounded_positions_do_not():
    """Frequencies in bfloat16: 3.7e-4, flat in p. Positions: .030 at 256, .11 at 8192."""

    def narrow(frequency: float) -> float:
        return torch.tensor(frequency, dtype=torch.float64).bfloat16().item()

    rope, rounded = RoPE(64), RoPE(geometric(64).map(narrow))
    for base in BASES:
        places = places_from(base)
        assert rms(logits(rounded, places), logits(rope, places)) == pytest.approx(3.7e-4, rel=0.06)
    for base, error in ((256, 0.030), (8192, 0.11)):
        q, k = places = places_from(base)
        moved = logits(rope, (q.bfloat16().long(), k.bfloat16().long()))
        assert rms(moved, logits(rope, places)) == pytest.approx(error, rel=0.08)


# Decay, catalogue §10.


def test_only_constant_vectors_decay_and_not_for_good():
    """d = 128, q = k constant: mean cos .970, .477, .204, −.053, −.142 at distances 1 … 16384."""
    rope = RoPE(128)
    x = torch.full((1, 1, 128), 128**-0.5, dtype=torch.float64)
    near = rope.encode_q(x, torch.tensor([0]))
    for distance, mean in ((1, 0.970), (64, 0.477), (1024, 0.204), (4096, -0.053), (16384, -0.142)):
        far = rope.encode_k(x, torch.tensor([distance]))
        assert f"{(near * far).sum().item():.3f}" == f"{mean:.3f}"


def test_a_key_peaks_at_any_distance_one_likes():
    """k = Rʳq is seen best r = 100 tokens back."""
    rope, tokens = RoPE(64), torch.arange(400)
    q = vectors()[0][:, :1]
    k = rope.encode_k(q, torch.tensor([100])).expand(1, 400, 64)
    scores = rope.encode_q(q, torch.tensor([399])) @ rope.encode_k(k, tokens).mT
    assert 399 - int(scores.argmax()) == 100


def test_xpos_fades_by_the_stated_bound():
    """d = 64: the slowest amplitude falls by .9777 every 512 tokens, all others faster."""
    encoding = make("xpos", head_dim=64)
    x = torch.eye(64, dtype=torch.float64)[None]
    size = encoding.encode_q(x, torch.full((64,), 512)).norm(dim=-1)  # pyright: ignore
    assert f"{size.max().item():.4f}" == "0.9777"


# Scalings, catalogue §4, as RoPE takes them.


def test_attention_factors_of_models():
    """Phi-3.5: 1.190238. DeepSeek at s = 40: m = 1.36889; with both weights their ratio."""
    lists = {"short_factor": (1.0,) * 48, "long_factor": (2.0,) * 48}
    length = {"original_max_position_embeddings": 4096}
    phi = RoPE(96, scaling={"rope_type": "longrope", "factor": 32.0, **lists, **length})
    assert phi.attention_factor == pytest.approx(1.190238, rel=1e-6)
    yarn = {"rope_type": "yarn", "factor": 40.0, **length}
    assert RoPE(64, scaling=yarn).attention_factor == pytest.approx(1.36889, rel=5e-6)
    both = {"mscale": 1.0, "mscale_all_dim": 0.707}
    expected = 1.36889 / 1.58963**0.5
    assert RoPE(64, scaling=yarn | both).attention_factor == pytest.approx(expected, rel=1e-5)
    stated = RoPE(64, scaling=yarn | both | {"attention_factor": 1.5})
    assert stated.attention_factor == 1.5


def test_ramps_without_truncation_reach_rope():
    """gpt-oss, d = 64, base 150,000, L = 4096: the ramp runs from 8.0928 to 17.3980."""
    parameters = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}
    row = RoPE(64, 150000.0, scaling={**parameters, "truncate": False}).spectrum.inv_freq
    for pair, found in enumerate(row):
        plain = 150000.0 ** (-2 * pair / 64)
        share = min(1.0, max(0.0, (pair - 8.0928) / (17.3980 - 8.0928)))
        assert found == pytest.approx(plain * (1 - share) + plain / 32 * share, rel=1e-3)
    whole = RoPE(64, 150000.0, scaling=parameters).spectrum.inv_freq
    assert [c for c in range(32) if row[c] != whole[c]] == list(range(9, 18))


def test_pairs_that_are_kept_are_those_of_rope():
    """Powers of the base by Python's own arithmetic."""
    for name, pair, expected in (
        ("rope", 1, 10000.0 ** (-2 / 64)),
        ("p_rope", 23, 10000.0 ** (-46 / 64)),
        ("hope_chen", 21, 10000.0 ** (-42 / 64)),
        ("cope_clipped", 11, 10000.0 ** (-22 / 64)),
    ):
        spectrum = ropewalk.make(name, head_dim=64).spectrum  # pyright: ignore
        assert spectrum.inv_freq[pair] == pytest.approx(expected, rel=1e-15)  # pyright: ignore
