"""Contents of the files that npuconv writes, as pydantic models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ReportPart(BaseModel):
    """Base class of the parts of a report: immutable, without undeclared fields."""

    # defer_build: most parts are only used inside of a report, whose validator covers them.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)
