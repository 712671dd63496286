"""Model: a graph, the header that graph-surgeon drops, and the origin of every node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, TypeAlias

from npuconv.model.source import Source
from npuconv.model.source_scales import SourceScales
from npuconv.records import dataclass, field, replace

if TYPE_CHECKING:
    from npuconv.lazy import np
    from npuconv.model.store import Store

    InTraining = tuple[np.ndarray, np.ndarray]  # mean and standard deviation of each channel

# Names for graph-surgeon's classes, which have no type hints.
Node: TypeAlias = Any
Tensor: TypeAlias = Any
Graph: TypeAlias = Any
_Index = dict[tuple[str, str], list[tuple[int, Node]]]  # nodes and positions by operator, domain


@dataclass(frozen=True)
class Header:
    """Fields of a ModelProto other than its graph's nodes; kept because import drops them."""

    ir_version: int
    producer_name: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    doc_string: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    graph_metadata: tuple[tuple[str, str], ...] = ()
    quantization_annotation: tuple[Any, ...] = ()  # TensorAnnotation protos
    defaults: tuple[str, ...] = ()  # inputs with an initializer, which become constants


@dataclass(frozen=True)
class NodeMeta:
    """Data of a node that graph-surgeon's Node does not keep."""

    origin: tuple[str, ...]  # labels of the source nodes that the node replaces
    doc_string: str = ""
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass
class Model:
    """A graph that passes may change, through ``model.edit`` only.

    Nodes are compared by identity: graph-surgeon compares tensors by name and can
    hash neither nodes nor tensors.
    """

    graph: Graph
    header: Header
    name: str = "model.onnx"
    sha256: str = ""
    store: Store | None = None  # store of large weights
    shared: dict[str, Tensor] = field(default_factory=dict)  # constants with many consumers
    sources: dict[str, Source] = field(default_factory=dict)  # training code by label of a node
    source_scales: SourceScales = field(default_factory=SourceScales)
    # Statistics of tensors in training, by name, of which BatchNormalization has parameters.
    in_training: Mapping[str, InTraining] = field(default_factory=dict)
    _meta: dict[int, tuple[Node, NodeMeta]] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict)  # last number used, by stem of names
    _inner: set[int] | None = None  # ids of nodes of subgraphs; None: not collected yet
    _index: tuple[list[Node], _Index] = field(default_factory=lambda: ([], {}))
    # Cache: the list of outputs, its length, and the ids in it.
    _outputs: tuple[list[Tensor], int, frozenset[int]] = ([], 0, frozenset())

    @property
    def opset(self) -> int:
        """Version of the ONNX standard domain."""
        return int(self.graph.opset)

    def nodes(self, *ops: str, domain: str = "") -> list[Node]:
        """Return a copy of the list of top-level nodes, in topological order.

        All nodes if no operators are named; ``domain`` is the domain of the operators.
        """
        if not ops:
            return list(self.graph.nodes)
        index = self._by_op()
        groups = [members for op in dict.fromkeys(ops) if (members := index.get((op, domain)))]
        listed = groups[0] if len(groups) == 1 else sorted(chain(*groups))
        return [node for _, node in listed]

    def _by_op(self) -> _Index:
        """Return nodes and their positions by operator: most passes look for absent operators.

        A node must keep its operator; a change takes another node.
        """
        nodes, (indexed_nodes, index) = self.graph.nodes, self._index
        if len(indexed_nodes) != len(nodes) or not all(map(is_, indexed_nodes, nodes)):
            index = defaultdict(list)
            for number, node in enumerate(nodes):
                index[node.op, node.domain or ""].append((number, node))
            self._index = list(nodes), index
        return index

    def copy(self) -> Model:
        """Return a copy that can be changed; constants share their values."""
        graph = self.graph.copy()
        tensors = graph.tensors()
        for tensor in tensors.values():
            if not hasattr(tensor, "_values") and tensor.shape is not None:
                tensor.shape = list(tensor.shape)
        shared = {name: t for name, old in self.shared.items() if (t := tensors.get(old.name))}
        copy = replace(
            self, graph=graph, shared=shared, _meta={},
            _names=set(self._names), _numbers=dict(self._numbers), _inner=None, _index=([], {}),
            _outputs=([], 0, frozenset()),
        )  # fmt: skip
        nodes = {}
        _copy_types((*self.graph.inputs, *self.graph.outputs), (*graph.inputs, *graph.outputs))
        for (old, _), (new, _) in zip(self.walk(), copy.walk(), strict=True):
            nodes[id(old)] = new
            _copy_types((*old.inputs, *old.outputs), (*new.inputs, *new.outputs))
            for (_, body), (_, inner) in zip(subgraphs(old), subgraphs(new), strict=True):
                _copy_types((*body.inputs, *body.outputs), (*inner.inputs, *inner.outputs))
            if (meta := self.meta(old)) is not None:
                copy.register(new, meta)
        for name, old_tensor in self.graph.tensors().items():  # sorts the consumers
            consumers = [nodes[id(node)] for node in old_tensor.outputs if id(node) in nodes]
            list.clear(tensors[name].outputs)
            list.extend(tensors[name].outputs, consumers)
        return copy

    def settle(self, nodes: list[Node]) -> None:
        """Replace the nodes of the graph by these, in this order, and reset the index."""
        self.graph.nodes[:] = nodes
        self._index = [], {}

    def walk(self) -> Iterator[tuple[Node, str]]:
        """Yield every node with the path of its subgraph ('' for the top level)."""
        yield from _walk(self.graph, "", self)

    def meta(self, node: Node) -> NodeMeta | None:
        """Return origin and notes of a node; None if it is not registered."""
        entry = self._meta.get(id(node))
        return entry[1] if entry else None

    def register(self, node: Node, meta: NodeMeta) -> None:
        """Store the origin of ``node``. Holding the node keeps its id from reuse."""
        self._meta[id(node)] = (node, meta)

    def origin(self, *nodes: Node) -> tuple[str, ...]:
        """Return labels of the source nodes of these nodes, in order, each once."""
        if len(nodes) == 1:  # nearly always
            entry = self._meta.get(id(nodes[0]))
            return entry[1].origin if entry else ()
        entries = [self._meta.get(id(node)) for node in nodes]
        return tuple(dict.fromkeys(label for e in entries if e for label in e[1].origin))

    def label(self, node: Node) -> str:
        """Return the name of the first source node of a node."""
        entry = self._meta.get(id(node))
        return entry[1].origin[0] if entry and entry[1].origin else (node.name or node.op)

    def labelled(self) -> list[tuple[str, Node]]:
        """Return the top-level nodes with their labels, in topological order."""
        return [(self.label(node), node) for node in self.graph.nodes]

    def is_top_level(self, node: Node) -> bool:
        """Return whether the node is in the graph itself, not in a subgraph."""
        if self._inner is None:
            self._inner = {id(inner) for inner, path in self.walk() if path}
        return id(node) not in self._inner

    def note_inner(self, node: Node) -> None:
        """Record that a node has been added to a subgraph."""
        if self._inner is not None:
            self._inner.add(id(node))

    def forget_inner(self) -> None:
        """Record that nodes of a subgraph have moved to the graph itself."""
        self._inner = None

    def is_output(self, tensor: Tensor) -> bool:
        """Return whether the tensor is an output of the model."""
        outputs = self.graph.outputs
        known_outputs, count, members = self._outputs
        if known_outputs is not outputs or count != len(outputs):
            members = frozenset(map(id, outputs))
            self._outputs = (outputs, len(outputs), members)
        return id(tensor) in members

    def fresh_name(self, stem: str) -> str:
        """Return an unused name of a tensor or node, starting with ``stem``."""
        if not self._names:
            self._names = set(_all_names(self.graph))
        name, count = stem, self._numbers.get(stem, 0)
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._numbers[stem] = count
        self._names.add(name)
        return name


