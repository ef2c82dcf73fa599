"""Native, scaled and declared lengths, told apart."""

from __future__ import annotations

from collections.abc import Mapping

from ropewalk.configs.findings import lengths
from ropewalk.configs.parameter import LONGEST
from ropewalk.configs.parameters import expanded
from ropewalk.configs.reader import Reader, whole
from ropewalk.configs.resolved import Context
from ropewalk.configs.turned import Rotation
from ropewalk.configs.types import ORIGINAL
from ropewalk.configs.value import Value

TRAINED = ("max_trained_positions", "original_max_position_embeddings")
NEAR = 0.02
"""Lengths within this share of each other count as the same."""

USUAL = tuple(1 << n for n in range(9, 25)) + tuple(
    k << n for k in (3, 5, 25) for n in range(12, 20)
)
"""Lengths that models have: powers of two, and 3, 5 or 25 times one."""


def declared_of(reader: Reader) -> Value | None:
    """The length that the file, or else its class, declares."""
    return reader.size("max_position_embeddings")


def context_of(reader: Reader, declared: Value | None, rotations: list[Rotation]) -> Context:
    """The three lengths, with findings where they do not fit."""
    _suspicious(reader)
    main = max(rotations, key=_reach, default=None)
    trained = None
    if (stated := reader.raw(*TRAINED)) is not None:
        trained = whole(stated, reader.notes, at_most=LONGEST)
    native = declared if main is None or main.original is None else main.original
    if trained is not None and (main is None or main.original is None):
        native = trained
    scaled = _scaled(main, native, declared)
    readings = () if main is None else _compare(reader, main, native, declared)
    return Context(
        None if native is None else native.value,
        scaled,
        None if declared is None else declared.value,
        declared is not None and declared.key is not None,
        readings,
    )


def _reach(rotation: Rotation) -> float:
    return float(rotation.factor.value) if rotation.factor is not None else 1.0


def _scaled(main: Rotation | None, native: Value | None, declared: Value | None) -> int | None:
    """Where the scaling reaches: factor × original, or what is declared."""
    whole_length = None if declared is None else int(declared.value)
    if main is None or main.factor is None or native is None:
        return whole_length
    if main.kind.value in ("llama3", "alpha"):
        return whole_length
    if main.original is None and native.key is None:
        return whole_length
    reach = float(native.value) * float(main.factor.value)
    if not 1 <= reach < LONGEST:
        return whole_length
    return round(reach)


def _compare(
    reader: Reader, main: Rotation, native: Value | None, declared: Value | None
) -> tuple[tuple[int, int], ...]:
    if native is None or declared is None or main.factor is None:
        return ()
    original, factor, length = native.value, float(main.factor.value), declared.value
    kind = main.kind.value
    if kind in ("linear", "dynamic") and main.original in (None, declared):
        if factor > 1 and declared.key:
            reader.notes.add(
                lengths.TWO_READINGS,
                main.factor,
                rope_type=kind,
                factor=factor,
                declared_key=declared.key,
                declared=length,
                scaled=round(length * factor),
                before=round(length / factor),
            )
            return ((length, round(length * factor)), (round(length / factor), length))
        return ()
    if main.original is None:
        return ()
    if original > length and declared.key:
        reader.notes.add(
            lengths.ORIGINAL_ABOVE,
            main.original,
            original=original,
            declared_key=declared.source_key,
            declared=length,
            ratio=round(length / original, 4),
        )
        return ()
    if kind not in ("yarn", "longrope") or not declared.key or length == original:
        return ()
    if abs(original * factor - length) > NEAR * length:
        reader.notes.add(
            lengths.FACTOR_AGAINST_LENGTHS,
            main.factor,
            factor=factor,
            native=original,
            scaled=round(original * factor),
            declared_key=declared.key,
            declared=length,
            ratio=round(length / original, 4),
        )
    return ()


def _suspicious(reader: Reader) -> None:
    """Lengths with the digits of a usual one in another order."""
    places = [reader.raw("max_position_embeddings"), reader.raw(ORIGINAL)]
    for name in ("rope_parameters", "rope_scaling"):
        block = reader.store.get(name)
        places += [] if block is None else _originals(block)
    for place in places:
        if place is None or type(place.value) is not int or not 512 <= place.value < LONGEST:
            continue
        length = place.value
        if length % 256 == 0:
            continue
        digits = sorted(str(length))
        likely = next((p for p in USUAL if sorted(str(p)) == digits), None)
        if likely is not None:
            reader.notes.add(
                lengths.SUSPICIOUS, place, key=place.source_key, value=length, likely=likely
            )


def _originals(block: Value) -> list[Value]:
    """The original lengths in a block and in the sets that it may hold."""
    if not isinstance(block.value, Mapping):
        return []
    found = []
    for key, item in expanded(block).items():
        if key == ORIGINAL:
            found.append(item)
        elif isinstance(item.value, Mapping):
            found += [own for name, own in expanded(item).items() if name == ORIGINAL]
    return found
