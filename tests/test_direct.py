"""The kernel without PyTorch's dispatcher: the same bits, and no tensor that it cannot see."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._C._profiler import _ExperimentalConfig
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from ropewalk import rotate, rotate_, rotate_by, rotate_into_pages, rotate_qk, rotate_qk_
from ropewalk.kernels import direct, fused, library, native
from ropewalk.spectra import Spectrum, axial, geometric

KERNEL = native.kernel()
LOW: Any = torch  # with what PyTorch keeps for itself
needs_direct = pytest.mark.skipif(KERNEL.direct is None, reason=f"no such here: {KERNEL.name}")
HEADERS = Path(sysconfig.get_path("include"), "Python.h").is_file()
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
SPECTRUM = geometric(8)
X = torch.linspace(-3, 3, 2 * 5 * 8).reshape(1, 2, 5, 8)
WHERE = torch.tensor([3, 1, 4, 1, 5])
COS, SIN = SPECTRUM.tables(WHERE)


def how(spectrum: Spectrum, inverse: bool = False) -> tuple[Tensor, float, int]:
    scale, lanes = spectrum.turns[inverse]
    return spectrum.on().tensor, scale, lanes


@pytest.mark.skipif(not KERNEL.compiled, reason=f"no C++ kernel here: {KERNEL.name}")
def test_a_kernel_built_beside_pythons_headers_is_called_directly():
    assert (KERNEL.direct is not None) == (HEADERS and "as operators" not in KERNEL.name)
    if HEADERS and not sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert fused.direct(X) is KERNEL.direct is not None


@needs_direct
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_bits_of_the_operators(data):
    dtype = data.draw(st.sampled_from(DTYPES))
    layout = data.draw(st.sampled_from(["half", "interleaved"]))
    batch, heads, tokens = (data.draw(st.integers(0, most)) for most in (2, 3, 40))
    head_dim, rotary_dim = data.draw(st.sampled_from([(8, 4), (8, 8), (64, 8), (64, 64)]))
    spectrum = geometric(head_dim, rotary_dim=rotary_dim, layout=layout)
    q, k = (
        torch.randn(batch, tokens, n, spectrum.head_dim).to(dtype).transpose(1, 2)
        for n in (2 * heads, heads)
    )
    where = data.draw(st.sampled_from([None, torch.randint(-(2**40), 2**40, (tokens,))]))
    first = data.draw(st.integers(-(2**62), 2**62)) if where is None else 0
    phases = (where, first, *how(spectrum, data.draw(st.booleans())))
    cos, sin = (torch.randn(tokens, spectrum.pairs) for _ in range(2))
    tables = (cos, sin, spectrum.turns[False].lanes)

    def results(ops: Any) -> list[Tensor]:
        made = [torch.full_like(x, torch.nan) for x in (q, q, k, q, q, k)]
        ops.rotate(q, made[0], *phases)
        ops.rotate_qk(q, k, *made[1:3], *phases)
        ops.rotate_by(q, made[3], *tables)
        ops.rotate_qk_by(q, k, *made[4:], *tables)
        held = q.clone(), k.clone()
        ops.rotate_qk_(*held, *phases)
        written = [torch.full((tokens, spectrum.pairs), torch.nan) for _ in range(2)]
        ops.phase_tables(torch.arange(tokens), *phases[2:4], *written)
        return [*made, *held, *written]

    for straight, usual in zip(results(KERNEL.direct), results(KERNEL.ops), strict=True):
        assert torch.equal(straight, usual)


@needs_direct
def test_axes_and_a_spectrum_for_each_head():
    per_head = Spectrum((((1.0, 0.5),), ((0.25, 0.125),)), 4)
    for spectrum, where in (
        (axial(8, 2), torch.tensor([[2, 7], [1, 8], [2, 8], [1, 8], [2, 8]])),
        (per_head, WHERE),
    ):
        x = torch.randn(1, 2, 5, spectrum.head_dim)
        straight, usual = torch.empty_like(x), torch.empty_like(x)
        KERNEL.direct.rotate(x, straight, where, 0, *how(spectrum))
        KERNEL.ops.rotate(x, usual, where, 0, *how(spectrum))
        assert torch.equal(straight, usual)


def emptied() -> Tensor:
    x = X.clone()
    x.untyped_storage().resize_(0)
    return x


UNREADABLE = {
    "no tensor": lambda: X.tolist(),
    "None": lambda: None,
    "another device": lambda: X.to("meta"),
    "sparse": lambda: X.to_sparse(),
    "opaque": lambda: X.to_mkldnn(),
    "nested": lambda: torch.nested.nested_tensor([X[0], X[0]]),
    "complex": lambda: X.to(torch.complex64),
    "float8": lambda: X.to(torch.float8_e4m3fn),
    "bool": lambda: X > 0,
    "int": lambda: X.long(),
    "a scalar": lambda: torch.ones(()),
    "memory taken away": emptied,
    "zeros without memory": lambda: LOW._efficientzerotensor((1, 2, 5, 8)),
    "functional": lambda: LOW._to_functional_tensor(X.clone()),
    "expanded": lambda: X[:, :, :1].expand(-1, -1, 5, -1),
}


@needs_direct
@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_is_no_plain_memory_is_refused_before_anything_is_written(name):
    for place in range(5):  # q, k, their results, positions; steps below
        given: list[Any] = [X, X.clone(), X.clone(), X.clone(), WHERE]
        given[place] = UNREADABLE[name]()
        if (name == "None" and place == 4) or (name == "expanded" and place < 2):
            continue
        with pytest.raises(RuntimeError):
            KERNEL.direct.rotate_qk(*given, 0, *how(SPECTRUM))
        if place not in (2, 3):
            assert torch.equal(given[2], X)
    with pytest.raises(RuntimeError):
        KERNEL.direct.rotate(X, X.clone(), WHERE, 0, UNREADABLE[name](), 1.0, 0)


@needs_direct
def test_wrong_arguments_are_pythons_errors():
    steps, scale, lanes = how(SPECTRUM)
    for arguments, error in (
        ((X,), TypeError),
        ((X, X, WHERE, 0, steps, scale, lanes, 1), TypeError),
        ((X, X, WHERE, "0", steps, scale, lanes), TypeError),
        ((X, X, WHERE, 0, steps, "1", lanes), TypeError),
        ((X, X, WHERE, 2**63, steps, scale, lanes), OverflowError),
    ):
        with pytest.raises(error):
            KERNEL.direct.rotate(*arguments)
    with pytest.raises(TypeError):
        KERNEL.direct.rotate(X, X, WHERE, offset=0)


# What the public functions do with tensors that are more than their memory


@pytest.mark.parametrize("given", ["x", "positions", "steps", "tables"])
def test_lazily_negated_tensors_are_read_right(given):
    x, y = X.clone(), X.clone()
    negated = torch.ops.aten._neg_view
    if given == "x":
        lazy = negated(-X)
        assert torch.equal(rotate(lazy, WHERE, SPECTRUM), rotate(X, WHERE, SPECTRUM))
        assert torch.equal(rotate_qk(X, lazy, WHERE, SPECTRUM)[1], rotate(X, WHERE, SPECTRUM))
        rotate(X, WHERE, SPECTRUM, out=negated(x))
        assert torch.equal(x, -rotate(X, WHERE, SPECTRUM))
        rotate_qk_(y, negated(x), WHERE, SPECTRUM, inverse=True)
        torch.testing.assert_close(x, -X)
    elif given == "positions":
        lazy = negated(-WHERE)
        assert torch.equal(rotate(X, lazy, SPECTRUM), rotate(X, WHERE, SPECTRUM))
        assert torch.equal(rotate_(x, lazy, SPECTRUM), rotate(X, WHERE, SPECTRUM))
    elif given == "steps":
        steps = SPECTRUM.on()
        lazy = replace(steps, tensor=negated(-steps.tensor))
        assert torch.equal(rotate(X, WHERE, lazy), rotate(X, WHERE, steps))
    else:
        turned = rotate_by(X, COS, SIN)
        assert torch.equal(rotate_by(X, COS, negated(-SIN)), turned)
        assert torch.equal(rotate_by(X, negated(-COS), SIN), turned)
        flow = torch.complex(COS, -SIN).conj()
        assert torch.equal(rotate_by(X, flow.real, flow.imag), turned)


def test_zeros_without_memory_stay_zeros():
    zeros = LOW._efficientzerotensor((1, 2, 5, 8))
    assert torch.equal(rotate(zeros, WHERE, SPECTRUM), torch.zeros(1, 2, 5, 8))


@pytest.mark.parametrize("watched", [False, True], ids=["direct", "as operators"])
def test_a_lazy_copy_is_written_apart_from_what_it_copies(watched):
    for write in (
        lambda x: rotate_(x, WHERE, SPECTRUM),
        lambda x: rotate(X.clone(), WHERE, SPECTRUM, out=x),
        lambda x: rotate_qk_(x, X.clone(), WHERE, SPECTRUM),
    ):
        held = X.clone()
        with Seen() if watched else nullcontext():
            write(LOW._lazy_clone(held))
        assert torch.equal(held, X)
    pages = torch.zeros(2, 3, 2, 8)
    rotate_into_pages(
        X[0].transpose(0, 1), WHERE, SPECTRUM, LOW._lazy_clone(pages), torch.arange(5)
    )
    assert not pages.any()


def test_a_write_is_seen_by_autograd():
    w, x = torch.ones_like(X, requires_grad=True), X.clone()
    product = (w * x).sum()
    rotate_qk_(x, X.clone(), WHERE, SPECTRUM)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_write_where_no_gradient_is_taken_is_seen_by_autograd(mode):
    for write in (
        lambda x: rotate_(x, WHERE, SPECTRUM),
        lambda x: rotate_qk_(X.clone(), x, WHERE, SPECTRUM),
        lambda x: rotate_by(X, COS, SIN, out=x),
    ):
        w, x = torch.ones_like(X, requires_grad=True), X.clone()
        product = (w * x).sum()
        with mode():
            write(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()


# Who looks sees operators


class Seen(TorchFunctionMode):
    """The names of what is called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


