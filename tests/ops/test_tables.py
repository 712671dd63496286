"""Tables of 256 entries against the runtime's float operators, rounded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuconv.arithmetic.rescaling import TensorScale
from npuconv.errors import ModelError
from npuconv.ops.operator import OPERATORS
from npuconv.ops.tables import (
    LENGTH,
    SOURCE,
    TableStep,
    evaluate,
    table,
)

HERE = Path(__file__).parent
EVERY = np.arange(-128, 128).astype(np.int8)
# Far less than a step, and more than the runtime's float32 is wrong by.
_UNDECIDED = 2e-3

CASES: list[tuple[str, dict[str, Any]]] = [
    ("Sigmoid", {}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ("HardSwish", {}),
    ("Swish", {"alpha": 1.0}),
    ("Tanh", {}),
    ("Abs", {}),
    ("Erf", {}),
    ("LeakyRelu", {"alpha": 0.2}),
    ("PRelu", {"slope": 0.3}),
    ("Elu", {"alpha": 1.5}),
    ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
    ("Softplus", {}),
    ("Mish", {}),
    ("Exp", {}),
    ("Sqrt", {}),
    ("Reciprocal", {}),
]


def in_float(op: str, attrs: dict[str, Any], x: np.ndarray) -> np.ndarray:
    """Return the result of the runtime's float operator."""
    names, made = ["x"], [numpy_helper.from_array(x, "x")]
    if op == "PRelu":
        names, attrs = ["x", "slope"], {}
        made.append(numpy_helper.from_array(np.full(1, 0.3, np.float32), "slope"))
    if op == "Swish":  # as opset 24 defines it: the runtime may not have it yet
        return x * in_float("Sigmoid", {}, x)
    node = helper.make_node(op, names, ["y"], **attrs)
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", [], [out], made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return np.asarray(onnxruntime.InferenceSession(model.SerializeToString()).run(None, {})[0])


@pytest.mark.parametrize(("op", "attrs"), CASES)
@pytest.mark.parametrize("zeros", [(0, 0), (-128, -128), (17, -5)])
def test_entries_are_float_rounded_once(op, attrs, zeros):
    """Exact, except where float32 itself cannot tell which side of a half it is on."""
    x_at, y_at = TensorScale(0.043, zeros[0]), TensorScale(0.0215, zeros[1])
    entries = table([TableStep(op, attributes=attrs)], x_at, y_at)
    x = (EVERY.astype(np.float32) - x_at.zero) * np.float32(x_at.scale)
    steps = in_float(op, attrs, x).astype(np.float64) / np.float32(y_at.scale)
    steps = np.clip(np.nan_to_num(steps, posinf=1e6, neginf=-1e6), -1e6, 1e6)
    wanted = np.clip(np.rint(steps) + y_at.zero, -128, 127)
    decided = np.abs(np.abs(steps - np.floor(steps)) - 0.5) > _UNDECIDED
    assert decided.sum() > 200
    assert entries.shape == (LENGTH,)
    np.testing.assert_array_equal(entries[decided], wanted[decided])
    assert int(np.abs(entries - wanted).max()) <= 1


def test_every_function_has_a_case():
    """Here, or in a test module of the operator."""
    others = {o.name for o in OPERATORS if o.is_table} - {op for op, _ in CASES}
    assert [op for op in others if not (HERE / f"test_{op.lower()}.py").is_file()] == []


def test_a_chain_is_rounded_once():
    """HardSwish spelled out, as a chain that never leaves float."""
    x_at, y_at = TensorScale(0.06, 3), TensorScale(0.04, -100)
    x = (EVERY.astype(np.float64) - 3) * np.float32(0.06)
    both = table([TableStep("Tanh", output="t"), TableStep("Exp", ("t",))], x_at, y_at)
    wanted = np.rint(np.exp(np.tanh(x)) / np.float32(0.04)) - 100
    np.testing.assert_array_equal(both, np.clip(wanted, -128, 127))
    one, two = (
        table([TableStep("Tanh")], x_at, TensorScale(0.1)),
        table([TableStep("Exp")], x_at, y_at),
    )
    one_after_the_other = two[one[EVERY.astype(int) + 128].astype(int) + 128]
    assert (one_after_the_other != both).any()


def test_what_is_no_number_is_zero_and_what_is_infinite_saturates():
    at = TensorScale(0.1, 9)
    roots, inverses = (
        table([TableStep("Sqrt")], at, at),
        table([TableStep("Reciprocal")], at, at),
    )
    assert (roots[: 128 + 9] == 9).all()
    assert inverses[128 + 9] == 127


def test_an_operator_of_several_values_is_refused():
    at = TensorScale(1.0)
    with pytest.raises(ModelError, match="Softmax is not"):
        table([TableStep("Softmax")], at, at)


def test_steps_read_what_earlier_ones_make():
    """HardSwish as exporters spell it, with numbers among the inputs."""
    steps = [
        TableStep("Add", (SOURCE, 3.0), "moved"),
        TableStep("Clip", ("moved", 0.0, 6.0), "cut"),
        TableStep("Mul", (SOURCE, "cut"), "product"),
        TableStep("Div", ("product", 6.0), "y"),
    ]
    x = np.linspace(-5, 5, 101)
    np.testing.assert_allclose(
        evaluate(steps, x), evaluate([TableStep("HardSwish")], x), atol=1e-12
    )


@pytest.mark.parametrize(
    ("op", "inputs", "wanted"),
    [
        ("Sub", (1.0, SOURCE), 3.0), ("Pow", (SOURCE, 2.0), 4.0), ("Relu", (SOURCE,), 0.0),
        ("Clip", (SOURCE, -1.0), -1.0), ("Clip", (SOURCE,), -2.0), ("Mul", (SOURCE, SOURCE), 4.0),
    ],
)  # fmt: skip
def test_arithmetic_of_steps(op, inputs, wanted):
    """A number may come first; a bound that is not there is none."""
    assert evaluate([TableStep(op, inputs)], np.array([-2.0])).tolist() == [wanted]
