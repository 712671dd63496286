"""The int8 model in a vendor's tool: names of nodes, placement, steps."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest

from npuconv.errors import UsageError
from npuconv.evaluate.pairs import open_model
from npuconv.evaluate.vendor import open_tool, output_steps
from npuconv.evaluate.verify import verify
from npuconv.vendors.tool import VENDORS, Answer, Reply
from support.builders import Net
from support.int8_pairs import explicit_model, float_model, integer_model, samples


class StandIn:
    """A tool in this process."""

    vendor, chip = VENDORS["qnn"], ""

    def __init__(self, answer, outputs=None):
        self._answer, self._outputs = answer, outputs

    def ask(self, questions):
        """Keep the question."""
        (self.question,) = questions
        outputs = [self._outputs(feed) for feed in self.question.feeds] if self._outputs else []
        verdict = "accepted" if self._answer.accepted else "refused"
        return "1.2.3", [Reply(verdict, self._answer, outputs)]


@pytest.fixture
def judged(monkeypatch):
    """Verify a pair of models with a tool."""

    def call(tool, before=None, after=None, data=None):
        monkeypatch.setattr("npuconv.evaluate.verify.open_tool", lambda *_: tool)
        models = before or float_model(), after or explicit_model()
        return verify(*models, {"x": samples(4)} if data is None else data, vendor="qnn")

    return call


def simulated(model, steps):
    """Return a simulator that is a multiple of a step of the output away from a model."""
    from npuconv import executor

    (step,) = output_steps(model, {}).values()
    session = executor.Session(model)
    return lambda feed: [session.run(feed)["y"] + np.float32(steps * step)]


def net(*ops: str) -> onnx.ModelProto:
    """A model that ends with a DequantizeLinear and these operators."""
    built = Net(x=(1, 4))
    scale, zero = built.constant(np.float32(0.5)), built.constant(np.int8(0))
    built.op("QuantizeLinear", "x", scale, zero).op("DequantizeLinear", built.last, scale, zero)
    for op in ops:
        built.op(op, name=op)
    return built.op("Identity", to="y").output("y").model()


def test_steps_of_outputs():
    """Scales of int8 outputs; a scale before operators that only move values; else none."""
    assert output_steps(net(), {}) == {"y": 0.5}
    assert output_steps(net("Flatten"), {}) == {"y": 0.5}
    assert output_steps(net("Softmax"), {}) == {}
    assert output_steps(net("Softmax"), {"y": 0.25}) == {"y": 0.25}
    ends = Net(x=(1, 4))
    ends.op("QuantizeLinear", "x", ends.constant(np.float32(0.5)), to="y").output("y")
    assert output_steps(ends.model(), {}) == {"y": 1.0}


@pytest.mark.parametrize("last", ["Identity", "Flatten"])
def test_steps_by_channel(last):
    """A factor and an offset of the host; reordered, the channels of the factors are unknown."""
    built = Net(x=(1, 2))
    scale, zero = built.constant(np.float32(0.5)), built.constant(np.int8(0))
    built.op("QuantizeLinear", "x", scale, zero).op("DequantizeLinear", built.last, scale, zero)
    built.op("Mul", built.last, built.constant(np.float32([-2, 4])))
    built.op("Add", built.last, built.constant(np.float32([1, 1])))
    if last == "Flatten":
        built.op("Flatten")
    built.op("Add", built.last, built.constant(np.float32(7)), to="y")
    steps = output_steps(built.output("y").model(), {})
    assert {name: step.tolist() for name, step in steps.items()} == (
        {"y": [1.0, 2.0]} if last == "Identity" else {}
    )


def test_differences_in_steps(judged):
    """All of 16 values are two steps away; the whole is the only output."""
    model, data = net(), {"x": np.arange(16, dtype=np.float32).reshape(4, 4)}
    tool = StandIn(Answer(accepted=True, default_device="NPU"), simulated(model, 2))
    report = judged(tool, model, model, data).vendor
    (output,) = report.outputs
    assert (output.step, output.differences, output.largest) == (0.5, (0, 0, 16, 0, 0), 2)
    assert report.total.max_abs_error == output.max_abs_error == 1.0
    assert (report.verdict, report.devices) == ("accepted", {"NPU": 3})


def test_names_of_nodes(judged):
    """Names that a tool has extended, names of tensors, and names of its own."""
    layers = (
        ("conv_token_12", "Conv", "CPU", "no"), ("c", "Conv", "CPU", "no"),
        ("convolution", "Conv", "GPU", ""),
    )  # fmt: skip
    answer = Answer(accepted=False, message="Missing numbers for 'c', sorry", layers=layers)
    report = judged(StandIn(answer))
    assert [layer.name for layer in report.vendor.layers] == ["conv", "conv", "convolution"]
    assert report.vendor.message == "Missing numbers for 'c', sorry (node conv)"
    assert report.vendor.devices == {"CPU": 2, "GPU": 1}
    assert (report.passed, report.vendor.total, report.vendor.outputs) == (False, None, ())
    counted = StandIn(answer.model_copy(update={"devices": {"NPU": 4, "CPU": 2}}))
    assert judged(counted).vendor.devices == {"CPU": 2, "NPU": 4}


def test_open_extents_are_fixed(judged):
    """Compilers need shapes; the report names the inputs."""
    tool = StandIn(Answer(accepted=True))
    report = judged(tool, float_model("N"), integer_model(batch="N"))
    (info,) = onnx.load_from_string(tool.question.model).graph.input
    assert [dim.dim_value for dim in info.type.tensor_type.shape.dim] == [1, 3, 6, 6]
    assert report.vendor.notes == ("open extents are those of the samples: x [1, 3, 6, 6]",)
    assert not tool.question.calibrates


def test_a_float_file(judged):
    """The tool quantizes it by itself: there are no integers to compare with."""
    tool = StandIn(Answer(accepted=True), lambda _: [np.float32([[1, 2, 3, 4]])])
    report = judged(tool, float_model(), float_model()).vendor
    assert tool.question.calibrates
    assert "takes these samples for calibration" in report.notes[0]
    assert (report.outputs[0].step, report.outputs[0].differences) == (None, None)


def test_files_that_a_tool_does_not_read():
    model = open_model(float_model())
    with pytest.raises(UsageError, match=r"--vendor vela reads \.tflite files"):
        open_tool("vela", sys.executable, model)
