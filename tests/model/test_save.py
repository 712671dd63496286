"""Fields that graph-surgeon drops, and the writing of files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from google.protobuf.message import EncodeError
from onnx import TensorProto, helper, numpy_helper

import npuconv
from npuconv import executor
from npuconv.errors import OutputError
from npuconv.model import core, edit, load, save, store
from support.asserts import read, run_pass, same_numbers
from support.builders import Net, digits


def annotated():
    """A convolution with everything around it that a ModelProto can say."""
    net = Net(x=(1, 3, 8, 8), opset=21, ir_version=10).conv("x", (4, 3, 3, 3), name="stem")
    model = net.op("Relu", name="act").model(
        producer_name="trainer", producer_version="2.1", domain="com.example", model_version=7,
        doc_string="what it is for",
    )  # fmt: skip
    model.metadata_props.add(key="author", value="somebody")
    model.graph.doc_string = "of the graph"
    model.graph.metadata_props.add(key="stage", value="3")
    annotation = model.graph.quantization_annotation.add(tensor_name="t0")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="c0")
    conv = model.graph.node[0]
    conv.doc_string = "of the node"
    conv.metadata_props.add(key="scope", value="backbone")
    return model


def round_trip(model):
    return save.to_proto(load.load(model))


@pytest.mark.parametrize(
    "part", ["producer_name", "producer_version", "domain", "model_version", "doc_string"]
)
def test_the_header_survives(part):
    """The header of a model is kept."""
    before = annotated()
    assert getattr(round_trip(before), part) == getattr(before, part) != ""


def test_model_metadata_survives():
    """Entries of the model stay, and ours are added."""
    after = save.to_proto(load.load(annotated()), {"npuconv.version": "0", "author": "new"})
    entries = {e.key: e.value for e in after.metadata_props}
    assert entries == {"author": "new", "npuconv.version": "0"}
    assert {e.key: e.value for e in round_trip(annotated()).metadata_props}["author"] == "somebody"


def test_graph_metadata_survives():
    """Entries and the text of the graph stay."""
    after = round_trip(annotated()).graph
    assert [(e.key, e.value) for e in after.metadata_props] == [("stage", "3")]
    assert after.doc_string == "of the graph"


def test_quantization_annotation_survives():
    """Quantization annotations of other tools are kept."""
    before, after = annotated(), round_trip(annotated())
    assert list(after.graph.quantization_annotation) == list(before.graph.quantization_annotation)


def test_node_doc_string_survives():
    """The text of a node stays, also when another node takes its place."""
    assert round_trip(annotated()).graph.node[0].doc_string == "of the node"
    model = load.load(annotated())
    (conv,) = model.nodes("Conv")
    new = edit.add_node(model, "Conv", list(conv.inputs), [], origin=[conv])
    edit.take_over_outputs(conv, new)
    edit.disconnect(conv)
    core.sweep(model)
    assert save.to_proto(model).graph.node[0].doc_string == "of the node"


def test_node_metadata_survives():
    """Entries of a node stay."""
    (entry,) = round_trip(annotated()).graph.node[0].metadata_props
    assert (entry.key, entry.value) == ("scope", "backbone")


def test_names_and_numbers_survive():
    """Nodes, inputs, outputs and opsets keep their names; the numbers are the same."""
    before = digits()
    after = round_trip(before)
    assert [n.name for n in after.graph.node] == [n.name for n in before.graph.node]
    assert [o.name for o in after.graph.output] == [o.name for o in before.graph.output]
    assert after.opset_import == before.opset_import
    same_numbers(before, after, rtol=0)


def test_constants_are_not_shared():
    """Folding one of two convolutions that read the same weights leaves the other alone."""
    net = Net(x=(1, 3, 8, 8))
    weight = net.random(3, 3, 1, 1)
    net.op("Conv", "x", weight, to="a").batchnorm(3).op("Conv", "x", weight, to="b")
    before = net.output("t1", "b").model()
    bytes_before = before.SerializeToString()
    model = read(before)
    shared = model.nodes("Conv")[0].inputs[1].values.copy()
    assert run_pass("fuse-batchnorm", model) == 1
    assert np.array_equal(model.nodes("Conv")[-1].inputs[1].values, shared)
    assert before.SerializeToString() == bytes_before
    same_numbers(before, model)


def test_tensors_of_one_name_are_distinguished():
    """An output is the tensor itself, not one that happens to be called the same."""
    model = read(Net(x=(1, 3, 8, 8)).conv("x", (3, 3, 1, 1)).op("Relu").model())
    (out,) = model.graph.outputs
    same = edit.variable(model, "same")
    same.name = out.name
    assert same == out  # graph-surgeon's opinion
    assert model.is_output(out)
    assert not model.is_output(same)


def test_redirect_tells_tensors_of_one_name_apart():
    """Only what reads the old tensor is changed."""
    model = read(Net(x=(1, 3, 8, 8)).op("Relu").op("Neg").model())
    relu, neg = model.nodes()
    same = edit.variable(model, "same")
    same.name = relu.outputs[0].name
    edit.redirect(same, model.graph.inputs[0])
    assert neg.inputs[0] is relu.outputs[0]


def test_drop_inputs():
    """Inputs go from the end; slice assignment would raise."""
    model = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model())
    (conv,) = model.nodes()
    tensors = list(conv.inputs)
    edit.drop_inputs(conv, 1)
    assert len(conv.inputs) == 1
    assert conv.inputs[0] is tensors[0]
    assert not tensors[1].outputs
    edit.drop_inputs(conv, 5)
    assert len(conv.inputs) == 1


@pytest.mark.parametrize("form", ["float", "qoperator"])
def test_new_models_are_written_for_older_runtimes(form):
    """IR 12 and opset 22 become IR 10 and opset 21 where nothing of the new is used."""
    before = Net(x=(1, 3, 8, 8), opset=22, ir_version=12).conv("x", (4, 3, 3, 3)).op("Relu").model()
    after = npuconv.convert(before, format=form).model
    assert after.ir_version == 10
    assert [(o.domain, o.version) for o in after.opset_import] == [("", 21)]
    executor.Session(after)
    if form == "float":
        same_numbers(before, after)


@pytest.mark.parametrize(
    ("source", "opset", "wanted"), [(3, 9, 4), (8, 17, 8), (12, 21, 10), (8, 21, 10), (13, 25, 13)]
)
def test_ir_version(source, opset, wanted):
    """The IR version is the source's, from 4 to 10, unless the opset needs more."""
    needed = helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset), 10)
    assert save.ir_version(source, opset) == max(min(wanted, 10), needed)


