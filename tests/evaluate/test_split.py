"""Partition export: the parts, the manifest, the packed weights, and the run of them."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.errors import ModelError, UsageError
from npuconv.evaluate.integer_form import in_integers
from npuconv.evaluate.pairs import open_model
from npuconv.evaluate.run_parts import run_parts
from npuconv.evaluate.split import split
from npuconv.evaluate.subgraphs import cut
from npuconv.evaluate.vectors import device_layers
from npuconv.model.proto import reads
from npuconv.target import Target
from support.builders import Net, digits
from support.int8_pairs import float_model, integer_model, samples

X = (1, 3, 8, 8)


@pytest.fixture
def folder(tmp_path):
    """A folder split from a hand-written model."""
    split(integer_model(), tmp_path / "d")
    return tmp_path / "d"


def branches(form: str) -> onnx.ModelProto:
    """Two convolutions beside each other, a float operator between them and a third."""
    net = Net(x=X).conv("x", name="a", to="p")
    net.conv("x", name="b", to="q").op("Add", "p", "q", to="sum").op("Sigmoid", to="s")
    net.conv("s", (2, 4, 1, 1), name="c", to="y")
    data = {"x": np.random.default_rng(0).normal(size=(4, *X[1:])).astype(np.float32)}
    net.output("y")
    return npuconv.convert(net.model(), calibration=data, format=form, verify=False).model


def test_the_files(folder):
    """Three parts; what the device reads and makes is int8."""
    names = sorted(path.name for path in folder.iterdir())
    parts = ["000_host.onnx", "001_device.onnx", "002_host.onnx"]
    assert names == [*parts, "manifest.json", "weights.bin"]
    device = onnx.load(str(folder / parts[1]))
    onnx.checker.check_model(device, full_check=True)
    assert [n.op_type for n in device.graph.node] == ["QLinearConv", "Relu"]
    types = {i.type.tensor_type.elem_type for i in (*device.graph.input, *device.graph.output)}
    assert types == {onnx.TensorProto.INT8}
    manifest = json.loads((folder / "manifest.json").read_text())
    for part in manifest["parts"]:
        assert part["sha256"] == hashlib.sha256((folder / part["file"]).read_bytes()).hexdigest()


def test_the_manifest(folder):
    """Shapes, scales and bytes of what is handed on."""
    manifest = json.loads((folder / "manifest.json").read_text())
    rows = {row["name"]: row for row in manifest["tensors"]}
    assert list(rows) == ["x", "x/int8", "r/int8", "y"]
    assert rows["x/int8"] == {
        "name": "x/int8", "dtype": "int8", "shape": [1, 3, 6, 6], "bytes": 108,
        "scale": pytest.approx(1 / 127), "zero_point": 0,
    }  # fmt: skip
    assert rows["r/int8"]["scale"] == pytest.approx(0.04)
    assert rows["x"]["scale"] is None


def test_the_packed_weights(folder):
    """Each array lies where the manifest says."""
    (layer,) = json.loads((folder / "manifest.json").read_text())["layers"]
    (expected,) = device_layers(integer_model())
    data = (folder / "weights.bin").read_bytes()
    found = {}
    for name, place in layer["arrays"].items():
        assert place["offset"] % 16 == 0
        raw = data[place["offset"] : place["offset"] + place["bytes"]]
        found[name] = np.frombuffer(raw, place["dtype"]).reshape(place["shape"])
    np.testing.assert_array_equal(found["weight"], expected.weight)
    np.testing.assert_array_equal(found["bias"], expected.bias)
    np.testing.assert_array_equal(found["factor"], expected.factors)
    approximated = np.ldexp(found["multiplier"].astype(float), -found["shift"])
    np.testing.assert_allclose(approximated, expected.factors, rtol=2**-24)


def test_the_run_is_the_whole_model(folder):
    """Bit for bit; and the simulator of the device gives what the layer itself gives."""
    found = run_parts(folder, {"x": samples(3)}, whole=integer_model())
    assert found.differing == {"y": 0}
    assert found.outputs["y"].shape == (3, 4, 1, 1)


def test_random_nodes_of_several_parts(tmp_path):
    """A part draws the numbers that the whole model draws at its places."""
    net = Net(x=X).conv("x", (X[1], X[1], 1, 1)).op("RandomUniformLike", seed=1.0)
    net.conv(net.last, (X[1], X[1], 1, 1)).op("RandomNormalLike", seed=1.0)
    net.conv(net.last, (X[1], X[1], 1, 1))
    data = {"x": np.random.default_rng(1).normal(size=(3, *X[1:])).astype(np.float32)}
    model = npuconv.convert(net.model(), calibration=data).model
    manifest = split(model, tmp_path)
    assert len([part for part in manifest.parts if part.side == "host"]) > 1
    assert run_parts(tmp_path, data, whole=model).differing == {net.last: 0}


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
def test_branches_and_levels(tmp_path, form):
    """Independent convolutions are parts of their own; no part reads what comes later."""
    model = branches(form)
    whole = in_integers(open_model(model)).proto
    parts = cut(whole, Target.load("npu-int8"))
    there = {"x"}
    for part in parts:
        assert set(part.inputs) <= there
        there |= set(part.outputs)
    device = [p for p in parts if p.side == "device"]
    assert len(device) == 3
    assert sorted(k for p in parts for k in p.nodes) == list(range(len(whole.graph.node)))
    split(model, tmp_path)
    data = {"x": np.random.default_rng(1).normal(size=(2, *X[1:])).astype(np.float32)}
    assert run_parts(tmp_path, data, whole=model).differing == {"y": 0}


def test_integer_inputs_and_outputs(tmp_path):
    """``--io int8``: samples are numbers, and become integers by the scale of the manifest."""
    data = {"image": np.random.default_rng(0).random((4, 1, 28, 28), np.float32)}
    proto = digits()
    name = proto.graph.input[0].name
    shape = [d.dim_value or 1 for d in proto.graph.input[0].type.tensor_type.shape.dim]
    data = {name: np.random.default_rng(0).random((4, *shape[1:]), np.float32)}
    model = npuconv.convert(proto, calibration=data, io="int8", verify=False).model
    split(model, tmp_path)
    found = run_parts(tmp_path, data, whole=model)
    assert not any(found.differing.values())
    (output,) = found.outputs.values()
    assert output.dtype == np.int8


def spelled_out(form: str, *, shared: bool) -> onnx.ModelProto:
    """Two convolutions with a HardSwish between conversions; the host may read what it reads."""
    net = Net(x=X).conv("x", name="a", to="p").op("HardSwish", "p", to="h")
    net.conv("h", (2, 4, 1, 1), name="c", to="y").output("y")
    if shared:
        net.op("Softsign", "p", to="s").output("s")
    data = {"x": np.random.default_rng(0).normal(size=(4, *X[1:])).astype(np.float32)}
    made = npuconv.convert(net.model(), "rknn", calibration=data, format=form, verify=False)
    return made.model


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("form", ["qoperator", "qdq"])
def test_an_operator_between_conversions(tmp_path, form, shared):
    """The device takes it with conversions of its own, so no float crosses."""
    model = spelled_out(form, shared=shared)
    manifest = split(model, tmp_path)
    device = [onnx.load(tmp_path / p.file) for p in manifest.parts if p.side == "device"]
    (swish,) = [one for one in device if "HardSwish" in {n.op_type for n in one.graph.node}]
    types = {i.type.tensor_type.elem_type for i in (*swish.graph.input, *swish.graph.output)}
    assert types == {onnx.TensorProto.INT8}
    kinds = [n.op_type for n in in_integers(open_model(model)).proto.graph.node]
    parts = [n.op_type for p in manifest.parts for n in onnx.load(tmp_path / p.file).graph.node]
    assert parts.count("DequantizeLinear") == kinds.count("DequantizeLinear") + shared
    data = {"x": np.random.default_rng(1).normal(size=(2, *X[1:])).astype(np.float32)}
    assert not any(run_parts(tmp_path, data, whole=model).differing.values())


def test_a_device_without_the_operator(tmp_path):
    """Another target, which does not list it, leaves it to the host."""
    model = spelled_out("qoperator", shared=False)
    manifest = split(model, tmp_path, target="npu-int8")
    device = [part for part in manifest.parts if part.side == "device"]
    nodes = [n for p in device for n in onnx.load(tmp_path / p.file).graph.node]
    assert {n.op_type for n in nodes} == {"QLinearConv"}


def test_open_extents(tmp_path):
    """An extent with a name, or -1 as some exporters write it, is null."""
    for batch in ("N", -1):
        manifest = split(integer_model(batch=batch), tmp_path)
        (row,) = [t for t in manifest.tensors if t.name == "x"]
        assert (row.shape, row.bytes) == ((None, 3, 6, 6), None)


def test_same_bytes(tmp_path):
    """Twice the same folder."""
    for name in ("a", "b"):
        split(integer_model(), tmp_path / name)
    pairs = [(p, tmp_path / "b" / p.name) for p in (tmp_path / "a").iterdir()]
    assert all(one.read_bytes() == other.read_bytes() for one, other in pairs)


def test_captured_tensors():
    """A branch of an If reads what lies around it."""
    inner = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["outside", "own"], ["z"]),
         onnx.helper.make_node("Identity", ["c"], ["own"])],
        "then", [], [onnx.helper.make_empty_tensor_value_info("z")],
    )  # fmt: skip
    node = onnx.helper.make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=inner)
    assert list(dict.fromkeys(reads(node))) == ["flag", "outside", "c"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(schema_version=9), "schema_version"),
        (lambda m: m["parts"][0].update(file="../x.onnx"), "parts.0.file"),
        (lambda m: m["parts"][1].update(sha256="0" * 64), "has changed since"),
        (lambda m: m["parts"].reverse(), "which no part before it makes"),
        (lambda m: m.update(outputs=["z"]), "no part makes the output 'z'"),
        (lambda m: m["tensors"][0].update(dtype="nothing"), "is no type of a tensor"),
        (lambda m: m.update(tensors=[]), "says nothing of input 'x'"),
        (lambda m: m["parts"][1].update(inputs=["x"]), "are not those of"),
    ],
)
def test_a_wrong_manifest(folder, change, message):
    """The fault is named, with a remedy."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=message) as error:
        run_parts(folder, {"x": samples(1)})
    assert "npuconv split" in error.value.hint


def test_no_folder(tmp_path):
    """A missing file and text that is no JSON are refused."""
    with pytest.raises(ModelError, match=r"has no manifest\.json"):
        run_parts(tmp_path)
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(ModelError, match=r"manifest\.json"):
        run_parts(tmp_path)


def test_another_model(folder):
    """The one that is compared with must be the one that was split."""
    with pytest.raises(ModelError, match="is not the model that the folder was written from"):
        run_parts(folder, {"x": samples(1)}, whole=integer_model("_quantized"))


def test_a_float_model(tmp_path):
    """Such a model has no part for the device."""
    with pytest.raises(ModelError, match="has no int8 convolution"):
        split(float_model(), tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_an_unknown_option(folder):
    """Faults of samples are named as everywhere."""
    with pytest.raises(UsageError, match="sead"):
        run_parts(folder, {"x": samples(1)}, sead=1)
