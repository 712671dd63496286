"""Work on several threads, with results in the order of the work.

Samples on one thread each take less time than one after the other on all threads; and numpy
lets other threads run as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import TypeVar

from npuconv import executor

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_WORKERS = 4  # each holds the tensors of a sample


@cache
def _pool(purpose: str, workers: int = MAX_WORKERS) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, f"npuconv-{purpose}")


def one_thread_each() -> AbstractContextManager[object]:
    """Keep numpy's matrix products on the thread that asks for them, within a with statement.

    Workers that share the cores would else each start as many threads as there are cores; and
    a product depends, in its last bit, on how many threads there were.
    """
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, "blas")


def start_work(work: Callable[[], Result]) -> Callable[[], Result]:
    """Start work beside the caller, or do it at once on one core; return a wait for its result."""
    if executor.cores() == 1:
        result = work()
        return lambda: result
    return _pool("beside").submit(work).result


def in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the result of the work for every item, in order.

    One more item is taken than there are workers, so that none waits for the caller, and memory
    stays bounded. An error comes in its turn, after the results before it. No work goes on after
    the caller has stopped listening.
    """
    workers = min(executor.cores(), MAX_WORKERS)
    if workers == 1:
        yield from map(work, items)
        return
    pool, running = _pool("samples", workers), deque[Future[Result]]()
    try:
        for item in items:
            running.append(pool.submit(work, item))
            if len(running) > workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        while running:
            future = running.pop()
            if not future.cancel():
                future.exception()  # waits
