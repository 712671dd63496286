"""What every part of a report is: a value that cannot change, with no field unnamed."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A part of a report."""

    model_config = ConfigDict(extra="forbid", frozen=True)
