"""The summary as JSON: what ``npuconv schema report`` describes as ``BatchReport``."""

from __future__ import annotations

from npuconv.report.jsonfmt import dumps
from npuconv.schemas.batch import BatchReport


def render(batch: BatchReport, base: str = "") -> str:
    """Every job; the single reports lie beside the models."""
    del base
    return dumps(batch.model_dump(mode="json"))
