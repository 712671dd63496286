"""Local functions written out where they are called: what they hold is part of the model."""

from __future__ import annotations

import onnx
import onnx.inliner
from google.protobuf.message import EncodeError


def inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same model without local functions, as far as ONNX can write them out.

    A function of another opset than the model's stays, as an operator that only the host knows.

    Args:
        proto: well formed, without functions that call themselves; not changed.
    """
    if not proto.functions:
        return proto
    try:
        return onnx.inliner.inline_local_functions(proto)
    except EncodeError:  # over 2 GB, which this way does not take
        return proto
