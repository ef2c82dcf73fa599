"""Compilers see positions go in and cos and sin come out, and every bit is that of eager code.

Why the phases are opaque: Inductor treats integer products as unbounded and may compute them in
fewer bits. The guarantee starts at the positions tensor; what a caller's own graph does to integers
before that (``torch.arange(n) * 10**9`` comes out of Inductor wrapped to 32 bits) is outside of it,
see ``test_the_guarantee_starts_at_the_positions``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.debugging import aot_eager
from torch._dynamo.utils import counters
from torch.export import Dim
from torch.fx import GraphModule, Node

from ropewalk import RoPE, attend, norm_rotate_qk, rotate, rotate_, rotate_by, rotate_qk, spectra
from ropewalk.encodings.additive import Sinusoidal
from ropewalk.encodings.bias import ALiBi
from ropewalk.encodings.rotary import AxialRoPE
from ropewalk.kernels import Steps
from ropewalk.kernels.phases import float_tables_op, phase_tables, phase_tables_op
from ropewalk.spectra import Spectrum, geometric

HAS_COMPILER = any(map(shutil.which, ("g++", "clang++", "c++")))
needs_compiler = pytest.mark.skipif(
    not HAS_COMPILER, reason="Inductor needs a C++ compiler; install g++ to run this test"
)
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{message}")
    for message in (
        r"`torch\.jit\.script.* is deprecated:DeprecationWarning",
        r"`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning",
    )
]
"""PyTorch warns about parts of its own that its compilers use."""
PAIRS = (1, 4, 8, 64)
NEAR_OVERFLOW = 3.14159265358979
"""A frequency whose step is 2⁶³ less 9,486: any sign or width error shows."""


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory) -> Iterator[None]:
    """Nothing is taken from an earlier run's cache, and no worker processes are started.

    Where ``CI`` is set Inductor is stricter: it refuses an operator that decomposes and is used
    whole.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        patch.setenv("CI", "true")
        patch.setattr("torch._inductor.config.compile_threads", 1)
        yield


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def spectrum_of(pairs: int) -> Spectrum:
    rest = geometric(2 * pairs, 5e5).inv_freq[1:]
    return Spectrum(((NEAR_OVERFLOW, *rest),), 2 * pairs + 1, layout="interleaved")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Everything(nn.Module):
    """Positions built in the graph in several ways, times 1, 4, 8 and 64 pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.spectra = [spectrum_of(pairs) for pairs in PAIRS]
        self.ropes: Any = nn.ModuleList(map(RoPE, self.spectra))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        results = []
        for x, rope, spectrum in zip(inputs, self.ropes, self.spectra, strict=True):
            line = torch.arange(x.shape[-2])
            results += [
                rotate(x, torch.stack((line, line + (2**31 + 5))), spectrum),
                rotate(x, None, spectrum, offset=2**62 + 3),
                rope.encode_q(x, line - 2**40),
                rope.encode_k(x, offset=2**31 + 5),
            ]
        return tuple(results)


def inputs(tokens: int) -> tuple[Tensor, ...]:
    return tuple(drawn(2, 3, tokens, 2 * pairs + 1, seed=pairs) for pairs in PAIRS)


def assert_same_bits(found, expected) -> None:
    assert len(found) == len(expected)
    for index, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert torch.equal(a, b), index


@needs_compiler
def test_inductor_gives_the_same_bits():
    """Here the compiler knows all sizes and inlines what it can; packages below have them open."""
    module = Everything()
    compiled = torch.compile(module, fullgraph=True, dynamic=False)
    assert_same_bits(compiled(*inputs(5)), module(*inputs(5)))


@pytest.fixture(scope="module")
def exported() -> torch.export.ExportedProgram:
    shapes = tuple({2: Dim.AUTO} for _ in PAIRS)
    return torch.export.export(Everything(), inputs(5), dynamic_shapes=(shapes,))


def test_exported_programs_give_the_same_bits(exported, tmp_path):
    torch.export.save(exported, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2")
    for tokens in (5, 2, 33):
        expected = Everything()(*inputs(tokens))
        assert_same_bits(exported.module()(*inputs(tokens)), expected)
        assert_same_bits(loaded.module()(*inputs(tokens)), expected)


@needs_compiler
def test_ahead_of_time_packages_give_the_same_bits(exported, tmp_path):
    package = torch._inductor.aoti_compile_and_package(
        exported,
        package_path=str(tmp_path / "program.pt2"),
        inductor_configs={"aot_inductor.compile_wrapper_opt_level": "O0"},
    )
    loaded = torch._inductor.aoti_load_package(package)
    for tokens in (5, 9):
        assert_same_bits(loaded(*inputs(tokens)), Everything()(*inputs(tokens)))


@needs_compiler
def test_gradients_of_compiled_code_have_the_same_bits():
    rope = RoPE(geometric(16, rotary_dim=8).replace(attention_factor=1.25))

    def function(q, k, positions):
        return rope(q, k, positions)

    compiled = torch.compile(function, fullgraph=True, dynamic=True)
    for tokens in (5, 9):
        q, k = (drawn(2, h, tokens, 16, seed=h).requires_grad_() for h in (4, 2))
        cotangents = [drawn(*x.shape, seed=9) for x in (q, k)]
        positions = torch.randint(-(2**62), 2**62, (2, tokens))
        expected = function(q, k, positions)
        found = compiled(q, k, positions)
        assert_same_bits(found, expected)
        assert_same_bits(
            torch.autograd.grad(found, (q, k), cotangents),
            torch.autograd.grad(expected, (q, k), cotangents),
        )


@needs_compiler
def test_the_guarantee_starts_at_the_positions():
    """Whatever Inductor makes of a product in the caller's graph, it is rotated by exactly that."""
    rope, x = RoPE(spectrum_of(4)), drawn(2, 5, 9)

    @torch.compile(fullgraph=True)
    def compiled(x):
        positions = torch.arange(x.shape[-2]) * 10**9
        return positions, rope.encode_q(x, positions), rotate(x, positions, rope.spectrum)

    positions, by_module, by_spectrum = compiled(x)
    assert torch.equal(by_module, rope.encode_q(x, positions))
    assert torch.equal(by_spectrum, by_module)


