"""The rotary part of the catalogue on one axis: golden values, literal loops, peers, refusals."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

import ropewalk
from ropewalk import attend, spectra
from ropewalk.encodings.range import farthest
from ropewalk.encodings.rotary import (
    FoPE,
    HyperbolicRoPE,
    ImaginaryRoPE,
    LeRoPE,
    NoPE,
    PoPE,
    RoPE,
    XPos,
    cope_clipped,
    hirope,
    hope_chen,
)
from ropewalk.spectra import geometric

pytestmark = pytest.mark.usefixtures("poisoned")


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


# NoPE.


def test_nope_is_attention_without_an_encoding():
    q, k, v = random(2, 4, 9, 8, seed=1), random(2, 2, 9, 8, seed=2), random(2, 2, 9, 8, seed=3)
    assert torch.equal(attend(q, k, v, NoPE(8)), attend(q, k, v))
    assert NoPE(8).encode_q(q) is q
    with pytest.raises(ValueError, match=r"x has shape \(2, 4, 9, 8\); this encoding takes"):
        NoPE(16).encode_q(q)
    with pytest.raises(TypeError, match="positions have dtype"):
        NoPE(8).encode_k(k, torch.arange(9.0))


# Spectra that stop slow pairs.


def test_hope_keeps_the_pairs_that_turn_once_in_training():
    """d = 128, L = 4096 at base 1e4: 18 of 64 pairs complete no turn (catalogue §11)."""
    found = hope_chen(head_dim=128, length=4096).spectrum.inv_freq
    assert sum(f == 0 for f in found) == 18
    assert found[:46] == geometric(128).inv_freq[:46]
    smaller = hope_chen(head_dim=64, length=1024).spectrum.inv_freq
    assert sum(f == 0 for f in smaller) == 14
    exactly = spectra.Spectrum(((2 * math.pi / 4096,),), 2)
    assert spectra.full_turns(exactly, 4096) == exactly
    with pytest.raises(ValueError, match="length=0"):
        hope_chen(head_dim=8, length=0)


def test_cope_multiplies_the_frequencies_by_half_a_cosine():
    """n = 20 of 64 pairs: the mask of the authors' code is 1 at pair 44 and 0 at pair 63."""
    plain = geometric(128, 5e5).inv_freq
    encoding = cope_clipped(head_dim=128, base=5e5)
    mask = 0.5 * (1 + torch.linspace(0, math.pi, 20, dtype=torch.float64).cos())
    expected = list(plain[:44]) + [f * m for f, m in zip(plain[44:], mask.tolist(), strict=True)]
    assert list(encoding.spectrum.inv_freq) == pytest.approx(expected, rel=1e-13, abs=1e-24)
    assert encoding.spectrum.inv_freq[44] == plain[44]
    assert encoding.spectrum.inv_freq[63] == 0.0
    assert encoding.attention_factor == 1.0
    hard = cope_clipped(head_dim=128, base=5e5, hard=True).spectrum.inv_freq
    assert hard == plain[:44] + (0.0,) * 20
    one = cope_clipped(head_dim=8, pairs=1).spectrum
    assert one == geometric(8)
    for wrong in (-1, 2.0, True):
        with pytest.raises((TypeError, ValueError), match="pairs="):
            ropewalk.make("cope_clipped", head_dim=8, pairs=wrong)


# xPos.


@pytest.mark.parametrize(
    ("dtype", "distance"),
    [(torch.float16, 3966), (torch.bfloat16, 35694), (torch.float32, 35694)],
)
def test_xpos_leaves_the_range_where_its_docstring_says(dtype, distance):
    """2^−126 = (2/7)^(p/512) at p = 35,694.15, 2^−14 at 3,966.02."""
    encoding = XPos(64)
    x = torch.ones(1, 1, 64, dtype=dtype)
    assert encoding.positions == 35695
    for place in (distance, -distance):
        for turned in (encoding.encode_q, encoding.encode_k):
            assert turned(x, torch.tensor([place])).isfinite().all()
    for place in (distance + 1, -distance - 1):
        with pytest.raises(ValueError, match=f"positions hold {place}, farther than {distance}"):
            encoding.encode_k(x, torch.tensor([place]))
    shifted = XPos(64, center=1000)
    assert shifted.encode_k(x, torch.tensor([distance + 1000])).isfinite().all()
    assert farthest(math.log(3.5) / 512, dtype) == distance


