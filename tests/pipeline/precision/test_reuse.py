"""Idle channels that make noisy ones again, from the model to the integers."""

from __future__ import annotations

import json
from importlib import resources

import numpy as np
import onnx
import pytest

import npuconv
from builders import Net
from idle_nets import IDLE, LOUD, inverted, pictures
from npuconv.pipeline.accuracy import matching
from npuconv.pipeline.precision import reuse


def convert(proto: onnx.ModelProto, **options) -> npuconv.Conversion:
    return npuconv.convert(proto, calibration={"x": pictures()}, **options)


def rewrites(result: npuconv.Conversion) -> list[str]:
    return [r.after for r in result.report.rewrites if r.pass_name == "reuse-idle-channels"]


@pytest.fixture(scope="module")
def reused() -> npuconv.Conversion:
    return convert(inverted())


def awake() -> onnx.ModelProto:
    """The same but for a weight of each idle channel: large inputs would get through."""
    proto = inverted()
    tensor = proto.graph.initializer[0]
    weight = np.frombuffer(tensor.raw_data, np.float32).reshape(8, 27).copy()
    weight[list(IDLE), 0] = 1e-2
    tensor.raw_data = weight.tobytes()
    return proto


def test_outputs_gain_by_it(reused):
    """For no multiplication, and with tensors of the shapes they had."""
    plain = convert(awake())
    (said,) = rewrites(reused)
    assert str(LOUD) in said
    assert not rewrites(plain)
    assert reused.report.accuracy.sqnr_db > plain.report.accuracy.sqnr_db + 1
    shapes, before = ([list(map(str, _shapes(r.model)))] for r in (reused, plain))
    assert shapes == before


def _shapes(model: onnx.ModelProto) -> list[tuple[int, ...]]:
    return [tuple(t.dims) for t in model.graph.initializer if len(t.dims) == 4]


def test_layers_are_compared_by_the_channels_they_still_have(reused):
    """A copy is no channel of the float model, and an idle one is nowhere any more."""
    rows = {layer.name: layer for layer in reused.report.quantization.layers}
    plain = {layer.name: layer for layer in convert(awake()).report.quantization.layers}
    for name in ("first", "deep"):
        assert rows[name].sqnr_db > plain[name].sqnr_db
        assert "made again in place of idle ones" in rows[name].note
    assert not rows["mixed"].note


def test_verify_knows_which_channels_are_which(reused, tmp_path):
    """From the metadata; the layers are as good as convert says."""
    paths = tmp_path / "float.onnx", tmp_path / "int8.onnx"
    for path, proto in zip(paths, (inverted(), reused.model), strict=True):
        onnx.save(proto, path)
    found = npuconv.verify(*paths, {"x": pictures(4)})
    sqnr = {layer.name: layer.sqnr_db for layer in found.layers}
    said = {layer.name: layer.sqnr_db for layer in reused.report.quantization.layers}
    assert sqnr.keys() == said.keys()
    assert all(abs(sqnr[name] - said[name]) < 2 for name in sqnr)


def test_the_metadata_names_the_channels(reused):
    """One number for each: the channel of the float model that it is."""
    entries = {p.key: p.value for p in reused.model.metadata_props}
    layers = {one["name"]: one for one in json.loads(entries[matching.KEY])}
    channels = layers["first"]["channels"]
    assert channels == layers["deep"]["channels"]
    assert [k for k, one in enumerate(channels) if k != one] == list(IDLE)
    assert channels.count(LOUD) > 1
    assert "channels" not in layers["mixed"]


def test_budgets_go_on_from_there():
    """A layer with channels that are made again may itself run several times."""
    more = convert(inverted(), max_extra_macs=100)
    assert rewrites(more)
    assert more.report.quantization.budget.repeated
    assert more.report.accuracy.sqnr_db > convert(inverted()).report.accuracy.sqnr_db + 3


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_in_every_form(form):
    """The same numbers."""
    result = convert(inverted(), format=form)
    assert rewrites(result)
    assert result.report.accuracy.sqnr_db > 30


def test_not_where_there_is_one_scale_for_all_weights(tmp_path):
    """Weights of copies are not as large as those of others."""
    text = resources.files("npuconv.targets").joinpath("npu-int8.yaml").read_text()
    path = tmp_path / "one.yaml"
    path.write_text(text.replace("granularity: channel", "granularity: tensor"))
    assert not rewrites(convert(inverted(), target=str(path)))


def test_not_where_no_noise_is_theirs():
    """A tensor that makes next to none of it is left as it is."""
    proto = inverted()
    net = proto.graph
    quiet = next(t for t in net.initializer if t.name == net.node[-1].input[1])
    weight = np.frombuffer(quiet.raw_data, np.float32) * np.float32(1e-3)
    quiet.raw_data = weight.tobytes()
    net.node.append(onnx.helper.make_node("Conv", [*net.node[0].input[:2]], ["z"], "beside"))
    net.output.append(onnx.helper.make_tensor_value_info("z", 1, ("N", 8, 10, 10)))
    assert not rewrites(convert(proto))


def many(count: int, idle: int) -> onnx.ModelProto:
    """So many pairs of layers beside each other, each with some idle channels of four."""
    rng, net = np.random.default_rng(0), Net(x=("N", 3, 12, 12))
    for number in range(count):
        weight = rng.standard_normal((4, 3, 1, 1))
        weight[:idle] = 0
        net.op("Conv", "x", net.constant(weight), name=f"first{number}")
        net.op("Relu").conv("", (2, 4, 1, 1), name=f"second{number}", to=f"y{number}")
    return net.output(*(f"y{number}" for number in range(count))).model()


def test_the_loudest_of_many(monkeypatch):
    """Each takes some runs of the model; where they are many, the most that can be gained."""
    assert len(rewrites(convert(many(4, 1)))) > 1
    monkeypatch.setattr(reuse, "MOST", 1)
    assert len(rewrites(convert(many(4, 1)))) == 1


def test_where_all_are_idle_there_is_nothing_to_make_again():
    """A layer of zeros is as exact as it can be."""
    assert not rewrites(convert(many(1, 4)))


def test_the_same_bytes_every_time(reused):
    """Whatever runs beside."""
    assert convert(inverted()).model.SerializeToString() == reused.model.SerializeToString()
