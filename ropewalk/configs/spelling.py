"""Findings about how the file as a whole is spelt."""

from __future__ import annotations

from collections.abc import Mapping

from ropewalk.configs.findings import spelling
from ropewalk.configs.kinds import tell_not_stated
from ropewalk.configs.parameters import THETA, Parameters
from ropewalk.configs.reader import Reader
from ropewalk.configs.turned import Rotation

OLD_DEFAULT = 10000.0
"""What most classes of transformers 4 take for a missing rope_theta."""


def tell_spelling(
    reader: Reader, sets: Mapping[str, Parameters], rotations: Mapping[str, Rotation]
) -> None:
    """Tell of files that only one generation of programs reads, or that say nothing."""
    tell_not_stated(reader, next(iter(sets.values()))[THETA])
    if reader.facts.newer or not _only_new(reader):
        return  # no older program could read the file anyway
    said = []
    for label, own in sets.items():
        theta, rotation = own[THETA], rotations.get(label)
        usual = reader.facts.lacking(label, THETA) or OLD_DEFAULT
        if theta.key and theta.value != usual:
            said.append(f"theta={theta.value:g}")
        if rotation is not None and rotation.factor is not None:
            said.append(f"{rotation.kind.value} factor={rotation.factor.value:g}")
    if said:
        reader.notes.add(
            spelling.ONLY_NEW_SPELLING,
            "rope_parameters",
            what=" and ".join(dict.fromkeys(said)),
            old_theta=reader.facts.lacking(next(iter(sets)), THETA) or OLD_DEFAULT,
        )


def _only_new(reader: Reader) -> bool:
    """Whether rope_parameters stands alone, without the keys that transformers 4 reads."""
    block = reader.raw("rope_parameters")
    if block is None or block.key != "rope_parameters" or reader.raw("rope_scaling") is not None:
        return False
    old = [key for key in reader.goes_to if "theta" in key or "base" in key]
    return not any(reader.raw(key) is not None for key in old)
