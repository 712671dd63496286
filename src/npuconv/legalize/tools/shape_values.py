"""Partial evaluation of shape arithmetic: the operators with which exporters compute extents.

Starting at Shape and Size, every small tensor is followed element by element. An element
is a number, an extent that has a name but no number yet, or unknown.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from npuconv import executor
from npuconv.errors import InternalError
from npuconv.legalize import measure
from npuconv.legalize.region import capture
from npuconv.legalize.tools.shape_elements import INT64, Element, Extent, Symbol, multiply
from npuconv.legalize.tools.shape_operators import OPERATORS, Partial, UnknownError, as_elements
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.skeleton import MAX_SHAPE_VALUES
from npuconv.model.types import Node, Tensor

SOURCES = ("Shape", "Size")
# Exporters write these for "any extent": two tensors with one of them need not be equal.
_NO_NAMES = frozenset({"none", "null", "unknown", "unk", "dynamic", "any", "nan"})
# First number and step of two guesses at the unknown extents: agreement on both is no chance.
_GUESSES = ((12, 7), (40, 11))


@dataclass
class Facts:
    """Known elements of the small tensors of a model. Void when the graph changes."""

    tensors: dict[int, tuple[Tensor, Partial]] = field(default_factory=dict)
    doubtful: frozenset[str] = frozenset()  # names of extents that may differ

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
        array, dtype = query.value(tensor), tensor.dtype
        dims = query.static_shape(tensor) if array is None else array.shape
        if dims is None or math.prod(dims) > MAX_SHAPE_VALUES:
            return None
        # A type that numpy has no name for is ONNX's number.
        if dtype is None or isinstance(dtype, int) or np.dtype(dtype).kind not in "iufb":
            return None
        elements = np.full(dims, None) if array is None else array.astype(object)
        return Partial(elements, np.dtype(dtype))

    def extents(self, tensor: Tensor) -> tuple[Element, ...] | None:
        """Return the extents of a tensor: numbers, or symbols for unknown ones."""
        dims = query.shape(tensor)
        if dims is None:
            return None
        return tuple(self._extent(tensor, axis, dim) for axis, dim in enumerate(dims))

    def _extent(self, tensor: Tensor, axis: int, dim: int | str | None) -> Element:
        if isinstance(dim, int):
            return dim
        # Inference hands out names; it does not see those of tensors without a type.
        named = dim and tensor.dtype is not None and dim not in self.doubtful
        named = named and re.search(r"[A-Za-z]", str(dim)) and str(dim).lower() not in _NO_NAMES
        symbol: Symbol = (str(dim), -1) if named else (tensor.name, axis)
        return Extent(symbol)


def evaluate(model: Model) -> Facts:
    """Return all that is known of the tensors that are computed from shapes."""
    facts = Facts(doubtful=_doubtful(model))
    for node in model.nodes():
        if not query.is_standard(node):
            continue
        results: Sequence[Partial | None] = ()
        if node.op in SOURCES:
            results = [_source(facts, node)]
        elif node.op in OPERATORS and any(id(t) in facts.tensors for t in node.inputs):
            results = _results(facts, node)
        for tensor, part in zip(node.outputs, results, strict=False):
            if part is not None and not part.blank and part.elements.size <= MAX_SHAPE_VALUES:
                facts.tensors[id(tensor)] = (tensor, part)
    return facts


def _results(facts: Facts, node: Node) -> list[Partial | None]:
    operands = [facts.operand(query.input_of(node, i)) for i in range(len(node.inputs))]
    try:
        return list(OPERATORS[node.op](node, operands))
    except (UnknownError, ValueError, IndexError, OverflowError):  # numpy's: nothing fits
        return []


def _source(facts: Facts, node: Node) -> Partial | None:
    dims = facts.extents(node.inputs[0])
    if dims is None:
        return None
    if node.op == "Shape":
        return Partial(as_elements(dims[node.attrs.get("start", 0) : node.attrs.get("end")]), INT64)
    total: Element = 1
    for dim in dims:
        total = multiply(total, dim, INT64)
    return Partial(as_elements([total]).reshape(()), INT64)


def _doubtful(model: Model) -> frozenset[str]:
    """Return names that one input has twice: rather a habit of the exporter than a square."""
    found: set[str] = set()
    for tensor in model.graph.inputs:
        counts = Counter(d for d in query.shape(tensor) or () if isinstance(d, str))
        found |= {name for name, count in counts.items() if count > 1}
    return frozenset(found)


def chain(facts: Facts, tensor: Tensor) -> list[Node]:
    """Return the nodes that compute a tensor from shapes, in order, Shape and Size first."""
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
        InternalError: the evaluation of an element was wrong.
    """
    wanted = {id(n) for tensor in tensors for n in chain(facts, tensor)}
    nodes = [n for n in model.nodes() if id(n) in wanted and n.op not in SOURCES]
    region = capture(model, nodes, tensors)
    read = [t for n in nodes for t in n.inputs] + list(tensors)
    parts = {t.name: facts.operand(t) for t in read if t.name in region.inputs}
    for guess in _GUESSES:
        numbers = _Numbers(*guess)
        feeds = {name: numbers.array(part) for name, part in parts.items() if part is not None}
        if len(feeds) < len(parts):
            return "it reads a tensor of unknown extents"
        try:
            (values,) = measure.run([region], [feeds])
        except executor.RuntimeRefusedError as error:
            return str(error)
        for tensor in tensors:
            _compare(tensor, facts, values[tensor.name], numbers)
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

    def array(self, part: Partial) -> np.ndarray:
        """Return the numbers for a tensor."""
        elements = as_elements(map(self.of, part.elements.flat))
        return elements.reshape(part.elements.shape).astype(part.dtype)


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
