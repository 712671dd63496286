"""The next samples are read while the model runs on this one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")

DEPTH = 2  # items that wait at most: memory stays bounded
_POLL = 0.05  # seconds after which a reader that nobody listens to notices it


class _End:
    """Last item of the reader, with the error that ended it, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def read_ahead(items: Iterable[Item], depth: int = DEPTH) -> Generator[Item]:
    """The same items, made in a thread of their own.

    An error of the source is raised here, after the items before it. When the caller stops
    listening (``close``, or an error of its own), the thread ends with the item it is at.
    """
    reader = _Reader(items, depth)
    reader.start()
    try:
        yield from reader
    finally:
        reader.stop()


class _Reader(threading.Thread, Generic[Item]):
    def __init__(self, items: Iterable[Item], depth: int) -> None:
        super().__init__(name="npuconv-samples", daemon=True)
        self._items = items
        self._queue: queue.Queue[Item | _End] = queue.Queue(depth)
        self._unwanted = threading.Event()

    def run(self) -> None:
        """Read until the source or the interest ends."""
        try:
            for item in self._items:
                self._put(item)
                if self._unwanted.is_set():
                    return
            self._put(_End())
        except BaseException as error:  # it belongs to whoever waits for the items
            self._put(_End(error))

    def __iter__(self) -> Iterator[Item]:
        while not isinstance(item := self._queue.get(), _End):
            yield item
        if item.error is not None:
            raise item.error

    def stop(self) -> None:
        """Tell the thread to stop, and wait for its end."""
        self._unwanted.set()
        self.join()

    def _put(self, item: Item | _End) -> None:
        while not self._unwanted.is_set():
            try:
                return self._queue.put(item, timeout=_POLL)
            except queue.Full:
                continue
        return None
