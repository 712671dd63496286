"""TFLite files on LiteRT; what needs no LiteRT is tested without."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.emit.tflite.translate import ENDS, STORED, write
from npuconv.errors import ModelError, UsageError
from npuconv.evaluate.litert import TfliteSession
from npuconv.executor import Session
from npuconv.tflite.flatbuffer import read_metadata
from support.builders import Net, digits, images

LITERT = "ai_edge_litert.interpreter"
needs_litert = pytest.mark.skipif(
    importlib.util.find_spec("ai_edge_litert") is None,
    reason="LiteRT is not installed: pip install ai-edge-litert",
)


def pooled() -> onnx.ModelProto:
    """Return a pool of images, whose file has its channels last."""
    return Net(x=(1, 3, 6, 4)).op("MaxPool", "x", kernel_shape=[2, 2], to="y").output("y").model()


@pytest.fixture
def converted(tmp_path):
    """A model, its int8 form as ONNX and as a TFLite file, and samples."""
    x = {"x": images(16, 1, 8, 8)}
    made = npuconv.convert(digits(), "ethos-u55", calibration=x, fail_on="never")
    made.save(tmp_path / "m.tflite")
    return digits(), made.model, tmp_path / "m.tflite", x


def test_names_and_orders_are_in_the_file():
    """Metadata have those of inputs, then of outputs."""
    assert read_metadata(write(pooled()).data) == {ENDS: '[["x",[0,2,3,1]],["y",[0,2,3,1]]]'}


@needs_litert
def test_axes_are_those_of_onnx():
    """Arrays go in and come out as ONNX has them."""
    session = TfliteSession(write(pooled()).data, "m.tflite")
    x = np.random.default_rng(0).random((1, 3, 6, 4), np.float32)
    wanted = Session(pooled()).run({"x": x})["y"]
    np.testing.assert_array_equal(session.run({"x": x}, ["y"])["y"], wanted)
    (info,) = session.proto.graph.input
    assert [d.dim_value for d in info.type.tensor_type.shape.dim] == [1, 3, 6, 4]


@needs_litert
def test_verify(converted):
    """Errors, those of layers as well, are of the ONNX model with the same integers."""
    float_model, int8_model, path, x = converted
    found = npuconv.verify(float_model, path, x)
    other = npuconv.verify(float_model, int8_model, x)
    assert (found.int8_model.path, found.samples, found.layer_samples) == ("m.tflite", 16, 8)
    layers = [{one.name: one.sqnr_db for one in report.layers} for report in (found, other)]
    assert len(layers[0]) == 3
    assert layers[0] == pytest.approx(layers[1], abs=0.5)
    assert found.total.sqnr_db == pytest.approx(other.total.sqnr_db, abs=0.3)
    assert found.model_dump_json() == npuconv.verify(float_model, path, x).model_dump_json()


@needs_litert
def test_int8_inputs_and_outputs(tmp_path):
    """Their scales are in the metadata."""
    net = Net(x=(1, 3, 8, 8)).conv(pads=[1] * 4).model()
    x = {"x": np.random.default_rng(0).random((16, 3, 8, 8), np.float32)}
    made = npuconv.convert(net, "ethos-u55", calibration=x, io="int8")
    made.save(tmp_path / "m.tflite")
    found = npuconv.verify(net, tmp_path / "m.tflite", x)
    assert found.total.sqnr_db == pytest.approx(
        npuconv.verify(net, made.model, x).total.sqnr_db, abs=0.3
    )
    assert found.total.sqnr_db > 30


@needs_litert
def test_files_of_others(tmp_path):
    """A file without the record is refused with what to do; so is what is no TFLite."""
    from npuconv.emit.tflite.translate import translate
    from npuconv.tflite.flatbuffer import to_bytes

    data = to_bytes(translate(pooled()).graph, "", {})
    with pytest.raises(ModelError, match="which of its axes") as caught:
        TfliteSession(data, "m.tflite")
    assert "convert the model again" in caught.value.hint
    (tmp_path / "m.tflite").write_bytes(b"hello")
    with pytest.raises(ModelError, match=r"m\.tflite: LiteRT does not load it"):
        npuconv.verify(pooled(), tmp_path / "m.tflite")


@needs_litert
@pytest.mark.parametrize("stored", ['[["t2",[0,1],1]]', '[["t2",[0,1,2,3],9999]]', "[1]"])
def test_a_record_of_layers_that_does_not_fit(stored):
    """The file is run without its layers."""
    from npuconv.emit.tflite.translate import translate
    from npuconv.tflite.flatbuffer import to_bytes

    record = {ENDS: '[["x",[0,2,3,1]],["y",[0,2,3,1]]]', STORED: stored}
    session = TfliteSession(to_bytes(translate(pooled()).graph, "", record), "m.tflite")
    assert [list(node.output) for node in session.proto.graph.node] == [["y"]]


def test_without_litert(monkeypatch, tmp_path):
    """The error says what to install, and what else to do."""
    monkeypatch.setitem(sys.modules, LITERT, None)
    (tmp_path / "m.tflite").write_bytes(write(pooled()).data)
    with pytest.raises(UsageError, match=r"LiteRT \(ai-edge-litert\) is not installed") as caught:
        npuconv.verify(pooled(), tmp_path / "m.tflite")
    assert "npuconv[litert]" in caught.value.hint


def test_as_the_float_model(tmp_path):
    """The message says what the file is."""
    (tmp_path / "m.tflite").write_bytes(write(pooled()).data)
    with pytest.raises(ModelError, match=r"is not an ONNX model \(a TFLite file\)"):
        npuconv.verify(tmp_path / "m.tflite", pooled())
