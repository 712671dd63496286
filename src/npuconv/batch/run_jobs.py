"""A batch from its jobs file to its report, for Python and for the command line."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack

from npuconv import files
from npuconv.batch import cluster, local
from npuconv.batch.fingerprint import Locks, portable
from npuconv.batch.job import EXIT_CODES, Job, Outcome, Settings, make_settings
from npuconv.batch.jobs_file import Expanded, expand
from npuconv.errors import OutputError
from npuconv.keywords import BatchKeywords
from npuconv.report.words import count
from npuconv.schemas.batch import BatchJob, BatchReport, BatchSummary, JobFile
from npuconv.schemas.report import Report, Tool
from npuconv.version import __version__

LOCK_NAME = ".npuconv-batch"


class Watcher:
    """Observer of the progress of a batch; this one ignores all events."""

    def skipped(self, count: int) -> None:
        """Receive the number of jobs that are done and unchanged."""

    def started(self, job: Job) -> None:
        """Receive a job that starts."""

    def stage(self, job: Job, stage: str) -> None:
        """Receive the stage that a job is in."""

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Receive a job that has ended."""


@contextlib.contextmanager
def directory_lock(folder: Path, name: str) -> Iterator[None]:
    """Lock a folder against other batches within a with statement.

    The system releases the lock of a process that ends, however it ends.

    Raises:
        OutputError: another batch has it, or it cannot be written.
    """
    path = files.make_folder(folder) / LOCK_NAME
    with contextlib.ExitStack() as stack:
        try:
            while True:
                stream = stack.enter_context(path.open("a+", encoding="utf-8"))
                if not files.hold(stream.fileno(), wait=False):
                    stream.seek(0)
                    text = f"{name}: another npuconv batch writes there ({stream.read()})"
                    raise OutputError(text, hint="wait until it has ended, or give another output")
                if os.fstat(stream.fileno()).st_nlink:  # 0: its last holder has just removed it
                    break
            stack.callback(path.unlink, missing_ok=True)
            stream.truncate(0)
            stream.write(f"process {os.getpid()} on {socket.gethostname()}")
            stream.flush()
        except OSError as error:
            raise OutputError(f"{name}: cannot be written: {error.strerror}") from None
        yield


