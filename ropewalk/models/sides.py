"""The two sides of a move: what rotated keys, and what shall have rotated them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ropewalk.encodings.rotary.rope import PHASES, Phases, RoPE
from ropewalk.kernels import Steps
from ropewalk.spectra import Spectrum
from ropewalk.spectra.by_length import LengthSpectrum


@dataclass(frozen=True)
class Side:
    """One side of a move: a spectrum, and how positions and its frequencies are multiplied."""

    spectrum: Spectrum
    phases: Phases

    @staticmethod
    def of(name: str, source: object, phases: object, length: int | None = None) -> Side:
        """The side that a Spectrum or Steps with ``phases`` describes, or a RoPE; at ``length``.

        Raises:
            TypeError: it is something else, or an encoding that is no fixed rotation.
            ValueError: ``phases`` is unknown or does not fit, or a length is to be pinned first.
        """
        if phases not in PHASES:
            raise ValueError(f"phases={phases!r} is unknown; use one of {PHASES}")
        if isinstance(source, RoPE):
            own = type(source)
            if own.encode_k is not RoPE.encode_k or own.encode_q is not RoPE.encode_q:
                raise TypeError(f"{name} is a {own.__name__}, {_NO_ROTATION}")
            source, phases = source.spectrum, source.phases
        elif isinstance(source, Steps):
            source = source.spectrum
        if not isinstance(source, Spectrum):
            what = f"{name} is a {type(source).__name__}"
            if isinstance(source, torch.nn.Module):
                raise TypeError(f"{what}, {_NO_ROTATION}")
            raise TypeError(f"{what}; give the Spectrum (or RoPE) that keys are rotated by")
        if length is not None:
            source = source.for_length(length)
        if isinstance(source, LengthSpectrum) and source.rule is not None:
            raise ValueError(
                f"{name} depends on the length, and so do keys rotated by it; pin the length that "
                f"they were rotated at: {name}.for_length(n)"
            )
        if phases == "float32" and source.unit != 1.0:
            raise ValueError(
                f"{name} has unit={source.unit!r}; phases='float32' is the product of whole "
                "positions and frequencies: use phases='integer'"
            )
        return Side(source, "float32" if phases == "float32" else "integer")


_NO_ROTATION = (
    "which does more to a key than a fixed rotation: what it did depends on content, or scales "
    "keys apart from their angle, and is not undone by one; compute the keys anew"
)


def _lanes_of(spectrum: Spectrum) -> tuple[tuple[int, ...], tuple[int, ...]]:
    lanes = range(spectrum.head_dim)
    first, second = spectrum.lanes
    return tuple(lanes[first]), tuple(lanes[second])


def require_same_lanes(old: Spectrum, new: Spectrum) -> None:
    """Refuse two spectra that do not turn the same pairs of lanes of the same heads.

    Raises:
        ValueError: they do not.
    """
    for name in ("head_dim", "rotary_dim"):
        a, b = getattr(old, name), getattr(new, name)
        if a != b:
            raise ValueError(
                f"old has {name}={a}, new has {name}={b}: keys hold a rotation of the first and "
                "no trace of the other lanes' pairs; give both the same lanes (a pair that stands "
                "has frequency 0.0), or compute the keys anew"
            )
    if _lanes_of(old) != _lanes_of(new):
        raise ValueError(
            f"old pairs lanes by layout={old.layout!r}, lane_offset={old.lane_offset}, "
            f"pairing={old.pairing!r}, new by layout={new.layout!r}, lane_offset={new.lane_offset},"
            f" pairing={new.pairing!r}: a move turns pairs and moves no lanes; give both the "
            "layout that the keys are in"
        )
    if None not in (old.heads, new.heads) and old.heads != new.heads:
        raise ValueError(
            f"old has frequencies for {old.heads} heads, new for {new.heads}; give both one set "
            "for each KV head, or one set for all"
        )


def ratio(old: Spectrum, new: Spectrum) -> float:
    """The new attention factor over the old one.

    Raises:
        ValueError: keys times it would have no digits left.
    """
    found = new.attention_factor / old.attention_factor
    if not 2.0**-120 < found < 2.0**120:
        raise ValueError(
            f"old has attention_factor={old.attention_factor!r}, new has "
            f"{new.attention_factor!r}: their ratio {found!r} leaves no digits of the keys; "
            "compute the keys anew"
        )
    return found
