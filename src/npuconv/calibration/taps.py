"""A float model that gives statistics of its tensors instead of its outputs.

Each tensor is seen as [samples, before, channels, behind] and reduced where it lies, sample
by sample; what leaves the runtime is one array per statistic, for all tensors together. The
shapes come in from outside, because only a run tells all of them; so does where the values are
taken from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

PREFIX = "npuconv/calibration"
PLAN = f"{PREFIX}/plan"  # int64 [T * 8]: for each tensor shape [4], starts [2], steps [2]
PLAN_LENGTHS = (4, 2, 2)
LOWS, HIGHS, MEANS, VALUES = KINDS = tuple(
    f"{PREFIX}/{kind}" for kind in ("lows", "highs", "means", "values")
)
_INITIALIZERS_ARE_NO_INPUTS = 4  # since this version of the file format
_ALLOWS_ZERO = 14  # opset
_BEFORE, _BEHIND = 1, 3  # the channels
_REDUCTIONS = {LOWS: "ReduceMin", HIGHS: "ReduceMax", MEANS: "ReduceMean"}


def shape_output(index: int) -> str:
    """Output with the shape of a tensor as the model made it."""
    return f"{PREFIX}/shape/{index}"


def insert_taps(model: onnx.ModelProto, tensors: Sequence[str]) -> onnx.ModelProto:
    """A copy of the model whose outputs are ``KINDS`` and the shapes of the tensors.

    Args:
        model: not changed.
        tensors: what is watched, model inputs included.
    """
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    graph = tapped.graph
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
    taps = {name: _taps(name, index, opset) for index, name in enumerate(tensors)}
    nodes = list(_interleaved(model, taps))
    ends = (_end(kind, len(tensors)) for kind in KINDS)
    tapped.ir_version = max(model.ir_version, _INITIALIZERS_ARE_NO_INPUTS)
    del graph.node[:], graph.output[:]
    graph.node.extend([_split_plan(len(tensors), opset), *nodes, *ends])
    graph.input.append(helper.make_tensor_value_info(PLAN, TensorProto.INT64, [None]))
    graph.initializer.extend(_constants(len(tensors)))
    outputs = [*KINDS, *(shape_output(index) for index in range(len(tensors)))]
    graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)
    return tapped


def _own(kind: str, index: int) -> str:
    return f"{kind if kind.startswith(PREFIX) else f'{PREFIX}/{kind}'}/{index}"


def _constants(count: int) -> Iterator[onnx.TensorProto]:
    shared = {
        "before": [_BEFORE],
        "behind": [_BEHIND],
        "sliced": [_BEFORE, _BEHIND],
        "ends": [2**62, 2**62],
        "flat": [-1],
        "lengths": list(PLAN_LENGTHS) * count,
    }
    for name, values in shared.items():
        yield numpy_helper.from_array(np.asarray(values, np.int64), f"{PREFIX}/{name}")


def _split_plan(count: int, opset: int) -> onnx.NodeProto:
    parts = [_own(part, k) for k in range(count) for part in ("form", "starts", "steps")]
    if opset < 13:
        lengths = list(PLAN_LENGTHS) * count
        return helper.make_node("Split", [PLAN], parts, axis=0, split=lengths)
    return helper.make_node("Split", [PLAN, f"{PREFIX}/lengths"], parts, axis=0)


def _interleaved(
    model: onnx.ModelProto, taps: dict[str, list[onnx.NodeProto]]
) -> Iterator[onnx.NodeProto]:
    """Every tap right behind what it watches: the tensor is still in the cache then."""
    made = {name for node in model.graph.node for name in node.output}
    for name, nodes in taps.items():
        if name not in made:
            yield from nodes
    for node in model.graph.node:
        yield node
        for name in node.output:
            yield from taps.get(name, [])


def _taps(name: str, index: int, opset: int) -> list[onnx.NodeProto]:
    def node(op: str, inputs: list[str], kind: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(op, inputs, [_own(kind, index)], **attributes)

    seen, form = _own("seen", index), _own("form", index)
    some = [seen, _own("starts", index), f"{PREFIX}/ends", f"{PREFIX}/sliced", _own("steps", index)]
    return [
        node("Shape", [name], "shape"),
        node("Cast", [name], "cast", to=TensorProto.FLOAT),
        # A 0 is an extent: of what a detector that found nothing hands on.
        node("Reshape", [_own("cast", index), form], "seen", **_zeros_as_they_are(opset)),
        *(part for kind in _REDUCTIONS for part in _reduce(kind, index, opset)),
        node("Slice", some, "some"),
        node("Reshape", [_own("some", index), f"{PREFIX}/flat"], VALUES),
    ]


def _zeros_as_they_are(opset: int) -> dict[str, int]:
    return {"allowzero": 1} if opset >= _ALLOWS_ZERO else {}


def _reduce(kind: str, index: int, opset: int) -> Iterator[onnx.NodeProto]:
    """Yield a reduction behind, then one before the channels: both at once take twice as long."""
    op, half, own = _REDUCTIONS[kind], _own(f"{kind}/half", index), _own(kind, index)
    steps = ((_own("seen", index), half, "behind", _BEHIND), (half, own, "before", _BEFORE))
    for source, made, name, axis in steps:
        if opset < 18:
            yield helper.make_node(op, [source], [made], axes=[axis], keepdims=0)
        else:
            yield helper.make_node(op, [source, f"{PREFIX}/{name}"], [made], keepdims=0)


def _end(kind: str, count: int) -> onnx.NodeProto:
    axis = 0 if kind == VALUES else 1  # of [samples, channels]
    return helper.make_node("Concat", [_own(kind, k) for k in range(count)], [kind], axis=axis)
