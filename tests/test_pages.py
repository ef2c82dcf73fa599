"""Writing turned keys into pages, against a literal loop over tokens in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numeric_oracles import loop_rotate
from torch import Tensor

from ropewalk import rotate, rotate_into_pages, spectra
from ropewalk.kernels import native
from ropewalk.kernels.pages import _scatter
from ropewalk.spectra import Spectrum, geometric

SPECTRA = {
    "half": geometric(8),
    "interleaved": geometric(8, layout="interleaved"),
    "wide": geometric(128, 5e5),
    "wide interleaved": geometric(64, 5e5, layout="interleaved"),
    "rest on both sides": geometric(13, rotary_dim=6, lane_offset=3),
    "rest in front": geometric(10, rotary_dim=4, lane_offset=6, layout="interleaved"),
    "proportional": spectra.proportional(16, fraction=0.5),
    "factor": geometric(10, rotary_dim=8).replace(attention_factor=1.19),
    "two axes": spectra.axial(8, axes=2),
    "heads": Spectrum((((1.0, 0.1),), ((2.0, 0.3),)), 5, layout="interleaved"),
}
DTYPES = {
    torch.float64: 1e-9,  # half a step times 2³¹
    torch.float32: 2e-6,
    torch.bfloat16: 3e-2,
    torch.float16: 4e-3,
}
BLOCKS, SIZE, HEADS, TOKENS = 5, 4, 4, 9
POISON = 77.0


def drawn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)


def slots_of(tokens: int, seed: int = 1, skipped: int = 2, places: int = BLOCKS * SIZE) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    slots = torch.randperm(places, generator=generator)[:tokens]
    slots[torch.randperm(tokens, generator=generator)[:skipped]] = -1
    return slots


def poisoned_pages(layout: str, heads: int, width: int, dtype: torch.dtype) -> Tensor:
    shape = (BLOCKS, SIZE, heads, width) if layout == "NHD" else (BLOCKS, heads, SIZE, width)
    return torch.full(shape, POISON, dtype=dtype)


def positions_of(spectrum: Spectrum, far: int = 2**31) -> Tensor:
    shape = (TOKENS,) if spectrum.axes == 1 else (TOKENS, spectrum.axes)
    return torch.randint(-far, far, shape, generator=torch.Generator().manual_seed(7))


def written(rows: Tensor, pages: Tensor, slots: Tensor, layout: str) -> Tensor:
    """pages in float64 after each row [tokens, heads, width] is put at its slot, one by one."""
    result = pages.double().clone()
    for token, slot in enumerate(slots.tolist()):
        if slot == -1:
            continue
        block, place = divmod(slot, SIZE)
        for head in range(rows.shape[1]):
            at = (block, place, head) if layout == "NHD" else (block, head, place)
            result[at] = rows[token, head]
    return result


def literal(k: Tensor, positions: Tensor, spectrum: Spectrum) -> Tensor:
    planes = positions if spectrum.axes > 1 else positions[:, None]
    return loop_rotate(k.transpose(0, 1)[None], planes[None], spectrum)[0].transpose(0, 1)


@pytest.fixture(params=[True, False], ids=["fused", "scattered"])
def way(request, monkeypatch) -> bool:
    """Whether the compiled kernel writes, where there is one; else PyTorch's operations do."""
    if not request.param:
        plain = native.Kernel(native.kernel().ops, "without")
        monkeypatch.setattr("ropewalk.kernels.pages.kernel_for", lambda x: plain)
    return request.param


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spectrum", SPECTRA.values(), ids=list(SPECTRA))
def test_each_row_lands_turned_at_its_slot_and_nothing_else_changes(spectrum, dtype, layout):
    k = drawn(TOKENS, HEADS, spectrum.head_dim, dtype=dtype)
    v = drawn(TOKENS, 2, 6, dtype=dtype, seed=1)
    positions, slots = positions_of(spectrum), slots_of(TOKENS)
    pages = poisoned_pages(layout, HEADS, spectrum.head_dim, dtype)
    v_pages = poisoned_pages(layout, 2, 6, dtype)
    expected = written(literal(k, positions, spectrum), pages, slots, layout)
    expected_v = written(v.double(), v_pages, slots, layout)
    rotate_into_pages(k, positions, spectrum, pages, slots, v=v, v_pages=v_pages, kv_layout=layout)
    assert torch.allclose(pages.double(), expected, atol=4 * DTYPES[dtype], rtol=DTYPES[dtype])
    assert torch.equal(pages == POISON, expected == POISON)
    assert torch.equal(v_pages.double(), expected_v)
    turned = rotate(k.transpose(0, 1), positions, spectrum).transpose(0, 1)
    for token, slot in enumerate(slots.tolist()):
        by_slot = pages if layout == "NHD" else pages.transpose(1, 2)
        assert slot == -1 or torch.equal(by_slot[slot // SIZE, slot % SIZE], turned[token])


@settings(max_examples=40)
@given(st.data())
def test_any_sizes_strides_and_slots(data):
    tokens, heads = data.draw(st.integers(0, 70)), data.draw(st.integers(1, 5))
    layout = data.draw(st.sampled_from(["half", "interleaved"]))
    pairs, rest = data.draw(st.integers(1, 40)), data.draw(st.integers(0, 5))
    first = data.draw(st.integers(0, rest))
    spectrum = geometric(2 * pairs + rest, rotary_dim=2 * pairs, layout=layout, lane_offset=first)
    dtype = data.draw(st.sampled_from(list(DTYPES)))
    size, extra = data.draw(st.integers(1, 17)), data.draw(st.integers(1, 20))
    blocks = (tokens + extra) // size + 1
    k = drawn(tokens, heads, 2, 2 * pairs + rest, dtype=dtype)[:, :, data.draw(st.integers(0, 1))]
    if data.draw(st.booleans()):
        k = k.permute(2, 1, 0).contiguous().permute(2, 1, 0)  # lanes far apart
    both = torch.full((blocks, 2, size, heads, 2 * pairs + rest), POISON, dtype=dtype)
    seed = data.draw(st.integers(0, 99))
    slots = slots_of(tokens, seed, tokens // 3, blocks * size).repeat_interleave(2)[::2]
    offset = data.draw(st.integers(-(2**40), 2**40))
    rotate_into_pages(k, None, spectrum, both[:, 0], slots, offset=offset, v=k, v_pages=both[:, 1])
    turned = rotate(k.transpose(0, 1), None, spectrum, offset=offset).transpose(0, 1)
    expected = torch.full_like(both, POISON)
    kept = slots[slots >= 0]
    expected[kept // size, 0, kept % size] = turned[slots >= 0]
    expected[kept // size, 1, kept % size] = k[slots >= 0]
    assert torch.equal(both, expected)


def test_many_tokens_over_threads_equal_the_scattered_form():
    tokens, spectrum = 3000, geometric(64)
    k, slots = drawn(tokens, 4, 64, dtype=torch.float32), slots_of(tokens, 5, 100, 4096)
    ours, theirs = (torch.full((256, 16, 4, 64), POISON) for _ in range(2))
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        rotate_into_pages(k, None, spectrum, ours, slots, v=k, v_pages=torch.empty_like(ours))
    finally:
        torch.set_num_threads(before)
    steps, turn = spectrum.on().tensor, spectrum.turns[0]
    positions = torch.arange(tokens)
    _scatter(k.transpose(0, 1), None, theirs, None, slots, positions, steps, *turn)
    assert torch.equal(ours, theirs)


def test_slots_may_be_32_bit_and_pages_are_marked_as_written():
    k, spectrum = drawn(TOKENS, HEADS, 8), geometric(8)
    pages, slots = poisoned_pages("NHD", HEADS, 8, k.dtype), slots_of(TOKENS)
    other, version = pages.clone(), pages._version
    rotate_into_pages(k, None, spectrum, pages, slots.int())
    rotate_into_pages(k, None, spectrum.on(), other, slots)
    assert torch.equal(pages, other)
    assert pages._version > version


def test_a_compiled_step_writes_the_same():
    k, spectrum, slots = drawn(TOKENS, HEADS, 8), geometric(8), slots_of(TOKENS)
    first, second = (poisoned_pages("HND", HEADS, 8, k.dtype) for _ in range(2))

    def step(k: Tensor, pages: Tensor, slots: Tensor, past: int) -> Tensor:
        rotate_into_pages(k * 2, None, spectrum, pages, slots, kv_layout="HND", offset=past)
        return pages.sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(k, first, slots, 5), step(k, second, slots, 5))
    assert torch.equal(first, second)
    with pytest.raises(ValueError, match="slots"):
        compiled(k, first, torch.zeros_like(slots), 5)
    assert torch.equal(first, second)


def test_a_cache_in_pages_attends_as_one_in_a_row():
    spectrum, q = geometric(16), drawn(1, HEADS, 1, 16)
    k, v = drawn(TOKENS, HEADS, 16, seed=1), drawn(TOKENS, HEADS, 16, seed=2)
    pages, v_pages = (poisoned_pages("NHD", HEADS, 16, k.dtype) for _ in range(2))
    slots = slots_of(TOKENS, skipped=0)
    for token in range(TOKENS):  # a token at a time, as a server decodes
        now = slice(token, token + 1)
        rotate_into_pages(
            k[now], None, spectrum, pages, slots[now], v=v[now], v_pages=v_pages, offset=token
        )
    at = slots // SIZE, slots % SIZE
    keys, values = (cache[at].transpose(0, 1)[None] for cache in (pages, v_pages))
    turned = rotate(q, None, spectrum, offset=TOKENS - 1)
    found = torch.nn.functional.scaled_dot_product_attention(turned, keys, values)
    keys, values = rotate(k.transpose(0, 1)[None], None, spectrum), v.transpose(0, 1)[None]
    expected = torch.nn.functional.scaled_dot_product_attention(turned, keys, values)
    assert torch.allclose(found, expected, atol=1e-12)


# --- refusals -----------------------------------------------------------------------------------


def arguments(**changes: Any) -> dict[str, Any]:
    given = {
        "k": drawn(3, HEADS, 8),
        "positions": None,
        "spectrum": geometric(8),
        "pages": poisoned_pages("NHD", HEADS, 8, torch.float64),
        "slots": torch.tensor([0, 7, -1]),
    }
    return {**given, **changes}


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ([0, 20, 1], r"slots\[1\]=20.*0 … 19"),
        ([0, 1, 2**62], r"slots\[2\]"),
        ([-2, 1, 2], r"slots\[0\]=-2.*-1 to skip"),
        ([5, 1, 5], r"slots\[2\]=5 is slots\[0\] too"),
    ],
)
@pytest.mark.usefixtures("way")
def test_slots_that_do_not_fit_write_nothing(slots, words):
    given = arguments(slots=torch.tensor(slots))
    v_pages = torch.full_like(given["pages"], POISON)
    for _ in range(2):
        with pytest.raises(ValueError, match=words):
            rotate_into_pages(**given, v=given["k"], v_pages=v_pages)
    assert (given["pages"] == POISON).all()
    assert (v_pages == POISON).all()
    rotate_into_pages(**{**given, "slots": torch.tensor([5, 1, 0])})  # no trace of the refused


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"k": drawn(1, 3, HEADS, 8)}, r"k \(1, 3, 4, 8\).*flatten"),
        ({"k": drawn(3, 2, 8)}, "differ in heads"),
        ({"k": drawn(3, HEADS, 6), "spectrum": geometric(6)}, "differ in heads or width"),
        ({"kv_layout": "HND", "k": drawn(3, 5, 8)}, "kv_layout='HND'"),
        ({"kv_layout": "DNH"}, "kv_layout='DNH'"),
        ({"spectrum": geometric(6)}, "head|lanes|6"),
        ({"k": drawn(3, HEADS, 8, dtype=torch.float32)}, "float32.*float64"),
        ({"slots": torch.tensor([0, 1])}, r"slots \(2,\)"),
        ({"positions": torch.arange(4)}, "4 tokens"),
        ({"positions": torch.arange(3), "offset": 2}, "both given"),
        ({"v": drawn(3, HEADS, 8)}, "v and v_pages go together"),
        ({"pages": torch.zeros(5, 4, 1, 8).double().expand(-1, -1, HEADS, -1)}, "expanded"),
        ({"k": drawn(3, HEADS, 8).requires_grad_()}, "k wants a gradient.*no_grad"),
        (
            {"v": drawn(2, HEADS, 8), "v_pages": poisoned_pages("NHD", HEADS, 8, torch.float64)},
            "tokens of k",
        ),
        (
            {"v": drawn(3, HEADS, 8), "v_pages": torch.zeros(4, 5, HEADS, 8).double()},
            "blocks or block_size",
        ),
    ],
)
def test_what_does_not_fit_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        rotate_into_pages(**arguments(**changes))


