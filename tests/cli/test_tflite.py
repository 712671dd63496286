"""TFLite files on the command line: names, what is said, and ONNX in their place."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from npuconv.evaluate import vela
from npuconv.schemas.report import VelaEstimate
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


def test_estimates_of_the_compiler(cli, model, calibration, monkeypatch):
    """Figures go into the report, and are said; without the compiler nothing is converted."""
    flags = ("--target", "ethos-u55", "--calibration", calibration, "--with-vela")
    monkeypatch.setattr(vela.shutil, "which", lambda *_, **__: None)
    refused = cli("convert", model, *flags)
    assert (refused.code, Path("model.npu.tflite").exists()) == (2, False)
    assert "Vela is not installed" in refused.err
    monkeypatch.setattr(vela.shutil, "which", lambda *_, **__: "/opt/vela")
    said = VelaEstimate(command="vela", npu_operators=4, cpu_operators=2, cycles=28412)
    monkeypatch.setattr(vela, "estimate", lambda *_: said)
    done = cli("convert", model, *flags)
    assert "4 operators on the NPU, 2 on the CPU; about 0.03 million" in " ".join(done.out.split())
    report = json.loads(Path("model.npu.report.json").read_text("utf-8"))
    assert report["vela"]["cycles"] == 28412


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


def test_a_missing_package_is_found_before_calibration(cli, model, monkeypatch):
    """The error says what to install; nothing is written."""
    monkeypatch.setitem(sys.modules, "tflite", None)
    done = cli("convert", model, "--format", "tflite")
    assert done.code == 2
    assert "'tflite' is not installed (pip install 'npuconv[tflite]'" in done.err
    assert not Path("model.npu.tflite").exists()


def test_check_says_the_same(cli, model, monkeypatch):
    """Check refuses the models that convert would refuse."""
    monkeypatch.setitem(sys.modules, "tflite", None)
    assert cli("check", model, "--target", "ethos-u55").code == 2
    assert cli("check", model, "--target", "ethos-u55", "--format", "qoperator").code == 0


def test_operators_in_int8(cli, folder):
    """Operators that the device computes in int8 have no name of onnxruntime."""
    net = Net(x=(1, 3, 8, 8)).conv(pads=[1] * 4)
    first = net.last
    net = net.conv(first, (4, 4, 1, 1)).op("Add", net.last, first)
    onnx.save(net.model(), folder / "sum.onnx")
    assert cli("convert", "sum.onnx", "--target", "ethos-u55").code == 0
    assert "ADD" in read((folder / "sum.npu.tflite").read_bytes()).operators
