"""torch.func over rotations: every transform against the dense matrix of each token.

The oracle is a product with ``RoPE.matrix``, float64 matrices from exactly reduced angles, so what
is linear is compared with a linear map and its transpose.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import (
    functional_call,
    functionalize,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

from ropewalk import RoPE, attend, rotate, rotate_, rotate_by, rotate_qk
from ropewalk.encodings.bias import ALiBi
from ropewalk.kernels import Steps, rotate_qk_by
from ropewalk.spectra import Spectrum, geometric

pytestmark = pytest.mark.filterwarnings(
    r"ignore:`torch\.jit\.script.* is deprecated:DeprecationWarning"  # PyTorch's own use of it
)
SPECTRUM = geometric(8, rotary_dim=6).replace(attention_factor=1.25)
PLACES = torch.tensor([3, -7, 40, 0, 9])
MATRICES = torch.stack([RoPE(SPECTRUM).matrix(int(p)) for p in PLACES])  # [tokens, out, in]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, TANGENT = drawn(2, 3, 5, 8), drawn(2, 3, 5, 8, seed=1)
ONE = X[0, 0]


def turned(x: Tensor) -> Tensor:
    return rotate(x, PLACES, SPECTRUM)


def by_matrix(x: Tensor) -> Tensor:
    return (MATRICES @ x.unsqueeze(-1)).squeeze(-1)


def by_transpose(x: Tensor) -> Tensor:
    return (MATRICES.mT @ x.unsqueeze(-1)).squeeze(-1)


def cubed(x: Tensor) -> Tensor:
    """A scalar whose first three derivatives are not constant."""
    return turned(x).pow(3).sum()


def cubed_by_matrix(x: Tensor) -> Tensor:
    return by_matrix(x).pow(3).sum()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


# Linear maps and their transposes


FORWARD: dict[str, Callable[[], Tensor]] = {
    "vmap": lambda: vmap(turned)(X),
    "vmap, another dimension": lambda: vmap(turned, in_dims=1, out_dims=1)(X),
    "vmap of vmap": lambda: vmap(vmap(turned))(X),
    "vmap over positions": lambda: vmap(lambda p: rotate(X, p, SPECTRUM))(PLACES[None])[0],
    "vmap over both": lambda: vmap(lambda x, p: rotate(x, p, SPECTRUM))(X, PLACES.expand(2, 5)),
    "vmap over offsets": lambda: vmap(
        lambda x, o: rotate(x, PLACES - 9 + o, SPECTRUM), in_dims=(0, 0)
    )(X, torch.tensor([9, 9])),
    "vmap over steps": lambda: vmap(lambda s: rotate(X, PLACES, Steps(s, SPECTRUM)))(
        SPECTRUM.on().tensor[None]
    )[0],
    "functionalize": lambda: functionalize(turned)(X),
    "functionalize in place": lambda: functionalize(lambda x: rotate_(x.clone(), PLACES, SPECTRUM))(
        X
    ),
    "value of jvp": lambda: jvp(turned, (X,), (TANGENT,))[0],
    "value of vjp": lambda: vjp(turned, X)[0],
    "vmap in place": lambda: vmap(lambda x: rotate_(x, PLACES, SPECTRUM))(X.clone()),
    "vmap of q and k by tables": lambda: vmap(
        lambda q, k: rotate_qk_by(q, k, *tables())[1], in_dims=(0, 0)
    )(X[:, :1], X),
    "vmap of q and k": lambda: vmap(lambda q, k: rotate_qk(q, k, PLACES, SPECTRUM)[1])(X[:, :1], X),
}

TANGENTS: dict[str, Callable[[], Tensor]] = {
    "jvp": lambda: jvp(turned, (X,), (TANGENT,))[1],
    "jvp in place": lambda: jvp(lambda x: rotate_(x * 1, PLACES, SPECTRUM), (X,), (TANGENT,))[1],
    "jvp of vmap": lambda: jvp(vmap(turned), (X,), (TANGENT,))[1],
    "vmap of jvp": lambda: vmap(lambda x, t: jvp(turned, (x,), (t,))[1])(X, TANGENT),
    "jvp of q and k by tables": lambda: jvp(
        lambda q: rotate_qk_by(q, q, *tables())[0], (X,), (TANGENT,)
    )[1],
    "jvp of q and k": lambda: jvp(lambda q: rotate_qk(q, q, PLACES, SPECTRUM)[1], (X,), (TANGENT,))[
        1
    ],
}

COTANGENTS: dict[str, Callable[[], Tensor]] = {
    "vjp": lambda: vjp(turned, X)[1](TANGENT)[0],
    "grad": lambda: grad(lambda x: (turned(x) * TANGENT).sum())(X),
    "grad in place": lambda: grad(lambda x: (rotate_(x * 1, PLACES, SPECTRUM) * TANGENT).sum())(X),
    "grad of q and k": lambda: grad(
        lambda q: (rotate_qk(q, q, PLACES, SPECTRUM)[0] * TANGENT).sum()
    )(X),
    "grad of vmap": lambda: grad(lambda x: (vmap(turned)(x) * TANGENT).sum())(X),
    "vmap of vjp": lambda: vmap(lambda c: vjp(turned, X)[1](c)[0])(TANGENT[None])[0],
}


@pytest.mark.parametrize("name", FORWARD)
def test_values(name):
    close(FORWARD[name](), by_matrix(X))


@pytest.mark.parametrize("name", TANGENTS)
def test_tangents(name):
    close(TANGENTS[name](), by_matrix(TANGENT))


@pytest.mark.parametrize("name", COTANGENTS)
def test_cotangents(name):
    close(COTANGENTS[name](), by_transpose(TANGENT))


def test_vmap_in_place_writes_its_argument():
    x = X.clone()
    vmap(lambda row: rotate_(row, PLACES, SPECTRUM))(x)
    close(x, by_matrix(X))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
def test_linearize():
    value, push = linearize(turned, X)
    close(value, by_matrix(X))
    close(push(TANGENT), by_matrix(TANGENT))


def test_dual_numbers_of_forward_mode():
    with forward_ad.dual_level():
        pair = forward_ad.unpack_dual(turned(forward_ad.make_dual(X, TANGENT)))
    assert pair.tangent is not None
    close(pair.primal, by_matrix(X))
    close(pair.tangent, by_matrix(TANGENT))


# Jacobians, Hessians and derivatives of derivatives


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_jacobians_are_the_matrices(jacobian):
    found = jacobian(turned)(ONE)  # [token, lane, token, lane]
    for token, matrix in enumerate(MATRICES):
        close(found[token, :, token], matrix)
        found[token, :, token] = 0
    assert not found.any()


@pytest.mark.parametrize(
    "second",
    [
        hessian,
        lambda f: jacrev(jacrev(f)),
        lambda f: jacfwd(jacfwd(f)),
        lambda f: jacrev(jacfwd(f)),
        lambda f: jacfwd(grad(f)),
    ],
    ids=["hessian", "rev rev", "fwd fwd", "rev fwd", "fwd grad"],
)
def test_second_derivatives(second):
    close(second(cubed)(ONE), hessian(cubed_by_matrix)(ONE))


def test_third_derivative_along_a_direction():
    def along(function: Callable[[Tensor], Tensor]) -> Tensor:
        def step(f):
            return lambda x: jvp(f, (x,), (TANGENT,))[1]

        return step(step(grad(function)))(X)

    close(along(cubed), along(cubed_by_matrix))


# Given tables


def tables() -> tuple[Tensor, Tensor]:
    cos, sin = SPECTRUM.tables(PLACES, dtype=torch.float64)
    return cos, sin


def by_definition(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b, rest = x[..., :3], x[..., 3:6], x[..., 6:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos, rest), dim=-1)


@pytest.mark.parametrize("argument", [0, 1, 2], ids=["x", "cos", "sin"])
@pytest.mark.parametrize("inverse", [False, True], ids=["forward", "inverse"])
def test_derivatives_with_respect_to_x_and_tables(argument, inverse):
    inputs = (ONE, *tables())

    def function(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return rotate_by(x, cos, sin, inverse=inverse)

    def definition(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if inverse:
            square = cos * cos + sin * sin
            cos, sin = cos / square, -sin / square
        return by_definition(x, cos, sin)

    for jacobian in (jacrev, jacfwd):
        found = jacobian(function, argnums=argument)(*inputs)
        close(found, jacrev(definition, argnums=argument)(*inputs))
    found = hessian(lambda *a: function(*a).pow(3).sum(), argnums=argument)(*inputs)
    close(found, hessian(lambda *a: definition(*a).pow(3).sum(), argnums=argument)(*inputs))


@pytest.mark.parametrize("dims", [(0, None, None), (None, 0, 0), (0, 0, 0)])
def test_vmap_over_x_and_tables(dims):
    cos, sin = (torch.stack((t, 2 * t)) for t in tables())
    inputs = [t if d == 0 else t[0] for t, d in zip((X, cos, sin), dims, strict=True)]
    found = vmap(rotate_by, in_dims=dims)(*inputs)
    for row in range(2):
        own = [t[row] if d == 0 else t for t, d in zip(inputs, dims, strict=True)]
        close(found[row], by_definition(*own))


def test_frequencies_per_head_under_vmap_and_grad():
    spectrum = Spectrum((((1.0, 0.1),), ((0.5, 0.7),), ((2.0, 0.0),)), 5)

    def function(x: Tensor) -> Tensor:
        return rotate(x, PLACES, spectrum).pow(3).sum()

    x = X[..., :5]
    rows = torch.stack([grad(function)(row) for row in x])
    close(vmap(grad(function))(x), rows)
    eager = x.clone().requires_grad_()
    close(torch.autograd.grad(function(eager), eager)[0], rows)


# Modules


class Model(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.linear, self.rope = nn.Linear(8, 8, bias=False).double(), RoPE(SPECTRUM)
        with torch.no_grad():
            self.linear.weight.copy_(drawn(8, 8, seed=seed))

    def forward(self, x: Tensor) -> Tensor:
        q, k = self.rope(self.linear(x), x)
        logits = q @ k.mT / 8
        return (logits.softmax(-1) @ x).square().sum()


def test_gradients_per_sample():
    model = Model()
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    assert list(buffers) == ["rope.steps"]

    def loss(parameters, x):
        return functional_call(model, (parameters, buffers), (x,))

    found = vmap(grad(loss), in_dims=(None, 0))(parameters, X)
    for row, x in enumerate(X):
        expected = torch.autograd.grad(model(x), list(model.parameters()))
        close(found["linear.weight"][row], expected[0])


def test_an_ensemble_of_models():
    models = [Model(1), Model(2)]
    parameters, buffers = stack_module_state(models)

    def call(parameters, buffers, x):
        return functional_call(models[0], (parameters, buffers), (x,))

    found = vmap(call, in_dims=(0, 0, None))(parameters, buffers, X)
    close(found, torch.stack([model(X) for model in models]))


@pytest.mark.parametrize("name", ["rope", "alibi"])
def test_attention(name):
    encoding = RoPE(SPECTRUM) if name == "rope" else ALiBi(3)

    def function(x: Tensor) -> Tensor:
        return attend(x, x, x, encoding).pow(3)

    eager = X.clone().requires_grad_()
    expected = torch.autograd.grad(function(eager).sum(), eager)[0]
    with sdpa_kernel(SDPBackend.MATH):  # PyTorch's fused CPU kernel has no vmap and no jvp
        close(vmap(function)(X), function(X))
        close(grad(lambda x: function(x).sum())(X), expected)
        value = jvp(function, (X,), (TANGENT,))[1].sum()
    close(value, (expected * TANGENT).sum())
