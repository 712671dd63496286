"""Translation of an integer ONNX model into a TFLite file, node by node.

An int8 operator that TFLite gives a scale of its own is followed by a QUANTIZE where another is
wanted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from npuconv.arithmetic import litert
from npuconv.arithmetic.operators import TensorScale
from npuconv.emit.int8_operators import KEY, Int8Operator, int8_operators
from npuconv.emit.tflite import conversions, convolution, flatbuffer, floats, movement
from npuconv.emit.tflite.draft import CHANNELS_LAST, Draft, Order, View, same
from npuconv.emit.tflite.flatbuffer import Graph, Quantization, Tensor, to_bytes
from npuconv.errors import ModelError
from npuconv.version import __version__

Handler = Callable[[Draft, onnx.NodeProto], None]
HANDLERS: dict[str, Handler] = {
    "QLinearConv": convolution.convolve,
    "Conv": convolution.convolve_floats,
    "QuantizeLinear": conversions.quantize,
    "DequantizeLinear": conversions.dequantize,
    "Transpose": movement.transpose,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), movement.reshape),
    **dict.fromkeys(("Identity", "Dropout"), movement.identity),
    "Concat": movement.concat,
    "MaxPool": movement.max_pool,
    "Pad": movement.pad,
    "Clip": movement.clip,
    "Gather": movement.gather,
    "Slice": movement.slice_,
    "Split": movement.split,
    "DepthToSpace": movement.depth_to_space,
    "SpaceToDepth": movement.space_to_depth,
    "Resize": movement.resize,
    **dict.fromkeys(floats.BINARY, floats.binary),
    **dict.fromkeys(floats.UNARY, floats.unary),
    **dict.fromkeys(floats.REDUCTIONS, floats.reduction),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), floats.global_pool),
    **dict.fromkeys(("Softmax", "LogSoftmax"), floats.softmax),
    "InstanceNormalization": floats.instance_normalization,
    "AveragePool": floats.average_pool,
    "Reciprocal": floats.reciprocal,
    "HardSigmoid": floats.hard_sigmoid,
    "LeakyRelu": floats.leaky_relu,
    "PRelu": floats.prelu,
    "Gemm": floats.gemm,
    "MatMul": floats.matmul,
    "Cast": floats.cast,
    "Expand": floats.expand,
}
_STANDARD = ("", "ai.onnx")
ENDS = "npuconv.ends"  # of the metadata: names and orders of axes of inputs, then outputs
LAYERS = "npuconv.layers"  # of the metadata: tensors of the layers, by their names in ONNX
STORED = "npuconv.stored"  # of the metadata: names, orders and numbers of these tensors
_LETTERS = "NCHW"
_PREFIX = "npuconv."  # of the metadata that go into the file
_SAID_AT_MOST = 8  # operators that an error names


@dataclass(frozen=True)
class End:
    """An input or output of the file."""

    name: str  # in both models
    tensor: Tensor  # as it is stored
    order: Order  # axis k of it is axis ``order[k]`` of the ONNX tensor


@dataclass(frozen=True)
class Translation:
    """A TFLite graph of an integer model."""

    graph: Graph
    inputs: tuple[End, ...]  # in the order of the model
    outputs: tuple[End, ...]  # in the order of the model
    # Number of a stored tensor and its order, by the name of the ONNX tensor.
    tensors: dict[str, View]


def translate(model: onnx.ModelProto) -> Translation:
    """Translate a model of QLinearConv, int8 operators and float operators.

    A first extent that is not known becomes 1, as TFLite's own converter writes it.

    Args:
        model: as ``--format qoperator`` writes it; not changed.

    Raises:
        UsageError: the package ``tflite``, which numbers operators, is missing.
        ModelError: an operator that TFLite does not have, or a shape that is not known.
    """
    draft, found = Draft(_with_shapes(model)), int8_operators(model)
    nodes = _folded(draft, model)
    _check_operators(nodes)
    _declare(draft, found.made.values())
    inputs = [_input(draft, info.name) for info in _given(model)]
    for node in nodes:
        one = found.made.get(node.output[0])
        if one is not None:
            whole = _alone(draft, one)
            HANDLERS[whole.op_type](draft, whole)
            _finish(draft, one, whole)
        elif node.output[0] not in draft.fused | found.inside:
            HANDLERS[node.op_type](draft, node)
    graph, outputs = draft.graph, list[tuple[str, View]]()
    for name in draft.outputs:
        taken = [view.index for _, view in (*inputs, *outputs)]
        outputs.append(_output(draft, name, taken))
    graph.inputs = tuple(view.index for _, view in inputs)
    graph.outputs = tuple(view.index for _, view in outputs)
    return Translation(graph, _ends(graph, inputs), _ends(graph, outputs), draft.stored())


def _ends(graph: Graph, views: list[tuple[str, View]]) -> tuple[End, ...]:
    return tuple(End(name, graph.tensors[view.index], view.order) for name, view in views)


def _given(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    constant = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in constant]


def _with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose shapes follow from those of its inputs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    _check_extents(made)
    for info in _given(made):
        for dim in info.type.tensor_type.shape.dim[:1]:
            dim.dim_value = dim.dim_value if dim.HasField("dim_value") else 1
    del made.graph.value_info[:]
    for info in made.graph.output:
        info.type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(made, data_prop=True)


def _check_extents(model: onnx.ModelProto) -> None:
    """Refuse an input with an unknown extent that is not its first.

    Raises:
        ModelError: names it, and the flag to give.
    """
    for info in _given(model):
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if axis > 0 and not dim.HasField("dim_value"):
                raise ModelError(
                    f"input {info.name!r}: extent {axis} is {dim.dim_param or '?'}, but TFLite "
                    "needs a number",
                    hint=f"give --input-shape {info.name}=... with all extents",
                )


def _folded(draft: Draft, model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the nodes, without those whose inputs are constants: these are computed."""
    kept = []
    for node in model.graph.node:
        values = [draft.constant(name) if name else None for name in node.input]
        if node.op_type == "Shape" and draft.knows(node.input[0]):
            values = [np.zeros(draft.shape(node.input[0]), np.int8)]
        named = [name for name in node.input if name]
        found = [v for v in values if v is not None]
        known = node.op_type in HANDLERS or node.op_type in _FOLDED
        if not known or len(found) < len(named):
            kept.append(node)
            continue
        feeds = dict(zip(named, found, strict=True))
        try:
            results = ReferenceEvaluator(node).run(None, feeds)
        except Exception as error:  # of numpy, for the most part
            raise ModelError(
                f"node {node.name!r} ({node.op_type}) cannot be computed: {error}"
            ) from None
        for name, value in zip(node.output, results, strict=False):
            draft.fold(name, np.asarray(value))
    return kept


