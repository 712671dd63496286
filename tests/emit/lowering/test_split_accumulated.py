"""Tests of split-accumulated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from support.asserts import run
from support.builders import Net
from support.partial_sums import ADDS, CASES, X, convert, two

NAME = "split-accumulated"
FIRES = [lambda: two().model()]  # for a device that adds in int32
SILENT = [lambda: Net(x=X).op("Relu").model()]


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
@pytest.mark.parametrize(("net", "limits"), CASES)
def test_the_numbers_of_the_layer_that_is_not_split(tmp_path: Path, form, net, limits):
    """A layer that is quantized as one and added exactly has the integers it had."""
    proto, never = net.model(), {"pad_on_host": "never", "format": form}
    whole = convert(tmp_path, proto, ADDS, {}, **never).model
    parts = convert(tmp_path, proto, ADDS, limits, **never).model
    onnx.checker.check_model(parts, full_check=True)
    counts = [sum("Conv" in n.op_type for n in model.graph.node) for model in (whole, parts)]
    assert counts[1] >= 2 * counts[0]
    for expected, found in zip(run(whole), run(parts), strict=True):
        gap = 0 if form == "qoperator" else 1e-5 * np.abs(expected).max()
        assert np.abs(expected - found).max() <= gap


def test_one_requantization_for_all_parts(tmp_path: Path):
    """Integers are added in int32; what two parts read is sliced once; the report names them."""
    limits = {"in_c": {"max": 4}, "out_c": {"max": 3}}
    made = convert(tmp_path, two().model(), ADDS, limits)
    ops = Counter(node.op_type for node in made.model.graph.node)
    assert (ops["ConvInteger"], ops["QLinearConv"]) == (8, 0)
    assert (ops["Cast"], ops["Mul"], ops["Slice"]) == (4, 4, 4)
    notes = [layer.note for layer in made.report.quantization.layers]
    assert notes == ["2 parts, added in int32"] * 2
    assert all("rounded to int8" not in (row.note or "") for row in made.report.rewrites)


@pytest.mark.parametrize("options", [{"format": "tflite"}, {"layout": "nhwc"}])
def test_forms_that_cannot_say_so_round_each_sum(tmp_path: Path, options):
    """TFLite has no int32 sums of convolutions, onnxruntime no ConvInteger with channels last."""
    if "format" in options:
        pytest.importorskip("tflite")
    report = convert(tmp_path, two().model(), ADDS, {"in_c": {"max": 4}}, **options).report
    notes = [row.note for row in report.rewrites if row.pass_name == "fit-convolution"]
    assert all("partial sums are rounded to int8" in note for note in notes)


def test_copies_of_a_layer_are_in_parts(tmp_path: Path):
    """None is larger than the device takes."""
    made = convert(tmp_path, two().model(), ADDS, {"in_c": {"max": 4}}, max_extra_macs=200)
    ops = Counter(node.op_type for node in made.model.graph.node)
    assert ops["ConvInteger"] > 4
    assert not ops["QLinearConv"]
