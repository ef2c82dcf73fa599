"""Exported programs and ONNX models give what eager code gives, wherever they run."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from docs_examples import documented
from hypothesis import given
from hypothesis import strategies as st
from numeric_oracles import HALF_STEP, mp_sincos
from torch import Tensor, nn
from torch.export import Dim
from torch.jit.frontend import NotSupportedError
from torch.utils._python_dispatch import TorchDispatchMode

from ropewalk import RoPE, attend, kernels, rotate, rotate_, rotate_by, rotate_qk, spectra
from ropewalk.encodings.bias import ALiBi
from ropewalk.kernels import onnx
from ropewalk.kernels.portable import exact_constant, reduced_phase
from ropewalk.spectra import Spectrum, geometric

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{message}")
    for message in (
        r"`torch\.jit\.script.* is deprecated:DeprecationWarning",
        r"`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning",
    )
]
"""PyTorch warns about parts of its own that its exporters use."""
ANY = Dim.DYNAMIC
INT64 = st.integers(-(2**63), 2**63 - 1)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# Phases from integers that never overflow


class NoOverflow(TorchDispatchMode):
    """Every sum, difference and product of integers is compared with Python's own."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        exact: Any = {
            "mul": lambda a, b: a * b,
            "add": lambda a, b: a + b,
            "sub": lambda a, b: a - b,
        }.get(func._schema.name.removeprefix("aten::"))
        if exact is not None and not result.dtype.is_floating_point:
            self.seen[func._schema.name] += 1
            sides = torch.broadcast_tensors(*(torch.as_tensor(a) for a in args[:2]))
            a, b = (side.flatten().tolist() for side in sides)
            assert result.flatten().tolist() == [exact(i, j) for i, j in zip(a, b, strict=True)]
        return result


@given(
    st.integers(1, 3).flatmap(
        lambda axes: st.tuples(
            st.lists(st.lists(INT64, min_size=axes, max_size=axes), min_size=1, max_size=3),
            st.lists(st.lists(INT64, min_size=2, max_size=2), min_size=axes, max_size=axes),
        )
    )
)
def test_a_reduced_phase_is_the_phase_and_nothing_overflows(drawn_numbers):
    positions, steps = drawn_numbers
    with NoOverflow() as mode:
        found = reduced_phase(torch.tensor(positions), torch.tensor(steps))
    assert mode.seen["aten::mul"] >= 6
    for token, place in enumerate(positions):
        for pair in range(2):
            quarters = int(found.odd[token, pair]) + 2 * int(found.half[token, pair])
            rest = int(found.remainder[token, pair])
            whole = sum(p * row[pair] for p, row in zip(place, steps, strict=True))
            assert (quarters * 2**62 + rest - whole) % 2**64 == 0
            assert -(2**61) <= rest < 2**61 + len(place) * 2**48


def test_the_overflow_check_can_fail():
    with pytest.raises(AssertionError), NoOverflow():
        kernels.phase(torch.tensor([[2**40]]), torch.tensor([[2**40]]))


@given(st.floats(1e-19, 1e19))
def test_constants_are_exact(value):
    assert exact_constant(torch.empty(0), value).item() == value


# Exported programs


class Several(nn.Module):
    """Rotations of every kind that a program may hold; x ``[batch, 4, tokens, 12]``."""

    def __init__(self) -> None:
        super().__init__()
        per_head = Spectrum((((1.0, 0.3),), ((2.0, 0.1),)), 12, attention_factor=1.2079441541679836)
        self.rope, self.per_head = RoPE(12, 500.0), RoPE(per_head)
        self.trained = RoPE(12, phases="float32")
        self.leading = geometric(12, rotary_dim=8).replace(attention_factor=0.9)
        self.interleaved = geometric(12, layout="interleaved", rotary_dim=10)
        self.trailing = geometric(12, rotary_dim=6, lane_offset=6)
        self.proportional = geometric(6).replace(head_dim=12, pairing="proportional")
        self.axial = spectra.axial(12)

    def forward(self, x: Tensor, line: Tensor, rows: Tensor) -> dict[str, Tensor]:
        cos, sin = self.leading.tables(line)
        plane = torch.stack((rows, rows - 2**62), dim=-1)
        return {
            "none": rotate(x, None, self.leading, offset=2**31 - 7),
            "line": self.rope.encode_q(x, line),
            "q": rotate_qk(x, x[:, :2], line, self.leading)[0],
            "interleaved": rotate(x, rows, self.interleaved),
            "three dimensions": rotate(x[0], line, self.interleaved),
            "as trained": self.trained.encode_q(x, line % 4096),
            "half precision": rotate(x.half(), line, self.leading).float(),
            "bfloat16": rotate(x.bfloat16(), line, self.leading).float(),
            "tables": rotate_by(x, sin, cos),
            "in place": rotate_(x * 2, line, self.leading),
            # what ONNX's own operator does not fit:
            "inverse": rotate(x, line, self.trailing, inverse=True),
            "proportional": rotate(x, line, self.proportional),
            "axes": rotate(x, plane, self.axial),
            "per head": self.per_head.encode_q(x, line),
            "float64": rotate(x.double(), line, self.leading),
        }


