"""``ropewalk race``: small models trained side by side, the same but for their encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.output import FINE, NO, answer_alone, complain, console, print_json
from ropewalk.cli.progress import watch
from ropewalk.cli.raced import Csv, Outputs, Page, Parquet
from ropewalk.cli.settings import parse

if TYPE_CHECKING:
    from ropewalk.lab.executors import Executor, Failure
    from ropewalk.lab.executors.base import Outcomes, Work
    from ropewalk.lab.record import Record
    from ropewalk.lab.store import Store
    from ropewalk.lab.trial import Trial

ENCODINGS = "sinusoidal,rope,alibi,none"


class _Told(int):
    """An exit status whose reason has been told."""


INTERRUPTED = _Told(130)
"""Exit status after Ctrl-C, as shells have it."""


def race(
    encodings: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIST",
            help="Separated by commas, or repeated: names of `ropewalk encodings`, `none`, "
            "path.py:Class, with options NAME:KEY=VALUE; NAME@64 sees a window, NAME~2048 draws "
            f"positions, layers A+B+C take turns. {ENCODINGS} unless given.",
        ),
    ] = None,
    task: Annotated[
        str, typer.Option(help="What is learned; --list-tasks shows all.")
    ] = "characters",
    train_length: Annotated[
        int | None, typer.Option(metavar="N", help="Of the examples to train on.")
    ] = None,
    lengths: Annotated[
        list[str] | None,
        typer.Option(metavar="LIST", help="At which the trained models are read: 128,256,512."),
    ] = None,
    seeds: Annotated[
        str, typer.Option(metavar="N|LIST", help="How many, from 0; or which: 0,1,2.")
    ] = "3",
    steps: Annotated[int | None, typer.Option(metavar="N", help="Of training.")] = None,
    batch: Annotated[int | None, typer.Option(metavar="N", help="Examples a step.")] = None,
    dim: Annotated[int | None, typer.Option(metavar="N", help="Width of the model.")] = None,
    layers: Annotated[int | None, typer.Option(metavar="N", help="Of the model.")] = None,
    heads: Annotated[int | None, typer.Option(metavar="N", help="Of a layer.")] = None,
    rate: Annotated[float | None, typer.Option(help="The highest learning rate.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set an option of the task."),
    ] = None,
    executor: Annotated[str, typer.Option(help="Where trials run: local, slurm or ray.")] = "local",
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Trials at one time; one a core unless given.")
    ] = None,
    executor_setting: Annotated[
        list[str] | None,
        typer.Option(
            "--executor-set",
            metavar="KEY=VALUE",
            help="Set an option of the executor: partition=gpu, address=auto.",
        ),
    ] = None,
    store: Annotated[
        Path, typer.Option(metavar="FILE", help="Records; what is there is not run again.")
    ] = Path("race.jsonl"),
    out: Page = None,
    csv: Csv = None,
    parquet: Parquet = None,
    list_tasks: Annotated[
        bool, typer.Option("--list-tasks", help="List the tasks, and train nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Train every encoding with every seed on one task and compare; exit 1 if a trial failed.

    Trials differ in encoding and seed alone. Stopped at any moment, the same command goes on. Sizes
    that are not given are the usual ones of the task.
    """
    if list_tasks:
        return _list_tasks(as_json)
    from ropewalk.lab import executors, outcome, prepare
    from ropewalk.lab.store import Store

    with answer_alone():
        sizes = {
            "train_length": train_length, "lengths": _lengths(lengths), "steps": steps,
            "batch": batch, "dim": dim, "layers": layers, "heads": heads, "rate": rate,
            "task_options": _task_options(setting),
        }  # fmt: skip
        trials = _grid(encodings or [ENCODINGS], task, _seeds(seeds), sizes)
        outputs = Outputs(out, csv, parquet, stores=[store])
        outputs.check()
        runs_at = executors.make(
            executor,
            workers,
            **parse(executor_setting, "--executor-set", "partition=gpu"),
        )
        prepare.prepare(trials)
        kept = Store(store)
        try:
            records, failures = _raced(trials, kept, runs_at)
        except KeyboardInterrupt:
            complain(_interrupted(trials, kept))
            return INTERRUPTED
    document = outcome.document(records) if records else {"kind": "race"}
    if records:
        outputs.write([document])
    if as_json:
        print_json(document | _told(failures))
    elif records:
        outputs.draw([document])
    for trial, failure in failures:
        complain(f"{trial.encoding} seed {trial.seed} failed: {failure.reason}")
    return NO if failures else FINE


