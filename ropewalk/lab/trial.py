"""A trial: one model trained and read, as a pure function from a configuration to a record.

Two trials that differ in their encoding alone see the same windows in the same order, start from
the same weights (but for those of the encoding) and get the same number of steps. Random numbers
come from generators that a trial owns; with one thread, which it sets for its duration, a record is
the same bit for bit each time on one machine.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ropewalk import catalog
from ropewalk.checks.content import one_thread
from ropewalk.core import Encoding
from ropewalk.lab import text
from ropewalk.lab.transformer import Transformer

TASKS: dict[str, Callable[[], text.Characters]] = {"characters": text.plays}
"""Task name → what it reads."""

WARM_UP = 50
FINAL_RATE = 0.1
WEIGHT_DECAY = 0.01
BETAS = (0.9, 0.98)
CLIP = 1.0


@dataclass(frozen=True)
class Trial:
    """What decides a record.

    Args:
        encoding: a name of the catalogue, or "none".
        seed: of the initial weights and of the windows' order.
        options: of the encoding, beside the sizes that the model gives.
        task: a name in ``TASKS``.
        train_length: tokens of a training window.
        lengths: at which the trained model is read, each a multiple of ``run``.
        run: positions whose bits are averaged together.
        steps: of AdamW: linear warm-up over 50, then half a cosine down to a tenth.
        batch: windows a step.
        dim, layers, heads: of the :class:`~ropewalk.lab.transformer.Transformer`.
        rate: the highest learning rate.

    Raises:
        ValueError: unknown task or encoding, or sizes that do not fit.
    """

    encoding: str
    seed: int = 0
    options: tuple[tuple[str, Any], ...] = ()
    task: str = "characters"
    train_length: int = 128
    lengths: tuple[int, ...] = (128, 256, 512, 1024)
    run: int = 64
    steps: int = 1000
    batch: int = 16
    dim: int = 64
    layers: int = 2
    heads: int = 4
    rate: float = 3e-3

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            near = catalog.suggestion(self.task, list(TASKS))
            raise ValueError(f"unknown task {self.task!r}{near}; known: {', '.join(TASKS)}")
        if self.encoding != "none":
            catalog.get(self.encoding)
        for name in ("train_length", "run", "steps", "batch", "dim", "layers", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.dim % self.heads:
            raise ValueError(f"dim={self.dim} must be a multiple of heads={self.heads}")
        if not self.lengths or any(n < 1 or n % self.run for n in self.lengths):
            raise ValueError(f"lengths={self.lengths} must be multiples of run={self.run}")


def run(config: Trial) -> dict[str, Any]:
    """Train and read one model.

    Returns:
        A JSON document: ``config``; ``loss``, the mean training bits per character in each tenth of
        the steps; ``bits``, length → bits per character in each run of positions of validation
        windows (:meth:`ropewalk.lab.text.Characters.bits`); ``parameters``, their number.
    """
    return measured(config, TASKS[config.task]())


def measured(config: Trial, task: text.Characters) -> dict[str, Any]:
    """:func:`run` on a given text."""
    with one_thread():
        model = build(config, task.vocabulary)
        losses = train(model, config, task)
        longest = max(config.lengths)
        bits = {str(n): task.bits(model, n, longest, config.run) for n in config.lengths}
    return {
        "config": {**dataclasses.asdict(config), "options": dict(config.options)},
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": _tenths(losses),
        "bits": bits,
    }


def make_encoding(config: Trial) -> Encoding | None:
    """The encoding of a trial, in the sizes of its model; None for "none".

    Raises:
        TypeError, ValueError: as :func:`ropewalk.make`.
    """
    if config.encoding == "none":
        return None
    spec = catalog.get(config.encoding)
    sizes = {
        "dim": config.dim,
        "content_dim": config.dim,
        "head_dim": config.dim // config.heads,
        "heads": config.heads,
        "length": max(config.lengths),
    }
    accepted = inspect.signature(spec.factory).parameters
    needed = {name for name, p in accepted.items() if p.default is p.empty}
    usual = {name: value for name, value in spec.config.items() if name in needed}
    fitting = {name: size for name, size in sizes.items() if name in accepted}
    return spec.make(**{**usual, **fitting, **dict(config.options)})


def build(config: Trial, vocabulary: int) -> Transformer:
    """The untrained model; its own weights depend on the seed and the sizes, on no encoding."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(config.seed)
        encoding = make_encoding(config)
        torch.manual_seed(config.seed)
        return Transformer(
            vocabulary, encoding, dim=config.dim, layers=config.layers, heads=config.heads
        )


def train(model: Transformer, config: Trial, task: text.Characters) -> list[float]:
    """Train ``model`` in place; the mean nats per character of each step."""
    generator = torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.rate, betas=BETAS, weight_decay=WEIGHT_DECAY
    )
    losses = []
    for step in range(config.steps):
        for group in optimizer.param_groups:
            group["lr"] = config.rate * _schedule(step, config.steps)
        loss = _loss(model, task.batch(generator, config.batch, config.train_length))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


def _loss(model: Transformer, windows: Tensor) -> Tensor:
    return functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


def _schedule(step: int, steps: int) -> float:
    """The learning rate of a step as a share of the highest."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return min(1.0, (step + 1) / WARM_UP) * (FINAL_RATE + (1 - FINAL_RATE) * cosine)


def _tenths(losses: list[float]) -> list[float]:
    """Mean bits of each tenth of the steps; of each step if there are fewer than ten."""
    parts = min(10, len(losses))
    edges = [i * len(losses) // parts for i in range(parts + 1)]
    return [sum(losses[a:b]) / (b - a) / math.log(2) for a, b in pairwise(edges)]
