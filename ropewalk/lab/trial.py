"""A trial: one model trained and read, as a pure function from a configuration to a record.

Two trials that differ in their encoding alone see the same examples in the same order, start from
the same weights (but for those of the encoding) and get the same number of steps. Random numbers
come from generators that a trial owns; with one thread, which it sets for its duration, a record is
the same bit for bit each time on one machine.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk import __version__, kernels
from ropewalk.checks.content import one_thread
from ropewalk.core import Additive, Encoding
from ropewalk.encodings.draws import Randomized
from ropewalk.lab import naming
from ropewalk.lab import task as tasks
from ropewalk.lab.record import FILES, FORMAT, key_of
from ropewalk.lab.task import Task
from ropewalk.lab.transformer import Transformer
from ropewalk.plan import Plan

WARM_UP = 50
FINAL_RATE = 0.1
WEIGHT_DECAY = 0.01
BETAS = (0.9, 0.98)
CLIP = 1.0

SEEDS = 1 << 31
"""Seeds lie below: PyTorch's generator hears 32 bits, of which tasks use the rest for scoring."""

MOST_TRIALS = 1 << 16
"""Of a grid."""

LONGEST = 1 << 20
LIMITS = {
    "train_length": LONGEST,
    "steps": 1 << 30,
    "batch": 1 << 16,
    "dim": 1 << 16,
    "layers": 1 << 10,
    "heads": 1 << 10,
}


@dataclass(frozen=True)
class Trial:
    """What decides a record.

    Args:
        encoding: as :mod:`ropewalk.lab.naming` reads it: a name with options, or layers of a plan.
        seed: of the initial weights and of the examples' order.
        task: a name in :func:`ropewalk.lab.task.tasks`.
        task_options: of the task.
        train_length: of a training example, or the longest of one.
        lengths: at which the trained model is read.
        steps: of AdamW: linear warm-up over 50, then half a cosine down to a tenth.
        batch: examples a step.
        dim, layers, heads: of the :class:`~ropewalk.lab.transformer.Transformer`.
        rate: the highest learning rate.

    Raises:
        TypeError, ValueError: unknown task or encoding, or sizes that do not fit.
    """

    encoding: str
    seed: int = 0
    task: str = "characters"
    task_options: tuple[tuple[str, Any], ...] = ()
    train_length: int = 128
    lengths: tuple[int, ...] = (128, 256, 512, 1024)
    steps: int = 1000
    batch: int = 16
    dim: int = 64
    layers: int = 2
    heads: int = 4
    rate: float = 3e-3

    def __post_init__(self) -> None:
        for name in ("encoding", "task"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name}={getattr(self, name)!r} must be a str")
        for name in ("seed", *LIMITS):
            _check_whole(name, getattr(self, name))
        if not 0 <= self.seed < SEEDS:
            raise ValueError(f"seed={self.seed} must be at least 0 and below 2³¹")
        for name, most in LIMITS.items():
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name}={getattr(self, name)} must be 1 … {most}")
        if self.dim % self.heads:
            raise ValueError(f"dim={self.dim} must be a multiple of heads={self.heads}")
        if isinstance(self.rate, bool) or not isinstance(self.rate, float | int):
            raise TypeError(f"rate={self.rate!r} must be a number")
        if not 0 < self.rate < math.inf:
            raise ValueError(f"rate={self.rate} must be above 0 and finite")
        if not isinstance(self.lengths, tuple) or not self.lengths:
            raise TypeError(f"lengths={self.lengths!r} must be a tuple of at least one length")
        for n in self.lengths:
            _check_whole("lengths", n)
        if list(self.lengths) != sorted(set(self.lengths)):
            raise ValueError(f"lengths={self.lengths} must rise, each once")
        for name, value in self.task_options:
            if not isinstance(value, str | int | float | bool | None):
                raise TypeError(f"task option {name}={value!r} must be a number, text or null")
        naming.parse(self.encoding)
        task_of(self).check(self.train_length, self.lengths)
        if self.lengths[-1] > LONGEST:
            raise ValueError(f"lengths={self.lengths[-1]} must be at most {LONGEST}")


