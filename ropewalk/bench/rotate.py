"""``ropewalk bench rotate``: the benchmark as a function from a plan to a document."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from ropewalk._version import __version__
from ropewalk.bench.cases import SHAPES, USUAL_DTYPES, Case, Shape, cases
from ropewalk.bench.peers import OURS, PEERS, present
from ropewalk.bench.peers.own import Ours
from ropewalk.bench.problem import Problem, error, problem, tolerance, turned
from ropewalk.bench.rotor import Cannot, Rotor
from ropewalk.bench.timing import Effort, interleaved, ratio, rounds_of, settled

COPY = "copy"
Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What to measure, and how patiently.

    Args:
        shapes, dtypes, layouts, modes: see :func:`ropewalk.bench.cases.cases`.
        peers: names of :data:`ropewalk.bench.peers.PEERS`.
        threads: of every library; None leaves PyTorch's number.
        effort: see :class:`ropewalk.bench.timing.Effort`.
    """

    shapes: tuple[Shape, ...] = SHAPES
    dtypes: tuple[str, ...] = USUAL_DTYPES
    layouts: tuple[str, ...] | None = None
    modes: tuple[str, ...] | None = None
    peers: tuple[str, ...] = tuple(PEERS)
    threads: int | None = None
    effort: Effort = field(default_factory=Effort)

    def cases(self) -> list[Case]:
        """Every case, in the order of the table."""
        return cases(self.shapes, self.dtypes, self.layouts, self.modes)

    def as_dict(self) -> dict[str, Any]:
        """For another process: JSON takes it, :meth:`of` gives it back."""
        return asdict(self)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Plan:
        """The plan of :meth:`as_dict`."""

        def tupled(value: Any) -> Any:
            return tuple(map(tupled, value)) if isinstance(value, list) else value

        fields = {key: tupled(value) for key, value in given.items() if key != "effort"}
        return cls(**fields, effort=Effort(**given["effort"]))


def run(plan: Plan, told: Callable[[int, int], None] = lambda done, of: None) -> dict[str, Any]:
    """Measure every case of a plan in this process.

    Args:
        plan: what.
        told: is called with the number of cases done and of all.

    Returns:
        ``{"benchmark", "ropewalk", "torch", "kernel", "threads", "rounds", "processes",
        "peers", "rows"}``; a row is ``{"shape", "dtype", "layout", "mode", "form", "verdict",
        "ratio_to_copy", "ratio_to_ropewalk", "error", "error_at_131071", "noisy", "rounds",
        "copies"}``. ``ratio_to_ropewalk`` above 1 is slower than ropewalk. A form whose result is
        wrong has the verdict ``"wrong"`` and no ratios; one that lacks the mode, layout or dtype
        says so as its verdict.
    """
    from ropewalk.kernels import active

    wanted = plan.cases()
    with on_threads(plan.threads):
        found, absent = present(list(plan.peers))
        rotors = {OURS: Ours, **found}
        told(0, len(wanted))
        rows: list[Row] = []
        for done, case in enumerate(wanted, 1):
            rows += measure(case, rotors, plan.effort)
            told(done, len(wanted))
        return {
            "benchmark": "rotate",
            "ropewalk": __version__,
            "torch": torch.__version__,
            "kernel": active(),
            "threads": torch.get_num_threads(),
            "rounds": plan.effort.rounds,
            "processes": 1,
            "peers": {name: _peer(name, absent.get(name)) for name in plan.peers},
            "rows": rows,
        }


def _peer(name: str, absent: str | None) -> Row:
    peer = PEERS[name]
    return {
        "status": absent or "installed",
        "version": None if absent else peer.version(),
        "angles": "its own" if peer.own_angles else "exact tables given",
    }


def check_threads(threads: int | None) -> None:
    """Refuse more threads than there are processors for this process.

    Raises:
        ValueError: threads is out of range.
    """
    most = len(_processors())
    if threads is not None and not 1 <= threads <= most:
        raise ValueError(f"threads={threads} must be 1 … {most}, the processors here")


@contextmanager
def on_threads(threads: int | None) -> Iterator[None]:
    """That many threads for PyTorch, and as many processors for all others."""
    before, processors = torch.get_num_threads(), _processors()
    if threads is None:
        yield
        return
    check_threads(threads)
    torch.set_num_threads(threads)
    _bind(sorted(processors)[:threads])
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _bind(processors)


def _processors() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _bind(processors: Any) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, processors)


# --- one case ------------------------------------------------------------------------------------


