"""Compute nodes that depend on constants only.

Constant nodes become initializers; shapes of tensors whose extents are all known,
ConstantOfShape, DequantizeLinear of a weight and every other node whose value depends
on constants only is run once, on onnxruntime, and checked against ONNX's reference.
CastLike depends on the type of its second input only, so it becomes a Cast; EyeLike
depends on the extents of its input.

A tensor that would be larger than ``max_folded_mib`` stays computed, as do random
numbers, nodes with a subgraph, and outputs of the model that no node reads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from npuconv.lazy import np, onnx
from npuconv.legalize.log import RewriteRecord
from npuconv.legalize.region import Region, capture
from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.model import Model, Node, edit, query
from npuconv.model.core import subgraphs, sweep

CHECKED_ELEMENTS = 1 << 20  # results up to this size are checked against the reference
# Their output can be larger than all they read, so its size must be known before they run.
_EXPANDING = frozenset(
    {"ConstantOfShape", "Expand", "Tile", "Range", "Pad", "Resize", "Upsample", "OneHot"}
    | {"EyeLike", "Gather", "MatMul", "Gemm", "Conv", "ConvTranspose"}
)


@register_pass(Phase.CANONICALIZE, after=("unpack-weights",), infers=True)
def fold_constants(model: Model, device: TargetDevice, log: Log) -> int:
    # graph-surgeon's fold_constants checks its results against no reference, and gives no
    # reason where it leaves a node.
    fired = sum(_fold(model, node, query.constant_of(node)) for node in model.nodes("Constant"))
    limit = device.options.max_folded_mib * 2**20
    extents = [n for n in model.nodes("Shape", "Size", "EyeLike") if not _size_obstacle(n, limit)]
    fired += sum(_fold(model, node, _of_extents(node)) for node in extents)
    if casts := sum(_as_cast(model, node) for node in model.nodes("CastLike")):
        sweep(model)  # sorts the new nodes
    nodes = _foldable(model, device, log)
    if nodes:
        counts = sorted(Counter(node.op for node in nodes).items())
        histogram = ", ".join(f"{op} x {n}" for op, n in counts)
        before = f"{len(nodes)} nodes on constants ({histogram})"
        with log.rewrite(model, nodes[:1], before, "initializers", measure=False) as record:
            folded = _compute(model, log, nodes, record)
        if folded < len(nodes):
            record.before = f"{folded} of {before}"
        if not folded:
            log.rewrites.pop()
        fired += folded
    return fired + casts


def _fold(model: Model, node: Node, array: np.ndarray | None) -> int:
    result = node.outputs[0]
    if array is None or not len(result.outputs):
        return 0
    edit.replace_by_constant(model, result, array)
    return 1


def _of_extents(node: Node) -> np.ndarray | None:
    """Return the result of Shape, Size or EyeLike where all extents are known."""
    dims = query.static_shape(node.inputs[0])
    if dims is None or query.is_constant(node.inputs[0]):
        return None
    if node.op == "Size":
        return np.asarray(math.prod(dims), np.int64)
    if node.op == "EyeLike":
        diagonal = np.eye(dims[0], dims[1], node.attrs.get("k", 0))
        return diagonal.astype(node.outputs[0].dtype)
    return np.asarray(dims[node.attrs.get("start", 0) : node.attrs.get("end")], np.int64)


def _as_cast(model: Model, node: Node) -> int:
    dtype = node.inputs[1].dtype
    if dtype is None:
        return 0
    if not isinstance(dtype, int):  # graph-surgeon has integers for types that numpy lacks
        dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    cast = edit.add_node(
        model, "Cast", node.inputs[:1], [], origin=[node], attrs={**node.attrs, "to": dtype}
    )
    edit.keep_name(cast, node)
    edit.take_over_outputs(node, cast)
    return 1


def _foldable(model: Model, device: TargetDevice, log: Log) -> list[Node]:
    """Return nodes that read constants, or each other, in topological order."""
    computed: set[int] = set()
    foldable: list[Node] = []
    for node in model.nodes():
        tensors = [t for t in node.inputs if t.name or query.is_constant(t)]
        is_constant = tensors and all(query.is_constant(t) or id(t) in computed for t in tensors)
        if not is_constant or not _is_pure(node):
            continue
        if not any(len(t.outputs) for t in node.outputs):  # an output of the model
            continue
        reason = _size_obstacle(node, device.options.max_folded_mib * 2**20)
        if reason:
            log.refuse(model, node, reason)
            continue
        foldable.append(node)
        computed.update(id(t) for t in node.outputs)
    return foldable


def _is_pure(node: Node) -> bool:
    """Return whether a node may be run once instead of every time."""
    if not query.is_standard(node) or node.op in query.RANDOM or any(subgraphs(node)):
        return False
    return node.op not in ("Constant", "QuantizeLinear") and "Sequence" not in node.op


def _size_obstacle(node: Node, limit: int) -> str:
    """Return why the result of a node is too large to compute, or ''."""
    for tensor in node.outputs:
        dims, dtype = query.static_shape(tensor), tensor.dtype
        if dims is None and node.op in _EXPANDING:
            return "the size of its result is not known before it runs"
        # A type that numpy has no name for (bfloat16) has two bytes at most.
        width = 2 if isinstance(dtype, int) else int(np.dtype(dtype or np.float32).itemsize)
        size = math.prod(dims or (0,)) * width
        if size > limit:
            return f"its result has {size / 2**20:,.0f} MiB, over max_folded_mib"
    return ""


def _compute(model: Model, log: Log, nodes: Sequence[Node], record: RewriteRecord) -> int:
    """Run the nodes once; replace the results that other nodes read by constants."""
    from npuconv import executor
    from npuconv.legalize import measure

    inside = {id(n) for n in nodes}
    border = [t for n in nodes for t in n.outputs if any(id(c) not in inside for c in t.outputs)]
    region = capture(model, nodes, border)
    try:
        (values,) = measure.run([region], [{}])
    except executor.RuntimeRefusedError as error:
        if len(nodes) == 1:
            return log.refuse(model, nodes[0], f"onnxruntime does not compute it: {error}")
        ready = [n for n in nodes if all(query.is_constant(t) or not t.name for t in n.inputs)]
        return sum(_compute(model, log, [node], record) for node in ready)
    record.reference, record.max_abs_difference = _check(region, values)
    for tensor in border:
        edit.replace_by_constant(model, tensor, values[tensor.name])
    return len(nodes)


def _check(region: Region, values: Mapping[str, np.ndarray]) -> tuple[str, float | None]:
    """Compare with ONNX's reference where that is affordable: its name and the difference."""
    from npuconv import executor
    from npuconv.legalize import measure

    if sum(v.size for v in values.values()) > CHECKED_ELEMENTS:
        return "computed by onnxruntime, too large to check", None
    try:
        (reference,) = measure.run([region], [{}], executor.run_reference)
    except executor.RuntimeRefusedError as error:
        return f"computed by onnxruntime; onnx.reference: {error}", None
    difference = 0.0
    for name, array in values.items():
        if array.size and array.dtype.kind in "fiub":
            with np.errstate(all="ignore"):
                gap = np.abs(array.astype(np.float64) - reference[name].astype(np.float64))
            difference = max(difference, float(np.nan_to_num(gap, nan=0.0).max()))
    return "onnx.reference", difference
