"""The context of a rule: model and target, facts and limits of every node, and measurements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from npuconv.findings import Severity, Status
from npuconv.model import Model, Node, query
from npuconv.model import facts as measuring
from npuconv.model.attributes import contradictions
from npuconv.partition.placement import Plan
from npuconv.records import dataclass, field
from npuconv.target import value_text
from npuconv.target.facts import DECIDED_LATER, lookup

if TYPE_CHECKING:
    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.layer import RoundedWeights
    from npuconv.arithmetic.statistics import Statistics
    from npuconv.config import Options
    from npuconv.schemas.quality import Accuracy
    from npuconv.target import Target
    from npuconv.target.description import ListedOperator
    from npuconv.target.limit import Limit, Relation


_CONVOLUTION = re.compile(r"Conv(?![a-z])")  # FusedConv matches, ConvertLayout does not


@dataclass(frozen=True)
class Violation:
    """Fault that a rule found. ``values`` fill the placeholders of the rule's message."""

    values: dict[str, Any] = field(default_factory=dict)
    value: str = ""  # value in the model, for the report's column
    limit: str = ""  # allowed values
    source: str = ""  # place in the target file, and the cited document
    fix: str = ""  # advice, if not that of the rule
    node: Any = None  # node of the fault, for a model rule
    status: Status = Status.REMAINING
    severity: Severity | None = None  # severity, if not that of the rule


Violations = Iterator[Violation]


def is_convolution(node: Node) -> bool:
    """Return whether the operator is a convolution of any domain."""
    return _CONVOLUTION.search(node.op) is not None


@dataclass(frozen=True)
class CalibrationEvidence:
    """Results of one calibration."""

    plan: Plan  # where nodes run, and which tensors are int8
    # Statistics of the float pass: outputs of groups, and of convolutions.
    statistics: Mapping[str, Statistics]
    encodings: Mapping[str, Encoding]  # encodings of all int8 tensors by name
    imported_ranges: frozenset[str] = frozenset()  # tensors with the range of the quantized source
    samples: int = 0
    # Weights that were rounded with samples (GPTQ), by node.
    rounded: Mapping[str, RoundedWeights] = field(default_factory=dict)
    # Samples whose normalization seems to differ from the normalization in training.
    mismatch: Violation | None = None


@dataclass(frozen=True)
class FormObstacle:
    """A part of the model that the output format cannot hold."""

    node: str  # name of the node in the graph; empty for the whole model
    problem: str
    fix: str = ""  # advice; empty: the advice of the rule


# Integer convolutions are held to the limits of the operator they stand for.
_STANDS_FOR = {"QLinearConv": "Conv", "ConvInteger": "Conv"}