_FOLDED = ("Shape", "Constant", "ConstantOfShape", "Range", "Not", "And", "Or", "Mod", "Size")


def check(model: onnx.ModelProto) -> None:
    """Refuse a float model whose integer form could not be translated, before any calibration.

    Raises:
        UsageError: the package ``tflite`` is missing.
        ModelError: an operator that TFLite does not have, or has in another form only; an input
            of unknown extents.
    """
    flatbuffer.require()
    translate(model)  # its operators have the attributes of the integer form


def _check_operators(nodes: Iterable[onnx.NodeProto]) -> None:
    """Refuse what TFLite has no operator for.

    Raises:
        ModelError: names operators, how many there are, and one of each.
    """
    missing = [n for n in nodes if n.domain not in _STANDARD or n.op_type not in HANDLERS]
    if not missing:
        return
    counts = Counter(node.op_type for node in missing)
    first = {node.op_type: node.name for node in reversed(missing)}
    shown = [f"{op} ({n}, such as {first[op]!r})" for op, n in counts.most_common(_SAID_AT_MOST)]
    raise ModelError(
        f"the TFLite form has no operator for {', '.join(shown)}",
        hint="choose --format qoperator, or cut the model before them",
    )


def _input(draft: Draft, name: str) -> tuple[str, View]:
    """Add an input: images with their channels last, unless the model has them so already."""
    rank = len(draft.shape(name))
    turned = all(node.op_type == "Transpose" for node in draft.consumers.get(name, []))
    order = CHANNELS_LAST if rank == 4 and not turned else same(rank)
    own = conversions.declared(draft, name)
    return name, View(draft.store(name, order, own), order)


def _output(draft: Draft, name: str, taken: list[int]) -> tuple[str, View]:
    """Return an output: as ONNX has it where it is stored so, else with its channels last."""
    rank = len(draft.shape(name))
    view = draft.view(name)
    last = view is not None and rank == 4 and view.order == CHANNELS_LAST
    order = CHANNELS_LAST if last else same(rank)
    return name, View(draft.as_output(name, order, taken), order)


def _declare(draft: Draft, operators: Iterable[Int8Operator]) -> None:
    """Set the scales of all int8 tensors that operators read or make."""
    for one in operators:
        for name, at in zip((*one.sources, one.result), one.scales, strict=True):
            draft.scales[name] = _of(at)


