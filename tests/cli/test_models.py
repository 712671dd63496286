"""Names of many models."""

from __future__ import annotations

import pytest

from npuconv.cli.models import model_names


@pytest.mark.parametrize(
    ("paths", "arguments", "names"),
    [
        (["net.onnx"], ["net.onnx"], ["net.onnx"]),
        (["zoo/a/model.onnx"], ["zoo/a/model.onnx"], ["zoo/a"]),
        (["/zoo/a/model.onnx"], ["/zoo/a/model.onnx"], ["a"]),
        (["/zoo/net.onnx"], ["/zoo/net.onnx"], ["net.onnx"]),
        (["a/model.onnx", "b/model.onnx"], ["a/model.onnx", "b/model.onnx"], ["a", "b"]),
        (["/x/a/model.onnx", "/y/a/model.onnx"], [], ["/x/a/model.onnx", "/y/a/model.onnx"]),
    ],
)
def test_names(paths, arguments, names):
    """A ``model.onnx`` is named by its folder, unless two models then had the same name."""
    assert model_names(paths, arguments) == names


def test_names_in_a_folder(folder):
    """Models found in a folder are named from there; one in it, by the folder itself."""
    (folder / "zoo" / "deep").mkdir(parents=True)
    paths = ["zoo/deep/model.onnx", "zoo/deep/net.onnx", "zoo/model.onnx"]
    assert model_names(paths, ["zoo"]) == ["deep", "deep/net.onnx", "zoo"]
