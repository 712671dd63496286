"""Tests of the conversion of models that are quantized already."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import npuconv
from npuconv import executor
from support.builders import images
from support.quantized_nets import Quantized, integer_operators, operators, trained


def outputs(proto: onnx.ModelProto) -> np.ndarray:
    """Return a model's results for many inputs, node by node as it is written."""
    session = executor.Session(proto, threads=1, optimize=False)
    feeds = (2 * images(1, 3, 8, 8, seed=seed) for seed in range(20))
    return np.stack([next(iter(session.run({"x": feed}).values())) for feed in feeds])


def steps_apart(before: onnx.ModelProto, result: npuconv.Conversion) -> np.ndarray:
    """Return the distance of each integer from the original's, in steps of the output."""
    step = result.report.quantization.tensors[-1].scale
    return np.rint(np.abs(outputs(before) - outputs(result.model)) / step)


def centred() -> onnx.ModelProto:
    """Zero point 0 everywhere, and biases that are integers: the arithmetic of the device."""
    net = Quantized(x=(1, 3, 8, 8)).fake(0.0317)
    source = net.last
    net.op("DequantizeLinear", net.integers(4, 3, 3, 3), *net.parameters(0.0021, 0))
    weight = net.last
    bias = net.constant(np.asarray([90, -3000, 0, 777], np.int32))
    net.op("DequantizeLinear", bias, net.constant(np.float32(0.0317) * np.float32(0.0021)))
    net.op("Conv", source, weight, net.last, pads=[1] * 4, name="conv")
    return net.fake(0.0173).model()  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
@pytest.mark.parametrize("build", [centred, operators, lambda: operators(np.uint8, 125)])
def test_where_the_arithmetic_is_the_same_so_are_the_integers(build, form):
    """All of them; the report says that all scales and weights are kept."""
    proto = build()
    result = npuconv.convert(proto, format=form, verify=False)
    assert not steps_apart(proto, result).any()
    found = result.report.quantization.source_scales
    assert (found.tensors, found.layers) == (found.all_tensors, found.all_layers)
    assert found.changed == ()


def with_integer_output(proto: onnx.ModelProto, dtype: type) -> onnx.ModelProto:
    """Return a model without its last DequantizeLinear."""
    last = proto.graph.node.pop()
    assert last.op_type == "DequantizeLinear"
    output = proto.graph.output[0]
    output.name = last.input[0]
    output.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return proto


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
@pytest.mark.parametrize(
    ("build", "dtype"),
    [(centred, np.int8), (operators, np.int8), (lambda: operators(np.uint8, 125), np.uint8)],
)
def test_an_output_of_integers_stays_one(build, dtype, form):
    """Its type and its integers are those of the original; nothing is said against it."""
    proto = with_integer_output(build(), dtype)
    result = npuconv.convert(proto, format=form)
    found, wanted = outputs(result.model), outputs(proto)
    assert found.dtype == wanted.dtype == dtype
    np.testing.assert_array_equal(found, wanted)
    own = [one.status for one in result.report.findings if one.code == "MDL001"]
    assert set(own) == {"rewritten"}
    assert result.report.quantization.source_scales.changed == ()


def test_device_integers_are_the_output():
    """No conversion is left behind the device where scale and zero point are the same."""
    proto = with_integer_output(centred(), np.int8)
    assert npuconv.convert(proto).model.graph.node[-1].op_type == "QLinearConv"


@pytest.mark.parametrize("attrs", [{}, {"pads": [1] * 4}, {"strides": [2, 2]}])
def test_zero_points_in_biases_cost_one_step_at_most(attrs):
    """A zero point of an output is rounded into the bias: a few integers in a thousand move."""
    proto = trained(**attrs)
    result = npuconv.convert(proto, verify=False)
    found = steps_apart(proto, result)
    assert found.max() <= 1
    assert found.mean() < 0.005
    assert {t.method for t in result.report.quantization.tensors} == {"kept"}
    assert {layer.rounding for layer in result.report.quantization.layers} == {"kept"}


