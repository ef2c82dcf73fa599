"""Whole passes of as many tokens as a length says, as far as time and memory allow."""

from __future__ import annotations

from typing import Any

from ropewalk.models.auditing.caching import in_pieces
from ropewalk.models.auditing.compare import difference
from ropewalk.models.auditing.kinds import results as kinds
from ropewalk.models.auditing.report import Check
from ropewalk.models.auditing.subject import Subject, pair, tried

NAME = "cached decoding at full length"
STEPS = 3
"""Tokens decoded one by one at the end."""
WORK = 1e12
"""Multiplications that a pass may take: seconds on two cores."""
MEMORY = 2e9
"""Bytes that attention weights of one layer may take, where they are written out."""


def affordable(subject: Subject, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """The lengths whose passes take seconds."""
    return tuple(n for n in lengths if _work(subject, n) <= WORK and _memory(subject, n) <= MEMORY)


def _work(subject: Subject, length: int) -> float:
    weights = sum(p.numel() for p in subject.reader.model.parameters())
    config = subject.reader.config
    width = _widest(config, "hidden_size") or 1024
    layers = sum(len(group.layers) for group in subject.groups)
    return weights * length + layers * width * float(length) ** 2


def _memory(subject: Subject, length: int) -> float:
    config = subject.reader.config
    if getattr(config, "_attn_implementation", "eager") != "eager":
        return 4.0 * length**2
    heads = _widest(config, "num_attention_heads") or 32
    return 12.0 * heads * length**2


def _widest(config: Any, size: str) -> int:
    """The largest that a layer has; 0 if the config does not say. Where layers differ, the config
    as a whole refuses to."""
    each = config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config]
    return max(getattr(own, size, 0) or 0 for own in each)


def check_lengths(subject: Subject, lengths: tuple[int, ...], forced: bool) -> Check:
    """The last tokens of a full pass, and decoded one by one after all others."""
    reader = subject.reader
    chosen = lengths if forced else affordable(subject, lengths)

    def run(check: Check) -> str | None:
        if reader.cached is None:
            return "it keeps no cache"
        if not chosen:
            return (
                f"a pass of {min(lengths)} tokens would take long; --lengths {min(lengths)} runs it"
            )
        figures = {}
        for length in chosen:
            subject.state.restore()
            apart = _compared(subject, length)
            if apart is None:
                return "it returns no cache"
            figures[f"{length}_tokens"] = apart
            if apart > subject.allowed and not check.findings:
                _tell(check, subject, length, apart)
        check.figures = figures
        return None

    return tried(NAME, subject, run)


def _compared(subject: Subject, length: int) -> float | None:
    reader = subject.reader
    ids = reader.tokens(1, length)
    cached = in_pieces(reader, ids, (length - STEPS, *(1,) * STEPS), None, last=True)
    subject.state.restore()
    full = reader(ids, last=STEPS).values
    return None if cached is None else difference(cached[:, -STEPS:], full)


def _tell(check: Check, subject: Subject, length: int, apart: float) -> None:
    shown = pair(apart, subject.allowed)
    switches = [v.above for group in subject.groups for v in group.variants]
    if switches and length > min(switches):
        check.find(
            kinds.CACHED_BY_LENGTH,
            None,
            length=min(switches),
            difference=shown["difference"],
            scaling=subject.scaling,
        )
    else:
        check.find(kinds.CACHED_UNLIKE, None, **shown, hint=f" at {length} tokens")
