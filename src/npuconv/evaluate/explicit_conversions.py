"""Explicit conversions for compilers of devices: one scale and zero point per tensor.

A compiler takes a QuantizeLinear and each DequantizeLinear that reads it for one int8 tensor.
Runtimes compute with every conversion; compilers refuse a file in which they differ, or merge them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from npuconv.model.proto import Links, attributes_of


def find_faults(model: onnx.ModelProto) -> Iterator[str]:
    """Yield a sentence for each conversion that compilers of devices refuse, in model order.

    Nothing for a model with integer operators, which these compilers do not read at all.
    """
    if any(node.op_type.startswith("QLinear") for node in model.graph.node):
        return
    links = Links(model.graph)
    for node in model.graph.node:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        name, values = node.name or node.output[0], [links.constant(n) for n in node.input[1:3]]
        if links.constant(node.input[0]) is not None:
            axis = attributes_of(node).get("axis", 1)
            if axis != 0 and any(value is not None and value.ndim for value in values):
                yield f"{name}: scales of a constant along axis {axis}, not 0"
            continue
        if any(value is None or value.size != 1 for value in values):
            yield f"{name}: not one constant scale and zero point for the whole tensor"
            continue
        producer = links.producers.get(node.input[0])
        if node.op_type == "DequantizeLinear" and producer is not None:
            if producer.op_type != "QuantizeLinear":
                continue
            pair = [links.constant(n) for n in producer.input[1:3]]
            if not all(
                a is not None and b is not None and np.array_equal(a.ravel(), b.ravel())
                for a, b in zip(values, pair, strict=True)
            ):
                yield f"{name}: another scale or zero point than {producer.name} in front of it"
