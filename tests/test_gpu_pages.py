"""The Triton kernel that writes turned keys into pages, interpreted, against a loop in float64.

What it compiles to is the subject of test_gpu_compiled.py.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gpu_cases import DTYPES, assert_turned, bits, drawn, reference, strided
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreted import kernels
from torch import Tensor

import ropewalk
from ropewalk.kernels import devices, gpu, page_arguments
from ropewalk.kernels.gpu.job import Strides
from ropewalk.kernels.gpu.meta import Lanes, Meta
from ropewalk.kernels.gpu.plan import Plan
from ropewalk.kernels.gpu.prepare_pages import pages_launch
from ropewalk.spectra import Spectrum, axial, geometric

SPECTRA = {
    "half": geometric(8),
    "interleaved, in the middle": geometric(10, layout="interleaved", rotary_dim=6, lane_offset=1),
    "proportional": Spectrum(((0.5, 0.1),), 12, pairing="proportional"),
    "two axes": axial(8),
    "per head": Spectrum((((0.5, 0.1),), ((0.25, 2.0),)), 7, lane_offset=3, attention_factor=1.25),
}
BLOCKS, SIZE, HEADS, TOKENS = 5, 4, 4, 9


def memory_of(view: Tensor) -> Tensor:
    """All that a view's memory holds, in one dimension, as bits."""
    whole = torch.empty(0, dtype=view.dtype).set_(view.untyped_storage())
    return bits(whole)


