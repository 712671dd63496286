"""Compute now what depends on constants only."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import onnx

    from npuconv.legalize.context import PassContext, RewriteRecord
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor


@model_pass(Phase.CANONICALIZE, after=("name-nodes",), infers=True)
def fold_constants(model: Model, ctx: PassContext) -> int:
    """Compute now what depends on constants only.

    Constant nodes become initializers; shapes of tensors whose extents are all known,
    ConstantOfShape, DequantizeLinear of a weight and everything else that reads
    constants only is run once, on onnxruntime, and checked against ONNX's reference.

    A tensor that would be larger than ``max_folded_mib`` stays computed, and so does
    what is random, has a subgraph, or makes an output of the model.
    """
    fired = sum(_fold_constant(model, node) for node in model.nodes("Constant"))
    fired += sum(_fold_shape(model, node) for node in model.nodes("Shape", "Size"))
    nodes = _foldable(model, ctx)
    if nodes:
        before = f"{len(nodes)} nodes on constants ({_histogram(nodes)})"
        with ctx.rewrite(model, nodes[:1], before, "initializers", measure=False) as record:
            folded = _compute(model, ctx, nodes, record)
        if folded < len(nodes):
            record.before = f"{folded} of {before}"
        if not folded:
            ctx.rewrites.pop()
        fired += folded
    return fired


def _histogram(nodes: list[Node]) -> str:
    counts = Counter(node.op for node in nodes)
    return ", ".join(f"{op} x {n}" for op, n in sorted(counts.items()))


def _foldable(model: Model, ctx: PassContext) -> list[Node]:
    """Nodes that read constants, or each other, in topological order."""
    known: set[int] = set()
    found: list[Node] = []
    for node in model.nodes():
        if not _reads_constants(node, known) or not _is_pure(node):
            continue
        if any(model.is_output(t) for t in node.outputs):
            continue
        reason = _too_large(node, ctx.options.max_folded_mib * 2**20)
        if reason:
            ctx.refuse(model, node, reason)
            continue
        found.append(node)
        known.update(id(t) for t in node.outputs)
    return found


def _reads_constants(node: Node, known: set[int]) -> bool:
    tensors = [t for t in node.inputs if t.name or query.is_constant(t)]
    return bool(tensors) and all(query.is_constant(t) or id(t) in known for t in tensors)


_RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"}
    | {"Multinomial", "Bernoulli", "Dropout"}
)
# Their output can be larger than all they read, so it must be known before they run.
_EXPANDING = frozenset(
    {"ConstantOfShape", "Expand", "Tile", "Range", "Pad", "Resize", "Upsample", "OneHot"}
    | {"EyeLike", "Gather", "MatMul", "Gemm", "Conv", "ConvTranspose"}
)
CHECKED_ELEMENTS = 1 << 20  # results up to this size are checked against the reference


def _fold_constant(model: Model, node: Node) -> int:
    """A Constant node becomes an initializer."""
    result = node.outputs[0]
    array = _attribute_value(node)
    if array is None or model.is_output(result):
        return 0
    edit.replace_by_constant(model, result, array)
    return 1


def _attribute_value(node: Node) -> np.ndarray | None:
    import numpy as np

    if "value" in node.attrs:
        return np.asarray(node.attrs["value"].values)
    for name, dtype in (("float", np.float32), ("int", np.int64)):
        for key in (f"value_{name}", f"value_{name}s"):
            if key in node.attrs:
                return np.asarray(node.attrs[key], dtype)
    return None  # strings: nothing a convolution reads


def _fold_shape(model: Model, node: Node) -> int:
    """Shape or Size of a tensor whose extents are all known."""
    import numpy as np

    dims = query.static_shape(node.inputs[0])
    if dims is None or query.is_constant(node.inputs[0]) or model.is_output(node.outputs[0]):
        return 0
    if node.op == "Size":
        edit.replace_by_constant(model, node.outputs[0], np.asarray(math.prod(dims), np.int64))
        return 1
    window = slice(node.attrs.get("start", 0), node.attrs.get("end"))
    edit.replace_by_constant(model, node.outputs[0], np.asarray(dims[window], np.int64))
    return 1


def _is_pure(node: Node) -> bool:
    """Return whether a node may be run once instead of every time."""
    from npuconv.model.core import subgraphs

    if not query.is_standard(node) or node.op in _RANDOM or any(subgraphs(node)):
        return False
    return node.op not in ("Constant", "QuantizeLinear") and not node.op.startswith("Sequence")


def _element_size(tensor: Tensor) -> int:
    """Bytes; a type numpy has no name for (bfloat16) has two at most."""
    import numpy as np

    dtype = tensor.dtype
    return 2 if isinstance(dtype, int) else int(np.dtype(dtype or np.float32).itemsize)


def _too_large(node: Node, limit: int) -> str:
    """Return why the result of a node is too large to compute, or ''."""
    for tensor in node.outputs:
        dims = query.static_shape(tensor)
        if dims is None and node.op in _EXPANDING:
            return "the size of its result is not known before it runs"
        size = math.prod(dims or (0,)) * _element_size(tensor)
        if size > limit:
            return f"its result has {size / 2**20:,.0f} MiB, over max_folded_mib"
    return ""


def _compute(model: Model, ctx: PassContext, nodes: Sequence[Node], record: RewriteRecord) -> int:
    """Run the nodes once and put constants in the place of what others read of them."""
    from npuconv import executor

    inside = {id(n) for n in nodes}
    frontier = [t for n in nodes for t in n.outputs if any(id(c) not in inside for c in t.outputs)]
    proto, feeds = _model(model, nodes, frontier)
    try:
        values = executor.Session(proto, optimize=False).run(feeds)
    except executor.RuntimeRefusedError as error:
        return _one_by_one(model, ctx, nodes, record, str(error))
    record.reference, record.difference = _check(proto, feeds, values)
    for tensor in frontier:
        edit.replace_by_constant(model, tensor, values[tensor.name])
    return len(nodes)


def _one_by_one(
    model: Model,
    ctx: PassContext,
    nodes: Sequence[Node],
    record: RewriteRecord,
    reason: str,
) -> int:
    """One node onnxruntime refuses must not keep the others from being folded."""
    if len(nodes) == 1:
        ctx.refuse(model, nodes[0], f"onnxruntime does not compute it: {reason}")
        return 0
    ready = [n for n in nodes if all(query.is_constant(t) or not t.name for t in n.inputs)]
    return sum(_compute(model, ctx, [node], record) for node in ready)


def _model(
    model: Model, nodes: Sequence[Node], frontier: Sequence[Tensor]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    from onnx import helper, numpy_helper

    from npuconv.model.save import node_proto

    read = {t.name: array for n in nodes for t in n.inputs if (array := query.value(t)) is not None}
    # Numbers of 4 bits and the like cannot be fed to onnxruntime, but a model can hold them.
    feeds = {name: array for name, array in read.items() if array.dtype.isbuiltin == 1}
    held = [numpy_helper.from_array(read[name], name) for name in read if name not in feeds]
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in feeds.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(t.name) for t in frontier]
    graph = helper.make_graph([node_proto(n) for n in nodes], "constants", inputs, outputs, held)
    imports = [helper.make_opsetid("", model.opset)]
    version = max(8, helper.find_min_ir_version_for(imports))
    return helper.make_model(graph, opset_imports=imports, ir_version=version), feeds


def _check(
    proto: onnx.ModelProto, feeds: dict[str, np.ndarray], values: dict[str, np.ndarray]
) -> tuple[str, float | None]:
    """Compare with ONNX's reference where that is affordable."""
    from npuconv import executor

    if sum(v.size for v in values.values()) > CHECKED_ELEMENTS:
        return "computed by onnxruntime, too large to check", None
    try:
        reference = executor.run_reference(proto, feeds)
    except executor.RuntimeRefusedError as error:
        return f"computed by onnxruntime; onnx.reference: {error}", None
    gaps = [_gap(values[name], reference[name]) for name in values]
    return "onnx.reference", max(gaps, default=0.0)


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    import numpy as np

    if not a.size or a.dtype.kind not in "fiub":
        return 0.0
    with np.errstate(all="ignore"):
        gap = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return float(np.nan_to_num(gap, nan=0.0).max())