def test_the_bare_float16_product_overflows_where_the_catalogue_says():
    """k overflows at 4,532 and q is 0 at 7,082 positions from the center."""
    zeta = 0.4 / 1.4
    size = torch.tensor([zeta ** (-p / 512) for p in (4532, 4533)]).half()
    assert size.isinf().tolist() == [False, True]
    small = torch.tensor([zeta ** (p / 512) for p in (7080, 7200)], dtype=torch.float64).half()
    assert (small != 0).tolist() == [True, False]


def test_xpos_scores_fade_by_zeta_to_the_distance():
    encoding = XPos(16)
    q, k = random(1, 1, 16, seed=4), random(1, 1, 16, seed=5)
    plain = RoPE(16)
    for m, n in ((5, 2), (900, 2), (7, 700), (20_000, 19_000)):
        score = encoding.encode_q(q, torch.tensor([m])) * encoding.encode_k(k, torch.tensor([n]))
        turned = plain.encode_q(q, torch.tensor([m])) * plain.encode_k(k, torch.tensor([n]))
        weights = [z ** ((m - n) / 512) for z in encoding.zeta]
        pairs = turned.reshape(2, 8).sum(0)
        expected = float((pairs * torch.tensor(weights, dtype=torch.float64)).sum())
        assert float(score.sum()) == pytest.approx(expected, rel=1e-9)
    assert XPos(64).zeta[0] == 0.4 / 1.4
    assert f"{XPos(64).zeta[-1]:.4f}" == "0.9777"


def test_xpos_decodes_from_cached_keys():
    encoding = XPos(8, center=6)
    q, k, v = (random(1, 2, 12, 8, seed=s) for s in (6, 7, 8))
    full = attend(q, k, v, encoding)
    cached = encoding.encode_k(k)
    for t in (0, 5, 11):
        row = attend(
            q[..., t : t + 1, :],
            cached[..., : t + 1, :],
            v[..., : t + 1, :],
            encoding,
            k_encoded=True,
        )
        assert (row - full[..., t : t + 1, :]).abs().max() < 1e-12


def test_xpos_in_compiled_code_refuses_too():
    encoding = XPos(8)
    compiled = torch.compile(encoding.encode_q, backend="aot_eager", fullgraph=True)
    x = random(1, 4, 8, dtype=torch.float32)
    assert torch.equal(compiled(x), encoding.encode_q(x))
    with pytest.raises(ValueError, match="farther than 35694 from center=0"):
        compiled(x, torch.tensor([0, 1, 2, 40_000]))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize("length", [64, 300])
def test_xpos_of_two_peers(length):
    """Both put the center at half the length, and pair neighbouring lanes."""
    import rotary_embedding_torch
    from x_transformers import x_transformers as peer

    q, k = (random(1, 2, length, 32, seed=s, dtype=torch.float32) for s in (9, 10))
    encoding = XPos(32, center=length // 2, layout="interleaved")
    freqs, scale = peer.RotaryEmbedding(32, use_xpos=True).forward_from_seq_len(length)
    assert isinstance(scale, Tensor)
    apply: Any = peer.apply_rotary_pos_emb
    theirs = apply(q, freqs, scale), apply(k, freqs, 1 / scale)
    other = rotary_embedding_torch.RotaryEmbedding(32, use_xpos=True).rotate_queries_and_keys(q, k)
    ours = encoding.encode_q(q), encoding.encode_k(k)
    for mine, *peers in zip(ours, theirs, other, strict=True):
        for found in peers:
            assert (mine - found).abs().max() < 1e-4  # float32 angles


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale_base": 0}, "scale_base=0.0 must be finite and above 0"),
        ({"gamma": -1.0}, "gamma=-1.0 must be finite and above 0"),
        ({"head_dim": 7}, "head_dim=7 must be even"),
        ({"base": 0.0}, "base=0.0 must be finite and above 0"),
    ],
)
def test_xpos_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        ropewalk.make("xpos", **{"head_dim": 8, **change})


