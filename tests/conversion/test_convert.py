"""Conversion: four forms of the same model, what is written beside it, and what the device sees."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

import npuconv
from npuconv import executor
from npuconv.arithmetic.encoding import quantize as to_int8
from npuconv.emit import keys
from npuconv.errors import InternalError
from npuconv.report import render
from support.builders import Net, digits, images
from support.zoo import ZOO

CAL = {"x": images(16, 1, 8, 8)}
FORMS = ("qoperator", "qdq", "weights", "float")
X = (1, 4, 8, 8)


def run(model, **feeds):
    return executor.Session(model, threads=1).run(feeds)


def signature(model):
    """Names, shapes and types of inputs and outputs."""

    def dims(info):
        return [d.dim_value or d.dim_param for d in info.type.tensor_type.shape.dim]

    return [
        (info.name, info.type.tensor_type.elem_type, dims(info))
        for info in (*model.graph.input, *model.graph.output)
    ]


def ops(model):
    return [n.op_type for n in model.graph.node]


def by_output(model):
    return {o: n for n in model.graph.node for o in n.output}


def by_op(model, op):
    return [n for n in model.graph.node if n.op_type == op]


def value(model, name):
    (found,) = (t for t in model.graph.initializer if t.name == name)
    return onnx.numpy_helper.to_array(found)


@pytest.mark.parametrize("form", FORMS)
def test_inputs_and_outputs_are_kept(form):
    """Names, shapes and float types are the user's interface and do not change."""
    result = npuconv.convert(digits(), calibration=CAL, format=form)
    assert signature(result.model) == signature(digits())
    onnx.checker.check_model(result.model, full_check=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name", ["digits", "constants", "old", "padded", "scaled", "outputs", "dilated"]
)
def test_every_form_runs(name, form):
    """Every form is valid, runs, and keeps the interface."""
    before = ZOO[name]()
    shapes = given(before)
    after = npuconv.convert(before, format=form, input_shape=shapes, max_samples=2).model
    onnx.checker.check_model(after)
    executor.Session(after)
    names = [(n, kind) for n, kind, _ in signature(before)]
    assert [(n, kind) for n, kind, _ in signature(after)] == names


def given(model):
    """Numbers for what a model leaves open."""
    return {
        i.name: tuple(d.dim_value or 8 for d in i.type.tensor_type.shape.dim)
        for i in model.graph.input
    }


def test_float_is_the_same_function():
    """The legalized float model gives the numbers of the source."""
    after = npuconv.convert(digits(), format="float")
    x = images(4, 1, 8, 8)
    for old, new in zip(run(digits(), x=x).values(), run(after.model, x=x).values(), strict=True):
        assert np.allclose(old, new, atol=1e-4)
    assert "BatchNormalization" not in ops(after.model)
    assert after.report.quantization is None


def test_weights_need_no_calibration():
    """Weights are int8, activations are not, and nothing warns of missing samples."""
    after = npuconv.convert(digits(), format="weights")
    kinds = {t.data_type for t in after.model.graph.initializer if t.name.endswith("/int8")}
    assert kinds == {onnx.TensorProto.INT8}
    assert "QuantizeLinear" not in ops(after.model)
    assert ops(after.model).count("DequantizeLinear") == 4
    assert after.report.quantization.method == "none"
    assert after.report.summary.warnings == ()
    x = images(4, 1, 8, 8)
    (old,), (new,) = run(digits(), x=x).values(), run(after.model, x=x).values()
    assert np.abs(old - new).max() < 0.05 * np.abs(old).max()


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
def test_only_standard_operators(form):
    """Any runtime can load the result."""
    model = npuconv.convert(digits(), calibration=CAL, format=form).model
    assert {n.domain for n in model.graph.node} == {""}
    assert [o.domain for o in model.opset_import] == [""]


def test_qoperator_is_integer_between_device_nodes():
    """Convolutions and what carries int8 on read int8; conversions only where the host begins."""
    model = npuconv.convert(digits(), calibration=CAL).model
    assert ops(model) == [
        "QuantizeLinear", "QLinearConv", "MaxPool", "Pad", "QLinearConv", "QLinearConv",
        "Reshape", "QLinearConv", "Squeeze", "DequantizeLinear",
    ]  # fmt: skip


