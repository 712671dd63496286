"""Random graphs of convolutions under random limits: converted, equal, and within the limits.

What the graphs must compute is told by ``conv_text``, and whether a limit is kept is read
off the emitted model by this test: neither knows npuconv. With the environment variable
``FITTING`` there are so many cases for each opset, as in ``make sweep``.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.evaluate.simulator import as_float
from support.asserts import session
from support.conv_graphs import OPSETS, Case
from support.conv_text import attributes, evaluate
from support.dice import Dice
from support.target_files import NUMBERS, WEIGHTS

Facts = dict[str, Any]
_SIDES = ("top", "left", "bottom", "right")
_RELATIONS: dict[str, Callable[[Facts], bool]] = {
    "kernel_h * kernel_w <= 9": lambda f: f["kernel_h"] * f["kernel_w"] <= 9,
    "kernel_h == kernel_w": lambda f: f["kernel_h"] == f["kernel_w"],
    "stride_h == stride_w": lambda f: f["stride_h"] == f["stride_w"],
    "pad_top == pad_bottom && pad_left == pad_right": lambda f: (
        f["pad_top"] == f["pad_bottom"] and f["pad_left"] == f["pad_right"]
    ),
    "in_h * in_w <= 100": lambda f: f["in_h"] * f["in_w"] <= 100,
    "kernel_volume <= 16": lambda f: f["kernel_volume"] <= 16,
    "kernel_volume * out_c <= 64": lambda f: f["kernel_volume"] * f["out_c"] <= 64,
    "dilation_h == 1 || stride_h == 1": lambda f: f["dilation_h"] == 1 or f["stride_h"] == 1,
    "kernel_w >= stride_w": lambda f: f["kernel_w"] >= f["stride_w"],
    "in_w <= 12 || mode == 'depthwise'": lambda f: (
        f["in_w"] <= 12 or f["group"] == f["in_c"] > 1
    ),
}  # fmt: skip


# Limits that exact rewrites alone bring a convolution within.
_NO_SUMS = ("in_n", "out_c", *(f"pad_{side}" for side in _SIDES))
# What random graphs are made of beside convolutions and max pools, and what rewrites put there.
_OTHERS = (
    "Add", "AveragePool", "BatchNormalization", "Concat", "DepthToSpace", "Flatten", "Gemm",
    "Gather", "GlobalAveragePool", "Identity", "MatMul", "Mul", "Pad", "Relu", "Reshape", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Sum", "Transpose", "Unsqueeze",
)  # fmt: skip


@dataclass
class Limits:
    """Random demands of a device on Conv, and on MaxPool where it has one.

    Attributes:
        limits: of Conv.
        require: relations of Conv.
        pools: limits of MaxPool; None where it is not listed.
        hostless: whether the device runs everything, and there is no host.
        adds: whether it adds, then.
    """

    limits: dict[str, dict[str, Any]] = field(default_factory=dict)
    require: list[str] = field(default_factory=list)
    pools: dict[str, dict[str, Any]] | None = None
    hostless: bool = False
    adds: bool = True

    def file(self) -> dict[str, Any]:
        """The target as data, to be written as JSON, which YAML can read."""
        fixed = {"rank": {"equals": 4}, "auto_pad": ["NOTSET"], "group": [1, "C"]}
        relations = [{"then": text} for text in self.require]
        operators: dict[str, Any] = {}
        if self.pools is not None:
            operators = {"MaxPool": {"limits": self.pools}, "Slice": {}, "Concat": {}}
        if self.hostless:
            left = {"Add", "Sum"} if not self.adds else set()
            operators = {op: {} for op in (*_OTHERS, "MaxPool") if op not in left} | operators
        operators["Conv"] = {"limits": {**fixed, **self.limits}, "require": relations}
        return {
            "schema": 1, "name": "drawn", "operators": operators,
            "activations": NUMBERS, "weights": WEIGHTS,
            "unlisted_operators": "error" if self.hostless else "host",
        }  # fmt: skip

    def broken_by(self, facts: Facts) -> list[str]:
        """The demands that a convolution with these facts does not meet."""
        found = [
            f"{name}={facts[name]}: {limit}"
            for name, limit in self.limits.items()
            if not _allows(limit, facts[name])
        ]
        found += [f"{text}: {facts}" for text in self.require if not _RELATIONS[text](facts)]
        if facts["group"] not in (1, facts["in_c"]):
            found.append(f"group {facts['group']} of {facts['in_c']}")
        return found

    def broken_by_pool(self, facts: Facts) -> list[str]:
        """The demands that a max pool with these facts does not meet."""
        limits = (self.pools or {}).items()
        return [f"{name}: {limit}" for name, limit in limits if not _allows(limit, facts[name])]


def _allows(limit: dict[str, Any], value: Any) -> bool:
    ((predicate, bound),) = limit.items()
    if predicate == "equals":
        return bool(value == bound)
    if predicate == "one_of":
        return value in bound
    if predicate == "multiple_of":
        return bool(value % bound == 0)
    return bool(value <= bound if predicate == "max" else value >= bound)


def random_limits(dice: Dice) -> Limits:
    """A set of limits; one in three is tight."""
    found, chance = Limits(), dice.one_of([20, 40, 80])
    for draw in (_window, _pads, _channels, _extents, _others):
        draw(dice, found, chance)
    if dice.chance(chance):
        found.require.append(dice.one_of(list(_RELATIONS)))
    return found


def _window(dice: Dice, found: Limits, chance: int) -> None:
    for name, options in (
        ("kernel", [{"max": 1}, {"max": 2}, {"max": 3}, {"one_of": [1, 3]}, {"max": 5}]),
        ("stride", [{"max": 1}, {"max": 2}, {"one_of": [1, 2, 4]}]),
        ("dilation", [{"max": 1}, {"max": 2}]),
    ):
        if dice.chance(chance):
            limit = dice.one_of(options)
            found.limits[f"{name}_h"] = limit
            found.limits[f"{name}_w"] = dice.one_of([limit, limit, *options])
    if dice.chance(chance // 2):
        limit = {"max": dice.number(3, 7)}
        found.limits |= {"dilated_kernel_h": limit, "dilated_kernel_w": limit}


def _pads(dice: Dice, found: Limits, chance: int) -> None:
    if dice.chance(chance):
        limit = {"max": dice.number(0, 2)}
        found.limits |= {f"pad_{side}": limit for side in _SIDES}


def _channels(dice: Dice, found: Limits, chance: int) -> None:
    for name in ("in_c", "out_c"):
        if dice.chance(chance):
            limit = dice.one_of([{"max": 1}, {"max": 2}, {"max": 4}, {"multiple_of": 4}])
            found.limits[name] = limit


def _extents(dice: Dice, found: Limits, chance: int) -> None:
    for name in ("in_h", "in_w"):
        if dice.chance(chance):
            options = [{"max": 4}, {"max": 8}, {"max": 11}, {"multiple_of": 2}, {"min": 4}]
            found.limits[name] = dice.one_of(options)


def _others(dice: Dice, found: Limits, chance: int) -> None:
    if dice.chance(chance):
        found.limits["in_n"] = {"max": dice.number(1, 2)}
    if dice.chance(chance):
        found.limits["bias"] = {"equals": bool(dice.number(0, 1))}
    if dice.chance(50):
        found.pools = _of_pools(dice, chance)
    found.hostless = dice.chance(30)
    if found.hostless and dice.chance(30):  # what nobody adds has no partial sums
        found.adds, found.require = False, []
        found.limits = {name: limit for name, limit in found.limits.items() if name in _NO_SUMS}
        found.limits["bias"] = {"equals": False}


def _of_pools(dice: Dice, chance: int) -> dict[str, dict[str, Any]]:
    """Limits that pools of 2x2 cells with any stride can be within."""
    options: dict[str, list[int]] = {
        "in_n": [1, 2], "in_c": [1, 2, 4], "in_h": [4, 6, 9], "in_w": [4, 6, 9],
        "stride_h": [1], "stride_w": [1],
    }  # fmt: skip
    drawn = {name: {"max": dice.one_of(values)} for name, values in options.items()}
    kernel = {"kernel_h": {"max": 2}, "kernel_w": {"max": 2}} if dice.chance(chance) else {}
    return {name: limit for name, limit in drawn.items() if dice.chance(chance)} | kernel


pytestmark = pytest.mark.e2e

CASES = int(os.environ.get("FITTING", "8"))  # for each of eight opsets
LEAST = 0.98  # of the cases are converted


def facts_of(model: onnx.ModelProto) -> list[tuple[str, dict[str, Any]]]:
    """The facts of every convolution, read off the file; extents are those it runs with."""
    shapes = {t.name: list(t.dims) for t in model.graph.initializer}
    # Not strict: in ceil mode it counts windows of a pool that begin behind the padded image,
    # which the operator text leaves out. What the file itself says of shapes stays.
    inferred = onnx.shape_inference.infer_shapes(model)
    values = (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
    shapes |= {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    return [
        (node.name, _facts(node, shapes))
        for node in model.graph.node
        if node.op_type in ("Conv", "ConvTranspose", "QLinearConv", "ConvInteger")
    ]


def _facts(node: onnx.NodeProto, shapes: dict[str, list[int]]) -> dict[str, Any]:
    place = 3 if node.op_type == "QLinearConv" else 1
    source, weight, attrs = shapes[node.input[0]], shapes[node.input[place]], attributes(node)
    assert node.op_type != "ConvTranspose", node.name
    assert len(source) == len(weight) == 4, node.name
    assert attrs.get("auto_pad", "NOTSET") == "NOTSET", node.name
    kernel, group = weight[2:], attrs.get("group", 1)
    strides, dilations = attrs.get("strides", [1, 1]), attrs.get("dilations", [1, 1])
    pads = attrs.get("pads", [0] * 4)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    assert source[1] == weight[1] * group, node.name
    return {
        "in_n": source[0], "in_c": source[1], "in_h": source[2], "in_w": source[3],
        "out_c": weight[0], "kernel_h": kernel[0], "kernel_w": kernel[1], "group": group,
        "stride_h": strides[0], "stride_w": strides[1], "dilation_h": dilations[0],
        "dilation_w": dilations[1], "dilated_kernel_h": reach[0], "dilated_kernel_w": reach[1],
        "pad_top": pads[0], "pad_left": pads[1], "pad_bottom": pads[2], "pad_right": pads[3],
        "kernel_volume": weight[1] * kernel[0] * kernel[1], "bias": len(node.input) > 2,
    }  # fmt: skip


def pools_of(model: onnx.ModelProto) -> list[tuple[str, dict[str, Any]]]:
    """The facts of every max pool of images, read off the file."""
    inferred = onnx.shape_inference.infer_shapes(model)
    values = (*inferred.graph.value_info, *inferred.graph.input)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    found = []
    for node in model.graph.node:
        if node.op_type == "MaxPool" and len(dims := shapes[node.input[0]]) == 4:
            attrs = attributes(node)
            named = zip(("in_n", "in_c", "in_h", "in_w"), dims, strict=True)
            strides, kernel = attrs.get("strides", [1, 1]), attrs["kernel_shape"]
            facts = dict(zip(("stride_h", "stride_w", "kernel_h", "kernel_w"),
                             [*strides, *kernel], strict=True))  # fmt: skip
            found.append((node.name, {**facts, **dict(named)}))
    return found


def converted(case: Case, limits: Limits, path: Path) -> onnx.ModelProto | None:
    """The float model for a device of these limits; None where it is refused."""
    path.write_text(json.dumps(limits.file()))
    shape = {"x": case.feeds["x"].shape}
    try:
        result = npuconv.convert(
            case.model, target=str(path), format="float", input_shape=shape, verify=False
        )
    except npuconv.UnsupportedModelError:
        return None
    again = npuconv.check(result.model, target=str(path), verify=False)
    assert again.ok, again.summary.headline
    return result.model


def law(case: Case, limits: Limits, model: onnx.ModelProto) -> None:
    """Within every limit, and the numbers of the operator texts."""
    onnx.checker.check_model(model)
    for name, facts in facts_of(model):
        assert limits.broken_by(facts) == [], name
    for name, facts in pools_of(model):
        assert limits.broken_by_pool(facts) == [], name
    wanted = evaluate(case.model, case.feeds)
    assert [o.name for o in model.graph.output] == list(wanted)
    for (name, array), value in zip(
        wanted.items(), session(model).run(None, case.feeds), strict=True
    ):
        assert value.shape == array.shape, name
        gap = np.abs(value - array).max(initial=0.0)
        assert gap <= 1e-4 * np.abs(array).max(initial=0.0) + 1e-6, name


@pytest.mark.parametrize("opset", OPSETS)
def test_random_limits_are_kept(opset: int, tmp_path: Path):
    """Nearly all graphs are converted, and all that are keep every limit."""
    seen: Counter[str] = Counter()
    for number in range(CASES):
        case, limits = Case(opset, number), random_limits(Dice(opset, number, "limits"))
        try:
            model = converted(case, limits, tmp_path / "drawn.yaml")
            if model is not None:
                law(case, limits, model)
        except Exception as error:
            error.add_note(f"{case.text}\n{limits}")
            raise
        seen["converted" if model is not None else f"refused {number}"] += 1
    assert seen["converted"] >= int(LEAST * CASES), seen


def in_int8(case: Case, limits: Limits, path: Path) -> onnx.ModelProto | None:
    """The int8 model for a device that adds parts of a layer in int32; None where it is refused."""
    described = limits.file()
    described["activations"] = {**described["activations"], "accumulate": "int32"}
    path.write_text(json.dumps(described))
    try:
        return npuconv.convert(
            case.model, str(path), calibration=[case.feeds], verify=False,
            input_shape={"x": case.feeds["x"].shape},
        ).model  # fmt: skip
    except npuconv.UnsupportedModelError:
        return None


def law_in_int8(case: Case, limits: Limits, model: onnx.ModelProto) -> None:
    """Within every limit, and the numbers of onnxruntime in the simulator."""
    for name, facts in facts_of(model):
        assert limits.broken_by(facts) == [], name
    values = session(model).run(None, case.feeds)
    for mine, theirs in zip(session(as_float(model)).run(None, case.feeds), values, strict=True):
        assert np.array_equal(mine, theirs)


def test_sums_in_the_accumulator_keep_limits_and_integers(tmp_path: Path):
    """Parts in the file keep every limit, and the simulator has the numbers of onnxruntime."""
    seen: Counter[str] = Counter()
    for opset, number in itertools.product(sorted(OPSETS)[-2:], range(CASES)):
        case, limits = Case(opset, number), random_limits(Dice(opset, number, "limits"))
        # Every device adds a bias somewhere: it holds the zero points.
        limits.limits.pop("bias", None)
        try:
            model = in_int8(case, limits, tmp_path / "drawn.yaml")
            if model is not None:
                law_in_int8(case, limits, model)
        except Exception as error:
            error.add_note(f"{case.text}\n{limits}")
            raise
        ops = {node.op_type for node in model.graph.node} if model is not None else set()
        seen["in parts" if "ConvInteger" in ops else "others"] += 1
    assert seen["in parts"] > 0, seen
