"""Models whose weights stay in memory-mapped files."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import npuconv
from npuconv import executor, files
from npuconv.errors import ModelError, OutputError
from npuconv.model import load, query, save, store
from support.builders import Net, digits


@pytest.fixture(autouse=True)
def _large(monkeypatch):
    """Every model is too large to be held, but for its smallest tensors."""
    monkeypatch.setattr(store, "LARGE_MODEL", 0)
    monkeypatch.setattr(store, "LARGE_TENSOR", 256)


def outside(path, proto, **options):
    """The model with its weights in another file."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    onnx.save(copy, path, save_as_external_data=True, location="w.bin", size_threshold=0, **options)
    return path


def inside(path, proto):
    """The model in one file."""
    path.write_bytes(save.to_bytes(proto))
    return path


@pytest.fixture(params=[inside, outside])
def path(request, tmp_path):
    return request.param(tmp_path / "m.onnx", digits())


def test_large_tensors_stay_where_they_are(path):
    """Values come from the file, and written models refer to it."""
    model = load.load(path)
    there = {t.name: numpy_helper.to_array(t) for t in digits().graph.initializer}
    found = {
        t.name: query.value(t) for n in model.nodes() for t in n.inputs if query.is_constant(t)
    }
    assert {k: v.tolist() for k, v in found.items()} == {k: there[k].tolist() for k in found}
    large = {name for name, values in there.items() if values.nbytes >= store.LARGE_TENSOR}
    proto = save.to_proto(model)
    assert {t.name for t in proto.graph.initializer if store.is_stored(t)} == large
    assert store.size(proto) == sum(v.nbytes for v in there.values())


def test_they_run(path):
    """onnxruntime reads them from the file."""
    feed = {digits().graph.input[0].name: np.ones((1, 1, 8, 8), np.float32)}
    model = load.load(path)
    plain, mapped = executor.Session(digits()), executor.Session(save.to_proto(model))
    for name, values in plain.run(feed).items():
        np.testing.assert_allclose(mapped.run(feed)[name], values, rtol=1e-5, atol=1e-6)


def test_the_whole_model(path):
    """A model with its weights in it is the same wherever they lay."""
    model = load.load(path)
    proto = save.to_proto(model)
    assert save.to_bytes(store.whole(proto)) == save.to_bytes(save.to_proto(load.load(digits())))


@pytest.mark.parametrize("form", ["float", "weights", "qdq", "qoperator"])
def test_converted_to_the_same(path, tmp_path, monkeypatch, form):
    """The same bytes as of a model that is held, if the runtime adds in the same order.

    With one way of choosing ranges: only models that are held have several.
    """
    monkeypatch.setattr(executor, "_SAME_LAYOUT", executor._LEVELS.ORT_ENABLE_ALL)
    samples = np.random.default_rng(1).random((8, 1, 8, 8), np.float32)
    data = None if form in ("float", "weights") else {digits().graph.input[0].name: samples}
    found = npuconv.convert(path, calibration=data, format=form, method="minmax")
    monkeypatch.setattr(store, "LARGE_MODEL", 2**30)
    plain = npuconv.convert(
        inside(tmp_path / "plain.onnx", digits()), calibration=data, format=form, method="minmax"
    )
    entries = [
        {e.key: e.value for e in one.model.metadata_props if e.key != "npuconv.source_sha256"}
        for one in (found, plain)
    ]
    assert entries[0] == entries[1]
    for one in (found, plain):
        del one.model.metadata_props[:]
    assert save.to_bytes(found.model) == save.to_bytes(plain.model)


def test_a_result_that_is_too_large_for_one_file(path, tmp_path, monkeypatch):
    """The result refers to files that live as long as it; saving puts them beside the model."""
    monkeypatch.setattr(store, "MAX_INLINE", 0)
    found = npuconv.convert(path, format="float")
    assert store.has_stored(found.model)
    found.save(tmp_path / "out.onnx")
    del found
    gc.collect()
    executor.Session(onnx.load(tmp_path / "out.onnx"))
    assert len(list(tmp_path.glob("out.onnx.*.data"))) == 1


def test_files_of_ours_go_with_the_store():
    """New weights are in a folder below TMPDIR, which is removed with the store."""
    owner = store.Store()
    array = np.arange(1000, dtype=np.float32).reshape(10, 100)
    kept = owner.keep(array)
    assert owner.keep(kept) is kept
    assert owner.keep(array[:1, :1]) is not kept
    assert kept.tolist() == array.tolist()
    assert not kept.flags.writeable
    folder = store._place_of(kept)[0].parent
    assert folder.is_dir()
    del owner
    gc.collect()
    assert not folder.exists()
    assert kept.tolist() == array.tolist()  # the map outlives the name


