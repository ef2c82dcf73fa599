"""Tasks of a Ray cluster, through Ray Core: one task a trial, one core a task.

Without an address a cluster of this machine is started for the race and ended with it. It listens
on loopback alone, shows no dashboard and reports no usage; its token lives in memory and its files
in a temporary folder that goes with it. With an address the race is a guest: it starts and ends
nothing there.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ropewalk.lab.executors.base import (
    ATTEMPTS,
    ONE_THREAD,
    Failure,
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

OBJECTS = 80 << 20
"""Bytes of shared memory for a cluster of this machine; trials and records are small."""

PATIENCE = 10.0
"""Seconds in which a cluster must answer."""

_QUIET = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on any system: talk over loopback
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_task_oom_retries": str(ATTEMPTS - 1),  # without end unless said
}


class Ray:
    """One task a trial.

    Args:
        workers: tasks at one time; as many as cores of this machine, or as the cluster has room
            for, if None.
        address: of a cluster that runs, ``HOST:PORT``, or "auto" for the one that Ray finds here; a
            cluster of this machine, for this race, if None.

    Raises:
        TypeError, ValueError: Ray is not installed, or an option is none.
    """

    def __init__(self, workers: int | None = None, *, address: str | None = None) -> None:
        if find_spec("ray") is None:
            raise ValueError("executor=ray needs Ray: pip install 'ropewalk[ray]'")
        self.workers = whole("workers", workers)
        if address not in (None, "auto"):
            _split(address)
        self.address = address

    def run(self, trials: Iterable[Trial], work: Work) -> Outcomes:
        """As :class:`~ropewalk.lab.executors.base.Executor`.

        Raises:
            ValueError: the cluster cannot be started or reached, or listens beyond loopback.
        """
        with self._connected() as room:
            import ray
            from ray.exceptions import RayError, RayTaskError

            task = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_attempt_there)
            coming = iter(trials)
            running: dict[Any, Trial] = {}
            try:
                while True:
                    while len(running) < room and (trial := next(coming, None)) is not None:
                        running[task.remote(work, trial, os.getcwd())] = trial
                    if not running:
                        return
                    for reference in ray.wait(list(running))[0]:
                        trial = running.pop(reference)
                        try:
                            answer = ray.get(reference)
                        except RayTaskError as error:  # the worker cannot read what it was sent
                            answer = Failure(f"{type(error.cause).__name__}: {_line(error.cause)}")
                        except RayError as error:
                            answer = lost(
                                f"({_line(error)})", "it may need more memory than there is"
                            )
                        yield trial, answer
            finally:
                for reference in running:
                    ray.cancel(reference, force=True)

    @contextmanager
    def _connected(self) -> Iterator[float]:
        """Inside, Ray is there, and has room for so many tasks at one time.

        A connection that the caller had before is used and left.
        """
        import ray

        if ray.is_initialized():
            yield self.workers or math.inf
        elif self.address is None:
            room = self.workers or cores()
            with _own_cluster(room):
                yield room
        else:
            with _reached(self.address), _connection(address=self.address):
                yield self.workers or math.inf


def _attempt_there(work: Work, trial: Trial, folder: str) -> Any:
    """Files of one's own are named from the folder of the race, where the worker can see it."""
    if os.path.isdir(folder):
        os.chdir(folder)
    return attempt(work, trial)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _split(address: Any) -> tuple[str, int]:
    host, _, port = str(address).rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"address={address!r} must be HOST:PORT or 'auto'")
    return host.strip("[]"), int(port)


@contextmanager
def _reached(address: str) -> Iterator[None]:
    """Make sure that something answers: Ray would wait for it without end.

    Ray reads a loopback address as this machine's other one; where nothing answers there, the
    address is taken as it is.
    """
    from ray._private import services

    if address == "auto":
        yield
        return
    try:
        _call(services.canonicalize_bootstrap_address(address) or address)
    except OSError:
        try:
            _call(address)
        except OSError as error:
            raise ValueError(
                f"executor=ray: nothing answers at address={address} ({error.strerror or error}); "
                "start Ray there (`ray start --head` says its address), or leave the address out"
            ) from error
        with _loopback():
            yield
    else:
        yield


def _call(address: str) -> None:
    socket.create_connection(_split(address), PATIENCE).close()


@contextmanager
def _connection(**where: Any) -> Iterator[None]:
    """``ray.init``, and its end; signals are handled afterwards as they were before.

    Ray would print on our stdout what becomes of its workers; we say it ourselves when it matters.
    """
    import ray
    from ray._private import worker as ray_worker

    printed = ray_worker.print_to_stdstream
    ray_worker.print_to_stdstream = lambda *args, **kwargs: None
    ours = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if ours else None
    try:
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **where)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise ValueError(
                f"executor=ray, address={where.get('address')}: {_line(error)}"
            ) from error
        yield
    finally:
        ray.shutdown()
        ray_worker.print_to_stdstream = printed
        if ours and before is not None:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _own_cluster(workers: int) -> Iterator[None]:
    """A cluster of this machine, for this race."""
    folder = tempfile.mkdtemp(prefix="ropewalk-ray-")
    try:
        with environment({**_QUIET, **ONE_THREAD}), _token(), _loopback():
            where: dict[str, Any] = {
                "address": "local",
                "num_cpus": workers,
                "num_gpus": 0,
                "include_dashboard": False,
                "object_store_memory": OBJECTS,
                "_temp_dir": folder,
                "_node_ip_address": "127.0.0.1",
            }
            with _connection(**where):
                _require_loopback()
                yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _token() -> Iterator[None]:
    """A token that no file holds; one that the user has set up is used instead."""
    try:
        from ray._raylet import AuthenticationTokenLoader, Config  # pyright: ignore
    except ImportError as error:
        raise ValueError(
            "executor=ray cannot keep the token of this version of Ray out of files: "
            "pip install 'ropewalk[ray]' for one it can"
        ) from error
    loader = AuthenticationTokenLoader.instance()
    mode = os.environ.get("RAY_AUTH_MODE")
    own = (
        {} if loader.has_token(ignore_auth_mode=True) else {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    )
    try:
        with environment(own):
            loader.reset_cache()
            yield
    finally:
        if mode is None:
            os.environ.pop("RAY_AUTH_MODE", None)  # Ray sets it
        loader.reset_cache()
        Config.initialize("")


@contextmanager
def _loopback() -> Iterator[None]:
    """Ray reads its setting when it is imported, which may have been long ago."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _require_loopback() -> None:
    import ray

    here = ray.util.get_node_ip_address()
    if not ipaddress.ip_address(here).is_loopback:
        raise ValueError(
            f"executor=ray: this Ray would listen on {here}, where others may reach it; give the "
            "address of a cluster that you trust, or use executor=local"
        )
