"""Operators that TFLite lacks, written as functions of operators that it has.

ONNX defines many operators by other operators: Mish by Softplus, Tanh and Mul. If TFLite has
all of these, they replace the node, in float on the host. The functions below come first:
the functions of ONNX overflow, or subtract squares of large numbers, or do not exist.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import defs, helper, inliner, numpy_helper, parser

from npuconv.errors import ModelError
from npuconv.model import query
from npuconv.model.graph_import import standard_opset
from npuconv.model.inference import MAX_SHAPE_VALUES
from npuconv.tflite.draft import Draft

# Operators on shapes: computed here, where all extents are known, and not written.
_ON_SHAPES = ("Shape", "Constant", "ConstantOfShape", "Range", "Mod", "Size", "CastLike")
# The function of ReduceLogSumExp overflows: exp(x) is infinite from x = 89 on.
_NOT_WRITTEN = ("ReduceLogSumExp", *_ON_SHAPES)
_DEPTH = 4  # largest depth of functions inside functions
_OLDEST = 18  # first opset in which the axes of a reduction are an input

_FUNCTIONS = """
Softplus (X) => (Y) {
    positive = Relu (X)  a = Abs (X)  n = Neg (a)  e = Exp (n)
    one = Constant <value_float: float = 1.0> ()
    sum = Add (e, one)  log = Log (sum)  Y = Add (positive, log)
}

Reciprocal (X) => (Y) { one = Constant <value_float: float = 1.0> ()  Y = Div (one, X) }

IsNaN (X) => (Y) { equal = Equal (X, X)  Y = Not (equal) }

LpNormalization <axis: int, p: int> (X) => (Y) {
    axis = Constant <value_int: int = @axis> ()  one = Constant <value_ints: ints = [1]> ()
    axes = Reshape (axis, one)  p = Constant <value_int: int = @p> ()  power = CastLike (p, X)
    root = Reciprocal (power)  a = Abs (X)  powers = Pow (a, power)
    sum = ReduceSum (powers, axes)  norm = Pow (sum, root)
    least = Constant <value_float: float = 1.2e-38> ()  divisor = Max (norm, least)
    Y = Div (X, divisor)
}

Standardize <axis: int, epsilon: float> (X) => (Y) {
    one = Constant <value_int: int = 1> ()  axis = Constant <value_int: int = @axis> ()
    shape = Shape (X)  rank = Size (shape)  first = Mod (axis, rank)
    axes = Range (first, rank, one)
    mean = ReduceMean (X, axes)  moved = Sub (X, mean)  square = Mul (moved, moved)
    variance = ReduceMean (square, axes)  least = Constant <value_float: float = @epsilon> ()
    sum = Add (variance, least)  deviation = Sqrt (sum)  Y = Div (moved, deviation)
}

LayerNormalization <axis: int, epsilon: float> (X, Scale, B) => (Y) {
    standard = Standardize <axis: int = @axis, epsilon: float = @epsilon> (X)
    scaled = Mul (standard, Scale)  Y = Add (scaled, B)
}

ByChannel (X, Scale, B) => (Y) {
    two = Constant <value_int: int = 2> ()  one = Constant <value_ints: ints = [1]> ()
    shape = Shape (X)  rank = Size (shape)  behind = Sub (rank, two)  count = Reshape (behind, one)
    ones = ConstantOfShape <value: tensor = int64[1] {1}> (count)
    minus = Neg (one)  column = Concat <axis: int = 0> (minus, ones)
    scale = Reshape (Scale, column)  bias = Reshape (B, column)
    scaled = Mul (X, scale)  Y = Add (scaled, bias)
}

InstanceNormalization <epsilon: float> (X, Scale, B) => (Y) {
    standard = Standardize <axis: int = 2, epsilon: float = @epsilon> (X)
    Y = ByChannel (standard, Scale, B)
}

