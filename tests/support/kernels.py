"""Kernels of int8 operators: random inputs, and the same operators in onnxruntime and in float."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from npuconv.arithmetic.rescaling import FLOAT, Rescaling, TensorScale
from npuconv.arithmetic.whole import WholeArray
from npuconv.ops.operator import OPERATORS, Arguments

SHIFT = Rescaling("shift")
FEW = settings(max_examples=8, deadline=None)
SCALES = st.builds(
    TensorScale, st.floats(0.005, 0.05).map(lambda s: float(np.float32(s))), st.integers(-128, 127)
)
SEEDS = st.integers(0, 2**16)
BOTH = pytest.mark.parametrize("how", [FLOAT, SHIFT], ids=["float", "shift"])


def computed(
    op: str,
    values: Sequence[np.ndarray],
    scales: Sequence[TensorScale],
    how: Rescaling = FLOAT,
    **attributes: Any,
) -> np.ndarray:
    """Return the int8 values of an operator on the device."""
    operator = OPERATORS.get(op)
    assert operator is not None
    result = operator.compute(
        Arguments(attributes, [WholeArray.from_array(v) for v in values], scales, how)
    ).values
    assert result.min(initial=0) >= -128
    assert result.max(initial=0) <= 127
    return result.astype(np.int8)


def stored(seed: int, *shape: int) -> np.ndarray:
    """Random integers from -128 to 127."""
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def numbers(q: np.ndarray, scale: TensorScale) -> np.ndarray:
    """Return the real numbers of integers, float64."""
    return (q.astype(np.float64) - scale.zero) * np.float64(np.float32(scale.scale))


def once(values: np.ndarray, scale: TensorScale) -> np.ndarray:
    """Round results of float arithmetic to int8."""
    steps = np.rint(values / np.float64(np.float32(scale.scale))) + scale.zero
    return np.clip(steps, -128, 127).astype(np.int8)


def runtime(op: str, inputs: list[Any], domain: str = "com.microsoft", **attrs: Any) -> np.ndarray:
    """Run one node of onnxruntime on constant inputs."""
    names, constants = [], []
    for number, value in enumerate(inputs):
        names.append("" if value is None else f"i{number}")
        if value is not None:
            constants.append(numpy_helper.from_array(np.asarray(value), names[-1]))
    node = helper.make_node(op, names, ["y"], domain=domain, **attrs)
    graph = helper.make_graph(
        [node], "one", [], [helper.make_tensor_value_info("y", TensorProto.INT8, None)], constants
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {})[0])


def parts(scale: TensorScale) -> list[np.ndarray]:
    """Scale and zero point as a QLinear operator takes them."""
    return [np.asarray(scale.scale, np.float32), np.asarray(scale.zero, np.int8)]


def assert_near(ours: np.ndarray, theirs: np.ndarray, steps: int = 1) -> None:
    """Assert the same shape and type, and differences of at most ``steps``."""
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype == np.int8
    assert int(np.abs(ours.astype(int) - theirs.astype(int)).max(initial=0)) <= steps
