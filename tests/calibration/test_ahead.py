"""Reading ahead: the same items in the same order, a few at a time, and no thread left."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from npuconv.calibration.ahead import DEPTH, read_ahead


def readers():
    return [t for t in threading.enumerate() if t.name == "npuconv-samples"]


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_the_same_items(count):
    """All of them, in order."""
    assert list(read_ahead(range(count))) == list(range(count))
    assert not readers()


def test_it_is_not_far_ahead():
    """No more are made than may wait, and the one that is being put."""
    made = []

    def source():
        for number in range(20):
            made.append(number)
            yield number

    items = read_ahead(source())
    assert next(items) == 0
    time.sleep(0.1)
    assert len(made) <= 1 + DEPTH + 1
    items.close()
    assert not readers()


def test_it_is_ahead():
    """The next item is made while the last one is worked on."""
    second = threading.Event()

    def source():
        yield 1
        second.set()
        yield 2

    with contextlib.closing(read_ahead(source())) as items:
        next(items)
        assert second.wait(5)


def test_errors_of_the_source_come_in_their_turn():
    """After what was read before them, with their own type."""

    def source():
        yield 1
        raise KeyError("two")

    items = read_ahead(source())
    assert next(items) == 1
    with pytest.raises(KeyError, match="two"):
        next(items)
    assert not readers()


def test_a_caller_that_fails():
    """The thread ends with it."""

    def listen():
        with contextlib.closing(read_ahead(range(100))) as items:
            for _ in items:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        listen()
    assert not readers()