def poisoned(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """Bits of all kinds, nan among them."""
    draw = torch.Generator().manual_seed(seed)
    words = torch.randint(-(2**63), 2**63 - 1, (math.prod(shape),), generator=draw)
    return words.view(dtype)[: math.prod(shape)].reshape(shape).clone()


def into_pages(k: Tensor, v: Tensor | None, pages: Tensor, v_pages: Tensor | None, *how) -> None:
    """The operator, which takes heads first, for k and v [tokens, heads, width]."""
    gpu.into_pages(k.transpose(0, 1), v if v is None else v.transpose(0, 1), pages, v_pages, *how)


def assert_rows(pages: Tensor, rows: Tensor, slots: Tensor, before: Tensor) -> None:
    """``rows`` at their slots of pages [blocks, size, …]; all other memory as it was."""
    size = pages.shape[1]
    fits = (slots >= 0) & (slots < pages.shape[0] * size)
    at = slots[fits].long() // size, slots[fits].long() % size
    assert_turned(pages[at], rows[fits])
    written = torch.zeros_like(pages, dtype=torch.uint8)
    written[at] = 1
    places = torch.zeros_like(before, dtype=torch.uint8)
    places.as_strided(pages.shape, pages.stride(), pages.storage_offset())[:] = written
    assert torch.equal(memory_of(pages)[places == 0], before[places == 0])


@pytest.mark.parametrize("kv_layout", ["NHD", "HND"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spectrum", SPECTRA.values(), ids=list(SPECTRA))
def test_each_row_lands_turned_at_its_slot_and_nothing_else_changes(spectrum, dtype, kv_layout):
    k, v = drawn((TOKENS, HEADS, spectrum.head_dim), dtype), drawn((TOKENS, 3, 5), dtype, 1)
    shape = (TOKENS, spectrum.axes)[: 1 + (spectrum.axes > 1)]
    where = torch.randint(-(2**40), 2**40, shape, generator=torch.Generator().manual_seed(7))
    slots = torch.tensor([3, -1, 19, 0, 7, -1, 12, 4, 8])
    made = []
    for x, seed in ((k, 2), (v, 3)):
        _, heads, width = x.shape
        if kv_layout == "NHD":
            made.append(poisoned((BLOCKS, SIZE, heads, width), dtype, seed))
        else:
            made.append(poisoned((BLOCKS, heads, SIZE, width), dtype, seed).transpose(1, 2))
    before = [memory_of(pages).clone() for pages in made]
    rows = reference(k.transpose(0, 1), where, spectrum, False).transpose(0, 1)
    steps, turn = spectrum.on().tensor, spectrum.turns[False]
    into_pages(k, v, *made, slots, where, 0, steps, *turn)
    assert_rows(made[0], rows, slots, before[0])
    assert_rows(made[1], v, slots, before[1])
    assert torch.equal(bits(made[1][0, 3]), bits(v[0]))
    turned = torch.empty_like(k).transpose(0, 1)
    gpu.rotate(k.transpose(0, 1), turned, where, 0, steps, *turn)
    kept = slots >= 0
    assert torch.equal(
        made[0][slots[kept] // SIZE, slots[kept] % SIZE], turned.transpose(0, 1)[kept]
    )


@settings(max_examples=40)
@given(st.data())
def test_any_sizes_strides_and_slots(data):
    layout = data.draw(st.sampled_from(["half", "interleaved"]))
    pairs, rest = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 5))
    spectrum = geometric(
        2 * pairs + rest,
        rotary_dim=2 * pairs,
        layout=layout,
        lane_offset=data.draw(st.integers(0, rest)),
    )
    tokens, size = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 5))
    blocks, dtype = data.draw(st.integers(1, 4)), data.draw(st.sampled_from(DTYPES))
    places, seed = blocks * size, data.draw(st.integers(0, 99))
    heads, v_heads = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([None, 1, 2, 5]))
    anywhere = torch.randperm(3 * places, generator=torch.Generator().manual_seed(seed)) - places
    free = torch.cat((anywhere, torch.tensor([-(2**31), 2**31 - 1, -1, -1, places, -2])))
    slots = free[torch.randperm(len(free), generator=torch.Generator().manual_seed(seed))]
    slots = slots.repeat(9)[:tokens]
    taken = [int(s) for i, s in enumerate(slots) if 0 <= s < places and s in slots[:i]]
    slots = torch.tensor([-1 if int(s) in taken else int(s) for s in slots])
    kind = data.draw(st.sampled_from([torch.int64, torch.int32]))
    slots = data.draw(strided(slots)).to(kind) if kind == torch.int32 else data.draw(strided(slots))
    offset = data.draw(st.integers(-(2**40), 2**40))
    tensors, befores = [], []
    for count, width, salt in ((heads, spectrum.head_dim, 1), (v_heads, 7, 2)):
        if count is None:
            tensors.append((None, None))
            continue
        x = data.draw(strided(drawn((tokens, count, width), dtype, salt)))
        pages = data.draw(strided(poisoned((blocks, size, count, width), dtype, salt)))
        tensors.append((x, pages))
    befores = [None if pages is None else memory_of(pages).clone() for _, pages in tensors]
    (k, pages), (v, v_pages) = tensors
    assert k is not None
    how = slots, None, offset, spectrum.on().tensor, *spectrum.turns[False]
    into_pages(k, v, pages, v_pages, *how)
    where = torch.arange(tokens) + offset
    rows = reference(k.transpose(0, 1), where, spectrum, False).transpose(0, 1)
    for (_, written), values, before in zip(tensors, (rows, v), befores, strict=True):
        if written is not None and before is not None:
            assert_rows(written, values, slots, before)


@pytest.mark.parametrize("shares", [1, 2, 3, 7])
def test_every_head_is_written_once_whatever_its_share(shares):
    """4 key heads of 2 spectrum heads and 5 of values, in more shares than there are heads."""
    spectrum = SPECTRA["per head"]
    k, v = drawn((4, 5, 7), torch.float64), drawn((5, 5, 3), torch.float64, 1)
    pages, v_pages = torch.full((2, 4, 4, 7), 7.0).double(), torch.full((2, 4, 5, 3), 7.0).double()
    slots, where = torch.tensor([6, 0, -1, 7, 3], dtype=torch.int32), torch.arange(5)
    steps, turn = spectrum.on().tensor, spectrum.turns[False]
    metas: Any = [Meta.of(t) for t in (k, v, pages, v_pages, slots, where, steps)]
    cut = Plan(block_rows=4, block_pairs=2, shares=shares, warps=1)
    launch = pages_launch(*metas, lanes=Lanes.of(turn.lanes), cut=cut)
    assert launch is not None
    before = [memory_of(t).clone() for t in (pages, v_pages)]
    run: Any = kernels().turn_into_pages[(launch.job.programs,)]
    run(k, pages, v, v_pages, slots, where, 0, steps, turn.scale, turn.scale, *launch.numbers)
    rows = reference(k, where, spectrum, False).transpose(0, 1)
    assert_rows(pages, rows, slots, before[0])
    assert_rows(v_pages, v.transpose(0, 1), slots, before[1])