# What the graph holds


def traced(function: Callable[..., Any], *args: Any) -> list[GraphModule]:
    """The graphs that Dynamo hands to a backend."""
    graphs: list[GraphModule] = []

    def backend(graph: GraphModule, _: Any) -> GraphModule:
        graphs.append(graph)
        return graph

    torch.compile(function, backend=backend, fullgraph=True)(*args)
    return graphs


def integers_in(value: Any) -> Iterator[int]:
    """Every Python int in the arguments of a node."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from integers_in(item)
    elif isinstance(value, dict):
        yield from integers_in(list(value.values()))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def is_integer(node: Any) -> bool:
    value = node.meta.get("example_value", node.meta.get("val")) if isinstance(node, Node) else None
    return isinstance(value, Tensor) and not value.dtype.is_floating_point


def assert_phases_are_opaque(graph: torch.fx.Graph, spectrum: Spectrum) -> None:
    """No step as a number, no product of integers, and steps that come from outside or the op."""
    steps = {abs(s) for matrix in spectrum.steps for row in matrix for s in row if s}
    calls = 0
    for node in graph.nodes:
        name = str(node.target)
        for number in integers_in((node.args, node.kwargs)):
            assert abs(number) not in steps, node.format_node()
        if "mul" in name or "einsum" in name or "matmul" in name:
            assert not any(is_integer(a) for a in node.args), node.format_node()
        if "ropewalk.phase_tables" in name:
            calls += 1
            assert came_from_outside(node.args[1]), node.args[1].format_node()
    assert calls, "no phase_tables in the graph"


def came_from_outside(node: Node) -> bool:
    """A graph input, or ropewalk's own operator; through copies of an exported constant."""
    if node.op in ("placeholder", "get_attr"):
        return True
    if "ropewalk.steps" in str(node.target):
        return True
    copies = ("lift_fresh_copy", "detach_", "detach", "clone")
    return any(f"aten.{c}" in str(node.target) for c in copies) and came_from_outside(
        node.args[0]  # pyright: ignore[reportArgumentType]
    )


