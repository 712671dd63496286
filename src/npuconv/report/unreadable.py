"""A model that there is no report of, because it cannot be read."""

from __future__ import annotations

from typing import NamedTuple


class Unreadable(NamedTuple):
    """What a document of several models says of one that is none."""

    path: str
    message: str  # in one line
