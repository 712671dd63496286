"""TFLite files on the command line: names, what is said, and ONNX in their place."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from support.builders import Net, images
from support.tflite_files import read

COMMAND = "vela --accelerator-config ethos-u55-128 model.npu.tflite"


@pytest.fixture
def calibration(folder):
    """Samples for the model."""
    np.savez(folder / "samples.npz", x=images(16, 1, 8, 8))
    return "samples.npz"


def test_the_form_of_the_target(cli, model, folder, calibration):
    """A target whose compiler reads TFLite gets it, and its command is the next."""
    done = cli("convert", model, "--target", "ethos-u55", "--calibration", calibration)
    assert done.code == 0
    found = read((folder / "model.npu.tflite").read_bytes())
    assert "CONV_2D" in found.operators
    assert found.metadata["npuconv.requantize"] == "gemmlowp"
    assert f"next: {COMMAND}" in done.out
    assert "npuconv: input x: float32 [1, 8, 8, 1] (NHWC)\n" in done.err
    assert not (folder / "model.npu.onnx").exists()
    report = json.loads(Path("model.npu.report.json").read_text("utf-8"))
    assert report["quantization"]["format"] == "tflite"


def test_onnx_is_split_next(cli, model, calibration):
    """The next step of an int8 ONNX file is its parts."""
    done = cli("convert", model, "--calibration", calibration)
    wanted = "npuconv split model.npu.onnx -o model.npu.parts"
    assert f"npuconv: split it for a driver with: {wanted}\n" in done.err


def test_without_data(cli, model):
    """The next command is to calibrate; that of the compiler is said beside it."""
    done = cli("convert", model, "--target", "ethos-u55")
    assert f"npuconv: compile it with: {COMMAND}\n" in done.err
    assert "--calibration FOLDER" in done.out


def test_onnx_in_its_place(cli, model, calibration):
    """A path that ends in .onnx gets the same integers as ONNX."""
    done = cli(
        "convert", model, "--target", "ethos-u55", "--calibration", calibration, "-o", "a.onnx"
    )
    assert done.code == 0
    assert "QLinearConv" in {node.op_type for node in onnx.load("a.onnx").graph.node}
    assert "vela" not in done.out + done.err


@pytest.fixture
def erf(folder):
    """A model with operators that TFLite does not have, one of them by an attribute."""
    net = Net(opset=20, x=(1, 3, 8, 8)).conv(name="conv", pads=[1] * 4)
    net.op("Erf", name="erf").op("Einsum", name="einsum", equation="abcc->abc")
    onnx.save(net.output().model(), folder / "erf.onnx")
    return "erf.onnx"


def test_check_and_convert_find_all_that_the_file_cannot_hold(cli, erf):
    """Findings, at once, of the nodes by their names; --ignore does not take them back."""
    for command in ("check", "convert"):
        done = cli(command, erf, "--target", "ethos-u55", "--report", "found.json")
        assert done.code == 1
        report = json.loads(Path("found.json").read_text("utf-8"))
        found = [f for f in report["findings"] if f["code"] == "OPS010"]
        assert [(f["node"], f["op_type"]) for f in found] == [("einsum", "Einsum"), ("erf", "Erf")]
        assert "TFLite has no operator for Erf" in found[1]["message"]
        assert "--format qoperator" in found[1]["fix"]
        assert cli(command, erf, "--target", "ethos-u55", "--ignore", "OPS010").code == 1
    assert not Path("erf.npu.tflite").exists()
    assert cli("check", erf, "--target", "ethos-u55", "--format", "qoperator").code == 0


def test_an_open_extent_is_a_finding(cli, folder):
    """The fix names the flag; with it the model is converted."""
    onnx.save(Net(x=(1, 3, "H", 8)).conv(pads=[1] * 4).model(), folder / "open.onnx")
    done = cli("check", "open.onnx", "--target", "ethos-u55", "--output-format", "json")
    found = [f for f in json.loads(done.out)["findings"] if f["code"] == "OPS010"]
    assert (done.code, len(found)) == (1, 1)
    assert "give --input-shape x=" in found[0]["fix"]
    fixed = cli("check", "open.onnx", "--target", "ethos-u55", "--input-shape", "x=1,3,8,8")
    assert fixed.code == 0


def test_operators_in_int8(cli, folder):
    """Operators that the device computes in int8 have no name of onnxruntime."""
    net = Net(x=(1, 3, 8, 8)).conv(pads=[1] * 4)
    first = net.last
    net = net.conv(first, (4, 4, 1, 1)).op("Add", net.last, first)
    onnx.save(net.model(), folder / "sum.onnx")
    assert cli("convert", "sum.onnx", "--target", "ethos-u55").code == 0
    assert "ADD" in read((folder / "sum.npu.tflite").read_bytes()).operators
