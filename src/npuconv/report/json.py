"""The report as JSON that conforms to ``npuconv schema report``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from npuconv.report import Unreadable
from npuconv.report.escape import is_hidden
from npuconv.schemas.report import SCHEMA_VERSION, Report
from npuconv.validated import by_key

if TYPE_CHECKING:
    from npuconv.schemas.batch import BatchReport

# Outside of strings JSON is plain ASCII, so all these characters are inside of strings.
_SPECIAL = re.compile(r"[^\n -~]")
# No string ends with the line, but for its quote and a comma.
_NOT_FINITE = re.compile(r"(?:NaN|Infinity|-Infinity)(?=,?$)", re.MULTILINE)
_COMMAND = re.compile(r"##(?=\w*\[)")


def render(report: Report) -> str:
    """Render one report; numbers in full, ``null`` for NaN and infinities."""
    return dumps(report)


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """Render several reports under ``reports``, and unreadable files under ``unreadable``."""
    data: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "reports": reports}
    if unreadable:
        data["unreadable"] = [file._asdict() for file in unreadable]
    return dumps(data)


def render_batch(batch: BatchReport) -> str:
    """Render every job of a batch, without its report."""
    return dumps(batch)


def dumps(data: object) -> str:
    """Return indented JSON that is safe to print.

    Letters of any language stay readable. Characters that act on a terminal, and ``##[``,
    which some CI systems take for a command, become escapes of the same meaning.
    """
    text = json.dumps(data, indent=2, ensure_ascii=False, default=by_key)
    text = _NOT_FINITE.sub("null", _SPECIAL.sub(_escape, text))
    return _COMMAND.sub(r"\\u0023#", text) + "\n"


def _escape(hit: re.Match[str]) -> str:
    char = hit[0]
    return json.dumps(char)[1:-1] if is_hidden(char) else char