def test_memory_that_is_read_meanwhile_is_refused():
    pages = poisoned_pages("NHD", HEADS, 8, torch.float64)
    with pytest.raises(ValueError, match=r"pages overlap k.*clone"):
        rotate_into_pages(**arguments(k=pages[0, :3], pages=pages))
    with pytest.raises(ValueError, match="over keys"):
        rotate_into_pages(**arguments(pages=pages, v=drawn(3, HEADS, 8), v_pages=pages))


@pytest.mark.parametrize(
    "changes",
    [
        {"slots": [0, 1, 2]},
        {"slots": torch.tensor([0.0, 1.0, 2.0])},
        {"slots": torch.tensor([True, False, True])},
        {"positions": torch.tensor([0.0, 1.0, 2.0])},
        {"spectrum": 8},
        {"k": torch.ones(3, HEADS, 8).long(), "pages": torch.ones(5, 4, HEADS, 8).long()},
    ],
)
def test_other_types_are_refused(changes):
    with pytest.raises(TypeError):
        rotate_into_pages(**arguments(**changes))


def test_a_row_keeps_infinities_and_nan_to_itself():
    k = drawn(3, HEADS, 8)
    k[1] = math.nan
    given = arguments(k=k, slots=torch.tensor([0, 1, 2]))
    rotate_into_pages(**given)
    assert given["pages"][0, 1].isnan().all()
    assert given["pages"][0, [0, 2]].isfinite().all()
