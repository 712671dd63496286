"""Memory that check and convert need for models of gigabytes, as ratios to the model.

``--megabytes 300`` takes a minute or two, 3 GB some 15 minutes.

The model has convolutions with large weights and small activations, so that weights dominate.
Each run has two figures: memory that only the process holds (anonymous and shared memory,
sampled), and its peak resident set, which includes pages of mapped files that the system takes
back when it needs them.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MEGABYTE = 1e6
EXTENT, SAMPLES = 4, 8
LIMITS = {"check": 0.3, "float": 1.5, "int8": 1.5}


class Peak(NamedTuple):
    """Measures of one run: bytes held, bytes resident, seconds, exit code."""

    held: int
    resident: int
    seconds: float
    code: int


def make(folder: Path, megabytes: int, layers: int) -> Path:
    """A model with external data: groups of a 3x3 and two 1x1, all of as many weights."""
    channels = max(8, int(math.sqrt(megabytes * MEGABYTE / layers / 36)))
    widths = [(channels, channels, 3), (channels, 9 * channels, 1), (9 * channels, channels, 1)]
    graph = onnx.GraphProto(name="large")
    graph.input.append(_info("image", [1, 3, EXTENT, EXTENT]))
    offset, last = 0, "image"
    with (folder / "model.onnx.data").open("wb") as stream:
        shapes = [(3, channels, 1), *(widths[k % 3] for k in range(layers))]
        for number, (source, result, kernel) in enumerate(shapes):
            rng = np.random.default_rng(number)
            weight = rng.standard_normal((result, source, kernel, kernel), np.float32)
            weight *= np.float32(math.sqrt(2 / (source * kernel * kernel)))
            stream.write(weight.data)
            graph.initializer.append(_reference(f"w{number}", weight, offset))
            offset += weight.nbytes
            bias = rng.standard_normal(result).astype(np.float32) * np.float32(0.1)
            graph.initializer.append(numpy_helper.from_array(bias, f"b{number}"))
            last = _layer(graph, number, last, kernel, result)
    graph.output.append(_info(last, [1, shapes[-1][1], EXTENT, EXTENT]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    rng = np.random.default_rng(0)
    np.savez(
        folder / "samples.npz", image=rng.random((SAMPLES, 3, EXTENT, EXTENT), dtype=np.float32)
    )
    return folder / "model.onnx"


def _layer(graph: onnx.GraphProto, number: int, last: str, kernel: int, channels: int) -> str:
    """A convolution, every third with a normalization to be folded into it, and a Relu."""
    result, pad = f"c{number}", kernel // 2
    inputs = [last, f"w{number}", f"b{number}"]
    graph.node.append(helper.make_node("Conv", inputs, [result], pads=[pad] * 4))
    if number % 3 == 1:
        names = [f"n{number}/{part}" for part in ("scale", "bias", "mean", "var")]
        for name, value in zip(names, (0.9, 0.1, 0.0, 1.0), strict=True):
            array = np.full(channels, value, np.float32)
            graph.initializer.append(numpy_helper.from_array(array, name))
        graph.node.append(helper.make_node("BatchNormalization", [result, *names], [f"n{number}"]))
        result = f"n{number}"
    graph.node.append(helper.make_node("Relu", [result], [f"r{number}"]))
    return f"r{number}"


def _info(name: str, shape: list[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _reference(name: str, weight: np.ndarray, offset: int) -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=weight.shape)
    tensor.data_location = TensorProto.EXTERNAL
    place = {"location": "model.onnx.data", "offset": offset, "length": weight.nbytes}
    for key, value in place.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def watch(arguments: list[str], show: bool = False) -> Peak:
    """Run the command line and look at its memory."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "npuconv", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak_held = resident = 0
    while process.poll() is None:
        now = status(process.pid)
        if show and now.get("RssAnon", 0) + now.get("RssShmem", 0) > peak_held + 20e6:
            print(f"  {time.perf_counter() - start:6.1f} s", now, flush=True)
        peak_held = max(peak_held, now.get("RssAnon", 0) + now.get("RssShmem", 0))
        resident = max(resident, now.get("VmHWM", 0))
        time.sleep(0.01)
    return Peak(peak_held, resident, time.perf_counter() - start, process.returncode)


def status(pid: int) -> dict[str, int]:
    """Memory of a process, bytes."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    parts = (line.split() for line in lines if line.startswith(("Rss", "VmHWM")))
    return {key.rstrip(":"): int(number) * 1024 for key, number, _ in parts}


def main(arguments: list[str]) -> int:
    """Print the table; return the exit code, 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=3000)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--only", choices=[*LIMITS], action="append")
    parser.add_argument("--show", action="store_true", help="memory as it grows")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = make(folder, options.megabytes, options.layers)
        size = sum(path.stat().st_size for path in folder.glob("model.onnx*"))
        base = watch(["target", "list"]), watch(["check", "samples/digits/model.onnx"])[0]
        print(f"model: {size / MEGABYTE:.0f} MB; a small model alone: {base[1] / MEGABYTE:.0f} MB")
        print(f"{'':8}{'holds':>10}{'ratio':>8}{'limit':>8}{'resident':>10}{'seconds':>9}")
        fine = True
        for job in options.only or LIMITS:
            peak = watch(commands(job, model), options.show)
            ratio = peak.held / size
            fine &= ratio <= LIMITS[job] and peak.code == 0
            print(
                f"{job:8}{peak.held / MEGABYTE:>7.0f} MB{ratio:>8.2f}{LIMITS[job]:>8.2f}"
                f"{peak.resident / size:>10.2f}{peak.seconds:>9.0f}"
                + (f"  exit code {peak.code}" if peak.code else ""),
                flush=True,
            )
        written = sorted(p for p in folder.iterdir() if ".npu." in p.name)
        print("\n".join(f"{p.stat().st_size / MEGABYTE:10.1f} MB  {p.name}" for p in written))
    return 0 if fine else 1


def commands(job: str, model: Path) -> list[str]:
    """Return the arguments of the command to measure."""
    if job == "check":
        return ["check", str(model)]
    output = model.with_name(f"{job}.npu.onnx")
    if job == "float":
        return ["convert", str(model), "--format", "float", "-o", str(output)]
    samples = str(model.with_name("samples.npz"))
    return ["convert", str(model), "--calibration", samples, "-o", str(output)]
