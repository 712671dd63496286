"""Translation of an integer ONNX model into a TFLite file, node by node.

An int8 operator whose scale TFLite fixes is followed by a QUANTIZE to the scale of the model.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import onnx
from onnx import helper

from npuconv.emit import keys
from npuconv.emit.int8_operators import Int8Operator, int8_operators
from npuconv.emit.tflite.functions import expand, fold
from npuconv.errors import ModelError
from npuconv.model import query
from npuconv.model.proto import metadata_of
from npuconv.ops.operator import OPERATORS
from npuconv.ops.quantize_linear import nominal
from npuconv.records import dataclass, field
from npuconv.rules.context import FormObstacle
from npuconv.tflite.draft import CHANNELS_LAST, Draft, Order, View, onnx_order
from npuconv.tflite.flatbuffer import Graph, Tensor, TensorScales, to_bytes
from npuconv.version import __version__

ENDS = "npuconv.ends"  # key of the metadata: names and orders of axes of inputs, then outputs
STORED = "npuconv.stored"  # key of the metadata: names, orders and numbers of these tensors
_LETTERS = "NCHW"
_PREFIX = "npuconv."  # beginning of the metadata keys that go into the file


@dataclass(frozen=True)
class End:
    """An input or output of the file."""

    name: str  # name in the file and in the ONNX model
    tensor: Tensor  # the TFLite tensor
    order: Order  # axis k of the TFLite tensor is axis ``order[k]`` of the ONNX tensor


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

    An unknown batch extent becomes 1, as in TFLite's own converter.

    Args:
        model: a model as ``--format qoperator`` writes it; not changed.

    Raises:
        ModelError: TFLite cannot hold a part of the model.
    """
    translation, obstacles = _attempt(model)
    if translation is None:
        parts = [f"{o.node!r}: {o.problem}" if o.node else o.problem for o in obstacles]
        raise ModelError("; ".join(parts), hint=obstacles[0].fix)
    return translation


def find_obstacles(model: onnx.ModelProto) -> list[FormObstacle]:
    """Return the parts of a float model that TFLite cannot hold, in the order of the nodes.

    Its operators have the attributes of the integer form, so that no calibration is needed.
    """
    return _attempt(model)[1]


def _attempt(model: onnx.ModelProto) -> tuple[Translation | None, list[FormObstacle]]:
    if obstacles := _open_extents(model):
        return None, obstacles
    model = _with_shapes(model)
    supported = {operator.name for operator in OPERATORS if operator.to_tflite is not None}
    sources = expand(model, supported)
    draft, int8 = Draft(model), int8_operators(model)
    log = _Log(draft, sources)
    nodes = [node for node in model.graph.node if not log.attempt(fold, node, supported)]
    for operator in int8.by_result.values():
        for name, scale in zip((*operator.sources, operator.result), operator.scales, strict=True):
            draft.scales[name] = TensorScales.from_scale(scale.scale, scale.zero)
    graph, inputs, outputs = draft.graph, list[tuple[str, View]](), list[tuple[str, View]]()
    for info in model.graph.input:
        with log.errors_of("", [info.name]):
            inputs.append((info.name, _add_input(draft, info.name)))
    for node in nodes:
        if node.output[0] not in draft.fused and node.output[0] not in int8.inside:
            log.attempt(_write, node, int8.by_result.get(node.output[0]))
    for name in filter(lambda output: output not in log.failed, draft.outputs):
        with log.errors_of("", []):
            numbers = [view.number for _, view in (*inputs, *outputs)]
            outputs.append((name, _add_output(draft, name, numbers)))
    if log.obstacles:
        return None, log.obstacles
    graph.inputs = tuple(view.number for _, view in inputs)
    graph.outputs = tuple(view.number for _, view in outputs)
    boundary = [End(n, graph.tensors[v.number], v.order) for n, v in inputs + outputs]
    count = len(inputs)
    return Translation(graph, tuple(boundary[:count]), tuple(boundary[count:]), draft.stored()), []


@dataclass
class _Log:
    """Obstacles so far. Consumers of a node that failed are translated if its shape is known."""

    draft: Draft
    sources: Mapping[str, str]  # name of the source node, by the name of a node of its function
    obstacles: list[FormObstacle] = field(default_factory=list)  # at most one per node
    failed: set[str] = field(default_factory=set)  # tensors of unknown shape

    def attempt(self, step: Callable[..., Any], node: onnx.NodeProto, *arguments: Any) -> Any:
        """Call a step on a node; return its result, or True if it failed."""
        if not self.failed.isdisjoint(node.input):
            self.failed.update(node.output)
            return True
        with self.errors_of(self.sources.get(node.name, node.name), node.output):
            return step(self.draft, node, *arguments)
        return True

    @contextlib.contextmanager
    def errors_of(self, name: str, outputs: Iterable[str]) -> Iterator[None]:
        """Note the error of a node within a with statement, and add tensors for its outputs."""
        try:
            yield
        except ModelError as error:
            if not name or name not in {obstacle.node for obstacle in self.obstacles}:
                self.obstacles.append(FormObstacle(name, error.message, error.hint))
            self.failed.update(filter(None, outputs))
            for result in [tensor for tensor in self.failed if self.draft.knows(tensor)]:
                with contextlib.suppress(ModelError):  # TFLite has no such element type
                    self.draft.store(result, onnx_order(len(self.draft.shape(result))))
                    self.failed.discard(result)


