"""Partial evaluation of shape arithmetic: what exporters write to compute an extent.

Starting at Shape and Size, every small tensor is followed element by element. An element
is a number, an extent that has a name but no number yet, or unknown. Values are held in
arrays of Python objects, so that numpy moves them about and ``_partial_scalars`` computes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from npuconv import executor
from npuconv.errors import InternalError
from npuconv.legalize.tools.shape_elements import Element, Extent, Symbol, multiply
from npuconv.legalize.tools.shape_operators import OPERATORS, Partial, UnknownError, as_elements
from npuconv.model import query
from npuconv.model.save import node_proto
from npuconv.model.skeleton import SMALL

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor

SOURCES = ("Shape", "Size")
# What exporters write for "any extent": the same word twice says nothing.
_NO_NAMES = frozenset({"none", "null", "unknown", "unk", "dynamic", "any", "nan"})


@dataclass
class Facts:
    """Known elements of the small tensors of a model. Void when the graph changes."""

    tensors: dict[int, tuple[Tensor, Partial]] = field(default_factory=dict)
    doubtful: frozenset[str] = frozenset()

    def of(self, tensor: Tensor | None) -> Partial | None:
        """Return the known elements of a tensor that is computed from shapes, if there are any."""
        entry = self.tensors.get(id(tensor))
        return entry[1] if entry else None

    def is_complete(self, tensor: Tensor) -> bool:
        """Return whether every element of a tensor that is computed from shapes is known."""
        partial = self.of(tensor)
        return partial is not None and partial.complete

    def operand(self, tensor: Tensor | None) -> Partial | None:
        """Return the known elements of any tensor, constants too.

        None where its extents are not known, or it is not a small tensor of numbers.
        """
        if tensor is None or id(tensor) in self.tensors:
            return self.of(tensor)
        constant = query.is_constant(tensor)
        dims = tuple(tensor.shape) if constant else query.static_shape(tensor)
        if dims is None or math.prod(dims) > SMALL or not _is_numeric(tensor.dtype):
            return None
        array = query.value(tensor)
        elements = np.full(dims, None) if array is None else array.astype(object)
        return Partial(elements, np.dtype(tensor.dtype))

    def extents(self, tensor: Tensor) -> tuple[Element, ...] | None:
        """The extents of a tensor: numbers, or what stands for them."""
        dims = query.shape(tensor)
        if dims is None:
            return None
        return tuple(self._extent(tensor, axis, dim) for axis, dim in enumerate(dims))

    def _extent(self, tensor: Tensor, axis: int, dim: int | str | None) -> Element:
        if isinstance(dim, int):
            return dim
        # Inference hands out names; it does not see those of tensors without a type.
        named = dim is not None and tensor.dtype is not None and dim not in self.doubtful
        symbol: Symbol = (dim, -1) if named and dim and _is_name(dim) else (tensor.name, axis)
        return Extent(symbol)


def evaluate(model: Model) -> Facts:
    """Follow what is computed from shapes, as far as it goes."""
    facts = Facts(doubtful=_doubtful(model))
    for node in model.nodes():
        if not query.is_standard(node):
            continue
        if node.op in SOURCES:
            _note(facts, node, [_source(facts, node)])
        elif node.op in OPERATORS and any(id(t) in facts.tensors for t in node.inputs):
            _note(facts, node, _results(facts, node))
    return facts


def _results(facts: Facts, node: Node) -> list[Partial | None]:
    operands = [facts.operand(query.input_of(node, i)) for i in range(len(node.inputs))]
    try:
        return list(OPERATORS[node.op](node, operands))
    except (UnknownError, ValueError, IndexError, OverflowError):  # numpy's: nothing fits
        return []


def _note(facts: Facts, node: Node, results: list[Partial | None]) -> None:
    for tensor, partial in zip(node.outputs, results, strict=False):
        if partial is not None and not partial.blank and partial.elements.size <= SMALL:
            facts.tensors[id(tensor)] = (tensor, partial)


def _source(facts: Facts, node: Node) -> Partial | None:
    dims = facts.extents(node.inputs[0])
    if dims is None:
        return None
    if node.op == "Size":
        return _size(dims)
    window = dims[slice(node.attrs.get("start", 0), node.attrs.get("end"))]
    return Partial(as_elements(window), np.dtype(np.int64))


def _size(dims: tuple[Element, ...]) -> Partial:
    total: Element = 1
    for dim in dims:
        total = multiply(total, dim, np.dtype(np.int64))
    return Partial(as_elements([total]).reshape(()), np.dtype(np.int64))


def _doubtful(model: Model) -> frozenset[str]:
    """Names that one input has twice: more likely a habit of the exporter than a square."""
    found: set[str] = set()
    for tensor in model.graph.inputs:
        counts = Counter(d for d in query.shape(tensor) or () if isinstance(d, str))
        found |= {name for name, count in counts.items() if count > 1}
    return frozenset(found)


def _is_name(dim: str) -> bool:
    return re.search(r"[A-Za-z]", dim) is not None and dim.lower() not in _NO_NAMES


def _is_numeric(dtype: Any) -> bool:
    if dtype is None or isinstance(dtype, int):  # a type numpy has no name for
        return False
    return np.dtype(dtype).kind in "iufb"


# Two guesses at the extents nobody knows; what holds for both is not by chance.
_GUESSES = ((12, 7), (40, 11))


def chain(facts: Facts, tensor: Tensor) -> list[Node]:
    """The nodes that compute a tensor from shapes, in order, those that read them first."""
    order: list[Node] = []
    seen: set[int] = set()
    stack: list[tuple[Tensor, bool]] = [(tensor, False)]
    while stack:
        current, done = stack.pop()
        node = query.producer(current)
        if node is None or facts.of(current) is None:
            continue
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((current, True))
            if node.op not in SOURCES:
                stack.extend((t, False) for t in reversed(list(node.inputs)))
    return order


def confirm(model: Model, facts: Facts, tensors: Sequence[Tensor]) -> str:
    """Compute these tensors on two guesses at the unknown extents, and compare.

    Returns:
        Why it could not be done; '' where every tensor was right.

    Raises:
        InternalError: an element is not what it was taken for.
    """
    wanted = {id(n) for tensor in tensors for n in chain(facts, tensor)}
    nodes = [n for n in model.nodes() if id(n) in wanted and n.op not in SOURCES]
    for guess in _GUESSES:
        numbers = _Numbers(*guess)
        feeds = _feeds(facts, nodes, tensors, numbers)
        if feeds is None:
            return "it reads a tensor of unknown extents"
        try:
            proto = _model(model, nodes, feeds, tensors)
            values = executor.Session(proto, threads=1, optimize=False).run(feeds)
        except executor.RuntimeRefusedError as error:
            return str(error)
        for tensor, value in zip(tensors, values.values(), strict=True):
            _compare(tensor, facts, value, numbers)
    return ""


class _Numbers:
    """Guessed numbers for the unknown extents, a different one for each."""

    def __init__(self, first: int, step: int) -> None:
        self._first, self._step = first, step
        self._given: dict[Symbol, int] = {}

    def of(self, element: Element) -> float:
        """Return the number for an element under this guess; 1 where nothing is known of it."""
        if not isinstance(element, Extent):
            return 1 if element is None else element
        following = self._first + self._step * len(self._given)
        return element.factor * self._given.setdefault(element.symbol, following) + element.offset


def _feeds(
    facts: Facts, nodes: Sequence[Node], tensors: Sequence[Tensor], numbers: _Numbers
) -> dict[str, np.ndarray] | None:
    """Return arrays for all that the nodes read, results of Shape and Size included.

    None where the extents of one are not known.
    """
    made = {id(t) for n in nodes for t in n.outputs}
    read = [t for n in nodes for t in n.inputs if t.name or query.is_constant(t)]
    feeds: dict[str, np.ndarray] = {}
    for tensor in (*read, *tensors):
        if id(tensor) in made or query.is_constant(tensor):
            continue
        part = facts.operand(tensor)
        if part is None:
            return None
        elements = as_elements(map(numbers.of, part.elements.flat))
        feeds[tensor.name] = elements.reshape(part.elements.shape).astype(part.dtype)
    return feeds


def _model(
    model: Model, nodes: Sequence[Node], feeds: dict[str, np.ndarray], tensors: Sequence[Tensor]
) -> onnx.ModelProto:
    constants = {t.name: a for n in nodes for t in n.inputs if (a := query.value(t)) is not None}
    outputs = [f"checked/{tensor.name}" for tensor in tensors]
    copies = [
        helper.make_node("Identity", [tensor.name], [output])
        for tensor, output in zip(tensors, outputs, strict=True)
    ]
    graph = helper.make_graph(
        [*map(node_proto, nodes), *copies],
        "shapes",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in feeds.items()
        ],
        [helper.make_empty_tensor_value_info(output) for output in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", model.opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _compare(tensor: Tensor, facts: Facts, value: np.ndarray, numbers: _Numbers) -> None:
    part = facts.of(tensor)
    assert part is not None
    expected = part.elements
    right = value.shape == expected.shape and all(
        element is None or numbers.of(element) == found
        for element, found in zip(expected.flat, value.reshape(-1).tolist(), strict=True)
    )
    if not right:
        raise InternalError(
            f"{tensor.name!r} was taken for {expected.tolist()} and is {value.tolist()}",
            where="pass 'propagate-shapes'",
        )
