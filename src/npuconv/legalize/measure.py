"""Comparison of a region with its replacement, on the same random inputs.

Regions of one pass run together: one onnxruntime session holds all the old regions,
another all the new regions. Where onnxruntime refuses an original (SAME padding with dilation,
for example), it runs alone on ONNX's reference evaluator, and the report notes it.

Where the new region reads the very constants of the old one, their equality does not depend
on the values of these constants. So a single rewrite of each form (operators, attributes,
shapes) is run: a large model has thousands of convolutions and a dozen forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from npuconv import executor
from npuconv.errors import InternalError
from npuconv.legalize.log import RewriteRecord
from npuconv.legalize.region import Dims, Region, measured_extent
from npuconv.model import Tensor, query
from npuconv.model.proto import Types

SESSION_REGIONS = 32  # regions in one session: fewer make many sessions, more make slow ones
MAX_ELEMENTS = 2_000_000  # bounds memory of the inputs of a session and of a comparison
PERIOD = 65_521  # period of the random values: a prime, so that rows differ
RELATIVE, ABSOLUTE = 1e-4, 1e-5  # tolerance; float32 sums in another order stay far below
ROUNDINGS = 4  # tolerance in epsilons of the dtype, if larger: float16 rounds each step
_IR_VERSION = 8

Feeds = dict[str, np.ndarray]  # arrays by the names of inputs or outputs
Outcome = Feeds | str  # outputs, or the reason why the runtime refused
Runner = Callable[[onnx.ModelProto, Feeds], Mapping[str, np.ndarray]]


def measure(records: Sequence[RewriteRecord]) -> None:
    """Fill in the difference of every record that has both regions, then drop the regions.

    Raises:
        InternalError: a difference above float tolerance: the rewrite is wrong.
    """
    waiting = [r for r in records if r.old is not None and r.new is not None]
    runnable = []
    for record in waiting:
        inputs = record.old.inputs.values() if record.old is not None else ()
        if any(isinstance(dtype, int) for dtype, _ in inputs):  # numpy has no bfloat16
            record.note = "no runtime here computes in the type of its inputs"
        else:
            runnable.append(record)
    first: dict[Hashable, RewriteRecord] = {}
    leaders = [first.setdefault(_form(r) or id(r), r) for r in runnable]
    led = [r for r, leader in zip(runnable, leaders, strict=True) if r is leader]
    for start in range(0, len(led), SESSION_REGIONS):
        _measure_batch(led[start : start + SESSION_REGIONS])
    for record, leader in zip(runnable, leaders, strict=True):
        if record is not leader:
            record.max_abs_difference = leader.max_abs_difference
            record.reference = leader.reference
            record.note = leader.note or f"run once, on {leader.node!r}, which is alike"
    for record in waiting:
        record.old = record.new = None


def _form(record: RewriteRecord) -> Hashable | None:
    """Return a key that rewrites of one form share; None for a rewrite with new constants."""
    old, new = record.old, record.new
    assert old is not None
    assert new is not None
    if {id(t) for t in old.constants.values()} != {id(t) for t in new.constants.values()}:
        return None
    numbers = {"": -1}  # names by order of first use: equal in graphs of one form
    forms = [_region_form(region, numbers) for region in (old, new)]
    return record.pass_name, record.modulus, record.exact, *forms


def _region_form(region: Region, numbers: dict[str, int]) -> Hashable:
    def number(name: str) -> int:
        return numbers.setdefault(name, len(numbers))

    nodes = tuple(
        (
            node.op,
            node.domain,
            tuple(map(number, node.inputs)),
            tuple(map(number, node.outputs)),
            tuple((name, *_attribute_form(value)) for name, value in sorted(node.attrs.items())),
        )
        for node in region.nodes
    )
    inputs = tuple((number(name), t, dims) for name, (t, dims) in region.inputs.items())
    outputs = tuple((number(a), number(b)) for a, b in region.outputs.items())
    constants = tuple((number(name), *_constant_form(t)) for name, t in region.constants.items())
    return region.opset, region.kernel, nodes, inputs, outputs, constants


def _attribute_form(value: Any) -> tuple[Any, ...]:
    """Return the value and its type: in Python 1 and 1.0 are equal."""
    if type(value) in (int, str, tuple):
        return type(value), value
    return "", repr(value) if type(value) is float else value.SerializeToString(deterministic=True)


def _constant_form(tensor: Tensor) -> tuple[Hashable, ...]:
    """Return shape and type, and the values of axes, shapes and bounds, but not of weights."""
    array = query.value(tensor)
    assert array is not None
    decides = array.dtype.kind != "f" or array.size == 1
    return array.shape, array.dtype, array.tobytes() if decides else b""


def _measure_batch(records: Sequence[RewriteRecord]) -> None:
    """Measure records together, in several sessions where their inputs are large."""
    batch: list[tuple[RewriteRecord, Feeds]] = []
    size = 0
    for number, record in enumerate(records):
        feeds = _feeds(record, number)
        elements = sum(array.size for array in feeds.values())
        if batch and size + elements > MAX_ELEMENTS:
            _measure_session(batch)
            batch, size = [], 0
        batch.append((record, feeds))
        size += elements
    _measure_session(batch)


def _measure_session(batch: Sequence[tuple[RewriteRecord, Feeds]]) -> None:
    feeds = [f for _, f in batch]
    old = _run_all([r.old for r, _ in batch if r.old is not None], feeds)
    new = _run_all([r.new for r, _ in batch if r.new is not None], feeds)
    for (record, inputs), before, after in zip(batch, old, new, strict=True):
        if isinstance(before, str) or isinstance(after, str):
            _measure_by_reference(record, inputs, before, after)
        else:
            record.reference = "onnxruntime"
            _compare(record, before, after)


def _run_all(regions: Sequence[Region], feeds: Sequence[Feeds]) -> list[Outcome]:
    """Run regions together; run each alone if onnxruntime refuses any region."""
    try:
        return list(run(regions, feeds))
    except executor.RuntimeRefusedError as error:
        if len(regions) == 1:
            return [str(error)]
    return [_run_all([r], [f])[0] for r, f in zip(regions, feeds, strict=True)]


def onnxruntime(proto: onnx.ModelProto, feeds: Feeds) -> Feeds:
    """Run a model on onnxruntime without optimization, in one thread."""
    return executor.Session(proto, threads=1, optimize=False).run(feeds)


def run(
    regions: Sequence[Region], feeds: Sequence[Feeds], runner: Runner = onnxruntime
) -> list[Feeds]:
    """Run regions in one session and return the outputs of each, by name.

    Raises:
        RuntimeRefusedError: the runner does not take a node or an input.
    """
    graph = _Graph()
    pairs = zip(regions, feeds, strict=True)
    names = [graph.add(r, f, f"r{i}/") for i, (r, f) in enumerate(pairs)]
    values = runner(graph.model(), graph.feeds)
    return [{output: values[name] for output, name in part.items()} for part in names]


class _Graph:
    """One graph of several regions, the names of each with a prefix, and its inputs."""

    def __init__(self) -> None:
        self.feeds: Feeds = {}
        self._proto = onnx.ModelProto()
        self._graph = self._proto.graph
        self._graph.name = "regions"
        self._opset = 0
        self._domains: set[str] = set()
        self._made: set[str] = set()  # results of nodes that are no outputs yet
        self._types = Types()

    def add(self, region: Region, feeds: Mapping[str, np.ndarray], prefix: str) -> dict[str, str]:
        """Add a region; return the names its outputs have here, by their own names."""
        self._opset = max(self._opset, region.opset)
        for name, tensor in region.constants.items():
            array = query.value(tensor)
            assert array is not None
            # Weights are fed, not copied into the model; shapes and axes must be initializers.
            if array.ndim and array.dtype.kind == "f":
                self._feed(prefix + name, array)
            else:
                proto = onnx.numpy_helper.from_array(array, prefix + name)
                self._graph.initializer.append(proto)
        for name in region.inputs:
            self._feed(prefix + name, feeds[name])
        for node in region.nodes:
            node.write(self._graph.node.add(), prefix)
            self._domains.add(node.domain)
            self._made.update([prefix + output for output in node.outputs])
        outputs = {}
        for name, inside in region.outputs.items():
            tensor_name = prefix + inside
            if tensor_name not in self._made:  # an input, or already an output
                identity = self._graph.node.add()
                identity.op_type = "Identity"
                identity.input.append(tensor_name)
                tensor_name = f"{prefix}out/{len(self._graph.output)}"
                identity.output.append(tensor_name)
            self._made.discard(tensor_name)
            self._graph.output.add().name = outputs[name] = tensor_name
        return outputs

    def _feed(self, name: str, array: np.ndarray) -> None:
        self.feeds[name] = array
        info = self._graph.input.add()
        info.name = name
        info.type.CopyFrom(self._types.proto(array.dtype, array.shape))

    def model(self) -> onnx.ModelProto:
        """Return all that was added as a model."""
        standard = helper.make_opsetid("", self._opset)
        self._proto.ir_version = max(_IR_VERSION, helper.find_min_ir_version_for([standard]))
        self._proto.opset_import.append(standard)
        for domain in sorted(self._domains - query.STANDARD_DOMAINS):
            self._proto.opset_import.append(helper.make_opsetid(domain, 1))
        return self._proto


def _measure_by_reference(
    record: RewriteRecord, feeds: Feeds, before: Outcome, after: Outcome
) -> None:
    """Compare on ONNX's reference evaluator if onnxruntime refuses a region."""
    assert record.old is not None
    assert record.new is not None
    if isinstance(before, str):
        record.note = f"onnxruntime refuses the original: {before}"
        if _is_beyond_reference(record.old):
            record.note += "; onnx.reference does not follow the text of ConvTranspose here"
            record.reference = "not measured"
            return
        before = _by_reference(record.old, feeds)
        record.reference = "onnx.reference"
    if isinstance(after, str):
        record.note = f"onnxruntime refuses the result: {after}"
        after = _by_reference(record.new, feeds)
    if isinstance(before, str) or isinstance(after, str):
        reason = before if isinstance(before, str) else after
        record.reference = "not measured"
        record.note += f"; onnx.reference: {reason}"
        return
    _compare(record, before, after)


