"""All of a report as text, for ``-v``, for files and logs; one screen of it is in ``brief``.

Plain ASCII apart from names of the model, which are escaped. No line is wider than asked, so
that it reads well in a terminal and in a CI log.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from npuconv import files
from npuconv.report import Unreadable, groups
from npuconv.report.job_names import shown_names
from npuconv.report.sections import Item, Note, Section, Table, sections
from npuconv.report.terminal import LABEL_STYLE, Block, View, cells, elide
from npuconv.report.words import count
from npuconv.schemas.batch import BatchJob, BatchReport
from npuconv.schemas.report import Report

_NARROWEST = 60  # columns; the table of several reports needs them
_VERDICT_STYLE = {"refused": "red", "convertible": "green", "converted": "green"}


def render(report: Report, *, color: bool = False, width: int = 80) -> str:
    """Render one report: every node, every rewrite and those that were considered but not done.

    Args:
        report: what to show.
        color: with ANSI styles.
        width: columns of the terminal; at least 60 are used.

    Returns:
        Text that ends in one newline.
    """
    return _join(_blocks(report, View(color, max(width, _NARROWEST))))


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
    view = View(color, max(width, _NARROWEST))
    blocks = [block for report in reports for block in _blocks(report, view)]
    overview = _overview(reports, view) if reports or not unreadable else []
    errors = [view.safe(f"cannot be read: {path}: {message}") for path, message in unreadable]
    return _join([*blocks, overview, errors])


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
    view = View(color, width)
    label, style = ("DONE  ", "green") if batch.ok else ("NOT ALL DONE  ", "red")
    targets = {job.target for job in batch.jobs}
    of = f"{batch.jobs_file} for {targets.pop()}" if len(targets) == 1 else batch.jobs_file
    lines = view.hang(f"{of}: {batch.summary.headline}", label, " " * len(label))
    verdict = [view.paint(line, "bold", style) for line in lines]
    blocks = [verdict, _jobs(batch, view), _causes(batch, view)]
    if verbose:
        blocks += [_files(job, view) for job in batch.jobs if job.files]
    return _join(blocks)


def _blocks(report: Report, view: View) -> list[Block]:
    shown = sections(report, each=True)
    return [_verdict(report, view), *(_section(section, view) for section in shown)]


def _join(blocks: Sequence[Block]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _jobs(batch: BatchReport, view: View) -> Block:
    titles, names = _batch_names(batch)
    head = (*titles, *groups.BATCH_HEAD[2:])
    results = (groups.batch_row(job)[2:] for job in batch.jobs)
    rows = [(*name, *result) for name, result in zip(names, results, strict=True)]
    numbers = range(len(titles) + 1, len(head))
    return view.table(head, rows, right=numbers, whole=range(1, len(head)))


def _batch_names(batch: BatchReport) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns that tell the jobs from each other: titles, and a row for each job.

    That is the model, by its folder where it is called ``model.onnx`` and without the folders that
    all share; target, and form, where they differ. Where models are not told apart, as those of
    absolute paths, which no report has, it is what the names of the jobs say besides.
    """
    pairs = [(job.target, job.format) for job in batch.jobs]
    targets, forms = [target for target, _ in pairs], [form for _, form in pairs]
    shown = {"target": targets} if len(set(targets)) > 1 else {}
    shown |= {"form": forms} if len(set(pairs)) > len(set(targets)) else {}
    for title, names in (
        ("model", _models(batch)),
        ("job", [_job_without_target(job) for job in batch.jobs]),
    ):
        rows = list(zip(names, *shown.values(), strict=True))
        if len(set(rows)) == len(rows):
            return (title, *shown), rows
    return ("job",), [(job.name,) for job in batch.jobs]


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


def _causes(batch: BatchReport, view: View) -> Block:
    jobs = groups.not_converted(batch)
    lines = view.title("Not converted") if jobs else []
    names = shown_names(batch.jobs)
    for job in jobs:
        lines += view.hang(f"{names[job.name]}: {job.status}: {job.message}")
    return lines


def _files(job: BatchJob, view: View) -> Block:
    return [*view.title(job.name), *(f"  {view.safe(file.path)}" for file in job.files)]


def _overview(reports: Sequence[Report], view: View) -> Block:
    if not reports:
        return ["no models"]
    refused = sum(not report.ok for report in reports)
    return [
        *view.title(f"{count(len(reports), 'report')}, {refused} refused"),
        *view.table(groups.OVERVIEW_HEAD, map(groups.overview_row, reports), right=(3, 4, 5, 6)),
    ]


def _verdict(report: Report, view: View) -> Block:
    """Return the verdict, before it the options that are not judged, after it the warnings."""
    label = f"{groups.verdict(report)}  "
    target = view.safe(report.target.name)
    path = elide(view.safe(report.model.path), max(view.width - cells(label + target) - 5, 20))
    text = f"{path} on {target}: {report.summary.headline}"
    style = "yellow" if report.is_doubtful else _VERDICT_STYLE[report.summary.verdict]
    lines = view.hang(text, label, "    ")
    return [
        *_notices(report.summary.not_judged, "not judged: ", view),
        *(view.paint(line, "bold", style) for line in lines),
        *_notices(report.summary.warnings, "warning: ", view),
    ]


def _notices(sentences: Sequence[str], label: str, view: View) -> Block:
    lines = [line for one in sentences for line in view.hang(one, label, " " * len(label))]
    return [view.accent(line, label.strip(), LABEL_STYLE["warning"]) for line in lines]


def _section(section: Section, view: View) -> Block:
    if section.label:
        style = LABEL_STYLE[section.label]
        heading = view.hang(section.title, "", "  ")
        lines = [view.accent(line, section.label, style) for line in heading]
    else:
        lines = view.title(section.title)
    for part in section.parts:
        if isinstance(part, Table):
            lines += view.table(part.head, part.rows, right=part.numbers)
        elif isinstance(part, Item):
            lines += _item(part, view)
        elif isinstance(part, Note):
            label = f"  {part.label}: "
            indent = " " * len(label)
            lines += [
                line
                for at, text in enumerate(part.texts)
                for line in view.hang(text, indent if at else label, indent)
            ]
        else:
            lines += view.hang(part)
    return lines


def _item(item: Item, view: View) -> Block:
    """Return a text behind its node, several below it; above the nodes when there are several."""
    if len(item.names) > 1:
        text = f"{item.op or 'model'}: {'; '.join(item.texts)} (x {len(item.names)})"
        names = (view.safe(name) or "the model" for name in item.names)
        return view.hang(text, "  ", "      ") + [
            f"      {elide(name, view.width - 6)}" for name in names
        ]
    (name,) = item.names
    suffix = f" ({elide(view.safe(item.op), 24)})" if item.op and name else ""
    node = elide(view.safe(name) or "the model", view.width - 3 - cells(suffix)) + suffix
    line = f"  {node}: {view.safe(item.texts[0])}"
    if len(item.texts) == 1 and cells(line) <= view.width:
        return [line]
    rest = "        " if len(item.texts) > 1 else "      "
    texts = [line for text in item.texts for line in view.hang(text, "      ", rest)]
    return [f"  {node}:", *texts]