def test_no_data_is_needed():
    """The first line says so, in check as in convert, and no warning says otherwise."""
    told: list[str] = []
    result = npuconv.convert(trained(), progress=lambda text, _a, _b: told.append(text))
    (first,) = (text for text in told if text.startswith("assumed: "))
    assert "none is needed, all scales are kept" in first
    assert result.report.calibration.sentence in first
    assert result.report.summary.warnings == ()
    assert npuconv.check(trained()).calibration == result.report.calibration


def test_check_and_convert_agree():
    """The operators are found, and found to be rewritten."""
    before, after = npuconv.check(operators()), npuconv.convert(operators()).report
    of_model = [(f.code, f.status) for f in before.findings if f.code == "MDL001"]
    assert of_model == [("MDL001", "rewritten")]
    same = {f for f in after.findings if not f.code.startswith("CAL")}
    assert same == {f for f in before.findings if not f.code.startswith("CAL")}


def test_requantize_drops_the_scales():
    """The result is that of the float model."""
    report = npuconv.convert(trained(), keep_scales=False).report
    assert report.quantization.source_scales is None
    assert "kept" not in {t.method for t in report.quantization.tensors}
    assert "no calibration data: none is needed" not in report.calibration.sentence


def test_weights_alone_are_kept():
    """Activations may be float, or quantized anew at each run."""
    result = npuconv.convert(integer_operators(dynamic=True))
    found = result.report.quantization.source_scales
    assert (found.tensors, found.layers, found.all_layers) == (0, 1, 1)
    (changed,) = found.changed
    assert changed.name == "conv"
    assert changed.reason.startswith("weights made symmetric: ")
    (layer,) = result.report.quantization.layers
    assert layer.rounding.startswith("kept, made symmetric")


def test_weights_keep_their_integers_in_the_form_of_weights():
    """--format weights writes those that came."""
    result = npuconv.convert(trained(), format="weights")
    written = {
        onnx.numpy_helper.to_array(t).tobytes()
        for t in result.model.graph.initializer
        if t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 4
    }
    came = {
        onnx.numpy_helper.to_array(t).tobytes()
        for t in trained().graph.initializer
        if t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 4
    }
    assert written == came


def test_the_same_model_gives_the_same_bytes():
    """No result depends on the order of sets."""
    one, two = (npuconv.convert(operators()).model.SerializeToString() for _ in range(2))
    assert one == two


def test_verify_compares_with_the_quantized_original():
    """Outputs are compared, and layers if names are left."""
    result = npuconv.convert(operators())
    found = npuconv.verify(operators(), result.model, data={"x": images(4, 3, 8, 8)})
    assert found.total.sqnr_db is None  # no error at all
    assert found.total.cosine == 1


def test_an_input_of_integers_stays_one():
    """Its scale is that of the DequantizeLinear behind it."""
    net = Quantized(x=(1, 3, 8, 8))
    net.dequantize(0.03, -7)
    proto = net.qdq_conv((4, 3, 3, 3), 0.002).fake(0.05, 3).model()
    proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT8
    result = npuconv.convert(proto)
    assert result.model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.INT8
    assert [t.zero_point for t in result.report.quantization.tensors] == [-7, 3]
    values = np.random.default_rng(0).integers(-128, 128, (1, 3, 8, 8)).astype(np.int8)
    before, after = (
        next(iter(executor.Session(model, optimize=False).run({"x": values}).values()))
        for model in (proto, result.model)
    )
    assert np.abs(before - after).max() < 0.051
    assert np.mean(before != after) < 0.02


def test_what_cannot_be_read_is_refused_with_the_reason():
    """A scale that means nothing is no reason to guess."""
    proto = Quantized(x=(1, 3, 8, 8)).fake(-0.1).op("Relu").conv("").model()
    with pytest.raises(npuconv.UnsupportedModelError) as caught:
        npuconv.convert(proto)
    (found,) = (f for f in caught.value.report.findings if f.severity == "error")
    assert found.code == "MDL001"
    assert found.message.endswith(
        "not rewritten: its scale -0.1 is no positive number that float32 holds in full"
    )
