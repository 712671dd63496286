"""Base class of all parts of a report: immutable, without undeclared fields."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A part of a report."""

    model_config = ConfigDict(extra="forbid", frozen=True)
