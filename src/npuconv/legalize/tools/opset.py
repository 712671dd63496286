"""Conversion of a model from one opset to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx
from onnx import defs, helper

from npuconv.legalize.tools import broadcast as _broadcast
from npuconv.legalize.tools.converter import convert
from npuconv.model import edit, query
from npuconv.model.core import subgraphs
from npuconv.model.types import Graph, Variable

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor


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
    names = [_RENAMED.get(i.name, i.name) for i in newer.inputs]
    if [_RENAMED.get(i.name, i.name) for i in older.inputs] != names[: len(older.inputs)]:
        return False
    if len(older.outputs) > len(newer.outputs) and len(node.outputs) > len(newer.outputs):
        return False
    used = set(node.attrs)
    if any(_kind(older, name) is None or _kind(older, name) != _kind(newer, name) for name in used):
        return False
    unused = [name for name, a in older.attributes.items() if name not in used and not a.required]
    return all(
        name not in newer.attributes
        or _default(older.attributes[name]) == _default(newer.attributes[name])
        for name in unused
    )


def _kind(schema: defs.OpSchema, name: str) -> Any:
    attribute = schema.attributes.get(name)
    return None if attribute is None else attribute.type


def _default(attribute: defs.OpSchema.Attribute) -> Any:
    value = attribute.default_value
    return helper.get_attribute_value(value) if value.name else None


@dataclass
class _Plan:
    """A node and the nodes of the newer opset that take its place."""

    node: Node
    graph: Graph
    proto: onnx.ModelProto


def raise_to(model: Model, ctx: PassContext, target: int) -> int:
    """Convert every node that needs it, or none.

    Returns:
        How many nodes were converted, plus one for the opset itself; 0 if one cannot be.
    """
    plans: list[_Plan] = []
    for graph, node in _all_nodes(model.graph):
        if reads_the_same(node, model.opset, target):
            continue
        try:
            plans.append(_Plan(node, graph, convert(node, model.opset, target)))
        except Exception as error:  # the converter's failures have no common base
            reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
            model.obstacle = f"{node.op} at {model.label(node)!r}: {reason}"
            ctx.refuse(model, node, f"opset {model.opset} -> {target}: {reason}")
            return 0
    source = model.opset
    for plan in plans:
        _apply(model, ctx, plan, source, target)
    with ctx.rewrite(model, [], f"opset {source}", f"opset {target}", measure=False):
        model.graph.opset = target
    return len(plans) + 1


def _all_nodes(graph: Graph) -> list[tuple[Graph, Node]]:
    found = []
    for node in list(graph.nodes):
        found.append((graph, node))
        for _, inner in subgraphs(node):
            found += _all_nodes(inner)
    return found


def _apply(model: Model, ctx: PassContext, plan: _Plan, source: int, target: int) -> None:
    node = plan.node
    after = " + ".join(n.op_type for n in plan.proto.graph.node)
    top_level = plan.graph is model.graph
    with ctx.rewrite(
        model, [node], f"{node.op} of opset {source}", f"{after} of {target}",
        modulus=None, measure=top_level and not _broadcast.is_legacy(node, source),
    ):  # fmt: skip
        model.graph.opset = target  # the new region is of the new opset, ...
        _splice(model, plan)
    model.graph.opset = source  # ... and the next old one of the old


def _splice(model: Model, plan: _Plan) -> None:
    node, proto = plan.node, plan.proto.graph
    tensors: dict[str, Tensor] = {t.name: t for t in (*node.inputs, *node.outputs) if t.name}
    for initializer in proto.initializer:
        if initializer.name not in tensors:
            array = onnx.numpy_helper.to_array(initializer)
            tensors[initializer.name] = edit.constant(model, f"{node.name}/constant", array)
    edit.disconnect_outputs(node)
    position = next(i for i, n in enumerate(plan.graph.nodes) if n is node)
    for new in proto.node:
        inputs = [_tensor(model, tensors, name, node) for name in new.input]
        outputs = [_tensor(model, tensors, name, node) for name in new.output]
        attrs = {a.name: _attribute(a) for a in new.attribute}
        added = edit.add_node(
            model, new.op_type, inputs, outputs, origin=[node], attrs=attrs, graph=plan.graph
        )
        plan.graph.nodes.pop()
        plan.graph.nodes.insert(position, added)
        position += 1
    edit.disconnect(node)
    if plan.graph is not model.graph:
        del plan.graph.nodes[position]


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
        from npuconv.model.types import Constant

        return Constant(value.name, onnx.numpy_helper.to_array(value))
    return value