_consumers = attrgetter("outputs")


def _copy_types(tensors: Iterable[Tensor], copies: Iterable[Tensor]) -> None:
    """Copy the types of sequences and optionals, which graph-surgeon leaves out."""
    for tensor, copy in zip(tensors, copies, strict=True):
        if hasattr(tensor, "type"):
            copy.type = tensor.type


# Operators of ONNX's own domain with subgraphs; any operator of another domain may have some.
HOLDERS = frozenset({"If", "Loop", "Scan", "SequenceMap"})


def subgraphs(node: Node) -> Iterable[tuple[str, Graph]]:
    """Return the graphs in a node's attributes (If, Loop, Scan), with attribute names."""
    if not node.attrs or (node.op not in HOLDERS and not node.domain):
        return ()  # nearly always
    return [(k, v) for k, v in node.attrs.items() if hasattr(v, "nodes")]


def with_inner(node: Node) -> Iterator[Node]:
    """Yield a node and the nodes of its subgraphs."""
    yield node
    for _, graph in subgraphs(node):
        for inner in graph.nodes:
            yield from with_inner(inner)


def sweep(model: Model) -> int:
    """Remove unused nodes and sort the others topologically; return the count removed."""
    nodes = list(model.graph.nodes)
    dead = _find_unused(model, nodes)
    detached = [inner for node in dead.values() for inner in with_inner(node)]
    ids = {id(n) for n in detached}
    # One walk over each list of consumers: a shared constant has thousands.
    for tensor in {id(t): t for n in detached for t in n.inputs}.values():
        consumers = [consumer for consumer in tensor.outputs if id(consumer) not in ids]
        list.clear(tensor.outputs)
        list.extend(tensor.outputs, consumers)
    for node in detached:
        list.clear(node.inputs)
        node.outputs.clear()
    used = [n for n in nodes if id(n) not in dead]
    model.settle(_sort_nodes(used))
    return len(nodes) - len(used)