SPECTRUM = spectrum_of(4)
ROPE, SINUSOIDAL = RoPE(SPECTRUM), Sinusoidal(16)
GRAPHS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Spectrum]] = {
    "module": (lambda x: ROPE.encode_q(x, offset=3), (), SPECTRUM),
    "positions in the graph": (lambda x: ROPE.encode_q(x, torch.arange(5)), (), SPECTRUM),
    "spectrum of a closure": (lambda x: rotate(x, torch.arange(5), SPECTRUM), (), SPECTRUM),
    "spectrum as argument": (lambda x, s: rotate(x, None, s), (SPECTRUM,), SPECTRUM),
    "steps as argument": (lambda x, s: rotate(x, None, s), (SPECTRUM.on(),), SPECTRUM),
    "steps made in the graph": (lambda x: rotate(x, None, SPECTRUM.on("cpu")), (), SPECTRUM),
    "steps on the default device": (lambda x: rotate(x, None, SPECTRUM.on()), (), SPECTRUM),
    "tables in the graph": (lambda x: SPECTRUM.tables(torch.arange(x.shape[0])), (), SPECTRUM),
    "sinusoidal": (lambda x: SINUSOIDAL.encode(torch.arange(5)), (), SINUSOIDAL.spectrum),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_hold_no_steps(name):
    function, more, spectrum = GRAPHS[name]
    graphs = traced(function, drawn(2, 5, 9), *more)
    assert len(graphs) == 1
    assert_phases_are_opaque(graphs[0].graph, spectrum)


def test_a_spectrum_never_becomes_symbolic_sizes():
    """Ints of an argument turn dynamic once they change; steps must not."""
    graphs: list[GraphModule] = []

    def backend(graph: GraphModule, _: Any) -> GraphModule:
        graphs.append(graph)
        return graph

    compiled = torch.compile(
        lambda x, s: rotate(x, None, s), backend=backend, fullgraph=True, dynamic=True
    )
    x = drawn(2, 5, 9)
    for base in (3e3, 4e3, 5e3, 3e3):
        spectrum = geometric(9, base, rotary_dim=8)
        assert torch.equal(compiled(x, spectrum), rotate(x, None, spectrum))
    assert len(graphs) == 3  # an equal spectrum needs no new graph
    for graph, base in zip(graphs, (3e3, 4e3, 5e3), strict=True):
        assert_phases_are_opaque(graph.graph, geometric(9, base, rotary_dim=8))
        tensors = [n for n in graph.graph.nodes if n.op == "placeholder"]
        assert [n.meta["example_value"].dim() for n in tensors if "x" in n.name][-1] == 3


def test_exported_graphs_hold_no_steps(exported):
    for pairs in PAIRS:
        assert_phases_are_opaque(exported.graph, spectrum_of(pairs))


def test_the_inspection_can_fail():
    steps = SPECTRUM.on().tensor

    def product(x):
        return phase_tables(torch.arange(5), steps, 1.0, torch.float32)[0] * (
            torch.arange(5)[:, None] * steps
        )

    def numbers(x):
        made = torch.tensor(SPECTRUM.steps[0], dtype=torch.int64)
        return phase_tables(torch.arange(5), made, 1.0, torch.float32)[0]

    for function in (product, numbers):
        (graph,) = traced(function, drawn(2, 5, 9))
        with pytest.raises(AssertionError):
            assert_phases_are_opaque(graph.graph, SPECTRUM)


# Graphs and recompilations


def called(name: str) -> tuple[nn.Module | Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """What to compile, and its arguments for so many tokens."""
    rope, alibi = RoPE(8), ALiBi(4)
    spectrum = geometric(8)
    steps = spectrum.on()

    def x(tokens: int) -> tuple[Tensor, ...]:
        return (drawn(2, 4, tokens, 8),)

    def qk(tokens: int) -> tuple[Tensor, ...]:
        return drawn(2, 4, tokens, 8), drawn(2, 2, tokens, 8, seed=1)

    def rows(tokens: int) -> Tensor:
        return torch.arange(2 * tokens).reshape(2, tokens) + 2**40

    table: dict[str, tuple[Any, Callable[[int], tuple[Any, ...]]]] = {
        "rope": (rope, qk),
        "rope, positions": (rope, lambda t: (*qk(t), torch.arange(t) - 7)),
        "float32 rope": (RoPE(8, phases="float32"), lambda t: (drawn(2, t, 8), drawn(2, t, 8))),
        "sinusoidal": (Sinusoidal(16), lambda t: (drawn(2, t, 16),)),
        "alibi": (alibi.bias, lambda t: (torch.arange(t), torch.arange(t))),
        "axial": (
            AxialRoPE(8).encode_q,
            lambda t: (drawn(2, 4, t, 8), torch.arange(2 * t).reshape(t, 2)),
        ),
        "rotate, spectrum": (lambda x: rotate(x, None, spectrum), x),
        "rotate, steps": (lambda x: rotate(x, None, steps), x),
        "rotate, positions": (lambda x, p: rotate(x, p, spectrum), lambda t: (*x(t), rows(t))),
        "rotate, offset": (
            lambda x, o: rotate(x, None, spectrum, offset=o),
            lambda t: (*x(t), 3 * t + 2),
        ),
        "rotate, offsets": (
            lambda x, o: rotate(x, None, spectrum, offset=o),
            lambda t: (*x(t), torch.tensor([t, -5])),
        ),
        "rotate_qk, offset": (
            lambda q, k, o: rotate_qk(q, k, None, spectrum, offset=o),
            lambda t: (*qk(t), torch.tensor(t)),
        ),
        "rotate_": (lambda x: rotate_(2 * x, None, steps), x),
        "rotate_, offset": (
            lambda x, o: rotate_(2 * x, None, steps, offset=o),
            lambda t: (*x(t), t + 9),
        ),
        "rotate_by": (rotate_by, lambda t: (*x(t), drawn(t, 4), drawn(t, 4, seed=1))),
        "attend": (lambda q, k: attend(q, k, k.clone(), rope), qk),
        "attend, positions": (
            lambda q, k, p: attend(q, k, k.clone(), rope, q_positions=p, kv_positions=p),
            lambda t: (*qk(t), rows(t)),
        ),
        "attend, decoding": (
            lambda q, k: attend(q, k, k.clone(), rope, k_encoded=True),
            lambda t: (drawn(2, 4, 1, 8), drawn(2, 2, t, 8)),
        ),
    }
    return table[name]


NAMES = ["rope", "rope, positions", "float32 rope", "sinusoidal", "alibi", "axial",
         "rotate, spectrum", "rotate, steps", "rotate, positions", "rotate, offset",
         "rotate, offsets", "rotate_qk, offset", "rotate_", "rotate_, offset", "rotate_by",
         "attend, positions", "attend, decoding"]  # fmt: skip
LENGTHS = (17, 1, 2, 100, 1)


def as_trained(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """bfloat16 leaves in place of floating tensors."""
    return tuple(
        a.bfloat16().requires_grad_() if isinstance(a, Tensor) and a.is_floating_point() else a
        for a in arguments
    )


def assert_same_bits_and_gradients(function, compiled, arguments: tuple[Any, ...]) -> None:
    found, expected = compiled(*arguments), function(*arguments)
    if isinstance(expected, Tensor):
        found, expected = (found,), (expected,)
    assert_same_bits(found, expected)
    leaves = [a for a in arguments if isinstance(a, Tensor) and a.requires_grad]
    if leaves:
        cotangents = [drawn(*e.shape, seed=9).to(e.dtype) for e in expected]
        assert_same_bits(
            torch.autograd.grad(found, leaves, cotangents),
            torch.autograd.grad(expected, leaves, cotangents),
        )


@pytest.mark.parametrize("name", NAMES)
def test_one_graph_for_one_token_and_one_for_more(name):
    function, arguments = called(name)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
    for tokens in LENGTHS:
        given = arguments(tokens)
        if name not in ("alibi", "sinusoidal"):
            given = as_trained(given)
        assert_same_bits_and_gradients(function, compiled, given)
    assert counters["stats"]["unique_graphs"] <= 2


@pytest.mark.parametrize("name", ["rope, positions", "rotate_by", "attend"])
@torch.no_grad()
def test_no_more_graphs_without_gradients(name):
    function, arguments = called(name)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
    for tokens in (*LENGTHS, 1000):
        assert_same_bits_and_gradients(function, compiled, arguments(tokens))
    assert counters["stats"]["unique_graphs"] <= 2


@pytest.mark.parametrize("name", ["rotate, offset", "rotate_qk, offset", "attend"])
def test_one_graph_more_where_the_compiler_finds_out_what_is_dynamic(name):
    function, arguments = called(name)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    for tokens in LENGTHS:
        assert_same_bits_and_gradients(function, compiled, as_trained(arguments(tokens)))
    assert counters["stats"]["unique_graphs"] <= 3


SCALED = spectra.yarn(geometric(8), 4.0, 512)
SCALED_ROPE, FLOAT_ROPE = RoPE(SCALED), RoPE(SCALED, phases="float32")
ONES = torch.ones(8)
ROTATIONS: dict[str, Callable[..., Any]] = {
    "spectrum": lambda q, k, past: rotate_qk(q, k, None, SCALED, offset=past),
    "spectrum, back": lambda q, k, past: rotate(q, None, SCALED, offset=past, inverse=True),
    "module": lambda q, k, past: SCALED_ROPE(q, k, offset=past),
    "float32 module": lambda q, k, past: FLOAT_ROPE(q, k, offset=past),
    "tables": lambda q, k, past: SCALED.tables(torch.arange(q.shape[2]) + past),
    "attend": lambda q, k, past: attend(q, k, k, SCALED_ROPE),
    "attend, scale": lambda q, k, past: attend(q, k, k, scale=0.3),
    "norm": lambda q, k, past: norm_rotate_qk(
        q, k, ONES, ONES, None, SCALED, eps=1e-6, offset=past
    ),
}


@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize(("dynamic", "calls"), [(True, [1, 2, 2, 2, 2]), (None, [1, 2, 2, 3, 3])])
def test_a_graph_is_compiled_once(name, dynamic, calls):
    """A float that Dynamo takes for a number that may change is compiled once for nothing."""
    function, seen, count = ROTATIONS[name], [], 0

    def backend(graph: GraphModule, example: Any) -> Any:
        nonlocal count
        count += 1
        return aot_eager(graph, example)

    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
    for past, tokens in zip((30, 37, 38, 3, 2), (7, 1, 1, 11, 20), strict=True):
        given = drawn(2, 4, tokens, 8), drawn(2, 2, tokens, 8, seed=1), past
        found, expected = compiled(*given), function(*given)
        pair = (found, expected) if isinstance(found, tuple) else ((found,), (expected,))
        for a, b in zip(*pair, strict=True):
            torch.testing.assert_close(a, b)  # bits are the matter of other tests
        seen.append(count)
    assert seen == calls


@needs_compiler
def test_inductor_gives_the_same_bits_at_every_length():
    function, arguments = called("rotate_qk, offset")
    compiled = torch.compile(function, fullgraph=True, dynamic=True)
    for tokens in (17, 1, 2, 100):
        assert_same_bits_and_gradients(function, compiled, as_trained(arguments(tokens)))
    assert counters["stats"]["unique_graphs"] <= 2


def test_a_bias_needs_a_graph_per_doubling_and_not_per_length():
    alibi = ALiBi(4)

    def function(q, k):
        return attend(q, k, k.clone(), alibi)

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
    for tokens in (1, 2, 256, 257, 300, 512):
        given = (drawn(1, 4, tokens, 8).requires_grad_(), drawn(1, 4, tokens, 8).requires_grad_())
        found, expected = compiled(*given), function(*given)
        torch.testing.assert_close(found, expected, rtol=0, atol=5e-6)
        cotangent = drawn(*expected.shape, seed=9)
        for mine, theirs in zip(
            *(torch.autograd.grad(y, given, cotangent) for y in (found, expected)), strict=True
        ):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=5e-5)
    assert counters["stats"]["unique_graphs"] == 3  # one, to 256, to 512


class Attention(nn.Module):
    """An attention block that keeps its encoded keys, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.o = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
        self.rope = RoPE(8)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.q(x), *self.kv(x).chunk(2, dim=-1)
        heads = [t.unflatten(-1, (-1, 8)).transpose(1, 2) for t in (q, k, v)]
        return heads[0], heads[1], heads[2]

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, past: int | Tensor):
        q, k, v = self.split(x)
        keys = torch.cat((keys, self.rope.encode_k(k, offset=past)), dim=2)
        values = torch.cat((values, v), dim=2)
        mixed = attend(self.rope.encode_q(q, offset=past), keys, values)
        return self.o(mixed.transpose(1, 2).flatten(2)), keys, values

    def into(self, x: Tensor, keys: Tensor, values: Tensor, past: int):
        """The same with a cache of fixed size that keys are rotated into."""
        q, k, v = self.split(x)
        end = past + x.shape[1]
        rotate(k, None, self.rope.spectrum, offset=past, out=keys[:, :, past:end])
        values[:, :, past:end] = v
        seen = keys[:, :, :end], values[:, :, :end]
        mixed = attend(self.rope.encode_q(q, offset=past), *seen)
        return self.o(mixed.transpose(1, 2).flatten(2)), keys, values


@pytest.mark.parametrize(
    ("way", "dynamic"),
    [("int", None), ("rows", True), ("fixed cache", None)],
)
@torch.no_grad()
def test_decoding_compiles_once_for_the_prompt_and_once_for_the_rest(way, dynamic):
    model = Attention()
    function: Any = model.into if way == "fixed cache" else model.forward
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    size = 32 if way == "fixed cache" else 0
    found: tuple[Tensor, ...] = (drawn(2, 2, size, 8), drawn(2, 2, size, 8))
    expected = tuple(t.clone() for t in found)
    past = 0
    for tokens in (5, 1, 1, 1, 1, 1):
        x = drawn(2, tokens, 32, seed=past)
        at = torch.full((2,), past) if way == "rows" else past
        found, expected = compiled(x, *found[-2:], at), function(x, *expected[-2:], at)
        assert_same_bits(found, expected)
        past += tokens
    assert counters["stats"]["unique_graphs"] == 2


def test_a_growing_offset_needs_no_new_graphs():
    """Decoding: one token at 0, 1, 2, … and beyond 2³¹."""
    rope = RoPE(8)
    compiled = torch.compile(
        lambda x, offset: rope.encode_q(x, offset=offset), backend="aot_eager", fullgraph=True
    )
    x = drawn(2, 4, 1, 8)
    for offset in (0, 1, 2, 3, 77, 2**31 + 5, 2**40, -9):
        assert torch.equal(compiled(x, offset), rope.encode_q(x, offset=offset)), offset
    assert counters["stats"]["unique_graphs"] <= 2  # the first one, and any


def test_an_offset_may_be_a_symbolic_size():
    class Decode(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rope = RoPE(8)

        def forward(self, x: Tensor, cache: Tensor) -> Tensor:
            return self.rope.encode_k(x, offset=cache.shape[-2])

    x, cache = drawn(2, 1, 8), drawn(2, 7, 8)
    program = torch.export.export(
        Decode(), (x, cache), dynamic_shapes=({}, {1: Dim.DYNAMIC})
    ).module()
    for past in (7, 3, 100):
        cache = drawn(2, past, 8)
        assert torch.equal(program(x, cache), Decode()(x, cache))


@pytest.mark.parametrize("strict", [False, True])
def test_steps_may_be_an_input_of_an_exported_program(strict, tmp_path):
    class Turn(nn.Module):
        def forward(self, x: Tensor, steps: Steps) -> Tensor:
            return rotate(x, None, steps)

    x, steps = drawn(2, 5, 9), SPECTRUM.on()
    program = torch.export.export(Turn(), (x, steps), strict=strict)
    torch.export.save(program, tmp_path / "turn.pt2")
    loaded = torch.export.load(tmp_path / "turn.pt2").module()
    assert torch.equal(program.module()(x, steps), rotate(x, None, steps))
    assert torch.equal(loaded(x, steps), rotate(x, None, steps))


def test_strict_export_of_a_spectrum():
    class Turn(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return rotate(x, torch.arange(x.shape[-2]) + 2**31, SPECTRUM)

    x = drawn(2, 5, 9)
    program = torch.export.export(Turn(), (x,), strict=True)
    assert_phases_are_opaque(program.graph, SPECTRUM)
    assert torch.equal(program.module()(x), Turn()(x))


# The operators themselves


@pytest.mark.parametrize(
    ("positions", "spectrum"),
    [
        (torch.arange(5), geometric(8)),
        (torch.randint(-(2**62), 2**62, (2, 5)), geometric(8)),
        (torch.randint(-(2**62), 2**62, (2, 5, 2)), spectra.axial(8, axes=2)),
        (torch.arange(5), Spectrum((((1.0,),), ((2.0,),)), 2)),
        (torch.arange(0), geometric(8)),
    ],
    ids=["line", "batch", "axes", "heads", "empty"],
)
def test_operators_keep_their_contract(positions, spectrum):
    for bits in (32, 64):
        torch.library.opcheck(phase_tables_op, (positions, spectrum.on().tensor, 1.5, bits))
    frequencies = torch.tensor(spectrum.freqs)
    torch.library.opcheck(float_tables_op, (positions, frequencies, 1.5, 32))
    steps = torch.ops.ropewalk.steps.default
    torch.library.opcheck(steps, (spectrum.written_steps, torch.device("cpu")))
    assert torch.equal(
        steps(spectrum.written_steps, torch.device("cpu")), spectrum.on("cpu").tensor
    )