def grid(
    encodings: Iterable[str],
    *,
    task: str = "characters",
    seeds: int | Sequence[int] = 3,
    **sizes: Any,
) -> list[Trial]:
    """Every encoding with every seed, seed by seed, in the usual sizes of the task.

    Args:
        encodings: labels (:mod:`ropewalk.lab.naming`).
        task: its name.
        seeds: how many, from 0; or which.
        sizes: of :class:`Trial`, instead of the usual ones of the task.

    Raises:
        TypeError, ValueError: as :class:`Trial`; an encoding or a seed comes twice, or none does.
    """
    labels = list(encodings)
    if isinstance(seeds, int) and seeds * len(labels) > MOST_TRIALS:
        raise ValueError(
            f"seeds={seeds} of {len(labels)} encodings are more than {MOST_TRIALS} trials; "
            "give fewer seeds, or name them"
        )
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    for name, values in (("encodings", labels), ("seeds", chosen)):
        if not values:
            raise ValueError(f"{name}={values!r} must hold at least one")
        if len(set(values)) != len(values):
            raise ValueError(f"{name}={values!r} must hold each once")
    usual = tasks.get(task).usual
    return [
        Trial(label, seed=seed, task=task, **{**usual, **sizes})
        for seed in chosen
        for label in labels
    ]


def config_of(trial: Trial) -> dict[str, Any]:
    """A trial as a JSON object; ``files`` are digests of own files that make its encoding."""
    config = dataclasses.asdict(trial)
    config["lengths"] = list(trial.lengths)
    config["task_options"] = dict(trial.task_options)
    files = naming.files(trial.encoding)
    return json.loads(json.dumps({**config, FILES: files} if files else config))


def of_config(config: Mapping[str, Any]) -> Trial:
    """The trial of a JSON object.

    Raises:
        TypeError, ValueError: it is none.
    """
    names = {field.name for field in dataclasses.fields(Trial)}
    if not isinstance(config, Mapping) or set(config) - {FILES} != names:
        raise ValueError(f"a trial has {', '.join(sorted(names))}; got {sorted(config)}"[:500])
    options, lengths = config["task_options"], config["lengths"]
    if not isinstance(options, Mapping) or not isinstance(lengths, Sequence):
        raise ValueError("task_options must be an object, and lengths a list")
    config = {name: value for name, value in config.items() if name != FILES}
    found = {**config, "task_options": tuple(options.items()), "lengths": tuple(lengths)}
    return Trial(**found)


def key(trial: Trial) -> str:
    """The address of a trial: SHA-256, hex, of its configuration."""
    return key_of(config_of(trial))


def run(config: Trial) -> dict[str, Any]:
    """Train and read one model.

    Returns:
        A JSON document: ``key``; ``config``; ``unit`` and ``better`` of the task; ``parameters``,
        their number; ``loss``, the mean training loss of each tenth of the steps, nats;
        ``scores``, length → number, or null where the model gave none; ``curves``, length → detail
        by position; ``diverged``, where training ended early and why; ``made``, versions.
    """
    return measured(config, task_of(config))


def measured(config: Trial, given: Task) -> dict[str, Any]:
    """:func:`run` on a given task."""
    with one_thread():
        model = build(config, given)
        losses, diverged = train(model, config, given)
        longest = max(config.lengths)
        found = {
            n: given.score(reader(model, config, given, n), n, longest) for n in config.lengths
        }
    return {
        "key": key(config),
        "config": config_of(config),
        "unit": given.unit,
        "better": given.better,
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": _tenths(losses),
        "scores": {str(n): _finite(score.value) for n, score in found.items()},
        "curves": {str(n): [_finite(v) for v in score.curve] for n, score in found.items()},
        "diverged": diverged,
        "made": origin(),
    }


def origin() -> dict[str, Any]:
    """What a record was made with."""
    return {
        "format": FORMAT,
        "ropewalk": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "kernel": kernels.active(),
        "machine": platform.machine(),
    }


