"""Validity of a proto before it is imported, and of a Model after every pass."""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Iterable

import numpy as np
import onnx
from google.protobuf.message import EncodeError

from npuconv import limits
from npuconv.errors import InternalError, ModelError
from npuconv.model import Graph, Model, Node, query, store
from npuconv.model.core import subgraphs
from npuconv.model.untrusted import MAX_AXES, check_shape

_UNKNOWN = re.compile(
    r"No Op registered for (\S+) with domain_version of (\d+)(?:[\s\S]* Name: (.*) OpType:)?"
)
# Faults for the checker, but not for any runtime: interface tensors without a shape,
# initializers that a model of IR 3 does not list among its inputs, and GroupNormalization-18,
# which was deprecated with its first version.
_HARMLESS = (
    "Field 'shape' of 'type' is required",
    "in initializer but not in graph input",
    "registered for GroupNormalization is deprecated",
)
_NO_REASON = "the checker gives no reason"
_EXPERIMENTAL = frozenset(
    {"ATen", "Affine", "ConstantFill", "Crop", "DynamicSlice", "GRUUnit", "GivenTensorFill"}
    | {"ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"}
)


def check_proto(proto: onnx.ModelProto, name: str) -> None:
    """Check names, order and operators of a model; ``untrusted`` has checked its tensors.

    Raises:
        ModelError: names the first faulty node or tensor, and the fault.
    """
    _check_graph(proto.graph, frozenset(), name)
    if any(node.op_type in _EXPERIMENTAL for node in proto.graph.node):
        return  # the checker would warn about such operators on stdout
    fault = _fault(proto)
    if any(text in fault for text in _HARMLESS):
        fault = _fault(_repair(proto))
    if unknown := _UNKNOWN.search(fault):
        raise _unknown_operator(name, *unknown.groups())
    if fault:
        raise ModelError(f"{name}: not valid ONNX: {fault.splitlines()[0]}")


def _unknown_operator(name: str, op: str, opset: str, node: str | None) -> ModelError:
    schemas = onnx.defs.get_all_schemas_with_history()
    versions = (s.since_version for s in schemas if s.name == op and s.domain == "")
    first = min(versions, default=0)
    hint = f"it is there since opset {first}: export the model anew with that or a later one"
    if not first:
        hint = "an operator of your own needs a domain of its own; else look for a misspelt name"
    return ModelError(
        f"{name}: node {(node or op)!r} ({op}): opset {opset} has no such operator", hint=hint
    )


def _fault(proto: onnx.ModelProto) -> str:
    if store.has_stored(proto):  # the checker would read the files, and does not know their places
        proto = store.with_initializers(proto, _without_stored_values)
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        return "\n".join(filter(None, map(str.strip, str(error).splitlines()))) or _NO_REASON
    except (EncodeError, ValueError):
        pass  # over 2 GB, too large for the checker; npuconv's checks have passed
    return ""


def _without_stored_values(tensor: onnx.TensorProto) -> onnx.TensorProto:
    if not store.is_stored(tensor):
        return tensor
    return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0], raw_data=b"")


