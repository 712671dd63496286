"""Random graphs of convolutions of every kind: legal and equal afterwards, or refused rightly.

66 graphs of each opset; some have a fault that no rewrite can mend. What they must compute
is told by ``conv_text``, which knows the operator texts and not npuconv. With the
environment variable ``GRAPHS`` there are so many times as many, as in ``make sweep``.
"""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import onnx
import pytest

import npuconv
from support.asserts import session
from support.conv_graphs import FAULTS, OPSETS, Case, for_all
from support.conv_text import attributes, evaluate

pytestmark = pytest.mark.e2e

TIMES = int(os.environ.get("GRAPHS", "1"))
CLEAN, FAULTY, INTEGER = 50 * TIMES, 16 * TIMES, 4 * TIMES  # for each opset
CONVOLUTIONS = ("Conv", "ConvTranspose", "DeformConv", "ConvInteger", "QLinearConv")


def illegal(model: onnx.ModelProto) -> list[str]:
    """Return faults of a file's convolutions by the device's notes."""
    shapes = {t.name: list(t.dims) for t in model.graph.initializer}
    found = []
    for node in model.graph.node:
        if node.op_type in CONVOLUTIONS:
            found += [f"{node.name}: {fault}" for fault in _faults(node, shapes)]
    return found


def _faults(node: onnx.NodeProto, shapes: dict[str, list[int]]) -> list[str]:
    attrs, integer = attributes(node), node.op_type == "QLinearConv"
    weight = shapes.get(node.input[3 if integer else 1])
    if node.op_type not in ("Conv", "QLinearConv") or node.domain not in ("", "ai.onnx"):
        return [f"is a {node.domain} {node.op_type}"]
    if weight is None:
        return ["its weights are no initializer"]
    group, pads = attrs.get("group", 1), attrs.get("pads")
    tests = {
        f"rank {len(weight)}": len(weight) != 4,
        f"group {group} of {weight[1] * group}": group not in (1, weight[1] * group),
        f"auto_pad {attrs.get('auto_pad')}": attrs.get("auto_pad", "NOTSET") != "NOTSET",
        f"pads {pads}": pads is None or len(pads) != 4 or min(pads) < 0,
        f"kernel_shape {attrs.get('kernel_shape')}": attrs.get("kernel_shape") != weight[2:],
    }
    return [fault for fault, holds in tests.items() if holds]


def becomes_legal(case: Case) -> None:
    """Only legal convolutions, valid ONNX, and the numbers of the operator texts."""
    converted = npuconv.convert(case.model, format="float").model
    onnx.checker.check_model(converted)
    assert illegal(converted) == []
    assert [o.name for o in converted.graph.output] == [o.name for o in case.model.graph.output]
    values = session(converted).run(None, case.feeds)
    for (name, wanted), value in zip(evaluate(case.model, case.feeds).items(), values, strict=True):
        assert value.shape == wanted.shape, name
        difference = np.abs(value - wanted).max(initial=0.0)
        assert difference <= 1e-4 * np.abs(wanted).max(initial=0.0) + 1e-6, name


def is_refused(case: Case) -> None:
    """The node that has the fault is named, the fault is said, and no other is accused."""
    report = npuconv.check(case.model)
    errors = [f for f in report.findings if f.severity == "error" and f.status == "remaining"]
    assert FAULTS[case.fault] in {f.code for f in errors}, report.summary.headline
    for found in errors:
        assert found.node == case.node, found
        assert found.code in may_be_said(case), found
        assert found.message
    with pytest.raises(npuconv.UnsupportedModelError) as caught:
        npuconv.convert(case.model, format="float")
    assert caught.value.report.findings == report.findings


def may_be_said(case: Case) -> set[str]:
    """Codes that are true of the node: its fault, and what only that fault kept from going."""
    node = dict(labelled(case.model))[case.node]
    attrs = attributes(node)
    tests = {
        "SHP001": len(case.feeds["x"].shape) != 4,
        "SHP002": attrs.get("group", 1) > 1,
        "SHP003": attrs.get("auto_pad", "NOTSET") != "NOTSET",
        "OPS004": node.op_type == "ConvTranspose",
    }
    return {FAULTS[case.fault], *(code for code, holds in tests.items() if holds)}


def labelled(model: onnx.ModelProto) -> list[tuple[str, onnx.NodeProto]]:
    """Every node and how a finding calls it: by its operator where it has no name."""
    counts: Counter[str] = Counter()
    found = []
    for node in model.graph.node:
        found.append((node.name or f"{node.op_type}_{counts[node.op_type]}", node))
        counts[node.op_type] += 1
    return found


def becomes_integers(case: Case) -> None:
    """Converted to int8 on random samples: it runs, and its outputs have the right shapes."""
    converted = npuconv.convert(case.model, max_samples=2).model
    onnx.checker.check_model(converted)
    assert illegal(converted) == []
    assert "Conv" not in {n.op_type for n in converted.graph.node}
    values = session(converted).run(None, case.feeds)
    for wanted, value in zip(evaluate(case.model, case.feeds).values(), values, strict=True):
        assert value.shape == wanted.shape
        assert np.isfinite(value).all()


@pytest.mark.parametrize("opset", OPSETS)
def test_what_can_be_made_legal_is(opset):
    """Every kind of convolution was among those tried."""
    seen = for_all(opset, CLEAN, becomes_legal)
    kinds = ("1D", "2D", "3D", "group 1", "group between", "group C", "multiplier", "NOTSET")
    kinds += ("SAME_UPPER", "SAME_LOWER", "VALID", "dilated", "strided", "uneven pads")
    expected = {f"{op} {kind}" for op in ("Conv", "ConvTranspose") for kind in kinds}
    expected |= {"ConvTranspose SHAPE", "ConvTranspose output_padding", "dynamic batch"}
    expected |= {"dynamic extents", "pool", "batchnorm", "affine", "pad", "relu", "classifier"}
    assert {kind for kind in expected if kind not in seen} == set()


@pytest.mark.parametrize("opset", OPSETS)
def test_what_cannot_is_refused_for_its_fault(opset):
    """Each of the faults was among those tried."""
    seen = for_all(opset, FAULTY, is_refused, faulty=True)
    assert {fault for fault in FAULTS if f"fault {fault}" not in seen} == set()


@pytest.mark.parametrize("opset", OPSETS)
def test_int8(opset):
    """The way to integers takes them too."""
    assert for_all(opset, INTEGER, becomes_integers)
