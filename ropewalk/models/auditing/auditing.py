"""Whether a model that runs does what its config says about position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from ropewalk.configs import Resolved, resolve
from ropewalk.configs.diff import diff
from ropewalk.models.auditing import behaviour
from ropewalk.models.auditing.by_length import check_crossing, check_far_neighbour, check_growth
from ropewalk.models.auditing.caching import check_cache
from ropewalk.models.auditing.compare import rounding_of
from ropewalk.models.auditing.expected import expected_layers
from ropewalk.models.auditing.far import around, check_far, original_length, table_length
from ropewalk.models.auditing.function_checks import check_functions
from ropewalk.models.auditing.kinds import tables as kinds
from ropewalk.models.auditing.lengths import check_lengths
from ropewalk.models.auditing.precision import check_precision
from ropewalk.models.auditing.reader import Reader
from ropewalk.models.auditing.report import Audit, Check
from ropewalk.models.auditing.rotation import check_rotation
from ropewalk.models.auditing.state import State, undisturbed
from ropewalk.models.auditing.subject import Subject, first_id
from ropewalk.models.auditing.tables import check_factors, check_tables
from ropewalk.spectra.arguments import check_int

Step = Callable[[], list[Check]]
Progress = Callable[[int, int], None]


def audit(
    model: nn.Module,
    *,
    source: Any = None,
    quick: bool = False,
    lengths: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Compare what a loaded model does about position with what its config says.

    First the tables that modules hold. Then the rotation as it is run: keys of lone tokens at
    chosen positions, which are one linear map of those at 0, and every rotary function with one
    lane at a time. Then results that must not differ: full pass and cached decoding, with padding
    and without, packed and separate, beside other rows, at other positions, after other calls.

    Results are compared with what rounding of the embeddings does to this very model, in the dtype
    that it is in: float32 sees most. The model is left as it was.

    Args:
        model: a loaded model of transformers; on any device, in any dtype.
        source: the file or folder that it came from, as :func:`ropewalk.configs.resolve` takes it,
            to compare with the model's own config.
        quick: only tables and rotations, no results.
        lengths: tokens at which keys and whole passes are tried; ``None`` for lengths around the
            original one, whole passes as far as they take seconds.
        progress: called with how many steps are done, and how many there are.

    Returns:
        An :class:`Audit`: every check with its figures, or why it did not apply, and the findings.

    Raises:
        TypeError: ``model`` is no module with a config, or an option has the wrong type.
        ValueError: the config cannot be read, or a length is below 8.
    """
    config = getattr(model, "config", None)
    if not isinstance(model, nn.Module) or not hasattr(config, "to_dict"):
        raise TypeError(
            f"model must be a torch.nn.Module with a config of transformers, got "
            f"{type(model).__name__}"
        )
    if not isinstance(quick, bool):
        raise TypeError(f"quick={quick!r} must be True or False")
    resolved = resolve(config)
    length = original_length(resolved)
    chosen = (
        around(length, table_length(resolved))
        if lengths is None
        else tuple(check_int("lengths", n, at_least=8) for n in lengths)
    )
    reader = Reader(model)
    found = Audit(type(model).__name__, str(reader.dtype).removeprefix("torch."))
    with undisturbed(model) as state:
        steps = _Steps(reader, resolved, state, source, chosen, lengths is not None)
        planned = steps.looks() + ([] if quick else steps.runs())
        for done, step in enumerate(planned):
            if progress is not None:
                progress(done, len(planned))
            state.restore()
            found.checks += step()
        if progress is not None:
            progress(len(planned), len(planned))
    return found


class _Steps:
    """The steps of an audit, and what earlier ones leave for later ones."""

    def __init__(
        self,
        reader: Reader,
        resolved: Resolved,
        state: State,
        source: Any,
        lengths: tuple[int, ...],
        forced: bool,
    ):
        self.reader, self.resolved, self.state = reader, resolved, state
        self.source, self.lengths, self.forced = source, lengths, forced
        self.length = original_length(resolved)
        self.last = (resolved.text().context.declared or self.length) - 1
        self.layers = expected_layers(resolved)
        self.good: set[int] = set()
        self.subject: Subject | None = None
        self._refusal: str | None = None
        self._asked = False

    def looks(self) -> list[Step]:
        """Config and tables; then rotations, near and far."""
        model, resolved = self.reader.model, self.resolved
        return [
            lambda: [check_config(resolved)],
            *([] if self.source is None else [lambda: [check_source(self.source, resolved)]]),
            lambda: [check_tables(model, resolved, self.last)],
            lambda: [check_factors(model, resolved)],
            lambda: self._if_it_runs("rotation", self._rotation),
        ]

    def runs(self) -> list[Step]:
        """Results that must not differ."""
        subject_checks: tuple[Callable[[Subject], Check], ...] = (
            check_cache,
            behaviour.check_padding,
            behaviour.check_packing,
            behaviour.check_neighbours,
            behaviour.check_shift,
            lambda s: behaviour.check_history(s, self.length),
            lambda s: check_crossing(s, self.length),
            lambda s: check_far_neighbour(s, self.length),
            lambda s: check_growth(s, self.length),
            lambda s: check_lengths(s, self.lengths, self.forced),
            lambda s: check_precision(s, self.last),
        )
        first: Step = lambda: self._if_it_runs("results", self._measure)  # noqa: E731
        return [first, *(lambda c=c: self._of_results(c) for c in subject_checks)]

    def _if_it_runs(self, what: str, step: Step) -> list[Check]:
        if not self._asked:
            self._refusal, self._asked = self.reader.refusal(), True
            self.state.restore()
        return [Check.skipped(what, self._refusal)] if self._refusal else step()

    def _rotation(self) -> list[Check]:
        near, self.good = check_rotation(self.reader, self.layers)
        self.state.restore()
        far = check_far(self.reader, self.layers, self.good, self.resolved, self.lengths)
        self.state.restore()
        return [near, far, check_functions(self.reader, self.layers, self.resolved)]

    def _measure(self) -> list[Check]:
        rounding = rounding_of(self.reader)
        if rounding.too_loud is not None:
            return [Check.skipped("results", rounding.too_loud)]
        self.state.restore()
        first = first_id(self.reader, self.resolved)
        self.subject = Subject(self.reader, self.resolved, self.state, rounding, first)
        return []

    def _of_results(self, check: Callable[[Subject], Check]) -> list[Check]:
        return [] if self.subject is None else [check(self.subject)]


def check_config(resolved: Resolved) -> Check:
    """Errors that the config has by itself, as explain tells them."""
    check = Check("config")
    check.findings = list(resolved.errors)
    check.status = "failed" if check.findings else "passed"
    return check


def check_source(source: Any, resolved: Resolved) -> Check:
    """Whether the loaded model's config says the same as the file that it came from."""
    check = Check("file = loaded config")
    found = diff(resolve(source), resolved)
    for row in found.layers:
        if not row.same:
            check.find(
                kinds.OTHER_FILE,
                f"layers {', '.join(map(str, row.layers[:8]))}",
                reasons="; ".join(row.reasons),
            )
    return check
