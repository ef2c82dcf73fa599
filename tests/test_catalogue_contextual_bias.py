"""Shaw, wavelets and Transformer-XL: golden values, literal forms, and attention with each."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import ropewalk
from ropewalk.checks.content import seeded
from ropewalk.core import Block
from ropewalk.encodings.contextual import Shaw, TransformerXL, Wavelet

pytestmark = pytest.mark.usefixtures("poisoned")

HEADS, KV_HEADS, DIM = 4, 2, 8


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def content(tokens: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """q, and k and v of half as many heads."""
    shapes = ((HEADS, DIM), (KV_HEADS, DIM), (KV_HEADS, DIM))
    return [
        random(2, heads, tokens, dim, seed=seed, dtype=dtype)
        for seed, (heads, dim) in enumerate(shapes)
    ]


# Literal forms: a vector for each pair, and no sharing of anything.


def pair_logits(name: str, encoding, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Unscaled logits ``[batch, heads, q_tokens, kv_tokens]``."""
    logits = torch.einsum("bhqd,bhkd->bhqk", q, k)
    offset = i[:, None] - j
    if name.startswith("shaw"):
        rows = (-offset).clamp(-encoding.clip, encoding.clip) + encoding.clip
        return logits + torch.einsum("bhqd,qkd->bhqk", q, encoding.key[rows])
    if name.startswith("wavelet"):
        code = torch.tensor(
            [[literal_code(encoding, int(gap)) for gap in line] for line in offset],
            dtype=torch.float64,
        )
        return logits + torch.einsum("bhqd,qkd->bhqk", q, code.reshape(*offset.shape, DIM))
    half = encoding.dim // 2
    rates = 1e4 ** (-torch.arange(half).double() / half)
    angle = offset[..., None] * rates
    r = torch.cat((angle.sin(), angle.cos()), dim=-1)
    read = encoding.r_net(r).unflatten(-1, (HEADS, DIM))
    u, v = encoding.r_w_bias[:, None], encoding.r_r_bias[:, None]
    by_content = torch.einsum("bhqd,bhkd->bhqk", q + u, k)
    return by_content + torch.einsum("bhqd,qkhd->bhqk", q + v, read)