def make_encoding(config: Trial, given: Task | None = None) -> Encoding | Plan | None:
    """The encoding of a trial, in the sizes of its model; None for "none".

    Raises:
        TypeError, ValueError: as :func:`ropewalk.make`.
    """
    given = task_of(config) if given is None else given
    sizes = {
        "dim": config.dim,
        "content_dim": config.dim,
        "head_dim": config.dim // config.heads,
        "heads": config.heads,
        "length": given.tokens(max(config.train_length, *config.lengths)),
    }
    if given.form.axes > 1:
        grids = [given.grid(n) or () for n in (config.train_length, *config.lengths)]
        sizes |= {
            "axes": given.form.axes,
            "trained": given.tokens(config.train_length),
            "side": max(map(max, grids)),
        }
    return naming.make(config.encoding, sizes)


def build(config: Trial, given: Task | None = None) -> Transformer:
    """The untrained model; its own weights depend on the seed and the sizes, on no encoding."""
    given = task_of(config) if given is None else given
    form = given.form
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(config.seed)
        encoding = make_encoding(config, given)
        torch.manual_seed(config.seed)
        return Transformer(
            form.vocabulary,
            encoding,
            dim=config.dim,
            layers=config.layers,
            heads=config.heads,
            classes=form.classes,
            channels=form.channels,
            causal=form.causal,
            pooled=form.pooled,
            axes=form.axes,
        )


def train(
    model: Transformer,
    config: Trial,
    given: Task,
    until: Callable[[int], bool] = lambda steps: False,
) -> tuple[list[float], str | None]:
    """Train ``model`` in place: the mean nats of each step, and why it ended early if it did.

    Args:
        model: of :func:`build`.
        config: steps, batch, rates and seed.
        given: the task.
        until: called with the number of steps done; training ends where it says True.
    """
    generator = torch.Generator().manual_seed(config.seed)
    read = Reader(model, config.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.rate, betas=BETAS, weight_decay=WEIGHT_DECAY
    )
    losses: list[float] = []
    for step in range(config.steps):
        for group in optimizer.param_groups:
            group["lr"] = config.rate * _schedule(step, config.steps)
        loss = tasks.loss(read, given.batch(generator, config.batch, config.train_length))
        if not math.isfinite(loss.item()):
            return losses, f"the loss was not finite at step {step}"
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
        if until(step + 1):
            break
    return losses, None


def task_of(config: Trial) -> Task:
    """The task of a trial; equal trials share one."""
    return _made_task(config.task, config.task_options)


@functools.lru_cache(maxsize=8)
def _made_task(name: str, options: tuple[tuple[str, Any], ...]) -> Task:
    return tasks.get(name).make(**dict(options))


class Reader:
    """A model that draws random positions, where its encoding has them, for every batch it reads.

    Not from the generator of examples: these stay the same for every encoding.
    """

    def __init__(self, model: Transformer, seed: int) -> None:
        self.model = model
        self.drawing = [m for m in model.modules() if isinstance(m, Randomized)]
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, inputs: Tensor, positions: Tensor | None) -> Tensor:
        """The model's logits, after a draw for as many places as the batch has."""
        if self.drawing:
            row_by_row = inputs.shape[1]
            places = row_by_row if positions is None else int(positions.max()) + 1
            for encoding in self.drawing:
                count = row_by_row if encoding.axes == 1 else places
                encoding.resample(count, generator=self.generator)
        return self.model(inputs, positions)


def reader(model: Transformer, config: Trial, given: Task, length: int) -> Reader:
    """The model as it reads another length: a table of a grid is interpolated, all else stays."""
    trained, wanted = given.grid(config.train_length), given.grid(length)
    encoding = model.encoding
    if wanted is not None and wanted != trained and hasattr(encoding, "resized"):
        assert isinstance(encoding, Additive)
        resized = encoding.resized(wanted, grid=trained)  # pyright: ignore
        model = copy.copy(model)
        model._modules = {**model._modules, "encoding": resized}
    return Reader(model, length)


def _schedule(step: int, steps: int) -> float:
    """The learning rate of a step as a share of the highest."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return min(1.0, (step + 1) / WARM_UP) * (FINAL_RATE + (1 - FINAL_RATE) * cosine)


def _tenths(losses: list[float]) -> list[float]:
    """Mean of each tenth of the steps; of each step if there are fewer than ten."""
    parts = min(10, len(losses))
    edges = [i * len(losses) // parts for i in range(parts + 1)] if parts else []
    return [sum(losses[a:b]) / (b - a) for a, b in pairwise(edges)]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _check_whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r} must be a whole number")
