"""What :func:`ropewalk.models.patch` did, where, and what it left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ropewalk.models.exact import Table
from ropewalk.models.places import Place


@dataclass
class Entry:
    """A rotary function of one class, in all modules of that class.

    ``reason`` says why it was left; None where it is fused. ``places`` tell what the modules have
    found out since, such as tables whose copies differ.
    """

    function: str
    owner: str
    form: str | None
    reason: str | None
    modules: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)

    def left(self) -> dict[str, str]:
        """The modules that run the model's own function now, each with its reason."""
        if self.reason is not None:
            return dict.fromkeys(self.modules, self.reason)
        pairs = zip(self.modules, self.places, strict=True)
        return {name: place.left for name, place in pairs if place.left is not None}


@dataclass
class Report:
    """What is patched and what is left as it is now; ``print(report)`` shows it.

    It follows what the first calls find out, and ``unpatch``, after which nothing is fused. True if
    anything is fused, or any table exact.
    """

    model: str
    entries: list[Entry] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    @property
    def patched(self) -> dict[str, list[str]]:
        """Modules whose rotations are fused now, with the functions that are."""
        found: dict[str, list[str]] = {}
        for entry in self.entries:
            left = entry.left()
            for module in entry.modules:
                if module not in left:
                    found.setdefault(module, []).append(entry.function)
        return found

    @property
    def left(self) -> dict[str, str]:
        """``module: function`` for what is not fused, with the reason."""
        return {
            f"{module or self.model}: {entry.function}": reason
            for entry in self.entries
            for module, reason in entry.left().items()
        }

    def __bool__(self) -> bool:
        return bool(self.patched) or any(table.reason is None for table in self.tables)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        fused, left = self.patched, self.left
        if self.entries:
            yield f"{self.model}: rotations fused in {len(fused)} modules, {len(left)} left"
        else:
            yield f"{self.model}: nothing to patch, no rotation of q and k was found"
        for entry in self.entries:
            kept = entry.left()
            count = len(entry.modules) - len(kept)
            if count:
                yield f"  fused  {entry.owner} × {count}: {entry.function} ({entry.form})"
            for reason in sorted(set(kept.values())):
                names = [name or "the model" for name, why in kept.items() if why == reason]
                where = names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
                yield f"  left   {entry.owner}: {entry.function} in {where}: {reason}"
        yield from (f"  {table}" for table in self.tables)
