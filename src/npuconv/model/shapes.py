"""Shape inference by ONNX on a graph without weights, and correction of wrong results.

ONNX counts a last window of a pool with ``ceil_mode`` that starts beyond the input, which no
runtime does, and reads SAME of a ConvTranspose in another way than the operator's text
(``in * stride``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx

from npuconv.errors import UsageError
from npuconv.model import query, value_info
from npuconv.model.conv import SAME, Window, pool_output, transpose_output, window
from npuconv.model.core import Model, subgraphs, with_inner
from npuconv.model.proto import TensorType, Types
from npuconv.model.skeleton import skeleton
from npuconv.model.slices import before_slices
from npuconv.model.types import Node, Tensor

Dims = list[int | str | None]


class UnknownInputError(UsageError):
    """A shape for an input that a model does not have."""

    name = ""  # of the input


def fix_inputs(model: Model, shapes: dict[str, tuple[int, ...]]) -> None:
    """Set the shapes of the model's inputs, and the channels that weights tell.

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
        old = query.shape(inputs[name])
        _check_fits(name, old, dims)
        if old != tuple(dims):
            inputs[name].shape, changed = list(dims), True
    if _fix_channels(model) or changed:
        forget(model)


def _fix_channels(model: Model) -> bool:
    """Set open channels of inputs to those of the convolutions that read them.

    Slices, through which a convolution that becomes several reads them, take any number.

    Returns:
        Whether there were some.
    """
    inputs, changed = {id(t): t for t in model.graph.inputs}, False
    for node in model.nodes(*query.CONVOLUTIONS):
        tensor = inputs.get(id(node.inputs[0])) if node.inputs else None
        win = window(node) if query.is_standard(node) else None
        if tensor is None or win is None or win.weight is None:
            continue
        dims, channels = query.shape(tensor) or (), win.in_channels
        if len(dims) > 2 and not isinstance(dims[1], int) and isinstance(channels, int):
            tensor.shape, changed = [dims[0], channels, *dims[2:]], True
    return changed


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
    """Drop all shapes but those of inputs, so that they are inferred anew."""
    inputs = {id(t) for t in model.graph.inputs}
    for node in model.nodes():
        for tensor in node.outputs:
            if id(tensor) not in inputs and not query.is_constant(tensor):
                tensor.shape = None


def infer(model: Model) -> str:
    """Infer shapes and types of all tensors, as far as ONNX can.

    The ``value_info`` of a file counts only where nothing is inferred.

    Returns:
        The contradiction between shapes, in ONNX's words; '' if there is none.
    """
    stated = value_info.set_aside(model)
    contradiction = _infer_corrected(model, model.nodes())
    if value_info.fill(model, stated):
        contradiction = _infer_corrected(model, model.nodes())
    if contradiction:  # runtimes ignore stated shapes of results
        forget(model)
        contradiction = _infer_corrected(model, model.nodes())
    return contradiction


def for_inputs(
    model: Model, lengths: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int | None, ...]]:
    """Return the extents of inner tensors for inputs of these; None where they stay open.

    The model is not changed. Tensors of unknown rank are left out.
    """
    proto = skeleton(model)
    for given in proto.graph.input:
        for dim, length in zip(
            given.type.tensor_type.shape.dim, lengths.get(given.name, ()), strict=False
        ):
            dim.dim_value = length
    inferred, _ = _run_inference(proto)
    graph = (inferred or proto).graph
    found = {}
    for info in (*graph.input, *graph.value_info, *graph.output):
        if info.type.tensor_type.HasField("shape"):
            dims = info.type.tensor_type.shape.dim
            found[info.name] = tuple(d.dim_value if d.HasField("dim_value") else None for d in dims)
    return found


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
            waiting, seen = [node], {id(node)}
            while waiting:
                for tensor in waiting.pop().outputs:
                    tensor.shape = None
                    readers = [n for n in tensor.outputs if id(n) not in seen]
                    seen.update(id(n) for n in readers)
                    waiting.extend(readers)
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
        return partial, ""  # a rule reports what leaves no cells
    try:
        return onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True), ""
    except Exception as error:  # InferenceError, and ValueErrors of old versions
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__  # what follows comes of it
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
    # Of two statements take the number before the name, the name before none.
    pairs = zip(old, new, strict=True)
    tensor.shape = [b if isinstance(b, int) or a is None else a for a, b in pairs]


def wrong_shapes(model: Model, settled: set[int]) -> list[tuple[Node, Dims]]:
    """Return nodes whose inferred output shape is wrong, with the right one.

    Nodes downstream of these are left out: their shapes must be inferred anew first.

    Nodes whose ids are in ``settled`` have been corrected.
    """
    corrections: list[tuple[Node, Dims]] = []
    downstream: set[int] = set()  # ids of tensors
    for node in model.nodes():
        if downstream and any(id(t) in downstream for one in with_inner(node) for t in one.inputs):
            downstream.update(map(id, node.outputs))
        elif (right := None if id(node) in settled else _correct_shape(node)) is not None:
            corrections.append((node, right))
            downstream.update(map(id, node.outputs))
    return corrections


def _correct_shape(node: Node) -> Dims | None:
    """Return the right shape of a node's output; None if it has it, or none is known."""
    if node.op not in ("ConvTranspose", *query.POOLS):
        return None
    if node.op != "ConvTranspose" and not query.attribute(node, "ceil_mode", 0):
        return None
    right = _shape(node)
    return None if right == list(query.shape(node.outputs[0]) or ()) else right


def _shape(node: Node) -> Dims | None:
    """Return the output's shape with the extents that can be computed, if its rank is known."""
    win, dims = window(node), query.shape(node.outputs[0])
    if win is None or win.kernel is None or dims is None or win.axes != len(dims) - 2:
        return None
    if not win.is_consistent or min((*win.strides, *win.dilations), default=0) < 1:
        return None  # rules report it
    extents = [_extent(win, axis) for axis in range(win.axes)]
    kept = [dims[axis + 2] if e is None else e for axis, e in enumerate(extents)]
    # What a file states of batch and channels may be left over from another export.
    first, channels = (query.shape(node.inputs[0]) or (None,))[0], win.out_channels
    return [dims[0] if first is None else first, dims[1] if channels is None else channels, *kept]


def _extent(win: Window, axis: int) -> int | None:
    extent = win.extent(axis)
    if extent is None or win.kernel is None:
        return None
    stride, transposes = win.strides[axis], win.op == "ConvTranspose"
    parts = (extent, win.kernel[axis], stride, win.dilations[axis], win.pads[axis])
    if transposes and win.output_shape:
        result = win.output_shape[axis]
    elif win.auto_pad in SAME:
        result = extent * stride if transposes else -(-extent // stride)
    elif transposes:
        result = transpose_output(*parts, win.output_padding[axis])
    else:
        result = pool_output(*parts, ceil=True)
    return result if result > 0 else None
