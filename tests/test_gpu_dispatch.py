"""From the public operations to the GPU kernel, run here by Triton's interpreter on CPU tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from interpreted import kernels
from torch import Tensor

import ropewalk
from ropewalk.kernels import devices, eager, fused, gpu, native, phases
from ropewalk.kernels.gpu import launch
from ropewalk.spectra import Spectrum, axial, geometric

HOPPER = torch.device("cuda", 1)


def drawn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    """CPU tensors go to the GPU kernel while the test runs; the names of its operators in turn."""
    seen: list[str] = []

    def noted(name: str) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            getattr(gpu, name)(*arguments)
            seen.append(name)

        return run

    names = [name for name in gpu.__all__ if name.islower()]
    ops = SimpleNamespace(**{name: noted(name) for name in names})
    monkeypatch.setattr(fused, "operators", lambda x: ops)
    monkeypatch.setattr(fused, "direct", lambda x: ops)
    kernel = devices.Kernel(ops, "interpreted", compiled=True)
    monkeypatch.setattr(phases, "kernel_on", lambda device_type: kernel)
    return seen


SPECTRUM = geometric(8, rotary_dim=6, layout="interleaved", lane_offset=1).replace(
    attention_factor=1.25
)
WHERE = torch.tensor([[4, -1, 2**40], [0, 7, 3]])
X = drawn(2, 3, 3, 8)
TURNED = ropewalk.rotate(X, WHERE, SPECTRUM)
BACK = ropewalk.rotate(X, WHERE, SPECTRUM, inverse=True)
SHORT = ropewalk.rotate(X, WHERE[:1].short(), SPECTRUM)
COUNTED = ropewalk.rotate(X, torch.arange(5, 8), SPECTRUM)
"""By the CPU's kernel, before any test sends CPU tensors elsewhere."""


def close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=0, atol=4e-15)


def test_every_public_form(calls):
    assert close(ropewalk.rotate(X, WHERE, SPECTRUM), TURNED)
    assert close(ropewalk.rotate(X, WHERE, SPECTRUM, inverse=True), BACK)
    assert close(ropewalk.rotate_(X.clone(), WHERE, SPECTRUM), TURNED)
    assert close(ropewalk.rotate(X, WHERE[:1, :].short(), SPECTRUM), SHORT)  # converted first
    cache = torch.full((2, 3, 9, 8), 7.0, dtype=torch.float64)
    ropewalk.rotate(X, WHERE, SPECTRUM, out=cache[:, :, 2:5])
    assert close(cache[:, :, 2:5], TURNED)
    assert (cache[:, :, [0, 1, 5, 6, 7, 8]] == 7).all()
    assert close(ropewalk.rotate(X, None, SPECTRUM, offset=5), COUNTED)
    assert calls == ["rotate"] * 6


def test_q_and_k_go_together(calls):
    q, k = X, X[:, :1].contiguous()
    for both in (
        ropewalk.rotate_qk(q, k, WHERE, SPECTRUM),
        ropewalk.rotate_qk_(q.clone(), k.clone(), WHERE, SPECTRUM),
    ):
        assert close(both[0], TURNED)
        assert close(both[1], TURNED[:, :1])
    assert calls == ["rotate_qk", "rotate_qk_"]


def test_given_tables(calls):
    cos, sin = SPECTRUM.tables(WHERE, torch.float64)
    options: Any = {"layout": "interleaved", "lane_offset": 1}
    assert close(ropewalk.rotate_by(X, cos, sin, **options), TURNED)
    assert close(ropewalk.rotate_by_(X.clone(), cos, sin, **options), TURNED)
    headed = ropewalk.rotate_by(X, cos.unsqueeze(1), sin.unsqueeze(1), **options)
    assert close(headed, TURNED)
    assert calls == ["phase_tables", "rotate_by", "rotate_by", "rotate_by"]


def test_what_the_kernel_refuses_goes_the_careful_way(calls):
    """An overlapping result: turned by plain arithmetic, as without the kernel."""
    memory = drawn(2, 3, 4, 8, seed=5)
    wanted = ropewalk.rotate(memory[:, :, :3].clone(), WHERE, SPECTRUM)
    calls.clear()
    ropewalk.rotate(memory[:, :, :3], WHERE, SPECTRUM, out=memory[:, :, 1:])
    assert close(memory[:, :, 1:], wanted)
    assert "rotate" not in calls