def test_values_wider_than_a_run():
    k, v, slots = drawn((3, 2, 8), torch.float32), drawn((3, 2, 300), torch.float32), [5, 1, -1]
    spectrum, pages, v_pages = geometric(8), torch.zeros(2, 4, 2, 8), torch.zeros(2, 4, 2, 300)
    how = torch.tensor(slots), None, 0, spectrum.on().tensor, *spectrum.turns[False]
    into_pages(k, v, pages, v_pages, *how)
    assert torch.equal(v_pages[1, 1], v[0])
    assert torch.equal(v_pages[0, 1], v[1])
    assert v_pages.count_nonzero() == 2 * 2 * 300


def test_pages_beyond_two_to_the_31():
    """Three blocks 2³⁰ + 1 elements apart; of the memory only a few pages are touched."""
    far, spectrum = 2**30 + 1, geometric(8)
    memory = torch.empty(2 * far + 64, dtype=torch.float16)
    pages = memory.as_strided((3, 2, 1, 8), (far, 8, 8, 1))
    pages.fill_(7)
    k, where = drawn((2, 1, 8), torch.float16), torch.tensor([3, 10**9])
    how = torch.tensor([5, 0], dtype=torch.int32), where, 0, spectrum.on().tensor
    into_pages(k, None, pages, None, *how, *spectrum.turns[False])
    rows = reference(k.transpose(0, 1), where, spectrum, False).transpose(0, 1)
    assert_turned(pages[2, 1], rows[0])
    assert_turned(pages[0, 0], rows[1])
    assert (pages[1] == 7).all()
    assert (pages[0, 1] == 7).all()
    assert (pages[2, 0] == 7).all()


@pytest.mark.parametrize(("blocks", "tokens"), [(0, 3), (2, 0)])
def test_nothing_to_write(blocks, tokens):
    spectrum, pages = geometric(8), torch.zeros(blocks, 4, 2, 8)
    how = torch.zeros(tokens, dtype=torch.int64), None, 0, spectrum.on().tensor
    into_pages(
        drawn((tokens, 2, 8), torch.float32), None, pages, None, *how, *spectrum.turns[False]
    )
    assert not pages.any()


# --- launches -------------------------------------------------------------------------------------


def meta(*shape: int, strides: tuple[int, ...] | None = None, dtype=torch.float32) -> Meta:
    made = torch.empty(shape, device="meta").stride()
    return Meta(shape, strides or made, dtype, torch.device("cpu"), True)


K, V, PAGES, V_PAGES = meta(2, 9, 64), meta(3, 9, 32), meta(5, 16, 2, 64), meta(5, 16, 3, 32)
SLOTS, STEPS = meta(9, dtype=torch.int64), meta(1, 32, dtype=torch.int64)
HALVES = Lanes(0, 32, 1, False)


