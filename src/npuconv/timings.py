"""Seconds of each stage of a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Timings:
    """Seconds by stage, in the order in which stages first ran."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, stage: str, seconds: float) -> None:
        """Add seconds to a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @contextlib.contextmanager
    def measured(self, stage: str) -> Iterator[None]:
        """Add the seconds of the block to a stage."""
        start = time.perf_counter()
        yield
        self.add(stage, time.perf_counter() - start)