# LeRoPE.


def test_lerope_starts_as_rope_bit_for_bit():
    encoding, places = LeRoPE(16, 5e5), torch.tensor([0, 3, 131071, 2**31 + 5, -7])
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        q = random(1, 2, 5, 16, seed=20, dtype=dtype)
        assert torch.equal(encoding.encode_q(q, places), RoPE(16, 5e5).encode_q(q, places))
        assert torch.equal(encoding.encode_k(q, places), RoPE(16, 5e5).encode_k(q, places))
    assert [name for name, _ in encoding.named_parameters()] == ["log_scale"]
    assert encoding.log_scale.tolist() == [0.0] * 8


def test_lerope_turns_by_the_learned_frequencies():
    encoding = LeRoPE(8).double()
    with torch.no_grad():
        encoding.log_scale.copy_(torch.tensor([0.5, -1.0, 2.0, 0.0]))
    expected = [
        f * math.exp(s) for f, s in zip((1, 0.1, 0.01, 0.001), (0.5, -1, 2, 0), strict=True)
    ]
    assert encoding.frequencies.tolist() == pytest.approx(expected, rel=1e-14)
    x = random(1, 6, 8, seed=21)
    places = torch.tensor([0, 1, 2, 100, 5000, -9])
    plain = RoPE(spectra.Spectrum((tuple(expected),), 8)).encode_q(x, places)
    assert (encoding.encode_q(x, places) - plain).abs().max() < 1e-11


def test_lerope_gradients_reach_the_scales():
    encoding = LeRoPE(6).double()
    with torch.no_grad():
        encoding.log_scale.copy_(torch.tensor([0.1, -0.2, 0.3]))
    q, places = random(1, 5, 6, seed=22).requires_grad_(), torch.tensor([0, 1, 3, 7, 20])

    def turned(x: Tensor, scales: Tensor) -> Tensor:
        return torch.func.functional_call(encoding, {"log_scale": scales}, (x, places))

    encoding.forward = encoding.encode_q  # functional_call calls the module
    scales = encoding.log_scale.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(turned, (q, scales))
    assert torch.autograd.gradgradcheck(turned, (q, scales))


# HoPE, hyperbolic.


def test_hope_scores_are_damped_boosts():
    """Equation 9 and 12: e^(−Δθ') times (q·k) cosh(Δθ) + (q₀k₁ + q₁k₀) sinh(Δθ) for each pair."""
    encoding = HyperbolicRoPE(8, layout="interleaved", center=20)
    q, k = random(1, 1, 8, seed=23), random(1, 1, 8, seed=24)
    damped = 1.1
    for m, n in ((5, 5), (9, 2), (40, 3), (2, 9)):
        left, right = (
            encoding.encode_q(q, torch.tensor([m])),
            encoding.encode_k(k, torch.tensor([n])),
        )
        with mpmath.workdps(40):
            score = mpmath.mpf(0)
            for c, (q0, q1, k0, k1) in enumerate(
                zip(*(t.reshape(4, 2)[:, i].tolist() for t in (q, k) for i in (0, 1)), strict=True)
            ):
                theta = mpmath.mpf(10000) ** (-mpmath.mpf(c) / 4)
                phi = (m - n) * theta
                even, odd = q0 * k0 + q1 * k1, q0 * k1 + q1 * k0
                score += even * mpmath.cosh(phi) + odd * mpmath.sinh(phi)
            score *= mpmath.exp(-mpmath.mpf(damped) * (m - n))
        assert float((left * right).sum()) == pytest.approx(float(score), rel=1e-12)
        low = (
            encoding.encode_q(q.float(), torch.tensor([m])),
            encoding.encode_k(k.float(), torch.tensor([n])),
        )
        assert float((low[0] * low[1]).double().sum()) == pytest.approx(float(score), rel=1e-5)


