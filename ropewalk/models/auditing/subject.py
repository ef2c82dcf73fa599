"""A model whose results are compared, and the way one check of them is made."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ropewalk.configs import Resolved
from ropewalk.models.auditing.by_design import excused
from ropewalk.models.auditing.compare import Rounding, difference
from ropewalk.models.auditing.reader import Reader
from ropewalk.models.auditing.report import Check
from ropewalk.models.auditing.state import State

SHORT = 12
"""Tokens of a short text."""
_RECURRENT = re.compile(r"mamba|ssm|recurrent|lightning|linear_attn|conv|deltanet|rwkv", re.I)


@dataclass(frozen=True)
class Subject:
    """A model under test: how to read with it, its config, what it was, and its rounding.

    ``first`` is the position id of the first token: 0, but a row of the table in models whose
    ids are rows (RoBERTa).
    """

    reader: Reader
    resolved: Resolved
    state: State
    rounding: Rounding
    first: int = 0

    @property
    def allowed(self) -> float:
        """By how much results may differ."""
        return self.rounding.allowed

    def positions(self, *values: Tensor) -> Tensor | None:
        """position_ids ``[batch, tokens]`` of positions counted from 0, or None for a model that
        takes none."""
        if "position_ids" not in self.reader.takes:
            return None
        return torch.stack(values).to(self.reader.device) + self.first

    @property
    def groups(self) -> tuple[Any, ...]:
        """The groups of layers of the text part."""
        return self.resolved.text().layers

    @property
    def scaling(self) -> str | None:
        """The rope_type by which frequencies depend on the length, if any does."""
        return next((g.rope_type for g in self.groups if g.variants), None)


def first_id(reader: Reader, resolved: Resolved) -> int:
    """The position id that the model itself gives to its first token: of 0 and the row of the
    table that the config gives it, the one that changes results less."""
    rows = {group.details.get("row_of_first_position", 0) for group in resolved.text().layers}
    candidates = sorted({0, *rows})
    if len(candidates) == 1 or "position_ids" not in reader.takes:
        return 0
    ids, where = reader.tokens(1, SHORT), torch.arange(SHORT, device=reader.device)[None]
    plain = reader(ids).values
    return min(candidates, key=lambda n: difference(reader(ids, where + n).values, plain))


def pair(value: float, limit: float) -> dict[str, str]:
    """A difference and what is allowed, for a message."""
    return {"difference": f"{value:.2g}", "allowed": f"{limit:.1g}"}


def tried(name: str, subject: Subject, run: Callable[[Check], str | None]) -> Check:
    """One check from the state that the model was found in; ``run`` may say why it does not apply.

    A call that the model refuses is a reason too: it is told, not judged.
    """
    check = Check(name)
    reason = excused(subject.resolved.text().model_type, name)
    if reason is not None:
        return Check.skipped(name, reason)
    subject.state.restore()
    try:
        reason = run(check)
    except Exception as error:
        reason = (
            f"the model refuses it: {type(error).__name__}: {' '.join(str(error).split())[:160]}"
        )
    finally:
        subject.state.restore()
    return check if reason is None else Check.skipped(name, reason)


def recurrent(reader: Reader) -> bool:
    """Whether any layer keeps a state that is no list of keys."""
    return any(_RECURRENT.search(type(m).__name__) for m in reader.model.modules())
