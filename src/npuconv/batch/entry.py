"""A batch from its jobs file to its report, for Python and for the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from npuconv.batch import local
from npuconv.batch.alone import alone
from npuconv.batch.book import Book, Silent, sweep
from npuconv.batch.expand import Expanded, expand
from npuconv.batch.job import Job, Limits, Outcome, Place
from npuconv.batch.local import Watcher
from npuconv.batch.lock import Locks
from npuconv.batch.settings import Settings, settings
from npuconv.batch.splitting import calibrates
from npuconv.batch.summary import read_report, summarize
from npuconv.errors import OutputError
from npuconv.schemas.batch import BatchReport

CACHE = ".npuconv-cache"  # in the folder of the results


class Batch:
    """The jobs of a file, and what there is of their results.

    Args:
        path: the jobs file.
        settings: how they are run.
        options: hold for every job, whatever the file says; paths from the current folder.
        config: a configuration that holds where the file says nothing.

    Raises:
        ConfigError: the file, or the configuration, is wrong; with line and column.
        UsageError: an option cannot be used.
        TargetError: a target that is an option cannot be read.
    """

    def __init__(
        self,
        path: str | Path,
        settings: Settings | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
        config: str | Path | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.expanded: Expanded = expand(path, options, config)
        self.root = self.expanded.root
        self.output = self.root / self.expanded.output
        cache = self.settings.cache
        self.place = Place(
            self.root, cache.resolve() if cache else self.output / CACHE, self.settings.threads
        )
        self.jobs = tuple(map(self._with_settings, self.expanded.jobs))
        self.locks = Locks(self.root, self.settings.threads)

    def _with_settings(self, job: Job) -> Job:
        own, common = job.limits, self.settings.limits
        limits = Limits(own.timeout or common.timeout, own.memory or common.memory)
        return replace(job, limits=limits)

    @property
    def folders(self) -> set[Path]:
        """Folders of the results; a run makes those that are missing."""
        homes = ((self.root / job.output).parent for job in self.jobs)
        return {home.resolve() for home in (self.output, *homes)}

    def differences(self) -> dict[str, list[str]]:
        """Return how jobs differ from their locks, by job name; only jobs that differ."""
        found = {job.name: list(self.locks.differences(job)) for job in self.jobs}
        return {name: said for name, said in found.items() if said}

    def to_do(self) -> dict[str, list[str]]:
        """Return why each job would run, by its name; only jobs that would run."""
        found = self.differences()
        if self.settings.resume:
            return found
        again = ["done and unchanged, but all are to be done again"]
        return {job.name: found.get(job.name, again) for job in self.jobs}

    def missing(self) -> dict[str, str]:
        """Calibration samples that are not there, by name of the job that wants them."""
        wanted = {job.name: job.options.calibration for job in self.jobs if calibrates(job)}
        return {
            name: path for name, path in wanted.items() if path and not (self.root / path).exists()
        }

    def run(self, watcher: Watcher | None = None) -> BatchReport:
        """Do what has not been done yet.

        Raises:
            OutputError: the results cannot be written, or another batch writes them.
        """
        with alone(self.output, self.expanded.output):
            return self._run_alone(watcher or Silent())

    def _run_alone(self, watcher: Watcher) -> BatchReport:
        done = self._done() if self.settings.resume else {}
        sweep(self.root, self.jobs)
        watcher.skipped(len(done))
        book = Book(self.root, self.locks, watcher)
        todo = [job for job in self.jobs if job.name not in done]
        self._make_folders(todo)
        self._run(todo, book)
        outcomes = {**done, **book.outcomes}
        file = self.expanded.file
        return summarize(file, self.root, self.jobs, outcomes, frozenset(done))

    def _done(self) -> dict[str, Outcome]:
        found = {job.name: self.locks.outcome(job) for job in self.jobs}
        there = {job.name for job in self.jobs if found[job.name] and read_report(self.root, job)}
        return {name: one for name, one in found.items() if one and name in there}

    def _run(self, todo: list[Job], watcher: Watcher) -> None:
        chosen = self.settings
        if not todo:
            return
        if chosen.scheduler or chosen.local_cluster:
            from npuconv.batch import cluster

            cluster.run(todo, self.place, watcher, settings=chosen)
            return
        local.run(todo, self.place, watcher, at_once=chosen.at_once)

    def _make_folders(self, todo: Iterable[Job]) -> None:
        for folder in {(self.root / job.output).parent for job in todo}:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise OutputError(f"{folder}: cannot be made: {error.strerror}") from None


def run_batch(  # noqa: PLR0913 one keyword per flag
    path: str | Path,
    *,
    jobs: int | None = None,
    threads: int = 1,
    timeout: float | str | None = None,
    memory: int | str | None = None,
    resume: bool = True,
    cache: str | Path | None = None,
    scheduler: str | None = None,
    local_cluster: int = 0,
    ship: bool = False,
    split_calibration: bool | None = None,
    watcher: Watcher | None = None,
    **options: Any,
) -> BatchReport:
    """Run the jobs of a file, each in a process of its own.

    Args:
        path: the jobs file.
        jobs: how many at once; None: as many as there are cores for.
        threads: of each job.
        timeout: seconds, or text as in ``10m``, that a job may take.
        memory: bytes, or text as in ``4GiB``, that a job may take.
        resume: leave as it is what has been done and has not changed.
        cache: folder of decoded samples, which jobs share; None: in that of the results.
        scheduler: address of a Dask scheduler, as in ``tcp://host:8786``.
        local_cluster: workers of a Dask cluster that is started for this batch.
        ship: send files to the workers; without it they see the same paths.
        split_calibration: let all workers calibrate for one job together; None: where there
            are more of them than jobs to do.
        watcher: is told what happens to each job.
        **options: the keys of ``npuconv.config.Options`` but for ``cache``: they hold for every
            job and win over the jobs file. Paths are relative to the current folder, while
            those in the file are relative to it.

    Returns:
        What became of each job, in the order of the file. A job that fails is no exception.

    Raises:
        ConfigError: the file is wrong; with line and column.
        UsageError: an argument cannot be used.
        TargetError: a target that is an argument cannot be read.
        OutputError: the results cannot be written, or another batch writes them.
    """
    chosen = settings(
        jobs=jobs, threads=threads, timeout=timeout, memory=memory, resume=resume, cache=cache,
        scheduler=scheduler, local_cluster=local_cluster, ship=ship,
        split_calibration=split_calibration,
    )  # fmt: skip
    return Batch(path, chosen, options).run(watcher)
