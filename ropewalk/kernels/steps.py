"""Steps: a spectrum's integer frequencies as a tensor."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ropewalk.kernels.opaque import decomposes, opaque
from ropewalk.spectra import Spectrum


def _empty_steps(written: str, device: torch.device | None) -> torch.Tensor:
    return torch.empty_like(torch.tensor(json.loads(written), dtype=torch.int64), device=device)


@opaque("steps(str written, Device? device) -> Tensor", fake=_empty_steps)
def written_steps(written: str, device: torch.device | None) -> torch.Tensor:
    """The int64 tensor of :attr:`Spectrum.written_steps`, for graphs that hold a spectrum.

    Traced as numbers, steps would stand in the graph as Python ints, or even become symbolic sizes;
    as text they reach nothing but this operator.
    """
    return torch.tensor(json.loads(written), dtype=torch.int64, device=device)


@decomposes(written_steps)
def _stacked_steps(written: str, device: torch.device | None) -> torch.Tensor:
    """The same from single numbers, the only constants that a decomposition may hold."""

    def build(numbers: Any) -> torch.Tensor:
        if isinstance(numbers, int):
            return torch.full((), numbers, dtype=torch.int64, device=device)
        return torch.stack([build(n) for n in numbers])

    return build(json.loads(written))


@dataclass(frozen=True)
class Steps:
    """int64 steps ``[axes, pairs]`` or ``[heads, axes, pairs]`` (2⁻⁶⁴ turns per position).

    A pytree: ``tensor`` is its leaf, ``spectrum`` its static context. No float cast reaches it.
    """

    tensor: torch.Tensor
    spectrum: Spectrum

    @staticmethod
    def of(spectrum: Spectrum, device: torch.device | str | None = None) -> Steps:
        """The steps of ``spectrum`` on ``device`` (the default device if None)."""
        if torch.compiler.is_dynamo_compiling():
            where = None if device is None else torch.device(device)
            return Steps(written_steps(spectrum.written_steps, where), spectrum)
        matrices = spectrum.steps if spectrum.heads is not None else spectrum.steps[0]
        return Steps(torch.tensor(matrices, dtype=torch.int64, device=device), spectrum)

    def to(self, device: torch.device | str) -> Steps:
        """The same steps on another device."""
        return Steps(self.tensor.to(device), self.spectrum)


def require_whole(steps: Steps) -> None:
    """Refuse steps that are not those of their spectrum in number; whoever has built them by hand.

    Raises:
        TypeError: no int64 tensor, or no spectrum.
        ValueError: another shape than the spectrum's.
    """
    tensor, spectrum = steps.tensor, steps.spectrum
    remedy = "build them with Steps.of(spectrum, device)"
    if not isinstance(spectrum, Spectrum) or not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"Steps(tensor: {type(tensor).__name__}, spectrum: {type(spectrum).__name__}) needs a "
            f"tensor and a Spectrum; {remedy}"
        )
    if tensor.dtype != torch.int64:
        raise TypeError(f"the tensor of Steps has dtype {tensor.dtype}, not int64; {remedy}")
    heads = () if spectrum.heads is None else (spectrum.heads,)
    wanted = (*heads, spectrum.axes, spectrum.pairs)
    if tuple(tensor.shape) != wanted:
        raise ValueError(
            f"the tensor of Steps has shape {tuple(tensor.shape)}, and its spectrum {wanted}; "
            f"{remedy}"
        )


def _flatten(steps: Steps) -> tuple[list[torch.Tensor], Spectrum]:
    return [steps.tensor], steps.spectrum


def _flatten_with_keys(steps: Steps) -> tuple[list[tuple[Any, Any]], Spectrum]:
    return [(pytree.GetAttrKey("tensor"), steps.tensor)], steps.spectrum


def _unflatten(leaves, spectrum: Spectrum) -> Steps:
    return Steps(next(iter(leaves)), spectrum)


def _to_json(spectrum: Spectrum) -> dict[str, Any]:
    """What an exported program stores; floats survive JSON exactly."""
    return {f.name: getattr(spectrum, f.name) for f in fields(spectrum) if f.init}


def _from_json(stored: dict[str, Any]) -> Spectrum:
    return Spectrum(**stored)


pytree.register_pytree_node(
    Steps,
    _flatten,
    _unflatten,
    serialized_type_name="ropewalk.kernels.Steps",
    flatten_with_keys_fn=_flatten_with_keys,
    to_dumpable_context=_to_json,
    from_dumpable_context=_from_json,
)

# Both are plain data, and a Spectrum checks itself as it is built: weights_only loading may take
# them, which is how an exported program keeps its example inputs.
torch.serialization.add_safe_globals([Steps, Spectrum])
