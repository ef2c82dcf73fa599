"""Arguments of every kind that fits nowhere: each call refuses in words, and writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ropewalk import kernels
from ropewalk.kernels import Steps, eager, native
from ropewalk.spectra import geometric

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(prototype|beta state|mkldnn|quantized tensor creation)"
)
SPECTRUM = geometric(8)
STEPS = SPECTRUM.on("cpu")


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def integers(n: int = 5) -> Tensor:
    return torch.arange(n)


FREE: dict[str, Callable[..., Any]] = {
    "rotate": lambda: {
        "x": normal(2, 3, 5, 8),
        "positions": integers(),
        "spectrum": SPECTRUM,
        "inverse": False,
        "out": None,
    },
    "rotate_qk": lambda: {
        "q": normal(2, 3, 5, 8),
        "k": normal(2, 1, 5, 8),
        "positions": integers(),
        "spectrum": SPECTRUM,
    },
    "rotate_by": lambda: {
        "x": normal(2, 3, 5, 8),
        "cos": normal(5, 4),
        "sin": normal(5, 4),
        "pairing": None,
        "out": None,
    },
    "rotate_qk_by": lambda: {
        "q": normal(2, 3, 5, 8),
        "k": normal(2, 1, 5, 8),
        "cos": normal(5, 4),
        "sin": normal(5, 4),
    },
    "norm_rotate": lambda: {
        "x": normal(2, 3, 5, 8),
        "weight": normal(8),
        "positions": integers(),
        "spectrum": SPECTRUM,
        "out": None,
    },
    "norm_rotate_qk": lambda: {
        "q": normal(2, 3, 5, 8),
        "k": normal(2, 1, 5, 8),
        "q_weight": normal(8),
        "k_weight": None,
        "positions": integers(),
        "spectrum": SPECTRUM,
    },
    "rotate_into_pages": lambda: {
        "k": normal(5, 3, 8),
        "positions": integers(),
        "spectrum": SPECTRUM,
        "pages": normal(4, 4, 3, 8),
        "slots": integers(),
        "v": normal(5, 3, 8),
        "v_pages": normal(4, 4, 3, 8),
    },
    "halve_tables": lambda: {"cos": normal(5, 4).repeat(1, 2), "sin": normal(5, 4).repeat(1, 2)},
    "tables_for": lambda: {"form": "vllm", "spectrum": SPECTRUM, "positions": integers()},
    "tables": lambda: {
        "positions": integers(),
        "steps": STEPS,
        "dtype": torch.float32,
        "inverse": False,
    },
}
CALLS = FREE | {
    f"{name}_": lambda name=name: {k: v for k, v in FREE[name]().items() if k != "out"}
    for name in ("rotate", "rotate_qk", "rotate_by", "norm_rotate", "norm_rotate_qk")
}
OPTIONAL = {
    ("rotate_into_pages", "v"),
    ("rotate_into_pages", "v_pages"),
    *((call, n) for call in CALLS for n in ("out", "weight", "q_weight", "k_weight", "pairing")),
    *((call, "positions") for call in CALLS if call not in ("tables", "tables_for")),
}


def like(value: Any) -> Tensor:
    """A tensor that would do in place of ``value``."""
    return value if isinstance(value, Tensor) else normal(2, 3, 5, 8)


WRONG: dict[str, Callable[[Any], Any]] = {
    "none": lambda _: None,
    "a list": lambda _: [[1.0, 2.0]],
    "an object": lambda _: object(),
    "a number": lambda _: 3,
    "complex": lambda value: like(value) + 0j,
    "bool": lambda value: like(value) > 0,
    "sparse": lambda value: like(value).to_sparse(),
    "csr": lambda value: normal(5, 8).to_sparse_csr(),
    "nested": lambda value: torch.nested.nested_tensor([normal(5, 8), normal(3, 8)]),
    "nested integers": lambda value: torch.nested.nested_tensor([integers(), integers(3)]),
    "quantized": lambda value: torch.quantize_per_tensor(like(value).float(), 0.1, 0, torch.qint8),
    "mkldnn": lambda value: like(value).float().to_mkldnn(),
    "float8": lambda value: like(value).to(torch.float8_e4m3fn),
    "meta": lambda value: like(value).to("meta"),
    "no dimension": lambda value: like(value).flatten()[0],
    "another width": lambda value: torch.cat((like(value),) * 2, -1)[..., 1:],
    "a tensor of flags": lambda _: torch.ones(3, dtype=torch.bool),
}
TAKEN = {  # what a call takes after all
    *(("float8", call, name) for call in CALLS for name in ("cos", "sin")),
    ("none", "rotate_into_pages", "positions"),
    ("meta", "tables_for", "positions"),
    *(("another width", "tables_for", name) for name in ("positions", "form")),
    ("another width", "tables", "positions"),
    *(("another width", call, name) for call in CALLS if "by" in call for name in ("x", "q", "k")),
    ("a number", "norm_rotate", "eps"),
}


@pytest.fixture(params=["active", "pytorch"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pytorch":
        found = native.Kernel(eager, "PyTorch")
        monkeypatch.setattr(native, "kernel", lambda: found)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_is_refused_in_words_and_nothing_is_written(call: str, wrong: str):
    for name in CALLS[call]():
        given = CALLS[call]()
        value = WRONG[wrong](given[name])
        if (value is None and (call, name) in OPTIONAL) or (wrong, call, name) in TAKEN:
            continue
        given[name] = value
        before = {n: t.clone() for n, t in given.items() if n != name and isinstance(t, Tensor)}
        with pytest.raises((TypeError, ValueError)) as caught:
            getattr(kernels, call)(**given)
        said = str(caught.value)
        assert "NoneType' object" not in said, name
        assert "argument '" not in said, name  # PyTorch's words, of a function nobody called
        for n, t in before.items():
            assert torch.equal(given[n], t), (name, n)


@pytest.mark.parametrize("norm", [False, True])
def test_k_is_refused_before_q_is_changed(norm: bool):
    q, k = normal(2, 4, 5, 8), normal(2, 4, 6, 8)
    before = q.clone()

    def call(q: Tensor, k: Tensor, where: Tensor | None) -> Any:
        if norm:
            return kernels.norm_rotate_qk_(q, k, None, None, where, SPECTRUM)
        return kernels.rotate_qk_(q, k, where, SPECTRUM)

    leaf, expanded = normal(2, 4, 5, 8).requires_grad_(), normal(2, 1, 5, 8).expand(2, 4, 5, 8)
    for other, where in (
        (k, integers()),
        (leaf, None),
        (normal(2, 4, 5, 6), None),
        (expanded, None),
    ):
        with pytest.raises(ValueError, match=r"shape|leaf|expanded"):
            call(q, other, where)
        assert torch.equal(q, before)
    with pytest.raises(ValueError, match="weight has shape"):
        kernels.norm_rotate_qk_(q, normal(2, 1, 5, 8), None, normal(7), None, SPECTRUM)
    assert torch.equal(q, before)


@pytest.mark.parametrize(
    ("steps", "error", "message"),
    [
        (Steps(torch.ones(1, 9, dtype=torch.int64), SPECTRUM), ValueError, r"shape \(1, 9\)"),
        (Steps(torch.ones(4, dtype=torch.int64), SPECTRUM), ValueError, r"shape \(4,\)"),
        (Steps(torch.ones(1, 4), SPECTRUM), TypeError, "float32"),
        (Steps(None, SPECTRUM), TypeError, "NoneType"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_steps_that_are_not_those_of_their_spectrum(steps: Steps, error: Any, message: str):
    x = normal(2, 3, 5, 8)
    calls: list[Callable[[], Any]] = [
        lambda: kernels.rotate(x, None, steps),
        lambda: kernels.rotate_(x, None, steps),
        lambda: kernels.norm_rotate(x, None, None, steps),
        lambda: kernels.tables(integers(), steps, torch.float32),
        lambda: kernels.rotate_into_pages(
            x[0].transpose(0, 1), None, steps, normal(4, 4, 3, 8), integers()
        ),
    ]
    for call in calls:
        with pytest.raises(error, match=message + ".*Steps.of"):
            call()


X = normal(2, 3, 5, 8)
LEFT_OUT: dict[str, tuple[Callable[[], Any], str]] = {
    "offset on meta": (
        lambda: kernels.rotate(
            X, None, SPECTRUM, offset=torch.ones(2, dtype=torch.int64).to("meta")
        ),
        "offset is on meta",
    ),
    "eps beyond float64": (
        lambda: kernels.norm_rotate(X, None, None, SPECTRUM, eps=2**2000),
        "must be finite",
    ),
    "positions listed, and a device": (
        lambda: kernels.tables_for("vllm", SPECTRUM, positions=[1], device="cpu"),  # pyright: ignore
        "positions must be a tensor",
    ),
    "device unknown": (
        lambda: kernels.tables_for("vllm", SPECTRUM, 5, device="nowhere"),
        "device='nowhere'",
    ),
    "device of another type": (
        lambda: kernels.tables_for("vllm", SPECTRUM, 5, device=object()),  # pyright: ignore
        "device=<object",
    ),
    "more rows than memory": (
        lambda: kernels.tables_for("vllm", SPECTRUM, 2**61),
        "length=2305843009213693952",
    ),
    "no name of a pairing": (
        lambda: kernels.rotate_by(X, normal(5, 4), normal(5, 4), pairing=""),
        "pairing=''",
    ),
    "tables elsewhere": (
        lambda: kernels.rotate_by(X, normal(5, 4).to("meta"), normal(5, 4)),
        "cos on meta",
    ),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_other_values_are_refused_in_words(name: str):
    call, message = LEFT_OUT[name]
    with pytest.raises((TypeError, ValueError), match=message):
        call()
