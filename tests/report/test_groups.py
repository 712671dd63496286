"""Groups and rows that several formats show."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from npuconv.report.groups import plan, shown_names
from npuconv.schemas.report import Report
from report.plan_factory import choice, planned

Make = Callable[..., Report]


def test_one_form_is_no_choice(make: Make) -> None:
    """A node with a single form has no choices."""
    only = choice("split").model_copy(update={"alternatives": choice("split").alternatives[:1]})
    (group,) = plan(make(plan=(planned("a", choices=(only,)),)))
    assert group.choices == ()


def test_different_choices_are_distinguished(make: Make) -> None:
    """Nodes that become the same for different reasons show each reason."""
    rows = (planned("a"), planned("b", choices=(choice("split", obstacle="too wide"),)))
    (group,) = plan(make(plan=rows))
    assert [len(forms) for forms in group.choices] == [2, 2]


def test_unknown_macs_of_a_form(make: Make) -> None:
    """Unknown MACs of a form are shown as unknown."""
    forms = [a.model_copy(update={"macs": None}) for a in choice("dense").alternatives]
    one = choice("dense").model_copy(update={"alternatives": tuple(forms)})
    (group,) = plan(make(plan=(planned("a", choices=(one,)),)))
    assert group.choices[0][1] == "dense (chosen): MACs unknown, 37.0 KiB"


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
def test_the_name_of_a_job(name: str, model: str, shown: str) -> None:
    """The folder stands in the place of a name that says nothing."""
    assert shown_names({name: model}) == {name: shown}


def test_names_of_jobs_differ() -> None:
    """Names that two jobs would share stay those of the file."""
    jobs = {"model": "a/model.onnx", "a": "a.onnx", "b/model": "b/model.onnx"}
    assert shown_names(jobs) == {"model": "model", "a": "a", "b/model": "b"}
