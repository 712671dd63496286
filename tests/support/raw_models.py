"""Models node by node, valid or not, and commands on them in one process."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

X = (1, 3, 8, 8)


def tensor(name: str, shape, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name: str, values) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values), name)


def weights(*shape: int, kind=np.float32) -> onnx.TensorProto:
    return constant("w", np.random.default_rng(0).uniform(-1, 1, shape).astype(kind))


def build(nodes, inputs, outputs, constants=(), *, opset=17, functions=(), **domains: int):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    imports = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(d, v) for d, v in domains.items()),
    ]
    return helper.make_model(
        graph, opset_imports=imports, ir_version=8 if opset < 21 else 10, functions=functions
    )


def conv(weight=None, x=X, y=(None,) * 4, *, kind=TensorProto.FLOAT, opset=17, **attrs):
    """Return a model of one convolution, valid or not."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="c", **attrs)
    outputs, inputs = [tensor("y", y, kind)], [tensor("x", x, kind)]
    return build([node], inputs, outputs, [weight or weights(4, 3, 3, 3)], opset=opset)


PROGRAM = """
import sys
from npuconv.cli import execute
for arguments in sys.argv[1:]:
    print("code", execute(arguments.split()), file=sys.stderr, flush=True)
"""


def as_program(*commands: str) -> tuple[str, list[tuple[int, list[str]]]]:
    """Return stdout of all commands; exit code and lines on stderr of each."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, *commands],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    exits: list[tuple[int, list[str]]] = []
    lines: list[str] = []
    for line in process.stderr.splitlines():
        if line.startswith("code "):
            exits.append((int(line.removeprefix("code ")), lines))
            lines = []
        else:
            lines.append(line)
    return process.stdout, exits
