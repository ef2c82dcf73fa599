"""What a task is: batches to learn from, and a number that says how well it was learned.

A task is one file in ``tasks/`` and one import line, like an encoding. It states the form of its
model (what goes in, how many classes come out, causal or not, one axis or two), draws batches from
the generator it is given, and scores a trained model at a length.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from ropewalk.catalog import suggestion

IGNORED = -100
"""A target that is not asked for."""

TOKENS_AT_ONCE = 4096
"""Tokens of a batch that a model reads at once when it is scored."""

Model = Callable[[Tensor, "Tensor | None"], Tensor]
"""Inputs and positions → logits ``[B, answers, classes]``."""


@dataclass(frozen=True)
class Form:
    """What a model needs to be for a task.

    Args:
        classes: logits of an answer.
        vocabulary: ids that go in; None where vectors do.
        channels: width of the vectors that go in; None where ids do.
        causal: a token sees those before it; otherwise all see all.
        axes: of the positions.
        pooled: one answer for the whole sequence, from the mean over tokens.
    """

    classes: int
    vocabulary: int | None = None
    channels: int | None = None
    causal: bool = True
    axes: int = 1
    pooled: bool = False


@dataclass(frozen=True)
class Batch:
    """Examples of one size.

    Args:
        inputs: ids ``[B, T]``, or vectors ``[B, T, channels]``.
        targets: classes ``[B, T]``, or ``[B, 1]`` of a pooled form; ``IGNORED`` where none.
        positions: ``[T, axes]`` of several axes; None for 0 … T−1.
    """

    inputs: Tensor
    targets: Tensor
    positions: Tensor | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def split(self) -> list[Batch]:
        """In parts of ``TOKENS_AT_ONCE`` tokens, at least one row each."""
        rows = max(1, TOKENS_AT_ONCE // self.inputs.shape[1])
        pairs = zip(self.inputs.split(rows), self.targets.split(rows), strict=True)
        return [Batch(inputs, targets, self.positions) for inputs, targets in pairs]


@dataclass(frozen=True)
class Score:
    """How a model does at one length: the number that counts, and detail by position if any."""

    value: float
    curve: Sequence[float] = ()


class Task(ABC):
    """Base of every task."""

    unit: ClassVar[str]
    better: ClassVar[Literal["lower", "higher"]]
    form: Form

    @abstractmethod
    def batch(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """``rows`` examples to train on, of length at most ``length``."""

    def longest(self, generator: torch.Generator, length: int) -> Batch:
        """One example of :meth:`batch`, as long as any of them."""
        return self.batch(generator, 1, length)

    @abstractmethod
    def score(self, model: Model, length: int, longest: int) -> Score:
        """The score at ``length``, on the same examples for every model.

        Args:
            model: inputs and positions → logits; called without gradients.
            length: of the examples.
            longest: of the comparison; a task may choose its examples by it.
        """

    def tokens(self, length: int) -> int:
        """Tokens of an example of ``length``; that many unless overridden."""
        return length

    def grid(self, length: int) -> tuple[int, ...] | None:
        """Rows and columns of an example of ``length``; None on one axis."""
        return None

    def check(self, train_length: int, lengths: Sequence[int]) -> None:
        """Raise ValueError where examples of these lengths cannot be made."""
        for name, n in _named(train_length, lengths):
            if n < 1:
                raise ValueError(f"{name}={n} must be at least 1")


class Exact(Task):
    """A task whose answers are right or wrong.

    The score is the share of examples of which *every* asked token is right: what a model that
    writes its most likely token, one after another, gets right in full. The answer it has to go on
    with is the true one, which for a wholly right answer is its own. The curve is the share that is
    right at each place of the answer, where all examples ask equally many.

    A subclass gives ``form`` and :meth:`examples`; it trains on lengths ``shortest`` … ``length``
    in equal measure, one length a batch.
    """

    unit = "share of answers that are right in full"
    better = "higher"
    shortest = 1
    """Length below which there are no examples."""
    scored = 256
    """Examples of a score."""

    @abstractmethod
    def examples(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """``rows`` examples of exactly ``length``."""

    def batch(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """Examples of one length, drawn from ``shortest`` … ``length``."""
        n = torch.randint(self.shortest, length + 1, (), generator=generator).item()
        return self.examples(generator, rows, int(n))

    def longest(self, generator: torch.Generator, length: int) -> Batch:
        """One example of exactly ``length``."""
        return self.examples(generator, 1, length)

    def scored_examples(self, length: int) -> Batch:
        """The ``scored`` examples of a length: the same ones always, from a seed of no trial."""
        return self.examples(torch.Generator().manual_seed(-length), self.scored, length)

    def score(self, model: Model, length: int, longest: int) -> Score:
        """How many of :meth:`scored_examples` are right, in ``unit``."""
        batch = self.scored_examples(length)
        right = torch.cat([correct(model, part) for part in batch.split()])
        asked = batch.targets != IGNORED
        counts = asked.sum(1)
        even = bool((counts == counts[0]).all())
        curve = right[asked].view(len(right), -1).double().mean(0).tolist() if even else []
        return Score(self.share(right, asked), curve)

    def share(self, right: Tensor, asked: Tensor) -> float:
        """The score of answers ``right`` where ``asked``, both bool ``[examples, answers]``."""
        return (right | ~asked).all(1).double().mean().item()

    def check(self, train_length: int, lengths: Sequence[int]) -> None:
        """Raise ValueError where a length is below ``shortest``."""
        for name, n in _named(train_length, lengths):
            if n < self.shortest:
                raise ValueError(
                    f"{name}={n} is too short for this task: give at least {self.shortest}"
                )


class ExactByPlace(Exact):
    """A task that asks many things at once, each for itself; the score is the share of them."""

    unit = "share of asked places that are right"

    def share(self, right: Tensor, asked: Tensor) -> float:
        """The share of ``right`` among ``asked``, over all examples together."""
        return right[asked].double().mean().item()


def answered(prompt: Tensor, answer: Tensor) -> Batch:
    """A prompt that is to be followed by an answer, of which the model sees what came before.

    Args:
        prompt: ids ``[B, P]``; the last of them, a separator, asks for the answer's first.
        answer: ids ``[B, A]``, the targets.

    Returns:
        Inputs and targets ``[B, P + A − 1]``; the targets of the prompt but its last are ignored.
    """
    inputs = torch.cat([prompt, answer[:, :-1]], 1)
    return Batch(inputs, functional.pad(answer, (prompt.shape[1] - 1, 0), value=IGNORED))


def shuffled(generator: torch.Generator, rows: int, count: int) -> Tensor:
    """0 … count−1 in a random order each row, int64 ``[rows, count]``."""
    return torch.rand(rows, count, dtype=torch.float64, generator=generator).argsort(1)


def _named(train_length: int, lengths: Sequence[int]) -> list[tuple[str, int]]:
    return [("train_length", train_length), *(("lengths", n) for n in lengths)]


def correct(model: Model, batch: Batch) -> Tensor:
    """Whether the most likely class is the target, bool of the shape of the targets."""
    with torch.no_grad():
        return model(batch.inputs, batch.positions).argmax(-1) == batch.targets


def loss(model: Model, batch: Batch) -> Tensor:
    """Mean −ln P of the targets that are asked for."""
    logits = model(batch.inputs, batch.positions)
    return functional.cross_entropy(
        logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED
    )


@dataclass(frozen=True)
class TaskSpec:
    """One entry of the list of tasks.

    Args:
        name: the registry key.
        factory: makes the task from keyword arguments.
        title: one line for lists.
        source: who asked it first, and where.
        usual: sizes of a trial that suit it: ``train_length``, ``lengths``, ``steps``, ….
    """

    name: str
    factory: Callable[..., Task]
    title: str
    source: str
    usual: Mapping[str, Any] = field(default_factory=dict)

    def make(self, **options: Any) -> Task:
        """The task.

        Raises:
            TypeError: an option that it does not have.
            ValueError: an option is out of range, or a package is missing.
        """
        accepted = inspect.signature(self.factory).parameters
        for key in options:
            if key not in accepted:
                takes = f"it takes {', '.join(accepted)}" if accepted else "it takes none"
                raise TypeError(
                    f"task {self.name} has no option {key!r}{suggestion(key, accepted)}; {takes}"
                )
        return self.factory(**options)


_registry: dict[str, TaskSpec] = {}


def register(spec: TaskSpec) -> TaskSpec:
    """Add a task to the list.

    Raises:
        ValueError: the name is taken.
    """
    if spec.name in _registry:
        raise ValueError(f"a task named {spec.name!r} is registered already; choose another")
    _registry[spec.name] = spec
    return spec


def tasks() -> Mapping[str, TaskSpec]:
    """Every task by name, read-only."""
    import ropewalk.lab.tasks  # noqa: F401  (its import lines register the tasks)

    return MappingProxyType(_registry)


def get(name: str) -> TaskSpec:
    """The task named ``name``.

    Raises:
        ValueError: unknown, with the closest known names.
    """
    known = tasks()
    if not isinstance(name, str) or name not in known:
        raise ValueError(
            f"unknown task {repr(name)[:80]}{suggestion(str(name)[:80], known)}; "
            f"known: {', '.join(known)}"
        )
    return known[name]