def test_the_negated_view_of_a_conjugate_is_turned_as_it_reads(calls):
    """Its memory holds the negatives of its values."""
    x = torch.complex(X, X).conj().imag
    assert x.is_neg()
    assert close(ropewalk.rotate(x, WHERE, SPECTRUM), -TURNED)
    out = torch.complex(X, X).conj().imag
    ropewalk.rotate(X, WHERE, SPECTRUM, out=out)
    assert close(out, TURNED)
    assert "rotate" not in calls


def test_a_failed_launch_is_no_reason_to_go_another_way(calls, monkeypatch):
    def broken():
        raise RuntimeError("illegal address")

    monkeypatch.setattr(launch, "kernels", broken)
    with pytest.raises(gpu.LaunchError, match="illegal address"):
        ropewalk.rotate(X, WHERE, SPECTRUM)


def test_derivatives_of_any_order(calls):
    x = X.clone().requires_grad_()
    cos, sin = drawn(3, 3, seed=1), drawn(3, 3, seed=2)

    def by_phases(y: Tensor) -> Tensor:
        return ropewalk.rotate(y, WHERE, SPECTRUM)

    def by_tables(y: Tensor) -> Tensor:
        return ropewalk.rotate_by(y, cos, sin, layout="interleaved", lane_offset=1)

    for function in (by_phases, by_tables):
        calls.clear()
        cotangent = drawn(2, 3, 3, 8, seed=3)
        y = function(x)
        (gradient,) = torch.autograd.grad(y, x, cotangent)
        assert (y * cotangent).sum().item() == pytest.approx((x * gradient).sum().item(), rel=1e-13)
        assert len(calls) == 2
        assert set(calls) <= {"rotate", "rotate_by", "advise"}
    small, at = X[:1, :1, :1].clone().requires_grad_(), WHERE[:1, :1]
    assert torch.autograd.gradgradcheck(lambda y: ropewalk.rotate(y, at, SPECTRUM), (small,))


def test_gradients_with_a_spectrum_of_axes_and_heads(calls):
    for spectrum in (axial(8), Spectrum((((0.5,),), ((0.25,),), ((2.0,),)), 8, lane_offset=2)):
        where = torch.randint(-99, 99, (3, 2) if spectrum.axes == 2 else (3,))
        x = X.clone().requires_grad_()
        y = ropewalk.rotate(x, where, spectrum)
        (gradient,) = torch.autograd.grad(y, x, y.detach())
        assert close(gradient, X)  # a rotation's transpose undoes it
    assert calls.count("rotate") == 4


# --- which kernel ---------------------------------------------------------------------------------


@pytest.fixture
def unknown():
    """No kernel of a GPU has been looked for yet."""
    devices._gpu_kernel.cache_clear()
    yield
    devices._gpu_kernel.cache_clear()


def test_each_device_has_its_kernel(unknown):
    assert devices.kernel_on("cuda").ops is gpu
    assert devices.kernel_on("cuda").compiled
    assert devices.kernel_on("cuda").name == f"gpu (Triton {devices._triton_version()})"
    for other in ("mps", "meta", "hpu"):
        assert devices.kernel_on(other).ops is eager
        assert not devices.kernel_on(other).compiled
    there = devices.kernel_on("cuda")
    assert (there.into_pages, there.normed) == (gpu.into_pages, gpu.normed)
    assert devices.kernel_on("mps").into_pages is None
    assert devices.kernel_on("cpu") is native.kernel()
    assert devices.kernel_for(X) is native.kernel()
    assert devices.kernel_for(X.to("meta")).ops is eager
    assert devices.operators(X) is native.kernel().ops
    assert devices.operators(X.to("meta")) is eager


def test_operators_are_those_of_the_cpu():
    """The same names and arguments in the same order, so that one caller serves both."""
    for name in native.Operators.__annotations__:
        found = inspect.signature(getattr(gpu, name)).parameters
        if name != "phase_tables":  # which eager operations leave to the plain form
            assert len(found) == len(inspect.signature(getattr(eager, name)).parameters), name


def test_without_triton_pytorch_runs_and_the_name_says_why(unknown, monkeypatch):
    def missing():
        raise ImportError("no Triton here")

    monkeypatch.setattr(devices, "kernels", missing)
    assert devices.kernel_on("cuda").ops is eager
    name = devices.kernel_on("cuda").name
    assert name.startswith("gpu: PyTorch; pip install 'ropewalk[gpu]'")
    assert "no Triton here" in name


