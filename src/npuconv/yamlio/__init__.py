"""YAML that tells where everything stands, and refuses what people do not mean.

``document``  text -> data, and line and column of every key
``scalar``    what a plain word means: no yes and no as booleans, no octal numbers
``check``     sentences for what pydantic found wrong, with suggestions
"""

from __future__ import annotations

from npuconv.yamlio.check import explain, suggest
from npuconv.yamlio.document import Document, KeyPath, load, loads, problems, validate

__all__ = ["Document", "KeyPath", "explain", "load", "loads", "problems", "suggest", "validate"]
