"""Split of a job's calibration on a cluster: several workers first, each a block of samples."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from npuconv.batch.job import Job, Outcome, Place
from npuconv.batch.settings import Settings


class Splitter:
    """Submits the blocks of jobs, which a job then depends on.

    Args:
        client: of Dask.
        settings: whether calibrations are split.
        place: where jobs run.
        jobs: how many are to be done.
    """

    def __init__(self, client: Any, settings: Settings, place: Place, jobs: int) -> None:
        self._client, self.common = client, place
        at_once = sum(client.nthreads().values())
        wanted = settings.split_calibration
        wanted = at_once > jobs if wanted is None else wanted
        self.blocks = at_once if wanted and at_once > 1 else 0
        self._futures: dict[str, list[Any]] = {}  # by name of the job
        self._counters: list[Any] = []  # of attempts at blocks

    def place(self, job: Job) -> Place:
        """Return the place of a job; for a split one, with the folder of its calibrated blocks."""
        if not self.blocks or not calibrates(job):
            return self.common
        return replace(self.common, parts=self.common.root / (job.options.cache or self._own(job)))

    def submit(self, job: Job, request: dict[str, Any], parcels: list[Any]) -> list[Any]:
        """Submit the blocks of a job.

        Args:
            job: what to do.
            request: what workers are told of it; its counter is made anew for each block.
            parcels: its files, where none are shared.

        Returns:
            Their futures: of what was made, where no files are shared.
        """
        if request["place"]["parts"] is None:
            return []
        self._futures[job.name] = found = [
            self._submit(job, request, number, parcels) for number in range(self.blocks)
        ]
        return found

    def _submit(self, job: Job, request: dict[str, Any], number: int, parcels: list[Any]) -> Any:
        from distributed import Variable

        from npuconv.batch import remote

        name, block = f"{request['counter']}-{number}", (number, self.blocks)
        counter = Variable(name, client=self._client)
        counter.set(0)
        self._counters.append(counter)
        own = {**request, "counter": name}
        key = f"{name}-{job.name}"
        return self._client.submit(remote.calibrate, own, block, *parcels, key=key, pure=False)

    def ended(self, job: Job, outcome: Outcome) -> None:
        """Drop the calibration blocks of a job.

        Their folder is deleted if the job has finished and names no cache; a job that will be
        tried again may use it.
        """
        self._futures.pop(job.name, None)
        if outcome.finished and not job.options.cache:
            shutil.rmtree(self._own(job), ignore_errors=True)

    def close(self) -> None:
        """Cancel all blocks and delete their counters."""
        futures = [future for found in self._futures.values() for future in found]
        self._client.cancel(futures, force=True)
        for counter in self._counters:
            counter.delete()

    def _own(self, job: Job) -> Path:
        digest = hashlib.sha256(str(self.common.root / job.output).encode()).hexdigest()
        return self.common.cache / f"calibration-{digest[:16]}"


def calibrates(job: Job) -> bool:
    """Return whether a job has calibration data and a format that calibrates."""
    from npuconv import emit

    return job.options.calibration is not None and emit.get(job.options.format).calibrates
