"""``ropewalk bench attend``: attention with an encoding, beside attention without position."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import ropewalk
from ropewalk._version import __version__
from ropewalk.bench.cases import DTYPES, require_known
from ropewalk.bench.problem import error
from ropewalk.bench.rotate import on_threads
from ropewalk.bench.timing import Effort, interleaved, ratio, rounds_of, settled
from ropewalk.core import Additive, Bias, Block, Contextual, Encoding, Rotary

PLAIN, OURS = "plain", "ropewalk"
MODES = {"forward": "the result", "forward+backward": "the result, and gradients of q, k and v"}
TOLERANCES = {"float32": 2e-4, "float64": 1e-9, "bfloat16": 3e-2, "float16": 5e-3}
"""Errors allowed, ÷ the largest value: attention in its own dtype rounds at every step."""
JUDGED = 384
"""Tokens of the sequence that is compared whole, with its gradients."""
TAIL = 16
"""Queries that are compared at the full length."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Args:
        tokens: of each sequence.
        dtypes, modes: as named by :data:`ropewalk.bench.cases.DTYPES` and :data:`MODES`.
        heads, head_dim: where the encoding does not say.
        batch: sequences at once.
        threads: None leaves PyTorch's number.
        effort: see :class:`ropewalk.bench.timing.Effort`.
    """

    tokens: tuple[int, ...] = (1024,)
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    modes: tuple[str, ...] = tuple(MODES)
    heads: int = 8
    head_dim: int = 64
    batch: int = 1
    threads: int | None = None
    effort: Effort = field(default_factory=lambda: Effort(seconds=2.0))

    def __post_init__(self) -> None:
        for dtype in self.dtypes:
            require_known("dtype", dtype, DTYPES)
        for mode in self.modes:
            require_known("mode", mode, MODES)
        for name, value in (("tokens", min(self.tokens, default=0)), ("batch", self.batch)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")


def run(
    encoding: Encoding, plan: Plan, told: Callable[[int, int], None] = lambda done, of: None
) -> Row:
    """Measure an encoding in this process.

    Returns:
        ``{"benchmark", "ropewalk", "torch", "kernel", "threads", "rounds", "rows"}``; a row is
        ``{"shape", "dtype", "mode", "verdict", "ratio_to_plain", "milliseconds", "plain_ms",
        "error", "noisy", "rounds"}``. A wrong result has no ratio.

    Raises:
        ValueError: the encoding is additive, and not part of attention.
    """
    if isinstance(encoding, Additive):
        raise ValueError(
            f"{type(encoding).__name__} is additive: it acts on embeddings, before attention, and "
            "attention after it takes the same time"
        )
    cases = [(n, d, m) for n in plan.tokens for d in plan.dtypes for m in plan.modes]
    told(0, len(cases))
    rows = []
    with on_threads(plan.threads):
        for done, (tokens, dtype, mode) in enumerate(cases, 1):
            rows.append(measure(encoding, plan, tokens, dtype, mode))
            told(done, len(cases))
        return {
            "benchmark": "attend",
            "ropewalk": __version__,
            "torch": torch.__version__,
            "kernel": ropewalk.kernels.active(),
            "threads": torch.get_num_threads(),
            "rounds": plan.effort.rounds,
            "rows": rows,
        }


def measure(encoding: Encoding, plan: Plan, tokens: int, dtype: str, mode: str) -> Row:
    """One row: judged first, then timed in turns with attention without position."""
    kind = getattr(torch, dtype)
    made = copy.deepcopy(encoding).to(kind)
    whole = Inputs(made, plan, min(tokens, JUDGED), kind)
    errors = [error(whole.call(OURS, mode), whole.expected(mode))]
    given = Inputs(made, plan, tokens, kind)
    with torch.no_grad():
        tail = given.attend()[..., -TAIL:, :]
        errors.append(error((tail,), (given.dense(min(TAIL, tokens)),)))
    row: Row = {
        "shape": list(given.q.shape),
        "dtype": dtype,
        "mode": mode,
        "verdict": "right" if all(e <= TOLERANCES[dtype] for e in errors) else "wrong",
        "ratio_to_plain": None,
        "milliseconds": None,
        "plain_ms": None,
        "error": next((e for e in errors if math.isnan(e)), max(errors)),
        "noisy": None,
        "rounds": 0,
    }
    if row["verdict"] == "wrong":
        return row
    forms = {name: lambda name=name: given.call(name, mode) for name in (PLAIN, OURS)}
    seconds, noisy = settled(lambda: interleaved(forms, plan.effort, (PLAIN, OURS)), PLAIN)
    return {
        **row,
        "ratio_to_plain": ratio(seconds, OURS, PLAIN),
        "milliseconds": _milliseconds(seconds, OURS),
        "plain_ms": _milliseconds(seconds, PLAIN),
        "noisy": noisy,
        "rounds": rounds_of(seconds, OURS),
    }


def _milliseconds(seconds: Mapping[str, Any], form: str) -> float:
    return 1000 * statistics.median(s for s in seconds[form] if s is not None)


class Inputs:
    """Random q, k and v of one length, always the same, and what attention makes of them."""

    def __init__(self, encoding: Encoding, plan: Plan, tokens: int, dtype: torch.dtype) -> None:
        heads, width = _size(encoding, plan)
        draw = torch.Generator().manual_seed(0)
        q, k, v = torch.randn((3, plan.batch, heads, tokens, width), generator=draw).to(dtype)
        self.q, self.k, self.v = q, k, v
        line = torch.arange(tokens)
        axes = encoding.axes
        self.positions = line if axes == 1 else line[:, None].expand(-1, axes).contiguous()
        self.encoding, self.content = encoding, None
        if isinstance(encoding, Contextual) and encoding.content_dim is not None:
            shape = (plan.batch, tokens, encoding.content_dim)
            self.content = torch.randn(shape, generator=draw).to(dtype)

    def call(self, form: str, mode: str) -> tuple[Tensor, ...]:
        """The result, and gradients in mode ``forward+backward``."""
        attention = self.attend if form == OURS else self.plain
        return _called(attention, mode, (self.q, self.k, self.v))

    def attend(self, q: Tensor | None = None, k: Tensor | None = None, v: Tensor | None = None):
        """:func:`ropewalk.attend` with the encoding."""
        q, k, v = (own if x is None else x for own, x in zip(self._own, (q, k, v), strict=True))
        where = self.positions
        seen = _seen(self.encoding, self.content)
        return ropewalk.attend(q, k, v, seen, q_positions=where, kv_positions=where)

    @property
    def _own(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.q, self.k, self.v

    @staticmethod
    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """PyTorch's fused causal attention without position."""
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def expected(self, mode: str) -> tuple[Tensor, ...]:
        """What :meth:`call` should give, by dense float64 attention."""
        wide = tuple(x.double() for x in self._own)
        return _called(lambda q, k, v: self.dense(q.shape[-2], q, k, v), mode, wide)

    def dense(self, rows: int, *own: Tensor) -> Tensor:
        """The last rows of the result, each logit written out in float64."""
        q, k, v = own or (x.double() for x in self._own)
        content = None if self.content is None else self.content.double()
        encoding = _seen(copy.deepcopy(self.encoding).double(), content)
        where, scale = self.positions, 1 / math.sqrt(q.shape[-1])
        first = k.shape[-2] - rows
        asking, queries = where[first:], q[..., first:, :]
        line = torch.arange(k.shape[-2])
        allowed = line[None, :] <= line[first:, None]
        block = Block(queries, k, asking, where, allowed, scale, first)
        if isinstance(encoding, Rotary):
            turned, keys = encoding.encode_q(queries, asking), encoding.encode_k(k, where)
            logits = scale * turned @ keys.transpose(-1, -2)
        elif isinstance(encoding, Bias):
            logits = block.content + encoding.bias(asking, where, torch.float64)
        else:
            logits = encoding.logits(block)
        weights = logits.masked_fill(~allowed, -math.inf).softmax(-1)
        moved = encoding.values(weights, block) if isinstance(encoding, Contextual) else None
        return weights @ v if moved is None else weights @ v + moved


def _seen(encoding: Encoding, content: Tensor | None) -> Any:
    return encoding if content is None else encoding.read(content)  # pyright: ignore


def _called(
    attention: Callable[[Tensor, Tensor, Tensor], Tensor], mode: str, given: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    if mode == "forward":
        with torch.no_grad():
            return (attention(*given),)
    leaves = tuple(x.detach().requires_grad_() for x in given)
    y = attention(*leaves)
    return y.detach(), *torch.autograd.grad(y, leaves, torch.ones_like(y))


def _size(encoding: Encoding, plan: Plan) -> tuple[int, int]:
    """Heads and head_dim: the encoding's own where it says."""
    heads = getattr(encoding, "heads", None) or getattr(
        getattr(encoding, "spectrum", None), "heads", None
    )
    width = getattr(encoding, "head_dim", None)
    return heads or plan.heads, width or plan.head_dim
