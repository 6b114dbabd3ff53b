"""Where runs are done: in this process, in a pool of processes, or on a dask cluster.

All three are executors of :mod:`concurrent.futures`. Dask gives the runs of a worker that was
killed to another one; a pool that loses a process ends, and ``--resume`` goes on with its runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from typing import Any, final


@final
class SerialExecutor(Executor):
    """Does everything at once in this process; an error is raised where it happens."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401
        """The finished future of a call."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def process_pool(workers: int) -> Executor:
    """Several processes of this machine; a single one is this process itself."""
    if workers < 1:
        raise ValueError(f"--workers must be at least 1, got {workers}.")
    if workers == 1:
        return SerialExecutor()
    # Forked processes would inherit the locks of torch's threads, but not the threads.
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))


@contextmanager
def dask_cluster(address: str) -> Iterator[Executor]:
    """The workers of a dask scheduler, which must see the same folders as this process."""
    try:
        distributed = import_module("distributed")
    except ImportError:
        raise ImportError(
            "--scheduler needs dask: pip install 'subtractive[cluster]', or leave it out."
        ) from None
    try:
        client = distributed.Client(address)
    except OSError as error:
        raise ConnectionError(f"there is no dask scheduler at {address}: {error}") from None
    with client:
        yield client.get_executor()