def literal_code(encoding: Wavelet, offset: int) -> list[float]:
    """p(Δ) lane by lane."""
    lanes = []
    for a in encoding.scales:
        for b in range(encoding.head_dim // len(encoding.scales)):
            u = (offset - b) / a
            if encoding.kind == "ricker":
                lanes.append((1 - u * u) * math.exp(-u * u / 2))
            elif encoding.kind == "gaussian":
                lanes.append(math.exp(-u * u))
            elif encoding.kind == "morlet":
                lanes.append(math.exp(-u * u) * math.cos(offset - b))
            else:
                lanes.append(1.0 if 0 < u <= 0.5 else -1.0 if 0.5 < u <= 1 else 0.0)
    return lanes


def dense(name: str, encoding, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Attention by definition, one matrix for all pairs."""
    repeats = q.shape[-3] // k.shape[-3]
    k, v = (x.repeat_interleave(repeats, dim=-3) for x in (k, v))
    j = torch.arange(k.shape[-2])
    i = j[len(j) - q.shape[-2] :]
    logits = pair_logits(name, encoding, q, k, i, j) / DIM**0.5
    if causal:
        logits = logits.masked_fill(j > i[:, None], -math.inf)
    weights = logits.softmax(-1)
    if getattr(encoding, "value", None) is None:
        return weights @ v
    rows = (j - i[:, None]).clamp(-encoding.clip, encoding.clip) + encoding.clip
    return weights @ v + torch.einsum("bhqk,qkd->bhqd", weights, encoding.value[rows])


ALL: dict[str, Callable[[], ropewalk.Contextual]] = {
    "shaw": lambda: Shaw(DIM, clip=5),
    "shaw of keys": lambda: Shaw(DIM, clip=2, value_dim=0),
    "wavelet": lambda: Wavelet(DIM, scales=4),
    "wavelet gaussian": lambda: Wavelet(DIM, scales=2, kind="gaussian"),
    "wavelet haar": lambda: Wavelet(DIM, scales=4, kind="haar"),
    "wavelet morlet": lambda: Wavelet(DIM, scales=(3.0, 2.0**11), kind="morlet"),
    "transformer_xl": lambda: TransformerXL(HEADS, DIM, std=0.5),
}


def made(name: str) -> ropewalk.Contextual:
    with seeded(0):
        return ALL[name]()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("tokens", "causal"), [(40, True), (23, False)])
def test_attention_and_its_gradients_are_those_of_the_definition(name, tokens, causal):
    encoding = made(name).double()
    q, k, v = (x.requires_grad_() for x in content(tokens))
    leaves = [q, k, v, *encoding.parameters()]
    weight = random(2, HEADS, tokens, DIM, seed=9)
    pair = []
    for result in (
        ropewalk.attend(q, k, v, encoding, causal=causal),
        dense(name, encoding, q, k, v, causal),
    ):
        pair.append((result, *torch.autograd.grad((result * weight).sum(), leaves)))
    for found, expected in zip(*pair, strict=True):
        assert torch.allclose(found, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", ALL)
def test_attention_in_lower_precision(name):
    encoding = made(name)
    wide = made(name).double()
    for dtype, tolerance in ((torch.float32, 2e-5), (torch.bfloat16, 0.03)):
        q, k, v = content(40, dtype)
        found = ropewalk.attend(q, k, v, encoding)
        assert found.dtype == dtype
        expected = dense(name, wide, q.double(), k.double(), v.double(), True)
        assert (found - expected).abs().max().item() <= tolerance


@pytest.mark.parametrize("name", ALL)
def test_a_decode_step_is_the_last_row_of_the_whole(name):
    encoding = made(name)
    q, k, v = content(300, torch.float32)  # more than a block of queries
    whole = ropewalk.attend(q, k, v, encoding)
    step = ropewalk.attend(q[..., -1:, :], k, v, encoding)
    assert torch.allclose(step, whole[..., -1:, :], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["shaw", "shaw of keys", "transformer_xl"])
def test_gradients_reach_every_parameter(name):
    encoding = made(name)
    q, k, v = content(270, torch.float32)
    ropewalk.attend(q, k, v, encoding).square().sum().backward()
    for title, parameter in encoding.named_parameters():
        assert parameter.grad is not None, title
        assert parameter.grad.isfinite().all(), title
        assert parameter.grad.abs().sum() > 0, title


@pytest.mark.parametrize("name", ALL)
def test_positions_may_be_any_and_differ_by_row(name):
    encoding = made(name).double()
    q, k, _ = content(6)
    k = k.repeat_interleave(2, dim=-3)
    i = torch.tensor([[5, -3, 2**31, 7, 7, 0], [1, 2, 3, 40, 50, 60]])
    j = torch.tensor([[2**31 - 2, 0, 5, 6, 7, 8], [0, 1, 2, 3, 4, 5]])
    found = encoding.logits(Block(q, k, i, j, None, 0.5))
    for row in range(2):
        expected = pair_logits(name, encoding, q[row, None], k[row, None], i[row], j[row]) / 2
        loose = 1e-6 if name == "transformer_xl" else 1e-12  # the oracle's angles are products
        assert torch.allclose(found[row], expected[0], rtol=1e-9, atol=loose)


class Largest(TorchDispatchMode):
    """Watches every operation for the largest tensor it makes."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        answer = func(*args, **(kwargs or {}))
        made = answer if isinstance(answer, (tuple, list)) else (answer,)
        sizes = [item.numel() for item in made if isinstance(item, Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return answer


@pytest.mark.parametrize("make", [Shaw, Wavelet, lambda dim: TransformerXL(2, dim)])
def test_no_tensor_has_a_vector_for_each_pair(make):
    tokens, dim = 2000, 32
    q, k, v = (random(2, tokens, dim, seed=s, dtype=torch.float32) for s in range(3))
    with torch.no_grad(), Largest() as largest:
        ropewalk.attend(q, k, v, make(dim))
    assert largest.numbers <= 2 * 256 * 4000  # a vector each would be 16 million numbers


def test_another_width_is_refused():
    q, k, v = content(5)
    for encoding in (Shaw(DIM + 1), Wavelet(2 * DIM), TransformerXL(HEADS, DIM + 2)):
        with pytest.raises(ValueError, match=f"q has .*{DIM}"):
            ropewalk.attend(q, k, v, encoding.double())


# Shaw.


def test_shaw_shares_what_lies_beyond_the_clipping_distance():
    encoding = Shaw(DIM, clip=3)
    line = torch.arange(10)
    x = random(1, 1, 10, DIM)
    block = Block(x, x, line, line, None)
    assert encoding.rows(block)[0, 4].tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 6, 6]


def test_shaw_starts_as_tensorflow_variables_do():
    with seeded(0):
        encoding = Shaw(200, clip=50)
    limit = math.sqrt(6 / (101 + 200))
    for table in (encoding.key, encoding.value):
        assert table is not None
        assert table.shape == (101, 200)
        assert limit * 0.99 < table.abs().max() <= limit


# Wavelets.


def test_ricker_has_the_range_and_the_reach_of_the_literature():
    """p ∈ [−.4463, 1]; d = 128, s = 8: ‖p‖ < 1e-3 from Δ = 619, zero in float32 from Δ = 1908."""
    code = Wavelet(128).code(torch.arange(4000))
    assert code.shape == (4000, 128)
    assert f"{code.min().item():.4f} {code.max().item()}" == "-0.4463 1.0"
    small = code.norm(dim=-1) < 1e-3
    assert small[619:].all()
    assert not small[618]
    nothing = (code.float() == 0).all(-1)
    assert nothing[1908:].all()
    assert not nothing[1907]


@pytest.mark.parametrize("kind", ["ricker", "gaussian", "haar", "morlet"])
def test_wavelets_by_their_formulas(kind):
    encoding = Wavelet(12, scales=(1.0, 2.5, 64.0), kind=kind)
    places = [-70, -1, 0, 1, 2, 3, 33, 34, 67, 500, 10_000]
    expected = torch.tensor([literal_code(encoding, p) for p in places], dtype=torch.float64)
    found = encoding.code(torch.tensor(places))
    assert torch.allclose(found, expected, rtol=1e-13, atol=1e-15)


def test_haar_looks_back_over_a_window_that_grows_with_the_scale():
    code = Wavelet(8, scales=4, kind="haar").code(torch.arange(12))
    assert code[:, 6].tolist() == [0] + [1] * 4 + [-1] * 4 + [0] * 3
    assert code[:, 7].tolist() == [0] * 2 + [1] * 4 + [-1] * 4 + [0] * 2


@pytest.mark.parametrize("scales", [2, (1.0, 2.0**11, 3.0, 2.0**12), (2.0**11,)])
def test_the_table_and_the_pairs_agree(scales):
    """Many pairs are read from a table of distances, few are computed by themselves."""
    encoding = Wavelet(DIM, scales=scales)
    q, k, _ = content(400, torch.float32)
    k = k.repeat_interleave(2, dim=-3)
    line = torch.arange(400) * 3
    whole = encoding.bias(Block(q, k, line, line, None))
    few = encoding.bias(Block(q[..., :2, :], k[..., :2, :], line[:2], line[:2], None))
    assert torch.allclose(whole[..., :2, :2], few, rtol=1e-5, atol=1e-6)
    offset = line[:, None] - line
    expected = torch.einsum("bhqd,qkd->bhqk", q.double(), encoding.code(offset))
    assert torch.allclose(whole.double(), expected, atol=2e-6)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"scales": 3}, ValueError, "head_dim=8 is not a multiple of 3 scales"),
        ({"scales": 0}, ValueError, "scales=0 must be at least 1"),
        ({"scales": (1.0, -2.0)}, ValueError, r"scales\[1\]=-2.0 must be finite and above 0"),
        ({"scales": "8"}, TypeError, "scales='8' must be an int or a sequence"),
        ({"kind": "mexican"}, ValueError, "kind='mexican' is unknown; use one of"),
    ],
)
def test_wavelet_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        Wavelet(DIM, **arguments)