def _repair(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without the harmless faults, to find others."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    copy.ir_version = max(copy.ir_version, 4)
    for info in (*copy.graph.input, *copy.graph.output):
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.shape.SetInParent()
    for node in copy.graph.node:
        if node.op_type == "GroupNormalization" and node.domain in query.STANDARD_DOMAINS:
            del node.attribute[:]
            node.op_type = "InstanceNormalization"
    return copy


def _check_graph(graph: onnx.GraphProto, outer: frozenset[str], name: str) -> None:
    names = set(outer) | {i.name for i in graph.input} | {""}
    names |= {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.HasField("optional_type"):
            raise ModelError(f"{name}: {info.name!r} is an optional; only tensors are read")
    producers = {output: node for node in graph.node for output in node.output}
    for node in graph.node:
        _check_node(node, names, producers, name)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _check_graph(attribute.g, frozenset(names), name)
        names.update(node.output)  # bodies of the node cannot read its outputs
    for info in graph.output:
        if info.name not in names:
            raise ModelError(f"{name}: output {info.name!r} is made by no node")


def _check_node(
    node: onnx.NodeProto, names: set[str], producers: dict[str, onnx.NodeProto], name: str
) -> None:
    where = f"{name}: node {node.name or node.op_type!r} ({node.op_type})"
    for tensor_name in node.input:
        if tensor_name not in names:
            reason = "which no node makes and which is no input or initializer"
            if tensor_name in producers:
                reason = "which is only made later: a cycle, or nodes out of order"
            raise ModelError(f"{where}: reads {tensor_name!r}, {reason}")
    for output in node.output:
        if output and output in names:
            raise ModelError(f"{where}: output {output!r} is already made by another node")
    if node.op_type in query.POOLS and node.domain in query.STANDARD_DOMAINS:
        _check_pads(node, where)


def _check_pads(node: onnx.NodeProto, where: str) -> None:
    """Refuse a pool with a window of padding only, which has no value; runtimes refuse it too."""
    attributes = {a.name: a for a in node.attribute}
    if "auto_pad" in attributes and attributes["auto_pad"].s != b"NOTSET":
        return  # auto_pad ignores pads
    if "kernel_shape" not in attributes or "pads" not in attributes:
        return
    kernel, pads = list(attributes["kernel_shape"].ints), list(attributes["pads"].ints)
    if len(pads) == 2 * len(kernel) and any(map(operator.ge, pads, 2 * kernel)):
        raise ModelError(
            f"{where}: pads {pads} are not all smaller than kernel_shape {kernel}",
            hint="a window of padding only has no value, and onnxruntime refuses the node: "
            "export the model with smaller pads, or with a Pad in front of the pool",
        )


def check_model(model: Model, *, after: str) -> None:
    """Check the invariants of a graph: order, single assignment, origins.

    Raises:
        InternalError: the pass ``after`` broke the graph.
    """
    for problem in _problems(model, model.graph, set()):
        raise InternalError(problem, where=f"pass {after!r}")


def _problems(model: Model, graph: Graph, outer: set[int]) -> Iterable[str]:
    ids = outer | {id(t) for t in graph.inputs}
    for node in graph.nodes:
        if not model.origin(node):
            yield f"node {node.name!r} ({node.op}) has no origin"
        for tensor in node.inputs:
            # An omitted input has no name.
            if id(tensor) not in ids and tensor.name and not query.is_constant(tensor):
                yield f"node {node.name!r} reads {tensor.name!r} before it is made"
        for _, inner in subgraphs(node):
            yield from _problems(model, inner, ids)
        ids.update(map(id, node.outputs))
    names = [tensor.name for node in graph.nodes for tensor in node.outputs if tensor.name]
    if len(set(names)) < len(names):
        twice = (name for name, number in Counter(names).items() if number > 1)
        yield from (f"tensor {name!r} is made twice" for name in twice)
    for tensor in graph.outputs:
        if id(tensor) not in ids and not query.is_constant(tensor):
            yield f"output {tensor.name!r} is made by no node"


def check_tensors(model: Model) -> None:
    """Refuse a tensor larger than a tensor may be, and operands that must have equal types.

    Unknown extents count as 1. No runtime loads a model of unequal types: rewrites need not
    expect it.

    Raises:
        ModelError: names the tensor and its shape, or the node, two inputs and their types.
    """
    nodes = model.nodes()
    limit = limits.present().tensor_mib * 2**20
    tensors = [("input", tensor) for tensor in model.graph.inputs]
    tensors += [("result", tensor) for node in nodes for tensor in node.outputs]
    for place, tensor in tensors:
        dims, dtype = query.shape(tensor) or (), tensor.dtype
        fixed = [dim for dim in dims if isinstance(dim, int) and dim > 1]
        # A type that numpy has no name for is a number here, of 2 bytes (bfloat16).
        size = 2 if isinstance(dtype, int) else int(np.dtype(dtype or np.float32).itemsize)
        if len(dims) > MAX_AXES or math.prod(fixed) * size > limit:
            where = f"{model.name}: {place} {tensor.name!r}"
            check_shape([dim if isinstance(dim, int) else 1 for dim in dims], where, size)
    for node in nodes:
        # A type that numpy lacks has two representations: its number, and the dtype of its values.
        kinds = ["" if isinstance(t.dtype, int) else query.dtype_name(t) for t in node.inputs]
        if len({*kinds} - {""}) < 2 or not query.is_standard(node):
            continue
        first: dict[str, int] = {}
        variables = _type_variables(node, model.opset)
        for index, (kind, variable) in enumerate(zip(kinds, variables, strict=False)):
            before = first.setdefault(variable, index) if kind else index
            if kinds[before] != kind:
                where = f"{model.name}: node {node.name or node.op!r} ({node.op})"
                raise ModelError(
                    f"{where}: input {node.inputs[before].name!r} is {kinds[before]} and input "
                    f"{node.inputs[index].name!r} is {kind}, but both must be of one type"
                )


def _type_variables(node: Node, opset: int) -> Iterable[str]:
    """Yield the type that each input has in the schema of its operator: T, or tensor(int64)."""
    try:
        formal = onnx.defs.get_schema(node.op, opset, "").inputs
    except onnx.defs.SchemaError:
        return  # the opset lacks the operator
    for index in range(len(node.inputs)):
        parameter = formal[min(index, len(formal) - 1)] if formal else None
        if parameter is None or (index >= len(formal) and not parameter.is_homogeneous):
            return
        yield parameter.type_str
