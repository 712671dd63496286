"""Model: a graph, the header graph-surgeon would lose, and where every node comes from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any

from npuconv.model.types import Graph, Node, Tensor

if TYPE_CHECKING:
    from npuconv.model.store import Store

_Index = dict[tuple[str, str], list[tuple[int, Node]]]  # by operator and domain


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


@dataclass(frozen=True)
class NodeMeta:
    """Data of a node that graph-surgeon's Node does not keep."""

    origin: tuple[str, ...]  # labels of the source nodes it stands for
    doc_string: str = ""
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass
class Model:
    """A graph that passes may change, through ``model.edit`` only.

    Nodes are told apart by identity: graph-surgeon compares tensors by name and can
    hash neither nodes nor tensors.
    """

    graph: Graph
    header: Header
    name: str = "model.onnx"
    sha256: str = ""
    opset_source: int = 0
    obstacle: str = ""  # what keeps the opset from being raised
    scales: dict[str, float] = field(default_factory=dict)  # of int8 inputs and outputs
    store: Store | None = None  # of its weights, where they are too large to be held
    shared: dict[str, Tensor] = field(default_factory=dict)  # constants many nodes read
    _meta: dict[int, tuple[Node, NodeMeta]] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict)  # the last given to each stem
    _inner: set[int] | None = None  # nodes of subgraphs, once asked for
    _index: tuple[list[Node], _Index] = field(default_factory=lambda: ([], {}))
    # The list of outputs last seen, its length, and what is in it.
    _outputs: tuple[list[Tensor], int, frozenset[int]] = ([], 0, frozenset())

    @property
    def opset(self) -> int:
        """Version of the ONNX standard domain."""
        return int(self.graph.opset)

    def nodes(self, *ops: str, domain: str = "") -> list[Node]:
        """Top-level nodes in topological order; a snapshot, safe to edit under.

        Args:
            ops: only these operators; none means all.
            domain: of the operators named.
        """
        if not ops:
            return list(self.graph.nodes)
        index = self._by_op()
        groups = [found for op in dict.fromkeys(ops) if (found := index.get((op, domain)))]
        listed = groups[0] if len(groups) == 1 else sorted(chain(*groups))
        return [node for _, node in listed]

    def _by_op(self) -> _Index:
        """Nodes and their positions by operator: most passes look for what is not there.

        The operator of a node is not to change, other than by another node in its place.
        """
        nodes, (known, index) = self.graph.nodes, self._index
        if len(known) != len(nodes) or not all(map(is_, known, nodes)):
            index = defaultdict(list)
            for number, node in enumerate(nodes):
                index[node.op, node.domain or ""].append((number, node))
            self._index = list(nodes), index
        return index

    def settle(self, nodes: list[Node]) -> None:
        """Replace the nodes of the graph by these, in this order, and reset the index."""
        self.graph.nodes[:] = nodes
        self._index = [], {}

    def walk(self) -> Iterator[tuple[Node, str]]:
        """Every node with the path of the subgraph it lies in ('' for the top level)."""
        yield from _walk(self.graph, "", self)

    def meta(self, node: Node) -> NodeMeta | None:
        """The origin and notes of a node; None for one nobody registered."""
        entry = self._meta.get(id(node))
        return entry[1] if entry else None

    def register(self, node: Node, meta: NodeMeta) -> None:
        """Note where ``node`` comes from. Holding the node keeps its id from reuse."""
        self._meta[id(node)] = (node, meta)

    def origin(self, *nodes: Node) -> tuple[str, ...]:
        """Labels of the source nodes these stand for, without repeats, in order."""
        if len(nodes) == 1:  # nearly always
            entry = self._meta.get(id(nodes[0]))
            return entry[1].origin if entry else ()
        entries = [self._meta.get(id(node)) for node in nodes]
        return tuple(dict.fromkeys(label for e in entries if e for label in e[1].origin))

    def label(self, node: Node) -> str:
        """The user's own name of a node: the first source node it stands for."""
        entry = self._meta.get(id(node))
        return entry[1].origin[0] if entry and entry[1].origin else (node.name or node.op)

    def is_top_level(self, node: Node) -> bool:
        """Return whether the node is in the graph itself, not in a subgraph."""
        if self._inner is None:
            self._inner = {id(inner) for inner, path in self.walk() if path}
        return id(node) not in self._inner

    def note_inner(self, node: Node) -> None:
        """A node has been added to a subgraph."""
        if self._inner is not None:
            self._inner.add(id(node))

    def forget_inner(self) -> None:
        """Nodes of a subgraph have become nodes of the graph itself."""
        self._inner = None

    def is_output(self, tensor: Tensor) -> bool:
        """Return whether the tensor is an output of the model."""
        outputs = self.graph.outputs
        known, count, members = self._outputs
        if known is not outputs or count != len(outputs):
            members = frozenset(map(id, outputs))
            self._outputs = (outputs, len(outputs), members)
        return id(tensor) in members

    def is_input(self, tensor: Tensor) -> bool:
        """Return whether the tensor is an input of the model."""
        return any(tensor is inp for inp in self.graph.inputs)

    def fresh_name(self, stem: str) -> str:
        """A name no tensor or node of the model has, starting with ``stem``."""
        if not self._names:
            self._names = set(_all_names(self.graph))
        name, count = stem, self._numbers.get(stem, 0)
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._numbers[stem] = count
        self._names.add(name)
        return name


# The operators of ONNX's own domain that hold graphs; of others nothing is known.
HOLDERS = frozenset({"If", "Loop", "Scan", "SequenceMap"})


def subgraphs(node: Node) -> Iterable[tuple[str, Graph]]:
    """The graphs held by a node's attributes (If, Loop, Scan), with attribute names."""
    if not node.attrs or (node.op not in HOLDERS and not node.domain):
        return ()  # every walk asks, and nearly no node has any
    return [(k, v) for k, v in node.attrs.items() if isinstance(v, Graph)]  # type: ignore[misc]


def with_inner(node: Node) -> Iterator[Node]:
    """Yield a node, and those of the graphs that it holds."""
    yield node
    for _, graph in subgraphs(node):
        for inner in graph.nodes:
            yield from with_inner(inner)


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