def _alone(draft: Draft, one: Int8Operator) -> onnx.NodeProto:
    """Return the operator between int8 tensors, as the translation of float operators takes it.

    What it reads has one scale where TFLite demands that; what it makes has TFLite's.
    """
    made_at = litert.made_at(one.op, one.scales)
    made = one.result
    if made_at != one.scales[-1]:
        made = draft.sibling(one.result, "own", _of(made_at))
    inputs = list(one.inputs)
    if one.op == "Concat":
        pairs = zip(inputs, one.scales[:-1], strict=True)
        inputs = [_moved(draft, name, at, made_at) for name, at in pairs]
    attributes = {a.name: helper.get_attribute_value(a) for a in one.node.attribute}
    op = one.op
    if op == "PRelu" and litert.is_leaky(one.attributes["alpha"]):
        op, inputs, attributes = "LeakyRelu", inputs[:1], {"alpha": one.attributes["alpha"].item()}
    elif op == "PRelu":
        stored, scale = litert.slopes(one.attributes["alpha"])
        draft.fold(inputs[1], stored)
        draft.scales[inputs[1]] = Quantization.of(scale, 0)
    return helper.make_node(op, inputs, [made], one.name, **attributes)


def _finish(draft: Draft, one: Int8Operator, whole: onnx.NodeProto) -> None:
    """Append the QUANTIZE to the scale that is wanted, where it is another."""
    if whole.output[0] != one.result:
        _requantize(draft, whole.output[0], one.result)


def _moved(draft: Draft, name: str, at: TensorScale, wanted: TensorScale) -> str:
    if at == wanted:
        return name
    made = draft.sibling(name, "moved", _of(wanted))
    if draft.view(made) is None:
        _requantize(draft, name, made)
    return made


def _requantize(draft: Draft, name: str, made: str) -> None:
    order = draft.order([name], len(draft.shape(name)))
    source = draft.read(name, order)
    draft.emit("QUANTIZE", [source], [draft.store(made, order)], "QuantizeOptions")


def _of(at: TensorScale) -> Quantization:
    return Quantization.of(at.scale, at.zero)


@dataclass(frozen=True)
class TfliteFile:
    """A TFLite file."""

    data: bytes
    # One line for each: name, type, shape, order of axes, scale and zero point.
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]  # likewise
    operators: dict[str, int]  # how many there are of each


def write(model: onnx.ModelProto) -> TfliteFile:
    """Write an integer model as TFLite; the same model gives the same bytes.

    Args:
        model: as ``--format qoperator`` writes it; not changed.

    Raises:
        UsageError: the package ``tflite`` is missing.
        ModelError: an operator that TFLite does not have, a shape that is not known, or more
            than 2 GB.
    """
    made = translate(model)
    metadata = {e.key: e.value for e in model.metadata_props if e.key.startswith(_PREFIX)}
    metadata.pop(KEY, None)  # names of nodes of the ONNX model
    ends = [[end.name, list(end.order)] for end in (*made.inputs, *made.outputs)]
    metadata[ENDS] = json.dumps(ends, separators=(",", ":"))
    if LAYERS in metadata:
        metadata[STORED] = json.dumps(_stored(made, metadata[LAYERS]), separators=(",", ":"))
    data = to_bytes(made.graph, f"npuconv {__version__}", dict(sorted(metadata.items())))
    counts = Counter(operator.code for operator in made.graph.operators)
    return TfliteFile(
        data,
        tuple(map(_line, made.inputs)),
        tuple(map(_line, made.outputs)),
        dict(sorted(counts.items())),
    )


def _stored(made: Translation, layers: str) -> list[tuple[str, list[int], int]]:
    """Return name, order and number of each tensor that a layer ends with, where it is stored."""
    names = dict.fromkeys(entry["stored"] for entry in json.loads(layers))
    views = {name: made.tensors[name] for name in names if name in made.tensors}
    return [(name, list(view.order), view.index) for name, view in views.items()]


def _line(end: End) -> str:
    """Return ``x: float32 [1, 224, 224, 3] (NHWC)``."""
    tensor = end.tensor
    order = "".join(_LETTERS[k] for k in end.order) if len(end.order) == len(_LETTERS) else ""
    text = f"{end.name}: {tensor.dtype.name} {list(tensor.shape)}"
    text += f" ({order})" if order not in ("", _LETTERS) else ""
    own = tensor.quantization
    return text if own is None else f"{text}, scale {own.scale:.9g}, zero point {own.zero}"