def test_qdq_is_float_operators_between_conversions():
    """The same model as other tools read it."""
    model = npuconv.convert(digits(), calibration=CAL, format="qdq").model
    assert ops(model).count("Conv") == 4
    assert "QLinearConv" not in ops(model)


@pytest.mark.parametrize("name", ["digits", "scaled", "outputs", "padded"])
def test_qdq_and_qoperator_give_the_same_numbers(name):
    """The largest difference is one step of the output."""
    proto = ZOO[name]()
    rng = np.random.default_rng(1)
    shapes = {name: (9, *dims[1:]) for name, dims in given(proto).items()}
    cal = {name: rng.standard_normal(dims).astype(np.float32) for name, dims in shapes.items()}
    results = [npuconv.convert(proto, calibration=cal, format=f) for f in ("qoperator", "qdq")]
    assert results[0].report.quantization.tensors == results[1].report.quantization.tensors
    step = max(t.scale for t in results[0].report.quantization.tensors)
    # A step of an inner tensor is amplified by the layers behind it.
    span = max(abs(t.maximum) for t in results[0].report.quantization.tensors)
    feed = {n: v[:1] for n, v in cal.items()}
    one, two = (executor.Session(r.model, threads=1).run(feed) for r in results)
    for key in one:
        assert np.abs(one[key] - two[key]).max() <= step * 1.01 + 1e-6 * span


def test_int8_inputs_and_outputs():
    """io=int8 makes the model's own tensors int8, with scales in the metadata."""
    net = Net(x=X).conv("x", (4, 4, 3, 3)).op("Relu").model()
    cal = {"x": images(9, *X[1:])}
    plain = npuconv.convert(net, calibration=cal)
    whole = npuconv.convert(net, calibration=cal, io="int8")
    assert ops(whole.model) == ["QLinearConv", "Relu"]
    assert {kind for _, kind, _ in signature(whole.model)} == {onnx.TensorProto.INT8}
    assert [n for n, _, _ in signature(whole.model)] == [n for n, _, _ in signature(net)]
    scales = {
        e.key.removeprefix("npuconv.scale."): float(e.value)
        for e in whole.model.metadata_props
        if e.key.startswith("npuconv.scale.")
    }
    assert set(scales) == {"x", "t1"}
    x = images(*X, seed=5)
    (real,) = run(net, x=x).values()
    (near,) = run(plain.model, x=x).values()
    (stored,) = run(whole.model, x=to_int8(x, scales["x"])).values()
    made = stored.astype(np.float32) * np.float32(scales["t1"])
    assert np.abs(made - real).max() <= 3 * scales["t1"]
    assert np.abs(made - near).max() <= 3 * scales["t1"]
    assert whole.report.accuracy.sqnr_db > 30


def test_what_stays_float_in_spite_of_int8():
    """Tensors of the host stay float, and the report names them."""
    report = npuconv.convert(digits(), calibration=CAL, io="int8", offload=False).report
    assert report.summary.warnings == (
        "some inputs or outputs stay float: t9 (made by Gemm 'gemm9'), which work in float; "
        "run these nodes outside of the model, or leave --io int8 out",
    )
    for form in ("qdq", "weights", "float"):
        report = npuconv.convert(digits(), calibration=CAL, io="int8", format=form).report
        (said,) = [w for w in report.summary.warnings if "stay float: x" in w]
        assert said.endswith(f"as with any --format {form}; --format qoperator makes them int8")
    whole = npuconv.convert(Net(x=X).conv("x", (4, 4, 3, 3)).model(), io="int8").report
    assert not [w for w in whole.summary.warnings if "stay float" in w]


