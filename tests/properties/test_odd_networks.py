"""Networks of all that devices compute: a few cases of ``benchmarks/robustness.py networks``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import npuconv
from npuconv.target.description import Description
from support.builders import Net, images
from support.odd_networks import OddNetwork, odd_network
from support.verdicts import faults

pytestmark = pytest.mark.e2e

CASES = range(8)


@pytest.mark.parametrize("number", CASES)
def test_what_is_made_is_right(number: int, tmp_path: Path) -> None:
    """Names, shapes, accuracy, parts and integers of a conversion."""
    _, found = faults(odd_network(number), tmp_path)
    assert found == []


def test_the_family_is_valid() -> None:
    """All forms are drawn; onnx takes the networks, and the project the targets."""
    cases = [odd_network(number) for number in range(100)]
    forms = Counter(case.options["format"] for case in cases)
    assert min(forms.values()) > 1
    assert set(forms) == {"qoperator", "qdq", "weights", "float", "tflite"}
    for case in cases:
        onnx.checker.check_model(case.model)
        if isinstance(target := case.options["target"], dict):
            Description.model_validate(target)


def test_a_case_is_its_number() -> None:
    """The same model and options every time."""
    first, again = odd_network(7), odd_network(7)
    assert first.model.SerializeToString() == again.model.SerializeToString()
    assert first.options == again.options
    assert odd_network(8).model.SerializeToString() != first.model.SerializeToString()


def _silenced(model: onnx.ModelProto) -> None:
    """Make all weights 0."""
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.ndim == 4:
            tensor.CopyFrom(numpy_helper.from_array(np.zeros_like(values), tensor.name))


def _renamed(model: onnx.ModelProto) -> None:
    made = model.graph.output[0]
    model.graph.node.append(onnx.helper.make_node("Identity", [made.name], ["other"]))
    made.name = "other"


def _turned(model: onnx.ModelProto) -> None:
    made = model.graph.output[0]
    (maker,) = [node for node in model.graph.node if made.name in node.output]
    maker.output[0] = "before"
    turn = onnx.helper.make_node("Transpose", ["before"], [made.name], perm=[0, 2, 3, 1])
    model.graph.node.append(turn)
    made.type.tensor_type.ClearField("shape")


DAMAGE = [
    ("float", _silenced, "float: "),
    ("qdq", _silenced, ", convolutions alone "),
    ("qdq", _renamed, "are to be ['t2']"),
    ("qdq", _turned, "is to be (1, 4, 4, 6)"),
]


@pytest.mark.parametrize(("form", "damage", "said"), DAMAGE)
def test_what_is_wrong_is_seen(
    form: str, damage: Callable[[onnx.ModelProto], None], said: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A conversion that loses its weights, or an output's name or shape."""
    net = Net(x=(1, 3, 8, 10)).conv().op("Sigmoid").conv("", (4, 4, 3, 3))
    listed = {"Conv": {}, "Sigmoid": {}}
    target = {
        "schema": 1, "name": "odd", "operators": listed,
        "activations": {"dtype": "int8", "zero_point": [0]}, "weights": {"dtype": "int8"},
    }  # fmt: skip
    options = {"target": target, "format": form, "max_samples": 4}
    case = OddNetwork(net.model(), options, images(4, 3, 8, 10), {"x": images(1, 3, 8, 10)})
    convert, made = npuconv.convert, []

    def damaged(*args: object, **given: object) -> object:
        """Convert, and damage the second result."""
        result = convert(*args, **given)  # type: ignore[arg-type]
        made.append(result)
        if len(made) == 2:  # the first tells whether check agrees, the third is to compare with
            damage(result.model)
        return result

    monkeypatch.setattr(npuconv, "convert", damaged)
    _, found = faults(case, tmp_path)
    assert said in " ".join(found)
