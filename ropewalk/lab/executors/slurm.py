"""Jobs of a Slurm cluster, through submitit: one job a trial, one core a job.

Each race has a folder of its own for what submitit writes (the trial, its answer, its logs), which
machines of the cluster must share. It goes when every job has answered and stays when one was lost,
since its logs say why; what the store holds does not depend on it. A race that is killed leaves its
jobs to run out, and started again it runs anew what had not been stored.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.lab.executors.base import (
    ATTEMPTS,
    ONE_THREAD,
    Outcomes,
    Work,
    attempt,
    cores,
    environment,
    lost,
    whole,
)

if TYPE_CHECKING:
    from ropewalk.lab.trial import Trial

FOLDER = "ropewalk-jobs"
WAITING = 64
"""Jobs in the queue at one time unless told otherwise."""
LOOK = 0.2
"""Seconds between two looks at the jobs."""
ENDING = 10.0
"""Seconds that cancelled jobs of this machine have to end."""


class Slurm:
    """One job a trial.

    Args:
        workers: jobs in the queue or running at one time; 64 if None.
        partition, account, qos: of the jobs, as Slurm calls them.
        time: minutes that a job may take.
        memory: GB that a job may take.
        folder: where the folder of each race is made; all machines of the cluster see it.
        cluster: "slurm"; or "local", processes of this machine behind the same door.

    Raises:
        TypeError, ValueError: submitit is not installed, there is no Slurm, or an option is none.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        partition: str | None = None,
        account: str | None = None,
        qos: str | None = None,
        time: int = 60,
        memory: int = 4,
        folder: str | os.PathLike[str] = FOLDER,
        cluster: str = "slurm",
    ) -> None:
        if cluster not in ("slurm", "local"):
            raise ValueError(f"cluster={cluster!r} must be 'slurm' or 'local'")
        if find_spec("submitit") is None:
            raise ValueError("executor=slurm needs submitit: pip install 'ropewalk[slurm]'")
        if cluster == "slurm" and not (shutil.which("srun") and shutil.which("sbatch")):
            raise ValueError(
                "executor=slurm finds no srun and sbatch: run on a machine from which Slurm takes "
                "jobs, or use executor=local"
            )
        self.cluster = cluster
        self.folder = Path(folder)
        self.workers = whole("workers", workers) or (WAITING if cluster == "slurm" else cores())
        self.settings: dict[str, Any] = {
            "name": "ropewalk",
            "timeout_min": whole("time", time),
            "mem_gb": whole("memory", memory),
            "cpus_per_task": 1,
        }
        for name, value in (("partition", partition), ("account", account), ("qos", qos)):
            if value is not None:
                self.settings[f"slurm_{name}"] = value

    def run(self, trials: Iterable[Trial], work: Work) -> Outcomes:
        """As :class:`~ropewalk.lab.executors.base.Executor`.

        Raises:
            ValueError: the folder cannot be made, or Slurm takes no job; the message says why.
        """
        folder = self._own_folder()
        executor = self._executor(folder)
        coming, keep = iter(trials), False
        jobs: list[tuple[Any, Trial, int]] = []

        def submit(trial: Trial, tries: int) -> None:
            try:
                with environment(ONE_THREAD):
                    jobs.append((executor.submit(attempt, work, trial), trial, tries))
            except Exception as error:
                why = " ".join(str(error).split())
                raise ValueError(f"executor=slurm could not submit a job: {why}") from error

        try:
            while True:
                while len(jobs) < self.workers and (trial := next(coming, None)) is not None:
                    submit(trial, 1)
                if not jobs:
                    return
                ended = [each for each in jobs if each[0].done()]
                if not ended:
                    time.sleep(LOOK)
                for each in ended:
                    jobs.remove(each)
                    job, trial, tries = each
                    answer, why = self._answer(job)
                    if answer is None and tries < ATTEMPTS:
                        submit(trial, tries + 1)
                        continue
                    if answer is None:
                        keep = True
                        answer = lost(f"({why})", f"its log is {job.paths.stderr}")
                    yield trial, answer
        finally:
            _end([job for job, *_ in jobs])
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):  # others are at work there
                    self.folder.rmdir()

    def _own_folder(self) -> Path:
        """Only its owner may write there: what lies in it is run."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix="race-", dir=self.folder)).resolve()
        except OSError as error:
            raise ValueError(f"folder={self.folder}: {error.strerror}; name another") from error

    def _executor(self, folder: Path) -> Any:
        import submitit

        executor = submitit.AutoExecutor(folder, cluster=self.cluster)
        executor.update_parameters(**self.settings)
        return executor

    def _answer(self, job: Any) -> tuple[Any, str]:
        """What a job gave; None and why where it was lost."""
        if self.cluster == "local" and not job.paths.result_pickle.exists():
            return None, "it ended without an answer"
        try:
            return job.result(), ""
        except Exception as error:
            return None, _said(str(error))


def _end(jobs: list[Any]) -> None:
    """Cancel what still runs, and wait for it where it runs here."""
    for job in jobs:
        with suppress(Exception):  # a scheduler that does not answer must not hide why we end
            job.cancel()
    until = time.monotonic() + ENDING
    while time.monotonic() < until and not all(map(_over, jobs)):
        time.sleep(LOOK)


def _over(job: Any) -> bool:
    return not hasattr(job, "_process") or job.done()


def _said(trace: str) -> str:
    """The line of a trace that says what happened, or else its first."""
    lines = [line.strip() for line in trace.splitlines() if line.strip(" -")]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)\b", line)]
    return (raised or lines or ["no word"])[-1 if raised else 0][:200]