def test_progress_is_reported():
    """The share of the conversion that is done grows to the whole, through all stages."""
    steps = []
    npuconv.convert(digits(), calibration=CAL, progress=lambda *step: steps.append(step))
    stages = [stage for stage, _, _ in steps]
    assert stages[:3] == ["load", "calibration data", "calibrate"]
    assert {"calibrate 1/8", "calibrate 8/8"} <= {*stages}
    assert any(stage.startswith("compare ") for stage in stages)
    shares = [done / total for _, done, total in steps if total]
    assert shares == sorted(shares)
    assert len({*shares}) > 15
    assert steps[-1][0] == "sensitivity"  # it runs beside the stages before it
    assert shares[-1] == 1


@pytest.mark.parametrize("form", FORMS)
def test_the_same_bytes_every_time(form):
    """Model and report depend on the model and the options alone."""

    def once():
        result = npuconv.convert(digits(), calibration=CAL, format=form)
        return result.model.SerializeToString(deterministic=True), render(result.report, "json")

    assert once() == once()


def test_no_folder_in_the_report(tmp_path):
    """The folder of the files changes nothing."""
    reports = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        onnx.save(digits(), tmp_path / name / "m.onnx")
        np.savez(tmp_path / name / "c.npz", **CAL)
        home = tmp_path / name
        result = npuconv.convert(home / "m.onnx", calibration=home / "c.npz")
        reports.append(render(result.report, "json"))
    assert reports[0] == reports[1]
    assert str(tmp_path) not in reports[0]


@pytest.mark.parametrize("form", FORMS)
def test_metadata(form):
    """The file says which tool, target and source it comes from; what it said before stays."""
    source = digits()
    source.metadata_props.add(key="author", value="somebody")
    result = npuconv.convert(source, calibration=CAL, format=form)
    entries = {e.key: e.value for e in result.model.metadata_props}
    layers = json.loads(entries.pop(keys.LAYERS, "[]"))
    wanted = ["conv0", "conv4", "conv6", "gemm9"] if form in ("qoperator", "qdq") else []
    assert [layer["name"] for layer in layers] == wanted
    assert entries == {
        "author": "somebody",
        "npuconv.version": npuconv.__version__,
        "npuconv.format": form,
        "npuconv.target": "npu-int8",
        "npuconv.target_sha256": result.report.target.sha256,
        "npuconv.source_sha256": result.report.model.sha256,
    }
    assert len(entries["npuconv.source_sha256"]) == len(entries["npuconv.target_sha256"]) == 64


def test_a_bias_that_would_overflow():
    """Tiny weights and a huge bias: the weight scale is raised, noted, and the result is right."""
    net = Net(x=X)
    weight = net.constant(np.full((4, 4, 1, 1), 1e-9, np.float32))
    bias = net.constant(np.full(4, 1e3, np.float32))
    result = npuconv.convert(net.op("Conv", "x", weight, bias, name="c").model())
    (layer,) = result.report.quantization.layers
    assert layer.name == "c"
    assert "int32 would overflow" in layer.note
    (out,) = run(result.model, x=images(*X)).values()
    assert np.allclose(out, 1e3, rtol=0.01)


def test_padded_convolutions_read_zero_points_of_zero():
    """The device fills with the stored integer 0, which must be the number 0."""
    net = Net(x=X).conv("x", (4, 4, 3, 3), pads=[1, 1, 1, 1]).op("Relu")
    net.conv("", (4, 4, 3, 3), pads=[1, 1, 1, 1]).op("Sigmoid").conv("", (4, 4, 3, 3), pads=[2] * 4)
    data = {"x": images(9, *X[1:]) + 3}
    result = npuconv.convert(net.model(), calibration=data, pad_on_host="never")
    makers, convs = by_output(result.model), by_op(result.model, "QLinearConv")
    assert len(convs) == 3
    for conv in convs:
        for place in (2, 5, 7):
            assert not value(result.model, conv.input[place]).any()
    for entry in by_op(result.model, "QuantizeLinear"):  # the host fills nothing in
        assert not value(result.model, entry.input[2]).any()
    assert [makers[conv.input[0]].op_type for conv in convs] == [
        "QuantizeLinear",
        "Relu",
        "QuantizeLinear",
    ]
    padded = {"x", "t0", "t1", "t3"}
    zeros = {t.name: t.zero_point for t in result.report.quantization.tensors}
    assert {zeros[name] for name in padded} == {0}
    assert set(zeros) - padded == {"t2", "t4"}


