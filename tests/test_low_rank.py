"""LowRank: what it states of its error holds everywhere and on every path, or it is refused."""

from __future__ import annotations

import copy
import functools
import io
import math
import re
from typing import Any

import pytest
import torch
from attention_oracle import ORACLES, Call, Oracle, calls, random
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ropewalk import Bias, LowRank, attend, make
from ropewalk.attention import factored, path, paths, tiles
from ropewalk.attention.tiling import Tile, parted
from ropewalk.encodings.bias import T5, ALiBi, Fire, Kerple
from ropewalk.encodings.distances import holds_to, lines

pytestmark = pytest.mark.usefixtures("poisoned")


class Stepped(Bias):
    """Without parameters: ±1 below five tokens by parity, then 0.1·heads; 0.3 ahead."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        offset = (q_positions[..., :, None] - kv_positions[..., None, :]).unsqueeze(-3)
        head = torch.arange(1, self.heads + 1)[:, None, None].to(torch.float64)
        near = torch.where(offset % 2 == 0, 1.0, -1.0).to(torch.float64)
        far = torch.where(offset < 5, near, 0.1)
        return (head * torch.where(offset < 0, 0.3, far)).to(dtype)

    def reference(self, head, q_position, k_position):
        offset = q_position - k_position
        if offset < 0:
            return 0.3 * (head + 1)
        return (head + 1) * (0.1 if offset >= 5 else (-1.0) ** offset)


class Fading(Bias):
    """Without parameters: −(h + 1)·ln(1 + |i − j|), half of that ahead."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        offset = (q_positions[..., :, None] - kv_positions[..., None, :]).unsqueeze(-3)
        head = torch.arange(1, self.heads + 1)[:, None, None].to(torch.float64)
        size = torch.where(offset < 0, 0.5, 1.0).to(torch.float64)
        return (-head * size * torch.log1p(offset.abs().to(torch.float64))).to(dtype)

    def reference(self, head, q_position, k_position):
        size = 0.5 if k_position > q_position else 1.0
        return -(head + 1) * size * math.log1p(abs(q_position - k_position))


def trained(encoding: Any, seed: int = 0) -> Any:
    """With values as training leaves them, and no more learning."""
    torch.manual_seed(seed)
    encoding.reset_parameters()
    return encoding.requires_grad_(False)


def shallow(heads: int) -> Kerple:
    """Powers up to 0.8 of the distance: those near 2 have values that float32 cannot hold."""
    encoding = trained(Kerple(heads, "power"))
    encoding.p.mul_(0.4)
    return encoding


CASES = {
    "t5": (lambda: trained(T5(8, std=2.0)), 1e-6),
    "t5, far buckets": (lambda: trained(T5(4, buckets=64, max_distance=250, std=2.0)), 1e-6),
    "t5, both sides": (lambda: trained(T5(4, bidirectional=True, std=2.0)), 1e-6),
    "kerple, log": (lambda: trained(Kerple(8)), 1e-3),
    "kerple, log, finer": (lambda: trained(Kerple(8), 1), 1e-4),
    "kerple, power": (lambda: shallow(8), 1e-3),
    "fire": (lambda: trained(Fire(8, length=20000.0)), 1e-3),
    "alibi with a bonus": (lambda: ALiBi(12, ahead="geometric", past_bonus=0.5), 1e-4),
}
cases = pytest.mark.parametrize("name", CASES)


@functools.cache
def made(name: str, length: int, causal: bool = True) -> tuple[Any, LowRank]:
    make_one, error = CASES[name]
    encoding = make_one()
    return encoding, LowRank(encoding, length=length, error=error, most=24, causal=causal)


def at(encoding: Bias, offsets: Tensor, start: int) -> Tensor:
    """The bias at each offset i − j of a key near ``start``, ``[heads, offsets]``."""
    k = torch.full_like(offsets, start) + (-offsets).clamp_min(0)
    found = encoding.bias((k + offsets)[:, None], k[:, None], torch.float64)
    return found[:, :, 0, 0].T


# The statement.


