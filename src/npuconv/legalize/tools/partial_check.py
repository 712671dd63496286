"""Runs shape arithmetic on made-up extents, to see that its partial evaluation is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from npuconv import executor
from npuconv.errors import InternalError
from npuconv.legalize.tools.partial import SOURCES, Facts, as_elements
from npuconv.legalize.tools.partial_scalars import Element, Extent, Symbol
from npuconv.model import query
from npuconv.model.proto import node_proto

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor

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
