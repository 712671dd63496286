"""Values of shape arithmetic: the nodes behind Shape and Size, run on guessed extents.

Every extent without a number gets another guess in each round. An element that is the same in
all rounds is known; two elements that are equal in all rounds are the same extent.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from npuconv.executor import RuntimeRefusedError, Session
from npuconv.legalize import measure
from npuconv.legalize.region import Region, capture, upstream
from npuconv.model import Model, Node, Tensor, query
from npuconv.model.inference import MAX_SHAPE_VALUES
from npuconv.records import dataclass, field

SOURCES = ("Shape", "Size")
# First guess and step from extent to extent, for each round: small and large extents, 1, 0.
# The products of the four largest extents stay below 2**63.
_EXTENTS = ((12, 7), (40, 11), (1009, 89), (30011, 101), (1, 0), (0, 0))
# First guess and step for integers that are computed at run time, which may also be negative.
_INTEGERS = ((12, 7), (-40, -11), (0, 0), (1_000_003, 17), (1, 0), (-1, 0))
_COMPARED = 16  # number of constants c for which extents c - 1, c, c + 1 are tried, too
_ROUNDS = 3  # least number of rounds that must run; others divide by 0 or exceed an index
# Names that exporters write for any extent: equal names need not mean equal extents.
_NO_NAMES = frozenset({"none", "null", "unknown", "unk", "dynamic", "any", "nan"})
_SIZED_BY_VALUE = frozenset({"ConstantOfShape", "Expand", "Range", "Tile"})
_OPERATORS = _SIZED_BY_VALUE | {
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "Div", "Equal", "Floor", "Gather", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not",
    "Or", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round", "Slice", "Split",
    "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where", "Xor",
}  # fmt: skip


@dataclass(frozen=True)
class Guesses:
    """Values of a tensor on guessed extents.

    Attributes:
        tensor: the tensor.
        rounds: numbers of the rounds that could be run.
        array: values, shape (rounds, ...).
    """

    tensor: Tensor
    rounds: tuple[int, ...]
    array: np.ndarray

    @property
    def complete(self) -> bool:
        """Return whether every element is known."""
        return bool(is_known(self.array).all())


@dataclass
class ShapeValues:
    """Values of the tensors that are computed from shapes. Void when the graph changes.

    Attributes:
        rounds: first guess and step, for extents and for integers, of each round.
        ambiguous: names of dimensions that may have different extents.
        guesses: shape of every round by id of the tensor, in the order of the graph.
        symbols: position of each unknown extent, by tensor and axis or by its name.
    """

    rounds: list[tuple[tuple[int, int], tuple[int, int]]]
    ambiguous: frozenset[str]
    guesses: dict[int, Guesses] = field(default_factory=dict)
    symbols: dict[tuple[str, int], int] = field(default_factory=dict)

    def get(self, tensor: Tensor | None) -> Guesses | None:
        """Return the values of a tensor if it is computed from shapes."""
        return self.guesses.get(id(tensor))

    def extents(self, tensor: Tensor) -> np.ndarray | None:
        """Return the extents of a tensor, shape (rounds, rank); None if its rank is unknown."""
        dims = query.shape(tensor)
        if dims is None:
            return None
        columns = [self._extent(tensor, axis, dim) for axis, dim in enumerate(dims)]
        return np.array(columns, np.int64).reshape(len(dims), len(self.rounds)).T

    def _extent(self, tensor: Tensor, axis: int, dim: int | str | None) -> list[int]:
        if isinstance(dim, int):
            return [dim] * len(self.rounds)
        # Names that shape inference gives to tensors without a type mean nothing.
        named = dim and tensor.dtype is not None and dim not in self.ambiguous
        named = named and re.search(r"[A-Za-z]", str(dim)) and str(dim).lower() not in _NO_NAMES
        symbol = (str(dim), -1) if named else (tensor.name, axis)
        position = self.symbols.setdefault(symbol, len(self.symbols))
        return [first + step * position for (first, step), _ in self.rounds]


def is_known(array: np.ndarray) -> np.ndarray:
    """Return which elements are finite and the same in all rounds (the first axis)."""
    finite = np.isfinite(array[0]) if array.dtype.kind == "f" else True
    return np.asarray((array == array[:1]).all(axis=0) & finite)


def evaluate(model: Model) -> ShapeValues:
    """Run the shape arithmetic of a model on guesses."""
    values = ShapeValues(_rounds(model), _ambiguous_names(model))
    feeds: dict[str, np.ndarray] = {}  # values of Shape, Size, and integers of the run time
    inside: set[int] = set()  # ids of tensors that are computed from shapes
    nodes = []
    for node in filter(query.is_standard, model.nodes()):
        if node.op in SOURCES:
            extents = values.extents(node.inputs[0])
            if extents is None:
                continue
            extents = extents[:, node.attrs.get("start", 0) : node.attrs.get("end")]
            array = extents if node.op == "Shape" else extents.prod(axis=1)
            (tensor,), all_rounds = node.outputs, tuple(range(len(values.rounds)))
            feeds[tensor.name] = array
            values.guesses[id(tensor)] = Guesses(tensor, all_rounds, array)
        elif node.op in _OPERATORS and any(id(t) in inside for t in node.inputs):
            guesses = _operands(node, inside, values)
            if guesses is None:
                continue
            feeds.update(guesses)
            nodes.append(node)
        else:
            continue
        inside.update(id(t) for t in node.outputs)
    _run(model, values, nodes, feeds)
    return values


def _rounds(model: Model) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return guesses; the constants to which an extent may be compared are among them."""
    constants = {
        int(number)
        for node in model.nodes(*_OPERATORS)
        for tensor in node.inputs
        if (array := query.value(tensor)) is not None
        and array.dtype.kind == "i"
        and array.size <= MAX_SHAPE_VALUES
        for number in array.flat
        if 0 <= number < _EXTENTS[-3][0]
    }
    around = {n + i for n in sorted(constants)[:_COMPARED] for i in (-1, 0, 1) if n + i > 1}
    return [*zip(_EXTENTS, _INTEGERS, strict=True), *(((n, 0), (n, 0)) for n in sorted(around))]


