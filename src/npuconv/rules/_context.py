"""What a rule may ask: the target's limits, and the facts of a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from npuconv.facts import lookup
from npuconv.model import facts as measuring
from npuconv.model import query
from npuconv.rules import Violation, is_convolution
from npuconv.rules._lengths import contradictions
from npuconv.target import shown

if TYPE_CHECKING:
    from npuconv.config import Options
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.target import Operator, Target
    from npuconv.target.limit import Limit

# Integer convolutions answer to the limits of the operator they stand for.
_STANDS_FOR = {"QLinearConv": "Conv", "ConvInteger": "Conv"}


@dataclass
class RuleContext:
    """Handed to every rule of one lint."""

    model: Model
    target: Target
    options: Options
    _facts: dict[int, dict[str, Any]] = field(default_factory=dict)
    _by_op: dict[str, list[Node]] = field(default_factory=dict)
    _limits: dict[tuple[str, str, str], dict[str, Limit]] = field(default_factory=dict)

    def nodes_of(self, ops: frozenset[str]) -> list[Node]:
        """Nodes of these standard operators, ``{"*"}`` for all; sorted once per lint."""
        if not self._by_op:
            self._by_op["*"] = self.model.nodes()
            for node in self._by_op["*"]:
                if query.is_standard(node):
                    self._by_op.setdefault(node.op, []).append(node)
        return [node for op in sorted(ops) for node in self._by_op.get(op, ())]

    def facts(self, node: Node) -> dict[str, Any]:
        """The facts of a node, measured once per lint."""
        if id(node) not in self._facts:
            self._facts[id(node)] = self._measure(node)
        return self._facts[id(node)]

    def _measure(self, node: Node) -> dict[str, Any]:
        # Nothing can be measured where the lengths of attributes contradict the axes.
        facts = {} if any(contradictions(node)) else dict(measuring.measure(node))
        return {**facts, "layout": self.options.layout} if facts else {}

    def operator(self, node: Node) -> Operator | None:
        """What the target says of the node's operator; None if it says nothing."""
        return self.target.operator(_STANDS_FOR.get(node.op, node.op), node.domain or "")

    def covers(self, node: Node) -> bool:
        """Whether the target speaks of the node; convolutions have a rule of their own."""
        listed = self.operator(node) is not None
        return listed or node.op == "Constant" or is_convolution(node) or self._fused(node)

    def _fused(self, node: Node) -> bool:
        """An activation that the convolution before it applies itself, or is assumed to."""
        fused = self.target.fused_activations
        names = fused.values if fused.known else fused.assume
        maker = query.producer(node.inputs[0]) if len(node.inputs) else None
        if maker is None or node.op not in names or not query.is_standard(node):
            return False
        return is_convolution(maker) and self.operator(maker) is not None

    def limits(self, node: Node) -> dict[str, Limit]:
        """The limits of the node's operator, in the mode this node is in."""
        operator = self.operator(node)
        if operator is None:
            return {}
        mode = str(self.facts(node).get("mode", "plain"))
        key = (node.op, node.domain or "", mode)
        if key not in self._limits:
            self._limits[key] = operator.limits_for(mode)
        return self._limits[key]

    def violations(self, node: Node, *names: str) -> Iterator[Violation]:
        """One violation for each of these facts that is beyond a known limit.

        The message may use ``{fact}``, ``{value}`` and ``{limit}``.
        """
        facts, limits = self.facts(node), self.limits(node)
        for name in names:
            limit, value = limits.get(name), lookup(facts, name)
            if limit is None or limit.allows(value, facts) is not False:
                continue
            text, seen = limit.text(facts), shown(value)
            yield Violation(
                {"fact": name, "value": seen, "limit": text, "op": node.op},
                value=f"{name}={seen}",
                limit=text,
                source=limit.cite(),
            )
