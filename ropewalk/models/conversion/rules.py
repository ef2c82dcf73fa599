"""For one tensor of attention and its shape: which of its entries change places."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropewalk.models.conversion.families import Family
from ropewalk.models.conversion.names import Part
from ropewalk.models.conversion.packing import PACKINGS, Starts
from ropewalk.models.conversion.turns import Turn

_ROWS = re.compile(r"(?:base_layer\.)?(?:weight|bias)|lora_B(?:\.\w+)?\.(?:weight|bias)")
"""Parameters with a row for each lane that a projection gives."""
_INPUTS = re.compile(r"lora_A(?:\.\w+)?\.weight")
"""Parameters that read the hidden state alone."""
_SCALARS = re.compile(r"(?:input|output|activation|weight|k|v|q)_scale")
_NORM = re.compile(r"(?:norms\.\d+\.)?(?:weight|bias)")


@dataclass(frozen=True)
class Heads:
    """What a layer's heads are: ``width`` rotated lanes of each ``dim``, from lane ``first`` on.

    ``queries`` and ``keys`` are how many the config states, ``latent`` the lanes of compressed keys
    and values before the rotated ones; each None where nothing says it.
    """

    dim: int
    first: int
    width: int
    queries: int | None
    keys: int | None
    latent: int | None
    block: int = 128
    """Rows that share a scale, where weights are quantised in blocks."""


def turn_of(
    part: Part, shape: tuple[int, ...], heads: Heads, family: Family, rows: int | None
) -> Turn | None:
    """How the tensor changes; None if it stays as it is. ``rows`` are those of its projection.

    Raises:
        ValueError: its shape is not what the config describes, or it is not known what it does.
    """
    if part.role == "kept" or _INPUTS.fullmatch(part.parameter):
        return None
    if part.role in ("q_norm", "k_norm"):
        return _norm(part, shape, heads)
    if _ROWS.fullmatch(part.parameter):
        return _projection(part, shape[0] if shape else 0, heads, family)
    if part.parameter.startswith("lora_magnitude_vector") and np.prod(shape) == max(shape):
        turn = _projection(part, max(shape), heads, family)
        return Turn(shape.index(max(shape)), turn.q, turn.k, turn.width)
    if _SCALARS.fullmatch(part.parameter) and (not shape or np.prod(shape) == 1):
        return None
    if rows is not None and part.parameter == "weight_scale" and shape[0] == rows:
        return _projection(part, rows, heads, family)
    if rows is not None and part.parameter in ("weight_scale_inv", "weight_scale"):
        return _require_within_blocks(part, shape, rows, heads, family)
    raise ValueError(
        f"what {part.module}.{part.parameter} holds is not known (a quantised projection?); "
        "convert the model before it is quantised"
    )


def _projection(part: Part, rows: int, heads: Heads, family: Family) -> Turn:
    """Rows of a projection of q, of k, of both, or of the lanes that latent keys share."""
    if part.role == "latent_k":
        latent = rows - heads.width
        if latent < 1 or heads.latent not in (None, latent):
            raise ValueError(
                f"it has {rows} rows; kv_lora_rank + qk_rope_head_dim are "
                f"{heads.latent or '…'} + {heads.width}"
            )
        return Turn(0, (), (latent,), heads.width)
    if part.role == "qkv":
        q, k, total = _packed(rows, heads, family)
        if total != rows:
            raise ValueError(_mismatch(rows, heads, "q, k and v"))
        return Turn(0, _moved(q, heads.first), _moved(k, heads.first), heads.width)
    is_q = part.role == "q"
    stride = heads.dim * (2 if family.gated and is_q else 1)
    count, stated = rows // stride, heads.queries if is_q else heads.keys
    if count < 1 or rows != count * stride or stated not in (None, count):
        raise ValueError(_mismatch(rows, heads, "queries" if is_q else "keys"))
    starts = _moved(tuple(i * stride for i in range(count)), heads.first)
    return Turn(0, starts if is_q else (), () if is_q else starts, heads.width)


def _packed(rows: int, heads: Heads, family: Family) -> Starts:
    """As many key heads as the rows leave room for: rows = (queries + 2 · keys) · lanes."""
    if family.packing is None or heads.queries is None:
        raise ValueError("how q, k and v are packed, or how many heads there are, is not known")
    keys = (rows // heads.dim - heads.queries) // 2
    if keys < 1 or heads.queries % keys or heads.keys not in (None, keys):
        raise ValueError(_mismatch(rows, heads, "q, k and v"))
    return PACKINGS[family.packing](heads.queries, keys, heads.dim)


def _mismatch(rows: int, heads: Heads, what: str) -> str:
    stated = f"{heads.queries or '?'} query and {heads.keys or '?'} key heads"
    return f"it has {rows} rows for {what}; the config describes {stated} of {heads.dim} lanes"


def _moved(starts: tuple[int, ...], by: int) -> tuple[int, ...]:
    return tuple(start + by for start in starts)


def _norm(part: Part, shape: tuple[int, ...], heads: Heads) -> Turn:
    """A scale for each lane of a head, of each head, or of all heads in a row."""
    axis = len(shape) - 1
    size = shape[-1] if shape else 0
    count = size // heads.dim
    if not _NORM.fullmatch(part.parameter) or axis > 1 or count < 1 or size != count * heads.dim:
        raise ValueError(
            f"what {part.module}.{part.parameter} of shape {list(shape)} scales is not known, with "
            f"heads of {heads.dim} lanes"
        )
    stated = heads.queries if part.role == "q_norm" else heads.keys
    if count > 1 and (axis > 0 or stated not in (None, count)):
        raise ValueError(_mismatch(size, heads, part.module))
    starts = tuple(i * heads.dim + heads.first for i in range(count))
    q = part.role == "q_norm"
    return Turn(axis, starts if q else (), () if q else starts, heads.width)


def _require_within_blocks(
    part: Part, shape: tuple[int, ...], rows: int, heads: Heads, family: Family
) -> None:
    """Scales of blocks of rows stay as they are if every row stays within its block."""
    index = _projection(part, rows, heads, family).sources(rows, "half")
    same = (index // heads.block == np.arange(rows) // heads.block).all()
    if not same or shape[0] != -(-rows // heads.block):
        raise ValueError(
            f"{part.module}.{part.parameter} scales blocks of {heads.block} rows, and lanes would "
            "leave their block; convert the model before it is quantised"
        )


def block_rows(config: Mapping[str, Any]) -> int:
    """Rows of a block of quantised weights."""
    told = config.get("quantization_config")
    size = told.get("weight_block_size") if isinstance(told, Mapping) else None
    return size[0] if isinstance(size, list) and size and type(size[0]) is int and size[0] else 128
