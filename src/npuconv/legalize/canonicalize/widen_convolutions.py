"""Compute half and double precision convolutions in float32.

The device takes int8 only, and quantized tensors are calibrated in float32. Of a model
in half precision or bfloat16 the other operators are computed in float32 as well, or
Casts would separate a convolution from the operators that fuse with it. Casts stand at the
borders; inputs and outputs of the model keep their types, but for bfloat16: no samples
could be given or seen in it, so they are float32.
"""

from __future__ import annotations

from npuconv.lazy import np, onnx
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.model import Model, Node, Tensor, edit, query
from npuconv.model.core import subgraphs

Wide = dict[int, Tensor]  # float32 tensor in the place of a tensor, by its id

_HALVES = frozenset({"float16", "bfloat16"})
_ONNX = {"float16": "FLOAT16", "bfloat16": "BFLOAT16", "float64": "DOUBLE"}
_TYPED = frozenset({"dtype", "output_dtype", "to", "value"})  # attributes that name a type
_OTHER_VALUES = ("Optional", "Sequence", "SplitToSequence", "ConcatFromSequence")


@register_pass(Phase.CANONICALIZE, after=("raise-opset",))
def widen_convolutions(model: Model, log: Log) -> int:
    convolutions = [
        n
        for n in model.nodes(*query.CONVOLUTIONS)
        if query.dtype_name(n.inputs[0]) in _ONNX and query.constant_input(n, 1) is not None
    ]
    halves = _HALVES & {query.dtype_name(n.inputs[0]) for n in convolutions}
    kinds = {id(n): query.dtype_name(n.inputs[0]) for n in convolutions}
    for node in model.nodes() if halves else ():
        if id(node) not in kinds and (kind := _half(node)) in halves:
            kinds[id(node)] = kind
    wide: Wide = {}
    for node in [n for n in model.nodes() if id(n) in kinds]:
        kind = kinds[id(node)]
        # Half precision itself is the larger error, so there is nothing to compare.
        with log.rewrite(model, [node], f"{node.op} in {kind}", "in float32", measure=False):
            _widen(model, node, kind, wide)
    if "bfloat16" in halves:
        _widen_interface(model)
    return len(convolutions)


def _half(node: Node) -> str:
    if not query.is_standard(node) or any(subgraphs(node)) or _TYPED & set(node.attrs):
        return ""
    kinds = [query.dtype_name(t) for t in (*node.inputs, *node.outputs) if t.name]
    if node.op == "Cast" or node.op.startswith(_OTHER_VALUES) or "" in kinds:
        return ""
    return next((kind for kind in kinds if kind in _HALVES), "")


def _widen(model: Model, node: Node, kind: str, wide: Wide) -> None:
    """Cast inputs, once for all consumers, and outputs; Casts without consumers are swept away."""
    float32 = np.dtype(np.float32)
    for index, tensor in enumerate(list(node.inputs)):
        values = query.value(tensor)
        if (values is None and not tensor.name) or query.dtype_name(tensor) not in (kind, ""):
            continue
        if values is not None:
            node.inputs[index] = edit.constant(model, tensor.name, values.astype(float32))
            continue
        if id(tensor) not in wide:
            wide[id(tensor)] = edit.variable(model, f"{node.name}/wide", tensor, float32)
            attrs = {"to": int(onnx.TensorProto.FLOAT)}
            edit.add_node(model, "Cast", [tensor], [wide[id(tensor)]], origin=[node], attrs=attrs)
        node.inputs[index] = wide[id(tensor)]
    attrs = {"to": int(onnx.TensorProto.DataType.Value(_ONNX[kind]))}
    for index, tensor in enumerate(list(node.outputs)):
        if tensor.name and query.dtype_name(tensor) in (kind, ""):
            result = edit.variable(model, f"{node.name}/out", tensor, float32)
            node.outputs[index] = wide[id(tensor)] = result
            edit.add_node(model, "Cast", [result], [tensor], origin=[node], attrs=attrs)


def _widen_interface(model: Model) -> None:
    """Let inputs and outputs be float32 that are cast to and from bfloat16 and read by no other.

    The Casts, which do nothing then, are taken out by eliminate-cast.
    """
    to_float = int(onnx.TensorProto.FLOAT)
    for tensor in filter(_is_bfloat16, model.graph.inputs):
        consumers = query.consumers(tensor)
        if consumers and all(n.op == "Cast" and n.attrs["to"] == to_float for n in consumers):
            tensor.dtype = np.dtype(np.float32)
    for tensor in filter(_is_bfloat16, model.graph.outputs):
        producer = query.producer(tensor)
        if producer is None or producer.op != "Cast" or query.consumers(tensor):
            continue
        if query.dtype_name(producer.inputs[0]) == "float32":
            producer.attrs["to"], tensor.dtype = to_float, np.dtype(np.float32)


def _is_bfloat16(tensor: Tensor) -> bool:
    return query.dtype_name(tensor) == "bfloat16"