def test_hope_in_the_lanes_themselves_would_lose_its_scores():
    """The published form, ÷ ‖q‖‖k‖: .47 in float32 at 8 positions, .002 in float64 at 15."""
    worst = {}
    for dtype, place in ((torch.float32, 8), (torch.float64, 15)):
        q, k = random(2, 500, 2, seed=45, dtype=torch.float64)
        phi, damped = torch.tensor(float(place), dtype=torch.float64), 1.1 * place

        def boost(x: Tensor, sign: int, phi=phi, damped=damped, dtype=dtype) -> Tensor:
            matrix = torch.stack(
                (
                    torch.stack((phi.cosh(), sign * phi.sinh())),
                    torch.stack((sign * phi.sinh(), phi.cosh())),
                )
            )
            return ((x @ matrix) * math.exp(-sign * damped)).to(dtype).double()

        score = (boost(q, -1) * boost(k, 1)).sum(-1)
        exact = (q * k).sum(-1)
        worst[dtype] = ((score - exact).abs() / (q.norm(dim=-1) * k.norm(dim=-1))).max().item()
    assert 0.1 < worst[torch.float32] < 1.0
    assert 1e-4 < worst[torch.float64] < 1e-2


def test_hope_ends_where_its_docstring_says():
    published = HyperbolicRoPE(64)
    assert published.positions == 42
    assert published.encode_k(torch.ones(1, 1, 64), torch.tensor([41])).isfinite().all()
    with pytest.raises(ValueError, match="positions hold 42, farther than 41 from center=0"):
        published.encode_q(torch.ones(1, 1, 64), torch.tensor([42]))
    with pytest.raises(ValueError, match=r"farther than 4 from .* range of float16"):
        published.encode_q(torch.ones(1, 1, 64, dtype=torch.float16), torch.tensor([5]))
    assert HyperbolicRoPE(64, scale=2.0**-12).positions == 170348


def test_bare_cosh_overflows_where_the_catalogue_says():
    """cosh overflows float32 at mθ = 89.4 and float16 at 11.8."""
    for dtype, last in ((torch.float32, 89.4), (torch.float16, 11.78)):
        values = torch.tensor([last, last + 0.02], dtype=torch.float64).cosh().to(dtype)
        assert values.isinf().tolist() == [False, True]


# RoPE++.


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_imaginary_scores_are_those_of_the_paper(layout):
    """Σ ⟨q, k⟩ sin(Δθ) − (q × k) cos(Δθ), Δ = m − n."""
    encoding = ImaginaryRoPE(8, layout=layout)
    q, k = random(1, 1, 8, seed=25), random(1, 1, 8, seed=26)
    first, second = encoding.spectrum.lanes
    a, b, c, d = q[0, 0, first], q[0, 0, second], k[0, 0, first], k[0, 0, second]
    theta = torch.tensor(encoding.spectrum.inv_freq, dtype=torch.float64)
    for m, n in ((0, 0), (7, 3), (1000, 12), (3, 90)):
        score = encoding.encode_q(q, torch.tensor([m])) * encoding.encode_k(k, torch.tensor([n]))
        phase = (m - n) * theta
        expected = (a * c + b * d) * phase.sin() - (a * d - b * c) * phase.cos()
        assert float(score.sum()) == pytest.approx(float(expected.sum()), abs=1e-12)
    equal = encoding.encode_q(q, offset=5) * encoding.encode_k(q, offset=5)
    assert abs(float(equal.sum())) < 1e-14, "0 where q = k and Δ = 0"


