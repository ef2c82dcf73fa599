"""Scores of both checkpoints on random inputs: q·k after a rotation in the layout of each.

Weights are read anew from the files, head by head; the rotation is ropewalk's in float64.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.kernels import rotate
from ropewalk.models.conversion.names import Part
from ropewalk.models.conversion.plan import Layer
from ropewalk.models.conversion.turns import Turn, order
from ropewalk.spectra import Spectrum

TOKENS = 4
_MATRICES = ("weight", "base_layer.weight")


class Reader:
    """Slices of tensors by name, from the files of one checkpoint."""

    def __init__(self, files: dict[str, Any]) -> None:
        self.files = files

    def rows(self, name: str, start: int, count: int, axis: int = 0) -> Tensor:
        """``count`` entries from ``start`` on along the axis, in float64."""
        tensor = self.files[name].get_slice(name)
        at = slice(start, start + count)
        return (tensor[at] if axis == 0 else tensor[:, at]).to(torch.float64)

    def whole(self, name: str) -> Tensor:
        """A tensor as it is."""
        return self.files[name].get_tensor(name)

    def names(self) -> list[str]:
        """Of all tensors."""
        return list(self.files)


def score_difference(layer: Layer, old: Reader, new: Reader, was: str, to: str) -> float:
    """Largest difference of scores, over the largest score; 0 if all scores are 0."""
    random = torch.Generator().manual_seed(0)
    n, width = len(layer.group.inv_freq), layer.heads.width
    spectra = {
        layout: Spectrum((layer.group.inv_freq,), 2 * n, layout=layout)  # pyright: ignore[reportArgumentType]
        for layout in (was, to)
    }
    positions = torch.randint(0, 100_000, (TOKENS,), generator=random)
    sides = {side: _sides(layer, side) for side in ("q", "k")}
    worst = largest = 0.0
    lanes = torch.tensor(order(width, to))
    for q_name in sides["q"] or [None]:
        for k_name in sides["k"] or [None]:
            scores = []
            seed = random.get_state()
            for reader, layout in ((old, was), (new, to)):
                random.set_state(seed)
                q, k = (
                    _lanes(layer, side, name, reader, random) if name else None
                    for side, name in (("q", q_name), ("k", k_name))
                )
                partner = torch.randn(1, TOKENS, width, generator=random, dtype=torch.float64)
                partner = partner if layout == was else partner[..., lanes]
                q, k = partner if q is None else q, partner if k is None else k
                q, k = (rotate(x, positions, spectra[layout]) for x in (q, k))
                k = k.repeat_interleave(max(1, len(q) // len(k)), 0) if len(k) > 1 else k
                scores.append(q @ k.transpose(-1, -2))
            worst = max(worst, (scores[0] - scores[1]).abs().max().item())
            largest = max(largest, scores[0].abs().max().item())
    return worst / largest if largest else worst


def _sides(layer: Layer, side: str) -> list[str]:
    """The matrices that give q, or k: one for a model, one an adapter."""
    return [
        name
        for name, (part, turn) in layer.turned.items()
        if getattr(turn, side) and part.role in ("q", "k", "qkv", "latent_k") and _is_matrix(part)
    ]


def _is_matrix(part: Part) -> bool:
    parameter = part.parameter
    return parameter in _MATRICES or ("lora_B" in parameter and parameter.endswith("weight"))


def _lanes(layer: Layer, side: str, name: str, reader: Reader, random: torch.Generator) -> Tensor:
    """The rotated lanes of every head for random inputs. ``[heads, tokens, width]``"""
    _, turn = layer.turned[name]
    starts, width = getattr(turn, side), turn.width
    rows = torch.stack([reader.rows(name, start, width) for start in starts])
    x = torch.randn(TOKENS, rows.shape[-1], generator=random, dtype=torch.float64)
    y = x @ rows.transpose(-1, -2)
    bias = name.removesuffix("weight") + "bias"
    if bias in layer.turned:
        y = y + torch.stack([reader.rows(bias, start, width) for start in starts])[:, None]
    for other, (norm, own) in layer.turned.items():
        if norm.role == f"{side}_norm":
            y = _scaled(y, other, norm, own, side, reader)
    return y


def _scaled(y: Tensor, name: str, part: Part, turn: Turn, side: str, reader: Reader) -> Tensor:
    """After the scale or shift of a norm; what it divides by is alike in every layout."""
    starts, width = getattr(turn, side), turn.width
    rows = torch.stack([reader.rows(name, s, width, turn.axis) for s in starts])
    if turn.axis == 1:
        rows = rows[0]
    weight = part.parameter.endswith("weight")
    if part.parameter.startswith("norms."):
        head = int(part.parameter.split(".")[1])
        y = y.clone()
        y[head] = y[head] * rows[0] if weight else y[head] + rows[0]
        return y
    rows = rows[:, None]
    return y * rows if weight else y + rows
