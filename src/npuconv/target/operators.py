"""The operators of ONNX and of onnxruntime's own domains, without importing onnx.

The table is package data made by ``tools/gen_operators.py``.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import TypedDict, cast


class OperatorInfo(TypedDict):
    """Versions and attributes of one operator."""

    since: list[int]
    attributes: list[str]


@cache
def table() -> dict[str, dict[str, OperatorInfo]]:
    """Domain (empty: ONNX's own) -> operator -> its versions and attributes."""
    text = resources.files("npuconv.target").joinpath("operators.json").read_text("utf-8")
    return cast("dict[str, dict[str, OperatorInfo]]", json.loads(text))


def canonical_domain(domain: str) -> str:
    """ONNX has two names for its own domain."""
    return "" if domain == "ai.onnx" else domain
