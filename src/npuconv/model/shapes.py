"""Shape inference by ONNX on a graph without weights, and correction of wrong results.

ONNX counts a last window of a pool with ``ceil_mode`` that starts beyond the input, which no
runtime does, and reads SAME of a ConvTranspose in another way than the operator's text
(``in * stride``).

The shapes that a file states of inner tensors, its ``value_info``, count only where nothing is
inferred: runtimes ignore them, and tools that open the batch of an export leave them unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx

from npuconv.errors import UsageError
from npuconv.model import query
from npuconv.model.conv import SAME, pool_output, transpose_output, window
from npuconv.model.core import Model, subgraphs, with_inner
from npuconv.model.proto import TensorType, Types
from npuconv.model.skeleton import skeleton
from npuconv.model.slices import before_slices
from npuconv.model.types import Node, Tensor

Dims = list[int | str | None]
_GENERATED = "unk__"  # begins a name that ONNX gives to an extent which it cannot compute


class UnknownInputError(UsageError):
    """A shape for an input that a model does not have."""

    name = ""  # of the input


def fix_inputs(model: Model, shapes: dict[str, tuple[int, ...]]) -> None:
    """Set the shapes of the model's inputs, and the channels that weights fix.

    A change drops all inferred shapes.

    Raises:
        UsageError: an unknown input, a wrong rank, or a contradiction to a fixed dimension.
    """
    inputs, changed = {t.name: t for t in model.graph.inputs}, False
    for name, dims in shapes.items():
        if name not in inputs:
            error = UnknownInputError(
                f"--input-shape {name}: the model has no such input",
                hint="inputs: " + ", ".join(inputs),
            )
            error.name = name
            raise error
        if any(d < 1 for d in dims):
            raise UsageError(f"--input-shape {name}: dimensions must be positive, not {list(dims)}")
        old = query.shape(inputs[name])
        if old is not None and (
            len(old) != len(dims)
            or any(isinstance(a, int) and a != b for a, b in zip(old, dims, strict=False))
        ):
            dims_text = ",".join("?" if d is None else str(d) for d in old)
            raise UsageError(
                f"--input-shape {name}={','.join(map(str, dims))}: the model says {dims_text}",
                hint="it fixes what the model leaves open; for other lengths or ranks export it "
                "anew",
            )
        if old != tuple(dims):
            inputs[name].shape, changed = list(dims), True
    for node in model.nodes(*query.CONVOLUTIONS):
        # The channels of an input that a convolution reads; slices take any number.
        tensor = node.inputs[0] if node.inputs else None
        win = window(node) if query.is_standard(node) else None
        is_input = any(tensor is t for t in inputs.values())
        if tensor is None or win is None or win.weight is None or not is_input:
            continue
        extents, channels = query.shape(tensor) or (), win.in_channels
        if len(extents) > 2 and not isinstance(extents[1], int) and isinstance(channels, int):
            tensor.shape, changed = [extents[0], channels, *extents[2:]], True
    if changed:
        forget(model)


def forget(model: Model) -> None:
    """Drop all shapes except shapes of inputs, so that they are inferred again."""
    inputs = {id(t) for t in model.graph.inputs}
    for node in model.nodes():
        for tensor in node.outputs:
            if id(tensor) not in inputs and not query.is_constant(tensor):
                tensor.shape = None


def infer(model: Model) -> str:
    """Infer shapes and types of all tensors, as far as ONNX can.

    Returns:
        The contradiction between shapes, in ONNX's words; '' if there is none.
    """
    outputs = set(map(id, model.graph.outputs))
    inner = [t for node in model.nodes() for t in node.outputs if id(t) not in outputs]
    stated = [(t, list(t.shape)) for t in inner if t.shape is not None and not query.is_constant(t)]
    # Open dimensions get names, which show the extents that depend on them.
    temporary = set[str]()
    for tensor in model.graph.inputs if stated else ():
        if (dims := query.shape(tensor)) is not None:
            names = [f"{tensor.name}/{axis}/open" for axis in range(len(dims))]
            temporary.update(name for name, d in zip(names, dims, strict=True) if d is None)
            tensor.shape = [name if d is None else d for name, d in zip(names, dims, strict=True)]
    for tensor, _ in stated:
        tensor.shape = None
    contradiction = _infer_corrected(model, model.nodes())
    filled = _fill(model, stated)
    tensors = (t for node in model.nodes() for t in node.outputs)
    for tensor in (*model.graph.inputs, *tensors) if temporary else ():
        if tensor.shape is not None and not temporary.isdisjoint(map(str, tensor.shape)):
            tensor.shape = [None if d in temporary else d for d in tensor.shape]
    if filled:
        contradiction = _infer_corrected(model, model.nodes())
    if contradiction:  # runtimes ignore stated shapes of results
        forget(model)
        contradiction = _infer_corrected(model, model.nodes())
    return contradiction


def _fill(model: Model, stated: Sequence[tuple[Tensor, Dims]]) -> bool:
    """Fill unknown extents with stated extents; return whether anything was filled.

    The first extent is filled only if the first extents of all inputs are fixed.
    """
    inputs = [query.shape(tensor) or () for tensor in model.graph.inputs]
    is_open = any(not isinstance(d, int) for dims in inputs for d in dims[:1])
    names = {d for dims in inputs for d in dims if isinstance(d, str)}
    filled = False
    for tensor, shape in stated:
        dims = query.shape(tensor)
        if dims is None:
            tensor.shape, filled = shape, True
        elif len(dims) == len(shape):
            unknown = [
                d is None or (isinstance(d, str) and d.startswith(_GENERATED) and d not in names)
                for d in dims
            ]
            tensor.shape = [
                new if unknown[k] and new is not None and not (is_open and k == 0) else old
                for k, (old, new) in enumerate(zip(dims, shape, strict=True))
            ]
            filled |= tuple(tensor.shape) != dims
    return filled


def for_inputs(
    model: Model, lengths: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int | None, ...]]:
    """Return the extents of inner tensors for inputs of these lengths; None where they stay open.

    The model is not changed. Tensors of unknown rank are left out.
    """
    proto = skeleton(model)
    for info in proto.graph.input:
        dims = info.type.tensor_type.shape.dim
        for dim, length in zip(dims, lengths.get(info.name, ()), strict=False):
            dim.dim_value = length
    inferred, _ = _run_inference(proto)
    graph = (inferred or proto).graph
    extents = {}
    for info in (*graph.input, *graph.value_info, *graph.output):
        if info.type.tensor_type.HasField("shape"):
            dims = info.type.tensor_type.shape.dim
            extents[info.name] = tuple(
                d.dim_value if d.HasField("dim_value") else None for d in dims
            )
    return extents


def infer_unknown(model: Model) -> None:
    """Infer missing shapes and types: after a pass, most of a graph is unchanged.

    Inference covers nodes with an output without a type or with an unknown extent, and the
    producers of integers that these read, which may be a shape.
    """
    ids: set[int] = set()
    for node in reversed(model.nodes()):
        if id(node) in ids or not all(map(_is_known, node.outputs)):
            ids.add(id(node))
            ids.update(id(t.inputs[0]) for t in node.inputs if t.inputs and _may_be_shape(t))
    nodes = [node for node in model.nodes() if id(node) in ids]
    if any(subgraphs(node) for node in nodes):
        nodes = model.nodes()
    if nodes:
        _infer_corrected(model, nodes)


def _is_known(tensor: Tensor) -> bool:
    return not tensor.name or (tensor.dtype is not None and query.static_shape(tensor) is not None)


def _may_be_shape(tensor: Tensor) -> bool:
    if isinstance(tensor.dtype, int):  # bfloat16 and other types without a numpy name
        return False
    return tensor.dtype is None or np.dtype(tensor.dtype).kind in "iub"


def _infer_corrected(model: Model, nodes: Sequence[Node]) -> str:
    """Infer, and correct wrong shapes until no correction is left; return the contradiction."""
    contradiction = _infer(model, nodes, frozenset())
    settled: set[int] = set()
    while corrections := wrong_shapes(model, settled):
        for node, shape in corrections:
            settled.add(id(node))
            # The shapes of all tensors that depend on the node are unknown again.
            waiting, reached = [node], {id(node)}
            while waiting:
                for tensor in waiting.pop().outputs:
                    tensor.shape = None
                    consumers = [n for n in tensor.outputs if id(n) not in reached]
                    reached.update(id(n) for n in consumers)
                    waiting.extend(consumers)
            node.outputs[0].shape = shape
        nodes = model.nodes()
        contradiction = _infer(model, nodes, settled)
    return contradiction


def _infer(model: Model, nodes: Sequence[Node], settled: Collection[int]) -> str:
    """Infer once with ONNX; settled nodes keep their shapes. Return the contradiction."""
    inferred, contradiction = _run_inference(skeleton(model, nodes, settled))
    if inferred is None:
        return contradiction
    infos = {info.name: info for info in inferred.graph.value_info}
    infos |= {info.name: info for info in inferred.graph.output}
    types = Types()
    for node in nodes:
        for tensor in node.outputs:
            info = infos.get(tensor.name)
            if info is not None and not query.is_constant(tensor):
                _update(tensor, types.read(info))
    return contradiction


def _run_inference(proto: onnx.ModelProto) -> tuple[onnx.ModelProto | None, str]:
    """Infer strictly if possible, else leniently; return the result and the strict error."""
    if (partial := before_slices(proto)) is not None:
        return partial, ""  # a rule reports a Slice that leaves no cells
    try:
        return onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True), ""
    except Exception as error:  # InferenceError, and ValueErrors of old versions
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__  # further lines follow from it
        reason = reason.replace("[ShapeInferenceError] ", "").replace("Inference error(s): ", "")
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True), reason
    except Exception:
        return None, reason


def _update(tensor: Tensor, inferred: TensorType) -> None:
    if tensor.dtype is None:
        tensor.dtype = inferred.dtype
    if inferred.shape is None or (inferred.exact and tensor.shape == inferred.shape):
        return
    old, new = query.shape(tensor), inferred.dims
    if old is None or new is None or len(old) != len(new):
        tensor.shape = list(inferred.shape)
        return
    # A number counts more than a name, a name more than nothing.
    pairs = zip(old, new, strict=True)
    tensor.shape = [b if isinstance(b, int) or a is None else a for a, b in pairs]


def wrong_shapes(model: Model, settled: set[int]) -> list[tuple[Node, Dims]]:
    """Return nodes whose inferred output shape is wrong, with the right one.

    Nodes downstream of these are left out: their shapes must be inferred again first. Nodes with
    ids in ``settled`` have been corrected and are left out as well.
    """
    corrections: list[tuple[Node, Dims]] = []
    downstream: set[int] = set()  # ids of tensors
    for node in model.nodes():
        if downstream and any(id(t) in downstream for n in with_inner(node) for t in n.inputs):
            downstream.update(map(id, node.outputs))
        elif id(node) not in settled and (shape := _correct_shape(node)) is not None:
            corrections.append((node, shape))
            downstream.update(map(id, node.outputs))
    return corrections


def _correct_shape(node: Node) -> Dims | None:
    """Return the right shape of a node's output; None if it is inferred right, or unknown."""
    is_ceiled = node.op in query.POOLS and query.attribute(node, "ceil_mode", 0)
    if node.op != "ConvTranspose" and not is_ceiled:
        return None
    win, dims = window(node), query.shape(node.outputs[0])
    if win is None or win.kernel is None or dims is None or win.axes != len(dims) - 2:
        return None
    if not win.is_consistent or min((*win.strides, *win.dilations), default=0) < 1:
        return None  # rules report it
    # The batch and channels that a file states may be left over from another export.
    batch, channels = (query.shape(node.inputs[0]) or (None,))[0], win.out_channels
    shape = [dims[0] if batch is None else batch, dims[1] if channels is None else channels]
    for axis, old in enumerate(dims[2:]):
        extent, stride = win.extent(axis), win.strides[axis]
        result = 0
        if extent is not None:
            parts = (extent, win.kernel[axis], stride, win.dilations[axis], win.pads[axis])
            if win.op == "ConvTranspose" and win.output_shape:
                result = win.output_shape[axis]
            elif win.auto_pad in SAME:
                transposed = win.op == "ConvTranspose"
                result = extent * stride if transposed else -(-extent // stride)
            elif win.op == "ConvTranspose":
                result = transpose_output(*parts, win.output_padding[axis])
            else:
                result = pool_output(*parts, ceil=True)
        shape.append(result if result > 0 else old)
    return None if shape == list(dims) else shape
