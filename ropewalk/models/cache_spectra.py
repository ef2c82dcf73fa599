"""The rotation of every layer of a model: from a spectrum, a list, a config or a live model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ropewalk.configs import LayerGroup, resolve
from ropewalk.configs.resolved import ranges
from ropewalk.encodings.rotary.rope import Phases, RoPE
from ropewalk.kernels import Steps
from ropewalk.models.cached_form import as_cached, require_own_layers
from ropewalk.models.exact import frequencies
from ropewalk.models.sides import Side
from ropewalk.spectra import Spectrum

Sides = tuple[Side, ...]
"""What turns the keys of one layer, in turn; none where nothing does."""

_NO_TURN = frozenset({"none", "alibi", "t5"})
"""Kinds of position that leave keys as they are."""
_ADDED = frozenset({"learned", "sinusoidal"})
_CLOSE = 2e-6
"""By which float32 code misses the frequencies that a config describes, relatively."""


def layer_sides(
    name: str, source: Any, layers: int, length: int | None, phases: Phases
) -> list[Sides]:
    """What turns the keys of each of ``layers`` layers.

    Args:
        name: of the argument, for messages.
        source: a Spectrum, Steps or RoPE for all layers; a list with one of them, None, or several
            a layer; or what :func:`ropewalk.configs.resolve` takes; or a live model, whose config
            says how lanes pair and whose modules hold the frequencies.
        layers: how many the cache has.
        length: pins frequencies that depend on it.
        phases: as in :func:`ropewalk.models.rerotate`.

    Raises:
        TypeError, ValueError: the source does not say what turns these layers.
    """
    if isinstance(source, (Spectrum, Steps, RoPE)):
        return [(Side.of(name, source, phases, length),)] * layers
    if isinstance(source, Sequence) and not isinstance(source, (str, bytes)):
        if len(source) != layers:
            raise ValueError(
                f"{name} has {len(source)} entries, the cache has {layers} layers; give one for "
                "each, None where a layer does not rotate"
            )
        return [
            tuple(Side.of(f"{name}[{i}]", one, phases, length) for one in _listed(entry))
            for i, entry in enumerate(source)
        ]
    live: Live | None = None
    config = source
    if isinstance(source, nn.Module):
        config, live = getattr(source, "config", None), _live(source)
        if config is None:
            raise TypeError(f"{name} is a {type(source).__name__} without a config; give spectra")
    resolved = resolve(config)
    if resolved.errors:
        first = resolved.errors[0]
        raise ValueError(f"{name} has an error, {first.code}: {first.message}; {first.remedy}")
    text = resolved.text()
    described = sum(len(group.layers) for group in text.layers)
    require_own_layers(name, text.model_type, described, layers)
    found: dict[int, Sides] = {}
    for group in text.layers:
        sides = _group_sides(name, group, text.model_type, length, phases, live)
        found.update(dict.fromkeys(group.layers, sides))
    return [found[i] for i in range(layers)]


def _listed(entry: Any) -> tuple[Any, ...]:
    if entry is None:
        return ()
    return tuple(entry) if isinstance(entry, (list, tuple)) else (entry,)


def _group_sides(
    name: str,
    group: LayerGroup,
    model_type: str | None,
    length: int | None,
    phases: Phases,
    live: Live | None,
) -> Sides:
    if group.kind in _NO_TURN:
        return ()
    which = f"{name}: layers {ranges(group.layers)}"
    if group.kind != "rotary":
        added = ": it is in the embeddings and so in the content of every key"
        raise ValueError(
            f"{which} have position of kind {group.kind!r}, which no rotation undoes"
            f"{added if group.kind in _ADDED else ''}; compute the keys anew"
        )
    if group.variants and length is None:
        lengths = ", ".join(f"> {v.above}" for v in group.variants)
        raise ValueError(
            f"{which} have frequencies that depend on the length ({lengths}); say with "
            f"{'length' if name == 'source' else name + '_length'}= at which one keys are rotated"
        )
    if live is not None and not group.variants:
        group = replace(group, inv_freq=_as_live(which, group.inv_freq, live))
    cached = as_cached(group, model_type)
    return tuple(Side.of(name, spectrum, phases) for spectrum in cached.spectra(length))


Live = list[tuple[float, list[float]]]
"""Rounding of the dtype that they are kept in, and the frequencies that modules hold."""


def _live(model: nn.Module) -> Live:
    found = []
    for module in model.modules():
        for buffer in frequencies(module).values():
            if buffer.dim() == 1 and not buffer.is_meta:
                own = buffer.detach().to("cpu", torch.float64).tolist()
                found.append((torch.finfo(buffer.dtype).eps, own))
    return found


def _as_live(which: str, row: tuple[float, ...], live: Live) -> tuple[float, ...]:
    """The model's own frequencies that are those of the config but for rounding."""
    best: tuple[float, list[float]] | None = None
    for eps, own in live:
        if len(own) != len(row):
            continue
        apart = max(abs(a - b) / abs(a) if a else abs(b) for a, b in zip(row, own, strict=True))
        if apart <= _CLOSE + eps and (best is None or apart < best[0]):
            best = apart, own
    if best is None:
        raise ValueError(
            f"{which} have inv_freq {row[0]:.6g}, … {row[-1]:.6g} by the config, and no module of "
            "the model holds these in an inv_freq; give model.config if it computes them "
            "elsewhere, or the spectra that it runs with"
        )
    return tuple(best[1])