@dataclass
class RuleContext:
    """Input of every rule of one lint."""

    model: Model
    target: Target
    options: Options
    # Labels of source nodes that stay float on the host; no limit applies to them.
    kept_float: frozenset[str] = frozenset()
    opset_obstacle: str = ""  # node that cannot be written in the opset, once tried
    plan: Plan | None = None  # where nodes run, once that is known
    evidence: CalibrationEvidence | None = None  # results of calibration; None before
    accuracy: Accuracy | None = None  # measured accuracy of the int8 model; None before
    # Names of outputs that are finite in the float model, and not in the int8 model.
    broken: tuple[str, ...] = ()
    obstacles: tuple[FormObstacle, ...] = ()  # obstacles to the output format, once tried
    # Facts, and the limits and relations that they break, by id of the node.
    _facts: dict[int, dict[str, Any]] = field(default_factory=dict)
    _broken: dict[int, tuple[dict[str, Limit], list[Relation]]] = field(default_factory=dict)
    _by_op: dict[str, list[Node]] = field(default_factory=dict)
    _operators: dict[tuple[str, str], ListedOperator | None] = field(default_factory=dict)

    def nodes_of(self, ops: frozenset[str]) -> list[Node]:
        """Return the nodes of these operators, ``{"*"}`` for all; sorted once per lint.

        One of another domain is listed with its domain, as ``com.microsoft.QLinearConv``.
        """
        if not self._by_op:
            self._by_op["*"] = self.model.nodes()
            for node in self._by_op["*"]:
                self._by_op.setdefault(query.qualified(node), []).append(node)
        return [node for op in sorted(ops) for node in self._by_op.get(op, ())]

    def is_kept_float(self, node: Node) -> bool:
        """Return whether the node stays float on the host at the request of the user."""
        return bool(self.kept_float) and not self.kept_float.isdisjoint(self.model.origin(node))

    def facts(self, node: Node) -> dict[str, Any]:
        """Return the facts of a node, by the names that target files use; measured once."""
        if id(node) not in self._facts:
            # Nothing can be measured where the lengths of attributes contradict the axes.
            facts = {} if any(contradictions(node)) else dict(measuring.measure(node))
            self._facts[id(node)] = facts | ({"layout": self.options.layout} if facts else {})
        return self._facts[id(node)]

    def limits(self, node: Node) -> Mapping[str, Limit]:
        """Return the limits of the node's operator, in the mode this node is in."""
        operator = self.operator(node)
        mode = str(self.facts(node).get("mode", "plain"))
        return operator.limits_for(mode) if operator else {}

    def operator(self, node: Node) -> ListedOperator | None:
        """Return the target's entry for the node's operator; None if there is none."""
        key = (_STANDS_FOR.get(node.op, node.op), node.domain or "")
        if key not in self._operators:
            self._operators[key] = self.target.operator(*key)
        return self._operators[key]

    def covers(self, node: Node) -> bool:
        """Return whether the target covers the node; convolutions, with their own rule, count."""
        listed = self.operator(node) is not None
        return listed or node.op == "Constant" or is_convolution(node) or self._is_fused(node)

    def _is_fused(self, node: Node) -> bool:
        """Return whether the convolution before an activation applies it, or may."""
        producer = query.producer(node.inputs[0]) if len(node.inputs) else None
        if producer is None or node.op not in self.target.fusible or not query.is_standard(node):
            return False
        return is_convolution(producer) and self.operator(producer) is not None

    def violations(self, node: Node, *names: str) -> Iterator[Violation]:
        """Return a violation for each of these facts of a convolution beyond a known limit.

        The message may use ``{fact}``, ``{value}`` and ``{limit}``. A pool may run on the
        host; operator-beyond-limits reports it.
        """
        return iter(()) if node.op in query.POOLS else self._beyond_limits(node, names)

    def broken_relations(self, node: Node) -> Iterator[Violation]:
        """Yield a violation for each relation between facts that does not hold.

        The message may use ``{problem}``.
        """
        for relation in self._broken_demands(node)[1]:
            problem = f"{relation.text(self.facts(node))} does not hold"
            yield Violation(
                {"problem": problem, "target": self.target.name},
                limit=relation.text(),
                source=relation.cite(),
            )

    def beyond_listed(self, node: Node) -> Iterator[Violation]:
        """Yield violations of limits and relations of a listed operator; none for convolutions.

        The message may use ``{problem}`` and ``{target}``.
        """
        if not is_convolution(node):
            names = [n for n in self._broken_demands(node)[0] if n not in DECIDED_LATER]
            yield from self._beyond_limits(node, names)
            yield from self.broken_relations(node)

    def _broken_demands(self, node: Node) -> tuple[dict[str, Limit], list[Relation]]:
        """Return the known limits, by fact, and the relations that the node breaks."""
        if id(node) not in self._broken:
            operator = self.operator(node)
            facts = self.facts(node) if operator else {}
            self._broken[id(node)] = operator.broken(facts) if operator and facts else ({}, [])
        return self._broken[id(node)]

    def _beyond_limits(self, node: Node, names: Iterable[str]) -> Iterator[Violation]:
        limits = self._broken_demands(node)[0]
        for name in filter(limits.get, names):
            facts, limit = self.facts(node), limits[name]
            text, shown_value = limit.text(facts), value_text(lookup(facts, name))
            values = {"fact": name, "value": shown_value, "limit": text, "op": node.op}
            values["problem"] = f"{name} is {shown_value}; the device takes {text}"
            values["target"] = self.target.name
            yield Violation(values, f"{name}={shown_value}", text, limit.cite())
