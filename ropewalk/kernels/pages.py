r"""Keys turned and written straight into a paged cache, values beside them.

Servers keep keys in pages and say by a slot where each token goes: slot s is place s mod block_size
of page ⌊s / block_size⌋. Turning first and scattering then writes every key twice and reads it
once more; the kernels turn each row on its way to its slot.
"""

from __future__ import annotations

from torch import Tensor

from ropewalk.kernels import fused
from ropewalk.kernels.derivatives import by_phases
from ropewalk.kernels.devices import kernel_for
from ropewalk.kernels.opaque import mutating
from ropewalk.kernels.page_arguments import (
    require_alike,
    require_integers,
    require_no_capture,
    require_places,
    require_plain,
    require_slots,
)
from ropewalk.kernels.plain import compute_dtype
from ropewalk.kernels.rotate import checked
from ropewalk.kernels.steps import Steps
from ropewalk.spectra import Spectrum
from ropewalk.spectra.arguments import check_flag, check_option
from ropewalk.spectra.lanes import Turn

KV_LAYOUTS = ("NHD", "HND")


def rotate_into_pages(
    k: Tensor,
    positions: Tensor | None,
    spectrum: Spectrum | Steps,
    pages: Tensor,
    slots: Tensor,
    *,
    v: Tensor | None = None,
    v_pages: Tensor | None = None,
    kv_layout: str = "NHD",
    offset: int | None = None,
    check_slots: bool = True,
) -> None:
    """Write :func:`rotate` of each key to its slot of a paged cache, and each value to the same.

    Args:
        k: ``[tokens, kv_heads, head_dim]``, any strides; flatten a batch first.
        positions: ``[tokens]``, or ``[tokens, axes]``; ``None`` means offset … offset + tokens − 1.
        spectrum: as in :func:`rotate`.
        pages: written in place: ``[blocks, block_size, kv_heads, head_dim]`` ("NHD") or
            ``[blocks, kv_heads, block_size, head_dim]`` ("HND"), any strides, in the dtype of k.
        slots: integers ``[tokens]``, such as vLLM's slot_mapping: page · block_size + place, no two
            alike, or −1 for a token that is not written.
        v, v_pages: values, copied; head count and width may differ from k's, slots may not.
        kv_layout: the order of pages and v_pages.
        offset: with ``positions=None``, the first position, 0 if None.
        check_slots: on a GPU, whether to wait for the device and look at the slots before anything
            is written. A server that made them itself says False, as does who captures a CUDA
            graph: then nothing waits, a token whose slot lies outside the pages is not written, and
            of two tokens at one slot either may be, or parts of both. On the CPU there is nothing
            to wait for, and slots are looked at always.

    Raises:
        TypeError: an argument is of another type.
        ValueError: shapes or dtypes do not fit, a slot lies outside the pages or is given twice, a
            gradient is wanted, pages overlap what is read, or slots are to be checked while a CUDA
            graph is captured. Nothing is written then.
    """
    if _at_once(k, positions, spectrum, pages, slots, v, v_pages, kv_layout, offset, check_slots):
        return
    check_flag("check_slots", check_slots)
    check_option("kv_layout", kv_layout, KV_LAYOUTS)
    require_plain(k=k, pages=pages, slots=slots)
    require_plain(optional=True, v=v, v_pages=v_pages, positions=positions)
    if (v is None) != (v_pages is None):
        raise ValueError("v and v_pages go together; give both or neither")
    require_places(k, pages, kv_layout)
    if v is not None and v_pages is not None:
        require_places(v, v_pages, kv_layout, "v", "v_pages")
        require_alike(k, v, pages, v_pages, kv_layout)
    require_integers(slots, k)
    heads_first = k.transpose(0, 1)
    steps, where = checked(heads_first, positions, spectrum, False, offset)
    compute_dtype(k.dtype)
    values = None if v is None else v.transpose(0, 1)
    if kv_layout == "HND":
        pages = pages.transpose(1, 2)
        v_pages = None if v_pages is None else v_pages.transpose(1, 2)
    scale, lanes = steps.spectrum.turns[0]
    how = slots.long(), where, steps.tensor, scale, lanes, check_slots
    write = write_op if not fused.eager() or k.is_meta else _write
    write(heads_first, values, pages, v_pages, *how)


# --- writing ------------------------------------------------------------------------------------


