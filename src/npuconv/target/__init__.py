"""The device as data: a target file with operators, limits and their sources.

``limit``        one limit of one fact, or ``?`` where it is undocumented; relations of facts
``description``  the fields of a target file
``semantics``    checks beyond the structure, and every problem of a file
``loading``      ``Target``: built-in or from a file
``view``         targets as text, and the differences of two
"""

from __future__ import annotations

from npuconv.target.description import Operator, value_text
from npuconv.target.loading import Target, builtin_names, read

__all__ = ["Operator", "Target", "builtin_names", "read", "value_text"]
