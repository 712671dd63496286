"""The model as it came: header, and form and cost of every node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from npuconv.findings import Finding, Severity
from npuconv.legalize.split.layer import times
from npuconv.model import Model, Node, Tensor, Window, query, window
from npuconv.partition.costs import Cost, cost
from npuconv.records import dataclass, field, replace
from npuconv.schemas.report import SourceNode, TensorSpec
from npuconv.target import Target

_NAMED_OPERATORS = 4  # largest number of operators that are named with their windows


@dataclass(frozen=True)
class SourceModel:
    """The model before any change."""

    ir_version: int
    opset: dict[str, int]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    forms: dict[str, str] = field(default_factory=dict)  # text for every node, by label
    # Operators of every node, by label.
    ops: dict[str, frozenset[str]] = field(default_factory=dict)
    nodes: tuple[SourceNode, ...] = ()  # nodes in order, without constants
    # Cost of every node by label, once names and constants are settled.
    costs: dict[str, Cost] = field(default_factory=dict)
    # Labels of convolutions that the device takes without a rewrite.
    supported_convs: frozenset[str] = frozenset()

    @classmethod
    def from_model(cls, model: Model) -> SourceModel:
        """Return the header; ``with_nodes`` follows once shapes are inferred."""
        domains = {o.domain: int(o.version) for o in model.graph.import_domains or ()}
        return cls(
            model.header.ir_version,
            {"": model.opset, **{d: v for d, v in sorted(domains.items()) if d}},
            tuple(_info(tensor) for tensor in model.graph.inputs),
            tuple(_info(tensor) for tensor in model.graph.outputs),
        )

    def with_nodes(self, model: Model) -> SourceModel:
        """Return the source with name, form and operators of every node."""
        labelled = model.labelled()
        rows = tuple(
            SourceNode(
                name=label,
                form=form_of(node),
                inputs=tensors(node.inputs),
                outputs=tensors(node.outputs),
            )
            for label, node in labelled
            if node.op != "Constant"
        )
        nodes = by_label(labelled)
        return replace(
            self,
            nodes=rows,
            forms={label: describe(members) for label, members in nodes.items()},
            ops={label: operators(members) for label, members in nodes.items()},
        )

    def with_costs(self, model: Model, target: Target, findings: Iterable[Finding]) -> SourceModel:
        """Return the source with costs of its canonical model, and its supported convolutions.

        Before that, weights that come from a chain of constants, and batch normalizations, would
        count as changes for this target.
        """
        errors = [f for f in findings if f.severity == Severity.ERROR]
        refused = {label for f in errors for label in f.origin}
        convs = model.nodes("Conv") if target.operator("Conv") is not None else []
        return replace(
            self,
            costs={label: cost(nodes) for label, nodes in by_label(model.labelled()).items()},
            supported_convs=frozenset(model.label(node) for node in convs) - refused,
        )


def tensors(listed: Iterable[Tensor]) -> tuple[str, ...]:
    """Return the names of tensors without constants and omitted tensors."""
    return tuple(t.name for t in listed if t.name and not query.is_constant(t))


def _info(tensor: Tensor) -> TensorSpec:
    dtype = query.dtype_name(tensor)
    return TensorSpec(name=tensor.name, dtype=dtype, shape=query.shape(tensor))


def by_label(labelled: Iterable[tuple[str, Node]]) -> dict[str, list[Node]]:
    """Return labelled nodes by their first source node."""
    nodes: dict[str, list[Node]] = {}
    for label, node in labelled:
        nodes.setdefault(label, []).append(node)
    return nodes


def operators(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the qualified operators of nodes."""
    return frozenset(query.qualified(node) for node in nodes)


def describe(nodes: list[Node]) -> str:
    """Return ``4 Conv 1x1 + Concat``; of many operators only names and counts."""
    if len(nodes) == 1:  # nearly always
        return form_of(nodes[0])
    counts = Counter(form_of(node) for node in nodes)
    if len(counts) > _NAMED_OPERATORS:
        counts = Counter(query.qualified(node) for node in nodes)
    return " + ".join(f"{n} {text}" if n > 1 else text for text, n in counts.items())


def form_of(node: Node) -> str:
    """Return ``Conv 3x3, stride 2, group 4``: operator and window, without channels."""
    win = window(node)
    name = query.qualified(node)
    return name if win is None else _form(name, win)


@lru_cache(maxsize=4096)  # a network has few different windows
def _form(name: str, win: Window) -> str:
    if win.kernel is None:
        return name
    name += "" if len(win.kernel) == 2 else f"{len(win.kernel)}D"
    parts = [f"{name} {times(win.kernel)}"]
    if set(win.strides) != {1}:
        parts.append(f"stride {times(win.strides)}")
    if set(win.dilations) != {1}:
        parts.append(f"dilation {times(win.dilations)}")
    if win.group != 1:
        parts.append("depthwise" if win.group == win.in_channels else f"group {win.group}")
    return ", ".join(parts)
