"""TFLite files: read by their schema, and run on LiteRT's reference kernels if installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
import tflite

from npuconv.emit.tflite.translate import End, Translation, translate
from npuconv.evaluate.simulator import as_float
from npuconv.executor import Session
from npuconv.tflite.draft import View
from npuconv.tflite.flatbuffer import FileOperator, Graph, to_bytes

NAMES = {code: name for name, code in vars(tflite.BuiltinOperator).items() if name.isupper()}


@dataclass(frozen=True)
class Read:
    """Contents of a file: names of operators, tensors, metadata."""

    operators: list[str]
    versions: list[int]
    tensors: dict[str, Any]
    inputs: list[str]
    outputs: list[str]
    metadata: dict[str, str]
    model: Any

    def values(self, name: str, dtype: Any) -> np.ndarray:
        """Return the constant of that name."""
        tensor = self.tensors[name]
        data = self.model.Buffers(tensor.Buffer()).DataAsNumpy()
        return np.frombuffer(data.tobytes(), dtype).reshape(tensor.ShapeAsNumpy())


def read(data: bytes) -> Read:
    """Read a file."""
    assert tflite.Model.ModelBufferHasIdentifier(data, 0)
    model = tflite.Model.GetRootAs(data, 0)
    (graph,) = [model.Subgraphs(k) for k in range(model.SubgraphsLength())]
    tensors = [graph.Tensors(k) for k in range(graph.TensorsLength())]
    names = [t.Name().decode() for t in tensors]
    assert len(set(names)) == len(names)
    codes = [model.OperatorCodes(k) for k in range(model.OperatorCodesLength())]
    used = [codes[graph.Operators(k).OpcodeIndex()] for k in range(graph.OperatorsLength())]
    entries = [model.Metadata(k) for k in range(model.MetadataLength())]
    return Read(
        [NAMES[code.BuiltinCode()] for code in used],
        [code.Version() for code in used],
        dict(zip(names, tensors, strict=True)),
        [names[k] for k in graph.InputsAsNumpy()],
        [names[k] for k in graph.OutputsAsNumpy()],
        {
            e.Name().decode(): model.Buffers(e.Buffer()).DataAsNumpy().tobytes().decode()
            for e in entries
        },
        model,
    )


def operators(model: onnx.ModelProto) -> list[str]:
    """Return the TFLite operators of a translated model."""
    return [operator.code for operator in translate(model).graph.operators]


def only(translation: Translation, code: str) -> FileOperator:
    """Return the only operator of that code."""
    (match,) = [operator for operator in translation.graph.operators if operator.code == code]
    return match


def reference_kernels(graph: Graph, feeds: list[np.ndarray]) -> list[np.ndarray]:
    """Run a graph on LiteRT's reference kernels; skip the test where LiteRT is not installed."""
    reason = "LiteRT is not installed: pip install ai-edge-litert"
    runtime = pytest.importorskip("ai_edge_litert.interpreter", reason=reason)
    interpreter = runtime.Interpreter(
        model_content=to_bytes(graph, "test", {}),
        experimental_op_resolver_type=runtime.OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    for detail, values in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], values)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def stored(view: View | End, values: np.ndarray) -> np.ndarray:
    """Return the values of an ONNX tensor as a view stores them."""
    return np.ascontiguousarray(values.transpose(view.order))


def alone(graph: Graph, operator: FileOperator) -> tuple[Graph, list[int]]:
    """Return a graph of one operator, and the numbers of its variable inputs."""
    used = list(dict.fromkeys((*operator.inputs, *operator.outputs)))
    number = {old: new for new, old in enumerate(used)}
    read_ = [i for i in dict.fromkeys(operator.inputs) if graph.tensors[i].values is None]
    inputs, outputs = ([number[i] for i in some] for some in (operator.inputs, operator.outputs))
    moved = FileOperator(
        operator.code, tuple(inputs), tuple(outputs), operator.table, operator.options
    )
    tensors = [graph.tensors[i] for i in used]
    return Graph(tensors, [moved], [number[i] for i in read_], outputs), read_


def differing_layers(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> tuple[int, list[str]]:
    """Run every int8 operator alone on our integers, on LiteRT's reference kernels.

    Returns:
        Number of compared operators, and names of results that differ from the simulator.
    """
    translation = translate(model)
    graph, views = translation.graph, translation.tensors
    names = [n for n, v in views.items() if graph.tensors[v.number].dtype == np.int8]
    values = Session(as_float(model, names)).run(feeds)
    integers = {views[n].number: stored(views[n], values[n]) for n in names if n in values}
    integers |= {
        views[n].number: stored(views[n], v) for n, v in feeds.items() if v.dtype == np.int8
    }
    compared, wrong = 0, []
    for operator in graph.operators:
        kinds = {graph.tensors[k].dtype.name for k in (operator.inputs[0], operator.outputs[0])}
        if kinds != {"int8"}:
            continue
        part, sources = alone(graph, operator)
        if not all(k in integers for k in sources):
            continue  # an input has no ONNX tensor: the result of a QUANTIZE before a PAD
        (theirs,) = reference_kernels(part, [integers[k] for k in sources])
        result = operator.outputs[0]
        if result in integers:
            compared += 1
            if not np.array_equal(integers[result], theirs):
                wrong.append(graph.tensors[result].name)
        integers[result] = theirs
    return compared, wrong
