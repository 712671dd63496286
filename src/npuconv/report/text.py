"""All of a report as text, for ``-v``, for files and logs; one screen of it is in ``brief``.

Plain ASCII apart from names of the model, which are escaped. No line is wider than asked, so
that it reads well in a terminal and in a CI log.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuconv.report import Unreadable, groups, terminal
from npuconv.report.sections import Note, Section, Table, overview, sections
from npuconv.report.words import count
from npuconv.schemas.batch import BatchReport
from npuconv.schemas.report import Report


def render(report: Report, *, color: bool = False, width: int = 80) -> str:
    """Render one report: every node, every rewrite, and rewrites that were considered but not done.

    ``color`` adds ANSI styles; ``width`` are the columns of the terminal, of which at least 60
    are used.
    """
    return terminal.render(_document(report), color=color, width=width)


def render_many(
    reports: Sequence[Report],
    unreadable: Sequence[Unreadable] = (),
    *,
    color: bool = False,
    width: int = 80,
) -> str:
    """Render each report, then one table of all, then the unreadable files."""
    document = [section for report in reports for section in _document(report)]
    if reports:
        refused = sum(not report.ok for report in reports)
        title = f"{count(len(reports), 'report')}, {refused} refused"
        document.append(Section(title, [overview(reports)]))
    elif not unreadable:
        document.append(Section("no models"))
    errors = [Note("cannot be read:", [f"{path}: {message}"]) for path, message in unreadable]
    return terminal.render([*document, Section("", errors)], color=color, width=width)


def render_batch(
    batch: BatchReport, *, color: bool = False, verbose: bool = False, width: int = 80
) -> str:
    """Render the summary of a batch; with ``verbose`` also the files of every job."""
    label, style = ("DONE", "green") if batch.ok else ("NOT ALL DONE", "red")
    targets = {job.target for job in batch.jobs}
    subject = f"{batch.jobs_file} for {targets.pop()}" if len(targets) == 1 else batch.jobs_file
    short_names = groups.shown_names({job.name: job.model for job in batch.jobs})
    rows = [(short_names[job.name], *groups.batch_row(job)[1:]) for job in batch.jobs]
    causes = [
        f"{short_names[job.name]}: {job.status}: {job.message}"
        for job in groups.not_converted(batch)
    ]
    document = [
        Section(f"{label}: {subject}: {batch.summary.headline}", style=style),
        Section("", [Table(groups.BATCH_HEAD, rows, range(3, len(groups.BATCH_HEAD)), (0, 1))]),
        Section("Not converted" if causes else "", causes),
    ]
    if verbose:
        document += [
            Section(job.name, [file.path for file in job.files]) for job in batch.jobs if job.files
        ]
    return terminal.render(document, color=color, width=width)


def _document(report: Report) -> list[Section]:
    """Return the notes on unjudged parts, the verdict with the warnings, then all sections."""
    summary = report.summary
    verdict = f"{groups.verdict(report)}: {report.model.path} on {report.target.name}"
    return [
        Section("", [Note("not judged:", [sentence]) for sentence in summary.not_judged]),
        Section(
            f"{verdict}: {summary.headline}",
            [Note("warning:", [warning]) for warning in summary.warnings],
            style=groups.verdict_style(report),
        ),
        *sections(report, by_node=True),
    ]
