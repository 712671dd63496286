"""Tests of the report on what is kept of a quantized model."""

from __future__ import annotations

import npuconv
from npuconv import report
from npuconv.schemas.report import SourceScales
from support.builders import Net
from support.quantized_nets import Quantized, operators


def padded(count: int = 1):
    """Convolutions on the device that pad one-sided tensors of the device."""
    net = Quantized(x=(1, 3, 8, 8)).fake(0.03)
    net.qdq_conv((4, 3, 1, 1), 0.002).fake(0.02, -128)
    for _ in range(count):
        net.qdq_conv((4, 4, 3, 3), 0.002, pads=[1] * 4).fake(0.02, -128)
    return net.model()


def found(proto, **options) -> SourceScales | None:
    made = npuconv.convert(proto, verify=False, without=["host-padding"], **options).report
    return made.quantization.source_scales


def test_a_float_model_has_none():
    """A float model brings no scales to keep."""
    assert found(Net(x=(1, 3, 8, 8)).conv("x").model()) is None


def test_a_padded_tensor_is_named_with_its_step():
    """The row says how much coarser the scale is, and why."""
    rows = found(padded())
    assert rows is not None
    (changed,) = rows.changed
    assert changed.reason == (
        "the device pads it with the integer 0: zero point -128 becomes 0, "
        "steps are 2.01 times as large"
    )
    assert (rows.layers, rows.all_layers) == (2, 2)
    assert 0 < rows.tensors < rows.all_tensors


def test_every_format_shows_it():
    """Text shows the first eight, and all of them with -v."""
    made = npuconv.convert(padded(10), verify=False, without=["host-padding"]).report
    counted = made.quantization.source_scales
    assert len(counted.changed) == 10
    line = f"scales kept of {counted.tensors} of {counted.all_tensors} tensors"
    shown = {kind: report.render(made, kind) for kind in ("text", "markdown", "html")}
    assert all(line in " ".join(text.split()) for text in shown.values())
    assert "and 2 more; -v lists them" in shown["text"]
    assert shown["markdown"].count("the device pads it") == 10


def test_a_whole_model_needs_no_list():
    """Only the counts."""
    text = report.render(npuconv.convert(operators(), verify=False).report, "text")
    assert "scales kept of 8 of 8 tensors" in " ".join(text.split())


def test_a_moved_zero_point_is_named_with_what_is_not_cut_off():
    """Steps stay; the range of the source ended earlier."""
    net = Quantized(x=(1, 3, 8, 8)).fake(0.03)
    net.qdq_conv((4, 3, 1, 1), 0.002).op("Relu")
    rows = found(net.fake(0.02, -28).model())
    assert rows is not None
    (changed,) = rows.changed
    assert changed.reason.endswith(
        "zero point -28 becomes -128, and values above 3.1 are no longer cut off"
    )
