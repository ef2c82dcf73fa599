"""Tensors that are not plain: fake, meta, traced, wrapped, masked, nested, sparse, autocast.

Each is rotated right, or refused with the remedy; never read as if it were plain memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from ropewalk import RoPE, attend, positions, rotate, rotate_, rotate_by, rotate_qk
from ropewalk.encodings.bias import ALiBi
from ropewalk.kernels import Steps, onnx
from ropewalk.kernels.phases import phase_tables, phase_tables_op
from ropewalk.kernels.steps import written_steps
from ropewalk.spectra import geometric

SPECTRUM = geometric(8, rotary_dim=6)
PLACES = torch.arange(5) + 2**40


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X = drawn(2, 3, 5, 8)
COS, SIN = SPECTRUM.tables(PLACES)
TURNED = rotate(X, PLACES, SPECTRUM)

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "rotate": lambda x: rotate(x, None, SPECTRUM, offset=3),
    "rotate_": lambda x: rotate_(x.clone(), None, SPECTRUM),
    "rotate, inverse": lambda x: rotate(x, None, SPECTRUM, inverse=True),
    "rotate_qk": lambda x: rotate_qk(x, x, None, SPECTRUM)[1],
    "rotate_by": lambda x: rotate_by(x, x[0, 0, :, :3], x[0, 0, :, 3:6]),
    "out": lambda x: rotate(x, None, SPECTRUM, out=torch.empty_like(x)),
    "module": lambda x: RoPE(SPECTRUM).encode_q(x),
    "attend": lambda x: attend(x, x, x, RoPE(SPECTRUM)),
    "attend, bias": lambda x: attend(x, x, x, ALiBi(3)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fake_and_meta_tensors_have_the_shape_dtype_and_device(name, dtype):
    expected = CALLS[name](X.to(dtype))
    with FakeTensorMode() as mode:
        found = CALLS[name](torch.empty(X.shape, dtype=dtype))
        assert mode is not None
    meta = CALLS[name](torch.empty(X.shape, dtype=dtype, device="meta"))
    for result, device in ((found, "cpu"), (meta, "meta")):
        assert (result.shape, result.dtype, result.device.type) == (X.shape, dtype, device)
        assert result.stride() == expected.stride()


def test_a_real_tensor_beside_a_fake_one_is_refused_and_not_read():
    with FakeTensorMode() as mode:
        fake = torch.arange(5)
    with pytest.raises(AssertionError, match="Please convert all Tensors to FakeTensors"):
        rotate(X, fake, SPECTRUM)
    assert mode is not None
    with pytest.raises(ValueError, match="x is on meta, positions are on cpu"):
        rotate(X.to("meta"), PLACES, SPECTRUM)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(mode):
    def function(x: Tensor, places: Tensor) -> Tensor:
        return rotate_(rotate(x, places, SPECTRUM), places, SPECTRUM, inverse=True)

    graph = make_fx(function, tracing_mode=mode)(X, PLACES)
    names = [str(node.target) for node in graph.graph.nodes]
    assert sum("ropewalk.phase_tables" in name for name in names) == 2
    assert torch.equal(graph(X, PLACES), function(X, PLACES))
    if mode == "symbolic":
        longer = drawn(4, 3, 9, 8), torch.arange(9) - 2**50
        assert torch.equal(graph(*longer), function(*longer))

    gradient = torch.func.grad(lambda x, places: function(x, places).pow(2).sum())
    traced = make_fx(gradient, tracing_mode=mode)(X, PLACES)
    assert torch.equal(traced(X, PLACES), gradient(X, PLACES))


def test_a_rotation_counts_no_matrix_products():
    with FlopCounterMode(display=False) as counter:
        assert torch.equal(rotate(X, PLACES, SPECTRUM), TURNED)
    assert counter.get_total_flops() == 0


# Subclasses


class Pair(torch.Tensor):
    """A wrapper without memory of its own, as quantised and distributed tensors are."""

    a: Tensor
    b: Tensor

    @staticmethod
    def __new__(cls, a: Tensor, b: Tensor):
        return torch.Tensor._make_wrapper_subclass(
            cls, a.shape, dtype=a.dtype, device=a.device, strides=a.stride()
        )

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.b = a, b

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        from torch.utils._pytree import tree_map

        def part(name: str) -> Any:
            def pick(value: Any) -> Any:
                return getattr(value, name) if isinstance(value, Pair) else value

            return func(*tree_map(pick, args), **tree_map(pick, kwargs or {}))

        first, second = part("a"), part("b")
        if func._schema.name.endswith("_"):
            return args[0]
        if isinstance(first, tuple):
            return tuple(Pair(x, y) for x, y in zip(first, second, strict=True))
        return Pair(first, second) if isinstance(first, Tensor) else first


class Named(torch.Tensor):
    """A subclass that adds nothing."""


def test_wrappers_are_rotated_inside():
    pair = Pair(X.clone(), 2 * X)
    found = rotate(pair, PLACES, SPECTRUM)
    assert isinstance(found, Pair)
    assert torch.equal(found.a, TURNED)
    assert torch.equal(found.b, 2 * TURNED)
    by = rotate_by(pair, COS, SIN)
    assert isinstance(by, Pair)
    assert torch.equal(by.b, 2 * TURNED)
    rotate_(pair, PLACES, SPECTRUM)
    assert torch.equal(pair.a, TURNED)
    assert torch.equal(pair.b, 2 * TURNED)


def test_wrapped_positions_and_steps_are_not_read_as_memory():
    found = rotate(X, Pair(PLACES, PLACES + 1), SPECTRUM)
    assert isinstance(found, Pair)
    assert torch.equal(found.a, TURNED)
    assert torch.equal(found.b, rotate(X, PLACES + 1, SPECTRUM))
    spread = Pair(SPECTRUM.on().tensor, 2 * SPECTRUM.on().tensor)
    found = rotate(X, PLACES, Steps(spread, SPECTRUM))
    assert isinstance(found, Pair)
    assert torch.equal(found.a, TURNED)
    both = rotate_qk(X, X, Pair(PLACES, PLACES + 1), SPECTRUM)
    assert all(isinstance(t, Pair) and torch.equal(t.a, TURNED) for t in both)
    with torch.no_grad():
        into = Pair(torch.empty_like(X), torch.empty_like(X))
        rotate(X, PLACES, SPECTRUM, out=into)
    assert torch.equal(into.b, TURNED)


def test_other_subclasses_keep_their_class():
    found = rotate(X.as_subclass(Named), PLACES, SPECTRUM)
    assert type(found) is Named
    assert torch.equal(found.as_subclass(Tensor), TURNED)
    assert torch.equal(rotate(X, PLACES.as_subclass(Named), SPECTRUM), TURNED)
    assert torch.equal(rotate(torch.nn.Parameter(X), PLACES, SPECTRUM).detach(), TURNED)


# Layouts that have no rule


@pytest.fixture
def nested() -> Tensor:
    rows = [drawn(3, 2, 8), drawn(5, 2, 8, seed=1)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


def test_a_nested_tensor_is_refused_and_its_remedy_works(nested):
    for call in (
        lambda: rotate(nested.transpose(1, 2), None, SPECTRUM),
        lambda: rotate_(nested.transpose(1, 2), None, SPECTRUM),
        lambda: rotate_by(nested.transpose(1, 2), COS, SIN),
        lambda: attend(*([nested.transpose(1, 2)] * 3), encoding=RoPE(SPECTRUM)),
    ):
        with pytest.raises(TypeError, match=r"nested tensor; .*positions\.packed\(.*offsets\(\)\)"):
            call()
    places = positions.packed(nested.offsets())
    turned = rotate(nested.values().transpose(0, 1), places, SPECTRUM).transpose(0, 1)
    for row, start in zip(nested.unbind(), (0, 3), strict=True):
        expected = rotate(row.transpose(0, 1), None, SPECTRUM).transpose(0, 1)
        assert torch.equal(turned[start : start + len(row)], expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_other_layouts_are_refused():
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: rotate(torch.nested.nested_tensor([X[0], X[1]]), None, SPECTRUM), "nested tensor"),
        (lambda: rotate(X.to_sparse(), None, SPECTRUM), "x has layout torch.sparse_coo"),
        (lambda: rotate(X.to_mkldnn(), None, SPECTRUM), "x has layout torch._mkldnn"),
        (lambda: rotate_by(X.to_sparse(), COS, SIN), ".to_dense()"),
        (lambda: rotate(X, PLACES.to_sparse(), SPECTRUM), "positions have layout torch.sparse_coo"),
        (
            lambda: rotate(torch.masked.masked_tensor(X, X > 0), None, SPECTRUM),
            "x is a MaskedTensor",
        ),
        (lambda: rotate(X.to(torch.float8_e4m3fn), None, SPECTRUM), "float8_e4m3fn"),
        (lambda: rotate(X.to(torch.complex64), None, SPECTRUM), "complex64"),
    ]
    for call, words in refused:
        with pytest.raises(TypeError, match=re.escape(words)):
            call()


def test_lazily_negated_memory_is_rotated_right():
    assert torch.equal(rotate(torch.ops.aten._neg_view(-X), PLACES, SPECTRUM), TURNED)


# Autocast


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_autocast_changes_no_bit_of_a_rotation(dtype):
    x = X.to(dtype)
    inside = {
        "rotate": lambda: rotate(x, PLACES, SPECTRUM),
        "rotate_by": lambda: rotate_by(x, COS, SIN),
        "as trained": lambda: RoPE(SPECTRUM, phases="float32").encode_q(x, PLACES),
        "plain": lambda: rotate(x.as_subclass(Named), PLACES, SPECTRUM).as_subclass(Tensor),
    }
    for name, call in inside.items():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = call()
        assert found.dtype == dtype, name
        assert torch.equal(found, call()), name


@pytest.mark.parametrize("encoding", [RoPE(SPECTRUM), ALiBi(3), None])
def test_attention_under_autocast_keeps_its_dtype_and_its_positions(encoding):
    """Far out, a position or a bias in bfloat16 would be off by whole tokens."""
    places = PLACES - 2**40 + 10_001
    leaf = X.clone().requires_grad_()

    def call() -> Tensor:
        return attend(leaf, leaf, leaf, encoding, q_positions=places, kv_positions=places)

    exact = call()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = call()
    assert found.dtype == X.dtype
    torch.testing.assert_close(found, exact, rtol=0, atol=0.03)
    (gradient,) = torch.autograd.grad(found.sum(), leaf)
    torch.testing.assert_close(
        gradient, torch.autograd.grad(exact.sum(), leaf)[0], rtol=0, atol=0.06
    )


# The operators


def test_the_operator_that_graphs_for_onnx_hold_keeps_its_contract():
    x = drawn(2, 3, 5, 8)
    for shape in ((5, 3), (2, 1, 5, 3)):
        cos, sin = drawn(*shape), drawn(*shape, seed=1)
        for interleaved in (False, True):
            arguments = (x, cos, sin, interleaved)
            torch.library.opcheck(onnx.rotary_embedding, arguments)
            layout = "interleaved" if interleaved else "half"
            assert torch.equal(
                onnx.rotary_embedding(*arguments), rotate_by(x, cos, sin, layout=layout)
            )


def test_decompositions_equal_their_operators():
    from ropewalk.kernels import decompositions

    table = decompositions()
    steps = table[written_steps](SPECTRUM.written_steps, torch.device("cpu"))
    assert torch.equal(steps, SPECTRUM.on("cpu").tensor)
    for found, expected in zip(
        table[phase_tables_op](PLACES, steps, 1.25, 32),
        phase_tables(PLACES, steps, 1.25, torch.float32),
        strict=True,
    ):
        assert torch.equal(found, expected)
