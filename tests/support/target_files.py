"""Targets in one line: what a rule enforces needs a chip that has written it down."""

from __future__ import annotations

from typing import Any

import yaml

from npuconv import yamlio
from npuconv.errors import TargetError
from npuconv.target import Target

NUMBERS = {"dtype": "int8", "zero_point": [0], "granularity": "tensor"}
WEIGHTS = {"dtype": "int8", "symmetric": True, "granularity": "channel", "range": [-127, 127]}


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
