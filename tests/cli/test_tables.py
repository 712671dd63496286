"""Tables on the screen: where paths are broken."""

from __future__ import annotations

import pytest

from npuconv.cli.tables import fold_path


@pytest.mark.parametrize(
    ("path", "width", "lines"),
    [
        ("", 8, [""]),
        ("a/b.onnx", 8, ["a/b.onnx"]),
        ("models/b.onnx", 8, ["models/", "b.onnx"]),
        ("a/b/models/b.onnx", 8, ["a/b/", "models/", "b.onnx"]),
        ("long-name.onnx", 8, ["long-nam", "e.onnx"]),
        ("/x/long-name.onnx", 8, ["/x/", "long-nam", "e.onnx"]),
    ],
)
def test_fold_path(path, width, lines):
    """Behind slashes; a part that is longer than the width, anywhere."""
    assert fold_path(path, width).split("\n") == lines
