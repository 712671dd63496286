"""ONNX's own tests of convolutions and related operators, with weights and pads as constants.

From the onnx package: ``onnx.backend.test.case.node``, and the exported models and data
in ``backend/test/data/pytorch-converted`` and ``pytorch-operator``.
"""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

OPERATORS = (
    "Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool",
    "LpPool", "BatchNormalization", "Pad", "Relu", "Clip", "Gemm", "MatMul",
)  # fmt: skip


@dataclass(frozen=True)
class OnnxCase:
    """One model of the onnx package, and one set of its data."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    outputs: list[np.ndarray]
    rtol: float
    atol: float


# Modules of onnx.backend.test.case.node. Importing one computes its cases; all take seconds.
MODULES = (
    "conv", "convtranspose", "maxpool", "averagepool", "globalaveragepool", "globalmaxpool",
    "lppool", "batch_normalization", "pad", "relu", "clip", "gemm", "matmul",
)  # fmt: skip


@cache
def onnx_cases() -> tuple[OnnxCase, ...]:
    """All cases, sorted by name."""
    from onnx.backend.test.case import node
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tests of other operators divide by zero
        for module in MODULES:
            importlib.import_module(f"{node.__name__}.{module}")
        cases = [_node_case(c) for c in node._NodeTestCases if _is_ours(c)]
        for kind in ("pytorch-converted", "pytorch-operator"):
            cases += _stored(load_model_tests(kind=kind))
    return tuple(sorted(cases, key=lambda case: case.name))


def _is_ours(case: Any) -> bool:
    """Return whether a case has one node of ``OPERATORS``, not the expansion of a function."""
    nodes = case.model.graph.node
    return len(nodes) == 1 and nodes[0].op_type in OPERATORS


def _node_case(case: Any) -> OnnxCase:
    ((inputs, outputs),) = case.data_sets
    return _case(f"node/{case.name}", case.model, inputs, outputs, case)


def _stored(cases: list[Any]) -> list[OnnxCase]:
    results = []
    for case in cases:
        folder = Path(case.model_dir)
        model = onnx.load(folder / "model.onnx")
        if any(node.op_type in OPERATORS for node in model.graph.node):
            inputs, outputs = (_arrays(folder / "test_data_set_0", k) for k in ("input", "output"))
            results.append(_case(f"{case.kind}/{case.name}", model, inputs, outputs, case))
    return results


def _arrays(folder: Path, kind: str) -> list[np.ndarray]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    files = [folder / f"{kind}_{number}.pb" for number in range(count)]
    return [numpy_helper.to_array(onnx.load_tensor(file)) for file in files]


def _case(name: str, model: onnx.ModelProto, inputs: Any, outputs: Any, case: Any) -> OnnxCase:
    """Make a case: all inputs of a node but the first become constants."""
    frozen = onnx.ModelProto()
    frozen.CopyFrom(model)
    graph = frozen.graph
    initializers = {t.name for t in graph.initializer}
    free = [i.name for i in graph.input if i.name not in initializers]
    feeds = dict(zip(free, map(np.asarray, inputs), strict=True))
    later = {n for node in graph.node if node.op_type in OPERATORS for n in node.input[1:]}
    for constant in [n for n in free if n in later]:
        graph.initializer.append(numpy_helper.from_array(feeds.pop(constant), constant))
    if frozen.ir_version >= 4:  # before, every initializer is an input too
        inputs_left = [i for i in graph.input if i.name in feeds]
        del graph.input[:]
        graph.input.extend(inputs_left)
    return OnnxCase(name, frozen, feeds, list(map(np.asarray, outputs)), case.rtol, case.atol)
