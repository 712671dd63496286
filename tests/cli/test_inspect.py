"""``npuconv inspect``: what is in a model."""

from __future__ import annotations

import json

import onnx

from support.builders import Net


def test_text(cli, model, folder):
    """Header, operators and one line for each convolution; nothing is written."""
    before = sorted(folder.iterdir())
    done = cli("inspect", model)
    assert (done.code, done.err) == (0, "")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[0].startswith("model model.onnx (sha256 ")
    assert "opset 17, IR 8, no producer" in lines
    assert "inputs x: float32 Nx1x8x8" in lines
    operators = "operators BatchNormalization 1, Conv 3, Flatten 1, Gemm 1, MaxPool 1, Relu 3"
    assert operators in " ".join(lines)
    assert "conv0 plain Nx1x8x8 3x3 SAME_UPPER 2,304" in lines
    assert "conv4 depthwise Nx4x4x4 3x3 1,1,1,1 576" in lines
    assert "convolutions: 3" in lines
    assert "kernel 3x3 (2), 1x1 (1)" in lines
    assert "dilations 1x1 (3)" in lines
    assert any(line.startswith("activations at most 2.0 KiB at a time, 512 B in") for line in lines)
    assert sorted(folder.iterdir()) == before


def test_verbose(cli, model):
    """Every node, with its shape and its costs."""
    done = cli("inspect", model, "-v")
    lines = lines_of(done)
    assert "name operator output parameters MACs" in lines
    assert "conv0 Conv Nx4x8x8 36 2,304" in lines
    assert "name operator output parameters MACs" not in lines_of(cli("inspect", model))


def test_long_shapes_are_broken(cli, folder):
    """No line is wider than 80 columns, and no extent is left out."""
    names = ["p2o.DynamicDimension.0", 3, "p2o.DynamicDimension.1", "p2o.DynamicDimension.2"]
    onnx.save(Net(x=tuple(names)).conv("x").model(), folder / "m.onnx")
    done = cli("inspect", "m.onnx")
    assert max(map(len, done.out.splitlines())) <= 80
    assert f"inputs x: float32 {' x '.join(map(str, names))}" in " ".join(done.out.split())
    assert " ?x3x?x? " in done.out


def test_names_of_dimensions_stand_apart(cli, folder):
    """The name of a dimension does not run into the next extent."""
    onnx.save(Net(x=("unk__110", 3, 8, 8)).conv("x").model(), folder / "m.onnx")
    assert "inputs x: float32 unk__110 x 3 x 8 x 8" in lines_of(cli("inspect", "m.onnx"))


def test_json(cli, model):
    """JSON has the same numbers, for programs."""
    done = cli("inspect", model, "--output-format", "json")
    found = json.loads(done.out)
    assert done.code == 0
    assert found["parameters"] == 1422
    assert found["attributes"]["mode"] == {"plain": 2, "depthwise": 1}
    assert found["peak_bytes"] == 4 * found["peak_int8_bytes"]
    assert len(found["steps"]) == found["nodes"]
    assert [c["name"] for c in found["convolutions"]] == ["conv0", "conv4", "conv6"]


def test_input_shape(cli, folder):
    """Costs are unknown while the extents are, and known when they are given."""
    onnx.save(Net(x=("N", 3, "H", "W")).conv("x").model(), folder / "m.onnx")
    assert "unknown (dynamic shape)" in cli("inspect", "m.onnx").out
    found = json.loads(cli("inspect", "m.onnx", "--output-format", "json").out)
    assert found["macs"] is None
    done = cli("inspect", "m.onnx", "--input-shape", "x=1,3,8,8", "--output-format", "json")
    assert json.loads(done.out)["macs"] == 4 * 3 * 9 * 36


def test_without_convolutions(cli, folder):
    """A model without convolutions has no table of them."""
    onnx.save(Net(x=(1, 3)).op("Relu").model(), folder / "m.onnx")
    done = cli("inspect", "m.onnx")
    assert done.code == 0
    assert "convolutions" not in done.out


def test_names_are_escaped(cli, folder):
    """A name from the file cannot paint on the terminal, nor break the table."""
    onnx.save(Net(x=(1, 3, 8, 8)).conv("x", name="a\x1b[31m\n[b]").model(), folder / "m.onnx")
    done = cli("inspect", "m.onnx")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "[b]" in done.out


def test_unreadable(cli, folder):
    """An unreadable model gives one line."""
    (folder / "m.onnx").write_text("hello")
    done = cli("inspect", "m.onnx")
    assert (done.code, done.out) == (2, "")
    assert "m.onnx: is not an ONNX model (a text file)" in done.error


def test_number_of_models(cli, model):
    """One; the error names the next."""
    done = cli("inspect", model, "second.onnx")
    assert done.code == 2
    assert "unexpected extra argument" in done.error
    assert "second.onnx" in done.error


def lines_of(done):
    return [" ".join(line.split()) for line in done.out.splitlines()]