# --- what is asked -------------------------------------------------------------------------------


def _grid(given: list[str], task: str, seeds: Any, sizes: dict[str, Any]) -> list[Trial]:
    from ropewalk.lab import naming, trial

    labels = [label for each in given for label in naming.split(each)]
    stated = {name: value for name, value in sizes.items() if value is not None}
    return trial.grid(labels, task=task, seeds=seeds, **stated)


def _task_options(setting: list[str] | None) -> tuple[tuple[str, Any], ...] | None:
    found = parse(setting, "--set", "run=32")
    for key, value in found.items():
        if not _plain(value):
            raise ValueError(f"--set {key}={value!r} must be text, a number, true, false or a list")
    return tuple((key, _frozen(value)) for key, value in found.items()) or None


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return value is None or isinstance(value, (str, int)) or (
        isinstance(value, float) and abs(value) < float("inf")
    )  # fmt: skip


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _lengths(given: list[str] | None) -> tuple[int, ...] | None:
    return tuple(_whole("--lengths", ",".join(given), "128,256,512")) if given else None


def _seeds(given: str) -> int | list[int]:
    found = _whole("--seeds", given, "3 or --seeds 0,1,2")
    if "," in given:
        return found
    if found[0] < 1:
        raise ValueError(f"--seeds {given} must be at least 1, or a list such as 0,1,2")
    return found[0]


def _whole(option: str, given: str, example: str) -> list[int]:
    try:
        return [int(part) for part in given.strip().rstrip(",").split(",")]
    except ValueError:
        raise ValueError(
            f"{option} {given!r} must be whole numbers separated by commas: {option} {example}"
        ) from None


# --- what is run ---------------------------------------------------------------------------------


class _Watched:
    """An executor that tells what it has taken."""

    def __init__(self, executor: Executor, started: Callable[[str], None]) -> None:
        self._executor, self._started = executor, started

    def run(self, trials: Iterable[Trial], work: Work) -> Outcomes:
        def taken() -> Iterator[Trial]:
            for trial in trials:
                self._started(_label(trial))
                yield trial

        return self._executor.run(taken(), work)


def _raced(
    trials: list[Trial], store: Store, executor: Executor
) -> tuple[list[Record], list[tuple[Trial, Failure]]]:
    """The records in the order of ``trials``, and the trials that gave none."""
    from ropewalk.lab import race as lab
    from ropewalk.lab.trial import key

    with watch("racing") as bar:

        def told(progress: lab.Progress) -> None:
            name = None if progress.trial is None else _label(progress.trial)
            bar.ended(name, progress.done, progress.total, progress.stored)

        try:
            return lab.race(trials, store, _Watched(executor, bar.started), told), []
        except lab.Failed as failed:
            found = store.records()
            return [found[key(each)] for each in trials if key(each) in found], failed.failures


def _label(trial: Trial) -> str:
    return f"{trial.encoding} seed {trial.seed}"


def _interrupted(trials: list[Trial], store: Store) -> str:
    from ropewalk.lab.trial import key

    found = store.records()
    kept = sum(key(each) in found for each in trials)
    return (
        f"interrupted; {kept} of {len(trials)} records kept in {store.path}; "
        "the same command goes on"
    )


def _told(failures: list[tuple[Trial, Failure]]) -> dict[str, Any]:
    """What the document adds where trials failed."""
    told = [{"encoding": t.encoding, "seed": t.seed, "reason": f.reason} for t, f in failures]
    return {"failures": told} if told else {}


# --- the tasks -----------------------------------------------------------------------------------


def _list_tasks(as_json: bool) -> int:
    import inspect

    from ropewalk.lab.task import tasks

    found = [
        {
            "name": spec.name,
            "title": spec.title,
            "source": spec.source,
            "usual": dict(spec.usual),
            "options": {
                name: None if p.default is p.empty else p.default
                for name, p in inspect.signature(spec.factory).parameters.items()
                if p.kind is not p.KEYWORD_ONLY
            },
        }
        for spec in tasks().values()
    ]
    if as_json:
        print_json(found)
    else:
        _draw_tasks(found)
    return FINE


def _draw_tasks(found: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("task", "what is learned", "options (--set)"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "task")
    for each in found:
        options = ", ".join(f"{name}={value}" for name, value in each["options"].items())
        table.add_row(each["name"], each["title"], options)
    console().print(table)
