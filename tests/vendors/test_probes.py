"""Models of one operator have the facts that are asked for."""

from __future__ import annotations

import onnx
import pytest

from npuconv import executor
from npuconv.model import facts, load
from npuconv.vendors.probes import BASES, LEARNABLE, OPERATORS, case_of, model_of

SMALL, LARGE = BASES.values()


def measured(data):
    """Return the facts of the operator of a model."""
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    executor.Session(model)
    (node,) = (n for n in load.load(model).graph.nodes if n.op in OPERATORS)
    return facts.measure(node)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("fact", LEARNABLE)
def test_facts(op, fact):
    """The operator has the value that is asked for, as the rules measure it."""
    value = 1 if fact == "bias" else 2 if "pad" in fact else 5
    mode = "depthwise" if fact == "channel_multiplier" else ""
    case = case_of(op, mode, SMALL, fact, value)
    if case is not None and not (op == "ConvTranspose" and ("weight" in fact or mode)):
        values = measured(model_of(op, case, is_quantized=False))
        assert values.get(fact, value) == value
        assert values["in_c"] == case["in_c"]


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("base", BASES)
def test_quantized(op, base):
    """Conversions of one encoding at each tensor; onnxruntime takes the file."""
    case = case_of(op, "", BASES[base])
    model = onnx.load_from_string(model_of(op, case, is_quantized=True))
    executor.Session(model)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("QuantizeLinear") == 2
    assert kinds.count("DequantizeLinear") == (4 if "Conv" in op else 2)
    assert model_of(op, case, is_quantized=True) == model_of(op, case, is_quantized=True)


def test_cases_that_are_none():
    assert case_of("Conv", "", SMALL, "in_h", 2) is None
    assert case_of("MaxPool", "", SMALL, "pad_top", 3) is None
    assert case_of("Conv", "grouped", SMALL) is None
    assert case_of("Conv", "", SMALL, "channel_multiplier", 2) is None
    depthwise = case_of("Conv", "depthwise", LARGE, "channel_multiplier", 2)
    assert measured(model_of("Conv", depthwise, is_quantized=False))["channel_multiplier"] == 2
