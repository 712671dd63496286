"""Runs what was replaced and what replaced it on the same inputs, and compares.

Regions of one pass run together: one onnxruntime session holds all the old ones, another
all the new ones. Where onnxruntime refuses an original (SAME padding with dilation, for
one), it runs alone on ONNX's reference evaluator, and the report says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from npuconv import executor
from npuconv.errors import InternalError
from npuconv.model import query
from npuconv.passes._context import RewriteRecord
from npuconv.passes._region import Dims, Region

BATCH = 32  # regions in one session: bounds memory, keeps the number of sessions low
MARGIN = 4  # cells beyond a kernel's reach: enough for every case of border and middle
RELATIVE, ABSOLUTE = 1e-4, 1e-5  # float32 sums in another order stay far below
_IR = 8


def measure(records: Sequence[RewriteRecord]) -> None:
    """Fill in the difference of every record that has both regions, then let them go.

    Raises:
        InternalError: a difference above float tolerance: the rewrite is wrong.
    """
    waiting = [r for r in records if r.old is not None and r.new is not None]
    runnable = [r for r in waiting if _has_numpy_types(r)]
    for start in range(0, len(runnable), BATCH):
        _measure_batch(runnable[start : start + BATCH])
    for record in waiting:
        record.old = record.new = None


def _has_numpy_types(record: RewriteRecord) -> bool:
    """bfloat16 and its like are ONNX's number where numpy has no name for them."""
    region = record.old
    exotic = region is not None and any(isinstance(t, int) for t, _ in region.inputs.values())
    if exotic:
        record.note = "no runtime here computes in the type of its inputs"
    return not exotic


def _measure_batch(records: list[RewriteRecord]) -> None:
    feeds = [_feeds(record, number) for number, record in enumerate(records)]
    old = _run_all([r.old for r in records], feeds)
    new = _run_all([r.new for r in records], feeds)
    for number, record in enumerate(records):
        before, after = old[number], new[number]
        if isinstance(before, str) or isinstance(after, str):
            _settle_alone(record, feeds[number], before, after)
        else:
            record.reference = "onnxruntime"
            _compare(record, before, after)


Outcome = dict[str, np.ndarray] | str  # outputs, or why the runtime refused


def _run_all(
    regions: Sequence[Region | None], feeds: Sequence[dict[str, np.ndarray]]
) -> list[Outcome]:
    try:
        return _run_together(regions, feeds)
    except executor.RuntimeRefusedError as error:
        if len(regions) == 1:
            return [str(error)]
    return [_run_all([r], [f])[0] for r, f in zip(regions, feeds, strict=True)]


def _run_together(
    regions: Sequence[Region | None], feeds: Sequence[dict[str, np.ndarray]]
) -> list[Outcome]:
    parts = [_build(r, f, f"r{i}/") for i, (r, f) in enumerate(zip(regions, feeds, strict=True))]
    opset = max(r.opset for r in regions if r is not None)
    session = executor.Session(_model(parts, opset), threads=1, optimize=False)
    inputs = {name: array for part in parts for name, array in part.feeds.items()}
    values = session.run(inputs)
    return [{n: values[f"r{i}/out/{n}"] for n in p.names} for i, p in enumerate(parts)]


