"""Names of many models, and shapes of inputs that only some of them have."""

from __future__ import annotations

import pytest

from npuconv.cli.models import InputShapes, model_names
from npuconv.errors import ModelError
from npuconv.model.shapes import UnknownInputError

GIVEN = {"x": (1, 3), "y": (1, 4)}


def reader(*inputs):
    """Read a model of these inputs: return the shapes that it takes."""

    def read(shapes):
        for name in shapes:
            if name not in inputs:
                raise UnknownInputError(name, inputs)
        return shapes

    return read


def broken(_shapes):
    """Read what is no model."""
    raise ModelError("no model")


def test_each_model_gets_the_shapes_of_its_inputs():
    """Together the models have both inputs, one has neither."""
    shapes = InputShapes(GIVEN)
    found = [shapes.apply(reader(*inputs)) for inputs in (["x"], ["y"], [])]
    assert found == [{"x": (1, 3)}, {"y": (1, 4)}, {}]
    shapes.check()


def test_a_shape_that_no_model_takes_is_a_mistake():
    """Told by its name."""
    shapes = InputShapes(GIVEN)
    shapes.apply(reader("x"))
    shapes.apply(reader("x", "z"))
    with pytest.raises(UnknownInputError, match="--input-shape y"):
        shapes.check()


def test_a_model_that_cannot_be_read_may_have_had_the_input():
    """Its own error has been told already."""
    shapes = InputShapes(GIVEN)
    shapes.apply(reader("x"))
    with pytest.raises(ModelError):
        shapes.apply(broken)
    shapes.check()


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
