"""Groups and rows that several formats show."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from npuconv.report.groups import by_module, modules, plan, shown_names
from npuconv.schemas.report import FindingInfo, Report
from report.factory import code
from report.plan_factory import choice, planned

Make = Callable[..., Report]
One = Callable[..., FindingInfo]


@pytest.mark.parametrize(
    ("most", "weights", "rows"),
    [
        (8, {"m.a.x": 5, "m.a.y": 5, "m.b": 1}, {"m.a.x": 1, "m.a.y": 1, "m.b": 1}),
        (2, {"m.a.x": 5, "m.a.y": 5, "m.b": 1}, {"m.a": 2, "m.b": 1}),
        (1, {"m.a.x": 5, "m.a.y": 5, "m.b": 1}, {"m": 3}),
        (8, {"m.a.x": 1, "m.a.y": 1, "m.b": 9}, {"m.a": 2, "m.b": 1}),
        (8, {"": 1, "m": 1, "m.a": 1}, {"": 1, "m": 1, "m.a": 1}),
        (8, {}, {}),
        (8, {"..": 1, ".": 1}, {"": 2}),
    ],
)
def test_modules_are_divided_where_most_is(
    most: int, weights: dict[str, float], rows: dict[str, int]
) -> None:
    """A module with a quarter of the weight is divided, as long as its parts fit."""
    groups = by_module(weights, str, weights.__getitem__, most)
    assert {module: len(members) for module, members in groups.items()} == rows


def test_the_first_of_equal_modules_is_divided():
    """The same groups in every process, whose hashes of names differ."""
    names = [f"m.{outer}.{inner}" for outer in ("late", "early", "other") for inner in "ab"]
    groups = by_module(names, str, lambda _: 1, 4)
    assert list(groups) == ["m.late.a", "m.late.b", "m.early", "m.other"]


def test_nodes_of_a_module(one: One) -> None:
    """Many nodes are counted by the modules that they share; few are not."""
    nodes = [one(node_source=code(f"m.encoder.{n}")) for n in range(12)]
    assert modules(nodes) == "12 nodes of m.encoder"
    assert modules(nodes[:3]) == modules([one()] * 12) == ""
    assert modules([*nodes, one()]) == "12 nodes of m.encoder, 1 node elsewhere"
    assert modules([*nodes, one(node_source=code("m.head"))]) == (
        "12 nodes of m.encoder, 1 node of m.head"
    )


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
