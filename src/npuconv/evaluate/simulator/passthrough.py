"""Operators that only move or compare integers: the same on float carriers."""

from __future__ import annotations

import onnx
from onnx import helper

from npuconv.evaluate.simulator.float_carriers import FloatCarriers, Stored, stored_as

# Operator -> its inputs that hold data; None: all.
DATA_INPUTS: dict[str, tuple[int, ...] | None] = {
    "Clip": (0, 1, 2),
    "Concat": None,
    "DepthToSpace": (0,),
    "Expand": (0,),
    "Flatten": (0,),
    "Gather": (0,),
    "GatherElements": (0,),
    "GatherND": (0,),
    "Identity": (0,),
    "Max": None,
    "MaxPool": (0,),
    "Min": None,
    "Pad": (0, 2),
    "ReduceMax": (0,),
    "ReduceMin": (0,),
    "Relu": (0,),
    "Reshape": (0,),
    "Resize": (0,),
    "Slice": (0,),
    "SpaceToDepth": (0,),
    "Split": (0,),
    "Squeeze": (0,),
    "Tile": (0,),
    "Transpose": (0,),
    "Unsqueeze": (0,),
    "Where": (1, 2),
}
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def rewrite(carriers: FloatCarriers, node: onnx.NodeProto) -> bool:
    """Run the same operator on floats, if it reads 8-bit tensors and means the same there."""
    places = DATA_INPUTS[node.op_type]
    data = [i for i, name in enumerate(node.input) if name and (places is None or i in places)]
    known = [carriers.stored(node.input[i]) for i in data]
    stored = [one for one in known if one is not None]
    if not data or len(stored) < len(known) or not _means_the_same(node):
        return False
    inputs = [carriers.carrier(name) if i in data else name for i, name in enumerate(node.input)]
    held = _held(carriers, node, stored)
    outputs = [carriers.new_carrier(name, held) if name else "" for name in node.output]
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:], copy.output[:] = inputs, outputs
    carriers.append(copy)
    return True


def _means_the_same(node: onnx.NodeProto) -> bool:
    """Return whether the node computes the same on floats: no interpolation, no indices."""
    if node.op_type == "Resize":
        return all(a.s == b"nearest" for a in node.attribute if a.name == "mode")
    return node.op_type != "MaxPool" or sum(map(bool, node.output)) == 1


def _held(carriers: FloatCarriers, node: onnx.NodeProto, data: list[Stored]) -> Stored:
    """Return type and range of the integers that can come out."""
    dtype = data[0].dtype
    low, high = min(one.low for one in data), max(one.high for one in data)
    if node.op_type == "Relu":
        return Stored(dtype, max(low, 0), max(high, 0))
    if node.op_type == "Clip":
        bounds = [carriers.constant(n) if n else None for n in (*node.input[1:], "", "")[:2]]
        full = stored_as(dtype)
        ends = [full.low if bounds[0] is None else int(bounds[0].item()),
                full.high if bounds[1] is None else int(bounds[1].item())]  # fmt: skip
        return Stored(dtype, *sorted(ends))
    if node.op_type == "Pad" and len(data) == 1:  # what it fills with is a constant otherwise
        return Stored(dtype, min(low, 0), max(high, 0))
    return Stored(dtype, low, high)


def pool_channels_last(carriers: FloatCarriers, node: onnx.NodeProto) -> bool:
    """Replace NhwcMaxPool by MaxPool between two Transposes."""
    source, result = node.input[0], node.output[0]
    stored = carriers.stored(source)
    if stored is None:
        return False
    first = carriers.step("Transpose", [carriers.carrier(source)], f"{result}/first", perm=TO_FIRST)
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    last = carriers.step("MaxPool", [first], f"{result}/pooled", **attrs)
    carriers.emit("Transpose", [last], [carriers.new_carrier(result, stored)], perm=TO_LAST)
    return True
