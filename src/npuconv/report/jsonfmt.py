"""The report as JSON: what ``npuconv schema report`` describes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from npuconv.report.escape import is_hidden
from npuconv.report.unreadable import Unreadable
from npuconv.schemas.report import SCHEMA_VERSION, Report

# Outside of strings JSON is plain ASCII, so all of these stand inside of one.
_SPECIAL = re.compile(r"[^\n -~]")
_COMMAND = re.compile(r"##(?=\w*\[)")


def render(report: Report) -> str:
    """One report; numbers in full, ``null`` for what is not a finite number."""
    return dumps(_data(report))


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """Several reports under ``reports``, and under ``unreadable`` what is no model."""
    data = {"schema_version": SCHEMA_VERSION, "reports": [_data(report) for report in reports]}
    missing = {"unreadable": [one._asdict() for one in unreadable]} if unreadable else {}
    return dumps({**data, **missing})


def dumps(data: object) -> str:
    """Indented JSON that is safe to print.

    Letters of any language stay readable. Characters that act on a terminal, and ``##[``,
    which some CI systems take for a command, become escapes of the same meaning.
    """
    text = json.dumps(finite(data), indent=2, ensure_ascii=False, allow_nan=False)
    return _COMMAND.sub(r"\\u0023#", _SPECIAL.sub(_escape, text)) + "\n"


def finite(data: Any) -> Any:
    """The data with ``None`` for infinity and NaN, which JSON has no words for."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [finite(value) for value in data]
    return data


def _data(report: Report) -> dict[str, Any]:
    return report.model_dump(mode="json", by_alias=True)


def _escape(hit: re.Match[str]) -> str:
    char = hit[0]
    return json.dumps(char)[1:-1] if is_hidden(char) else char