FITTING = 11  # all up to "in place", and "axes": only its frequencies are unlike theirs


def several_inputs(batch: int, tokens: int, seed: int = 0) -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(seed)
    line = torch.randint(0, 2**31, (tokens,), generator=draw)
    rows = torch.randint(-(2**62), 2**62, (batch, tokens), generator=draw)
    return drawn(batch, 4, tokens, 12), line, rows


DYNAMIC = ({0: ANY, 2: ANY}, {0: ANY}, {0: ANY, 1: ANY})


@pytest.fixture(scope="module")
def program() -> torch.export.ExportedProgram:
    return torch.export.export(Several(), several_inputs(2, 5), dynamic_shapes=DYNAMIC)


def operators(program: torch.export.ExportedProgram) -> set[str]:
    return {str(n.target) for n in program.graph.nodes if "ropewalk" in str(n.target)}


@pytest.fixture(scope="module")
def decomposed(program) -> torch.export.ExportedProgram:
    table = {**torch.export.default_decompositions(), **kernels.decompositions()}
    return program.run_decompositions(table)


ROUNDED = {"float64": 4e-15, "as trained": 1e-6}
"""Where another implementation of sin may be a rounding away."""


def assert_alike(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        if name in ROUNDED:
            torch.testing.assert_close(found[name], value, rtol=0, atol=ROUNDED[name])
        else:
            assert torch.equal(found[name], value), name


def test_a_decomposed_program_gives_the_same_bits(program, decomposed):
    assert operators(program) == {"ropewalk.phase_tables.default", "ropewalk.float_tables.default"}
    assert operators(decomposed) == set()
    inputs = several_inputs(3, 9, seed=1)
    assert_alike(program.module()(*inputs), Several()(*inputs))
    assert_alike(decomposed.module()(*inputs), Several()(*inputs))


def test_operators_stay_whole_by_default():
    program = torch.export.export(Layers(), (drawn(2, 5, 32), torch.arange(5)), strict=True)
    assert operators(program) == {"ropewalk.phase_tables.default"}
    assert operators(program.run_decompositions()) == operators(program)


def test_a_decomposed_program_runs_without_ropewalk(decomposed, tmp_path):
    inputs = several_inputs(2, 7, seed=2)
    torch.export.save(decomposed, tmp_path / "program.pt2")
    torch.save(inputs, tmp_path / "inputs.pt")
    code = (
        "import sys, torch\n"
        "module = torch.export.load('program.pt2').module()\n"
        "torch.save(module(*torch.load('inputs.pt')), 'outputs.pt')\n"
        "assert 'ropewalk' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert_alike(torch.load(tmp_path / "outputs.pt"), Several()(*inputs))


@pytest.mark.parametrize("encoding", [RoPE(12), ALiBi(4)], ids=["rope", "alibi"])
def test_an_exported_attention_serves_every_length(encoding):
    class Attention(nn.Module):
        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return attend(q, k, k, encoding)

    def inputs(tokens: int) -> tuple[Tensor, Tensor]:
        return drawn(1, 4, tokens, 12), drawn(1, 4, tokens, 12, seed=1)

    module = torch.export.export(
        Attention(), inputs(5), dynamic_shapes=({2: ANY}, {2: ANY})
    ).module()
    for tokens in (2, 5, 300, 600):
        expected = attend(*inputs(tokens), inputs(tokens)[1], encoding)
        torch.testing.assert_close(module(*inputs(tokens)), expected, rtol=0, atol=6e-6)


# ONNX


def converted(model: nn.Module, inputs: tuple[Any, ...], **options: Any) -> Any:
    """The ONNX program of a model; ``torch.onnx.export`` with nothing of ours unless given."""
    pytest.importorskip("onnxscript", reason="pip install 'ropewalk[onnx]'")
    return torch.onnx.export(model.eval(), inputs, dynamo=True, verbose=False, **options)


def runs(program: Any) -> Callable[..., list[Tensor]]:
    """What onnxruntime makes of a program."""
    runtime = pytest.importorskip("onnxruntime", reason="pip install 'ropewalk[onnx]'")
    session = runtime.InferenceSession(
        program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )

    def call(*inputs: Tensor) -> list[Tensor]:
        names = [node.name for node in session.get_inputs()]
        fed = {n: t.numpy() for n, t in zip(names, inputs, strict=True)}
        return [torch.from_numpy(found) for found in session.run(None, fed)]

    return call


def kinds(program: Any) -> Counter[str]:
    return Counter(node.op_type for node in program.model.graph)


@pytest.fixture(scope="module")
def plain_onnx() -> Any:
    return converted(Several(), several_inputs(2, 5), dynamic_shapes=DYNAMIC)


def test_onnx_needs_no_option_and_gives_the_same_bits(plain_onnx):
    call = runs(plain_onnx)
    assert kinds(plain_onnx)["RotaryEmbedding"] == 0
    for batch, tokens in ((2, 5), (1, 1), (3, 33)):
        inputs = several_inputs(batch, tokens, seed=tokens)
        expected = Several()(*inputs)
        assert_alike(dict(zip(expected, call(*inputs), strict=True)), expected)


def test_the_rotary_embedding_of_onnx_where_it_fits():
    program = converted(
        Several(),
        several_inputs(2, 5),
        dynamic_shapes=DYNAMIC,
        opset_version=23,
        custom_translation_table=onnx.translations(),
    )
    assert kinds(program)["RotaryEmbedding"] == FITTING
    call = runs(program)
    for batch, tokens in ((2, 5), (1, 1), (3, 33)):
        inputs = several_inputs(batch, tokens, seed=tokens)
        expected = Several()(*inputs)
        for (name, value), found in zip(expected.items(), call(*inputs), strict=True):
            exact = name in ("half precision", "bfloat16")  # widened, turned and rounded once
            torch.testing.assert_close(
                found, value, rtol=1e-2 if exact else 0, atol=1e-6, msg=lambda m, n=name: f"{n} {m}"
            )


class Tables(nn.Module):
    def __init__(self, spectrum: Spectrum) -> None:
        super().__init__()
        self.spectrum = spectrum

    def forward(self, positions: Tensor) -> tuple[Tensor, ...]:
        narrow = self.spectrum.tables(positions)
        return *narrow, *self.spectrum.tables(positions, dtype=torch.float64)


@pytest.mark.parametrize("strict", [False, True], ids=["from a module", "from a strict program"])
def test_phases_in_onnx_are_right_at_any_position(strict):
    """Against mpmath: each product exact, each table rounded once, as in eager code."""
    spectrum, factor = geometric(16, 5e5), 1.2079441541679836
    model = Tables(spectrum.replace(attention_factor=factor))
    draw = torch.Generator().manual_seed(0)
    positions = torch.cat(
        (
            torch.tensor([0, 1, -1, 131_071, 2**31 - 1, 2**31, -(2**63), 2**63 - 1]),
            torch.randint(0, 2**31, (64,), generator=draw),
            torch.randint(-(2**62), 2**62, (8,), generator=draw),
        )
    )
    given_model: Any = model
    if strict:  # holds the steps as an operator
        given_model = torch.export.export(model, (positions,), strict=True)
        assert "ropewalk.steps.default" in operators(given_model)
        program = torch.onnx.export(given_model, (positions,), dynamo=True, verbose=False)
    else:
        program = converted(model, (positions,), dynamic_shapes=({0: ANY},))
    cos, sin, wide_cos, wide_sin = runs(program)(positions)
    for row, position in enumerate(positions.tolist()):
        step_error = HALF_STEP * abs(position)
        for pair, frequency in enumerate(spectrum.inv_freq):
            exact = [float(t) * factor for t in reversed(mp_sincos(position, frequency))]
            for value, narrow, wide in zip(exact, (cos, sin), (wide_cos, wide_sin), strict=True):
                assert abs(wide[row, pair].item() - value) <= (1e-15 + step_error) * factor
                if step_error < 1e-9:
                    assert abs(narrow[row, pair].item() - value) <= 6.1e-8 * factor


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(32, 64), nn.Linear(32, 32)
        self.rope = RoPE(8)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        parts = self.qkv(x).split((32, 16, 16), dim=-1)
        q, k, v = (t.unflatten(-1, (-1, 8)).transpose(1, 2) for t in parts)
        mixed = attend(q, k, v, self.rope, q_positions=positions, kv_positions=positions)
        return x + self.o(mixed.transpose(1, 2).flatten(2))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, positions)
        return x


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "RotaryEmbedding"])
def test_a_transformer_in_onnx_computes_its_phases_once(fused):
    torch.manual_seed(0)
    model, inputs = Layers(), (drawn(2, 5, 32), torch.arange(5))
    options: dict[str, Any] = {"dynamic_shapes": ({0: ANY, 1: ANY}, {0: ANY})}
    if fused:
        options |= {"opset_version": 23, "custom_translation_table": onnx.translations()}
    program = converted(model, inputs, **options)
    found = kinds(program)
    assert (found["Sin"], found["Cos"], found["RotaryEmbedding"]) == (1, 1, 4 if fused else 0)
    call = runs(program)
    for batch, tokens in ((2, 5), (1, 1), (3, 300)):
        given_inputs = (drawn(batch, tokens, 32), torch.arange(tokens) + 2**31)
        expected = model(*given_inputs).detach()
        torch.testing.assert_close(call(*given_inputs)[0], expected, rtol=0, atol=5e-6)


