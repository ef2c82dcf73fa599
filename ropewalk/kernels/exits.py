r"""Tables as other people's kernels take them.

Each consumer turns the first ``rotary_dim`` lanes of a head by its own table:

===================  =========================================================  ====================
form                 tensors                                                    flags
===================  =========================================================  ====================
flash_attn           cos, sin ``[length, rotary_dim/2]``                        interleaved
transformer_engine   freqs ``[length, 1, 1, rotary_dim]``, float32 angles       interleaved
vllm                 cos_sin_cache ``[length, rotary_dim]``, cos before sin     is_neox_style
onnx                 cos_cache, sin_cache ``[length, rotary_dim/2]``            interleaved and
                                                                                rotary_embedding_dim
===================  =========================================================  ====================

A spectrum fits if its pairs are some of the pairs that such a kernel turns; the others get the
angle 0, so that p-RoPE and interleaved lanes that begin later fit too.

Sources: ``apply_rotary_emb`` of flash-attn, ``apply_rotary_pos_emb`` of TransformerEngine,
``RotaryEmbedding`` of vLLM, RotaryEmbedding-23 of ONNX.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ropewalk.kernels.angles import as_planes, phase
from ropewalk.kernels.phases import tables
from ropewalk.kernels.steps import Steps
from ropewalk.positions.contract import integer_positions
from ropewalk.spectra import Spectrum
from ropewalk.spectra.arguments import FARTHEST, check_int, check_option
from ropewalk.spectra.by_length import LengthSpectrum
from ropewalk.spectra.spectrum import require_spectrum

FORMS = ("flash_attn", "onnx", "transformer_engine", "vllm")
"""The consumers that :func:`tables_for` knows."""
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_RADIANS = 2 * math.pi / 2.0**64


@dataclass(frozen=True)
class Exit:
    """What a consumer's rotation is called with: ``rotation(x, **exit.tensors, **exit.flags)``."""

    form: str
    tensors: dict[str, Tensor]
    """By the consumer's own names."""
    flags: dict[str, Any]
    """The layout, in the consumer's own words and types."""
    rotary_dim: int
    """Lanes that the consumer turns, from lane 0."""
    factor_left: float
    """What is left of attention_factor: 1.0 where the tables hold it. Otherwise multiply the lanes
    of q and k that turn by it; if all turn, its square times the softmax scale is the same."""


class _Columns(NamedTuple):
    """Where the spectrum's pairs lie among the pairs of a consumer."""

    rotary_dim: int
    before: int
    after: int


