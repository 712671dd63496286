"""Conversion of a model from one opset to another."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import defs, helper, version_converter

from npuconv.legalize.context import PassContext
from npuconv.model import edit, query, skeleton
from npuconv.model.core import Model, subgraphs
from npuconv.model.proto import node_proto
from npuconv.model.surgeon import Constant, Variable
from npuconv.model.types import Graph, Node, Tensor


def reads_the_same(node: Node, source: int, target: int) -> bool:
    """Return whether the node means the same in both opsets without a change to it.

    True where the two schemas differ at most by types, by optional inputs and by
    attributes whose default is what the older version did.
    """
    if not query.is_standard(node):
        return True
    try:
        a = defs.get_schema(node.op, source, "")
        b = defs.get_schema(node.op, target, "")
    except defs.SchemaError:
        return False
    if a.since_version == b.since_version:
        return not b.deprecated
    older, newer = (a, b) if source < target else (b, a)
    if older.since_version < _REDEFINED.get(node.op, 0) <= newer.since_version:
        return False
    return not (a.deprecated or b.deprecated) and _extends(older, newer, node)


# Opsets from which the same inputs and attributes mean something else.
_REDEFINED = {"Softmax": 13, "LogSoftmax": 13, "Hardmax": 13, "PRelu": 7}

# BatchNormalization-14 renamed mean and var; their order and meaning stayed.
_RENAMED = {"mean": "input_mean", "var": "input_var"}


def _extends(older: defs.OpSchema, newer: defs.OpSchema, node: Node) -> bool:
    names, old_names = ([_RENAMED.get(i.name, i.name) for i in s.inputs] for s in (newer, older))
    if old_names != names[: len(old_names)]:
        return False
    if max((k for k, t in enumerate(node.inputs) if t.name), default=-1) >= older.max_input:
        return False  # what was an attribute then, such as axes, is an input of this node
    if len(older.outputs) > len(newer.outputs) and len(node.outputs) > len(newer.outputs):
        return False
    for name in node.attrs:
        old, new = older.attributes.get(name), newer.attributes.get(name)
        if old is None or new is None or old.type != new.type:
            return False
    shared = set(older.attributes) & set(newer.attributes) - set(node.attrs)
    return all(
        older.attributes[name].required
        or _default(older.attributes[name]) == _default(newer.attributes[name])
        for name in shared
    )


def _default(attribute: defs.OpSchema.Attribute) -> Any:
    value = attribute.default_value
    return helper.get_attribute_value(value) if value.name else None


def raise_to(model: Model, ctx: PassContext, target: int) -> int:
    """Convert every node that needs it, or none.

    Returns:
        Number of converted nodes, plus one for the opset itself; 0 if one cannot be converted.
    """
    plans: list[tuple[Graph, Node, onnx.ModelProto]] = []
    for graph, node in _all_nodes(model.graph):
        if reads_the_same(node, model.opset, target):
            continue
        try:
            plans.append((graph, node, _convert(node, model.opset, target)))
        except Exception as error:  # the converter's failures have no common base
            reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
            model.obstacle = f"{node.op} at {model.label(node)!r}: {reason}"
            ctx.refuse(model, node, f"opset {model.opset} -> {target}: {reason}")
            return 0
    source = model.opset
    for graph, node, proto in plans:
        after = " + ".join(n.op_type for n in proto.graph.node if n.op_type != "Constant")
        measure = graph is model.graph and not is_legacy_broadcast(node, source)
        with ctx.rewrite(
            model, [node], f"{node.op} of opset {source}", f"{after} of {target}",
            modulus=None, measure=measure,
        ):  # fmt: skip
            model.graph.opset = target  # the new region is of the new opset, ...
            _splice(model, graph, node, proto.graph)
        model.graph.opset = source  # ... and the next old one of the old
    with ctx.rewrite(model, [], f"opset {source}", f"opset {target}", measure=False):
        model.graph.opset, model.obstacle = target, ""
    return len(plans) + 1


def _all_nodes(graph: Graph) -> list[tuple[Graph, Node]]:
    found = []
    for node in list(graph.nodes):
        found.append((graph, node))
        for _, inner in subgraphs(node):
            found += _all_nodes(inner)
    return found


def _splice(model: Model, graph: Graph, node: Node, proto: onnx.GraphProto) -> None:
    """Put the nodes of ``proto`` in the place of ``node``."""
    tensors: dict[str, Tensor] = {t.name: t for t in (*node.inputs, *node.outputs) if t.name}
    for initializer in proto.initializer:
        if initializer.name not in tensors:
            array = onnx.numpy_helper.to_array(initializer)
            tensors[initializer.name] = edit.constant(model, f"{node.name}/constant", array)
    edit.disconnect_outputs(node)
    position = next(i for i, n in enumerate(graph.nodes) if n is node)
    for new in proto.node:
        if new.op_type == "Constant" and new.attribute[0].name == "value":
            array = onnx.numpy_helper.to_array(new.attribute[0].t)
            tensors[new.output[0]] = edit.constant(model, f"{node.name}/constant", array)
            continue
        inputs = [_tensor(model, tensors, name, node) for name in new.input]
        outputs = [_tensor(model, tensors, name, node) for name in new.output]
        attrs = {a.name: _attribute(a) for a in new.attribute}
        added = edit.add_node(
            model, new.op_type, inputs, outputs, origin=[node], attrs=attrs, graph=graph
        )
        graph.nodes.pop()
        graph.nodes.insert(position, added)
        position += 1
    edit.disconnect(node)
    if graph is not model.graph:
        del graph.nodes[position]


def _tensor(model: Model, tensors: dict[str, Tensor], name: str, node: Node) -> Tensor:
    if not name:
        return Variable.empty()
    if name not in tensors:
        tensors[name] = edit.variable(model, f"{node.name}/{name}")
    return tensors[name]


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return Constant(value.name, onnx.numpy_helper.to_array(value))
    return value


def _convert(node: Node, source: int, target: int) -> onnx.ModelProto:
    """Convert a node alone by ONNX's version converter.

    Returns:
        A model of the nodes that take its place; its tensors keep their names.

    Raises:
        Exception: it cannot be converted; the converter's failures have no common base.
    """
    if any(subgraphs(node)):
        raise ValueError("an operator with a subgraph changed its form")
    if is_legacy_broadcast(node, source):
        return _convert_broadcast(node)
    if node.op == "PRelu":
        raise ValueError("its slope ran along the channels before opset 7")
    read = {t.name: t for t in node.inputs if t.name}
    constants = [t for t in read.values() if query.is_constant(t)]
    small = [t for t in constants if t.values.size <= skeleton.MAX_SHAPE_VALUES]
    proto, source = _helped(node_proto(node), source)
    graph = helper.make_graph(
        [proto],
        "one",
        [skeleton.value_info(t) for t in read.values()],
        [skeleton.value_info(t) for t in node.outputs if t.name],
        [onnx.numpy_helper.from_array(t.values, t.name) for t in small],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", source)], ir_version=7)
    converted = version_converter.convert_version(model, target)
    if node.op in ("Upsample", "Resize"):
        _keep_asymmetric(node, converted)
    _check_shapes(node, converted)
    return converted


def _helped(proto: onnx.NodeProto, source: int) -> tuple[onnx.NodeProto, int]:
    """Return the node in a form, and an opset, that the converter can start from."""
    dropped = ""
    if proto.op_type == "Gemm" and source < 7:
        dropped, source = "broadcast", 7  # which needs no attribute for it any more
    if proto.op_type == "Pad" and source < 2:
        source = 2
        for attribute in proto.attribute:
            attribute.name = "pads" if attribute.name == "paddings" else attribute.name
    modes = [a.s for a in proto.attribute if a.name == "mode"]
    if proto.op_type == "Pad" and source < 11 and modes not in ([], [b"constant"]):
        dropped = "value"  # means nothing to other modes, and the converter leaves it there
    kept = [a for a in proto.attribute if a.name != dropped]
    del proto.attribute[:]
    proto.attribute.extend(kept)
    return proto, source


def _check_shapes(node: Node, converted: onnx.ModelProto) -> None:
    """Raise ValueError where the converter changed a shape: not every old operator can be run."""
    inferred = onnx.shape_inference.infer_shapes(converted, data_prop=True).graph
    made = {info.name: info for info in (*inferred.output, *inferred.value_info)}
    for tensor in node.outputs:
        old = query.static_shape(tensor)
        info = made.get(tensor.name)
        if old is None or info is None:
            continue
        new = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
        if all(new) and new != old:
            raise ValueError(f"the version converter turns its shape {old} into {new}")


def _keep_asymmetric(node: Node, converted: onnx.ModelProto) -> None:
    """Write the coordinates of opset 10 out: cell i is cell ``i / scale`` of the input."""
    scales = query.constant_input(node, len(node.inputs) - 1) if len(node.inputs) > 1 else None
    scales = node.attrs.get("scales") if scales is None else scales
    if scales is None:
        raise ValueError("its scales are not constant")
    shrinks = any(scale < 1 for scale in scales)
    if shrinks and any(scale > 1 for scale in scales):
        raise ValueError("it grows along one axis and shrinks along another")
    new = next(n for n in converted.graph.node if n.op_type == "Resize")
    kept = [a for a in new.attribute if a.name == "mode"]
    kept.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
    kept.append(helper.make_attribute("nearest_mode", "ceil" if shrinks else "floor"))
    del new.attribute[:]
    new.attribute.extend(kept)


_LEGACY_BROADCAST = frozenset(
    {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"}
)


def is_legacy_broadcast(node: Node, opset: int) -> bool:
    """Return whether the node broadcasts by attribute."""
    return opset < 7 and node.op in _LEGACY_BROADCAST and bool(node.attrs.get("broadcast"))


def _convert_broadcast(node: Node) -> onnx.ModelProto:
    """Reshape the second operand of a node so that numpy's broadcasting does the same.

    ONNX's version converter gets the rank of the operand wrong (1.23.2: a [4] along axis 1
    of a [1, 4, 7, 7] becomes [4, 1, 1, 1]), and no runtime runs the original to tell.

    Raises:
        ValueError: it broadcasts along an axis, and the operand or the rank is not known.
    """
    names = [tensor.name for tensor in node.inputs]
    axis = node.attrs.get("axis")
    initializers = []
    if axis is not None:
        values, rank = query.constant_input(node, 1), query.rank(node.inputs[0])
        if values is None or rank is None:
            raise ValueError("it broadcasts along an axis, and operand or rank is not known")
        behind = rank - int(axis) % rank - values.ndim
        names[1] = f"{names[1]}/broadcast"
        array = values.reshape(*values.shape, *(1,) * behind)
        initializers.append(onnx.numpy_helper.from_array(array, names[1]))
    new = helper.make_node(node.op, names, [tensor.name for tensor in node.outputs])
    graph = helper.make_graph([new], "one", [], [], initializers)
    return helper.make_model(graph)
