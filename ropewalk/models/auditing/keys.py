"""What turns the keys of each layer, seen from outside: lone tokens at chosen positions.

A sequence of one token attends to itself alone, whatever its position, so in every layer all that
depends on the position is the rotation of its key. The key that a layer puts into the cache for a
token at position p is therefore the same linear function of its key at 0 for every token:
the rotation by p.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ropewalk.kernels import rotate
from ropewalk.models.auditing.expected import Expected
from ropewalk.models.auditing.reader import Reader
from ropewalk.spectra import Spectrum

ROWS = 1024
"""Most rows of one call."""


@dataclass(frozen=True)
class Keys:
    """Keys ``[positions, samples, lanes]`` in float64 of one layer; samples are tokens and heads.

    ``noise`` is by how much equal rows of one batch differ.
    """

    positions: tuple[int, ...]
    values: Tensor
    noise: float

    @property
    def scale(self) -> float:
        """The largest number in them."""
        return self.values.abs().max().item() or 1.0


def lone_keys(
    reader: Reader, layers: list[Expected], positions: tuple[int, ...], tokens: Tensor
) -> dict[int, Keys]:
    """The keys of ``tokens``, each alone at each of ``positions``, of every layer that keeps keys.

    All positions are in one batch, so that frequencies chosen by the largest position are one
    choice.
    """
    used = (0, *positions, 0)
    at_once = max(1, ROWS // len(used))
    parts: dict[int, list[Tensor]] = {}
    for chunk in tokens.split(at_once):
        ids = chunk.repeat(len(used))[:, None]
        where = torch.tensor(used, device=ids.device).repeat_interleave(len(chunk))[:, None]
        mask = torch.ones_like(ids)
        cache = reader(ids, where, mask=mask, caching=True, last=1).cache
        held = getattr(cache, "layers", None)
        if held is None:
            raise ValueError("it keeps no cache of keys by layer")
        for layer in layers:
            found = lone_part(held, layer)
            if found is not None:
                heads, width = found.shape[1], found.shape[-1]
                by_row = found[:, :, 0].double().cpu().reshape(len(used), len(chunk) * heads, width)
                parts.setdefault(layer.layer, []).append(by_row)
    made = {}
    for index, pieces in parts.items():
        values = torch.cat(pieces, dim=1)
        noise = (values[0] - values[-1]).abs().max().item()
        made[index] = Keys(used[:-1], values[:-1], noise)
    return made


def lone_part(held: Any, layer: Expected) -> Tensor | None:
    """What of a cache's layer turns: its keys, or the lanes that latent attention keeps apart."""
    if layer.layer >= len(held):
        return None
    keys, values = (getattr(held[layer.layer], n, None) for n in ("keys", "values"))
    if not isinstance(keys, Tensor) or keys.dim() != 4 or not keys.numel() or keys.shape[2] != 1:
        return None
    group = layer.group
    if isinstance(values, Tensor) and layer.rotates and keys.shape[-1] != group.head_dim:
        latent = values.dim() == 4 and values.shape[1] == 1
        if latent and values.shape[-1] == group.rotary_dim:
            return values
    return keys


def turned(keys: Keys, spectra: tuple[Spectrum, ...]) -> Tensor:
    """The keys that exact rotations of those at position 0 give, and where those apply."""
    exact = keys.values[:1].expand_as(keys.values)
    for spectrum in fitting(spectra, keys.values.shape[-1]):
        where = torch.tensor(keys.positions)
        if spectrum.axes > 1:
            where = where[:, None].expand(-1, spectrum.axes)
        exact = rotate(exact.movedim(1, 0), where, spectrum).movedim(0, 1)
    return exact


def fitting(spectra: tuple[Spectrum, ...], width: int) -> tuple[Spectrum, ...]:
    """The spectra for keys of ``width`` lanes: those of latent attention are kept by themselves.

    Raises:
        ValueError: they are for keys of another width.
    """
    for spectrum in spectra:
        if width not in (spectrum.head_dim, spectrum.rotary_dim):
            raise ValueError(
                f"cached keys have {width} lanes, those of the config {spectrum.head_dim}"
            )
    return tuple(
        s if width == s.head_dim else s.replace(head_dim=s.rotary_dim, lane_offset=0)
        for s in spectra
    )


def allowed(dtype: torch.dtype, position: int, keys: Keys) -> float:
    """By how much of their size keys at ``position`` may miss an exact rotation.

    Angles are float32 products, the rest is rounding in ``dtype``.
    """
    eps = torch.finfo(dtype).eps
    rounding = 3 * eps if eps > 1e-4 else 8 * max(eps, 2.0**-23)
    return rounding + position * 2.0**-22 + 4 * keys.noise / keys.scale
