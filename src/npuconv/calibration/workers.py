"""Work that is independent, on every core, with results in the order of the work.

Samples on one thread each take less time than one after the other on all threads; and numpy
lets other threads run as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Generic, TypeVar

from npuconv import executor

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST = 4  # at once: each holds the tensors of a sample


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST, "npuconv-work")


def one_thread_each() -> AbstractContextManager[object]:
    """Keep numpy's matrix products on the thread that asks for them, within a with statement.

    Workers that share the cores would else each start as many threads as there are cores; and
    what a product is depends, in its last bit, on how many threads there were.
    """
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, "blas")


class Line(Generic[Item, Result]):
    """Takes items one by one and gives back what was made of them, in their order.

    No more items wait here than are worked on, so memory stays bounded. An error comes in
    its turn, after the results before it.

    Args:
        work: what is done with an item.
    """

    def __init__(self, work: Callable[[Item], Result]) -> None:
        self._work, self._room = work, min(executor.cores(), MOST)
        self._running: deque[Future[Result]] = deque()

    def put(self, item: Item) -> Iterator[Result]:
        """Begin with an item; what is finished is returned."""
        if self._room == 1:
            return iter([self._work(item)])
        self._running.append(_pool().submit(self._work, item))
        return self._taken(self._room - 1)

    def rest(self) -> Iterator[Result]:
        """Wait for the results that are not returned yet, and return them."""
        return self._taken(0)

    def abandon(self) -> None:
        """Forget what is not returned yet; nothing of it runs any more."""
        while self._running:
            one = self._running.pop()
            if not one.cancel():
                one.exception()  # waits

    def _taken(self, left: int) -> Iterator[Result]:
        found = []
        while len(self._running) > left:
            found.append(self._running.popleft().result())
        return iter(found)


def in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the result of the work for every item, in order."""
    line = Line(work)
    try:
        for item in items:
            yield from line.put(item)
        yield from line.rest()
    finally:
        line.abandon()
