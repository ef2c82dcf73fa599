"""Frequencies and factors of one set of layers, from its parameters and lanes."""

from __future__ import annotations

from ropewalk import spectra
from ropewalk.configs.findings import lanes, numbers
from ropewalk.configs.lanes import Lanes
from ropewalk.configs.parameter import Parameter, block_key
from ropewalk.configs.parameters import THETA, Parameters
from ropewalk.configs.reader import Reader
from ropewalk.configs.scalings import SCALE
from ropewalk.configs.turned import Rotation
from ropewalk.configs.types import tell_unread, type_of
from ropewalk.configs.value import Value
from ropewalk.spectra import Spectrum
from ropewalk.spectra.geometric import powers


def rotation(reader: Reader, own: Parameters, lane: Lanes, declared: Value | None) -> Rotation:
    """The rotation that the parameters describe; without frequencies if they cannot be computed."""
    kind = type_of(reader, own)
    if lane.proportional and kind.value == "default":
        kind = Value("proportional", kind.source)
    tell_unread(reader, kind, own)
    parameter = Parameter(reader, own, kind)
    result = Rotation(kind, None, None)
    try:
        result.plain = _plain(own, lane, kind)
        SCALE[kind.value](result, parameter, lane, declared)
        if result.spectrum is None:
            result.spectrum = result.plain
        _divided(result, reader)
    except (ValueError, TypeError, OverflowError, ZeroDivisionError) as error:
        reader.notes.add(numbers.UNCOMPUTABLE, block_key(kind), reason=str(error)[:300])
    return result


def _plain(own: Parameters, lane: Lanes, kind: Value) -> Spectrum:
    """The unscaled frequencies."""
    head, theta = lane.head_dim.value, float(own[THETA].value)
    layout = lane.layout.value
    if kind.value == "proportional":
        share = own.get("partial_rotary_factor")
        fraction = 1.0 if share is None or share.value is None else float(share.value)
        plain = spectra.proportional(head, theta, fraction=fraction, layout=layout)
        return plain.replace(pairing="proportional") if layout == "half" else plain
    row = powers(theta, lane.pairs, lane.span)
    return Spectrum((row,), head, layout=layout, lane_offset=lane.lane_offset)


def _divided(result: Rotation, reader: Reader) -> None:
    """Divisors that stand in the file pair by pair, as GGUF has them."""
    stated = reader.store.get("@divisors")
    if stated is None or result.spectrum is None or result.kind.value == "longrope":
        return
    row = result.spectrum.inv_freq
    if len(stated.value) != len(row):
        reader.notes.add(
            lanes.LIST_LENGTH,
            stated,
            key=stated.source_key,
            length=len(stated.value),
            rotary_dim=2 * len(row),
            pairs=len(row),
        )
        return
    divided = tuple(f / d if d else f for f, d in zip(row, stated.value, strict=True))
    result.spectrum = result.spectrum.replace(freqs=(divided,))
    if result.kind.value == "default":
        result.kind = Value("llama3", stated.source)