def _ambiguous_names(model: Model) -> frozenset[str]:
    """Return names that an input has twice: exporters reuse names for different extents."""
    counts = [
        Counter(dim for dim in query.shape(tensor) or () if isinstance(dim, str))
        for tensor in model.graph.inputs
    ]
    return frozenset(name for count in counts for name, times in count.items() if times > 1)


def _operands(node: Node, inside: set[int], values: ShapeValues) -> dict[str, np.ndarray] | None:
    """Return guesses for the integers that a node reads and that depend on no shape.

    None if the node reads or makes more than a few numbers.
    """
    guesses = {}
    for tensor in node.inputs:
        constant = query.value(tensor)
        if constant is not None and constant.size > MAX_SHAPE_VALUES:
            return None
        if constant is not None or id(tensor) in inside or not tensor.name:
            continue
        dims, dtype = _small(query.static_shape(tensor)), tensor.dtype
        # A type that numpy has no name for is ONNX's number.
        if dims is None or dtype is None or isinstance(dtype, int):
            return None
        if np.dtype(dtype).kind not in "iub":
            return None
        places = np.arange(math.prod(dims)).reshape(dims)
        rounds = [first + step * places for _, (first, step) in values.rounds]
        guesses[tensor.name] = np.array(rounds).astype(dtype)
    sized = node.op in _SIZED_BY_VALUE
    return None if sized and _small(query.static_shape(node.outputs[0])) is None else guesses


def _small(dims: Sequence[int] | None) -> Sequence[int] | None:
    return dims if dims is not None and math.prod(dims) <= MAX_SHAPE_VALUES else None


def _run(
    model: Model, values: ShapeValues, nodes: Sequence[Node], feeds: dict[str, np.ndarray]
) -> None:
    """Add the values of all outputs of nodes; if they do not run, of each chain that runs."""
    outputs = [t for node in nodes for t in node.outputs if t.name]
    if not outputs:
        return
    rounds = _run_rounds(capture(model, nodes, outputs), feeds, len(values.rounds))
    if len(rounds) < _ROUNDS:
        for chain in _chains(nodes):
            if len(chain) < len(nodes):
                _run(model, values, chain, feeds)
        return
    for tensor in outputs:
        arrays = [results[tensor.name] for results in rounds.values()]
        if len({a.shape for a in arrays}) == 1 and _small(arrays[0].shape) is not None:
            values.guesses[id(tensor)] = Guesses(tensor, tuple(rounds), np.stack(arrays))


def _run_rounds(
    region: Region, feeds: Mapping[str, np.ndarray], count: int
) -> dict[int, measure.Feeds]:
    """Return the outputs of each round that onnxruntime runs; all rounds share a session."""
    session: list[Session] = []

    def run_once(proto: onnx.ModelProto, arrays: measure.Feeds) -> measure.Feeds:
        if not session:
            session.append(Session(proto, threads=1, optimize=False))
        return session[0].run(arrays)

    rounds: dict[int, measure.Feeds] = {}
    for number in range(count):
        with contextlib.suppress(RuntimeRefusedError):
            arrays = {name: feeds[name][number] for name in region.inputs}
            (rounds[number],) = measure.run([region], [arrays], run_once)
        if not session:
            break
    return rounds


def _chains(nodes: Sequence[Node]) -> list[list[Node]]:
    """Return the dependencies of each node whose results no other of these nodes reads."""
    members = {id(node) for node in nodes}
    last_nodes = [
        n for n in nodes if not any(id(c) in members for t in n.outputs for c in t.outputs)
    ]
    return [
        upstream(list(end.outputs), lambda _tensor, node: id(node) in members) for end in last_nodes
    ]


def chain(values: ShapeValues, tensor: Tensor) -> list[Node]:
    """Return the nodes that compute a tensor from shapes, in order, Shape and Size first."""
    return upstream(
        [tensor], lambda t, _node: values.get(t) is not None, lambda node: node.op in SOURCES
    )


def as_text(array: Any) -> str:
    """Return elements as text, with ? for unknown elements."""

    def written(element: np.ndarray) -> str:
        if element.ndim > 1:
            return f"[{', '.join(map(written, np.moveaxis(element, 1, 0)))}]"
        return str(element[0].item()) if is_known(element) else "?"

    return written(array)
