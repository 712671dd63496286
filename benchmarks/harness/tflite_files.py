"""TFLite files of real models: integers against LiteRT's reference kernels, places against Vela.

Each int8 operator runs alone on LiteRT, fed with npuconv's integers; then Vela compiles the file
for Ethos-U55-128, and where each operator runs is compared with the report. Needs
``ai-edge-litert`` and ``ethos-u-vela`` for either. The exit code is 1 if Vela leaves an int8
operator to the CPU that the report places on the device.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import tflite
from onnx import helper

import npuconv
from harness.commands import ROOT
from harness.runtimes import SHAPES, line, model_paths, name_of, print_head, refusal
from npuconv.errors import NpuconvError, UsageError
from npuconv.report import render
from npuconv.vendors.tool import Question, Reply, VendorTool

sys.path.insert(0, str(ROOT / "tests"))

from support.tflite_files import differing_layers

COLUMNS = ("model", "layers", "that differ", "NPU", "CPU", "not where check says", "Mcycles")
# Operators whose place can be compared: TFLite's name, and ONNX's.
_COMPARED = {
    "CONV_2D": "Conv", "DEPTHWISE_CONV_2D": "Conv", "MAX_POOL_2D": "MaxPool",
    "CONCATENATION": "Concat", "RELU": "Relu", "GATHER": "Gather", "SLICE": "Slice",
    "STRIDED_SLICE": "Slice", "RESIZE_NEAREST_NEIGHBOR": "Resize",
    "DEPTH_TO_SPACE": "DepthToSpace", "SPACE_TO_DEPTH": "SpaceToDepth", "ADD": "Add",
    "SUB": "Sub", "MUL": "Mul", "AVERAGE_POOL_2D": "AveragePool", "SOFTMAX": "Softmax",
    "LOGISTIC": "Sigmoid", "TANH": "Tanh", "HARD_SWISH": "HardSwish", "LEAKY_RELU": "LeakyRelu",
    "RESIZE_BILINEAR": "Resize", "BATCH_MATMUL": "MatMul", "PRELU": "PRelu",
}  # fmt: skip
_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")


@dataclass(frozen=True)
class Compiled:
    """Result of Vela on a file.

    Attributes:
        reply: its verdict and figures.
        left: int8 operators on the CPU that the report places on the device.
        gained: int8 operators on the NPU that the report places on the host.
    """

    reply: Reply
    left: Counter[str]
    gained: Counter[str]


def integer_operators(file: Path) -> dict[str, str]:
    """Return the operators that read and make int8, by the name of their output."""
    model = tflite.Model.GetRootAs(file.read_bytes(), 0)
    graph = model.Subgraphs(0)
    names = {code: name for name, code in vars(tflite.BuiltinOperator).items() if name.isupper()}
    operators = {}
    for number in range(graph.OperatorsLength()):
        operator = graph.Operators(number)
        code = names[model.OperatorCodes(operator.OpcodeIndex()).BuiltinCode()]
        tensors = [graph.Tensors(operator.Inputs(0)), graph.Tensors(operator.Outputs(0))]
        if all(t.Type() == tflite.TensorType.INT8 for t in tensors) and code not in _CONVERSIONS:
            operators[tensors[1].Name().decode()] = code
    return operators


def placed(file: Path, side: str) -> Counter[str]:
    """Return the ONNX operators that the report beside a file places on the device or the host."""
    report = json.loads(file.with_suffix(".report.json").read_text())
    return Counter(node["op"] for node in report["nodes"] if node["placement"] == side)


def compile_file(tool: VendorTool, file: Path) -> Compiled:
    """Compile a file, and compare with the report beside it.

    Args:
        tool: Vela in its environment.
        file: with its report as JSON.
    """
    _, (reply,) = tool.ask([Question(file.read_bytes())])
    integers, refused = integer_operators(file), {name for name, *_ in reply.answer.layers}
    device, host = placed(file, "device"), placed(file, "host")
    on_cpu = [code for name, code in integers.items() if name in refused]
    on_npu = [code for name, code in integers.items() if name not in refused and code in _COMPARED]
    # Others of them are the layout of TFLite and on the NPU, so these are counted, not named.
    transposes = Counter(on_cpu)["TRANSPOSE"] - host["Transpose"]
    return Compiled(
        reply,
        Counter(code for code in on_cpu if _COMPARED.get(code) in device)
        + Counter(TRANSPOSE=max(0, transposes)),
        Counter(code for code in on_npu if _COMPARED[code] not in device),
    )


@dataclass(frozen=True)
class Row:
    """Results of a model; None for tools that are not installed."""

    name: str
    layers: int | None = None
    differing: int | None = None
    compiled: Compiled | None = None
    refused: str = ""

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        if self.refused:
            return [self.name, self.refused, *[""] * (len(COLUMNS) - 2)]
        counts = ["" if n is None else str(n) for n in (self.layers, self.differing)]
        if self.compiled is None:
            return [self.name, *counts, *[""] * (len(COLUMNS) - 3)]
        answer = self.compiled.reply.answer
        if not answer.accepted:
            return [self.name, *counts, "", "", f"not compiled: {answer.message}", ""]
        wrong = [f"{n} {code} on the CPU" for code, n in self.compiled.left.items()]
        wrong += [f"{n} {code} on the NPU" for code, n in self.compiled.gained.items()]
        figures = answer.figures
        counts += [f"{figures.get(side, 0):.0f}" for side in ("NPU", "CPU")]
        return [
            self.name, *counts, ", ".join(wrong) or "none", f"{figures['cycles_total'] / 1e6:.2f}"
        ]  # fmt: skip


def judged(path: Path, folder: Path, tool: VendorTool | None) -> Row:
    """Convert a model, and compare its file with LiteRT and Vela where they are installed."""
    name = name_of(path)
    try:
        converted = npuconv.convert(
            path,
            "ethos-u55",
            input_shape=SHAPES.get(name, {}),
            fail_on="never",
            max_samples=2,
        )
    except NpuconvError as error:
        return Row(name, refused=refusal(path, error))
    compared = wrong = compiled = None
    if importlib.util.find_spec("ai_edge_litert") is not None:
        compared, names = differing_layers(converted.model, _feeds(converted.model))
        wrong = len(names)
    if tool is not None:
        file = folder / f"{name}.tflite"
        converted.save(file)
        file.with_suffix(".report.json").write_text(render(converted.report, "json"), "utf-8")
        compiled = compile_file(tool, file)
    return Row(name, compared, wrong, compiled)


def _feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return numbers from 0 to 1 for every input."""
    rng, feeds = np.random.default_rng(0), {}
    for info in model.graph.input:
        kind = info.type.tensor_type
        shape = [dim.dim_value or 1 for dim in kind.shape.dim]
        feeds[info.name] = rng.random(shape).astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return feeds


def main(arguments: list[str]) -> None:
    """Judge the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "vela")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    try:
        tool = VendorTool.find("vela")
    except UsageError:
        tool = None
    print_head(COLUMNS)
    for path in model_paths(options.models):
        print(line(judged(path, options.folder, tool).cells()), flush=True)
