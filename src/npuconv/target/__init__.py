"""The device as data: what it can do, what nobody has written down, and who says so.

``description``  Target and Operator, as the YAML file has them
``limit``        one limit of one fact, or ``?``
``relation``     relations between facts, in CEL
``formats``      how numbers are stored: activations, weights, bias
``operators``    the ONNX operators there are, to catch misspelt ones
``semantics``    what is wrong with a file that has the right form
``lint``         every problem of a file
``view``         a target for people and programs
``compare``      what differs between two targets
"""

from __future__ import annotations

from npuconv.target.description import Operator, Target, builtin_names, read, shown

__all__ = ["Operator", "Target", "builtin_names", "read", "shown"]