def test_numbers_of_a_launch():
    made = pages_launch(K, V, PAGES, V_PAGES, SLOTS, None, STEPS, HALVES)
    assert made is not None
    k, pages, heads, v, v_pages, v_heads, slots, _, places, sizes, own, *rest = made.numbers
    _, block_size, values, how = rest
    assert (how.unit, how.copies, heads, v_heads, own) == (16, False, 2, 3, 1)
    assert (block_size, places, sizes) == (16, 80, (9, 1))
    assert k == Strides(1, 9 * 4, (4, 0))
    assert pages == Strides(1, 4, (8, 16 * 8))
    assert (v, v_pages) == (Strides(1, 9 * 2, (2, 0)), Strides(1, 2, (6, 16 * 6)))
    assert slots == Strides(0, 0, (1, 0))
    assert (values.head_dim, values.segment, values.dense) == (32, 32, True)
    odd = pages_launch(
        K, None, meta(5, 1, 2, 64, strides=(132, 0, 64, 1)), None, SLOTS, None, STEPS, HALVES
    )
    assert odd is not None
    assert odd.job.how.unit == 4
    assert odd.numbers[1] == Strides(1, 16, (0, 33))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"k": meta(9, 64)}, r"x \(9, 64\).*must be \[heads, tokens, width\]"),
        ({"pages": meta(5, 16, 3, 64)}, "must be"),
        ({"pages": meta(5, 16, 2, 64, dtype=torch.float16)}, "must be alike"),
        ({"pages": meta(5, 16, 2, 64, strides=(1024, 64, 0, 1))}, "expanded"),
        ({"pages": meta(5, 16, 2, 64, strides=(0, 128, 64, 1))}, "expanded"),
        ({"slots": meta(9, dtype=torch.int16)}, "slots are .*int16.* must be int64 or int32"),
        ({"slots": meta(8, dtype=torch.int64)}, r"slots are \(8,\)"),
        ({"slots": meta(9, 1, dtype=torch.int64)}, r"slots are \(9, 1\)"),
        ({"v": None}, "go together"),
        ({"v": meta(3, 8, 32)}, "as many tokens"),
        ({"v_pages": meta(4, 16, 3, 32)}, "differ in blocks"),
        ({"v": meta(3, 9, 32, dtype=torch.float16)}, "must be alike"),
        ({"steps": meta(3, 1, 32, dtype=torch.int64)}, "not a multiple"),
        ({"positions": meta(8, dtype=torch.int64)}, "do not fit 9 tokens"),
        ({"k": meta(2, 9, 60), "pages": meta(5, 16, 2, 60)}, "do not fit in head_dim=60"),
    ],
)
def test_what_does_not_fit_is_refused(changes, words):
    given: dict[str, Any] = {
        "k": K,
        "v": V,
        "pages": PAGES,
        "v_pages": V_PAGES,
        "slots": SLOTS,
        "positions": None,
    }
    with pytest.raises(gpu.Misfit, match=words):
        pages_launch(**{**given, "steps": STEPS, "lanes": HALVES, **changes})


def test_memory_that_is_read_meanwhile_is_refused():
    spectrum, pages, v_pages = geometric(8), torch.zeros(2, 4, 2, 8), torch.zeros(2, 4, 2, 8)
    slots, steps, turn = torch.arange(4), spectrum.on().tensor, spectrum.turns[False]
    k = drawn((4, 2, 8), torch.float32)
    for keys, values in ((pages[0], k), (v_pages[0], k), (k, pages[1]), (k, v_pages[1])):
        with pytest.raises(gpu.Misfit, match="pages overlap what is read"):
            into_pages(keys, values, pages, v_pages, slots, None, 0, steps, *turn)
    assert not pages.any()
    into_pages(k, pages[0], pages[1:], v_pages[1:], slots, None, 0, steps, *turn)  # apart


# --- from the public operation --------------------------------------------------------------------


@pytest.fixture
def on_a_gpu(monkeypatch) -> list[str]:
    """CPU tensors go to this kernel, as on a device that has to be waited for; what is called."""
    seen: list[str] = []

    def noted(*arguments) -> None:
        gpu.into_pages(*arguments)
        seen.append("kernel")

    def looked(slots: Tensor, pages: Tensor) -> None:
        seen.append("looked")
        page_arguments.require_slots(slots, pages)

    kernel = devices.Kernel(gpu, "interpreted", compiled=True, into_pages=noted)
    monkeypatch.setattr("ropewalk.kernels.pages.kernel_for", lambda x: kernel)
    monkeypatch.setattr("ropewalk.kernels.pages._waits", lambda x: True)
    monkeypatch.setattr("ropewalk.kernels.pages.require_slots", looked)
    return seen


