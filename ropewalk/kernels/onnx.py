r"""Rotations in ONNX graphs: as plain operators, or as ONNX's own ``RotaryEmbedding``.

``torch.onnx.export(model, args, dynamo=True)`` needs nothing from here: phases have decompositions
into operators that every opset has (:mod:`ropewalk.kernels.portable`). From opset 23 ONNX has an
operator for the rotation itself, which takes the first ``rotary_dim`` lanes of
``[batch, heads, tokens, head_dim]`` in the half or interleaved layout, with cos and sin that all
heads share. :func:`translations` uses it for the rotations that it fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ropewalk.kernels.opaque import decomposes, opaque

FIRST_OPSET = 23
"""The first ONNX opset with RotaryEmbedding."""


def _plain(x: Tensor, cosine: Tensor, sine: Tensor, interleaved: bool) -> Tensor:
    pairs = cosine.shape[-1]
    if interleaved:
        first, second = x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
    else:
        first, second = x[..., :pairs], x[..., pairs : 2 * pairs]
    turned = (first * cosine - second * sine, first * sine + second * cosine)
    if interleaved:
        turned = (torch.stack(turned, dim=-1).flatten(-2),)
    rest = () if x.shape[-1] == 2 * pairs else (x[..., 2 * pairs :],)
    return torch.cat((*turned, *rest), dim=-1)


@opaque(
    "rotary_embedding(Tensor x, Tensor cosine, Tensor sine, bool interleaved) -> Tensor",
    fake=lambda x, cosine, sine, interleaved: x.new_empty(x.shape),
)
def rotary_embedding(x: Tensor, cosine: Tensor, sine: Tensor, interleaved: bool) -> Tensor:
    """float32 x ``[batch, heads, tokens, head_dim]`` turned; only graphs for ONNX hold it."""
    return _plain(x, cosine, sine, interleaved)


decomposes(rotary_embedding)(_plain)


def turn_for_onnx(
    x: Tensor, cosine: Tensor, sine: Tensor, lanes: tuple[slice, slice]
) -> Tensor | None:
    """The rotation as :func:`rotary_embedding`; None if it does not fit, or nothing is exported."""
    if not torch.compiler.is_exporting() or not torch.onnx.is_in_onnx_export():
        return None
    first, second = lanes
    interleaved = first.step == 2
    leading = first.start == 0 and second.start == (1 if interleaved else first.stop)
    shared = cosine.dim() == 2 or (cosine.dim() == x.dim() == 4 and cosine.shape[-3] == 1)
    if x.dtype == torch.float64 or x.dim() not in (3, 4) or not leading or not shared:
        return None
    wide = (x if x.dim() == 4 else x.unsqueeze(0)).to(torch.float32)
    cosine, sine = cosine.to(torch.float32), sine.to(torch.float32)
    turned = rotary_embedding(wide, cosine, sine, interleaved)
    return (turned if x.dim() == 4 else turned.squeeze(0)).to(x.dtype)


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Translations to ONNX's RotaryEmbedding, for opset 23 and later.

    ``torch.onnx.export(model, args, opset_version=23, custom_translation_table=translations())``

    Rotations that RotaryEmbedding does not fit (float64, other lanes, frequencies per head) become
    plain operators. Halves are widened to float32 and rounded once, as everywhere in ropewalk.

    Raises:
        ModuleNotFoundError: onnxscript is missing.
        ValueError: in the export, if its opset_version is below 23.
    """
    try:
        from onnxscript import evaluator, opset23
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "translations to ONNX need onnxscript; pip install 'ropewalk[onnx]'"
        ) from error
    op: Any = opset23

    def translate(x: Any, cosine: Any, sine: Any, interleaved: bool) -> Any:
        target = getattr(evaluator.default(), "opset", op).version
        if target < FIRST_OPSET:
            raise ValueError(
                f"opset_version={target} has no RotaryEmbedding; pass opset_version={FIRST_OPSET}, "
                "or leave out custom_translation_table"
            )
        one, rotary_dim = op.Constant(value_ints=[1]), 2 * int(cosine.shape[-1])
        rows = op.Concat(op.Shape(x, start=0, end=1), op.Shape(x, start=2, end=3), one, axis=0)
        if len(cosine.shape) == 4:
            cosine, sine = op.Squeeze(cosine, one), op.Squeeze(sine, one)
        return op.RotaryEmbedding(
            x,
            op.Expand(cosine, rows),
            op.Expand(sine, rows),
            interleaved=int(interleaved),
            rotary_embedding_dim=rotary_dim,
        )

    return {rotary_embedding: translate}
