"""Int8 operators as TFLite's own: which, with what scales, and LiteRT's integers."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.emit.tflite.translate import translate
from npuconv.evaluate.simulator import as_float
from npuconv.executor import Session
from support.int8_operators import CASES, FINE, WIDE
from support.tflite_files import operators, reference_kernels, stored

CODES = {
    "Add": "ADD", "Sub": "SUB", "Mul": "MUL", "MatMul": "BATCH_MATMUL", "HardSwish": "HARD_SWISH",
    "AveragePool": "AVERAGE_POOL_2D", "GlobalAveragePool": "MEAN", "ReduceMean": "MEAN",
    "Concat": "CONCATENATION", "Resize": "RESIZE_BILINEAR", "Softmax": "SOFTMAX",
    "Sigmoid": "LOGISTIC", "Tanh": "TANH", "LeakyRelu": "LEAKY_RELU", "PRelu": "LEAKY_RELU",
    "prelu-channels": "PRELU",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_tensor_is_int8(name):
    """No conversion to float is left; the result has the scale that is wanted."""
    case = CASES[name]
    made = translate(case.model())
    assert CODES.get(name, CODES[case.op]) in [operator.code for operator in made.graph.operators]
    kinds = {t.dtype.name for t in made.graph.tensors if t.values is None}
    assert kinds == {"int8"}
    own, wanted = made.outputs[0].tensor.quantization, case.scales[-1]
    assert (own.scale, own.zero) == (np.float32(wanted.scale), wanted.zero)


def test_a_scale_that_tflite_does_not_make_is_made_by_quantize():
    """LOGISTIC makes multiples of 1/256, a pool the scale that it reads, and so on."""
    assert operators(CASES["sigmoid"].model()) == ["LOGISTIC"]
    made = translate(CASES["sigmoid-rescaled"].model()).graph
    assert [o.code for o in made.operators] == ["LOGISTIC", "QUANTIZE"]
    own = made.tensors[made.operators[0].outputs[0]].quantization
    assert (own.scale, own.zero) == (np.float32(1 / 256), -128)
    assert operators(CASES["average-pool-rescaled"].model())[-1] == "QUANTIZE"


def test_a_concatenation_has_one_scale():
    """TFLite's kernel refuses another; the input that has the scale of the result stays."""
    made = translate(CASES["concat"].model()).graph
    assert [o.code for o in made.operators] == ["QUANTIZE", "CONCATENATION"]
    scales = {made.tensors[k].quantization.scale for k in made.operators[-1].inputs}
    assert scales == {np.float32(CASES["concat"].scales[-1].scale)}


def test_constants_have_their_scale():
    """An int8 constant is a tensor like any other, its channels last."""
    made = translate(CASES["add-constant"].model()).graph
    constant = made.tensors[made.operators[-1].inputs[1]]
    assert constant.shape == (1, 1, 1, 3)
    assert (constant.quantization.scale, constant.quantization.zero) == (FINE.scale, FINE.zero)


def test_counted_padding_is_padded_before():
    """AVERAGE_POOL_2D never counts its padding; PAD fills with the zero point."""
    made = translate(CASES["average-pool-padded"].model()).graph
    assert [o.code for o in made.operators] == ["PAD", "AVERAGE_POOL_2D"]
    assert made.tensors[made.operators[0].outputs[0]].quantization.zero == WIDE.zero


@pytest.mark.parametrize("name", CASES)
def test_reference_kernels_give_the_integers_of_the_simulator(name):
    case = CASES[name]
    model, feeds = case.model(), case.feeds()
    made = translate(model)
    wanted = Session(as_float(model)).run(feeds)["y"]
    given = [stored(end, feeds[end.name]) for end in made.inputs]
    (found,) = reference_kernels(made.graph, given)
    np.testing.assert_array_equal(found, stored(made.outputs[0], wanted))
