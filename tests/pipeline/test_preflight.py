"""check finds what convert would fail on: in the model and in the samples."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

import npuconv
from builders import Net
from npuconv.errors import ModelError, NpuconvError

X = (1, 3, 8, 8)


def cast(net: Net, kind: int) -> Net:
    """Append a Cast."""
    net.op("Cast")
    net.nodes[-1].attribute.append(onnx.helper.make_attribute("to", kind))
    return net


def failures(model: onnx.ModelProto, **options: Any) -> list[NpuconvError]:
    """How check and convert fail."""
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
    """What the report says of a model is said also where onnxruntime does not load it."""
    net = Net(x=(1, 4, 8, 8, 8)).conv("x", (4, 4, 3, 3, 3))
    model = cast(net, onnx.TensorProto.DOUBLE).op("Erf").model()
    assert npuconv.check(model).summary.verdict == "refused"