class Batch:
    """The jobs of a file, and the results of earlier runs.

    ``options`` hold for every job and win over the file; their paths are relative to the current
    folder. ``config`` has the options that the file leaves out.

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
        self.expanded: Expanded = expand(path, options, config, self.settings)
        self.root = self.expanded.root
        self.output = self.root / self.expanded.output
        self.jobs = self.expanded.jobs
        self.locks = Locks(self.root, self.settings.threads)

    @property
    def folders(self) -> set[Path]:
        """Folders of the results; a run creates missing folders."""
        homes = ((self.root / job.output).parent for job in self.jobs)
        return {home.resolve() for home in (self.output, *homes)}

    def to_do(self) -> dict[str, list[str]]:
        """Return why each job would run, by its name; only jobs that would run."""
        again = [] if self.settings.resume else ["done and unchanged, but all are to be done again"]
        reasons = {job.name: list(self.locks.differences(job)) or again for job in self.jobs}
        return {name: texts for name, texts in reasons.items() if texts}

    def missing(self) -> dict[str, str]:
        """Return the reason why a job cannot run, by its name: no calibration samples.

        Raises:
            UsageError: the jobs are for a cluster, and Dask is not installed.
        """
        if self.settings.scheduler:
            cluster.require_dask()
        lacks = {}
        for job in self.jobs:
            path = job.options.calibration if job.calibrates else None
            if path and not (self.root / path).exists():
                lacks[job.name] = f"calibration: {path}: no such file or directory"
        return lacks

    def run(self, watcher: Watcher | None = None) -> BatchReport:
        """Run the jobs that are not done yet.

        Raises:
            OutputError: the results cannot be written, or another batch writes them.
        """
        watcher = watcher or Watcher()
        with directory_lock(self.output, self.expanded.output):
            done: dict[str, Outcome] = {}
            for job in self.jobs if self.settings.resume else ():
                outcome = self.locks.outcome(job)
                if outcome and _read_report(self.root, job):
                    done[job.name] = outcome
            watcher.skipped(len(done))
            todo = [job for job in self.jobs if job.name not in done]
            outcomes = done | self._run_jobs(todo, watcher)
            rows = (_row(self.root, job, outcomes[job.name], job.name in done) for job in self.jobs)
            return _report(self.expanded.file, tuple(rows))

    def _run_jobs(self, jobs: Sequence[Job], watcher: Watcher) -> dict[str, Outcome]:
        """Run jobs, and write the lock of each finished one; return outcomes by name."""
        outcomes: dict[str, Outcome] = {}
        with contextlib.ExitStack() as stack:
            for folder in {(self.root / job.output).parent for job in jobs}:
                files.sweep(files.make_folder(folder))
                stack.callback(files.sweep, folder)
            threads, scheduler = self.settings.threads, self.settings.scheduler
            if jobs and scheduler:
                events = cluster.run(jobs, self.root, scheduler, threads=threads)
            else:
                events = local.run(jobs, self.root, threads=threads, at_once=self.settings.at_once)
            for event in stack.enter_context(contextlib.closing(events)):
                if event.outcome:
                    outcomes[event.job.name] = outcome = self._record(event.job, event.outcome)
                    watcher.finished(event.job, outcome)
                elif event.stage:
                    watcher.stage(event.job, event.stage)
                else:
                    watcher.started(event.job)
        return outcomes

    def _record(self, job: Job, outcome: Outcome) -> Outcome:
        """Write the lock of a finished job; a job whose model has changed meanwhile fails."""
        path = self.root / job.output
        if not outcome.finished:
            return outcome
        if outcome.model_sha256 != self.locks.model_digests(job)["sha256"]:
            text = f"{job.model}: was changed while the batch ran; run it again"
            return Outcome("failed", text)
        earlier = self.locks.read(job)
        if job.output not in outcome.files and earlier and earlier["outputs"].get(path.name):
            path.unlink(missing_ok=True)  # the model of an earlier run, without a report now
        self.locks.write(job, outcome)
        return outcome


def run_batch(  # noqa: PLR0913 one keyword per flag
    path: str | Path,
    *,
    jobs: int | None = None,
    threads: int = 1,
    timeout: float | str | None = None,
    memory: int | str | None = None,
    resume: bool = True,
    scheduler: str | None = None,
    watcher: Watcher | None = None,
    **options: Unpack[BatchKeywords],
) -> BatchReport:
    """Run the jobs of a file, each in a process of its own.

    Args:
        path: the jobs file.
        jobs: number of jobs at once; None: as many as there are cores for.
        threads: number of threads of each job.
        timeout: time limit of a job: seconds, or text as in ``10m``.
        memory: memory limit of a job: bytes, or text as in ``4GiB``.
        resume: skip jobs that are done and unchanged.
        scheduler: address of a Dask scheduler, as in ``tcp://host:8786``.
        watcher: receives the events of each job.
        **options: the keys of ``npuconv.config.Options``: they hold for every job and win
            over the jobs file. Paths are relative to the current folder; paths in the file are
            relative to its folder.

    Returns:
        The outcome of each job, in the order of the file. A job that fails raises nothing.

    Raises:
        ConfigError: the file is wrong; with line and column.
        UsageError, TargetError: an argument, or the target that it names, cannot be used.
        OutputError: the results cannot be written, or another batch writes them.
    """
    settings = make_settings(
        jobs=jobs, threads=threads, timeout=timeout, memory=memory, resume=resume,
        scheduler=scheduler,
    )  # fmt: skip
    return Batch(path, settings, options).run(watcher)


def _read_report(root: Path, job: Job) -> Report | None:
    """Return the report of a job; None if it is missing or of another version."""
    try:
        return Report.model_validate_json((root / job.reports[0]).read_bytes())
    except (OSError, ValueError):
        return None


def _row(root: Path, job: Job, outcome: Outcome, unchanged: bool) -> BatchJob:
    report = _read_report(root, job) if outcome.finished else None
    accuracy, quantization = (report.accuracy, report.quantization) if report else (None, None)
    written = sorted(outcome.files.items())
    row = BatchJob(
        name=job.name, model=portable(job.model), target=job.target, format=job.options.format,
        status=outcome.status, exit_code=EXIT_CODES[outcome.status], message=outcome.message,
        by_severity=report.summary.by_severity if report else None,
        sqnr_db=accuracy.sqnr_db if accuracy else None,
        synthetic=bool(quantization and quantization.synthetic),
        files=tuple(JobFile(path=portable(path), sha256=digest) for path, digest in written),
    )  # fmt: skip
    return row.with_report(report, unchanged=unchanged)


def _report(file: Path, rows: tuple[BatchJob, ...]) -> BatchReport:
    counts = {status: sum(row.status == status for row in rows) for status in EXIT_CODES}
    by_status = {status: number for status, number in counts.items() if number}
    parts = ", ".join(f"{number} {status}" for status, number in by_status.items())
    codes = {row.exit_code for row in rows}
    exit_code = EXIT_CODES["bug"] if EXIT_CODES["bug"] in codes else int(any(codes))
    synthetic = sum(row.synthetic for row in rows)
    unproven = f"; accuracy of {synthetic} is unproven, no calibration data" if synthetic else ""
    headline = f"{count(len(rows), 'job')}: {parts}{unproven}"
    summary = BatchSummary(exit_code=exit_code, headline=headline, by_status=by_status)
    tool = Tool(version=__version__)
    return BatchReport(tool=tool, jobs_file=file.name, summary=summary, jobs=rows)
