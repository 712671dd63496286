"""A batch from its jobs file to its report, for Python and for the command line."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Unpack

import psutil
from pydantic import ValidationError

from npuconv import files
from npuconv.batch import cluster, local
from npuconv.batch.expand import Expanded, expand, locate
from npuconv.batch.job import EXIT_CODES, Job, JobLimits, Outcome, Place, Settings, make_settings
from npuconv.batch.local import Watcher
from npuconv.batch.lock import Locks, portable
from npuconv.errors import OutputError, UsageError
from npuconv.evaluate import vela
from npuconv.keywords import BatchKeywords
from npuconv.report.words import count
from npuconv.schemas.batch import BatchJob, BatchReport, BatchSummary, JobFile
from npuconv.schemas.report import Report, Tool
from npuconv.target import Target
from npuconv.version import __version__

LOCK_NAME = ".npuconv-batch"
# Seconds by which two readings of the start of one process may differ: clocks are adjusted.
_START_TOLERANCE = 5.0


class Journal(Watcher):
    """Watcher that keeps the outcome of each job and writes the lock of each finished one."""

    def __init__(self, root: Path, locks: Locks, watcher: Watcher) -> None:
        self._root, self._locks, self._watcher = root, locks, watcher
        self.outcomes: dict[str, Outcome] = {}

    def skipped(self, count: int) -> None:
        """Forward the event."""
        self._watcher.skipped(count)

    def started(self, job: Job) -> None:
        """Forward the event."""
        self._watcher.started(job)

    def stage(self, job: Job, stage: str, done: int, total: int) -> None:
        """Forward the event."""
        self._watcher.stage(job, stage, done, total)

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Record the outcome, write the lock of the job, and forward the event."""
        remove_partial_files(self._root, [job])
        outcome = self._checked(job, outcome)
        if outcome.finished:
            self._remove_stale_model(job, outcome)
            self._locks.write(job, outcome)
        self.outcomes[job.name] = outcome
        self._watcher.finished(job, outcome)

    def _checked(self, job: Job, outcome: Outcome) -> Outcome:
        """Return a failure if the model was not the one whose digest the lock would have."""
        planned = self._locks.digests.model(job)["sha256"]
        if not outcome.finished or outcome.model_sha256 == planned:
            return outcome
        return Outcome("failed", f"{job.model}: was changed while the batch ran; run it again")

    def _remove_stale_model(self, job: Job, outcome: Outcome) -> None:
        """Remove the model of an earlier run if this one wrote none: its report would not fit."""
        if job.output in outcome.files:
            return
        earlier = self._locks.read(job)
        path = self._root / job.output
        if earlier and earlier["outputs"].get(path.name):
            path.unlink(missing_ok=True)


def remove_partial_files(root: Path, jobs: Iterable[Job]) -> None:
    """Remove incomplete files of jobs whose processes have ended."""
    for job in jobs:
        for file in job.files:
            path = root / file
            for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
                pid = part.name.split(".")[-2]
                if not (pid.isdigit() and psutil.pid_exists(int(pid))):
                    with contextlib.suppress(OSError):
                        part.unlink()


