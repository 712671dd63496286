"""Operators with TFLite's integers, against what LiteRT 2.3's reference kernels gave."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.arithmetic.rescaling import Rescaling, TensorScale
from npuconv.arithmetic.whole import WholeArray
from npuconv.errors import ModelError
from npuconv.ops.leaky_relu import slopes_of
from npuconv.ops.operator import OPERATORS, Arguments, Operator

A, B, Y = TensorScale(0.05, -7), TensorScale(0.03125, 12), TensorScale(0.07, 3)
X = np.arange(-128, 128, 17)
Z = np.asarray([8, -77, 89, 4, -81, 85, 0, -85, 81, -4, -89, 77, -8, -93, 73, -12])
GEMMLOWP = Rescaling("gemmlowp")
SHARES, WITHIN_ONE = TensorScale(1 / 256, -128), TensorScale(1 / 128, 0)
# Operator -> attributes, inputs, scales, and what the kernel made of them.
RECORDED = {
    "Add": ({}, (X, Z), (A, B, Y), [
        -85, -111, -25, -51, -76, 10, -16, -42, 45, 19, -7, 79, 53, 28, 114, 88]),
    "Sub": ({}, (X, Z), (A, B, Y), [
        -82, -32, -94, -43, 7, -55, -5, 45, -17, 33, 83, 21, 71, 121, 59, 109]),
    "Mul": ({}, (X, Z), (A, B, Y), [
        14, 127, -128, 16, 113, -56, 8, 7, 26, -8, -107, 99, -34, -128, 127, -69]),
    "Sigmoid": ({}, (X,), (A, SHARES), [
        -127, -127, -125, -120, -111, -92, -57, -6, 46, 85, 108, 119, 124, 126, 127, 127]),
    "Tanh": ({}, (X,), (A, WITHIN_ONE), [
        -128, -128, -128, -128, -127, -121, -95, -13, 81, 118, 126, 127, 127, 127, 127, 127]),
    "HardSwish": ({}, (X,), (A, Y), [
        3, 3, 3, 3, 1, -2, -2, 2, 10, 21, 35, 50, 62, 74, 87, 99]),
    "LeakyRelu": ({"alpha": 0.2}, (X,), (A, Y), [
        -14, -12, -10, -7, -5, -2, 0, 3, 14, 26, 38, 50, 62, 74, 87, 99]),
    "PRelu": ({"alpha": np.arange(-5, 11) / 10}, (X,), (A, Y), [
        47, 33, 22, 13, 7, 3, 2, 3, 14, 26, 38, 50, 62, 74, 87, 99]),
    "Softmax": ({"axis": -1}, (Z,), (A, SHARES), [
        -127, -128, -56, -127, -128, -69, -127, -128, -80, -127, -128, -88, -127, -128, -96, -128]),
    "AveragePool": ({"kernel_shape": [3, 2], "strides": [1, 2]}, (Z.reshape(1, 1, 4, 4),), (A, A), [
        2, -1, -3, -6]),
    "ReduceMean": ({}, (Z.reshape(1, 2, 2, 4).transpose(0, 3, 1, 2),), (A, B), [
        23, -13, 53, 17]),
    "Resize": ({"sizes": [1, 1, 4, 3]}, (Z.reshape(1, 1, 4, 4)[:, :, :2, :2],), (A, A), [
        8, -35, -77, -14, -25, -37, -59, -7, 45, -81, 2, 85]),
    "MatMul": ({}, (X.reshape(1, 4, 4), Z.reshape(1, 4, 4)), (A, B, Y), [
        127, 127, -76, 127, 54, 61, -38, 64, -19, -128, 0, -33, -92, -128, 38, -128]),
}  # fmt: skip


def operator(op: str) -> Operator:
    found = OPERATORS.get(op)
    assert found is not None
    return found


def computed(op: str, attributes: dict, values: tuple, scales: tuple) -> list[int]:
    """Return the result of TFLite's operator."""
    arrays = [WholeArray.from_array(v) for v in values]
    return (
        operator(op)
        .compute(Arguments(attributes, arrays, scales, GEMMLOWP))
        .values.reshape(-1)
        .tolist()
    )


@pytest.mark.parametrize("op", RECORDED)
def test_the_kernels_gave_these_integers(op):
    attributes, values, scales, wanted = RECORDED[op]
    assert computed(op, attributes, values, scales) == wanted


def test_one_slope_is_that_of_a_leaky_relu():
    """A LEAKY_RELU takes it as it is; below 0 only a PRELU does, whose slopes are int8."""
    _, values, scales, wanted = RECORDED["LeakyRelu"]
    assert computed("PRelu", {"alpha": np.full((1, 1), 0.2)}, values, scales) == wanted
    assert computed("PRelu", {"alpha": np.full(1, -0.2)}, values, scales) != wanted
    assert slopes_of([0.5, -1, 0])[0].tolist() == [64, -127, 0]
    assert slopes_of([0.0, 0.0])[0].tolist() == [0, 0]


def test_every_operator_is_recorded():
    """GlobalAveragePool is MEAN; a Concat is QUANTIZE for each input."""
    assert {o.name for o in OPERATORS if o.in_tflite} - set(RECORDED) == {
        "GlobalAveragePool",
        "Concat",
    }


QUANTIZED = [-83, -71, -59, -47, -35, -23, -11, 2, 14, 26, 38, 50, 62, 74, 87, 99]


def test_quantize_changes_the_scale():
    """A QUANTIZE is what follows an operator that TFLite gives another scale."""
    assert GEMMLOWP.requantized(WholeArray.from_array(X), A, Y).values.tolist() == QUANTIZED
    assert GEMMLOWP.requantized(WholeArray.from_array(X), A, A).values.tolist() == X.tolist()
    parts = computed("Concat", {"axis": 0}, (X, Z), (A, Y, Y))
    assert parts == [*QUANTIZED, *Z.tolist()]


def test_what_has_another_scale_is_rounded_twice():
    """First as LOGISTIC rounds, then by QUANTIZE."""
    wanted = TensorScale(0.01, -100)
    first = WholeArray.from_array(computed("Sigmoid", {}, (X,), (A, SHARES)))
    twice = GEMMLOWP.requantized(first, SHARES, wanted).values.tolist()
    assert computed("Sigmoid", {}, (X,), (A, wanted)) == twice


def test_scales_that_operators_make():
    """A pool keeps the scale it reads; what has a scale of its own has that; the rest is free."""
    assert operator("AveragePool").tflite_result_scale((A, B)) == A
    assert operator("Tanh").tflite_result_scale((A, B)) == WITHIN_ONE
    assert operator("Add").tflite_result_scale((A, B, Y)) == Y


def test_extents_must_be_known():
    """A pool divides by the values that there are."""

    class Dynamic(WholeArray):
        @property
        def shape(self) -> tuple[int | None, ...]:
            return (1, 1, None, 4)

    with pytest.raises(ModelError, match="height or width"):
        operator("ReduceMean").compute(
            Arguments({}, [Dynamic.from_array(Z.reshape(1, 1, 4, 4))], (A, B), GEMMLOWP)
        )
