"""What must not change results: padding, packing, neighbours, moving, earlier calls."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ropewalk.models.auditing.by_design import PACKING, PADDING, SHIFT
from ropewalk.models.auditing.caching import in_pieces
from ropewalk.models.auditing.compare import difference
from ropewalk.models.auditing.kinds import results as kinds
from ropewalk.models.auditing.reader import Reader
from ropewalk.models.auditing.report import Check
from ropewalk.models.auditing.subject import SHORT, Subject, pair, recurrent, tried
from ropewalk.positions import left_padded

# --- padding and packing ------------------------------------------------------------------------


def check_padding(subject: Subject) -> Check:
    """A prompt behind left padding, and without it."""
    reader = subject.reader

    def run(check: Check) -> str | None:
        if "attention_mask" not in reader.takes:
            return "its forward takes no attention_mask"
        ids = reader.tokens(2, SHORT)
        gap = 3
        padded = torch.cat([reader.tokens(1, gap, seed=1).expand(2, -1), ids], dim=1)
        padded[0] = torch.cat([ids[0], reader.tokens(1, gap, seed=2)[0]])
        mask = torch.ones_like(padded)
        mask[1, :gap] = 0
        counted = left_padded(mask)
        where = subject.positions(*counted)
        found = reader(padded, where, mask=mask).values[1, gap:]
        plain = reader(ids).values[1]
        apart = difference(found, plain)
        check.figures = {"largest": apart}
        if apart > subject.allowed:
            check.find(kinds.PADDED_UNLIKE, None, **pair(apart, subject.allowed))
        return None

    return tried(PADDING, subject, run)


def check_packing(subject: Subject) -> Check:
    """Two samples in one row, and each alone."""
    reader = subject.reader

    def run(check: Check) -> str | None:
        if "position_ids" not in reader.takes:
            return "its forward takes no position_ids, so samples cannot be packed"
        first, second = reader.tokens(1, 5), reader.tokens(1, 4, seed=1)
        alone = torch.cat([reader(first).values, reader(second).values], dim=1)
        packed = torch.cat([first, second], dim=1)
        where = subject.positions(torch.cat([torch.arange(5), torch.arange(4)]))
        ways: dict[str, float] = {}
        for way, mask in (("by position_ids", None), ("by a block mask", _blocks(reader, (5, 4)))):
            subject.state.restore()
            try:
                ways[way] = difference(reader(packed, where, mask=mask).values, alone)
            except Exception:
                continue
        if not ways:
            return "it takes neither restarted position_ids nor a block mask"
        best = min(ways, key=lambda way: ways[way])
        check.figures = {"way": best, "largest": ways[best]}
        if ways[best] > subject.allowed:
            if recurrent(reader):
                return "it has layers with a recurrent state, which packing mixes"
            check.find(kinds.PACKED_UNLIKE, None, **pair(ways[best], subject.allowed))
        return None

    return tried(PACKING, subject, run)


def _blocks(reader: Reader, sizes: tuple[int, ...]) -> Tensor:
    """An additive mask ``[1, 1, tokens, tokens]``: each sample sees itself, causally if the model
    is causal."""
    ones = (torch.ones(n, n) for n in sizes)
    blocks = torch.block_diag(*(b.tril() if causal(reader) else b for b in ones)).bool()
    mask = torch.zeros(blocks.shape, dtype=reader.dtype)
    mask[~blocks] = torch.finfo(reader.dtype).min
    return mask[None, None].to(reader.device)


def causal(reader: Reader) -> bool:
    """Whether a token's results do not depend on later tokens."""
    ids = reader.tokens(1, 4)
    other = torch.cat([ids[:, :-1], reader.tokens(1, 5, seed=3)[:, -1:]], dim=1)
    first, second = (reader(x).values[:, 0] for x in (ids, other))
    return difference(second, first) < 1e-3


# --- neighbours, shifts, history ----------------------------------------------------------------


