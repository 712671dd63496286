"""The summary as Markdown: a table, and why some were not converted."""

from __future__ import annotations

from npuconv.report.batch_rows import HEAD, row, standing
from npuconv.report.markdown_parts import code, table, text
from npuconv.report.schema_batch import BatchReport


def render(batch: BatchReport, base: str = "") -> str:
    """GitHub flavoured Markdown that fits a job summary."""
    del base
    icon = "✅" if batch.ok else "❌"
    rows = [[code(name), *map(text, rest)] for name, *rest in map(row, batch.jobs)]
    blocks = [
        f"## {icon} {code(batch.jobs_file)}: {text(batch.summary.headline)}",
        table(HEAD, rows, right=3),
    ]
    causes = [
        f"- {code(job.name)}: **{text(job.status)}**: {text(job.message)}"
        for job in standing(batch)
    ]
    blocks += ["### Not converted", "\n".join(causes)] if causes else []
    return "\n\n".join(blocks) + "\n"
