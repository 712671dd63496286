"""Models without a report, because they cannot be read."""

from __future__ import annotations

from typing import NamedTuple


class Unreadable(NamedTuple):
    """Entry for an unreadable model in a document of several models."""

    path: str
    message: str  # in one line
