"""check finds what convert would fail on: in the model and in the samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.errors import CalibrationError, ModelError, NpuconvError, UsageError
from support.builders import Net, images

X = (1, 3, 8, 8)


def cast(net: Net, kind: int) -> Net:
    """Append a Cast."""
    net.op("Cast")
    net.nodes[-1].attribute.append(onnx.helper.make_attribute("to", kind))
    return net


def failures(model: onnx.ModelProto, **options: Any) -> list[NpuconvError]:
    """Return the failures of check and convert."""
    found = []
    for command in (npuconv.check, npuconv.convert):
        with pytest.raises(NpuconvError) as caught:
            command(model, **options)
        found.append(caught.value)
    return found


@pytest.mark.parametrize("form", ["qoperator", "weights", "float"])
def test_an_operator_without_a_kernel(form: str) -> None:
    """onnxruntime has no Erf of doubles: nothing of it needs data to be told."""
    model = cast(Net(x=X).conv(), onnx.TensorProto.DOUBLE).op("Erf", name="erf").model()
    checked, converted = failures(model, format=form)
    assert isinstance(checked, ModelError)
    assert str(checked) == str(converted)
    assert "does not load it: Could not find an implementation for Erf(13)" in str(checked)
    assert "'erf'" in str(checked)


def test_a_kernel_that_is_there() -> None:
    """Doubles alone are no fault."""
    model = cast(Net(x=X).conv(), onnx.TensorProto.DOUBLE).op("Relu").model()
    assert npuconv.check(model).ok
    assert npuconv.convert(model).report.ok


def test_findings_come_first() -> None:
    """Findings are reported also if onnxruntime does not load the model."""
    net = Net(x=(1, 4, 8, 8, 8)).conv("x", (4, 4, 3, 3, 3))
    model = cast(net, onnx.TensorProto.DOUBLE).op("Erf").model()
    assert npuconv.check(model).summary.verdict == "refused"


def open_channels() -> onnx.ModelProto:
    """Channels that no convolution reads at once: it would tell their number."""
    return Net(x=(1, "C", 8, 8)).op("Relu").conv().model()


def open_rank() -> onnx.ModelProto:
    model = Net(x=X).conv().model()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize("make", [open_channels, open_rank])
def test_nothing_can_be_made_up(make: Any) -> None:
    """Such a model has no made-up sample; data, or a float form, is accepted."""
    checked, converted = failures(make())
    assert isinstance(checked, CalibrationError)
    assert str(checked) == str(converted)
    assert "not fixed" in str(checked)
    assert npuconv.check(make(), format="float").ok
    assert npuconv.check(make(), calibration={"x": images(4, *X[1:])}).ok
    assert npuconv.check(make(), input_shape={"x": X}).ok


@pytest.mark.parametrize("group", [1, 3])
def test_channels_that_weights_tell_need_no_data(group: int) -> None:
    """Slices of a convolution that becomes several would take any number."""
    net = Net(x=("N", "C", 9, 6)).conv("x", (3, 6, 1, 2), op="ConvTranspose", group=group)
    assert npuconv.check(net.model(), "ethos-u55").ok
    assert npuconv.convert(net.model(), "ethos-u55", format="qoperator").report.ok


def test_a_model_that_does_not_run() -> None:
    """A Gather beyond the end is seen when a sample is run."""
    net = Net(x=X, i=(1,)).conv("x")
    model = net.op("Gather", net.last, net.op("Add", "i", "i").last).model()
    for tensor in model.graph.input[1:]:
        tensor.type.tensor_type.elem_type = onnx.TensorProto.INT64
    samples = {"x": images(4, *X[1:]), "i": np.full((4,), 7, np.int64)}
    checked, converted = failures(model, calibration=samples)
    assert "does not run on the samples" in str(checked)
    assert str(checked) == str(converted)


def test_a_model_without_finite_numbers() -> None:
    """The first sample tells: the logarithm of what a convolution makes is not finite."""
    model = Net(x=X).conv().op("Log").conv("", (4, 4, 1, 1)).model()
    checked, converted = failures(model)
    assert "not finite" in str(checked)
    assert str(checked) == str(converted)
    assert npuconv.check(model, format="weights").ok


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        (None, "no such file"),
        ({"x": images(4, 3, 9, 9)}, "has shape [4, 3, 9, 9]"),
        ({"z": images(4, 3, 9, 9)}, "no array named 'x'"),
        ({"x": np.zeros((4, *X[1:]), np.uint8)}, "scaling is not guessed"),
        ({"x": np.full((4, *X[1:]), np.nan, np.float32)}, "NaN"),
    ],
)
def test_samples_that_do_not_fit(tmp_path: Path, arrays: Any, says: str) -> None:
    """check opens what it is given, and compares it with the inputs."""
    path = tmp_path / "samples.npz"
    if arrays is not None:
        np.savez(path, **arrays)
    checked, converted = failures(Net(x=X).conv().model(), calibration=path)
    assert isinstance(checked, CalibrationError)
    assert str(checked) == str(converted)
    assert says in str(checked)


def test_a_device_that_cannot_repeat_layers(tmp_path: Path) -> None:
    """One scale for all weights of a layer leaves nothing to buy."""
    model, path = Net(x=X).conv().model(), tmp_path / "chip.yaml"
    path.write_text(
        "schema: 1\nname: whole\noperators: {Conv: {limits: {}}}\n"
        "activations: {dtype: int8, zero_point: [0], granularity: tensor}\n"
        "weights: {dtype: int8, symmetric: true, granularity: tensor}\n"
        "unlisted_operators: host\n"
    )
    checked, converted = failures(model, target=str(path), min_sqnr=30)
    assert isinstance(checked, UsageError)
    assert str(checked) == str(converted)


def test_of_several_the_model_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples may fit one model and not the other: the other is checked all the same."""
    from npuconv.cli import execute

    monkeypatch.chdir(tmp_path)
    onnx.save(Net(x=X).conv().model(), "fits.onnx")
    onnx.save(Net(x=(1, 3, 9, 9)).conv().model(), "not.onnx")
    np.savez("s.npz", x=images(4, *X[1:]))
    assert execute(["check", "not.onnx", "fits.onnx", "--calibration", "s.npz"]) == 2
    shown = capsys.readouterr()
    assert "error: not.onnx: s.npz: array 'x' has shape" in shown.err
    assert shown.out.startswith("OK\n")


def test_an_output_that_numpy_has_no_type_for() -> None:
    """Such an output cannot be compared; a float form needs no comparison."""
    model = cast(Net(x=X).conv(), onnx.TensorProto.BFLOAT16).model()
    checked, converted = failures(model)
    assert str(checked) == str(converted)
    assert "is bfloat16, which numpy has no type for, so it cannot be compared" in str(checked)
    assert npuconv.check(model, format="float").ok
