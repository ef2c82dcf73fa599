r"""Keys turned and written straight into a paged cache, values beside them.

Servers keep keys in pages and say by a slot where each token goes: slot s is place s mod block_size
of page ⌊s / block_size⌋. Turning first and scattering then writes every key twice and reads it
once more; the C++ kernel turns each row on its way to its slot.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.kernels import fused
from ropewalk.kernels.arguments import require_own_memory, require_tensor
from ropewalk.kernels.derivatives import by_phases
from ropewalk.kernels.kinds import ordinary
from ropewalk.kernels.memory import apart
from ropewalk.kernels.native import kernel
from ropewalk.kernels.opaque import mutating
from ropewalk.kernels.plain import compute_dtype
from ropewalk.kernels.rotate import checked
from ropewalk.kernels.steps import Steps
from ropewalk.spectra import Spectrum
from ropewalk.spectra.arguments import check_option
from ropewalk.spectra.lanes import Turn

KV_LAYOUTS = ("NHD", "HND")
SKIP = -1
"""The slot of a token that is not written."""


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

    Raises:
        TypeError: an argument is of another type.
        ValueError: shapes or dtypes do not fit, a slot lies outside the pages or is given twice, a
            gradient is wanted, or pages overlap what is read. Nothing is written then.
    """
    if _at_once(k, positions, spectrum, pages, slots, v, v_pages, kv_layout, offset):
        return
    check_option("kv_layout", kv_layout, KV_LAYOUTS)
    _require_plain(k=k, pages=pages, slots=slots, v=v, v_pages=v_pages, positions=positions)
    if (v is None) != (v_pages is None):
        raise ValueError("v and v_pages go together; give both or neither")
    _require_places(k, pages, kv_layout)
    if v is not None and v_pages is not None:
        _require_places(v, v_pages, kv_layout, "v", "v_pages")
        _require_alike(k, v, pages, v_pages, kv_layout)
    _require_integers(slots, k)
    heads_first = k.transpose(0, 1)
    steps, where = checked(heads_first, positions, spectrum, False, offset)
    compute_dtype(k.dtype)
    values = None if v is None else v.transpose(0, 1)
    if kv_layout == "HND":
        pages = pages.transpose(1, 2)
        v_pages = None if v_pages is None else v_pages.transpose(1, 2)
    scale, lanes = steps.spectrum.turns[0]
    write = write_op if not fused.eager() or k.is_meta else _write
    write(heads_first, values, pages, v_pages, slots.long(), where, steps.tensor, scale, lanes)


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
) -> bool:
    """Whether the kernel took all as it is, which a decoded token has no time to ask in words.

    It checks what it takes before it writes; whether values and keys share memory is asked here.
    """
    into = kernel().into_pages if fused.eager() else None
    if into is None or fused.forward_mode():
        return False
    given = (k, pages, slots) if v is None and v_pages is None else (k, pages, slots, v, v_pages)
    if any(type(t) is not Tensor or not t.is_cpu or fused.needs_derivative(t) for t in given):
        return False
    if k.dim() != 3 or pages.dim() != 4 or kv_layout not in KV_LAYOUTS:
        return False
    values = None
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
    try:
        into(keys, values, pages, v_pages, slots, *how)
    except RuntimeError:
        return False
    fused.written(pages, *(() if v_pages is None else (v_pages,)))
    return True


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
) -> None:
    """k and v ``[heads, tokens, width]`` into pages ``[blocks, block_size, heads, width]``."""
    into = kernel().into_pages if k.is_cpu else None
    if into is None:
        _scatter(k, v, pages, v_pages, slots, positions, steps, scale, lanes)
        return
    try:
        into(k, v, pages, v_pages, slots, positions, 0, steps.contiguous(), scale, lanes)
    except RuntimeError:
        _require_slots(slots, pages)
        raise
    fused.written(pages, *(() if v_pages is None else (v_pages,)))


