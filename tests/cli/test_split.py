"""``npuconv split`` and ``npuconv run``: what is printed, and exit codes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from support.int8_pairs import float_model, integer_model, samples


@pytest.fixture
def model(folder):
    """An integer model, another, and samples."""
    onnx.save(integer_model(), folder / "q.onnx")
    onnx.save(float_model(), folder / "f.onnx")
    np.savez(folder / "x.npz", x=samples(3))
    return "q.onnx"


def test_what_is_printed(cli, model):
    """Parts with their tensors, and what to do next."""
    done = cli("split", model, "-o", "v/w")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "1 part for the device, 2 for the host, 1 layer, 192 bytes of weights, in v/w",
        "  000_host.onnx  1 node: x -> x/int8",
        "  001_device.onnx  2 nodes: x/int8 -> r/int8",
        "  002_host.onnx  2 nodes: r/int8 -> y",
        "next: npuconv run v/w --data SAMPLES",
    ]
    assert cli("split", model, "-o", "v/x", "-q").out == ""


def test_run(cli, model, folder):
    """The outputs, and that they are those of the whole model."""
    cli("split", model, "-o", "v")
    done = cli("run", "v", "--data", "x.npz", "--compare", model, "-o", "y.npz")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "on 3 samples: x.npz",
        "  y  float32 3x4x1x1",
        "the whole model makes the same bits",
    ]
    with np.load(folder / "y.npz") as found:
        assert found["y"].shape == (3, 4, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["split", "q.onnx"], "Missing option '-o'"),
        (["split", "f.onnx", "-o", "v"], "f.onnx: has no int8 convolution"),
        (["split", "q.onnx", "-o", "v", "--target", "x"], "unknown target 'x'"),
        (["split", "q.onnx", "-o", "x.npz"], "x.npz"),
        (["run", "nowhere"], "nowhere: has no manifest.json"),
        (["run", "q.onnx"], "q.onnx: has no manifest.json"),
        (["run", "nowhere", "-o", "y.txt"], "y.txt: outputs are written as .npz"),
    ],
)
def test_errors(cli, model, arguments, message):
    """One line, and exit code 2."""
    del model
    done = cli(*arguments)
    assert done.code == 2
    assert message in done.error


def test_another_model(cli, model, folder):
    """A folder of one model, compared with another."""
    cli("split", model, "-o", "v")
    onnx.save(integer_model("_quantized"), folder / "o.onnx")
    done = cli("run", "v", "--data", "x.npz", "--compare", "o.onnx")
    assert done.code == 2
    assert "is not the model that the folder was written from (q.onnx)" in done.error
