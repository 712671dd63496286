"""Workers: results and items in order, bounded memory, and no thread left."""

from __future__ import annotations

import threading
import time

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from npuconv import executor
from npuconv.data.workers import MAX_WORKERS, in_order, one_thread_each, start_work


@pytest.fixture(params=[1, 2, MAX_WORKERS + 1])
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the number of workers, for several numbers of cores."""
    monkeypatch.setattr(executor, "cores", lambda: request.param)
    return min(request.param, MAX_WORKERS)


@pytest.mark.usefixtures("room")
def test_results_are_in_the_order_of_the_items() -> None:
    """Results keep the order of the items where the first takes longest."""

    def work(item: int) -> int:
        time.sleep(0.02 if item == 0 else 0)
        return item * item

    assert list(in_order(work, range(9))) == [k * k for k in range(9)]


@pytest.mark.usefixtures("room")
def test_an_error_comes_in_its_turn() -> None:
    """An error is raised after the results before it."""

    def work(item: int) -> int:
        if item == 3:
            raise ValueError("three")
        return item

    several = in_order(work, range(9))
    assert [next(several) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(several)


def test_one_more_item_is_taken_than_there_are_workers(room: int) -> None:
    """One item at most waits for a worker."""
    taken, lock = 0, threading.Lock()
    most = 0

    def items() -> object:
        nonlocal taken
        for item in range(30):
            with lock:
                taken += 1
            yield item

    for done, _ in enumerate(in_order(lambda item: item, items()), 1):  # type: ignore[arg-type]
        most = max(most, taken - done)
    assert most <= (room if room > 1 else 0)


def test_what_is_abandoned_does_not_run_on(room: int) -> None:
    """No work goes on after the caller has stopped listening."""
    begun, ended = [], []

    def work(item: int) -> int:
        begun.append(item)
        time.sleep(0.005)
        ended.append(item)
        return item

    several = in_order(work, range(9))
    next(several)
    several.close()  # type: ignore[attr-defined]
    assert sorted(begun) == sorted(ended)
    assert len(begun) <= room + 2


def test_matrix_products_on_one_thread() -> None:
    """BLAS uses one thread within the statement, and as many as before behind it."""

    def threads() -> list[int]:
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    with threadpool_limits(2, "blas"):
        with one_thread_each():
            inside = threads()
        after = threads()
    assert set(inside) == {1}
    assert set(after) == {2}


@pytest.mark.usefixtures("room")
def test_started_work() -> None:
    """The wait returns the result, as often as it is asked for, or raises the error of the work."""
    wait = start_work(lambda: threading.current_thread().name)
    assert wait() == wait()
    with pytest.raises(ZeroDivisionError):
        start_work(lambda: 1 // 0)()


def test_started_work_runs_beside_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """On several cores the caller goes on; on one the work is done at once."""
    for cores, others in ((2, True), (1, False)):
        monkeypatch.setattr(executor, "cores", lambda cores=cores: cores)
        assert (start_work(threading.get_ident)() != threading.get_ident()) == others
