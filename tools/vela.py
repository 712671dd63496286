"""Compile TFLite files for Ethos-U55 with Arm's Vela, and compare where operators run.

``python tools/vela.py FILE.tflite...`` compiles each file and prints a row for it: how many
operators Vela places on the NPU and the CPU, where that is not what the report beside the file
says (``FILE.report.json``, as ``npuconv convert`` writes it), and Vela's estimates of cycles and
memory. Exit code 1: Vela does not compile a file, or leaves an int8 operator to the CPU that the
report places on the device.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import tflite

from npuconv.errors import UsageError
from npuconv.evaluate.vela import estimate, require
from npuconv.schemas.report import VelaEstimate

_COMMAND = "vela --accelerator-config ethos-u55-128 {model}"
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
        made: its figures.
        left: int8 operators on the CPU that the report places on the device.
        gained: int8 operators on the NPU that the report places on the host.
    """

    made: VelaEstimate
    left: Counter[str]
    gained: Counter[str]


def integer_operators(file: Path) -> dict[str, str]:
    """Return the operators that read and make int8, by the name of their output."""
    model = tflite.Model.GetRootAs(file.read_bytes(), 0)
    graph = model.Subgraphs(0)
    names = {code: name for name, code in vars(tflite.BuiltinOperator).items() if name.isupper()}
    found = {}
    for number in range(graph.OperatorsLength()):
        operator = graph.Operators(number)
        code = names[model.OperatorCodes(operator.OpcodeIndex()).BuiltinCode()]
        ends = [graph.Tensors(operator.Inputs(0)), graph.Tensors(operator.Outputs(0))]
        if all(t.Type() == tflite.TensorType.INT8 for t in ends) and code not in _CONVERSIONS:
            found[ends[1].Name().decode()] = code
    return found


def placed(file: Path, side: str) -> Counter[str]:
    """Return the ONNX operators that the report beside a file places on the device or the host."""
    report = json.loads(file.with_suffix(".report.json").read_text())
    return Counter(node["op"] for node in report["nodes"] if node["placement"] == side)


def compile_file(command: list[str], file: Path) -> Compiled:
    """Compile a file, and compare with the report beside it.

    Args:
        command: of ``npuconv.evaluate.vela.require``.
        file: with its report as JSON.
    """
    made = estimate(file.read_bytes(), command)
    integers, refused = integer_operators(file), set(made.refused)
    device, host = placed(file, "device"), placed(file, "host")
    left = [code for name, code in integers.items() if name in refused]
    taken = [code for name, code in integers.items() if name not in refused and code in _COMPARED]
    # Others of them are the layout of TFLite and on the NPU, so these are counted, not named.
    transposes = Counter(left)["TRANSPOSE"] - host["Transpose"]
    return Compiled(
        made,
        Counter(code for code in left if _COMPARED.get(code) in device)
        + Counter(TRANSPOSE=max(0, transposes)),
        Counter(code for code in taken if _COMPARED[code] not in device),
    )


def main(arguments: list[str]) -> int:
    """Compile the files, print a table."""
    if not arguments:
        print(__doc__)
        return 2
    try:
        command = require(_COMMAND, "tflite")
    except UsageError as error:
        print(error)
        return 2
    worst = 0
    sizes = f"{'Mcycles':>9}{'SRAM KiB':>10}{'flash KiB':>10}"
    print(f"{'model':32}{'NPU':>5}{'CPU':>5}{sizes}  not where check says")
    for file in map(Path, arguments):
        found = compile_file(command, file)
        made, both = found.made, (("CPU", found.left), ("NPU", found.gained))
        texts = [f"{n} {code} on {where}" for where, some in both for code, n in some.items()]
        if made.error:
            print(f"{file.stem:32}not compiled: {made.error}")
        else:
            numbers = f"{(made.cycles or 0) / 1e6:9.2f}{made.sram_kib:10.1f}{made.flash_kib:10.1f}"
            counts = f"{made.npu_operators:5}{made.cpu_operators:5}"
            print(f"{file.stem:32}{counts}{numbers}  {', '.join(texts) or 'none'}", flush=True)
        worst = max(worst, int(bool(made.error or found.left)))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