def written(check_slots: bool, slots: Tensor, kv_layout: str = "HND") -> tuple[Tensor, Tensor]:
    k, v = drawn((3, 2, 8), torch.float64), drawn((3, 2, 8), torch.float64, 1)
    pages, v_pages = torch.full((2, 2, 2, 4, 8), 7.0).double().unbind()
    if kv_layout == "NHD":
        pages, v_pages = (t.transpose(1, 2).contiguous() for t in (pages, v_pages))
    ropewalk.rotate_into_pages(
        k, None, geometric(8), pages, slots, v=v, v_pages=v_pages, kv_layout=kv_layout, offset=5,
        check_slots=check_slots,
    )  # fmt: skip
    return (
        (pages, v_pages) if kv_layout == "HND" else (pages.transpose(1, 2), v_pages.transpose(1, 2))
    )


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.int16])
@pytest.mark.parametrize("kv_layout", ["NHD", "HND"])
@pytest.mark.parametrize("check_slots", [True, False])
def test_the_public_operation_writes_by_this_kernel(on_a_gpu, check_slots, kv_layout, kind):
    pages, v_pages = written(check_slots, torch.tensor([6, -1, 1]).to(kind), kv_layout)
    assert on_a_gpu == (["looked", "kernel"] if check_slots else ["kernel"])
    turned = ropewalk.rotate(
        drawn((3, 2, 8), torch.float64).transpose(0, 1), torch.arange(5, 8), geometric(8)
    )
    assert_turned(pages[1, :, 2], turned[:, 0])
    assert_turned(pages[0, :, 1], turned[:, 2])
    assert torch.equal(v_pages[1, :, 2], drawn((3, 2, 8), torch.float64, 1)[0])
    assert (pages != 7).any(-1).sum() == (v_pages != 7).any(-1).sum() == 4


@pytest.mark.parametrize("slots", [[6, 8, 1], [6, -2, 1], [6, 2**40, 1]])
def test_slots_outside_are_refused_or_left_out(on_a_gpu, slots):
    with pytest.raises(ValueError, match=r"slots\[1\]="):
        written(True, torch.tensor(slots))
    assert on_a_gpu == ["looked"]
    pages, v_pages = written(False, torch.tensor(slots))
    assert (pages != 7).any(-1).sum() == (v_pages != 7).any(-1).sum() == 4


def test_slots_given_twice_are_refused_or_one_of_them_wins(on_a_gpu):
    slots = torch.tensor([6, 6, -1])
    with pytest.raises(ValueError, match=r"slots\[1\]=6 is slots\[0\] too"):
        written(True, slots)
    assert on_a_gpu == ["looked"]
    pages, _ = written(False, slots)
    assert (pages != 7).any(-1).sum() == 2


def test_a_compiled_step_may_leave_the_slots_unseen(on_a_gpu):
    k, pages, slots = drawn((3, 2, 8), torch.float64), torch.zeros(2, 4, 2, 8).double(), [6, 99, 1]
    spectrum = geometric(8)

    def step(k: Tensor, pages: Tensor, slots: Tensor, check: bool) -> Tensor:
        ropewalk.rotate_into_pages(k, None, spectrum, pages, slots, check_slots=check)
        return pages.sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    compiled(k, pages, torch.tensor(slots), False)
    assert on_a_gpu == ["kernel"]
    assert pages.any(-1).sum() == 4
    with pytest.raises(ValueError, match=r"slots\[1\]=99"):
        compiled(k, pages, torch.tensor(slots), True)


@pytest.mark.parametrize("wrong", [1, None, "no"])
def test_check_slots_is_a_bool(wrong):
    with pytest.raises(TypeError, match="check_slots"):
        written(wrong, torch.tensor([6, -1, 1]))


def test_on_the_cpu_slots_are_always_looked_at(monkeypatch):
    plain = devices.Kernel(None, "without")
    for kernel_for in (devices.kernel_for, lambda x: plain):
        monkeypatch.setattr("ropewalk.kernels.pages.kernel_for", kernel_for)
        with pytest.raises(ValueError, match=r"slots\[1\]=8"):
            written(False, torch.tensor([6, 8, 1]))


def test_a_captured_graph_cannot_look(monkeypatch):
    captured = SimpleNamespace(is_cuda=True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(ValueError, match=r"graph is being captured.*use check_slots=False"):
        page_arguments.require_slots(captured, torch.zeros(2, 4))  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    page_arguments.require_no_capture(captured, "", "")  # pyright: ignore[reportArgumentType]
