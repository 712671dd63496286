"""Rows of judged models."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.runtimes import name_of, refusal

from npuconv.errors import ModelError


@pytest.mark.parametrize("path", ["../shared/net/model.onnx", "/somewhere/net/model.onnx"])
def test_a_refusal_says_nothing_of_the_folder(path):
    """Messages name the file as it was given, or by its folder; a table is the same for both."""
    for shown in (path, "net/model.onnx"):
        error = ModelError(f"{shown}: 2 errors: rank-unsupported x 2 (see the report)")
        assert refusal(Path(path), error) == "not converted: 2 errors: rank-unsupported x 2"
    error = ModelError("TFLite has no operator for LSTM (node a)")
    assert refusal(Path(path), error) == "not converted: TFLite has no operator for LSTM"


@pytest.mark.parametrize("path", ["nets/resnet/model.onnx", "nets/resnet.onnx", "resnet.onnx"])
def test_every_model_has_a_row_of_its_own(path):
    """Models in one folder have their own names; files that are called model have the folder's."""
    assert name_of(Path(path)) == "resnet"