@pytest.mark.parametrize(("asked", "ops"), [("reference", None), ("pytorch", eager), ("cpu", gpu)])
def test_the_kernel_can_be_left_out(unknown, monkeypatch, asked, ops):
    monkeypatch.setenv("ROPEWALK_KERNEL", asked)
    assert devices.kernel_on("cuda").ops is ops
    assert (asked in devices.kernel_on("cuda").name) == (ops is not gpu)


@pytest.mark.parametrize("has", [True, False])
def test_a_gpu_without_float64_has_no_kernel(unknown, monkeypatch, has):
    monkeypatch.setattr(torch.xpu, "get_device_capability", lambda: {"has_fp64": has})
    assert devices.kernel_on("xpu").ops is (gpu if has else eager)


def test_active_names_the_gpu_kernel_where_there_is_a_gpu(unknown, monkeypatch):
    assert "Triton" not in devices.active() or torch.cuda.is_available()
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: HOPPER)
    both = native.kernel().name, devices.kernel_on("cuda").name
    assert devices.active() == "; ".join(both)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mps"))
    assert devices.active() == both[0]


# --- launching ------------------------------------------------------------------------------------


class Recorder:
    """Stands for a kernel of Triton: what was launched, compiled or afresh."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, tuple[int, ...], int]] = []

    def __getitem__(self, grid: tuple[int, ...]):
        def first(*arguments: Any, **options: Any):
            assert options["enable_fp_fusion"] is True
            assert options["num_warps"] >= 1
            self.seen.append(("afresh", grid, len(arguments)))
            return self.compiled()

        return first

    def compiled(self):
        outer = self

        class Compiled:
            def __getitem__(self, grid: tuple[int, ...]):
                return lambda *a: outer.seen.append(("compiled", grid, len(a)))

        return Compiled()


@pytest.fixture
def recorder(monkeypatch):
    made = Recorder()
    monkeypatch.setattr(launch, "kernels", lambda: SimpleNamespace(turn_by_phases=made))
    launch._kept_phases.cache_clear()
    yield made
    launch._kept_phases.cache_clear()


def test_a_compiled_kernel_is_kept_for_the_same_shapes_and_places(recorder):
    steps = geometric(8).on().tensor
    memory = torch.zeros(1000)

    def turn(x: Tensor, where: Tensor) -> str:
        gpu.rotate(x, torch.zeros_like(x), where, 0, steps, 1.0, 4 << 32)
        kind, grid, arguments = recorder.seen[-1]
        assert len(grid) == (3 if kind == "compiled" else 1)
        assert arguments == len(kernels().turn_by_phases.arg_names)
        return kind

    x, where = memory[:48].view(2, 3, 8), torch.arange(3)
    assert turn(x, where) == "afresh"
    assert turn(x + 1, where + 5) == "compiled"
    assert turn(memory[1:49].view(2, 3, 8), where) == "afresh"  # starts elsewhere: narrower loads
    assert turn(x.transpose(0, 1).contiguous().transpose(0, 1), where) == "afresh"
    assert turn(x.double(), where) == "afresh"
    assert turn(x, torch.arange(6)[::2]) == "afresh"
    assert turn(x, where) == "compiled"


def test_a_launch_is_on_the_device_of_its_tensors(monkeypatch):
    entered: list[int] = []
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "device_index", lambda i: entered.append(i))
    launch._on(HOPPER)
    assert entered == [1]
    with launch._on(torch.device("cuda", 0)), launch._on(torch.device("cpu")):
        assert entered == [1]


def test_without_triton_an_explicit_call_names_the_remedy(monkeypatch):
    import builtins

    real = builtins.__import__

    def refusing(name: str, *rest: Any, **more: Any):
        if "gpu" in name and rest and rest[2] and "turn" in rest[2]:
            raise ImportError("No module named 'triton'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refusing)
    with pytest.raises(ImportError, match=r"needs Triton .*pip install 'ropewalk\[gpu\]'"):
        launch.kernels.__wrapped__()


def test_tables_must_be_contiguous_and_fit():
    where, steps = torch.arange(3), geometric(8).on().tensor
    good = torch.empty(3, 4)
    for cos, sin, message in (
        (torch.empty(3, 5), torch.empty(3, 5), "do not fit positions"),
        (good, torch.empty(3, 4, dtype=torch.float64), "do not fit positions"),
        (good.half(), good.half(), "float32 or float64"),
        (torch.empty(4, 3).T, good, "contiguous"),
    ):
        with pytest.raises(gpu.Misfit, match=message):
            gpu.phase_tables(where, steps, 1.0, cos, sin)
    gpu.phase_tables(where[:0], steps, 1.0, good[:0], good[:0])
