"""All of a report as text, for ``-v``, for files and logs; one screen of it is in ``brief``.

Plain ASCII apart from names of the model, which are escaped. No line is wider than asked, so
that it reads well in a terminal and in a CI log.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from npuconv import files
from npuconv.report import Unreadable, groups, terminal
from npuconv.report.job_names import shown_names
from npuconv.report.sections import Note, Section, Table, overview, sections
from npuconv.report.words import count
from npuconv.schemas.batch import BatchJob, BatchReport
from npuconv.schemas.report import Report


def render(report: Report, *, color: bool = False, width: int = 80) -> str:
    """Render one report: every node, every rewrite and those that were considered but not done.

    Args:
        report: what to show.
        color: with ANSI styles.
        width: columns of the terminal; at least 60 are used.

    Returns:
        Text that ends in one newline.
    """
    return terminal.render(_document(report), color=color, width=width)


def render_many(
    reports: Sequence[Report],
    unreadable: Sequence[Unreadable] = (),
    *,
    color: bool = False,
    width: int = 80,
) -> str:
    """Render each report, then one table of all.

    Args:
        reports: in the order in which they are shown.
        unreadable: files that are no models.
        color: with ANSI styles.
        width: columns of the terminal; at least 60 are used.
    """
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
    batch: BatchReport, base: str = "", *, color: bool = False, verbose: bool = False,
    width: int = 80,
) -> str:  # fmt: skip
    """Render the summary of a batch for a terminal.

    Args:
        batch: what to show.
        base: not used; the text has no links.
        color: with ANSI styles.
        verbose: with the files of every job.
        width: columns of the terminal.

    Returns:
        Text that ends in one newline.
    """
    del base
    label, style = ("DONE", "green") if batch.ok else ("NOT ALL DONE", "red")
    targets = {job.target for job in batch.jobs}
    subject = f"{batch.jobs_file} for {targets.pop()}" if len(targets) == 1 else batch.jobs_file
    short_names = shown_names(batch.jobs)
    causes = [
        f"{short_names[job.name]}: {job.status}: {job.message}"
        for job in groups.not_converted(batch)
    ]
    document = [
        Section(f"{label}: {subject}: {batch.summary.headline}", style=style),
        Section("", [_jobs(batch)]),
        Section("Not converted" if causes else "", causes),
    ]
    if verbose:
        document += [
            Section(job.name, [file.path for file in job.files]) for job in batch.jobs if job.files
        ]
    return terminal.render(document, color=color, width=width)


def _document(report: Report) -> list[Section]:
    """Return what is not judged, the verdict with the warnings, then all sections."""
    summary = report.summary
    verdict = f"{groups.verdict(report)}: {report.model.path} on {report.target.name}"
    return [
        Section("", [Note("not judged:", [sentence]) for sentence in summary.not_judged]),
        Section(
            f"{verdict}: {summary.headline}",
            [Note("warning:", [warning]) for warning in summary.warnings],
            style=groups.verdict_style(report),
        ),
        *sections(report, each=True),
    ]


def _jobs(batch: BatchReport) -> Table:
    """Return a row for each job, behind the columns that tell the jobs from each other.

    That is the model, by its folder where it is called ``model.onnx`` and without the folders that
    all share; target, and form, where they differ. Where models are not told apart, as those of
    absolute paths, which no report has, it is what the names of the jobs say besides.
    """
    pairs = [(job.target, job.format) for job in batch.jobs]
    differing = {"target": [target for target, _ in pairs], "form": [form for _, form in pairs]}
    if len(set(pairs)) == len({target for target, _ in pairs}):
        del differing["form"]
    if len({target for target, _ in pairs}) <= 1:
        del differing["target"]
    for title, names in (
        ("model", _models(batch)),
        ("job", [_job_without_target(job) for job in batch.jobs]),
    ):
        head, rows = (title, *differing), list(zip(names, *differing.values(), strict=True))
        if len(set(rows)) == len(rows):
            break
    else:
        head, rows = ("job",), [(job.name,) for job in batch.jobs]
    table = [(*row, *groups.batch_row(job)[2:]) for row, job in zip(rows, batch.jobs, strict=True)]
    titles = (*head, *groups.BATCH_HEAD[2:])
    return Table(titles, table, range(len(head) + 1, len(titles)), range(len(head) + 1))


def _models(batch: BatchReport) -> list[str]:
    """Return the paths of the models without the folders that all share."""
    unnamed = f"/{files.UNNAMED}"
    stems = [job.model.removesuffix(unnamed).removesuffix(".onnx") for job in batch.jobs]
    try:
        shared = posixpath.commonpath([stem.rpartition("/")[0] for stem in stems])
    except ValueError:  # some are absolute, others not; or there are none
        shared = ""
    return [stem.removeprefix(shared).removeprefix("/") for stem in stems]


def _job_without_target(job: BatchJob) -> str:
    """Return the name of a job without its target, its form, and ``model`` at the end."""
    parts = [part for part in job.name.split("/") if part not in (job.target, job.format)]
    return "/".join(parts).removesuffix(f"/{files.UNNAMED.removesuffix('.onnx')}")
