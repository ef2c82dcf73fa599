"""Reads the parameters of one rope_type, telling what is missing or wrong."""

from __future__ import annotations

from ropewalk.configs.findings import lanes, lengths, numbers, spelling
from ropewalk.configs.parameters import Parameters
from ropewalk.configs.reader import Reader, number, numbers_of, whole
from ropewalk.configs.types import ORIGINAL
from ropewalk.configs.value import ASSUMED, Value

LARGEST_FACTOR = 1 << 20
LONGEST = 1 << 40
"""A length above this is a mistake; nothing is computed at it."""


class Parameter:
    """Reads the parameters of one set, telling what is missing or wrong."""

    def __init__(self, reader: Reader, own: Parameters, kind: Value) -> None:
        self.reader, self.own, self.kind, self.notes = reader, own, kind, reader.notes
        self.usable = True

    def number(self, key: str) -> Value | None:
        """A finite number, if the file has one."""
        value = self.own.get(key)
        return None if value is None or value.value is None else number(value, self.notes)

    def positive(self, key: str, usual: float | None = None) -> Value | None:
        """A number above 0; ``usual`` if there is none."""
        found = self.number(key)
        if found is not None and not found.value > 0:
            self.notes.add(
                numbers.OUT_OF_RANGE,
                found,
                key=found.source_key,
                value=found.value,
                expected="above 0",
            )
            found = None
        return found or (None if usual is None else Value(usual, "class default"))

    def need(self, key: str) -> Value | None:
        """A number above 0 without which the type means nothing."""
        found = self.positive(key)
        if found is None:
            self.usable = False
            value = self.own.get(key)
            if value is None or value.value is None:
                self.notes.add(
                    spelling.MISSING_KEY, block_key(self.kind), rope_type=self.kind.value, key=key
                )
        return found

    def factor(self, key: str = "factor") -> Value | None:
        """The factor; one below 1 is told."""
        found = self.need(key)
        if found is not None and found.value > LARGEST_FACTOR:
            self.notes.add(
                numbers.OUT_OF_RANGE,
                found,
                key=found.source_key,
                value=found.value,
                expected=f"at most {LARGEST_FACTOR}",
            )
            return None
        if found is not None and found.value < 1:
            self.notes.add(
                numbers.FACTOR_BELOW_ONE,
                found,
                key=found.source_key,
                value=found.value,
                faster=1 / found.value,
                inverse=1 / found.value,
            )
        return found

    def original(self, declared: Value | None, *, needed: bool = True) -> Value | None:
        """The original length: of the block, of the file, or the declared one, told."""
        outer = self.reader.raw(ORIGINAL)
        inner = self.own.get(ORIGINAL)
        given = outer if outer is not None else inner
        if outer is not None and inner is not None and inner.value not in (None, outer.value):
            self.notes.add(
                spelling.TWO_SPELLINGS,
                inner,
                first_key=outer.source_key,
                first=outer.value,
                second_key=inner.source_key,
                second=inner.value,
                used=outer.source_key,
            )
        if given is not None and given.value is not None:
            found = whole(given, self.notes, at_most=LONGEST)
            if found is not None:
                return found
        default = self.reader.facts.default(ORIGINAL)
        if default is not None and needed:
            return Value(default, "class default")
        if declared is not None and needed:
            self.notes.add(
                lengths.ORIGINAL_MISSING,
                block_key(self.kind),
                rope_type=self.kind.value,
                declared_key=declared.source_key,
                declared=declared.value,
                effect=self._effect(declared.value),
            )
            return Value(declared.value, ASSUMED)
        if needed:
            self.notes.add(
                spelling.MISSING_KEY, block_key(self.kind), rope_type=self.kind.value, key=ORIGINAL
            )
        return None

    def _effect(self, length: int) -> str:
        """What comes of ``length`` in the place of the original one."""
        if self.kind.value == "llama3":
            return "decides which pairs are divided and which are kept"
        factor = self.positive("factor")
        window = "unknown" if factor is None else round(length * factor.value)
        return f"makes the window {window}"

    def divisors(self, key: str, pairs: int) -> tuple[float, ...] | None:
        """A list with a number for each pair."""
        value = self.own.get(key)
        if value is None or value.value is None:
            self.notes.add(
                spelling.MISSING_KEY, block_key(self.kind), rope_type=self.kind.value, key=key
            )
            return None
        found = numbers_of(value, self.notes)
        if found is not None and len(found) != pairs:
            self.notes.add(
                lanes.LIST_LENGTH,
                value,
                key=value.source_key,
                length=len(found),
                rotary_dim=2 * pairs,
                pairs=pairs,
            )
            return None
        return found


def block_key(kind: Value) -> str | None:
    """The key path of the object that a rope_type stands in."""
    key = kind.key
    return key.rsplit(".", 1)[0] if key and "." in key else key