@cases
@pytest.mark.parametrize("length", [300, 4096, 16384])
def test_every_distance_is_within_the_error(name, length):
    for causal in (True, False):
        encoding, low = made(name, length, causal)
        offsets = torch.arange(-length - 50, length + 50)
        for start in (0, 2**33) if name != "fire" else (0,):
            away = (at(low, offsets, start) - at(encoding, offsets, start)).abs().amax(-1)
            assert (away <= low.error).all()
        assert low.error.shape == (low.heads,)
        assert (low.error <= CASES[name][1]).all()
        assert 0 <= low.rank <= 24
        kept = offsets.abs() >= length
        kept |= (offsets < low.near) if causal else (offsets.abs() < low.near)
        exact = at(low, offsets[kept], 0) == at(encoding, offsets[kept], 0)
        assert exact.all()


@cases
@pytest.mark.parametrize("causal", [True, False])
def test_the_reference_is_the_bias(name, causal):
    """By literal loops, and for channels within the error of the encoding's own."""
    encoding, low = made(name, 300, causal)
    for offset in (-301, -299, -140, -1, 0, 1, 2, 64, 129, 255, 299, 300, 310):
        key = max(0, -offset)
        (found,) = at(low, torch.tensor([offset]), 0).T.tolist()
        for head in (0, low.heads - 1):
            value = low.reference(head, key + offset, key)
            assert abs(found[head] - value) < 1e-9
            assert abs(value - encoding.reference(head, key + offset, key)) <= CASES[name][1]


@cases
@pytest.mark.parametrize("after", [False, True])
def test_factors_are_the_bias(name, after):
    _, low = made(name, 4096, causal=not after)
    for start in (0, 17) if name == "fire" else (0, -1000, 2**40):
        early = torch.stack((torch.arange(start, start + 90, 7), torch.arange(start, start + 13)))
        late = torch.arange(start + 1200, start + 1960, 40) + torch.tensor([[0], [3]])
        q, k = (early, late) if after else (late, early)
        factors = low.factors(q, k, after=after)
        assert factors is not None
        assert factors.row is not None
        assert factors.q.abs().amax() <= 1e4 if factors.q.numel() else True
        found = factors.q @ factors.k.mT + factors.row[..., None]
        assert (found - low.bias(q, k, torch.float64)).abs().max() < 1e-9


def test_channels_end_where_the_statement_does():
    _, low = made("t5", 300)
    key = torch.tensor([1000])
    assert low.near == 128
    assert low.factors(key + 127, key) is None
    assert low.factors(key + 128, key) is not None
    assert low.factors(key + 299, key) is not None
    assert low.factors(key + 300, key) is None
    assert low.factors(key, key + 200, after=True) is None
    _, both = made("t5", 300, causal=False)
    assert both.factors(key, key + 200, after=True) is not None
    assert both.factors(key, key + 300, after=True) is None


def test_the_rank_is_small_where_the_bias_is_smooth():
    """A constant needs no channel, a line one, a logarithm over 16384 tokens ten or so."""
    assert made("t5", 16384)[1].rank == 0
    assert made("alibi with a bonus", 16384)[1].rank == 1
    assert 5 <= made("kerple, log", 16384)[1].rank <= 12


# Attention.

PLAIN = {"stepped": Stepped, "fading slowly": Fading}


@pytest.fixture(autouse=True)
def tiny(request, monkeypatch):
    """Tiles of a few tokens for the shortest sequence, where a test asks for small calls."""
    if "small" in request.fixturenames:
        monkeypatch.setattr(tiles, "TILE", 4)
        monkeypatch.setattr(tiles, "BIAS_TILE", 4)
        monkeypatch.setattr(tiles, "PART", 2)
        monkeypatch.setattr(tiles, "SQUARE", {torch.float64: 2, torch.float32: 2})
        monkeypatch.setattr(paths, "SHORT", 0)


@pytest.fixture
def small(monkeypatch):
    """LowRank of biases without parameters beside the oracles, with numbers by literal loops."""

    def oracle(kind: type[Bias], causal: bool) -> Oracle:
        @functools.cache
        def made(heads: int) -> LowRank:
            return LowRank(kind(heads), length=11, error=1e-2, causal=causal)

        def bias(encoding, q, k, q_places, k_places, allowed):
            rows = zip(q_places[..., 0].tolist(), k_places[..., 0].tolist(), strict=True)
            return torch.tensor(
                [
                    [[[encoding.reference(h, i, j) for j in ks] for i in qs] for h in range(heads)]
                    for qs, ks in rows
                    for heads in (q.shape[1],)
                ],
                dtype=torch.float64,
            ).reshape(*q.shape[:3], k.shape[2])

        return Oracle(made, bias=bias)

    for name, kind in PLAIN.items():
        monkeypatch.setitem(ORACLES, f"{name}, causal", oracle(kind, True))
        monkeypatch.setitem(ORACLES, name, oracle(kind, False))


