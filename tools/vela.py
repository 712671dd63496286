"""Compile TFLite files for Ethos-U55 with Arm's Vela, and compare where operators run.

``python tools/vela.py FOLDER FILE.tflite...`` compiles each file into the folder and prints a row
for it: how many operators Vela places on the NPU and the CPU, where that is not what the report
beside the file says (``FILE.report.json``, as ``npuconv convert`` writes it), and Vela's estimates
of cycles and memory. Exit code 1: Vela does not compile a file, or leaves an int8 operator to the
CPU that the report places on the device.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import tflite

ACCELERATOR = "ethos-u55-128"
_TIMEOUT = 900  # seconds for one file
_REFUSED = re.compile(r"Warning \(supported operators\) operator: (\w+), ofm: '(.*)'")
_PLACED = re.compile(r"(CPU|NPU) operators = (\d+)")
# Operators whose place can be compared: TFLite's name, and ONNX's.
_COMPARED = {
    "CONV_2D": "Conv", "DEPTHWISE_CONV_2D": "Conv", "MAX_POOL_2D": "MaxPool",
    "CONCATENATION": "Concat", "RELU": "Relu", "GATHER": "Gather", "SLICE": "Slice",
    "STRIDED_SLICE": "Slice", "RESIZE_NEAREST_NEIGHBOR": "Resize",
    "DEPTH_TO_SPACE": "DepthToSpace", "SPACE_TO_DEPTH": "SpaceToDepth", "ADD": "Add",
    "SUB": "Sub", "MUL": "Mul", "AVERAGE_POOL_2D": "AveragePool", "SOFTMAX": "Softmax",
    "LOGISTIC": "Sigmoid", "TANH": "Tanh", "HARD_SWISH": "HardSwish", "LEAKY_RELU": "LeakyRelu",
    "RESIZE_BILINEAR": "Resize", "BATCH_MATMUL": "MatMul",
}  # fmt: skip
_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")


@dataclass(frozen=True)
class Compiled:
    """What Vela made of a file.

    Attributes:
        error: its last line, where it failed; else empty.
        cpu: operators on the CPU.
        npu: operators on the NPU.
        left: int8 operators on the CPU that the report places on the device.
        gained: int8 operators on the NPU that the report places on the host.
        cycles: estimated for one inference.
        sram: KiB.
        flash: KiB.
    """

    error: str = ""
    cpu: int = 0
    npu: int = 0
    left: Counter[str] = field(default_factory=Counter)
    gained: Counter[str] = field(default_factory=Counter)
    cycles: int = 0
    sram: float = 0.0
    flash: float = 0.0


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


def on_device(file: Path) -> set[str]:
    """Return the ONNX operators that the report beside a file places on the device."""
    report = json.loads(file.with_suffix(".report.json").read_text())
    return {node["op"] for node in report["nodes"] if node["placement"] == "device"}


def compile_file(vela: str, file: Path, folder: Path) -> Compiled:
    """Compile a file, and read what Vela prints and writes."""
    command = [vela, "--accelerator-config", ACCELERATOR, "--output-dir", str(folder), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    said = done.stdout + done.stderr
    if done.returncode:
        return Compiled(error=said.strip().splitlines()[-1] if said.strip() else "no message")
    integers = integer_operators(file)
    device = on_device(file)
    refused = {name for _, name in _REFUSED.findall(said)}
    placed = {kind: int(count) for kind, count in _PLACED.findall(said)}
    (summary,) = folder.glob(f"{file.stem}_summary_*.csv")
    with summary.open(newline="") as stream:
        row = next(csv.DictReader(stream))
    return Compiled(
        "",
        placed["CPU"],
        placed["NPU"],
        Counter(c for n, c in integers.items() if n in refused and _COMPARED.get(c) in device),
        Counter(
            c
            for n, c in integers.items()
            if n not in refused and c in _COMPARED and _COMPARED[c] not in device
        ),
        int(float(row["cycles_total"])),
        float(row["sram_memory_used"]),
        float(row["off_chip_flash_memory_used"]),
    )


def main(arguments: list[str]) -> int:
    """Compile the files, print a table."""
    if len(arguments) < 2:
        print(__doc__)
        return 2
    vela = shutil.which("vela", path=str(Path(sys.executable).parent)) or shutil.which("vela")
    if vela is None:
        print("Vela is not installed: pip install ethos-u-vela")
        return 2
    folder, worst = Path(arguments[0]), 0
    folder.mkdir(parents=True, exist_ok=True)
    sizes = f"{'Mcycles':>9}{'SRAM KiB':>10}{'flash KiB':>10}"
    print(f"{'model':32}{'NPU':>5}{'CPU':>5}{sizes}  not where check says")
    for file in map(Path, arguments[1:]):
        made = compile_file(vela, file, folder)
        both = (("CPU", made.left), ("NPU", made.gained))
        texts = [f"{n} {code} on {where}" for where, some in both for code, n in some.items()]
        if made.error:
            print(f"{file.stem:32}not compiled: {made.error}")
        else:
            numbers = f"{made.cycles / 1e6:9.2f}{made.sram:10.1f}{made.flash:10.1f}"
            print(
                f"{file.stem:32}{made.npu:5}{made.cpu:5}{numbers}  {', '.join(texts) or 'none'}",
                flush=True,
            )
        worst = max(worst, int(bool(made.error or made.left)))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
