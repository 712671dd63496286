"""Runs what was replaced and what replaced it on the same inputs, and compares.

Regions of one pass run together: one onnxruntime session holds all the old ones, another
all the new ones. Where onnxruntime refuses an original (SAME padding with dilation, for
one), it runs alone on ONNX's reference evaluator, and the report says so.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from npuconv import executor
from npuconv.errors import InternalError
from npuconv.legalize.context import RewriteRecord
from npuconv.legalize.region import Dims, Region, measured_extent
from npuconv.model import nhwc, query
from npuconv.model.protos import Types
from npuconv.model.types import Constant

if TYPE_CHECKING:
    from npuconv.legalize.context import RewriteRecord
    from npuconv.legalize.region import Region
    from npuconv.model.types import Tensor

BATCH = 32  # regions in one session: fewer make many sessions, more make slow ones
MOST = 2_000_000  # elements of all inputs of a session, and of one comparison: bounds memory
Feeds = dict[str, np.ndarray]  # by name
RELATIVE, ABSOLUTE = 1e-4, 1e-5  # float32 sums in another order stay far below


def measure(records: Sequence[RewriteRecord]) -> None:
    """Fill in the difference of every record that has both regions, then let them go.

    Raises:
        InternalError: a difference above float tolerance: the rewrite is wrong.
    """
    waiting = [r for r in records if r.old is not None and r.new is not None]
    runnable = [r for r in waiting if _has_numpy_types(r)]
    first: dict[Hashable, RewriteRecord] = {}
    stand = [first.setdefault(_kind(r) or id(r), r) for r in runnable]
    alone = [r for r, leader in zip(runnable, stand, strict=True) if r is leader]
    for start in range(0, len(alone), BATCH):
        _measure_batch(alone[start : start + BATCH])
    for record, leader in zip(runnable, stand, strict=True):
        if record is not leader:
            _follow(record, leader)
    for record in waiting:
        record.old = record.new = None


def _follow(record: RewriteRecord, leader: RewriteRecord) -> None:
    """Copy the measured difference of one rewrite to another of the same kind."""
    record.difference, record.reference = leader.difference, leader.reference
    record.note = leader.note or f"run once, on {leader.node!r}, which is alike"


def _has_numpy_types(record: RewriteRecord) -> bool:
    """bfloat16 and its like are ONNX's number where numpy has no name for them."""
    region = record.old
    exotic = region is not None and any(isinstance(t, int) for t, _ in region.inputs.values())
    if exotic:
        record.note = "no runtime here computes in the type of its inputs"
    return not exotic


def _measure_batch(records: Sequence[RewriteRecord]) -> None:
    """Measure records together, in several sessions where their inputs are large."""
    held: list[tuple[RewriteRecord, Feeds]] = []
    size = 0
    for number, record in enumerate(records):
        feeds = _feeds(record, number)
        elements = sum(array.size for array in feeds.values())
        if held and size + elements > MOST:
            _measure_held(held)
            held, size = [], 0
        held.append((record, feeds))
        size += elements
    _measure_held(held)


def _measure_held(held: Sequence[tuple[RewriteRecord, Feeds]]) -> None:
    feeds = [f for _, f in held]
    old = _run_all([r.old for r, _ in held if r.old is not None], feeds)
    new = _run_all([r.new for r, _ in held if r.new is not None], feeds)
    for (record, given), before, after in zip(held, old, new, strict=True):
        if isinstance(before, str) or isinstance(after, str):
            _settle_alone(record, given, before, after)
        else:
            record.reference = "onnxruntime"
            _compare(record, before, after)


Outcome = Feeds | str  # outputs, or why the runtime refused


def _run_all(regions: Sequence[Region], feeds: Sequence[Feeds]) -> list[Outcome]:
    try:
        return _run_together(regions, feeds)
    except executor.RuntimeRefusedError as error:
        if len(regions) == 1:
            return [str(error)]
    return [_run_all([r], [f])[0] for r, f in zip(regions, feeds, strict=True)]


def _run_together(regions: Sequence[Region], feeds: Sequence[Feeds]) -> list[Outcome]:
    side = Side()
    names = [side.add(r, f, f"r{i}/") for i, (r, f) in enumerate(zip(regions, feeds, strict=True))]
    session = executor.Session(side.model(), threads=1, optimize=False)
    values = session.run(side.feeds)
    return [{own: values[name] for own, name in part.items()} for part in names]


