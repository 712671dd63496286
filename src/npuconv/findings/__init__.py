"""Findings of the rules. A finding is a value and never raises."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from npuconv.records import dataclass, field


class Severity(StrEnum):
    """Severity of a finding; only errors stop a conversion by default."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """2 for error, 1 for warning, 0 for note."""
        return _RANKS[self]


_RANKS = {Severity.ERROR: 2, Severity.WARNING: 1, Severity.NOTE: 0}


class Status(StrEnum):
    """Status of a finding after legalization."""

    REMAINING = "remaining"  # still violated after legalization
    REWRITTEN = "rewritten"  # the converter removed it
    UNKNOWN = "unknown"  # depends on a limit that the target marks "?"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fault of one node, or of the whole model."""

    code: str  # letters + 3 digits, never reused
    name: str  # kebab case, names the fault
    severity: Severity
    status: Status = Status.REMAINING
    node: str = ""  # name in the source model, also after rewriting; empty: the whole model
    op_type: str = ""
    message: str  # the fault in one sentence, with value and limit
    value: str = ""  # value in the model
    limit: str = ""  # values that the target allows
    source: str = ""  # line of the target file and the document it cites
    fix: str = ""
    rewritten_by: str = ""  # name of the pass, if the status is rewritten
    rewritten_into: str = ""
    accepted: bool = False  # whether a baseline lists it, so that it does not fail a check
    origin: tuple[str, ...] = field(default=(), repr=False)  # names of its source nodes

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """Key that identifies the same finding before and after rewriting."""
        return (self.code, self.origin)


def sort_key(finding: Finding) -> tuple[int, str, str, str]:
    """Return a key that sorts the worst first, then by code, node and message."""
    return (-finding.severity.rank, finding.code, finding.node, finding.message)


def fingerprint(model: str, target: str, code: str, node: str) -> str:
    """Return the identifier of a finding, the same in every run and for any value and wording.

    The path of the model is relative to a folder that moves with it.

    Returns:
        16 hexadecimal digits.
    """
    text = "\0".join((model, target, code, node))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
