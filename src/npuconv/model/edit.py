"""The only ways to change a graph; all keep names of outputs, and origins.

Imports graph-surgeon inside its functions only, so that passes can import this module and
``npuconv explain`` still starts without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from npuconv.lazy import np
from npuconv.model import Graph, Model, Node, Tensor, query
from npuconv.model.core import NodeMeta


def constant(model: Model, stem: str, values: np.ndarray) -> Tensor:
    """Return a new constant tensor."""
    from npuconv.model.surgeon import Constant

    array = np.asarray(values, order="C")
    if model.store is not None:
        array = model.store.keep(array)
    return Constant(model.fresh_name(stem), array)


def shared_constant(model: Model, name: str, values: np.ndarray) -> Tensor:
    """Return the constant of that name, made on first use."""
    if name not in model.shared:
        model.shared[name] = constant(model, name, values)
    return model.shared[name]


def keep_name(new: Node | None, old: Node) -> None:
    """Give ``new``, the producer of a tensor, the name of the node it replaces."""
    assert new is not None, "only a constant or an input has no producer"
    new.name, old.name = old.name, new.name


def variable(model: Model, stem: str, like: Tensor | None = None, dtype: Any = None) -> Tensor:
    """Return a new tensor; shape and type of ``like`` where given."""
    from npuconv.model.surgeon import Variable

    return Variable(
        model.fresh_name(stem),
        dtype=dtype if dtype is not None else getattr(like, "dtype", None),
        shape=getattr(like, "shape", None),
    )


def add_node(  # noqa: PLR0913 - a node has that many parts
    model: Model,
    op: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    origin: Sequence[Node],
    attrs: dict[str, Any] | None = None,
    name: str = "",
    domain: str | None = None,
    graph: Graph | None = None,
) -> Node:
    """Add a node at the end; ``sweep`` sorts it in.

    Each output must have no producer yet. ``origin`` are the nodes it replaces, ``name`` is the
    stem of its name (the operator's where empty), ``graph`` the subgraph it belongs to.
    """
    from npuconv.model.surgeon import Node

    node = Node(
        op,
        model.fresh_name(name or f"{model.label(origin[0])}/{op}"),
        dict(attrs or {}),
        list(inputs),
        list(outputs),
        domain,
    )
    notes = [meta for n in origin if (meta := model.meta(n))]
    doc = next((m.doc_string for m in notes if m.doc_string), "")
    model.register(node, NodeMeta(model.origin(*origin), doc, notes[0].metadata if notes else ()))
    (model.graph if graph is None else graph).nodes.append(node)
    if graph is not None and graph is not model.graph:
        model.note_inner(node)
    return node


def insert(
    model: Model,
    op: str,
    inputs: Sequence[Tensor],
    *,
    origin: Sequence[Node],
    shape: Sequence[int | str | None] | None = None,
    attrs: dict[str, Any] | None = None,
    name: str = "",
) -> Tensor:
    """Add a node with one result of the type of its first input.

    ``shape`` is the shape of the result, if known; ``add_node`` describes the others.

    Returns:
        The result.
    """
    stem = name or f"{model.label(origin[0])}/{op}"
    result = variable(model, f"{stem}/out", dtype=inputs[0].dtype)
    result.shape = None if shape is None else list(shape)
    add_node(model, op, inputs, [result], origin=origin, attrs=attrs, name=stem)
    return result


def integers(model: Model, stem: str, values: Sequence[int]) -> Tensor:
    """Return a new int64 constant of one dimension: axes, extents, amounts."""
    return constant(model, stem, np.asarray(values, np.int64))


def hand_over(tensor: Tensor, old: Tensor) -> None:
    """Make the producer of ``tensor`` produce ``old`` instead, whose own producer stops.

    The name of ``old`` stays, for outputs of the model.
    """
    producer = query.producer(tensor)
    assert producer is not None, "a constant or an input has no producer"
    former = query.producer(old)
    if former is not None:
        former.outputs.clear()
    redirect(tensor, old)
    replace_output(producer, tensor, old)


def replace(tensor: Tensor, *nodes: Node) -> None:
    """Make the producer of ``tensor`` produce the output of the last node; disconnect all nodes."""
    hand_over(tensor, nodes[-1].outputs[0])
    for node in nodes:
        disconnect(node)


def inherit(model: Model, node: Node, *sources: Node) -> None:
    """Add the origin of ``sources`` to the origin of ``node``."""
    meta = model.meta(node)
    doc, metadata = (meta.doc_string, meta.metadata) if meta else ("", ())
    model.register(node, NodeMeta(model.origin(node, *sources), doc, metadata))


def exchange_names(a: Tensor, b: Tensor) -> None:
    """Swap the names of two tensors."""
    a.name, b.name = b.name, a.name


def drop_unused_domain(model: Model, domain: str) -> None:
    """Remove an operator domain from the imports if no node uses it any more."""
    if any(node.domain == domain and len(node.outputs) for node, _ in model.walk()):
        return
    imports = model.graph.import_domains or ()
    model.graph.import_domains = [o for o in imports if o.domain != domain]


def set_input(node: Node, index: int, tensor: Tensor) -> None:
    """Replace input ``index``; omitted inputs before it stay empty."""
    from npuconv.model.surgeon import Variable

    while len(node.inputs) <= index:
        node.inputs.append(Variable.empty())
    _remove_consumer(node, index)
    list.__setitem__(node.inputs, index, tensor)
    list.append(tensor.outputs, node)


def _remove_consumer(node: Node, index: int) -> None:
    """Remove the node from the consumers of its input ``index``.

    graph-surgeon would compare it by value with every consumer; a shared constant has thousands.
    """
    consumers = node.inputs[index].outputs
    list.__delitem__(consumers, next(i for i, consumer in enumerate(consumers) if consumer is node))


def drop_inputs(node: Node, start: int) -> None:
    """Remove inputs from ``start`` on (slice assignment raises in graph-surgeon)."""
    while len(node.inputs) > start:
        _remove_consumer(node, -1)
        list.pop(node.inputs)


def redirect(old: Tensor, new: Tensor, nodes: Iterable[Node] | None = None) -> None:
    """Make consumers of ``old`` read ``new``: these nodes, or all."""
    for node in {id(n): n for n in (old.outputs if nodes is None else nodes)}.values():
        for index, tensor in enumerate(list(node.inputs)):
            if tensor is old:
                set_input(node, index, new)


def replace_output(node: Node, old: Tensor, new: Tensor) -> None:
    """Make a node produce ``new`` in the place of ``old``, which is left without a producer."""
    node.outputs[next(i for i, t in enumerate(node.outputs) if t is old)] = new


def take_over_outputs(old: Node, new: Node) -> None:
    """Make ``new`` produce the outputs of ``old``, which is left without outputs."""
    outputs = list(old.outputs)
    old.outputs.clear()
    new.outputs.clear()
    for tensor in outputs:
        new.outputs.append(tensor)


def replace_by_constant(model: Model, tensor: Tensor, values: np.ndarray) -> None:
    """Make all consumers of ``tensor`` read these values; ``sweep`` drops an unused producer."""
    redirect(tensor, constant(model, tensor.name, values))


def disconnect(node: Node) -> None:
    """Disconnect a node from the graph; the next ``sweep`` drops it."""
    drop_inputs(node, 0)
    node.outputs.clear()


def can_bypass(model: Model, node: Node, source: Tensor | None = None) -> bool:
    """Return whether a node can be removed without renaming an input or output of the model.

    ``source`` is the tensor that its output equals, by default its first input.
    """
    result = node.outputs[0]
    source = node.inputs[0] if source is None else source
    if not model.is_output(result):
        return True
    producer = query.producer(source)
    return producer is not None and not model.is_output(source) and model.is_top_level(producer)


def bypass(model: Model, node: Node) -> None:
    """Remove a node whose first output equals its first input; see ``can_bypass``."""
    source, result = node.inputs[0], node.outputs[0]
    producer = query.producer(source)
    disconnect(node)
    if not model.is_output(result):
        redirect(result, source)
        return
    assert producer is not None, "can_bypass is false"
    redirect(source, result)
    replace_output(producer, source, result)