def _at_once(
    k: Tensor,
    positions: Tensor | None,
    spectrum: object,
    pages: Tensor,
    slots: Tensor,
    v: Tensor | None,
    v_pages: Tensor | None,
    kv_layout: str,
    offset: object,
    check_slots: bool,
) -> bool:
    """Whether the kernel took all as it is, which a decoded token has no time to ask in words.

    It checks what it takes before it writes; whether values and keys share memory is asked here.
    The C++ kernel looks at the slots too; on a GPU that takes words, and time.
    """
    if not fused.eager() or fused.forward_mode() or type(k) is not Tensor:
        return False
    into, on_cpu = kernel_for(k).into_pages, k.is_cpu
    if into is None or type(check_slots) is not bool or (check_slots and _waits(k)):
        return False
    given = (k, pages, slots) if v is None and v_pages is None else (k, pages, slots, v, v_pages)
    if any(type(t) is not Tensor or t.is_cpu != on_cpu or fused.needs_derivative(t) for t in given):
        return False
    if k.dim() != 3 or pages.dim() != 4 or kv_layout not in KV_LAYOUTS:
        return False
    values = None
    try:
        if v is not None and v_pages is not None:
            memory = {t.untyped_storage().data_ptr() for t in (k, v)}
            written = {t.untyped_storage().data_ptr() for t in (pages, v_pages)}
            if v.dim() != 3 or v_pages.dim() != 4 or memory & written:
                return False
            if pages.data_ptr() == v_pages.data_ptr():
                return False
            values = v.transpose(0, 1)
        keys = k.transpose(0, 1)
        how = fused.rotation(keys, positions, offset, spectrum, False)
        if how is None:
            return False
        if kv_layout == "HND":
            pages = pages.transpose(1, 2)
            v_pages = None if v_pages is None else v_pages.transpose(1, 2)
        into(keys, values, pages, v_pages, slots, *how)
    except RuntimeError:
        return False
    fused.written(pages, *(() if v_pages is None else (v_pages,)))
    return True


def _waits(x: Tensor) -> bool:
    """Whether to look at values where x is means to wait for a device."""
    return not x.is_cpu


def _write(
    k: Tensor,
    v: Tensor | None,
    pages: Tensor,
    v_pages: Tensor | None,
    slots: Tensor,
    positions: Tensor,
    steps: Tensor,
    scale: float,
    lanes: int,
    check_slots: bool = True,
) -> None:
    """k and v ``[heads, tokens, width]`` into pages ``[blocks, block_size, heads, width]``."""
    into = kernel_for(k).into_pages
    if check_slots if _waits(k) else into is None:
        require_slots(slots, pages)
    if into is None:
        _scatter(k, v, pages, v_pages, slots, positions, steps, scale, lanes)
        return
    try:
        into(k, v, pages, v_pages, slots, positions, 0, steps.contiguous(), scale, lanes)
    except RuntimeError:
        if not _waits(k):  # and the kernel looks at the slots itself
            require_slots(slots, pages)
        raise
    fused.written(pages, *(() if v_pages is None else (v_pages,)))


write_op = mutating(
    "rotate_into_pages(Tensor k, Tensor? v, Tensor(a!) pages, Tensor(b!)? v_pages, Tensor slots, "
    "Tensor positions, Tensor steps, float scale, int lanes, bool check_slots=True) -> ()"
)(_write)
"""What compiled graphs hold: whether slots fit is seen as it runs."""


def _scatter(
    k: Tensor,
    v: Tensor | None,
    pages: Tensor,
    v_pages: Tensor | None,
    slots: Tensor,
    positions: Tensor,
    steps: Tensor,
    scale: float,
    lanes: int,
) -> None:
    """The same in PyTorch's operations: turned, then scattered. On a GPU it waits for the slots."""
    require_no_capture(k, "without the Triton kernel", "pip install 'ropewalk[gpu]'")
    turned = by_phases(k, positions, 0, steps, Turn(scale, lanes))
    keep = (slots >= 0) & (slots < pages.shape[0] * pages.shape[1])
    at = slots[keep]
    places = at // pages.shape[1], at % pages.shape[1]
    pages[places] = turned.transpose(0, 1)[keep]
    if v is not None and v_pages is not None:
        v_pages[places] = v.transpose(0, 1)[keep]
