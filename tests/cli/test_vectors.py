"""``npuconv vectors``: what is printed and where it goes."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from support.int8_pairs import float_model, integer_model, samples


@pytest.fixture
def model(folder):
    """An integer model and samples for it."""
    onnx.save(integer_model(), folder / "q.onnx")
    np.savez(folder / "x.npz", x=samples(3))
    return "q.onnx"


def test_text(cli, model, folder):
    """The text has number, folder, data, and agreement of the runtime."""
    done = cli("vectors", model, "--data", "x.npz", "-o", "v/w", "--samples", "2")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "1 layer written to v/w", "on 2 samples: x.npz", "onnxruntime makes the same integers",
    ]  # fmt: skip
    assert json.loads((folder / "v/w/manifest.json").read_text())["samples"] == 2


def test_quiet_and_layers(cli, model, folder):
    """A pattern picks layers."""
    done = cli("vectors", model, "-o", "v", "--layers", "c*", "-q")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert (folder / "v/000_conv.npz").is_file()


def test_differences_are_reported(cli, model, folder):
    """A device that requantizes otherwise."""
    from npuconv.target import Target

    text = Target.load("npu-int8").yaml
    key = "requantize: {kind: shift, multiplier_bits: 3}"
    (folder / "chip.yaml").write_text(text.replace("activations:\n", f"activations:\n  {key}\n"))
    done = cli("vectors", model, "--data", "x.npz", "-o", "v", "--target", "chip.yaml")
    assert done.code == 0
    (line,) = [line for line in done.out.splitlines() if line.startswith("onnxruntime differs")]
    assert line.startswith("onnxruntime differs: conv: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["q.onnx"], "Missing option '-o'"),
        (["q.onnx", "-o", "v", "--layers", "x"], "no layer is called 'x'"),
        (["f.onnx", "-o", "v"], "f.onnx: has no int8 convolution"),
        (["q.onnx", "-o", "v", "--target", "x"], "unknown target 'x'"),
        (["q.onnx", "-o", "x.npz"], "x.npz: cannot be made"),
    ],
)
def test_mistakes(cli, model, folder, arguments, message):
    """One line, exit code 2, and no folder."""
    del model
    onnx.save(float_model(), folder / "f.onnx")
    done = cli("vectors", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.error
    assert not (folder / "v").exists()