class _Part:
    """One region with its names prefixed, ready to stand beside others in one graph."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.feeds: dict[str, np.ndarray] = {}
        self.names: list[str] = []


def _build(region: Region | None, feeds: dict[str, np.ndarray], prefix: str) -> _Part:
    assert region is not None
    part = _Part()
    for name, tensor in region.constants.items():
        array = query.value(tensor)
        assert array is not None
        # Weights are fed, not copied into the model; shapes and axes must be initializers.
        if array.ndim and array.dtype.kind == "f":
            part.feeds[prefix + name] = array
        else:
            part.initializers.append(onnx.numpy_helper.from_array(array, prefix + name))
    for name in region.inputs:
        part.feeds[prefix + name] = feeds[name]
    for node in region.nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = prefix + node.name
        copy.input[:] = [prefix + n if n else "" for n in node.input]
        copy.output[:] = [prefix + n if n else "" for n in node.output]
        part.nodes.append(copy)
    for name, inside in region.outputs.items():
        part.nodes.append(helper.make_node("Identity", [prefix + inside], [f"{prefix}out/{name}"]))
        part.names.append(name)
    return part


def _model(parts: Sequence[_Part], opset: int) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for part in parts
        for name, array in part.feeds.items()
    ]
    outputs = [
        helper.make_empty_tensor_value_info(f"r{i}/out/{name}")
        for i, part in enumerate(parts)
        for name in part.names
    ]
    graph = helper.make_graph(
        [node for part in parts for node in part.nodes],
        "regions",
        inputs,
        outputs,
        [tensor for part in parts for tensor in part.initializers],
    )
    imports = [helper.make_opsetid("", opset)]
    domains = sorted({n.domain for p in parts for n in p.nodes} - query.STANDARD_DOMAINS)
    imports += [helper.make_opsetid(domain, 1) for domain in domains]
    return helper.make_model(graph, opset_imports=imports, ir_version=_IR)


def _settle_alone(
    record: RewriteRecord, feeds: dict[str, np.ndarray], before: Outcome, after: Outcome
) -> None:
    """One side does not run on onnxruntime: take ONNX's reference for it."""
    if isinstance(before, str):
        record.note = f"onnxruntime refuses the original: {before}"
        before = _reference(record.old, feeds)
        record.reference = "onnx.reference"
    if isinstance(after, str):
        record.note = f"onnxruntime refuses the result: {after}"
        after = _reference(record.new, feeds)
    if isinstance(before, str) or isinstance(after, str):
        reason = before if isinstance(before, str) else after
        record.reference = "not measured"
        record.note += f"; onnx.reference: {reason}"
        return
    _compare(record, before, after)


def _reference(region: Region | None, feeds: dict[str, np.ndarray]) -> Outcome:
    assert region is not None
    part = _build(region, feeds, "r0/")
    try:
        values = executor.run_reference(_model([part], region.opset), part.feeds)
    except executor.RuntimeRefusedError as error:
        return str(error)
    return {name: values[f"r0/out/{name}"] for name in part.names}


def _compare(record: RewriteRecord, before: Any, after: Any) -> None:
    worst = 0.0
    for name, reference in before.items():
        if reference.shape != after[name].shape:
            raise InternalError(
                f"the output {name!r} of node {record.node!r} had shape "
                f"{reference.shape} and now has {after[name].shape}",
                where=f"pass {record.pass_name!r}",
            )
        worst = max(worst, _difference(record, name, reference, after[name]))
    record.difference = worst


def _difference(record: RewriteRecord, name: str, a: np.ndarray, b: np.ndarray) -> float:
    if not a.size:
        return 0.0
    a, b = a.astype(np.float64), b.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):  # infinite on both sides, which is the same
        gap = float(np.max(np.where(same, 0.0, np.abs(a - b))))
    finite = np.abs(a[np.isfinite(a)])
    allowed = RELATIVE * float(finite.max(initial=0.0)) + ABSOLUTE
    if math.isnan(gap) or gap > allowed:
        raise InternalError(
            f"the output {name!r} of node {record.node!r} differs by {gap:.3g} from what it "
            f"replaces ({record.before} -> {record.after})",
            where=f"pass {record.pass_name!r}",
        )
    return gap


def _feeds(record: RewriteRecord, number: int) -> dict[str, np.ndarray]:
    """Random inputs, seeded by position; symbolic extents get one small value each."""
    region = record.old
    assert region is not None
    rng = np.random.default_rng([number, len(region.inputs)])
    return {
        name: _random(rng, dtype, _extents(dims, region.kernel, record.modulus))
        for name, (dtype, dims) in region.inputs.items()
    }


def _extents(dims: Dims | None, kernel: int, modulus: int | None) -> tuple[int, ...]:
    if dims is None:
        dims = (1, 1, None, None)  # only rank-free operators get here
    return tuple(_extent(dim, axis, kernel, modulus) for axis, dim in enumerate(dims))


def _extent(dim: int | str | None, axis: int, kernel: int, modulus: int | None) -> int:
    if axis < 2:
        return dim if isinstance(dim, int) else 1
    small = kernel + MARGIN
    if not isinstance(dim, int):
        return small
    if modulus is None or dim <= small:
        return dim
    return min(dim, small + (dim - small) % modulus)


def _random(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    kind = np.dtype(dtype) if dtype is not None else np.dtype(np.float32)
    if kind.kind == "f":
        return rng.standard_normal(shape).astype(kind)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 4, shape).astype(kind)