def test_nothing_is_printed(capfd):
    """graph-surgeon's logger writes where results go; it is silent."""
    model = digits()
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(3, np.int64), "unused"))
    foreign = Net(x=(1, 3, 8, 8)).op("Thing", domain="com.example").conv(weight=(4, 3, 1, 1))
    for each in (model, foreign.model()):
        round_trip(each)
    npuconv.convert(model)
    assert capfd.readouterr() == ("", "")


def test_bytes_are_the_same_every_time():
    """Reading and writing twice gives the same bytes."""
    assert save.to_bytes(round_trip(annotated())) == save.to_bytes(round_trip(annotated()))


def test_foreign_domains_are_imported():
    """A domain that nodes use has a version, once; the standard one has only one name."""
    net = Net(x=(1, 3, 8, 8)).op("Thing", domain="com.example").op("Relu")
    model = load.load(net.model())
    model.graph.nodes[1].domain = "com.later"
    imports = {o.domain: o.version for o in save.to_proto(model).opset_import}
    assert imports == {"": 17, "com.example": 1, "com.later": 1}


def test_an_output_that_is_a_constant():
    """A constant that no node reads is written if it is an output."""
    net = Net(x=(1, 3, 8, 8)).op("Relu")
    net.constant([1.0, 2.0], "anchors")
    after = round_trip(net.output("t0", "anchors").model())
    assert [t.name for t in after.graph.initializer] == ["anchors"]
    onnx.checker.check_model(after)


def test_an_output_of_four_bits():
    """An odd number of elements, two of which are in a byte."""
    net = Net(opset=21, ir_version=10, x=(1, 3, 4, 4))
    weight = helper.make_tensor("w", TensorProto.INT4, [3, 1, 1], [1, -8, 7])
    net.initializers.append(weight)
    net.op("DequantizeLinear", "w", net.constant(np.float32(0.5)), to="d").op("Mul", "x", "d")
    proto = net.output().output("w").model()
    model = load.load(proto)
    assert model.graph.tensors()["w"].values.size == 3  # what has been read is written anew
    again = save.to_proto(model)
    (kept,) = (t for t in again.graph.initializer if t.name == "w")
    assert (kept.data_type, list(numpy_helper.to_array(kept).reshape(-1))) == (22, [1, -8, 7])


def test_shapes_beside_a_subgraph_are_left_out():
    """A branch that is never taken need not fit; then no shapes are written down."""

    def branch(op):
        out = helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(op, ["t0"], [f"{op}_out"])], op, [], [out])

    net = Net(x=(1, 3, 8, 8)).op("Relu")
    cond = net.constant(np.asarray(True))
    net.op("If", cond, then_branch=branch("Neg"), else_branch=branch("Relu"))
    model = read(net.op("Abs").model())
    assert not save.to_proto(model).graph.value_info
    plain = read(Net(x=(1, 3, 8, 8)).op("Relu").op("Abs").model())
    assert [v.name for v in save.to_proto(plain).graph.value_info] == ["t0"]


