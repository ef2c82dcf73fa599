"""The rotary part of the catalogue on one axis: golden values, literal loops, peers, refusals."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import ropewalk
from ropewalk import attend, spectra
from ropewalk.encodings.range import farthest
from ropewalk.encodings.rotary import NoPE, RoPE, XPos
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
    with pytest.raises(TypeError, match="positions have dtype torch.float32"):
        NoPE(8).encode_k(k, torch.arange(9.0))


# Spectra that stop slow pairs.


def test_hope_keeps_the_pairs_that_turn_once_in_training():
    """d = 128, L = 4096 at base 1e4: 18 of 64 pairs complete no turn (catalogue §11)."""
    found = ropewalk.make("hope_chen", head_dim=128, length=4096).spectrum.inv_freq
    assert sum(f == 0 for f in found) == 18
    assert found[:46] == geometric(128).inv_freq[:46]
    smaller = ropewalk.make("hope_chen", head_dim=64, length=1024).spectrum.inv_freq
    assert sum(f == 0 for f in smaller) == 14
    exactly = spectra.Spectrum(((2 * math.pi / 4096,),), 2)
    assert spectra.full_turns(exactly, 4096) == exactly
    with pytest.raises(ValueError, match="length=0.0 must be finite and above 0"):
        ropewalk.make("hope_chen", head_dim=8, length=0)


def test_cope_multiplies_the_frequencies_by_half_a_cosine():
    """n = 20 of 64 pairs: the mask of the authors' code is 1 at pair 44 and 0 at pair 63."""
    plain = geometric(128, 5e5).inv_freq
    encoding = ropewalk.make("cope_clipped", head_dim=128, base=5e5)
    mask = 0.5 * (1 + torch.linspace(0, math.pi, 20, dtype=torch.float64).cos())
    expected = list(plain[:44]) + [f * m for f, m in zip(plain[44:], mask.tolist(), strict=True)]
    assert list(encoding.spectrum.inv_freq) == pytest.approx(expected, rel=1e-13, abs=1e-24)
    assert encoding.spectrum.inv_freq[44] == plain[44]
    assert encoding.spectrum.inv_freq[63] == 0.0
    assert encoding.attention_factor == 1.0
    hard = ropewalk.make("cope_clipped", head_dim=128, base=5e5, hard=True).spectrum.inv_freq
    assert hard == plain[:44] + (0.0,) * 20
    one = ropewalk.make("cope_clipped", head_dim=8, pairs=1).spectrum
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
    apply = peer.apply_rotary_pos_emb
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
