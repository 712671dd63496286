"""Shape inference, without moving weights: values above a few hundred elements stay out."""

from __future__ import annotations

import math
from collections.abc import Collection

import onnx
from onnx import helper

from npuconv.errors import UsageError
from npuconv.model import extents, query
from npuconv.model.core import Model, subgraphs
from npuconv.model.plain import is_misread, plain
from npuconv.model.plain import opset as plain_opset
from npuconv.model.protos import Found, Types, write_node
from npuconv.model.types import Graph, Node, Tensor

# Shapes, axes, pads and scales are short; anything longer is data, not a shape.
SMALL = 512


def fix_inputs(model: Model, shapes: dict[str, tuple[int, ...]]) -> None:
    """Give the model's inputs the shapes the user asked for.

    Args:
        model: the model to change; shapes inferred so far are forgotten.
        shapes: by input name.

    Raises:
        UsageError: no such input, wrong rank, or a contradiction to a fixed dimension.
    """
    inputs = {t.name: t for t in model.graph.inputs}
    for name, dims in shapes.items():
        if name not in inputs:
            raise UsageError(
                f"--input-shape {name}: the model has no such input",
                hint="inputs: " + ", ".join(inputs),
            )
        _check_fits(name, query.shape(inputs[name]), dims)
        inputs[name].shape = list(dims)
    if shapes:
        forget(model)


def _check_fits(name: str, old: tuple[int | str | None, ...] | None, dims: tuple[int, ...]) -> None:
    if any(d < 1 for d in dims):
        raise UsageError(f"--input-shape {name}: dimensions must be positive, not {list(dims)}")
    if old is None:
        return
    clash = any(isinstance(a, int) and a != b for a, b in zip(old, dims, strict=False))
    if len(old) != len(dims) or clash:
        shown = ",".join("?" if d is None else str(d) for d in old)
        raise UsageError(f"--input-shape {name}={','.join(map(str, dims))}: the model says {shown}")


def forget(model: Model) -> None:
    """Drop the shapes of everything but inputs, so that they are inferred anew."""
    keep = {id(t) for t in model.graph.inputs}
    for node in model.nodes():
        for tensor in node.outputs:
            if id(tensor) not in keep and not query.is_constant(tensor):
                tensor.shape = None


def infer(model: Model) -> str:
    """Fill in shapes and types of all tensors, as far as ONNX can tell.

    What stays unknown is unknown, and a rule that needs it says so.

    Returns:
        What is contradictory about the shapes, in ONNX's words; '' where nothing is.
    """
    contradiction = _infer(model, frozenset())
    settled: set[int] = set()
    while (mistake := extents.first_mistake(model, settled)) is not None:
        node, shape = mistake
        settled.add(id(node))
        _forget_behind(node)
        node.outputs[0].shape = shape
        contradiction = _infer(model, settled)
    return contradiction


def _forget_behind(node: Node) -> None:
    """Drop the shapes of everything that depends on a node."""
    waiting, seen = [node], {id(node)}
    while waiting:
        for tensor in waiting.pop().outputs:
            tensor.shape = None
            readers = [n for n in tensor.outputs if id(n) not in seen]
            seen.update(id(n) for n in readers)
            waiting.extend(readers)


def _infer(model: Model, settled: Collection[int]) -> str:
    """Once, as ONNX does it; nodes that are settled keep the shapes they have."""
    inferred, contradiction = _inferred(skeleton(model, settled))
    if inferred is None:
        return contradiction
    known = {info.name: info for info in inferred.graph.value_info}
    known |= {info.name: info for info in inferred.graph.output}
    types = Types()
    for node in model.nodes():
        for tensor in node.outputs:
            info = known.get(tensor.name)
            if info is not None and not query.is_constant(tensor):
                _update(tensor, types.read(info))
    return contradiction


def _inferred(proto: onnx.ModelProto) -> tuple[onnx.ModelProto | None, str]:
    """Strictly if possible; otherwise as far as it goes, with the reason why not strictly."""
    try:
        return onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True), ""
    except Exception as error:  # InferenceError, and ValueErrors of old versions
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[-1] if lines else type(error).__name__
        reason = reason.replace("[ShapeInferenceError] ", "").replace("Inference error(s): ", "")
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True), reason
    except Exception:
        return None, reason


def _update(tensor: Tensor, found: Found) -> None:
    if tensor.dtype is None:
        tensor.dtype = found.dtype
    if found.shape is None or (found.exact and tensor.shape == found.shape):
        return
    old, new = query.shape(tensor), found.dims
    if old is None or new is None or len(old) != len(new):
        tensor.shape = list(found.shape)
        return
    # A number beats a name, a name beats nothing, whoever said it.
    pairs = zip(old, new, strict=True)
    tensor.shape = [b if isinstance(b, int) or a is None else a for a, b in pairs]


def skeleton(model: Model, settled: Collection[int] = ()) -> onnx.ModelProto:
    """The model with long constants turned into inputs: same shapes, no weights.

    What nodes make whose ids are in ``settled`` is an input as well.
    """
    graph, proto, types = model.graph, onnx.ModelProto(), Types()
    out = proto.graph
    out.name = "skeleton"
    for tensor in graph.inputs:
        types.write(tensor, out.input.add())
    for constant in constants(graph):
        if math.prod(constant.shape) > SMALL:
            types.write(constant, out.input.add())
        else:
            types.write_constant(constant, out.initializer.add())
    for node in graph.nodes:
        if id(node) not in settled:
            _write_plainly(node, model.opset, out)
            continue
        for tensor in node.outputs:
            types.write(tensor, out.input.add())
    for tensor in graph.outputs:
        types.write(tensor, out.output.add())
    for tensor in typed(graph):
        if not tensor.inputs or id(tensor.inputs[0]) not in settled:
            types.write(tensor, out.value_info.add())
    proto.opset_import.append(helper.make_opsetid("", plain_opset(model.opset, graph.nodes)))
    others = graph.import_domains or ()
    proto.opset_import.extend([o for o in others if o.domain not in query.STANDARD_DOMAINS])
    proto.ir_version = max(model.header.ir_version, 4)
    return proto


def _write_plainly(node: Node, source: int, out: onnx.GraphProto) -> None:
    write_node(node, out.node.add())
    if is_misread(node, source):
        out.node.extend(plain(node, out.node.pop(), source))


def typed(graph: Graph) -> list[Tensor]:
    """Tensors made inside the graph whose type and shape are known, outputs left out."""
    outputs = {id(t) for t in graph.outputs}
    return [
        t
        for n in graph.nodes
        for t in n.outputs
        if t.name and t.dtype is not None and t.shape is not None and id(t) not in outputs
    ]


def value_info(tensor: Tensor) -> onnx.ValueInfoProto:
    """Name, type and shape of a tensor, as far as they are known."""
    info = onnx.ValueInfoProto()
    Types().write(tensor, info)
    return info


def constants(graph: Graph) -> list[Tensor]:
    """Every constant a node of the graph reads, also from inside subgraphs, once."""
    found: dict[str, Tensor] = {}
    for node in graph.nodes:
        for tensor in _read_by(node):
            if query.is_constant(tensor):
                found.setdefault(tensor.name, tensor)
    return list(found.values())


def _read_by(node: Node) -> list[Tensor]:
    read = list(node.inputs)
    for _, inner in subgraphs(node):
        own = {id(t) for n in inner.nodes for t in n.outputs}
        read += [t for n in inner.nodes for t in _read_by(n) if id(t) not in own]
    return read