def _settle_alone(record: RewriteRecord, feeds: Feeds, before: Outcome, after: Outcome) -> None:
    """One side does not run on onnxruntime: take ONNX's reference for it."""
    if isinstance(before, str):
        record.note = f"onnxruntime refuses the original: {before}"
        if _is_beyond_reference(record.old):
            record.note += "; onnx.reference does not follow the text of ConvTranspose here"
            record.reference = "not measured"
            return
        before = _reference(record.old, feeds)
        record.reference = "onnx.reference"
        if _channels_last(record.old):
            record.reference = nhwc.EVALUATOR
            record.note = f"onnxruntime runs {nhwc.DOMAIN} on no CPU"
    if isinstance(after, str):
        record.note = f"onnxruntime refuses the result: {after}"
        after = _reference(record.new, feeds)
    if isinstance(before, str) or isinstance(after, str):
        reason = before if isinstance(before, str) else after
        record.reference = "not measured"
        record.note += f"; onnx.reference: {reason}"
        return
    _compare(record, before, after)


def _is_beyond_reference(region: Region | None) -> bool:
    """Return whether a region has a ConvTranspose with ``output_shape`` or ``auto_pad``."""
    return region is not None and any(
        "output_shape" in node.attrs or node.attrs.get("auto_pad", "NOTSET") != "NOTSET"
        for node in region.nodes
        if node.op == "ConvTranspose"
    )


def _reference(region: Region | None, feeds: Feeds) -> Outcome:
    assert region is not None
    side = Side()
    names = side.add(region, feeds, "r0/")
    try:
        values = executor.run_reference(side.model(), side.feeds)
    except executor.RuntimeRefusedError as error:
        return str(error)
    return {own: values[name] for own, name in names.items()}


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
    a, b = a.reshape(-1), b.reshape(-1)
    parts = [_gap(a[i : i + MOST], b[i : i + MOST]) for i in range(0, a.size, MOST)]
    gap = float(np.max([gap for gap, _ in parts], initial=0.0))  # NaN, if one is
    allowed = RELATIVE * max((largest for _, largest in parts), default=0.0) + ABSOLUTE
    if math.isnan(gap) or gap > allowed:
        raise InternalError(
            f"the output {name!r} of node {record.node!r} differs by {gap:.3g} from what it "
            f"replaces ({record.before} -> {record.after})",
            where=f"pass {record.pass_name!r}",
        )
    return gap