def test_save(tmp_path):
    """A written model can be read again, and no other file is left."""
    path = tmp_path / "m.onnx"
    save.save(digits(), path)
    assert onnx.load(path) == digits()
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_save_refuses_a_bad_destination(tmp_path):
    """A folder that does not exist, or a folder as a file."""
    with pytest.raises(OutputError, match="does not exist"):
        save.save(digits(), tmp_path / "no" / "m.onnx")
    with pytest.raises(OutputError, match="is a directory"):
        save.save(digits(), tmp_path)


def test_a_model_that_no_file_can_hold(tmp_path, monkeypatch):
    """Over 2 GB without its weights: it is refused by name, and no file appears."""

    def refuse(_proto):
        raise EncodeError("Failed to serialize proto")

    monkeypatch.setattr(save, "to_bytes", refuse)
    with pytest.raises(OutputError, match="2 GB"):
        save.save(digits(), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def large(monkeypatch):
    """Limit the weights in a file to 2 KiB."""
    monkeypatch.setattr(store, "MAX_INLINE", 2048)


def saved(proto, path):
    """Return the files after saving, and the model as onnx reads it."""
    save.save(proto, path)
    return sorted(p.name for p in path.parent.iterdir()), loaded(path)


def loaded(path):
    """Load as onnx does, without its note that it has read the file."""
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:
        tensor.ClearField("data_location")
    return proto


@pytest.mark.usefixtures("large")
def test_weights_beside_the_model(tmp_path):
    """Named after their content; onnx and onnxruntime read the same model."""
    proto = digits()
    names, read = saved(proto, tmp_path / "m.onnx")
    assert len(names) == 2
    assert re.fullmatch(r"m\.onnx\.[0-9a-f]{16}\.data", names[1])
    assert save.to_bytes(read) == save.to_bytes(proto)
    ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    assert saved(proto, tmp_path / "m.onnx")[0] == names


@pytest.mark.usefixtures("large")
def test_weights_of_before_go(tmp_path, monkeypatch):
    """Old weights stay until the model has the new ones, and not longer."""
    path, proto = tmp_path / "m.onnx", digits()
    first, _ = saved(proto, path)
    (tmp_path / "other.onnx.0123456789abcdef.data").write_bytes(b"somebody else's")
    changed = next(t for t in proto.graph.initializer if len(t.raw_data) >= 1024)
    changed.raw_data = changed.raw_data[::-1]
    second, read = saved(proto, path)
    assert first[1] not in second
    assert len(second) == 3
    assert save.to_bytes(read) == save.to_bytes(proto)
    monkeypatch.undo()
    assert saved(proto, path)[0] == ["m.onnx", "other.onnx.0123456789abcdef.data"]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("stop", [0, 1, 2])
def test_killed_while_two_files_get_their_names(tmp_path, monkeypatch, stop):
    """At any moment the model has the weights that belong to it: the old or the new."""
    path, proto = tmp_path / "m.onnx", digits()
    saved(proto, path)
    changed = next(t for t in proto.graph.initializer if len(t.raw_data) >= 1024)
    new = onnx.ModelProto()
    new.CopyFrom(proto)
    next(t for t in new.graph.initializer if t.name == changed.name).raw_data = bytes(
        len(changed.raw_data)
    )
    replace, done = Path.replace, []

    def killed(self, target):
        if len(done) == stop:
            raise KeyboardInterrupt
        done.append(target)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    try:
        save.save(new, path)
    except KeyboardInterrupt:
        assert stop < 2
    expected = new if stop == 2 else proto
    assert save.to_bytes(loaded(path)) == save.to_bytes(expected)
    monkeypatch.setattr(Path, "replace", replace)
    assert len(saved(new, path)[0]) == 2


def test_metadata_that_is_added():
    """An entry takes the place of an older one; an empty one is none."""
    proto = Net(x=(1, 3)).op("Relu", "x").model()
    onnx.helper.set_model_props(proto, {"kept": "1", "old": "2"})
    save.add_metadata(proto, {"old": "3", "none": ""})
    assert {entry.key: entry.value for entry in proto.metadata_props} == {"kept": "1", "old": "3"}


def test_small_integers_are_typed_data():
    """Compilers change pads in place, which raw data forbids."""
    model = read(Net(x=(1, 3, 8, 8)).pad([0, 0, 1, 1, 0, 0, 1, 1]).model())
    (pads,) = (
        t for t in save.to_proto(model).graph.initializer if t.data_type == TensorProto.INT64
    )
    assert not pads.raw_data
    assert list(pads.int64_data) == [0, 0, 1, 1, 0, 0, 1, 1]
