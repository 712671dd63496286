"""Checks on external data: its place, its length, its size."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx.external_data_helper import set_external_data

from npuconv import limits
from npuconv.errors import ModelError
from npuconv.model import external_data, load, untrusted
from support.builders import Net


def check(proto: onnx.ModelProto, folder: Path) -> None:
    external_data.check(untrusted.check(proto, "m.onnx"), "m.onnx", folder)


def refused(proto: onnx.ModelProto, folder: Path, **bounds: int) -> str:
    with limits.applied(limits.Limits(**bounds)), pytest.raises(ModelError) as caught:
        check(proto, folder)
    assert caught.value.message.startswith("m.onnx: ")
    return str(caught.value)


def _external(folder: Path, location: str, **entries: str) -> onnx.ModelProto:
    proto = Net(x=(1, 3, 8, 8)).conv("x").op("Relu").model()
    tensor = proto.graph.initializer[0]
    (folder / "w.bin").write_bytes(tensor.raw_data + b"more")
    set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return proto


def test_external_data(tmp_path):
    """Below the folder, in an ordinary file, as long as the tensor."""
    size = "432"
    check(_external(tmp_path, "w.bin", length=size), tmp_path)
    check(_external(tmp_path, "w.bin", offset="4", length=size), tmp_path)
    elsewhere = ("../w.bin", "/w.bin", "C:/w.bin", "a/../../w.bin", "..\\w.bin")
    places = dict.fromkeys(elsewhere, "not below") | {"": "no file name"}
    for location, text in places.items():
        assert text in refused(_external(tmp_path, location, length=size), tmp_path)
    wrong = (
        ({"offset": "8"}, "of a file that has"), ({"length": "9"}, "9 are given"),
        ({"offset": "-1"}, "no number"), ({}, "436 are given"),
    )  # fmt: skip
    for entries, text in wrong:
        given = {"length": size} | entries if entries else {}
        assert text in refused(_external(tmp_path, "w.bin", **given), tmp_path)


def test_links(tmp_path):
    """A link inside the folder is as good as a file; one that leads out is not."""
    home = tmp_path / "home"
    home.mkdir()
    proto = _external(home, "link.bin", length="432")
    (home / "link.bin").symlink_to("w.bin")
    check(proto, home)
    (tmp_path / "w.bin").write_bytes(bytes(432))
    (home / "link.bin").unlink()
    (home / "link.bin").symlink_to("../w.bin")
    assert "link out of the folder" in refused(proto, home)


def test_the_bytes_of_a_model(tmp_path):
    """The limit covers the file, and its external data."""
    path = tmp_path / "m.onnx"
    path.write_bytes(Net(x=(1, 3, 8, 8)).conv("x").model().SerializeToString())
    with limits.applied(limits.Limits(model_bytes=99)), pytest.raises(ModelError, match="over 99"):
        load.load(path)
    assert "over 99" in refused(
        _external(tmp_path, "w.bin", length="432"), tmp_path, model_bytes=99
    )
