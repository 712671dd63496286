"""Seconds of each stage of a run, and the share of the run that is done."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

Progress = Callable[[str, int, int], None]  # stage, done, total; a total of 0 is unknown
Step = Callable[[int, int], None]  # done, total of an inner loop

WHOLE = 1000  # total that is reported to ``Progress`` when the costs of all stages are known


def silent(_stage: str, _done: int, _total: int) -> None:
    """Ignore progress."""


class Timings:
    """Seconds by stage, in the order in which stages first ran.

    Args:
        progress: called when a stage begins, and by ``step``, with the stage, the part of the run
            that is done, and ``WHOLE``; before ``expect`` the total is 0.
    """

    def __init__(self, progress: Progress = silent) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress
        self._expected: dict[str, float] = {}
        self._stage, self._finished = "", set[str]()

    def expect(self, costs: Mapping[str, float]) -> None:
        """Set the costs of the stages to come, in any unit."""
        total = sum(costs.values())
        self._expected = {stage: WHOLE * cost / total for stage, cost in costs.items()}

    def add(self, stage: str, seconds: float) -> None:
        """Add seconds to a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @contextlib.contextmanager
    def measured(self, stage: str) -> Iterator[None]:
        """Add the seconds of the block to a stage."""
        self._stage = stage
        self._report(stage, 0.0)
        start = time.perf_counter()
        yield
        self.add(stage, time.perf_counter() - start)
        self._finished.add(stage)

    def announce(self, text: str, total: int) -> None:
        """Report a text at the beginning of a run of ``total`` parts."""
        self._progress(text, 0, total)

    def step(self, done: int, total: int) -> None:
        """Report the progress of the current stage."""
        self._report(f"{self._stage} {done}/{total}", done / total)

    def _report(self, text: str, share: float) -> None:
        before = sum(self._expected.get(stage, 0.0) for stage in self._finished)
        if self._stage not in self._finished:  # a second run of a stage adds no progress
            before += share * self._expected.get(self._stage, 0.0)
        self._progress(text, round(before), WHOLE if self._expected else 0)