def test_imaginary_queries_are_those_of_the_authors_code():
    """q·sin − rotate_half(q)·cos in float64."""
    encoding, q = ImaginaryRoPE(8), random(2, 3, 6, 8, seed=27)
    angles = torch.arange(6).double()[:, None] * torch.tensor(
        encoding.spectrum.inv_freq, dtype=torch.float64
    )
    cos, sin = (torch.cat((t, t), -1) for t in (angles.cos(), angles.sin()))
    half = torch.cat((-q[..., 4:], q[..., :4]), -1)
    assert (encoding.encode_q(q) - (q * sin - half * cos)).abs().max() < 1e-14
    assert torch.equal(encoding.encode_k(q), RoPE(8).encode_k(q))


def test_both_heads_stand_side_by_side_and_share_their_keys():
    encoding = ImaginaryRoPE(8)
    q, k, v = random(2, 4, 7, 8, seed=28), random(2, 2, 7, 8, seed=29), random(2, 2, 7, 8, seed=30)
    both = encoding.encode_both(q)
    assert both.shape == (2, 8, 7, 8)
    assert torch.equal(both[:, 0::2], RoPE(8).encode_q(q))
    assert torch.equal(both[:, 1::2], encoding.encode_q(q))
    y = attend(both, encoding.encode_k(k), v)
    assert (y[:, 0::2] - attend(q, k, v, RoPE(8))).abs().max() < 1e-14
    assert (y[:, 1::2] - attend(q, k, v, encoding)).abs().max() < 1e-14


# HiRoPE.


def test_hirope_turns_tokens_and_functions_by_their_own_indices():
    encoding = hirope(head_dim=8)
    places = ropewalk.positions.two_levels([0, 3, 5, 9])
    x = random(1, 9, 8, seed=31)
    found = encoding.encode_q(x, places)
    for t, (token, function) in enumerate(places.tolist()):
        for c, owner in enumerate((token, token, function, function)):
            angle = owner * 1e4 ** (-c / 4)
            a, b = x[0, t, c].item(), x[0, t, c + 4].item()
            cos, sin = math.cos(angle), math.sin(angle)
            assert found[0, t, c].item() == pytest.approx(a * cos - b * sin, abs=1e-14)
            assert found[0, t, c + 4].item() == pytest.approx(a * sin + b * cos, abs=1e-14)


def test_hirope_in_one_function_is_rope_of_its_fast_pairs():
    x, encoding = random(1, 6, 8, seed=32), hirope(head_dim=8)
    found = encoding.encode_q(x, ropewalk.positions.two_levels([0, 6]))
    plain = RoPE(8).encode_q(x)
    assert torch.equal(found[..., [0, 1, 4, 5]], plain[..., [0, 1, 4, 5]])
    assert torch.equal(found[..., [2, 3, 6, 7]], x[..., [2, 3, 6, 7]])


def test_levels_of_marks_and_of_lengths_agree():
    starts = torch.tensor([[1, 0, 0, 1, 0, 1], [0, 1, 0, 0, 0, 0]], dtype=torch.bool)
    found = ropewalk.positions.two_levels_of(starts)
    assert torch.equal(found[0], ropewalk.positions.two_levels([0, 3, 5, 6]))
    assert torch.equal(found[1], ropewalk.positions.two_levels([0, 1, 6]))
    assert ropewalk.positions.two_levels_of(starts[:, :0]).shape == (2, 0, 2)
    assert ropewalk.positions.two_levels([0]).shape == (0, 2)
    with pytest.raises(TypeError, match="starts must be a boolean tensor"):
        ropewalk.positions.two_levels_of(torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="must start at 0"):
        ropewalk.positions.two_levels([1, 2])
    for wrong in (8, 3, 0, -2):
        with pytest.raises(ValueError, match="token_dim="):
            hirope(head_dim=8, token_dim=wrong)


