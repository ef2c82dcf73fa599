"""Frequencies that depend on the length: what that does to caches, batches and later calls."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ropewalk.configs.findings.finding import Kind
from ropewalk.models.auditing.by_design import CROSSING
from ropewalk.models.auditing.caching import in_pieces
from ropewalk.models.auditing.compare import difference
from ropewalk.models.auditing.kinds import results as kinds
from ropewalk.models.auditing.report import Check
from ropewalk.models.auditing.subject import SHORT, Subject, pair, tried

_REACH = 4
"""Tokens on either side of the length that is crossed."""


def check_crossing(subject: Subject, length: int) -> Check:
    """Cached decoding over the original length, at far positions, against the full pass."""
    reader = subject.reader

    def run(check: Check) -> str | None:
        reason = _refusal(subject)
        if reason is not None or reader.cached is None:
            return reason or "it keeps no cache"
        start = max(0, length - _REACH)
        where = torch.arange(start, start + 2 * _REACH)
        ids = reader.tokens(1, 2 * _REACH)
        pieces = in_pieces(reader, ids, (_REACH - 1, 1, 1, _REACH - 1), where)
        subject.state.restore()
        full = reader(ids, subject.positions(where)).values
        if pieces is None:
            return "it returns no cache"
        apart = difference(pieces, full)
        check.figures = {"largest": apart, "length": length}
        hint = f", at positions from {start} to {start + 2 * _REACH - 1}"
        if apart > subject.allowed:
            _tell(check, subject, apart, kinds.CACHED_BY_LENGTH, {"length": length},
                  kinds.CACHED_UNLIKE, {"hint": hint})  # fmt: skip
        return None

    return tried(CROSSING, subject, run)


def check_far_neighbour(subject: Subject, length: int) -> Check:
    """A short row beside one that reaches past the original length."""
    reader = subject.reader

    def run(check: Check) -> str | None:
        reason = _refusal(subject)
        if reason is not None:
            return reason
        ids, near = reader.tokens(2, SHORT), torch.arange(SHORT)
        plain = reader(ids, subject.positions(near, near)).values[0]
        apart = difference(reader(ids, subject.positions(near, near + length)).values[0], plain)
        check.figures = {"largest": apart, "length": length}
        hint = f" where the other row is at positions from {length} on"
        if apart > subject.allowed:
            _tell(check, subject, apart, kinds.NEIGHBOURS_BY_LENGTH, {"length": length},
                  kinds.NEIGHBOURS, {"hint": hint})  # fmt: skip
        return None

    return tried("short rows beside long ones", subject, run)


def check_growth(subject: Subject, length: int) -> Check:
    """A call past the original length, before and after a still longer one."""
    reader = subject.reader

    def run(check: Check) -> str | None:
        reason = _refusal(subject)
        if reason is not None:
            return reason
        ids, near = reader.tokens(1, SHORT), torch.arange(SHORT)
        here, there = length + length // 2 - SHORT, 4 * length
        plain = reader(ids, subject.positions(near + here)).values
        reader(ids, subject.positions(near + there))
        apart = difference(reader(ids, subject.positions(near + here)).values, plain)
        check.figures = {"largest": apart, "length": here + SHORT, "longer": there + SHORT}
        if apart > subject.allowed:
            lengths = {"longer": there + SHORT, "length": here + SHORT}
            after = f"one at positions from {there} on"
            _tell(check, subject, apart, kinds.HISTORY_BY_LENGTH, lengths,
                  kinds.HISTORY, {"after": after})  # fmt: skip
        return None

    return tried("no memory of longer calls", subject, run)


def _tell(
    check: Check,
    subject: Subject,
    apart: float,
    by_length: Kind,
    lengths: Mapping[str, int],
    otherwise: Kind,
    words: Mapping[str, str],
) -> None:
    """A warning where the config asks for such a scaling, and an error where it does not."""
    shown = pair(apart, subject.allowed)
    if subject.scaling is None:
        check.find(otherwise, None, **shown, **words)
    else:
        own = {"difference": shown["difference"], "scaling": subject.scaling}
        check.find(by_length, None, **own, **lengths)


def _refusal(subject: Subject) -> str | None:
    if "position_ids" not in subject.reader.takes:
        return "its forward takes no position_ids"
    held = {group.kind for group in subject.groups}
    if not held <= {"rotary", "none", "alibi", "t5"}:
        return f"position of kind {', '.join(sorted(held))} ends with its table"
    return None