@needs_direct
def test_a_function_mode_sees_operators():
    with Seen() as seen:
        rotate_qk(X, X, WHERE, SPECTRUM)
        rotate_by(X, COS, SIN)
    assert {"ropewalk_cpu.rotate_qk.default", "ropewalk_cpu.rotate_by.default"} <= seen.names


@needs_direct
@pytest.mark.filterwarnings("ignore:Warning.* Profiler clears events")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["this thread", "another thread"])
def test_a_profiler_sees_operators(elsewhere):
    def turn():
        rotate_qk(X, X, WHERE, SPECTRUM)
        rotate_by(X, COS, SIN)

    how = _ExperimentalConfig(profile_all_threads=elsewhere)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, experimental_config=how) as seen:
        if elsewhere:
            thread = threading.Thread(target=turn)
            thread.start()
            thread.join()
        else:
            turn()
    names = {event.key for event in seen.key_averages()}
    assert {"ropewalk_cpu::rotate_qk", "ropewalk_cpu::rotate_by"} <= names


def test_a_trace_before_dispatch_holds_the_rotation():
    graph = make_fx(lambda x, w: rotate(x, w, SPECTRUM), pre_dispatch=True)(X, WHERE)
    assert torch.equal(graph(X + 1, WHERE + 2), rotate(X + 1, WHERE + 2, SPECTRUM))