GroupNormalization <num_groups: int, epsilon: float> (X, Scale, B) => (Y) {
    zero = Constant <value_ints: ints = [0]> ()  rest = Constant <value_ints: ints = [-1]> ()
    groups = Constant <value_int: int = @num_groups> ()  count = Reshape (groups, rest)
    parts = Concat <axis: int = 0> (zero, count, rest)  grouped = Reshape (X, parts)
    standard = Standardize <axis: int = 2, epsilon: float = @epsilon> (grouped)
    shape = Shape (X)  values = Reshape (standard, shape)  Y = ByChannel (values, Scale, B)
}
"""


def fold(draft: Draft, node: onnx.NodeProto, supported: Collection[str]) -> bool:
    """Compute a node whose inputs are constants; return whether it was computed.

    Raises:
        ModelError: the constants do not fit the node.
    """
    values = [draft.constant(name) if name else None for name in node.input]
    if node.op_type == "Shape" and draft.knows(node.input[0]):
        values = [np.zeros(draft.shape(node.input[0]), np.int8)]
    if node.op_type == "CastLike":  # only the type of the second input counts
        values[1] = np.zeros((), draft.dtype(node.input[1]))
    named = [name for name in node.input if name]
    constants = [value for value in values if value is not None]
    if len(constants) < len(named) or node.op_type not in (*supported, *_ON_SHAPES):
        return False
    from onnx.reference import ReferenceEvaluator  # slow to import, and of use only here

    try:
        results = ReferenceEvaluator(node).run(None, dict(zip(named, constants, strict=True)))
    except Exception as error:  # mostly errors of numpy
        raise ModelError(f"cannot be computed: {error}") from None
    for name, value in zip(node.output, results, strict=False):
        draft.fold(name, np.asarray(value))
    return True


def expand(model: onnx.ModelProto, supported: Collection[str]) -> dict[str, str]:
    """Replace nodes that TFLite lacks by their functions, if it has all operators of the function.

    Args:
        model: a model with inferred shapes; it is changed.
        supported: operators that TFLite has.

    Returns:
        The name of the replaced node, by the name of each new node.
    """
    nodes, sources, draft = list(model.graph.node), dict[str, str](), None
    opset = standard_opset(model) or 1
    del model.graph.node[:]
    for node in nodes:
        body = None
        stays = _is_held(node, supported) or node.op_type in _NOT_WRITTEN
        if node.domain in query.STANDARD_DOMAINS and not stays:
            draft = draft or Draft(model)
            body = _body(draft, node, max(opset, _OLDEST), supported)
        if body is None:
            model.graph.node.append(node)
            continue
        for number, inner in enumerate(body.node):
            inner.name = f"{node.name}/{number}"
            sources[inner.name] = node.name
        model.graph.MergeFrom(body)
    return sources


def _is_held(node: onnx.NodeProto, supported: Collection[str]) -> bool:
    alpha = [a.f for a in node.attribute if a.name == "alpha"]
    return node.op_type in supported and not (node.op_type == "Elu" and alpha not in ([], [1]))


def _body(
    draft: Draft, node: onnx.NodeProto, opset: int, supported: Collection[str]
) -> onnx.GraphProto | None:
    """Return nodes and constants that replace a node; None if TFLite lacks an operator."""
    inputs = list(dict.fromkeys(name for name in node.input if name))
    if not defs.has(node.op_type, opset) or not all(map(draft.knows, inputs)):
        return None
    copy, explicit = onnx.NodeProto(), {attribute.name for attribute in node.attribute}
    copy.CopyFrom(node)  # defaults become explicit attributes, because the inliner ignores them
    attributes = defs.get_schema(node.op_type, opset, "").attributes.values()
    defaults = [a.default_value for a in attributes if a.name not in explicit]
    copy.attribute.extend(value for value in defaults if value.name)
    values = {name: draft.constant(name) for name in inputs}
    small = {n: v for n, v in values.items() if v is not None and v.size <= MAX_SHAPE_VALUES}
    if node.op_type == "LayerNormalization" and len(inputs) == 2:
        copy.input[2:], small["no bias"] = ["no bias"], np.zeros((), np.float32)
    kinds = [helper.np_dtype_to_tensor_dtype(draft.dtype(name)) for name in inputs]
    typed = zip(inputs, kinds, strict=True)
    graph = helper.make_graph(
        [copy],
        "body",
        [helper.make_tensor_value_info(name, kind, draft.shape(name)) for name, kind in typed],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        [numpy_helper.from_array(array, name) for name, array in small.items()],
    )
    is_float = len(node.output) == 1 and kinds[0] == onnx.TensorProto.FLOAT
    texts = _FUNCTIONS.split("\n\n") if is_float else []
    header = f'<domain: "", opset_import: ["" : {opset}]>\n'
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset)],
        functions=[parser.parse_function(header + text) for text in texts],
        ir_version=10,
    )
    for _ in range(_DEPTH):
        ops = {n.op_type for n in model.graph.node if not _is_held(n, supported)}
        ids = [("", op) for op in sorted(ops.difference(_ON_SHAPES))]
        model = inliner.inline_selected_functions(model, ids, inline_schema_functions=True)
    del model.functions[:]
    graph = _with_constants(model, supported)
    if any(inner.op_type not in supported for inner in graph.node):
        return None
    return _with_unique_names(graph, node)


def _with_constants(model: onnx.ModelProto, supported: Collection[str]) -> onnx.GraphProto:
    """Return the graph with nodes that depend on extents only replaced by constants."""
    while True:
        del model.graph.value_info[:]  # inference would keep its unknown extents
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        draft, nodes = Draft(model), list(model.graph.node)
        del model.graph.node[:]
        for node in nodes:
            if fold(draft, node, supported):
                values = [(name, draft.constant(name)) for name in node.output]
                tensors = [numpy_helper.from_array(v, n) for n, v in values if v is not None]
                model.graph.initializer.extend(tensors)
            else:
                model.graph.node.append(node)
        if len(model.graph.node) == len(nodes):
            return model.graph


def _with_unique_names(graph: onnx.GraphProto, node: onnx.NodeProto) -> onnx.GraphProto:
    """Return the nodes that the outputs need, with names that are unique in the model."""
    interface, read = {"", *node.input, *node.output}, {*node.output}
    body = onnx.GraphProto()
    for inner in reversed(graph.node):
        if not read.isdisjoint(inner.output):
            read.update(inner.input)
            body.node.insert(0, inner)
    body.initializer.extend(t for t in graph.initializer if t.name in read.difference(node.input))
    body.value_info.extend((*graph.value_info, *graph.output))
    for inner in body.node:
        for names in (inner.input, inner.output):
            names[:] = [name if name in interface else f"{node.name}/{name}" for name in names]
    for item in (*body.initializer, *body.value_info):
        item.name = item.name if item.name in interface else f"{node.name}/{item.name}"
    return body
