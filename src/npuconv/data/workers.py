"""Work on several threads, with results in the order of the work.

Samples on one thread each take less time than one after the other on all threads; and numpy
lets other threads run as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Generic, TypeVar, cast

from npuconv import executor

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_WORKERS = 4  # each holds the tensors of a sample
READ_AHEAD = 3  # items at most, so that memory stays bounded


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_WORKERS, "npuconv-work")


def one_thread_each() -> AbstractContextManager[object]:
    """Keep numpy's matrix products on the thread that asks for them, within a with statement.

    Workers that share the cores would else each start as many threads as there are cores; and
    a product depends, in its last bit, on how many threads there were.
    """
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, "blas")


class OrderedWorkers(Generic[Item, Result]):
    """Threads that process items and return the results in the order of the items.

    No more items wait here than are worked on, so memory stays bounded. An error comes in
    its turn, after the results before it.
    """

    def __init__(self, work: Callable[[Item], Result]) -> None:
        self._work, self._workers = work, min(executor.cores(), MAX_WORKERS)
        self._running: deque[Future[Result]] = deque()

    def put(self, item: Item) -> Iterator[Result]:
        """Begin with an item; return finished results."""
        if self._workers == 1:
            return iter([self._work(item)])
        self._running.append(_pool().submit(self._work, item))
        return self._take(self._workers - 1)

    def drain(self) -> Iterator[Result]:
        """Wait for the results that are not returned yet, and return them."""
        return self._take(0)

    def abandon(self) -> None:
        """Drop the results that are not returned yet; no work goes on afterwards."""
        while self._running:
            future = self._running.pop()
            if not future.cancel():
                future.exception()  # waits

    def _take(self, remaining: int) -> Iterator[Result]:
        results = []
        while len(self._running) > remaining:
            results.append(self._running.popleft().result())
        return iter(results)


def in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the result of the work for every item, in order."""
    workers = OrderedWorkers(work)
    try:
        for item in items:
            yield from workers.put(item)
        yield from workers.drain()
    finally:
        workers.abandon()


def read_ahead(items: Iterable[Item]) -> Generator[Item]:
    """Yield the same items, made in a thread of their own.

    An error of the source is raised here, after the items before it. When the caller stops
    listening (``close``, or an error of its own), the thread ends with the item it is at.
    """
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1, "npuconv-samples") as reader:
        waiting = deque(reader.submit(next, iterator, end) for _ in range(READ_AHEAD))
        try:
            while (item := waiting.popleft().result()) is not end:
                waiting.append(reader.submit(next, iterator, end))
                yield cast(Item, item)
        finally:
            for future in waiting:
                future.cancel()
