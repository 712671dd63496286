"""Targets in one line: tests of rules need devices with documented limits."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from npuconv import yamlio
from npuconv.errors import TargetError
from npuconv.target import Target
from npuconv.target.limit import Limit

NUMBERS = {"dtype": "int8", "zero_point": [0], "granularity": "tensor"}
WEIGHTS = {"dtype": "int8", "symmetric": True, "granularity": "channel", "range": [-127, 127]}
HEAD = """schema: 1
name: t
sources: {notes/group: the notes, manual: the manual}
activations: {dtype: int8}
weights: {dtype: int8}
operators:
"""  # six lines: text that is appended begins on line 7


def chip(op: str = "Conv", *, also: dict[str, Any] | None = None, **limits: Any) -> Target:
    """A target that lists one operator with these limits, read as a file would be.

    Args:
        op: the operator listed; empty: none.
        also: further keys of the file, such as ``unlisted_operators``.
        limits: fact -> limit, as in a target file; ``modes`` and ``require`` are theirs.
    """
    parts = {key: limits.pop(key) for key in ("modes", "require") if key in limits}
    text = {
        "schema": 1,
        "name": "chip",
        "operators": {op: {"limits": limits, **parts}} if op else {},
        "activations": NUMBERS,
        "weights": WEIGHTS,
        **(also or {}),
    }
    document = yamlio.loads(yaml.safe_dump(text, sort_keys=False), name="chip", error=TargetError)
    return Target.from_document(document)


def document(text: str) -> yamlio.Document:
    """Read a target file's text."""
    return yamlio.loads(text, name="t.yaml", error=TargetError)


def described(body: str) -> Target:
    """Return the target whose operators are these lines of a file."""
    return Target.from_document(document(HEAD + body))


def fails(text: str) -> str:
    """Return the error message on an invalid target file."""
    with pytest.raises(TargetError) as caught:
        Target.from_document(document(text))
    return str(caught.value)


def limit(text: str, fact: str = "group") -> Limit:
    """Return the limit of one fact of Conv."""
    return described(f"  Conv:\n    limits:\n      {fact}: {text}\n").operators["Conv"].limits[fact]