def tables_for(
    form: str,
    spectrum: Spectrum,
    length: int | None = None,
    *,
    positions: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Exit:
    """The tables of ``spectrum`` in the form that another library's rotation takes.

    Angles come from integer phases and are rounded once, so row 2³⁰ is as good as row 1.

    Args:
        form: ``"flash_attn"``, ``"transformer_engine"``, ``"vllm"`` or ``"onnx"``.
        spectrum: one set of frequencies for all heads.
        length: rows are the positions 0 … length−1, for the consumer to look up.
        positions: instead of length: row i is for token i, ``[tokens]`` or ``[tokens, axes]``; for
            ONNX without position_ids also ``[batch, tokens]`` or ``[batch, tokens, axes]``.
        dtype: of the tables: float32, bfloat16 or float16; TransformerEngine takes float32 only.
            vLLM, ONNX and ``flash_attn_with_kvcache`` want the dtype of q.
        device: where the tables are made, with ``length``.

    Raises:
        TypeError: an argument is of another type.
        ValueError: the form cannot hold this spectrum; the message says why and what would do.
    """
    check_option("form", form, FORMS)
    _require_fixed(spectrum)
    _require_dtype(form, dtype)
    where = _rows(form, spectrum, length, positions, device)
    columns = _columns(form, spectrum)
    flag = spectrum.layout == "interleaved"
    if form == "transformer_engine":
        angles = _padded(_angles(where, spectrum), columns, 0.0)
        both = angles.repeat_interleave(2, -1) if flag else torch.cat((angles, angles), dim=-1)
        left = spectrum.attention_factor
        tensors = {"freqs": both[:, None, None, :].contiguous()}
        return Exit(form, tensors, {"interleaved": flag}, columns.rotary_dim, left)
    cosine, sine = tables(where, Steps.of(spectrum, where.device), dtype)
    cosine, sine = _padded(cosine, columns, 1.0), _padded(sine, columns, 0.0)
    tensors, flags = _NAMED[form](cosine, sine, flag, columns.rotary_dim)
    return Exit(form, tensors, flags, columns.rotary_dim, 1.0)


_NAMED: dict[str, Any] = {
    "flash_attn": lambda cos, sin, interleaved, _: (
        {"cos": cos, "sin": sin},
        {"interleaved": interleaved},
    ),
    "vllm": lambda cos, sin, interleaved, _: (
        {"cos_sin_cache": torch.cat((cos, sin), dim=-1)},
        {"is_neox_style": not interleaved},
    ),
    "onnx": lambda cos, sin, interleaved, rotary_dim: (
        {"cos_cache": cos, "sin_cache": sin},
        {"interleaved": int(interleaved), "rotary_embedding_dim": rotary_dim},
    ),
}


def _angles(where: Tensor, spectrum: Spectrum) -> Tensor:
    """float32 angles in [−π, π), which equal the whole turns and lose nothing far out."""
    phases = phase(as_planes(where, spectrum.axes), Steps.of(spectrum, where.device).tensor)
    return (phases.to(torch.float64) * _RADIANS).to(torch.float32)


def _padded(table: Tensor, columns: _Columns, value: float) -> Tensor:
    """Columns for pairs that stand still; attention_factor does not reach them."""
    if not columns.before and not columns.after:
        return table
    return pad(table, (columns.before, columns.after), value=value)


def _columns(form: str, spectrum: Spectrum) -> _Columns:
    """How the consumer's pairs hold those of the spectrum."""
    start, pairs = spectrum.lane_offset, spectrum.pairs
    if spectrum.layout == "interleaved":
        if start % 2 == 0:
            return _Columns(start + 2 * pairs, start // 2, 0)
    else:
        first, second = spectrum.lanes
        distance = second.start - first.start
        if start + pairs <= distance:
            return _Columns(2 * distance, start, distance - start - pairs)
    raise ValueError(
        f"lane_offset={start} does not fit form={form!r}, whose rotation begins at lane 0; give it "
        f"x[..., {start}:] and the tables of "
        f"spectrum.replace(head_dim={spectrum.head_dim - start}, lane_offset=0)"
    )


def _require_fixed(spectrum: Spectrum) -> None:
    require_spectrum(spectrum)
    if isinstance(spectrum, LengthSpectrum) and spectrum.rule is not None:
        raise ValueError(
            "spectrum changes with the length of the sequence, and a table is for one; pass "
            "spectrum.for_length(n)"
        )
    if spectrum.heads is not None:
        raise ValueError(
            f"spectrum has heads={spectrum.heads} with frequencies of their own, and a table "
            "serves all heads; make one for each head, of spectrum.replace(freqs=spectrum.freqs[h])"
        )


def _require_dtype(form: str, dtype: torch.dtype) -> None:
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype={dtype!r} must be a torch.dtype, such as torch.float32")
    takes = (torch.float32,) if form == "transformer_engine" else _DTYPES
    if dtype not in takes:
        names = ", ".join(str(t) for t in takes)
        raise ValueError(f"dtype={dtype} is not what form={form!r} takes; use {names}")


def _counted(length: int, device: torch.device | str | None) -> Tensor:
    """0 … length−1 on ``device``."""
    try:
        return torch.arange(length, device=device)
    except TypeError:
        raise TypeError(f'device={device!r} must be a torch.device, such as "cpu"') from None
    except (RuntimeError, AssertionError) as error:  # an unknown device, or an absent one
        raise ValueError(
            f"length={length} positions cannot be made on device={device!r}: "
            f"{str(error).splitlines()[0]}; use a device that this PyTorch has, and its memory"
        ) from error


def _rows(
    form: str,
    spectrum: Spectrum,
    length: int | None,
    positions: Tensor | None,
    device: torch.device | str | None,
) -> Tensor:
    """The int64 positions of the rows."""
    axes = spectrum.axes
    if (length is None) == (positions is None):
        raise ValueError("give either length, for rows 0 … length−1, or positions, one for a row")
    if positions is None:
        if axes > 1:
            raise ValueError(
                f"length={length} counts on one axis and spectrum has axes={axes}; pass positions "
                f"[tokens, {axes}], such as ropewalk.positions.grid(height, width)"
            )
        assert length is not None
        check_int("length", length, at_least=1, at_most=FARTHEST)
        return _counted(length, device)
    where = integer_positions(positions, axes)
    if device is not None:
        raise ValueError(f"device={device} goes with length; positions are on {positions.device}")
    lead = where.dim() - (1 if axes == 1 else 2)
    if lead > (1 if form == "onnx" else 0):
        one = "[tokens]" if axes == 1 else f"[tokens, {axes}]"
        raise ValueError(
            f"positions have shape {tuple(where.shape)}; form={form!r} has rows {one} for all: "
            "flatten the batch, or make a table for each row of it"
        )
    return where