# Transformer-XL.


def test_transformer_xl_is_the_shift_of_the_authors():
    """Products with r at distances T − 1 … 0, each row pushed to its own distances."""
    encoding = made("transformer_xl").double()
    assert isinstance(encoding, TransformerXL)
    tokens = 17
    q, k, _ = content(tokens)
    k = k.repeat_interleave(2, dim=-3)
    half = encoding.dim // 2
    far = torch.arange(tokens - 1, -1, -1.0, dtype=torch.float64)
    angle = far[:, None] / 1e4 ** (torch.arange(half).double() / half)
    r = torch.cat((angle.sin(), angle.cos()), dim=-1)
    read = encoding.r_net(r).unflatten(-1, (HEADS, DIM)).transpose(0, 1)
    by_distance = (q + encoding.r_r_bias[:, None]) @ read.transpose(-1, -2)
    padded = torch.nn.functional.pad(by_distance, (1, 0))
    shifted = padded.reshape(2, HEADS, tokens + 1, tokens)[..., 1:, :]
    by_content = (q + encoding.r_w_bias[:, None]) @ k.transpose(-1, -2)
    expected = (by_content + shifted) / DIM**0.5
    line = torch.arange(tokens)
    found = encoding.logits(Block(q, k, line, line, None, DIM**-0.5))
    lower = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    assert torch.allclose(found[..., lower], expected[..., lower], rtol=1e-11, atol=1e-12)


def test_transformer_xl_starts_as_in_the_authors_code():
    with seeded(0):
        encoding = TransformerXL(8, 64)
    assert encoding.r_net.weight.shape == (512, 512)
    assert encoding.r_net.bias is None
    for values in encoding.parameters():
        assert values.std().item() == pytest.approx(0.02, rel=0.1)
        assert abs(values.mean().item()) < 0.003


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 7}, "dim=7 must be even"),
        ({"base": -1.0}, "base=-1.0 must be finite and above 0"),
        ({"std": 0.0}, "std=0.0 must be finite and above 0"),
    ],
)
def test_transformer_xl_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        TransformerXL(2, 8, **arguments)
