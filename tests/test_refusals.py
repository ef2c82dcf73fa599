"""Arguments of every kind that fits nowhere: each call refuses in words, and writes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ropewalk import RoPE, kernels
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


@pytest.mark.parametrize("call", ["rotate_qk", "rotate_qk_", "norm_rotate_qk", "norm_rotate_qk_"])
def test_a_decoded_q_beside_all_of_k_is_refused(call: str):
    """Both would be turned from position 0 on, and the decoded token as if it were the first."""
    weights = (None, None) if "norm" in call else ()
    for place, (ours, theirs) in enumerate(((1, 5), (5, 1), (4, 5))):
        q, k = normal(2, 4, ours, 8), normal(2, 1, theirs, 8)
        before = q.clone(), k.clone()
        for where, more in (
            (None, {}),
            (None, {"offset": 3}),
            (None, {"offset": torch.tensor([3, 4])}),
            (integers(), {}),
            (torch.arange(ours), {}),
        ):
            given = q.requires_grad_(place == 1 and not call.endswith("_"))
            with pytest.raises(ValueError, match=r"apart: rotate\(q, None, .*offset") as caught:
                getattr(kernels, call)(given, k, *weights, where, SPECTRUM, **more)
            assert f"q has shape (2, 4, {ours}, 8), that is {ours} tokens" in str(caught.value)
            assert f"k has shape (2, 1, {theirs}, 8), that is {theirs};" in str(caught.value)
        assert torch.equal(q, before[0])
        assert torch.equal(k, before[1])


@pytest.mark.parametrize("call", ["rotate_qk", "rotate_qk_", "norm_rotate_qk", "norm_rotate_qk_"])
def test_k_is_called_k(call: str):
    weights = (None, None) if "norm" in call else ()
    with pytest.raises(ValueError, match=r"^k has shape \(2, 1, 5, 6\); this spectrum turns"):
        getattr(kernels, call)(normal(2, 4, 5, 8), normal(2, 1, 5, 6), *weights, None, SPECTRUM)


def test_a_graph_refuses_q_and_k_of_unlike_tokens_too():
    def turned(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return kernels.rotate_qk(q, k, None, SPECTRUM)

    compiled = torch.compile(turned, backend="eager", dynamic=True)
    q, k = normal(2, 4, 5, 8), normal(2, 1, 5, 8)
    assert all(map(torch.equal, compiled(q, k), turned(q, k)))
    with pytest.raises(ValueError, match="k has shape"):
        compiled(q[:, :, :2], k)


@pytest.mark.parametrize("call", [name for name in FREE if "spectrum" in FREE[name]()])
def test_an_encoding_in_place_of_its_spectrum_is_told_so(call: str):
    with pytest.raises(TypeError, match=r"got RoPE; pass the one it has, as in rope\.spectrum$"):
        getattr(kernels, call)(**{**FREE[call](), "spectrum": RoPE(8)})


@pytest.mark.parametrize("call", ["rotate_", "rotate_by_", "norm_rotate_"])
def test_an_expanded_tensor_is_not_changed_in_place(call: str):
    x = normal(2, 1, 5, 8).expand(2, 3, 5, 8)
    with pytest.raises(
        ValueError, match=r"^x of shape \(2, 3, 5, 8\) is expanded.*such as rotate$"
    ):
        getattr(kernels, call)(**{**CALLS[call](), "x": x})
    with pytest.raises(ValueError, match=r"^out of shape \(2, 3, 5, 8\) is expanded"):
        getattr(kernels, call[:-1])(**{**FREE[call[:-1]](), "out": x})


def test_an_offset_for_each_batch_row_is_one_for_each():
    x, starts = normal(2, 3, 5, 8), torch.tensor([3, 5, 6])
    words = r"^offset has shape \(3,\), .*that is 3; x of shape \(2, 3, 5, 8\) has 2 batch rows$"
    for call in (
        lambda: kernels.rotate(x, None, SPECTRUM, offset=starts),
        lambda: kernels.rotate_(x, None, SPECTRUM, offset=starts),
        lambda: kernels.norm_rotate(x, None, None, SPECTRUM, offset=starts),
        lambda: RoPE(8).encode_q(x, offset=starts),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(ValueError, match=r"^offset has .*x of shape \(3, 5, 8\) has no batch"):
        kernels.rotate(x[0], None, SPECTRUM, offset=starts)
    for fitting in (starts[:2], starts[:1]):
        where = fitting[:, None] + integers()
        turned = kernels.rotate(x, None, SPECTRUM, offset=fitting)
        assert torch.equal(turned, kernels.rotate(x, where, SPECTRUM))


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [8, 6])
def test_tables_with_every_angle_twice_are_told_so(layout: str, rotary_dim: int):
    x = normal(2, 3, 5, 8)
    once = normal(5, rotary_dim // 2)
    twice = torch.cat((once, once), -1) if layout == "half" else once.repeat_interleave(2, -1)
    how = "" if layout == "half" else ", layout='interleaved'"
    words = (
        f"cos has {rotary_dim} columns, and rotary_dim/2 are wanted. If cos and sin hold every "
        f"angle twice, as transformers has them, {rotary_dim // 2} are: use "
        f"ropewalk.halve_tables(cos, sin{how})"
    )
    for call in (
        lambda: kernels.rotate_by(x, twice, twice, layout=layout),
        lambda: kernels.rotate_by_(x, twice, twice, layout=layout),
        lambda: kernels.rotate_qk_by(x, x, twice, twice, layout=layout),
    ):
        with pytest.raises(ValueError, match=f"{re.escape(words)}$"):
            call()
    kernels.rotate_by(x, *kernels.halve_tables(twice, twice, layout=layout), layout=layout)
    with pytest.raises(ValueError, match=r"^10 rotated lanes .* do not fit in head_dim=8$"):
        kernels.rotate_by(x, normal(5, 5), normal(5, 5), layout=layout)


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