@contextlib.contextmanager
def directory_lock(folder: Path, shown: str) -> Iterator[None]:
    """Lock a folder against other batches within a with statement.

    The lock of a process of this machine that has ended is taken over.

    Raises:
        OutputError: another batch has it, or it cannot be written.
    """
    path = folder / LOCK_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{shown}: cannot be made: {error.strerror}") from None
    try:
        while not _acquire(path, shown):
            pass
    except OSError as error:
        raise OutputError(f"{shown}: cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _acquire(path: Path, shown: str) -> bool:
    """Write this process into the lock file; return False if the file was removed meanwhile."""
    with path.open("a+", encoding="utf-8") as stream, _locked(stream):
        try:
            if path.stat().st_ino != os.fstat(stream.fileno()).st_ino:
                return False
        except FileNotFoundError:
            return False
        stream.seek(0)
        holder = _parse_holder(stream.read())
        if holder is not None and _is_running(holder):
            raise _held_error(holder, shown)
        stream.truncate(0)
        me = psutil.Process()
        own = {"host": socket.gethostname(), "pid": me.pid, "began": me.create_time()}
        json.dump(own, stream)
    return True


@contextlib.contextmanager
def _locked(stream: IO[str]) -> Iterator[None]:
    """Lock the file within a with statement; do without where files cannot be locked."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(stream, fcntl.LOCK_EX)
    yield
    stream.flush()


def _parse_holder(text: str) -> dict[str, Any] | None:
    """Return the process that holds the folder; None where its entry is incomplete."""
    try:
        found = json.loads(text)
        return {"host": str(found["host"]), "pid": int(found["pid"]), "began": found["began"] + 0.0}
    except (ValueError, KeyError, TypeError):
        return None


def _is_running(holder: dict[str, Any]) -> bool:
    """Return whether the holder still runs (same pid and start); True if that is not known."""
    if holder["host"] != socket.gethostname():  # not known on this machine
        return True
    try:
        process = psutil.Process(holder["pid"])
        ended = process.status() == psutil.STATUS_ZOMBIE
        return not ended and abs(process.create_time() - holder["began"]) < _START_TOLERANCE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _held_error(holder: dict[str, Any], shown: str) -> OutputError:
    here = holder["host"] == socket.gethostname()
    where = "" if here else f" on {holder['host']}"
    gone = "" if here else f"; if it is gone, delete {LOCK_NAME} there"
    return OutputError(
        f"{shown}: another npuconv batch writes there (process {holder['pid']}{where})",
        hint=f"wait until it has ended, or give another output{gone}",
    )


CACHE = ".npuconv-cache"  # in the folder of the results


class Batch:
    """The jobs of a file, and the results of earlier runs.

    ``options`` hold for every job, whatever the file says, with paths from the current folder;
    ``config`` holds where the file says nothing.

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
        limits = JobLimits(own.timeout or common.timeout, own.memory or common.memory)
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
        """Return what a job lacks to run, by its name: calibration samples, or Vela.

        Raises:
            UsageError: the jobs are for a cluster, and Dask is not installed.
        """
        if self.settings.on_cluster:
            cluster.require_dask()
        lacks = {}
        for job in self.jobs:
            path = job.options.calibration if job.calibrates else None
            if path and not (self.root / path).exists():
                lacks[job.name] = f"calibration: {path}: no such file or directory"
            elif job.options.with_vela:
                target = Target.load(locate(job.options.target, self.root))
                try:
                    vela.require(target.next_command, job.options.format)
                except UsageError as error:
                    lacks[job.name] = str(error)
        return lacks

    def run(self, watcher: Watcher | None = None) -> BatchReport:
        """Run the jobs that are not done yet.

        Raises:
            OutputError: the results cannot be written, or another batch writes them.
        """
        with directory_lock(self.output, self.expanded.output):
            return self._run_locked(watcher or Watcher())

    def _run_locked(self, watcher: Watcher) -> BatchReport:
        done = self._done() if self.settings.resume else {}
        remove_partial_files(self.root, self.jobs)
        watcher.skipped(len(done))
        journal = Journal(self.root, self.locks, watcher)
        todo = [job for job in self.jobs if job.name not in done]
        for folder in {(self.root / job.output).parent for job in todo}:
            files.make_folder(folder)
        if todo and self.settings.on_cluster:
            cluster.run(todo, self.place, journal, settings=self.settings)
        elif todo:
            local.run(todo, self.place, journal, at_once=self.settings.at_once)
        outcomes = {**done, **journal.outcomes}
        rows = (_row(self.root, job, outcomes[job.name], job.name in done) for job in self.jobs)
        return _report(self.expanded.file, tuple(rows))

    def _done(self) -> dict[str, Outcome]:
        found = {job.name: self.locks.outcome(job) for job in self.jobs}
        there = {job.name for job in self.jobs if found[job.name] and _read_report(self.root, job)}
        return {name: one for name, one in found.items() if one and name in there}


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
    **options: Unpack[BatchKeywords],
) -> BatchReport:
    """Run the jobs of a file, each in a process of its own.

    Args:
        path: the jobs file.
        jobs: how many at once; None: as many as there are cores for.
        threads: of each job.
        timeout: of a job: seconds, or text as in ``10m``.
        memory: of a job: bytes, or text as in ``4GiB``.
        resume: leave as it is what has been done and has not changed.
        cache: folder of decoded samples, which jobs share; None: in that of the results.
        scheduler: address of a Dask scheduler, as in ``tcp://host:8786``.
        local_cluster: workers of a Dask cluster that is started for this batch.
        ship: send files to the workers; without it they see the same paths.
        split_calibration: let all workers calibrate for one job together; None: where there
            are more of them than jobs to do.
        watcher: receives the events of each job.
        **options: the keys of ``npuconv.config.Options`` but for ``cache``: they hold for every
            job and win over the jobs file. Paths are relative to the current folder, while
            those in the file are relative to it.

    Returns:
        The outcome of each job, in the order of the file. A job that fails is no exception.

    Raises:
        ConfigError: the file is wrong; with line and column.
        UsageError, TargetError: an argument, or the target that it names, cannot be used.
        OutputError: the results cannot be written, or another batch writes them.
    """
    chosen = make_settings(
        jobs=jobs, threads=threads, timeout=timeout, memory=memory, resume=resume, cache=cache,
        scheduler=scheduler, local_cluster=local_cluster, ship=ship,
        split_calibration=split_calibration,
    )  # fmt: skip
    return Batch(path, chosen, options).run(watcher)


def _read_report(root: Path, job: Job) -> Report | None:
    """Return the report that a job has written; None if it has not, or one of another version."""
    try:
        return Report.model_validate_json((root / job.reports[0]).read_bytes())
    except (OSError, ValidationError):
        return None


def _row(root: Path, job: Job, outcome: Outcome, unchanged: bool) -> BatchJob:
    report = _read_report(root, job) if outcome.finished else None
    row = BatchJob(
        name=job.name,
        model=portable(job.model),
        target=job.target,
        format=job.options.format,
        status=outcome.status,
        exit_code=EXIT_CODES[outcome.status],
        message=outcome.message,
        by_severity=report.summary.by_severity if report else None,
        sqnr_db=report.accuracy.sqnr_db if report and report.accuracy else None,
        synthetic=bool(report and report.quantization and report.quantization.synthetic),
        files=tuple(
            JobFile(path=portable(path), sha256=digest)
            for path, digest in sorted(outcome.files.items())
        ),
    )
    return row.with_report(report, unchanged=unchanged)


def _report(file: Path, rows: tuple[BatchJob, ...]) -> BatchReport:
    found = {status: sum(row.status == status for row in rows) for status in EXIT_CODES}
    by_status = {status: number for status, number in found.items() if number}
    parts = ", ".join(f"{number} {status}" for status, number in by_status.items())
    codes = {row.exit_code for row in rows}
    worst = EXIT_CODES["bug"] if EXIT_CODES["bug"] in codes else int(any(codes))
    blind = sum(row.synthetic for row in rows)
    unproven = f"; accuracy of {blind} is unproven, no calibration data" if blind else ""
    headline = f"{count(len(rows), 'job')}: {parts}{unproven}"
    summary = BatchSummary(exit_code=worst, headline=headline, by_status=by_status)
    tool = Tool(version=__version__)
    return BatchReport(tool=tool, jobs_file=file.name, summary=summary, jobs=rows)
