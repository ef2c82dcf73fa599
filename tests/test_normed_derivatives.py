"""Derivatives of norm and rotation, transforms and compilers, against the plain definition.

And against transformers' own modules, which make the same function in other steps.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from normed_oracle import definition, drawn, weight_of
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.nn.functional import rms_norm

from ropewalk import norm_rotate, norm_rotate_, norm_rotate_qk, norm_rotate_qk_, rotate_qk
from ropewalk.kernels import native
from ropewalk.spectra import geometric

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{message}")
    for message in (
        r"`torch\.jit\.script.* is deprecated:DeprecationWarning",
        r"`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning",
    )
]
"""PyTorch warns about parts of its own that its transforms and compilers use."""
SPECTRUM = geometric(8, rotary_dim=6, lane_offset=1).replace(attention_factor=1.25)
PLACES, EPS = torch.tensor([3, -7, 40]), 1e-2
X, WEIGHT = drawn(2, 3, 8), weight_of(8)


def found(x: Tensor, weight: Tensor | None) -> Tensor:
    return norm_rotate(x, weight, PLACES, SPECTRUM, eps=EPS)


def expected(x: Tensor, weight: Tensor | None) -> Tensor:
    return definition(x, weight, PLACES, SPECTRUM, EPS)


def close(one: object, other: object) -> None:
    torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


# --- autograd -----------------------------------------------------------------------------------


def test_gradients_of_gradients_by_differences():
    x, weight = (t.clone().requires_grad_() for t in (X, WEIGHT))
    assert gradcheck(found, (x, weight), check_batched_grad=True, check_forward_ad=True)
    assert gradgradcheck(found, (x, weight), check_batched_grad=True)
    assert gradcheck(lambda x: found(x, None), (x,))
    assert gradgradcheck(lambda weight: found(X, weight), (weight,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_gradients_are_those_of_the_definition_rounded_once(layout, dtype):
    spectrum = geometric(16, rotary_dim=12, layout=layout).replace(attention_factor=1.25)
    x, weight, places = drawn(2, 4, 5, 16, dtype=dtype), weight_of(16, dtype), torch.arange(5) + 9
    cotangent = drawn(2, 5, 4, 16, dtype=dtype, seed=5).transpose(1, 2)
    leaves = [t.double().requires_grad_() for t in (x, weight)]
    exact = torch.autograd.grad(
        definition(leaves[0], leaves[1], places, spectrum, EPS), leaves, cotangent.double()
    )
    ours = [t.clone().requires_grad_() for t in (x, weight)]
    turned = norm_rotate(ours[0], ours[1], places, spectrum, eps=EPS)
    for one, other in zip(torch.autograd.grad(turned, ours, cotangent), exact, strict=True):
        assert one.dtype == dtype
        off = torch.finfo(dtype).eps
        floor = 1e-14 if dtype == torch.float64 else 4e-6  # of the arithmetic
        torch.testing.assert_close(one.double(), other, rtol=0.51 * off, atol=floor)


@pytest.mark.parametrize("which", [(True, False), (False, True), (True, True)])
def test_only_what_is_asked_for(which):
    ours = [t.clone().requires_grad_(w) for t, w in zip((X, WEIGHT), which, strict=True)]
    theirs = [t.clone().requires_grad_(w) for t, w in zip((X, WEIGHT), which, strict=True)]
    for tensors, function in ((ours, found), (theirs, expected)):
        function(*tensors).pow(3).sum().backward()
    for one, other, wanted in zip(ours, theirs, which, strict=True):
        assert (one.grad is not None) == wanted
        if wanted:
            close(one.grad, other.grad)


def test_only_inputs_are_kept():
    if native.kernel().normed is None:
        pytest.skip("no compiled kernel")
    kept: list[Tensor] = []
    x, weight = X.clone().requires_grad_(), WEIGHT.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        found(x, weight)
    assert [t.data_ptr() for t in kept[:2]] == [x.data_ptr(), weight.data_ptr()]
    assert [t.dtype for t in kept[2:]] == [torch.int64, torch.int64]


def test_in_place_and_together_have_the_same_gradients():
    def one_by_one(x: Tensor, weight: Tensor) -> Tensor:
        return found(x * 2, weight).sin().sum() + found(x[:1], None).cos().sum()

    def in_place(x: Tensor, weight: Tensor) -> Tensor:
        q, k = norm_rotate_qk_(x * 2, x[:1] * 1, weight, None, PLACES, SPECTRUM, eps=EPS)
        return q.sin().sum() + k.cos().sum()

    def together(x: Tensor, weight: Tensor) -> Tensor:
        q, k = norm_rotate_qk(x * 2, x[:1], weight, None, PLACES, SPECTRUM, eps=EPS)
        return q.sin().sum() + k.cos().sum()

    def part(x: Tensor, weight: Tensor) -> Tensor:
        whole = x.clone()
        norm_rotate_(whole[:1], weight, PLACES, SPECTRUM, eps=EPS)
        return whole.pow(3).sum()

    def part_apart(x: Tensor, weight: Tensor) -> Tensor:
        return torch.cat((found(x[:1], weight), x[1:])).pow(3).sum()

    for function, other in ((in_place, one_by_one), (together, one_by_one), (part, part_apart)):
        results = []
        for each in (function, other):
            leaves = [t.clone().requires_grad_() for t in (X, WEIGHT)]
            results.append(torch.autograd.grad(each(*leaves), leaves))
        close(*results)


# --- transforms ---------------------------------------------------------------------------------

CUBED: dict[str, Callable[[Callable[..., Tensor]], object]] = {
    "grad": lambda f: grad(lambda x, w: f(x, w).pow(3).sum(), argnums=(0, 1))(X, WEIGHT),
    "grad of grad": lambda f: grad(
        lambda w: grad(lambda x: f(x, w).pow(3).sum())(X).pow(2).sum()
    )(WEIGHT),
    "vmap": lambda f: vmap(f, in_dims=(0, None))(X, WEIGHT),
    "vmap over weights": lambda f: vmap(f, in_dims=(None, 0))(X, drawn(4, 8)),
    "vmap over both": lambda f: vmap(f)(drawn(4, 2, 3, 8), drawn(4, 8)),
    "jvp": lambda f: jvp(f, (X, WEIGHT), (drawn(2, 3, 8, seed=8), drawn(8, seed=9))),
    "jacrev": lambda f: jacrev(f, argnums=(0, 1))(X[:1], WEIGHT),
    "jacfwd": lambda f: jacfwd(f, argnums=(0, 1))(X[:1], WEIGHT),
    "hessian": lambda f: hessian(lambda w: f(X, w).pow(3).sum())(WEIGHT),
    "grad per sample": lambda f: vmap(
        grad(lambda w, x: f(x, w).pow(3).sum()), in_dims=(None, 0)
    )(WEIGHT, X),
}  # fmt: skip


@pytest.mark.parametrize("name", CUBED)
def test_transforms(name):
    close(CUBED[name](found), CUBED[name](expected))


def test_forward_mode_outside_of_transforms():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(X, drawn(2, 3, 8, seed=8))
        close(forward_ad.unpack_dual(found(dual, WEIGHT)).tangent,
              forward_ad.unpack_dual(expected(dual, WEIGHT)).tangent)  # fmt: skip
        here = norm_rotate_(dual.clone(), WEIGHT, PLACES, SPECTRUM, eps=EPS)
        close(
            forward_ad.unpack_dual(here).tangent,
            forward_ad.unpack_dual(found(dual, WEIGHT)).tangent,
        )


# --- compilers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "dtype"), [(1, torch.bfloat16), (5, torch.float32)])
def test_compiled_steps_are_whole_graphs(tokens, dtype):
    spectrum, off = geometric(8), 2 * torch.finfo(dtype).eps

    def step(q: Tensor, k: Tensor, weight: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        return (
            *norm_rotate_qk(q, k, weight, None, places, spectrum),
            norm_rotate_(q * 2, weight, places, spectrum, eps=0.5),
            norm_rotate(k, weight, None, spectrum, offset=3),
        )

    q, k = drawn(2, 4, tokens, 8, dtype=dtype), drawn(2, 2, tokens, 8, dtype=dtype)
    given, places = (q, k, weight_of(8, dtype)), torch.arange(tokens) + 2**31
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    results, gradients = [], []
    for each in (compiled, step):
        leaves = [t.clone().requires_grad_() for t in given]
        results.append(each(leaves[0], leaves[1], leaves[2], places))
        total = torch.stack([y.float().pow(3).sum() for y in results[-1]]).sum()
        gradients.append(torch.autograd.grad(total, leaves))
    torch.testing.assert_close(*results, rtol=off, atol=off)
    torch.testing.assert_close(*gradients, rtol=max(4 * off, 1e-5), atol=max(4 * off, 1e-5))


def test_other_kinds_of_tensor_have_their_shape():
    meta = norm_rotate(X.to("meta"), WEIGHT.to("meta"), None, SPECTRUM)
    assert (meta.shape, meta.dtype, meta.device.type) == (X.shape, X.dtype, "meta")
    with torch.autocast("cpu", torch.bfloat16):
        close(found(X, WEIGHT), expected(X, WEIGHT))
    with torch.inference_mode():
        close(found(X, WEIGHT), expected(X, WEIGHT))
        x = X.clone()
    x = x.clone()
    close(torch.autograd.grad(found(x, WEIGHT.requires_grad_(True)).sum(), WEIGHT)[0],
          torch.autograd.grad(expected(x, WEIGHT).sum(), WEIGHT)[0])  # fmt: skip
    WEIGHT.requires_grad_(False)


# --- transformers -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_no_further_from_float64_than_qwen3s_own_modules(dtype):
    qwen3 = pytest.importorskip("transformers.models.qwen3.modeling_qwen3")
    config = qwen3.Qwen3Config(
        hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=8,
        num_hidden_layers=1, intermediate_size=8,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )  # fmt: skip
    torch.manual_seed(0)
    attention = qwen3.Qwen3Attention(config, 0).to(dtype)
    for norm in (attention.q_norm, attention.k_norm):
        torch.nn.init.normal_(norm.weight, 1.0, 0.2)
    hidden, places = torch.randn(2, 9, 32).to(dtype), torch.arange(9)
    spectrum, eps = geometric(16, 1e6), config.rms_norm_eps
    tables = qwen3.Qwen3RotaryEmbedding(config)(hidden, places[None])
    with torch.no_grad():
        q = attention.q_proj(hidden).view(2, 9, 4, 16)
        k = attention.k_proj(hidden).view(2, 9, 2, 16)
        normed = attention.q_norm(q).transpose(1, 2), attention.k_norm(k).transpose(1, 2)
        theirs = qwen3.apply_rotary_pos_emb(*normed, *tables)
        weights = attention.q_norm.weight, attention.k_norm.weight
        rows = q.transpose(1, 2), k.transpose(1, 2)
        ours = norm_rotate_qk(*rows, *weights, places, spectrum, eps=eps)
        only = [rms_norm(x, (16,), w, eps) for x, w in zip(rows, weights, strict=True)]
        apart = rotate_qk(only[0], only[1], places, spectrum)
    for x, weight, one, two, other in zip(rows, weights, ours, apart, theirs, strict=True):
        exact = definition(x.double(), weight.detach().double(), places, spectrum, eps)
        errors = [float((t.double() - exact).abs().max()) for t in (one, two, other)]
        assert errors[0] <= 1.2 * min(errors[1:])
        assert errors[0] <= 0.51 * torch.finfo(dtype).eps * float(exact.abs().max()) * 8
        assert errors[2] < 2**-6 * float(exact.abs().max())  # it is the same function
