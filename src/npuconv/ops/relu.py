"""Relu and Clip by constants."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.model import Node, query
from npuconv.ops.channels import slots_of_first_input
from npuconv.ops.operator import always, register
from npuconv.ops.tape import pass_selected, pointwise
from npuconv.tflite.draft import Draft, View
from npuconv.tflite.elementwise import unary


def _has_constant_bounds(node: Node) -> bool:
    return all(
        query.input_of(node, place) is None or query.scalar_input(node, place) is not None
        for place in (1, 2)
    )


def bounds(draft: Draft, node: onnx.NodeProto) -> tuple[float, float]:
    """Return the constant bounds of a Clip; infinite where it has none."""
    limits = [-np.inf, np.inf]
    for place, name in enumerate(node.input[1:3]):
        values = draft.constant(name) if name else None
        if values is not None:
            limits[place] = float(values.item())
    return limits[0], limits[1]


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a RELU, a RELU6, or MAXIMUM and MINIMUM."""
    low, high = bounds(draft, node)
    name, result = node.input[0], node.output[0]
    source, order = draft.stored_view(name)
    stored, quantization = draft.graph.tensors[source], draft.quantization(source)
    code = {np.inf: "RELU", 6: "RELU6" if quantization is None else None}.get(high)
    if code is not None and low == (0 if quantization is None else quantization.zeros[0]):
        draft.emit(code, [source], [draft.store(result, order, quantization)])
        return
    limits = np.iinfo(stored.dtype) if stored.dtype.kind == "i" else None
    lowest, highest = (-np.inf, np.inf) if limits is None else (limits.min, limits.max)
    steps = [("MAXIMUM", low)] if low > lowest else []
    steps += [("MINIMUM", high)] if high < highest else []
    for code, bound in steps:
        number = draft.number(code.lower(), np.asarray(bound, stored.dtype), quantization)
        source = draft.step(code, [source, number], source, table="MaximumMinimumOptions")
    draft.alias(result, View(source, order))


register(
    "Relu",
    passes=always,
    follow=slots_of_first_input,
    function=lambda x, **_: np.maximum(x, 0),
    adjoint=pointwise(lambda tape, visit: tape.add("Sign", visit.y)),
    to_tflite=unary("RELU"),
)
register(
    "Clip",
    bounds=(1, 2),
    passes=_has_constant_bounds,
    follow=slots_of_first_input,
    function=lambda x, low=-np.inf, high=np.inf, **_: np.clip(x, low, high),
    adjoint=pass_selected,
    to_tflite=_to_tflite,
)
