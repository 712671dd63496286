"""Schema of the rules in a report, so that it can be read without the tool."""

from __future__ import annotations

from pydantic import Field

from npuconv.diagnostics import Severity
from npuconv.schemas.part import Part


class RuleInfo(Part):
    """A rule that has findings in the report; ``npuconv explain CODE`` tells more."""

    code: str
    name: str
    severity: Severity = Field(description="unless a finding or the user says otherwise")
    summary: str
    checks: str = Field(description="what it looks at")
    why: str = Field(description="why it matters")
    fix: str = Field(description="what to do in general")
