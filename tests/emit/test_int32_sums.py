"""Tests of convolutions in parts, read back from a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from npuconv.emit import keys
from npuconv.emit.int32_sums import internal_tensors, with_layers
from npuconv.evaluate.simulator import as_float
from npuconv.evaluate.vectors import device_layers
from support.asserts import run
from support.partial_sums import ADDS, CASES, SHIFTS, convert, two


@pytest.mark.parametrize(("net", "limits"), CASES)
def test_each_is_the_qlinearconv_that_it_stands_for(tmp_path: Path, net, limits):
    """The same integers from onnxruntime, for the parts and for the layer; from the simulator."""
    made = convert(tmp_path, net.model(), ADDS, limits).model
    layers = with_layers(made)
    ops = {node.op_type for node in layers.graph.node}
    assert "QLinearConv" in ops
    assert not ops & {"ConvInteger", "Cast", "Mul"}
    for model in (layers, as_float(made)):
        for expected, found in zip(run(made), run(model), strict=True):
            assert np.array_equal(expected, found)


def test_a_shift_has_the_factor_of_the_layer(tmp_path: Path):
    """Vectors are made by the arithmetic of the device, which the file only comes near."""
    shifts = {**ADDS, **SHIFTS}
    whole = convert(tmp_path, two().model(), shifts, {}, pad_on_host="never").model
    made = convert(tmp_path, two().model(), shifts, {"in_c": {"max": 4}}, pad_on_host="never").model
    for a, b in zip(device_layers(whole), device_layers(made), strict=True):
        assert np.array_equal(a.factors, b.factors)
        assert np.array_equal(a.weight, b.weight)
        assert np.array_equal(a.bias, b.bias)
    for expected, found in zip(run(as_float(whole)), run(as_float(made)), strict=True):
        assert np.array_equal(expected, found)


def test_the_nodes_of_the_device(tmp_path: Path):
    """All but the conversions at the ends."""
    made = convert(tmp_path, two().model(), ADDS, {"in_c": {"max": 4}}, pad_on_host="never").model
    inner = internal_tensors(made)
    outside = [n.op_type for n in made.graph.node if n.output[0] not in inner]
    assert sorted(outside) == ["DequantizeLinear", "QuantizeLinear"]


def test_other_models_stay_as_they_are(tmp_path: Path):
    """A model without parts, and one whose last scale is not 1."""
    made = convert(tmp_path, two().model(), ADDS, {})
    assert with_layers(made.model) is made.model
    assert internal_tensors(made.model) == frozenset()
    model = convert(tmp_path, two().model(), ADDS, {"in_c": {"max": 4}}).model
    for tensor in model.graph.initializer:
        if tensor.name == "npuconv/scale/1.0":
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(2, np.float32), tensor.name))
    onnx.checker.check_model(model)
    assert "ConvInteger" in {node.op_type for node in with_layers(model).graph.node}


@pytest.mark.parametrize(
    "change",
    [
        lambda _: "no JSON",
        lambda text: text.replace('"node":"', '"node":"no '),
        lambda text: text.replace('"index":[[0,', '"index":[[1,'),
        lambda text: text.replace('"weight":[6,', '"weight":[7,'),
        lambda text: text.replace('"strides":[1,1]', '"strides":[0,1]'),
        lambda text: text.replace('"pads":[1,', '"pads":['),
    ],
)
def test_an_entry_that_somebody_has_changed(tmp_path: Path, change):
    """What does not fit the model stays in parts, and runs as well."""
    made = convert(tmp_path, two().model(), ADDS, {"in_c": {"max": 4}}).model
    entry = next(e for e in made.metadata_props if e.key == keys.INT32_SUMS)
    before, entry.value = entry.value, change(entry.value)
    assert entry.value != before
    layers = with_layers(made)
    assert "ConvInteger" in {node.op_type for node in layers.graph.node}
    for expected, found in zip(run(made), run(layers), strict=True):
        assert np.array_equal(expected, found)