def check_neighbours(subject: Subject) -> Check:
    """A row of a batch beside other rows: other tokens, and tokens at far positions."""
    reader = subject.reader

    def run(check: Check) -> str | None:
        a, b, c = reader.tokens(3, SHORT)
        plain = reader(torch.stack([a, b])).values[0]
        beside = reader(torch.stack([a, c])).values[0]
        apart = max(difference(beside, plain), difference(reader(a[None]).values[0], plain))
        check.figures = {"largest": apart}
        if apart > subject.allowed:
            check.find(kinds.NEIGHBOURS, None, **pair(apart, subject.allowed), hint="")
        return None

    return tried("rows of a batch are independent", subject, run)


def check_shift(subject: Subject) -> Check:
    """All positions moved: relative encodings do not notice."""
    reader = subject.reader

    def run(check: Check) -> str | None:
        if "position_ids" not in reader.takes:
            return "its forward takes no position_ids"
        reason = _not_relative(subject)
        if reason is not None:
            return reason
        ids, where = reader.tokens(2, SHORT), torch.arange(SHORT)
        plain = reader(ids, subject.positions(where, where)).values
        switch = min((v.above for g in subject.groups for v in g.variants), default=1 << 30)
        worst = 0.0
        for shift in (s for s in (1, 17) if s + SHORT < switch):
            found = reader(ids, subject.positions(where + shift, where + shift)).values
            apart = difference(found, plain)
            worst = max(worst, apart)
            if apart > subject.allowed:
                check.find(kinds.NOT_RELATIVE, None, shift=shift, **pair(apart, subject.allowed))
                break
        check.figures = {"largest": worst}
        return None

    return tried(SHIFT, subject, run)


def _not_relative(subject: Subject) -> str | None:
    """Why a model need not be relative, by its config."""
    held = {group.kind for group in subject.groups}
    if not held <= {"rotary", "none", "alibi", "t5"} or "rotary" not in held:
        return f"its position is of kind {', '.join(sorted(held)) or 'unknown'}"
    if any("query_scale" in group.details for group in subject.groups):
        return "its queries are scaled by their position"
    return None


def check_history(subject: Subject, far: int) -> Check:
    """The same call before and after others: long ones, cached ones, one in bfloat16."""
    reader = subject.reader

    def run(check: Check) -> str | None:
        ids, where = reader.tokens(2, SHORT), torch.arange(SHORT)
        plain = reader(ids).values
        worst, done = 0.0, []
        for after, call in _others(subject, ids, where, far):
            try:
                call()
            except Exception:
                continue
            done.append(after)
            apart = difference(reader(ids).values, plain)
            worst = max(worst, apart)
            if apart > subject.allowed:
                check.find(kinds.HISTORY, None, after=after, **pair(apart, subject.allowed))
                break
        check.figures = {"largest": worst, "after": ", ".join(done)}
        return None

    return tried("no memory of earlier calls", subject, run)


def _others(
    subject: Subject, ids: Tensor, where: Tensor, far: int
) -> list[tuple[str, Callable[[], object]]]:
    reader = subject.reader
    calls: list[tuple[str, Callable[[], object]]] = []
    if "position_ids" in reader.takes:
        there = subject.positions(where + far, where + far)
        calls.append((f"one at positions from {far} on", lambda: reader(ids, there)))
    longer = reader.tokens(1, 2 * SHORT)
    calls.append((f"one of {2 * SHORT} tokens", lambda: reader(longer)))
    if reader.cached is not None:
        calls.append(("one with a cache", lambda: in_pieces(reader, ids, (5, 7), None)))
    calls.append(("one in bfloat16", lambda: _in_bfloat16(reader, ids)))
    return calls


def _in_bfloat16(reader: Reader, ids: Tensor) -> object:
    with torch.autocast(ids.device.type, dtype=torch.bfloat16):
        return reader(ids)
