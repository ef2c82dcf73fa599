"""Frequencies that a checkpoint holds, compared with those of a spectrum."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.spectra import Spectrum


def difference(stored: Tensor, spectrum: Spectrum) -> str | None:
    """How a checkpoint's ``inv_freq`` differs from ``spectrum``, in words; None if it does not."""
    if stored.device.type == "meta" or not stored.dtype.is_floating_point:
        return f"is {stored.dtype} on {stored.device}; it must hold floating values to compare"
    own = torch.tensor(spectrum.freqs, dtype=torch.float64, device="cpu").squeeze()
    held = stored.detach().to("cpu", torch.float64).squeeze()
    if held.shape != own.shape:
        return f"has shape {tuple(stored.shape)}; the spectrum has {tuple(own.shape)}"
    # float32 code computes base^(2c/d) up to 6e-7 off, whatever dtype it is stored in, and
    # below its smallest normal number a dtype rounds to a fixed spacing
    kind = torch.finfo(stored.dtype)
    allowed = (2e-6 + kind.eps) * own.abs() + kind.eps * kind.smallest_normal
    apart = (held - own).abs()
    if bool((apart <= allowed).all()):
        return None
    relative = (apart / own.abs().clamp_min(1e-300)).masked_fill(apart <= allowed, 0.0)
    pair = int(relative.reshape(-1).argmax())
    return (
        f"differs from the spectrum by {relative.reshape(-1)[pair]:.2g} relative at pair "
        f"{pair}: checkpoint {held.reshape(-1)[pair]:.6g}, spectrum "
        f"{own.reshape(-1)[pair]:.6g}; build the encoding with the checkpoint's base and "
        "scaling"
    )
