"""Names of jobs as people know them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from npuconv.report.job_names import shown_names


@dataclass
class Job:
    """The parts of a job that its name is made of."""

    name: str
    model: str


@pytest.mark.parametrize(
    ("name", "model", "shown"),
    [
        ("model", "nets/yolo/model.onnx", "yolo"),
        ("yolo/model", "nets/yolo/model.onnx", "yolo"),
        ("npu-int8/model", "yolo/model.onnx", "npu-int8/yolo"),
        ("npu-int8/yolo/model", "nets/yolo/model.onnx", "npu-int8/yolo"),
        ("model", "model.onnx", "model"),
        ("model", "../model.onnx", "model"),
        ("mine", "yolo/model.onnx", "mine"),
        ("model", "yolo/other.onnx", "model"),
        ("yolo/a", "yolo/a.onnx", "yolo/a"),
    ],
)
def test_one(name, model, shown):
    """The folder stands in the place of a name that says nothing."""
    assert shown_names([Job(name, model)]) == {name: shown}


def test_names_differ():
    """Names that two jobs would share stay those of the file."""
    jobs = [Job("model", "a/model.onnx"), Job("a", "a.onnx"), Job("b/model", "b/model.onnx")]
    assert shown_names(jobs) == {"model": "model", "a": "a", "b/model": "b"}