def _gap(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """The largest difference, and the largest finite value of the first."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):  # infinite on both sides, which is the same
        gap = float(np.max(np.where(same, 0.0, np.abs(a - b))))
    return gap, float(np.abs(a[np.isfinite(a)]).max(initial=0.0))


def _feeds(record: RewriteRecord, number: int) -> Feeds:
    """Random inputs, seeded by position; symbolic extents get one small value each."""
    region = record.old
    assert region is not None
    rng = np.random.default_rng([number, len(region.inputs)])
    last = _channels_last(region)
    return {
        name: _random(rng, dtype, _extents(dims, record, name in last))
        for name, (dtype, dims) in region.inputs.items()
    }


def _channels_last(region: Region | None) -> set[str]:
    """The tensors that operators of com.ms.internal.nhwc read with the channels at the end."""
    nodes = region.nodes if region is not None else ()
    return {node.inputs[0] for node in nodes if node.domain == nhwc.DOMAIN}


def _extents(dims: Dims | None, record: RewriteRecord, last: bool = False) -> tuple[int, ...]:
    if dims is None:
        dims = (1, 1, None, None)  # only rank-free operators get here
    if last:
        return nhwc.channels_last(_extents(nhwc.channels_first(dims), record))
    kernel = record.old.kernel if record.old is not None else 1
    modulus = [None if axis in record.exact else record.modulus for axis in range(len(dims))]
    return tuple(_extent(dim, axis, kernel, modulus[axis]) for axis, dim in enumerate(dims))


def _extent(dim: int | str | None, axis: int, kernel: int, modulus: int | None) -> int:
    if axis < 2:
        return dim if isinstance(dim, int) else 1
    return measured_extent(dim, kernel, modulus)


def _random(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    kind = np.dtype(dtype) if dtype is not None else np.dtype(np.float32)
    if kind.kind == "f":
        return rng.standard_normal(shape).astype(kind)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 4, shape).astype(kind)


_IR = 8


class Side:
    """Regions side by side in one graph, the names of each with a prefix."""

    def __init__(self) -> None:
        self.feeds: dict[str, np.ndarray] = {}
        self._proto = onnx.ModelProto(ir_version=_IR)
        self._graph = self._proto.graph
        self._graph.name = "regions"
        self._opset = 0
        self._domains: set[str] = set()
        self._made: set[str] = set()  # by nodes, and not yet an output
        self._types = Types()

    def add(self, region: Region, feeds: Mapping[str, np.ndarray], prefix: str) -> dict[str, str]:
        """Add a region; returns the names its outputs have here, by their own names."""
        self._opset = max(self._opset, region.opset)
        for name, tensor in region.constants.items():
            self._constant(tensor, prefix + name)
        for name in region.inputs:
            self._feed(prefix + name, feeds[name])
        for node in region.nodes:
            node.write(self._graph.node.add(), prefix)
            self._domains.add(node.domain)
            self._made.update([prefix + made for made in node.outputs])
        return {name: self._output(inside, prefix) for name, inside in region.outputs.items()}

    def _output(self, inside: str, prefix: str) -> str:
        """Make a tensor an output; what is one already, or is read, is passed on as another."""
        name = prefix + inside
        if name not in self._made:
            last = self._graph.node.add()
            last.op_type = "Identity"
            last.input.append(name)
            name = f"{prefix}out/{len(self._graph.output)}"
            last.output.append(name)
        self._made.discard(name)
        self._graph.output.add().name = name
        return name

    def _constant(self, tensor: Constant, name: str) -> None:
        array = query.value(tensor)
        assert array is not None
        # Weights are fed, not copied into the model; shapes and axes must be initializers.
        if array.ndim and array.dtype.kind == "f":
            self._feed(name, array)
        else:
            self._graph.initializer.append(onnx.numpy_helper.from_array(array, name))

    def _feed(self, name: str, array: np.ndarray) -> None:
        self.feeds[name] = array
        info = self._graph.input.add()
        info.name = name
        info.type.CopyFrom(self._types.proto(array.dtype, array.shape))

    def model(self) -> onnx.ModelProto:
        """All that was added as a model."""
        self._proto.opset_import.append(helper.make_opsetid("", self._opset))
        for domain in sorted(self._domains - query.STANDARD_DOMAINS):
            self._proto.opset_import.append(helper.make_opsetid(domain, 1))
        return self._proto


class _Numbers:
    """Names as numbers in the order of their first use: equal for graphs of one form."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {"": -1}

    def __call__(self, name: str) -> int:
        """The number of a name."""
        return self._known.setdefault(name, len(self._known))


def _kind(record: RewriteRecord) -> Hashable | None:
    """Equal for rewrites that are alike; None for one that made constants of its own."""
    old, new = record.old, record.new
    if old is None or new is None:
        return None
    kept = {id(t) for t in old.constants.values()}
    if kept != {id(t) for t in new.constants.values()}:
        return None
    number = _Numbers()
    return (
        record.pass_name,
        record.modulus,
        record.exact,
        _form(old, number),
        _form(new, number),
    )


def _form(region: Region, number: _Numbers) -> Hashable:
    nodes = tuple(
        (
            node.op,
            node.domain,
            tuple(map(number, node.inputs)),
            tuple(map(number, node.outputs)),
            tuple([(name, *_said(value)) for name, value in sorted(node.attrs.items())]),
        )
        for node in region.nodes
    )
    inputs = tuple((number(name), t, dims) for name, (t, dims) in region.inputs.items())
    outputs = tuple((number(a), number(b)) for a, b in region.outputs.items())
    constants = tuple((number(name), *_constant_form(t)) for name, t in region.constants.items())
    return region.opset, region.kernel, nodes, inputs, outputs, constants


def _said(value: Any) -> tuple[Any, ...]:
    """The value of an attribute; 1 and 1.0 are equal, but no two attributes are."""
    if type(value) in (int, str, tuple):
        return type(value), value
    return "", repr(value) if type(value) is float else value.SerializeToString(deterministic=True)


def _constant_form(tensor: Tensor) -> tuple[Hashable, ...]:
    """Axes, shapes and bounds decide what is computed; weights do not."""
    array = query.value(tensor)
    assert array is not None
    decides = array.dtype.kind != "f" or array.size == 1
    return array.shape, array.dtype, array.tobytes() if decides else b""