names = pytest.mark.parametrize("name", [*PLAIN, *(f"{name}, causal" for name in PLAIN)])


@names
@pytest.mark.parametrize("causal", [True, False])
def test_tiles_give_values_and_gradients(name, causal, small):
    for q_tokens, kv_tokens in ((13, 13), (5, 14), (1, 9), (16, 16)):
        for window in (None, 3, 7):
            for way in ("factored", "blockwise", "auto"):
                call = Call(
                    name,
                    q_tokens=q_tokens,
                    kv_tokens=kv_tokens,
                    causal=causal,
                    window=window,
                    path=way,
                )
                call.check(gradients=True)


@names
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_shape_and_rule(name, small, data):
    call = data.draw(calls(name, 1, 14, 9, ["auto", "factored", "blockwise"]))
    call.check(gradients=data.draw(st.booleans()))


def dense(encoding: Bias, q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    keys = torch.arange(k.shape[2])
    places = keys[len(keys) - q.shape[2] :]
    logits = q @ k.mT / math.sqrt(q.shape[-1]) + encoding.bias(places, keys, torch.float64)
    if causal:
        logits = logits.masked_fill(keys > places[:, None], -math.inf)
    return logits.softmax(-1) @ v


@cases
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_attention_is_that_of_the_bias_within_the_error(name, dtype):
    """A logit off by e multiplies each weight by at most exp(2e)."""
    encoding, low = made(name, 4096)
    heads = low.heads
    shapes = ((heads, 700, 16), (heads // 2, 700, 16), (heads // 2, 700, 16))
    q, k, v = (random(1, *shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes))
    largest = v.abs().amax().item()
    rounding = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 2e-2)
    for queries in (700, 100, 1):
        part = q[:, :, -queries:]
        found = attend(part, k, v, low, path="factored").double()
        away = (found - dense(encoding, part, k, v)).abs().max().item()
        assert away <= largest * (math.expm1(2 * CASES[name][1]) + rounding)
        own = (found - dense(low, part, k, v)).abs().max().item()
        assert own <= largest * rounding


@pytest.mark.parametrize("name", ["t5, both sides", "kerple, log"])
def test_gradients_of_q_k_and_v(name):
    _, low = made(name, 4096, causal=False)
    for causal in (True, False):
        shapes = ((low.heads, 600, 8), (2, 600, 8), (2, 600, 8))
        leaves = [random(1, *shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
        grad = random(1, low.heads, 600, 8, seed=9)
        q, k, v = leaves
        found = attend(q, k, v, low, causal=causal, path="factored")
        mine = torch.autograd.grad(found, leaves, grad)
        theirs = torch.autograd.grad(dense(low, q, k, v, causal), leaves, grad)
        for a, b in zip(mine, theirs, strict=True):
            assert (a - b).abs().max() < 1e-11 * b.abs().max()


def test_attend_takes_the_channels_by_itself(monkeypatch):
    _, low = made("kerple, log", 4096)
    q = torch.randn(1, 8, 1000, 64)
    assert path(q, q, low).name == "factored"
    assert path(q, q, low, window=100).name == "factored"
    assert path(q, q, low, segments=torch.arange(1000) // 300).name == "factored"
    assert path(q[:, :, :9], q[:, :, :9], low).name == "blockwise"
    far = path(q, q, low, kv_positions=5 * torch.arange(1000), q_positions=5 * torch.arange(1000))
    assert far.name == "blockwise"
    assert "gives no factors for these positions" in far.why
    _, short = made("kerple, log", 300)
    assert path(q, q, short).name == "blockwise"
    assert path(q, q, short, window=50).name == "factored", "keys out of sight do not count"
    monkeypatch.setattr(factored, "MANY", 3)
    assert "channels cost more than its numbers" in path(q, q, low).why


def test_positions_beyond_the_length_have_the_bias_itself():
    encoding, low = made("kerple, log", 300)
    q, k, v = (random(1, 8, 600, 4, seed=s) for s in range(3))
    places = 40 * torch.arange(600)
    given: Any = {"q_positions": places, "kv_positions": places}
    found = attend(q, k, v, low, path="factored", **given)
    exact = attend(q, k, v, encoding, **given)
    assert (found - exact).abs().max() < 5e-3
    rows = places[7:].flip(0), places[:7]
    assert torch.equal(low.bias(*rows)[..., :-8, :], encoding.bias(*rows)[..., :-8, :])


def test_a_bias_of_some_positions_has_channels_there_only():
    encoding, low = made("fire", 300)
    assert holds_to(encoding, lines(encoding, 300)) == 300
    assert low.factors(torch.tensor([299]), torch.tensor([0])) is not None
    assert low.factors(torch.tensor([300]), torch.tensor([10])) is None
    assert low.factors(torch.tensor([200]), torch.tensor([-1])) is None
    q, k = 40_000 + torch.arange(250, 300), 40_000 + torch.arange(40)
    assert torch.equal(low.bias(q, k), encoding.bias(q, k))


def test_compiled_and_traced_calls_give_the_same():
    encoding, low = made("t5", 300)
    q, k, v = (torch.randn(1, 8, 400, 8) for _ in range(3))

    def call(q, k, v):
        return attend(q, k, v, low)

    with torch.no_grad():
        found = torch.compile(call, backend="eager", fullgraph=True)(q, k, v)
        assert torch.allclose(found, attend(q, k, v, encoding), rtol=0, atol=1e-5)


# Learning, loading, casting.


def test_gradients_that_cannot_be_had_are_refused():
    encoding = T5(8)
    low = LowRank(encoding, length=300, error=1e-3)
    q = torch.randn(1, 8, 300, 8)
    for way in ("auto", "blockwise"):
        with pytest.raises(ValueError, match="no gradient reaches its parameters: train with the"):
            attend(q, q, q, low, path=way)
    with pytest.raises(ValueError, match="a gradient of the bias itself is wanted"):
        attend(q, q, q, low, path="factored")
    with torch.no_grad():
        attend(q, q, q, low)
    low.requires_grad_(False)
    attend(q, q, q, low)
    assert encoding.weight.requires_grad, "the encoding is copied"


def test_what_is_loaded_is_what_is_used():
    one, other = (LowRank(trained(T5(8, std=2.0), s), length=300, error=1e-3) for s in (0, 1))
    far = torch.tensor([200]), torch.tensor([0])
    assert not torch.allclose(one.bias(*far), other.bias(*far))
    one.load_state_dict(other.state_dict())
    assert torch.equal(one.bias(*far), other.bias(*far))
    factors = one.factors(*far)
    assert factors is not None
    assert factors.row is not None
    assert torch.allclose(factors.row[:, 0], other.bias(*far, torch.float64)[:, 0, 0])


def test_a_cast_encoding_is_measured_as_it_is():
    low = LowRank(trained(Kerple(8)), length=300, error=1e-3).to(torch.bfloat16)
    places = torch.arange(300)
    away = low.bias(places, places, torch.float64) - low.exact.bias(places, places, torch.float64)
    assert away.abs().amax() <= low.error.amax() <= 1e-3


def test_copies_and_files():
    _, low = made("kerple, log", 300)
    written = io.BytesIO()
    torch.save(low, written)
    written.seek(0)
    places = torch.arange(200)
    for other in (copy.deepcopy(low), torch.load(written, weights_only=False)):
        assert torch.equal(other.bias(places, places), low.bias(places, places))


def test_a_model_holds_it():
    model = nn.ModuleDict({"bias": LowRank(trained(T5(8)), length=300, error=1e-3)})
    assert list(model.state_dict()) == ["bias.exact.weight"]
    assert "length=300, error=0.001, rank=0" in repr(model)


# Tiles.


def test_a_tile_is_divided_until_it_is_whole():
    whole = parted(Tile(0, 16, 0, 16, "causal"), lambda t: t.rule == "all" and t.q1 > 12, 2)
    pairs = [(i, j) for t in whole for i in range(t.q0, t.q1) for j in range(t.k0, t.k1)]
    seen = [pair for pair in pairs if pair[1] <= pair[0]]
    assert sorted(seen) == [(i, j) for i in range(16) for j in range(i + 1)]
    big = list(parted(Tile(0, 16, 0, 16, "all"), lambda t: False, 5))
    assert len(big) == 16
    assert {(t.q1 - t.q0, t.k1 - t.k0) for t in big} == {(4, 4)}
    assert len(list(parted(Tile(0, 16, 0, 1, "all"), lambda t: False, 5))) == 4
    assert len(list(parted(Tile(0, 16, 0, 16, "mask"), lambda t: False, 5))) == 1


# Refusals.


class Placed(Stepped):
    """No function of distance: the query's own position counts."""

    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        own = (q_positions % 200 == 199).to(dtype)[..., None, :, None]
        return super().bias(q_positions, kv_positions, dtype) + own


class Endless(Stepped):
    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        return super().bias(q_positions, kv_positions, dtype).log()


class Wavy(Stepped):
    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        offset = (q_positions[..., :, None] - kv_positions[..., None, :]).unsqueeze(-3)
        return (
            (0.1 * offset.to(torch.float64))
            .cos()
            .expand(*offset.shape[:-3], self.heads, *offset.shape[-2:])
        )


GIVEN = {"length": 300, "error": 1e-3}


@pytest.mark.parametrize(
    ("encoding", "given", "kind", "message"),
    [
        (make("rope", head_dim=8), GIVEN, TypeError, "is no bias: LowRank takes numbers that dep"),
        (make("wavelet", head_dim=8), GIVEN, TypeError, "is no bias"),
        (ALiBi(8), GIVEN, ValueError, "ALiBi is made of channels already; give it to attend"),
        (make("sandwich", heads=8), GIVEN, ValueError, "Sandwich is made of channels already"),
        (T5(8), {**GIVEN, "length": 1}, ValueError, "length=1 must be at least 2"),
        (T5(8), {**GIVEN, "length": 3.0}, TypeError, "length=3.0 must be an int"),
        (T5(8), {**GIVEN, "error": 0}, ValueError, "error=0.0 must be finite and above 0"),
        (T5(8), {**GIVEN, "error": "0"}, TypeError, "error='0' must be a number"),
        (T5(8), {**GIVEN, "most": -1}, ValueError, "most=-1 must be at least 0"),
        (T5(8), {**GIVEN, "causal": 1}, TypeError, "causal=1 must be"),
        (T5(8, device="meta"), GIVEN, ValueError, "T5 is on the meta device, without numbers"),
        (
            T5(8, max_distance=1000),
            GIVEN,
            ValueError,
            "error=0.001 over 300 distances is out of reach of 64 channels, which come to",
        ),
        (Fire(8), {**GIVEN, "length": 2000}, ValueError, "Fire is no function of distance: at"),
        (Placed(2), GIVEN, ValueError, "Placed is no function of distance: at distance"),
        (Endless(2), GIVEN, ValueError, "Endless gives numbers that are not finite within 300"),
        (Wavy(2), {"length": 1500, "error": 1e-3}, ValueError, "is out of reach of 64 channels"),
    ],
)
def test_what_cannot_be_done_is_refused(encoding, given, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        LowRank(encoding, **given)


def test_a_refusal_says_how_many_channels_are_needed():
    encoding = trained(Kerple(8))
    with pytest.raises(ValueError, match=r"needs \d+ channels, and most=3") as refused:
        LowRank(encoding, length=4096, error=1e-4, most=3)
    found = re.search(r"needs (\d+) channels", str(refused.value))
    assert found is not None
    assert LowRank(encoding, length=4096, error=1e-4, most=int(found[1])).rank <= int(found[1])


def test_powers_that_no_channel_can_hold_are_refused():
    """4096 ** 1.9 is 7e6, which float32 holds to 0.5."""
    encoding = trained(Kerple(2, "power"))
    nn.init.constant_(encoding.p, 1.9)
    with pytest.raises(ValueError, match="float32 holds those to"):
        LowRank(encoding, length=4096, error=1e-3)


def test_one_of_channels_is_no_encoding_for_another():
    _, low = made("kerple, log", 300)
    with pytest.raises(ValueError, match="LowRank is made of channels already"):
        LowRank(low, length=300, error=1e-2)