ENDS_WHILE_THREADS_TURN = """
import threading, time, torch
from ropewalk.kernels import native
from ropewalk.spectra import geometric
x, spectrum, rotate = torch.ones(1, 8, 4096, 64), geometric(64), native.kernel().direct.rotate
steps = spectrum.on().tensor
def turn():
    while True:
        rotate(x, x, None, 0, steps, *spectrum.turns[0])
for _ in range(3):
    threading.Thread(target=turn, daemon=True).start()
time.sleep(0.2)
"""


@needs_direct
def test_python_may_end_while_threads_turn():
    done = subprocess.run([sys.executable, "-c", ENDS_WHILE_THREADS_TURN], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


# Where there are none


@needs_direct
def test_a_second_library_is_not_loaded(tmp_path):
    path = tmp_path / "copy.so"
    shutil.copy(next(library.built()), path)
    with pytest.raises(OSError, match="dlopen"):
        direct.functions(path)


@needs_direct
def test_what_goes_without_says_why(monkeypatch):
    path = next(library.built())
    with pytest.raises(OSError, match="without Python's headers"):
        direct.functions(Path(torch.__file__).parent / "lib" / "libc10.so")
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: name == "Py_GIL_DISABLED")
    kernel = native._loaded(path)
    assert kernel.direct is None
    assert kernel.compiled
    assert "called as operators, since this Python has no global lock" in kernel.name


@needs_direct
@pytest.mark.parametrize("table", [None, object()])
def test_another_exchange_table_is_not_read(monkeypatch, table):
    class Tensors:
        __dlpack_c_exchange_api__ = table

    monkeypatch.setattr(direct.torch, "Tensor", Tensors)
    with pytest.raises(OSError, match=r"exchange table|PyCapsule"):
        direct.functions(next(library.built()))
    monkeypatch.undo()
    assert set(direct.functions(next(library.built()))) == set(native.Operators.__annotations__)