write_op = mutating(
    "rotate_into_pages(Tensor k, Tensor? v, Tensor(a!) pages, Tensor(b!)? v_pages, Tensor slots, "
    "Tensor positions, Tensor steps, float scale, int lanes) -> ()"
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
    """The same in PyTorch's operations: turned, then scattered."""
    _require_slots(slots, pages)
    turned = by_phases(k, positions, 0, steps, Turn(scale, lanes))
    keep = slots != SKIP
    at = slots[keep]
    places = at // pages.shape[1], at % pages.shape[1]
    pages[places] = turned.transpose(0, 1)[keep]
    if v is not None and v_pages is not None:
        v_pages[places] = v.transpose(0, 1)[keep]


# --- refusing -----------------------------------------------------------------------------------


def _require_plain(**tensors: Tensor | None) -> None:
    """Refuse what is not PyTorch's own tensor, or wants a gradient."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        require_tensor(tensor, name)
        if not ordinary(tensor) and type(tensor).__name__ == "DTensor":
            raise TypeError(f"{name} is a DTensor; write each rank's own heads: {name}.to_local()")
        if fused.needs_derivative(tensor):
            raise ValueError(
                f"{name} wants a gradient, and writing into pages has none; call under "
                "torch.no_grad()"
            )


def _require_places(
    x: Tensor, pages: Tensor, kv_layout: str, name: str = "k", into: str = "pages"
) -> None:
    """Refuse pages that cannot take rows of x."""
    nhd = kv_layout == "NHD"
    order = "[blocks, block_size, heads, width]" if nhd else "[blocks, heads, block_size, width]"
    if x.dim() != 3 or pages.dim() != 4:
        raise ValueError(
            f"{name} {tuple(x.shape)} must be [tokens, heads, width], and {into} "
            f"{tuple(pages.shape)} {order}; flatten a batch: {name}.flatten(0, 1)"
        )
    heads = pages.shape[2 if nhd else 1]
    if (heads, pages.shape[3]) != (x.shape[1], x.shape[2]):
        raise ValueError(
            f"{name} {tuple(x.shape)} and {into} {tuple(pages.shape)} differ in heads or width; "
            f"kv_layout={kv_layout!r} means {order}"
        )
    if pages.dtype != x.dtype or pages.device != x.device:
        raise ValueError(
            f"{name} is {x.dtype} on {x.device}, {into} are {pages.dtype} on {pages.device}; rows "
            "are written as they are"
        )
    require_own_memory(into, pages)
    _require_apart(name, x, into, pages)


def _require_alike(k: Tensor, v: Tensor, pages: Tensor, v_pages: Tensor, kv_layout: str) -> None:
    """Refuse values that do not go beside their keys."""
    size = 1 if kv_layout == "NHD" else 2
    if v.shape[0] != k.shape[0] or v.device != k.device:
        raise ValueError(
            f"v {tuple(v.shape)} on {v.device} must have the tokens of k {tuple(k.shape)} on "
            f"{k.device}"
        )
    if (pages.shape[0], pages.shape[size]) != (v_pages.shape[0], v_pages.shape[size]):
        raise ValueError(
            f"pages {tuple(pages.shape)} and v_pages {tuple(v_pages.shape)} differ in blocks or "
            "block_size, so a slot would be two places"
        )
    if _shares(pages, v_pages) and pages.data_ptr() == v_pages.data_ptr() and pages.numel():
        raise ValueError("pages and v_pages begin at one place; values would be written over keys")
    _require_apart("k", k, "v_pages", v_pages)
    _require_apart("v", v, "pages", pages)


def _require_apart(name: str, x: Tensor, into: str, pages: Tensor) -> None:
    """Refuse to read what is being written. Traced tensors have no memory yet."""
    if x.numel() and pages.numel() and _shares(x, pages) and not apart(x, pages):
        raise ValueError(f"{into} overlap {name}, which is read meanwhile; use {name}.clone()")


def _shares(x: Tensor, y: Tensor) -> bool:
    return fused.eager() and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def _require_integers(slots: Tensor, k: Tensor) -> None:
    if slots.dtype not in (torch.int64, torch.int32, torch.int16):
        raise TypeError(f"slots have dtype {slots.dtype}; they must be int64, or int32")
    if slots.shape != k.shape[:1] or slots.device != k.device:
        raise ValueError(
            f"slots {tuple(slots.shape)} on {slots.device} must be one for each token of "
            f"k {tuple(k.shape)} on {k.device}"
        )


def _require_slots(slots: Tensor, pages: Tensor) -> None:
    """Refuse slots outside pages ``[blocks, block_size, …]``, or given twice."""
    size = pages.shape[0] * pages.shape[1]
    outside = (slots < SKIP) | (slots >= size)
    if outside.any():
        token = int(outside.nonzero()[0])
        raise ValueError(
            f"slots[{token}]={int(slots[token])} is not a place in {pages.shape[0]} pages of "
            f"{pages.shape[1]}; use 0 … {size - 1}, or {SKIP} to skip the token"
        )
    taken = slots[slots != SKIP].sort().values
    again = taken[1:] == taken[:-1]
    if again.any():
        slot = int(taken[1:][again][0])
        tokens = (slots == slot).nonzero().flatten().tolist()
        raise ValueError(
            f"slots[{tokens[1]}]={slot} is slots[{tokens[0]}] too; give each token its own, or "
            f"{SKIP} to skip one"
        )
