"""Shape inference, without moving weights: values above a few hundred elements stay out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx

from npuconv.errors import UsageError
from npuconv.model import extents, query
from npuconv.model.core import Model, subgraphs
from npuconv.model.protos import Found, Types
from npuconv.model.skeleton import skeleton
from npuconv.model.types import Node, Tensor


def fix_inputs(model: Model, shapes: dict[str, tuple[int, ...]]) -> None:
    """Give the model's inputs the shapes the user asked for.

    Args:
        model: the model to change; shapes inferred so far are forgotten where it does.
        shapes: by input name.

    Raises:
        UsageError: no such input, wrong rank, or a contradiction to a fixed dimension.
    """
    inputs, changed = {t.name: t for t in model.graph.inputs}, False
    for name, dims in shapes.items():
        if name not in inputs:
            raise UsageError(
                f"--input-shape {name}: the model has no such input",
                hint="inputs: " + ", ".join(inputs),
            )
        held = query.shape(inputs[name])
        _check_fits(name, held, dims)
        if held != tuple(dims):  # else it stays the same graph, with all that it says of itself
            inputs[name].shape, changed = list(dims), True
    if changed:
        forget(model)


def _check_fits(name: str, old: tuple[int | str | None, ...] | None, dims: tuple[int, ...]) -> None:
    if any(d < 1 for d in dims):
        raise UsageError(f"--input-shape {name}: dimensions must be positive, not {list(dims)}")
    if old is None:
        return
    clash = any(isinstance(a, int) and a != b for a, b in zip(old, dims, strict=False))
    if len(old) != len(dims) or clash:
        shown = ",".join("?" if d is None else str(d) for d in old)
        raise UsageError(
            f"--input-shape {name}={','.join(map(str, dims))}: the model says {shown}",
            hint="it fixes what the model leaves open; for other lengths or ranks export it anew",
        )


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
    contradiction = _settle(model, model.nodes())
    if contradiction:  # runtimes do not mind results that are not what the model says they are
        forget(model)
        contradiction = _settle(model, model.nodes())
    return contradiction


def infer_what_is_open(model: Model) -> None:
    """The same where something is missing: after a pass, most of a graph is as it was.

    A node is looked at again if an output of it has no type or an extent that is not a
    number, together with what makes the integers it reads, which may be a shape.
    """
    nodes = _open(model)
    if any(subgraphs(node) for node in nodes):
        nodes = model.nodes()
    if nodes:
        _settle(model, nodes)


def _open(model: Model) -> list[Node]:
    wanted: set[int] = set()
    for node in reversed(model.nodes()):
        if id(node) in wanted or not all(map(_is_known, node.outputs)):
            wanted.add(id(node))
            wanted.update(id(t.inputs[0]) for t in node.inputs if t.inputs and _may_be_shape(t))
    return [node for node in model.nodes() if id(node) in wanted]


def _is_known(tensor: Tensor) -> bool:
    return not tensor.name or (tensor.dtype is not None and query.static_shape(tensor) is not None)


def _may_be_shape(tensor: Tensor) -> bool:
    if isinstance(tensor.dtype, int):  # bfloat16 and the like, which numpy has no name for
        return False
    return tensor.dtype is None or np.dtype(tensor.dtype).kind in "iub"


def _settle(model: Model, nodes: Sequence[Node]) -> str:
    """Until ONNX's answers about these nodes need no correction any more."""
    contradiction = _infer(model, nodes, frozenset())
    settled: set[int] = set()
    while found := extents.mistakes(model, settled):  # all of a round: inference looks at all
        for node, shape in found:
            settled.add(id(node))
            _forget_behind(node)
            node.outputs[0].shape = shape
        nodes = model.nodes()
        contradiction = _infer(model, nodes, settled)
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


def _infer(model: Model, nodes: Sequence[Node], settled: Collection[int]) -> str:
    """Once, as ONNX does it; nodes that are settled keep the shapes they have."""
    inferred, contradiction = _inferred(skeleton(model, nodes, settled))
    if inferred is None:
        return contradiction
    known = {info.name: info for info in inferred.graph.value_info}
    known |= {info.name: info for info in inferred.graph.output}
    types = Types()
    for node in nodes:
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
