"""Steps: a spectrum's integer frequencies as a tensor."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree

from ropewalk.spectra import Spectrum


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
        matrices = spectrum.steps if spectrum.heads is not None else spectrum.steps[0]
        return Steps(torch.tensor(matrices, dtype=torch.int64, device=device), spectrum)

    def to(self, device: torch.device | str) -> Steps:
        """The same steps on another device."""
        return Steps(self.tensor.to(device), self.spectrum)


def _flatten(steps: Steps) -> tuple[list[torch.Tensor], Spectrum]:
    return [steps.tensor], steps.spectrum


def _unflatten(leaves, spectrum: Spectrum) -> Steps:
    return Steps(next(iter(leaves)), spectrum)


pytree.register_pytree_node(
    Steps, _flatten, _unflatten, serialized_type_name="ropewalk.kernels.Steps"
)
