"""Comparison with other runtimes: each layer of a converted model alone, on random integers."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npuconv import executor
from npuconv.evaluate.subgraphs import element_types

Run = Callable[[Path, np.ndarray], np.ndarray]
_OPEN = 16  # extent that replaces an unknown extent
_BETWEEN = ("Relu", "Clip")  # operators that may be between a Conv and its QuantizeLinear


@dataclass(frozen=True)
class Layer:
    """A convolution with the conversions around it, int8 in and out.

    Attributes:
        name: name of the convolution.
        model: model of this layer alone.
        shape: shape of its input.
    """

    name: str
    model: onnx.ModelProto
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Verdict:
    """Result of a runtime on the layers of a model.

    Attributes:
        layers: number of layers.
        refused: number of layers that the runtime does not run.
        reason: reason of the first refusal.
        values: number of compared output values.
        differing: number of values that differ.
        furthest: largest difference of a value, in steps.
    """

    layers: int
    refused: int
    reason: str
    values: int
    differing: int
    furthest: int


def run_tract(path: Path, x: np.ndarray) -> np.ndarray:
    """Run a model of one input and output in tract."""
    import tract

    (result,) = tract.onnx().load(str(path)).into_model().into_runnable().run([x])
    return np.array(result.to_numpy())


def run_openvino(path: Path, x: np.ndarray) -> np.ndarray:
    """Run a model of one input and output in OpenVINO, on the CPU in float32."""
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.array(compiled([x])[0])


def run_reference(path: Path, x: np.ndarray) -> np.ndarray:
    """Run a model of one input and output in ONNX's reference evaluator."""
    model = onnx.load(str(path))
    (result,) = executor.run_reference(model, {model.graph.input[0].name: x}).values()
    return result


JUDGES: dict[str, Run] = {"onnx": run_reference, "tract": run_tract, "openvino": run_openvino}
READS = {"onnx": ("qoperator", "qdq"), "tract": ("qoperator", "qdq"), "openvino": ("qdq",)}


def is_installed(judge: str) -> bool:
    """Return whether the package of a runtime is installed."""
    return importlib.util.find_spec(judge) is not None


def judged(model: onnx.ModelProto, judge: str) -> Verdict:
    """Run every layer alone on a runtime, on random int8 values, and compare with onnxruntime."""
    refused, reason, values, differing, furthest, count = 0, "", 0, 0, 0, 0
    rng = np.random.default_rng(0)
    for layer in layers(model):
        count += 1
        x = rng.integers(-128, 128, layer.shape, np.int8)
        (ours,) = executor.Session(layer.model).run({layer.model.graph.input[0].name: x}).values()
        try:
            theirs = _run(judge, layer, x)
        except Exception as error:  # a runtime's refusals have no common base
            refused, reason = refused + 1, reason or str(error).strip()
            continue
        distance = np.abs(theirs.astype(np.int64) - ours)
        values, differing = values + ours.size, differing + int((distance > 0).sum())
        furthest = max(furthest, int(distance.max(initial=0)))
    return Verdict(count, refused, reason, values, differing, furthest)


def _run(judge: str, layer: Layer, x: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        onnx.save(layer.model, path)
        return JUDGES[judge](path, x)


def layers(model: onnx.ModelProto) -> Iterator[Layer]:
    """Yield every convolution in integers, or between conversions, as a model of its own."""
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    types = element_types(model)
    for node in graph.node:
        if node.op_type == "QLinearConv":
            yield _alone(model, node, [node], node.input[3], types)
        elif node.op_type == "Conv" and (nodes := _explicit(node, makers, readers)):
            yield _alone(model, node, nodes, makers[node.input[1]].input[0], types)


def _explicit(
    conv: onnx.NodeProto,
    makers: dict[str, onnx.NodeProto],
    readers: dict[str, list[onnx.NodeProto]],
) -> list[onnx.NodeProto]:
    """Return a Conv with its conversions; empty if a conversion is missing."""
    before = [makers.get(name) for name in conv.input]
    if any(node is None or node.op_type != "DequantizeLinear" for node in before):
        return []
    nodes = [*(node for node in before if node is not None), conv]
    while len(following := readers.get(nodes[-1].output[0], [])) == 1:
        nodes.append(following[0])
        if nodes[-1].op_type == "QuantizeLinear":
            return nodes
        if nodes[-1].op_type not in _BETWEEN:
            break
    return []


def _alone(
    model: onnx.ModelProto,
    conv: onnx.NodeProto,
    nodes: list[onnx.NodeProto],
    weight: str,
    types: dict[str, onnx.TypeProto.Tensor],
) -> Layer:
    constants = {t.name: t for t in model.graph.initializer}
    source, result = nodes[0].input[0], nodes[-1].output[0]
    values = numpy_helper.to_array(constants[weight])
    group = next((a.i for a in conv.attribute if a.name == "group"), 1)
    dims = [d.dim_value for d in types[source].shape.dim] if source in types else []
    extents = [d if d > 0 else _OPEN for d in dims[2:]] or [_OPEN] * (values.ndim - 2)
    shape = (1, values.shape[1] * group, *extents)
    read = {name: constants[name] for n in nodes for name in n.input if name in constants}
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info(source, TensorProto.INT8, shape)],
        [helper.make_tensor_value_info(result, TensorProto.INT8, [None] * len(shape))],
        list(read.values()),
    )
    imports = [o for o in model.opset_import if o.domain in ("", "ai.onnx")]
    layer_model = helper.make_model(graph, opset_imports=imports, ir_version=model.ir_version)
    return Layer(conv.name, layer_model, shape)