def test_an_older_opset_has_no_rotary_embedding():
    class Turn(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return rotate(x, None, geometric(8))

    with pytest.raises(Exception) as caught:  # noqa: PT011 (the exporter's own, around ours)
        converted(
            Turn(),
            (drawn(1, 2, 5, 8),),
            opset_version=20,
            custom_translation_table=onnx.translations(),
        )
    causes, error = [], caught.value
    while error is not None:
        causes.append(str(error))
        error = error.__cause__
    assert any("pass opset_version=23" in cause for cause in causes)


def test_without_onnxscript_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'ropewalk\[onnx\]'"):
        onnx.translations()


# TorchScript, and the exporter that is built on it


class Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return rotate(x, None, geometric(8), offset=7)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("module", [Turned(), RoPE(8), RoPE(8, phases="float32")])
def test_traced_programs_give_the_same_bits(module, tokens, tmp_path):
    def given(tokens: int) -> tuple[Tensor, ...]:
        x = drawn(2, 4, tokens, 8)
        return (x,) if isinstance(module, Turned) else (x, drawn(2, 2, tokens, 8, seed=1))

    traced: Any = torch.jit.trace(module, given(tokens))
    torch.jit.save(traced, tmp_path / "traced.pt")
    loaded = torch.jit.load(tmp_path / "traced.pt")
    for other in (1, 5, 9):
        for program in (traced, loaded):
            found, expected = program(*given(other)), module(*given(other))
            if isinstance(expected, Tensor):
                found, expected = (found,), (expected,)
            assert all(map(torch.equal, found, expected))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_what_torchscript_cannot_read_is_refused(tmp_path):
    """docs/compile-and-export.md says so; should it ever work, the page is to be changed."""
    for module, message in ((RoPE(8), "Unknown type annotation"), (Turned(), "keyword-only")):
        with pytest.raises((ValueError, NotSupportedError), match=message):
            torch.jit.script(module)
    pytest.importorskip("onnx", reason="pip install 'ropewalk[onnx]'")
    with pytest.raises(torch.onnx.errors.UnsupportedOperatorError, match="ropewalk::phase_tables"):
        torch.onnx.export(Turned(), (drawn(2, 4, 5, 8),), tmp_path / "old.onnx", dynamo=False)


def test_what_the_docs_say_can_be_typed_in():
    pytest.importorskip("onnxscript", reason="pip install 'ropewalk[onnx]'")
    blocks = documented("torch.distributed", has=False)
    assert len(blocks) == 4
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Exporting a model while it is in training mode")
        exec("\n".join(blocks), {})
