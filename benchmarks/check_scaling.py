"""Time of `npuconv check` by the number of nodes.

    python benchmarks/check_scaling.py [--nodes 1000 3000 10000] [--runs 3]

The models are generated: blocks of Conv, BatchNormalization, Relu and Add, of which some are
grouped, some one-dimensional, some transposed, and some ask for SAME. Every command runs as
a whole process, after one run that does not count. Printed are medians, and what a node
costs against what it costs in the smallest model, above the time it takes to start: 1.0 is
linear.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 8
GOAL = (10_000, 5.0)  # this many nodes in less than so many seconds


class Chain:
    """A model that grows node by node, N x 8 x 16 x 16 all the way."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.last = "x"

    def op(self, op: str, *rest: str, source: str = "", **attrs: object) -> str:
        """Append a node that reads the last result."""
        number = len(self.nodes)
        read = [source or self.last, *rest]
        self.last = f"t{number}"
        self.nodes.append(helper.make_node(op, read, [self.last], name=f"n{number}", **attrs))
        return self.last

    def constant(self, values: np.ndarray) -> str:
        """An initializer; returns its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def random(self, *shape: int) -> str:
        """An initializer of random numbers, so small that sums over all blocks stay finite."""
        return self.constant(self.rng.uniform(-1e-3, 1e-3, shape).astype(np.float32))

    def plain(self) -> None:
        """Conv, BatchNormalization, Relu, and the sum with what went in."""
        before = self.last
        self.op("Conv", self.random(CHANNELS, CHANNELS, 3, 3), pads=[1, 1, 1, 1])
        stats = [self.random(CHANNELS) for _ in range(3)]
        stats.append(self.constant(np.ones(CHANNELS, np.float32)))
        self.op("BatchNormalization", *stats)
        self.op("Relu")
        self.op("Add", before)
        self.op("Relu")

    def ready(self) -> None:
        """A Conv that needs nothing, its Relu, and the sum with what went in."""
        before = self.last
        weight = self.random(CHANNELS, CHANNELS, 3, 3)
        written = {"kernel_shape": [3, 3], "strides": [1, 1], "dilations": [1, 1], "group": 1}
        self.op("Conv", weight, pads=[1, 1, 1, 1], **written)
        self.op("Relu")
        self.op("Add", before)

    def separable(self) -> None:
        """A depthwise Conv that asks for SAME, and one of kernel 1."""
        weight = self.random(CHANNELS, 1, 3, 3)
        self.op("Conv", weight, group=CHANNELS, auto_pad="SAME_UPPER")
        self.op("Relu")
        self.op("Conv", self.random(CHANNELS, CHANNELS, 1, 1))
        self.op("Relu")

    def grouped(self) -> None:
        """A Conv of two groups."""
        self.op("Conv", self.random(CHANNELS, CHANNELS // 2, 3, 3), group=2, pads=[1, 1, 1, 1])
        self.op("Relu")

    def transposed(self) -> None:
        """Half the extents by a stride, and twice by a ConvTranspose."""
        self.op("Conv", self.random(CHANNELS, CHANNELS, 2, 2), strides=[2, 2])
        self.op("ConvTranspose", self.random(CHANNELS, CHANNELS, 2, 2), strides=[2, 2])
        self.op("Relu")

    def line(self) -> None:
        """All rows as one line, a Conv along it, and back."""
        self.op("Reshape", self.constant(np.asarray([0, CHANNELS, -1], np.int64)))
        self.op("Conv", self.random(CHANNELS, CHANNELS, 3), pads=[1, 1])
        self.op("Relu")
        self.op("Conv", self.random(CHANNELS, CHANNELS, 3), pads=[1, 1])
        self.op("Reshape", self.constant(np.asarray([0, CHANNELS, 16, 16], np.int64)))

    def model(self) -> onnx.ModelProto:
        """The finished model."""
        shape = [1, CHANNELS, 16, 16]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        outputs = [helper.make_tensor_value_info(self.last, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "chain", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def generate(nodes: int, *, mixed: bool = True) -> onnx.ModelProto:
    """A model of about this many nodes; mixed ones have hardly a Conv that stays as it is."""
    chain = Chain()
    kinds: list[Callable[[], None]] = [chain.ready]
    if mixed:
        kinds = [chain.plain] * 4 + [chain.separable] * 2
        kinds += [chain.grouped, chain.transposed, chain.line]
    turn = 0
    while len(chain.nodes) < nodes:
        kinds[turn % len(kinds)]()
        turn += 1
    return chain.model()


def seconds(arguments: list[str]) -> float:
    """Wall time of one run of npuconv; its exit code may be 0 or 1."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "npuconv", *arguments]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"failed: {' '.join(command)}\n{done.stderr.decode()}")
    return time.perf_counter() - start


def median(arguments: list[str], runs: int) -> float:
    """Measure so many runs, after one that does not count."""
    return statistics.median([seconds(arguments) for _ in range(runs + 1)][1:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 3000, 10_000])
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    print("| graph | nodes | check | goal | us per node | against the smallest |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(generate(1), path)
        starting = median(["check", str(path), "-q"], arguments.runs)
        for mixed in (False, True):
            first = 0.0
            for count in arguments.nodes:
                model = generate(count, mixed=mixed)
                onnx.save(model, path)
                found = median(["check", str(path), "-q"], arguments.runs)
                each = (found - starting) / len(model.graph.node)
                first = first or each
                goal = f"< {GOAL[1]:g} s" if count == GOAL[0] else ""
                name = "all to be rewritten" if mixed else "legal"
                row = f"| {name} | {len(model.graph.node)} | {found:.2f} s | {goal} |"
                print(f"{row} {each * 1e6:.0f} | {each / first:.2f} |", flush=True)


if __name__ == "__main__":
    main()
