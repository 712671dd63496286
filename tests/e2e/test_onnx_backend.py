"""ONNX's own tests of the operators npuconv rewrites: right afterwards, or refused with reason.

Run with ``-s`` to see how many ran and which were refused.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import npuconv
from npuconv.findings import Finding
from support.onnx_cases import OnnxCase, onnx_cases

pytestmark = pytest.mark.e2e

# Three spatial axes of which none can be removed; the list must not grow.
REFUSED = {
    "node/test_convtranspose_3d": {"OPS004"},
    "pytorch-converted/test_Conv3d": {"SHP001"},
    "pytorch-converted/test_Conv3d_dilated": {"SHP001"},
    "pytorch-converted/test_Conv3d_dilated_strided": {"SHP001"},
    "pytorch-converted/test_Conv3d_groups": {"SHP001", "SHP002"},
    "pytorch-converted/test_Conv3d_no_bias": {"SHP001"},
    "pytorch-converted/test_Conv3d_stride": {"SHP001"},
    "pytorch-converted/test_Conv3d_stride_padding": {"SHP001"},
}
# A pool, a Relu or a Pad alone has nothing for the device; that is its own finding.
NOTHING_TO_DO = ("MDL002",)


def converted(case: OnnxCase) -> onnx.ModelProto | list[Finding]:
    """The float form, or what was said against it."""
    try:
        return npuconv.convert(case.model, format="float", ignore=NOTHING_TO_DO).model
    except npuconv.UnsupportedModelError as error:
        found = [f for f in error.report.findings if f.severity == "error"]
        return [f for f in found if f.status == "remaining"]


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """Outputs in onnxruntime; None where it has no such operator for this type."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options)
    except ort.capi.onnxruntime_pybind11_state.NotImplemented:
        return None
    return session.run(None, feeds)


def agree(case: OnnxCase, values: list[np.ndarray]) -> None:
    """All outputs as ONNX has them, of the same type and shape."""
    for wanted, value in zip(case.outputs, values, strict=True):
        assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype), case.name
        np.testing.assert_allclose(value, wanted, case.rtol, 1e-5, err_msg=case.name)


def name_the_node(case: OnnxCase, found: list[Finding]) -> None:
    """A refusal names the node and the axes in the way."""
    names = {n.name or f"{n.op_type}_0" for n in case.model.graph.node}
    assert {f.node for f in found} <= names, case.name
    said = " ".join(f.message for f in found)
    assert all(f"axis {axis}" in said for axis in (2, 3, 4)), (case.name, said)


def shown(counts: Counter[str], refused: dict[str, set[str]]) -> str:
    """Print the number of cases that ran, and those refused."""
    lines = [f"onnx's own tests: {dict(counts)}, {len(refused)} refused"]
    lines += [f"  {name}: {', '.join(sorted(codes))}" for name, codes in sorted(refused.items())]
    return "\n".join(["", *lines, ""])


def test_all_are_right_or_refused():
    """Numbers as ONNX has them; only 3D is refused, and the finding names node and axes."""
    counts: Counter[str] = Counter()
    refused, findings, wrong = {}, [], {}
    for case in onnx_cases():
        result = converted(case)
        if isinstance(result, list):
            refused[case.name] = {f.code for f in result}
            findings.append((case, result))
            continue
        values = run(result, case.feeds)
        if values is None:  # then the original does not run either
            assert run(case.model, case.feeds) is None, case.name
            counts["no kernel"] += 1
            continue
        try:
            agree(case, values)
        except AssertionError as error:
            wrong[case.name] = str(error)
        counts[case.name.split("/")[0]] += 1
    sys.stdout.write(shown(counts, refused))
    assert wrong == {}
    assert refused == REFUSED
    assert counts["node"] >= 108
    assert counts["pytorch-converted"] >= 48
    assert counts["pytorch-operator"] >= 7
    for case, found in findings:
        name_the_node(case, found)