def shifted():
    """A convolution that only subtracts 9."""
    net = Net(x=X)
    weight = net.constant(np.eye(4, dtype=np.float32)[:, :, None, None])
    return net.op("Conv", "x", weight, net.constant(np.full(4, -9.0)), name="c")


def test_a_convolution_takes_the_range_of_its_relu():
    """Values that the activation cuts off take no part of the scale."""
    model = shifted().op("Relu").model()
    x = np.clip(images(9, *X[1:]) * 10, -10, 10)  # -19 .. 1 before the Relu, 0 .. 1 behind it
    result = npuconv.convert(model, calibration={"x": x}, method="minmax")
    (conv,) = (n for n in result.model.graph.node if n.op_type == "QLinearConv")
    scale = float(value(result.model, conv.input[6]))
    assert scale <= 1 / 127 * 1.001
    rows = {t.name: t for t in result.report.quantization.tensors}
    assert rows["t0"].scale == rows["t1"].scale
    assert rows["t0"].minimum == 0
    plain = npuconv.convert(shifted().model(), calibration={"x": x}, method="minmax")
    (lone,) = (n for n in plain.model.graph.node if n.op_type == "QLinearConv")
    assert float(value(plain.model, lone.input[6])) > 10 * scale


def joined(factor):
    """Two branches, one of them larger by this factor, joined."""
    net = Net(x=X)
    one = np.random.default_rng(0).uniform(-0.5, 0.5, (4, 4, 1, 1)).astype(np.float32)
    net.op("Conv", "x", net.constant(one), to="a", name="small")
    net.op("Conv", "x", net.constant(one * np.float32(factor)), to="b", name="large")
    return net.op("Concat", "a", "b", axis=1, name="join").model()


def test_a_concat_of_like_ranges_shares_one_scale():
    """The Concat runs on int8 tensors."""
    result = npuconv.convert(joined(2.0), calibration={"x": images(9, *X[1:])})
    nominal = [value(result.model, c.input[6]) for c in by_op(result.model, "QLinearConv")]
    assert nominal[0] == nominal[1]
    assert ops(result.model)[-2:] == ["Concat", "DequantizeLinear"]


def test_a_concat_of_unlike_ranges_keeps_their_precision():
    """Every channel has its own scale, so the two need not be apart."""
    x = images(72, *X[1:])  # of what was seen seldom, less is believed
    result = npuconv.convert(joined(100.0), calibration={"x": x})
    assert ops(result.model)[-2:] == ["Concat", "DequantizeLinear"]
    scales = value(result.model, result.model.graph.node[-1].input[1])
    assert scales[4:].min() > 10 * scales[:4].max()
    (old,), (new,) = (run(m, x=x[:1]).values() for m in (joined(100.0), result.model))
    for part in (slice(0, 4), slice(4, 8)):
        error = np.abs(old[:, part] - new[:, part]).max()
        assert error < 0.05 * np.abs(old[:, part]).max()


@pytest.mark.parametrize("form", ["qoperator", "qdq", "weights"])
def test_weights_that_are_not_finite(form):
    """Such weights are an error of the tool, whatever the form."""
    net = Net(x=X)
    broken = net.constant(np.full((4, 4, 1, 1), np.nan, np.float32))
    with pytest.raises(npuconv.NpuconvError) as caught:
        npuconv.convert(net.op("Conv", "x", broken).model(), format=form)
    assert not isinstance(caught.value, InternalError)


def test_save(tmp_path):
    """The result can be written and read again."""
    result = npuconv.convert(digits(), calibration=CAL)
    result.save(tmp_path / "m.onnx")
    assert onnx.load(tmp_path / "m.onnx") == result.model


def test_timings():
    """Only where asked, stage by stage."""
    report = npuconv.convert(digits(), calibration=CAL, timings=True).report
    stages = {t.stage for t in report.timings}
    steps = {"host preparation", "calibrate", "choose ranges", "round weights", "sensitivity"}
    assert steps | {"load", "quantize", "compare"} <= stages
    assert npuconv.convert(digits(), calibration=CAL).report.timings is None