def _find_unused(model: Model, nodes: list[Node]) -> dict[int, Node]:
    """Return by id the nodes whose outputs no node reads, except other unused nodes."""
    members = {id(n) for n in nodes}
    consumer_counts: dict[int, int] = {}  # consumers left of tensors that dead nodes read
    dead: dict[int, Node] = {}
    candidates = [n for n in nodes if not any(map(_consumers, n.outputs))]
    while candidates:
        node = candidates.pop()
        if id(node) in dead or any(
            consumer_counts.get(id(t), len(t.outputs)) or model.is_output(t) for t in node.outputs
        ):
            continue
        dead[id(node)] = node
        for tensor in (t for inner in with_inner(node) for t in inner.inputs):
            consumer_counts[id(tensor)] = consumer_counts.get(id(tensor), len(tensor.outputs)) - 1
            candidates.extend(producer for producer in tensor.inputs if id(producer) in members)
    return dead


def _sort_nodes(nodes: list[Node]) -> list[Node]:
    """Sort depth first from the present order, so that few nodes move."""
    if _is_ordered(nodes):
        return nodes
    waiting = {id(n) for n in nodes}
    result: list[Node] = []
    for root in nodes:
        stack = [(root, iter(_dependencies(root)))] if id(root) in waiting else []
        waiting.discard(id(root))
        while stack:
            node, pending = stack[-1]
            for following in pending:
                if id(following) in waiting:
                    waiting.discard(id(following))
                    stack.append((following, iter(_dependencies(following))))
                    break
            else:
                result.append(node)
                stack.pop()
    return result


def _is_ordered(nodes: list[Node]) -> bool:
    later = {id(tensor) for node in nodes for tensor in node.outputs}
    for node in nodes:
        if not later.isdisjoint(map(id, node.inputs)):
            return False
        for _, graph in subgraphs(node):
            producers = _outer_dependencies(graph)
            if any(not later.isdisjoint(map(id, producer.outputs)) for producer in producers):
                return False
        later.difference_update(map(id, node.outputs))
    return True


def _dependencies(node: Node) -> list[Node]:
    producers = [producer for tensor in node.inputs for producer in tensor.inputs]
    for _, graph in subgraphs(node):
        producers.extend(_outer_dependencies(graph))
    return producers


def _outer_dependencies(graph: Graph) -> Iterator[Node]:
    for tensor in graph.outputs:
        yield from tensor.inputs
    for node in graph.nodes:
        yield from _dependencies(node)


def _walk(graph: Graph, path: str, model: Model) -> Iterator[tuple[Node, str]]:
    for node in graph.nodes:
        yield node, path
        for key, inner in subgraphs(node):
            yield from _walk(inner, f"{path}{model.label(node)}/{key}/", model)


def _all_names(graph: Graph) -> Iterator[str]:
    for tensor in (*graph.inputs, *graph.outputs):
        yield tensor.name
    for node in graph.nodes:
        yield node.name
        yield from (tensor.name for tensor in (*node.inputs, *node.outputs))
        for _, inner in subgraphs(node):
            yield from _all_names(inner)