def _write(draft: Draft, node: onnx.NodeProto, int8: Int8Operator | None) -> None:
    """Write a node; an int8 operator has the scale that TFLite fixes, then the scale it had."""
    written = node
    if int8 is not None:
        result, operator, scale = int8.result, int8.operator, int8.scales[-1]
        fixed = scale if operator is None else operator.tflite_result_scale(int8.scales)
        if fixed != scale:
            scales = TensorScales.from_scale(fixed.scale, fixed.zero)
            result = draft.sibling(result, "own", scales)
        written = helper.make_node(int8.op, int8.inputs, [result], int8.name)
        written.attribute.extend(int8.node.attribute)
    description = OPERATORS.get(written.op_type) if node.domain in query.STANDARD_DOMAINS else None
    if description is None or description.to_tflite is None:
        raise ModelError(f"TFLite has no operator for {node.op_type}")
    if not description.takes_open and any(map(draft.is_open, (*node.input, *node.output))):
        raise ModelError(f"TFLite has no {node.op_type} behind a NonMaxSuppression")
    description.to_tflite(draft, written)
    if int8 is not None and written.output[0] != int8.result:
        draft.requantize(written.output[0], int8.result)


def _with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with shapes inferred from the input shapes; an open batch is 1."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info in copy.graph.input:
        for dim in info.type.tensor_type.shape.dim[:1]:
            dim.dim_value = dim.dim_value if dim.HasField("dim_value") else 1
    for info in (*copy.graph.value_info, *copy.graph.output):
        if any(not dim.HasField("dim_value") for dim in info.type.tensor_type.shape.dim):
            info.type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(copy, data_prop=True)


def _open_extents(model: onnx.ModelProto) -> list[FormObstacle]:
    """Return an obstacle for each input with unknown extents behind the batch."""
    obstacles = []
    for info in model.graph.input:
        dims = list(enumerate(info.type.tensor_type.shape.dim))[1:]
        texts = [f"{k} is {d.dim_param or '?'}" for k, d in dims if not d.HasField("dim_value")]
        problem = f"input {info.name!r}: extent {', '.join(texts)}, but TFLite needs numbers"
        fix = f"give --input-shape {info.name}=... with all extents"
        obstacles += [FormObstacle("", problem, fix)] if texts else []
    return obstacles


def _add_input(draft: Draft, name: str) -> View:
    """Add an input: images with channels last, unless every consumer is a Transpose."""
    rank = len(draft.shape(name))
    turned = all(node.op_type == "Transpose" for node in draft.consumers.get(name, []))
    order = CHANNELS_LAST if rank == 4 and not turned else onnx_order(rank)
    encoding = nominal(draft, name)
    quantization = None if encoding is None else TensorScales.from_scale(*encoding)
    return View(draft.store(name, order, quantization), order)


def _add_output(draft: Draft, name: str, numbers: list[int]) -> View:
    """Return an output: channels last if the tensor is stored so, else in the order of ONNX."""
    rank = len(draft.shape(name))
    view = draft.view(name)
    last = view is not None and rank == 4 and view.order == CHANNELS_LAST
    order = CHANNELS_LAST if last else onnx_order(rank)
    return View(draft.as_output(name, order, numbers), order)


@dataclass(frozen=True)
class TfliteFile:
    """A TFLite file."""

    data: bytes
    # One line per input: name, type, shape, order of axes, scale and zero point.
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]  # one such line per output
    operators: dict[str, int]  # number of operators by type


def write(model: onnx.ModelProto) -> TfliteFile:
    """Write an integer model as TFLite; the same model gives the same bytes.

    Args:
        model: a model as ``--format qoperator`` writes it; not changed.

    Raises:
        ModelError: TFLite cannot hold a part of the model, or the file would exceed 2 GB.
    """
    translation = translate(model)
    metadata = {k: text for k, text in metadata_of(model).items() if k.startswith(_PREFIX)}
    metadata.pop(keys.OPERATORS, None)  # names of nodes of the ONNX model
    boundary = [[end.name, list(end.order)] for end in (*translation.inputs, *translation.outputs)]
    metadata[ENDS] = json.dumps(boundary, separators=(",", ":"))
    if keys.LAYERS in metadata:
        # Name, order and number of the output tensor of each layer, if the file has this tensor.
        names = dict.fromkeys(entry["stored"] for entry in json.loads(metadata[keys.LAYERS]))
        views = [(name, translation.tensors.get(name)) for name in names]
        rows = [(name, view.order, view.number) for name, view in views if view is not None]
        metadata[STORED] = json.dumps(rows, separators=(",", ":"))
    data = to_bytes(translation.graph, f"npuconv {__version__}", dict(sorted(metadata.items())))
    counts = Counter(operator.code for operator in translation.graph.operators)
    return TfliteFile(
        data,
        tuple(map(_describe, translation.inputs)),
        tuple(map(_describe, translation.outputs)),
        dict(sorted(counts.items())),
    )


def _describe(end: End) -> str:
    """Return ``x: float32 [1, 224, 224, 3] (NHWC)``."""
    tensor = end.tensor
    order = "".join(_LETTERS[k] for k in end.order) if len(end.order) == len(_LETTERS) else ""
    text = f"{end.name}: {tensor.dtype.name} {list(tensor.shape)}"
    text += f" ({order})" if order not in ("", _LETTERS) else ""
    scale = tensor.quantization
    return text if scale is None else f"{text}, scale {scale.scale:.9g}, zero point {scale.zero}"