def measure(case: Case, rotors: Mapping[str, type[Rotor]], effort: Effort) -> list[Row]:
    """The rows of one case: the copy, then every form, :data:`OURS` among them."""
    given = problem(case)
    timed: dict[str, Callable[[], object]] = {COPY: _copying(given)}
    rows: dict[str, Row] = {COPY: _row(case, COPY, verdict="reference")}
    quiet = nullcontext() if case.mode == "forward+backward" else torch.inference_mode()
    for name, kind in rotors.items():
        rows[name] = _row(case, name)
        try:
            rotor = kind(case.spectrum(), case.positions(), case.torch_dtype)
            with quiet:
                found = error(_results(rotor, case, given), given.expected)
                own = name in PEERS and PEERS[name].own_angles
                right = found <= tolerance(case.torch_dtype, case.positions(), own)
                rows[name].update(error=found, copies=rotor.copies(case.mode))
                rows[name]["error_at_131071"] = far_error(name, kind, case)
                if right:
                    timed[name] = _timed(rotor, case, given)
            rows[name]["verdict"] = "right" if right else "wrong"
        except Cannot as reason:
            rows[name]["verdict"] = f"cannot: {reason}"
    with quiet:
        seconds, noisy = settled(lambda: interleaved(timed, effort, (COPY, OURS)), COPY)
    for name in timed:
        rows[name].update(
            ratio_to_copy=ratio(seconds, name, COPY),
            ratio_to_ropewalk=ratio(seconds, name, OURS) if OURS in timed else None,
            rounds=rounds_of(seconds, name),
            noisy=noisy,
        )
    return list(rows.values())


def _row(case: Case, form: str, verdict: str = "") -> Row:
    return {
        "shape": list(case.shape),
        "dtype": case.dtype,
        "layout": case.layout,
        "mode": case.mode,
        "form": form,
        "verdict": verdict,
        "ratio_to_copy": None,
        "ratio_to_ropewalk": None,
        "error": None,
        "error_at_131071": None,
        "noisy": None,
        "rounds": 0,
        "copies": False,
    }


def _copying(given: Problem) -> Callable[[], object]:
    """Copying the same bytes, into memory that has been written before."""
    pairs = [(x.clone(), x) for x in given.inputs]
    if len(pairs) == 2 and given.inputs[0].shape == given.inputs[1].shape:
        pairs = pairs[:1]  # the second is the gradient of the result

    def copy() -> None:
        for out, x in pairs:
            out.copy_(x)

    return copy


def _results(rotor: Rotor, case: Case, given: Problem) -> tuple[torch.Tensor, ...]:
    """What the form makes of the inputs in this mode, once."""
    taken = [rotor.take(x.clone()) for x in given.inputs]
    mode = case.mode
    if mode == "fresh":
        found = (rotor.fresh(taken[0]),)
    elif mode == "out":
        found = (rotor.into(taken[0], rotor.take(torch.full_like(given.inputs[0], float("nan")))),)
    elif mode == "in-place":
        found = (rotor.in_place(taken[0]),)
    elif mode == "forward+backward":
        found = rotor.trained(*taken)
    elif mode == "decode":
        found = rotor.pair(*taken)
    else:
        found = rotor.pair_in_place(*taken)
    results = tuple(rotor.give(y) for y in found)
    others = {str(y.dtype) for y in results} - {str(case.torch_dtype)}
    if others:
        raise Cannot(f"gives {', '.join(others)} for {case.torch_dtype}")
    return results


def _timed(rotor: Rotor, case: Case, given: Problem) -> Callable[[], object]:
    """The call that is timed, on tensors of its own."""
    taken = [rotor.take(x.clone()) for x in given.inputs]
    x = taken[0]
    if case.mode == "fresh":
        return lambda: rotor.fresh(x)
    if case.mode == "out":
        out = rotor.take(given.inputs[0].clone())
        return lambda: rotor.into(x, out)
    if case.mode == "forward+backward":
        return lambda: rotor.trained(*taken)
    if case.mode == "decode":
        return lambda: rotor.pair(*taken)

    def in_place() -> None:
        if len(taken) == 1:
            taken[0] = rotor.in_place(taken[0])
        else:
            taken[:] = rotor.pair_in_place(*taken)

    return in_place


_FAR: dict[tuple[Any, ...], float | None] = {}


def far_error(name: str, kind: type[Rotor], case: Case) -> float | None:
    """The error of one token of one head at position 131,071, by the form's own angles if any."""
    if name in PEERS and PEERS[name].far is not None:
        kind = PEERS[name].far_rotor()
    key = (kind, case.layout, case.dtype, case.shape[-1])
    if key not in _FAR:
        spectrum, where = case.spectrum(), case.far()
        generator = torch.Generator().manual_seed(1)
        x = torch.randn((1, 1, 1, case.shape[-1]), generator=generator).to(case.torch_dtype)
        rotor = kind(spectrum, where, case.torch_dtype)
        y = rotor.give(rotor.fresh(rotor.take(x)))
        _FAR[key] = error((y,), (turned(x, spectrum, where),))
    return _FAR[key]


__all__ = ["COPY", "OURS", "Plan", "check_threads", "far_error", "measure", "run"]
