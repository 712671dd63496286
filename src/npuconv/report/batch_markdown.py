"""The summary as Markdown: a table, and why some were not converted."""

from __future__ import annotations

from npuconv.report.batch_rows import HEAD, paths_tell, row, standing
from npuconv.report.markdown_parts import code, table, text
from npuconv.schemas.batch import BatchJob, BatchReport


def render(batch: BatchReport, base: str = "") -> str:
    """GitHub flavoured Markdown that fits a job summary."""
    del base
    icon = "✅" if batch.ok else "❌"
    shows_paths = paths_tell(batch)
    head = (HEAD[0], "model", *HEAD[1:]) if shows_paths else HEAD
    rows = [_row(job, shows_paths) for job in batch.jobs]
    blocks = [
        f"## {icon} {code(batch.jobs_file)}: {text(batch.summary.headline)}",
        table(head, rows, right=4),
    ]
    causes = [
        f"- {code(job.name)}: **{text(job.status)}**: {text(job.message)}"
        for job in standing(batch)
    ]
    blocks += ["### Not converted", "\n".join(causes)] if causes else []
    return "\n\n".join(blocks) + "\n"


def _row(job: BatchJob, shows_path: bool) -> list[str]:
    name, *rest = row(job)
    path = [code(job.model)] if shows_path else []
    return [code(name), *path, *map(text, rest)]
