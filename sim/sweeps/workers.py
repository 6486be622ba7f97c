"""Where points run: in this process, on the cores of this machine, or on a Ray cluster. The rows are the same."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import wait as wait_for
from typing import Any

from sim.errors import InputError
from sim.sweeps.point import Point, Row, run_point

AHEAD = 2
"""Points handed out to each worker at a time."""
Finished = tuple[Point, Row]


def here(points: Iterable[Point]) -> Iterator[Finished]:
    """Run points one after another in this process."""
    for point in points:
        yield point, run_point(point)


def on_cores(points: Iterable[Point], workers: int) -> Iterator[Finished]:
    """Run points in so many processes; they end with this one, however it ends.

    Raises InputError when a worker is killed, from outside or for memory.
    """
    waiting = iter(points)
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent) as pool:
            running: dict[Future[Row], Point] = {}
            while True:
                with _deaf_to_ctrl_c():  # which workers are born as; the parent ends them
                    for point in islice(waiting, AHEAD * workers - len(running)):
                        running[pool.submit(run_point, point)] = point
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process was killed, perhaps for want of memory; the same command goes on where this one "
            "stopped, with fewer --workers it takes less memory"
        ) from error


def on_ray(points: Iterable[Point], address: str) -> Iterator[Finished]:
    """Run points on a Ray cluster: ``address``, ``auto`` for the one this machine belongs to, ``local`` for a new one.

    Empty leaves it to Ray: the cluster of RAY_ADDRESS, else the one this machine belongs to, else a new one.

    Raises InputError when Ray is not installed or the cluster cannot be reached.
    """
    try:
        import ray
    except ImportError as error:
        raise InputError("Ray is not installed; pip install 'hybridkv[ray]'", where="--ray") from error
    waiting = iter(points)
    started = not ray.is_initialized()
    if started:
        _require_listener(address)
        try:
            ray.init(address=address or None, log_to_driver=False, include_dashboard=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(f"no cluster at {address!r}: {error}", where="--ray") from error
    try:
        yield from _ray_rows(ray, waiting)
    finally:
        if started:
            ray.shutdown()


def _require_listener(address: str) -> None:
    """InputError where nobody answers at host:port; Ray itself would try for many minutes."""
    host, colon, port = address.rpartition(":")
    if "/" in address or not (colon and port.isdecimal()):
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no cluster at {address!r}: {error}; start one with 'ray start'", where="--ray") from error


def _ray_rows(ray: Any, waiting: Iterator[Point]) -> Iterator[Finished]:
    remote = ray.remote(num_cpus=1)(run_point)
    width = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    running: dict[Any, Point] = {}
    while True:
        for point in islice(waiting, width - len(running)):
            running[remote.remote(point)] = point
        if not running:
            return
        for reference in ray.wait(list(running), num_returns=1)[0]:
            yield running.pop(reference), ray.get(reference)


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Ignore Ctrl-C for a moment: processes started in it ignore it for life, even while they import."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_with_parent() -> None:
    """Watch the parent from a thread: a worker whose parent is killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_after, args=(parent.sentinel,), daemon=True).start()


def _leave_after(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)