# FoPE.


def literal_fope(x: Tensor, cos_coef: Tensor, sin_coef: Tensor, kept: list[float]) -> Tensor:
    """The authors' formula: sums over frequencies, ones for what is dropped, rotate_half."""
    pairs, tokens = x.shape[-1] // 2, x.shape[-2]
    result = torch.empty_like(x)
    group = x.shape[1] // cos_coef.shape[0]
    for h in range(x.shape[1]):
        for p in range(tokens):
            cos, sin = torch.ones(pairs).double(), torch.ones(pairs).double()
            for c in range(len(kept)):
                cos[c] = sum(
                    cos_coef[h // group, i, c].item() * math.cos(p * f) for i, f in enumerate(kept)
                )
                sin[c] = sum(
                    sin_coef[h // group, i, c].item() * math.sin(p * f) for i, f in enumerate(kept)
                )
            a, b = x[:, h, p, :pairs], x[:, h, p, pairs:]
            result[:, h, p] = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    return result


@pytest.mark.parametrize("heads", [1, 2])
def test_fope_is_the_authors_formula_for_every_head(heads):
    torch.manual_seed(3)
    encoding = FoPE(12, heads=heads, length=64, gain=1.0).double()
    kept = [f for f in geometric(12).inv_freq if f >= 2 * math.pi / 64]
    assert list(encoding.kept) == kept
    assert len(kept) == 2
    assert encoding.cos_coef.shape == (heads, 2, 2)
    q, k = random(2, 4, 5, 12, seed=33), random(2, 2, 5, 12, seed=34)
    coefficients = encoding.cos_coef, encoding.sin_coef
    assert (encoding.encode_q(q) - literal_fope(q, *coefficients, kept)).abs().max() < 1e-13
    assert (encoding.encode_k(k) - literal_fope(k, *coefficients, kept)).abs().max() < 1e-13
    rows = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    apart = [encoding.encode_q(q[i : i + 1], rows[i]) for i in (0, 1)]
    assert (encoding.encode_q(q, rows) - torch.cat(apart)).abs().max() < 1e-14


def test_fope_without_noise_is_rope_of_the_kept_pairs():
    encoding = FoPE(16, length=100, gain=0.0)
    x, kept = random(1, 2, 9, 16, seed=35), len(encoding.kept)
    turning = [*range(kept), *range(8, 8 + kept)]
    found, plain = encoding.encode_q(x), RoPE(16).encode_q(x)
    assert (found[..., turning] - plain[..., turning]).abs().max() < 1e-15
    still = [c for c in range(16) if c not in turning]
    assert torch.equal(found[..., 0, still], found[..., 8, still]) is torch.equal(
        x[..., 0, still], x[..., 8, still]
    )
    assert (
        found[..., still].norm(dim=-1) / x[..., still].norm(dim=-1) - 2**0.5
    ).abs().max() < 1e-14


def test_fope_is_fixed_by_default_and_learns_if_asked():
    fixed, learned = FoPE(8, length=32), FoPE(8, length=32, learnable=True)
    assert not any(p.requires_grad for p in fixed.parameters())
    assert set(fixed.state_dict()) == {"sin_coef", "cos_coef"}
    learned.encode_q(random(1, 3, 8, seed=36, dtype=torch.float32)).sum().backward()
    for matrix in (learned.cos_coef, learned.sin_coef):
        assert matrix.grad is not None
        assert matrix.grad.abs().max() > 0
    for change, message in (
        ({"length": 6}, "lets no frequency complete a turn"),
        ({"gain": -0.1}, "gain=-0.1 must be finite and at least 0"),
        ({"heads": 0}, "heads=0 must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            ropewalk.make("fope", head_dim=8, **change)
    with pytest.raises(TypeError, match="learnable=1 must be a bool"):
        FoPE(8, learnable=1)  # pyright: ignore


def test_fope_noise_is_xavier_over_the_whole_array():
    torch.manual_seed(0)
    matrix = FoPE(128, heads=8, length=8192, gain=0.3).cos_coef.detach()
    count = matrix.shape[-1]
    noise = matrix - torch.eye(count)
    expected = 0.3 * math.sqrt(2 / (count * count + 8 * count))
    assert noise.std().item() == pytest.approx(expected, rel=0.02)


# PoPE.


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_pope_of_a_peer():
    from x_transformers import x_transformers as peer

    torch.manual_seed(5)
    ours = PoPE(16, heads=4, start="uniform")
    theirs = peer.PolarEmbedding(16, 4)
    with torch.no_grad():
        theirs.learned_bias[:, 0] = ours.delta
        freqs, bias = theirs(torch.arange(50))
    q, k = (random(2, 4, 50, 16, seed=s, dtype=torch.float32) for s in (37, 38))
    found, expected = ours.encode_q(q), peer.apply_polar_pos_emb(q, freqs[:, None])
    assert found.shape == (2, 4, 50, 32)
    assert (found - expected.reshape(found.shape)).abs().max() < 1e-5
    expected = peer.apply_polar_pos_emb(k, freqs[:, None] + bias)
    assert (ours.encode_k(k) - expected.reshape(found.shape)).abs().max() < 1e-5


def test_pope_scores_are_those_of_the_paper():
    encoding = PoPE(6, start="uniform").requires_grad_(False)
    q, k = random(1, 1, 6, seed=39), random(1, 1, 6, seed=40)
    sizes = (1 + q[0, 0].exp()).log() * (1 + k[0, 0].exp()).log()
    theta = torch.tensor([1e4 ** (-c / 6) for c in range(6)], dtype=torch.float64)
    for m, n in ((0, 0), (9, 4), (3, 700)):
        score = encoding.encode_q(q, torch.tensor([m])) * encoding.encode_k(k, torch.tensor([n]))
        expected = sizes * ((m - n) * theta - encoding.delta[0].double()).cos()
        assert float(score.sum()) == pytest.approx(float(expected.sum()), rel=1e-6)


def test_pope_without_softplus_scores_signed_products():
    encoding = PoPE(3, base=50.0, magnitude="signed")
    q, k = torch.randn(2, 1, 1, 3, dtype=torch.float64)
    m, n = 9, 4
    found = (
        (encoding.encode_q(q, torch.tensor([m])) * encoding.encode_k(k, torch.tensor([n])))
        .sum()
        .item()
    )
    expected = sum(
        q[0, 0, c].item() * k[0, 0, c].item() * math.cos((m - n) * 50.0 ** (-c / 3))
        for c in range(3)
    )
    assert found == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueError, match="magnitude='relu' is unknown"):
        ropewalk.make("pope", head_dim=3, magnitude="relu")


def test_pope_attends_with_wider_queries_and_keys():
    encoding = PoPE(8, heads=2, start="uniform").double()
    q, k, v = random(2, 4, 7, 8, seed=41), random(2, 2, 7, 8, seed=42), random(2, 2, 7, 8, seed=43)
    assert encoding.encoded_dim == 16
    wide_q, wide_k = encoding.encode_q(q), encoding.encode_k(k).repeat_interleave(2, dim=1)
    logits = wide_q @ wide_k.transpose(-1, -2) * 8**-0.5
    logits = logits.masked_fill(~torch.ones(7, 7, dtype=torch.bool).tril(), -math.inf)
    expected = logits.softmax(-1) @ v.repeat_interleave(2, dim=1)
    assert (attend(q, k, v, encoding, scale=8**-0.5) - expected).abs().max() < 1e-13
    row = attend(q[..., -1:, :], encoding.encode_k(k), v, encoding, scale=8**-0.5, k_encoded=True)
    assert (row - expected[..., -1:, :]).abs().max() < 1e-13


def test_pope_keeps_its_phases_in_range():
    encoding = PoPE(3)
    with torch.no_grad():
        encoding.delta.copy_(torch.tensor([[1.0, -7.0, -1.0]]))
    inside = PoPE(3)
    with torch.no_grad():
        inside.delta.copy_(torch.tensor([[0.0, -2 * math.pi, -1.0]]))
    k = random(1, 4, 3, seed=44)
    assert torch.equal(encoding.encode_k(k), inside.encode_k(k))
    assert PoPE(5).delta.tolist() == [[0.0] * 5]
    drawn = PoPE(400, heads=5, start="uniform").delta
    assert -2 * math.pi <= drawn.min() < -6 < -0.2 < drawn.max() <= 0
    with pytest.raises(ValueError, match="start='none' is unknown"):
        PoPE(4, start="none")  # pyright: ignore
    with pytest.raises(ValueError, match="x has 3 heads, not a multiple of"):
        PoPE(4, heads=2).encode_k(random(1, 3, 5, 4))


# Turning back.


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize("scaling", [None, YARN])
@pytest.mark.parametrize("phases", ["integer", "float32"])
def test_values_turned_and_outputs_turned_back_depend_on_distances_alone(scaling, phases):
    encoding = RoPE(16, scaling=scaling, phases=phases)
    q, k, v = (random(2, 2, 10, 16, seed=s) for s in (11, 12, 13))

    def output(start: int) -> Tensor:
        where = torch.arange(start, start + 10)
        turned = attend(
            q, k, encoding.encode_k(v, where), encoding, q_positions=where, kv_positions=where
        )
        return encoding.undo(turned, where)

    def without(start: int) -> Tensor:
        where = torch.arange(start, start + 10)
        return attend(
            q, k, encoding.encode_k(v, where), encoding, q_positions=where, kv_positions=where
        )

    allowed = 1e-12 if phases == "integer" else 1e-4
    assert (output(0) - output(1000)).abs().max() < allowed
    assert (without(0) - without(1000)).abs().max() > 0.1
    # the first token sees itself alone: its value comes back as it was
    assert (output(777)[..., 0, :] - v[..., 0, :]).abs().max() < allowed


def test_undo_undoes():
    encoding = RoPE(12, rotary_dim=8, layout="interleaved")
    x = random(2, 3, 5, 12)
    where = torch.tensor([0, 7, 2**40, -3, 131071])
    assert (encoding.undo(encoding.encode_q(x, where), where) - x).abs().max() < 1e-14
    back = ropewalk.rotate(x, None, encoding.spectrum, inverse=True, offset=4)
    assert torch.equal(encoding.undo(x, offset=4), back)


def turning_back() -> list[str]:
    specs = ropewalk.encodings().items()
    return [name for name, spec in specs if hasattr(spec.make(**spec.config), "undo")]


def test_every_orthogonal_encoding_turns_back():
    orthogonal = {
        name
        for name, spec in ropewalk.encodings().items()
        if spec.family == "rotary" and spec.claims["norm"] and spec.claims["unique"]
    }
    assert orthogonal <= set(turning_back())


@pytest.mark.parametrize("name", turning_back())
def test_undo_undoes_for_every_encoding(name):
    """Parameters are moved first: what is drawn as 0 would not be seen."""
    spec = ropewalk.encodings()[name]
    torch.manual_seed(5)
    encoding: Any = spec.make(**spec.config)
    for parameter in encoding.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    x = random(2, 4, 6, 64)
    where = torch.randint(0, 50, (6,) if encoding.axes == 1 else (6, encoding.axes))
    turned = encoding.encode_k(x, where)
    assert (turned - x).abs().max() > 0.1
    assert (encoding.undo(turned, where) - x).abs().max() < 1e-12
    assert encoding.undo(x.bfloat16(), where).dtype == torch.bfloat16