def _is_beyond_reference(region: Region) -> bool:
    """Return whether a region has a ConvTranspose with ``output_shape`` or ``auto_pad``."""
    return any(
        "output_shape" in node.attrs or node.attrs.get("auto_pad", "NOTSET") != "NOTSET"
        for node in region.nodes
        if node.op == "ConvTranspose"
    )


def _by_reference(region: Region, feeds: Feeds) -> Outcome:
    try:
        return run([region], [feeds], executor.run_reference)[0]
    except executor.RuntimeRefusedError as error:
        return str(error)


def _compare(record: RewriteRecord, before: Feeds, after: Feeds) -> None:
    worst = 0.0
    for name, reference in before.items():
        if reference.shape != after[name].shape:
            raise InternalError(
                f"the output {name!r} of node {record.node!r} had shape "
                f"{reference.shape} and now has {after[name].shape}",
                where=f"pass {record.pass_name!r}",
            )
        worst = max(worst, _difference(record, name, reference, after[name]))
    record.max_abs_difference = worst


def _difference(record: RewriteRecord, name: str, a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.reshape(-1), b.reshape(-1)
    starts = range(0, a.size, MAX_ELEMENTS)
    parts = [_gap(a[i : i + MAX_ELEMENTS], b[i : i + MAX_ELEMENTS]) for i in starts]
    gap = float(np.max([gap for gap, _ in parts], initial=0.0))  # NaN if any gap is NaN
    relative = RELATIVE
    if a.dtype.kind == "f":
        relative = max(RELATIVE, ROUNDINGS * float(np.finfo(a.dtype).eps))
    allowed = relative * max((largest for _, largest in parts), default=0.0) + ABSOLUTE
    if math.isnan(gap) and _is_beyond_numbers(record):
        record.note = "its constants are not finite, and neither is 0 times infinity"
        return 0.0
    if math.isnan(gap) or gap > allowed:
        raise InternalError(
            f"the output {name!r} of node {record.node!r} differs by {gap:.3g} from what it "
            f"replaces ({record.before} -> {record.after})",
            where=f"pass {record.pass_name!r}",
        )
    return gap


def _is_beyond_numbers(record: RewriteRecord) -> bool:
    """Return whether a constant of the old region holds NaN or an infinity: a rule reports it."""
    constants = record.old.constants.values() if record.old is not None else ()
    arrays = [query.value(tensor) for tensor in constants]
    return any(a is not None and a.dtype.kind == "f" and not np.isfinite(a).all() for a in arrays)


def _gap(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Return the largest difference, and the largest finite value of the first."""
    with np.errstate(invalid="ignore"):  # infinite on both sides is the same
        differences = np.abs(np.subtract(a, b, dtype=np.float64))
    gap = float(differences.max())
    if math.isfinite(gap):
        return gap, max(-float(a.min()), float(a.max()))
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    gap = float(np.max(np.where(equal, 0.0, differences)))
    return gap, float(np.abs(a[np.isfinite(a)], dtype=np.float64).max(initial=0.0))


def _feeds(record: RewriteRecord, number: int) -> Feeds:
    """Return random inputs, seeded by position; unknown extents get one small value each."""
    region = record.old
    assert region is not None
    rng = np.random.default_rng([number, len(region.inputs)])
    feeds = {}
    for name, (dtype, dims) in region.inputs.items():
        dims = (1, 1, None, None) if dims is None else dims  # only rank-free operators get here
        shape = _extents(dims, record, region)
        feeds[name] = _random(rng, np.dtype(np.float32 if dtype is None else dtype), shape)
    return feeds


def _extents(dims: Dims, record: RewriteRecord, region: Region) -> tuple[int, ...]:
    batch_and_channels = (d if isinstance(d, int) else 1 for d in dims[:2])
    spatial = (
        measured_extent(d, region.kernel, None if axis in record.exact else record.modulus)
        for axis, d in enumerate(dims[2:], 2)
    )
    return (*batch_and_channels, *spatial)


def _random(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    if dtype.kind == "f" and math.prod(shape) > PERIOD:
        return np.resize(rng.standard_normal(PERIOD).astype(dtype), shape)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 4, shape).astype(dtype)
