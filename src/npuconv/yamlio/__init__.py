"""YAML with the place of every key, and readable errors.

``document``  text -> data, with line and column; stricter than YAML 1.1
``messages``  messages on invalid values, with suggestions
"""

from __future__ import annotations

from npuconv.yamlio.document import Document, KeyPath, load, loads, problems, validate
from npuconv.yamlio.messages import dotted, explain, first_fault, hint_of, nearest, suggest

__all__ = [
    "Document", "KeyPath", "dotted", "explain", "first_fault", "hint_of", "load", "loads",
    "nearest", "problems", "suggest", "validate",
]  # fmt: skip
