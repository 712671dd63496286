"""Text output of ``npuconv batch``: totals, a line per job, and why jobs were not converted."""

from __future__ import annotations

from npuconv.report.batch_rows import HEAD, paths_tell, row, standing
from npuconv.report.layout import Paint, hang
from npuconv.report.text_view import Block, View
from npuconv.schemas.batch import BatchJob, BatchReport


def render(
    batch: BatchReport, base: str = "", *, color: bool = False, verbose: bool = False,
    width: int = 80,
) -> str:  # fmt: skip
    """The summary for a terminal; when verbose, with the files of every job."""
    del base
    view = View(Paint(color), verbose, width)
    blocks = [_verdict(batch, view), _table(batch, view), _causes(batch, view)]
    if verbose:
        blocks += [_files(job, view) for job in batch.jobs]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _verdict(batch: BatchReport, view: View) -> Block:
    label = "DONE  " if batch.ok else "NOT ALL DONE  "
    text = f"{batch.jobs_file}: {batch.summary.headline}"
    lines = hang(view.safe(text), view.width, first=label, rest=" " * len(label))
    return [view.paint(line, "bold", "green" if batch.ok else "red") for line in lines]


def _table(batch: BatchReport, view: View) -> Block:
    lines = view.table(HEAD, map(row, batch.jobs), right=(3, 4, 5, 6), whole=range(1, 7))
    if not paths_tell(batch):
        return lines
    models = view.table(("job", "model"), [(job.name, job.model) for job in batch.jobs])
    return [*lines, "", *models]


def _causes(batch: BatchReport, view: View) -> Block:
    jobs = standing(batch)
    lines = view.title("Not converted") if jobs else []
    for job in jobs:
        text = view.safe(f"{job.name}: {job.status}: {job.message}")
        lines += hang(text, view.width, first="  ", rest="    ")
    return lines


def _files(job: BatchJob, view: View) -> Block:
    if not job.files:
        return []
    return [*view.title(view.safe(job.name)), *(f"  {view.safe(one.path)}" for one in job.files)]
