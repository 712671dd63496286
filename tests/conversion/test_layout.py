"""Integer convolutions with the channels last: the same numbers, on chips that take them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.executor import Session
from support.builders import Net, digits, images

SHARED = Path(__file__).parents[3] / "shared/models"
ROOT = Path(__file__).parents[2]
CHIP = """
schema: 1
name: either
operators:
  Conv:
    limits: {layout: [nchw, nhwc]}
activations: {dtype: int8, zero_point: [0], granularity: tensor}
weights: {dtype: int8, symmetric: true, granularity: channel, range: [-127, 127]}
"""


@pytest.fixture
def either(tmp_path) -> str:
    """A chip that takes both layouts."""
    path = tmp_path / "either.yaml"
    path.write_text(CHIP)
    return str(path)


def both(model, target: str, **options):
    """The same model in either layout."""
    found = [npuconv.convert(model, target, layout=name, **options) for name in ("nchw", "nhwc")]
    return tuple(found)


def same(first: npuconv.Conversion, last: npuconv.Conversion) -> None:
    """All outputs are equal to the bit, and so is what the reports say of accuracy."""
    session = Session(first.model, optimize=False)
    rng = np.random.default_rng(0)
    feeds = {}
    for info in first.model.graph.input:
        dims = [d.dim_value or 1 for d in info.type.tensor_type.shape.dim]
        feeds[info.name] = rng.standard_normal(dims).astype(np.float32)
    old, new = session.run(feeds), Session(last.model, optimize=False).run(feeds)
    assert all(np.array_equal(old[name], new[name]) for name in old)
    assert first.report.accuracy == last.report.accuracy
    assert first.report.quantization == last.report.quantization
    assert first.report.quantization.layers


def convolutions(model: onnx.ModelProto) -> set[str]:
    return {n.domain for n in model.graph.node if n.op_type == "QLinearConv"}


@pytest.mark.parametrize("build", [digits, lambda: digits(1)])
def test_the_same_numbers(build, either):
    """Layer by layer too."""
    first, last = both(build(), either, calibration={"x": images(16, 1, 8, 8)})
    assert convolutions(first.model) == {""}
    assert convolutions(last.model) == {"com.microsoft"}
    same(first, last)


def test_int8_inputs_and_outputs(either):
    """Inputs and outputs keep the layout of the model."""
    calibration = {"x": images(16, 1, 8, 8)}
    net = Net(x=(1, 1, 8, 8)).conv("x", (4, 1, 3, 3)).op("Relu").conv("", (2, 4, 3, 3))
    first, last = both(net.model(), either, calibration=calibration, io="int8")
    sample = np.random.default_rng(0).integers(-128, 128, (1, 1, 8, 8)).astype(np.int8)
    old, new = (Session(r.model).run({"x": sample}) for r in (first, last))
    assert all(np.array_equal(old[name], new[name]) for name in old)
    assert first.report.quantization == last.report.quantization


def test_a_sample_of_ours(either):
    """The network that comes with the tool."""
    path = ROOT / "samples/digits/model.onnx"
    same(*both(path, either))


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["mnist8_cntk", "mlperf_tiny_kws_dscnn", "mlperf_tiny_ic_resnet8"])
def test_real_models(name, either):
    """Pools, depthwise convolutions, additions on the host."""
    path = SHARED / name / "model.onnx"
    if not path.is_file():
        pytest.skip("no real models beside the project")
    same(*both(path, either, max_samples=2))


def test_a_model_with_its_channels_last_needs_no_transposes(either):
    """Its own ones go as well."""
    net = Net(x=(1, 8, 8, 3)).op("Transpose", perm=[0, 3, 1, 2]).conv().op("Relu")
    result = npuconv.convert(net.op("Transpose", perm=[0, 2, 3, 1]).model(), either, layout="nhwc")
    ops = [n.op_type for n in result.model.graph.node]
    assert ops == ["QuantizeLinear", "QLinearConv", "DequantizeLinear"]


@pytest.mark.parametrize("place", ["device", "host"])
def test_a_pool_that_the_target_lists(tmp_path, place):
    """It is written with channels last wherever it runs."""
    path = tmp_path / "pools.yaml"
    path.write_text(CHIP.replace("operators:", "operators:\n  MaxPool: {}"))
    net = (
        Net(x=(1, 3, 8, 8))
        .conv()
        .op("MaxPool", kernel_shape=[2, 2], name="pool")
        .conv(weight=(2, 4, 3, 3))
    )
    keep = ("pool",) if place == "host" else ()
    first, last = both(net.model(), str(path), keep_float=keep)
    same(first, last)
    assert ("NhwcMaxPool" in {n.op_type for n in last.model.graph.node}) == (place == "device")


@pytest.mark.parametrize("size", [(2, 3, 8, 8), (1, 3, 9, 9)], ids=["images", "tiles"])
def test_parts_that_are_joined_again(size, tmp_path):
    """The layer is compared, although other nodes than a convolution make its output."""
    path = tmp_path / "joins.yaml"
    text = CHIP.replace("operators:", "operators:\n  Concat: {}\n  Slice: {}")
    limits = "in_n: {equals: 1}, in_h: {range: [1, 8]}, layout:"
    path.write_text(text.replace("layout:", limits))
    net = Net(x=size).conv("", (3, 1, 1, 1), group=3).conv(weight=(2, 3, 1, 1))
    first, last = both(net.model(), str(path))
    assert "Concat" in {n.op_type for n in last.model.graph.node}
    same(first, last)


def test_a_chip_that_does_not_take_it():
    """A chip of another layout is a finding with a remedy, for check and convert."""
    report = npuconv.check(digits(), layout="nhwc")
    found = [f for f in report.findings if f.code == "SHP013"]
    assert len(found) == 3
    assert found[0].fix.startswith("Give --layout nchw.")
    with pytest.raises(npuconv.UnsupportedModelError, match="layout-unsupported x 3"):
        npuconv.convert(digits(), layout="nhwc")


@pytest.mark.parametrize("form", ["qdq", "weights", "float"])
@pytest.mark.parametrize("call", [npuconv.check, npuconv.convert])
def test_a_form_that_does_not_have_it(form, call, either):
    """ONNX's own convolutions have the channels first."""
    with pytest.raises(npuconv.UsageError, match=f"--format {form} has no such layout") as caught:
        call(digits(), either, layout="nhwc", format=form)
    assert "--format qoperator" in caught.value.hint