def test_many_arrays_share_a_file(monkeypatch):
    """Each file costs a handle; an array larger than a file has one of its own."""
    monkeypatch.setattr(store, "_SCRATCH_FILE", 4096)
    owner = store.Store()
    arrays = [np.full(size, size % 127, np.int8) for size in (300, 700, 5000, 2000, 1000)]
    kept = [owner.keep(array) for array in arrays]
    assert [k.tolist() for k in kept] == [a.tolist() for a in arrays]
    assert len(owner._scratch) == 3


def test_views_are_found():
    """A reshaped view refers to the stored array; a transposed view is written again."""
    owner = store.Store()
    kept = owner.keep(np.arange(400, dtype=np.float32).reshape(20, 20))
    for view in (kept.reshape(-1), kept[10:]):
        tensor = store.initializer("w", view)
        assert store.is_stored(tensor)
        assert store.array(tensor).tolist() == view.tolist()
    assert not store.is_stored(store.initializer("w", kept.T))


def test_no_room(monkeypatch):
    """One line says where there is none, and what to do."""
    owner = store.Store()

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owner, "_write", full)
    with pytest.raises(OutputError, match="No space left on device") as caught:
        owner.keep(np.zeros(1000, np.float32))
    assert "TMPDIR" in str(caught.value)


def test_what_a_killed_process_left_goes(tmp_path, monkeypatch):
    """The folder of a process that is gone; not that of one that lives."""
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    old = tmp_path / f"npuconv-weights-{process.pid}-x"
    mine = tmp_path / f"npuconv-weights-{os.getpid()}-x"
    strange = tmp_path / "npuconv-weights-mine-x"
    for folder in (old, mine, strange):
        folder.mkdir()
    (old / "0").write_bytes(b"weights")
    owner = store.Store()
    made = files.temporary_folder(owner)
    assert sorted(tmp_path.iterdir()) == sorted([made, mine, strange])


def tensor(**fields):
    return TensorProto(name="w", data_type=TensorProto.FLOAT, **fields)


ODD = {
    "a wrong shape": tensor(dims=[7], raw_data=bytes(4000)),
    "a negative extent": tensor(dims=[-1000], raw_data=bytes(4000)),
    "no such type": TensorProto(name="w", data_type=999, dims=[1000], raw_data=bytes(4000)),
    "no type": TensorProto(name="w", dims=[1000], raw_data=bytes(4000)),
    "bfloat16": TensorProto(name="w", data_type=16, dims=[2000], raw_data=bytes(4000)),
    "numbers in fields": helper.make_tensor("w", TensorProto.FLOAT, [1000], [1.0] * 1000),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_tensors_stay_in_the_model(name):
    """Tensors that numpy cannot view in place stay for the checks behind."""
    proto = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()
    proto.graph.initializer.append(ODD[name])
    owner = store.Store()
    light = store.without_large_tensors(proto, owner)
    assert light.graph.initializer[-1] == ODD[name]
    assert store.is_stored(light.graph.initializer[0])


@pytest.mark.parametrize("end", [1, 10, 1000, -1, -400])
def test_a_damaged_file(tmp_path, end):
    """The error is that of a model held in memory."""
    data = save.to_bytes(digits())[:end]
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(ModelError):
        load.load(tmp_path / "m.onnx")


def test_weights_above_the_folder(tmp_path):
    """No file outside of the model's folder is mapped."""
    (tmp_path / "inner").mkdir()
    path = outside(tmp_path / "m.onnx", digits())
    proto = onnx.load(path, load_external_data=False)
    for one in proto.graph.initializer:
        one.external_data[0].value = "../w.bin"
    (tmp_path / "inner/m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError):
        load.load(tmp_path / "inner/m.onnx")


def test_a_length_beyond_the_end(tmp_path):
    """A file that is shorter than the model says is not mapped."""
    path = outside(tmp_path / "m.onnx", digits())
    data = tmp_path / "w.bin"
    data.write_bytes(data.read_bytes()[:-8])
    with pytest.raises(ModelError):
        load.load(path)


def test_a_place_in_a_stranger_s_model(tmp_path):
    """A reference of the form that the store writes, in a model of a user, opens no file."""
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(4000))
    (tmp_path / "inner").mkdir()
    proto = digits()
    one = next(t for t in proto.graph.initializer if len(t.raw_data) >= 256)
    place = store.reference(one.name, one.data_type, one.dims, secret, 0, len(one.raw_data))
    one.CopyFrom(place)
    path = inside(tmp_path / "inner/m.onnx", proto)
    with pytest.raises(ModelError):
        load.load(path)


def test_pages_are_given_back(path):
    """Pages of mapped files are released, and read again on access."""
    values = [t for n in load.load(path).nodes() for t in n.inputs if query.is_constant(t)]
    before = [query.value(t).tolist() for t in values]
    files.count_mapped(files.MAX_MAPPED_BYTES + 1)
    assert [query.value(t).tolist() for t in values] == before


def test_paths_are_not_in_the_result(path):
    """The written model does not contain the folders of its weights."""
    found = npuconv.convert(path, format="float")
    assert str(Path(path).parent).encode()[1:] not in save.to_bytes(found.model)
