"""Context of a rule: the target's limits and the facts of a node."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
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
    from npuconv.model.types import Node, Tensor
    from npuconv.partition import Plan
    from npuconv.rules._seen import Measured, Seen
    from npuconv.rules._unknown import Need
    from npuconv.target import Operator, Target
    from npuconv.target.limit import Limit

# Integer convolutions answer to the limits of the operator they stand for.
_STANDS_FOR = {"QLinearConv": "Conv", "ConvInteger": "Conv"}
# Sheets kept from lint to lint: layers of a network repeat, so there are far fewer.
_MOST_SHEETS = 4096
_FEW = 64  # axes, pads and shapes are no longer; weights are


@dataclass
class Sheet:
    """Facts and limits of a node, and of all that say the same of themselves."""

    facts: dict[str, Any]
    limits: dict[str, Limit]
    # By code, what rules have said that say the same of all these nodes.
    verdicts: dict[str, tuple[Violation, ...]] = field(default_factory=dict)


@dataclass
class RuleContext:
    """Handed to every rule of one lint.

    Attributes:
        model: what is looked at.
        target: what is demanded.
        options: of the user.
        sheets: what earlier lints for the same target and options have measured. The key
            is all that is measured, so a node that has changed finds another sheet.
        needs: of the limits that are not known, in this lint.
        kept: labels of source nodes that stay float on the host; no limit is about them.
        plan: where nodes run, once that is known.
        seen: what calibration has shown; None before.
        measured: what became of the accuracy; None before.
    """

    model: Model
    target: Target
    options: Options
    sheets: dict[Hashable, Sheet] = field(default_factory=dict)
    needs: list[Need] | None = None
    kept: frozenset[str] = frozenset()
    plan: Plan | None = None
    seen: Seen | None = None
    measured: Measured | None = None
    _by_node: dict[int, Sheet] = field(default_factory=dict)
    _by_op: dict[str, list[Node]] = field(default_factory=dict)
    _kinds: dict[frozenset[str], list[Node]] = field(default_factory=dict)
    _operators: dict[tuple[str, str], Operator | None] = field(default_factory=dict)

    def nodes_of(self, ops: frozenset[str]) -> list[Node]:
        """Nodes of these operators, ``{"*"}`` for all; sorted once per lint.

        One of another domain is called by both, as ``com.microsoft.QLinearConv``.
        """
        if not self._by_op:
            self._by_op["*"] = self.model.nodes()
            for node in self._by_op["*"]:
                self._by_op.setdefault(query.qualified(node), []).append(node)
        return [node for op in sorted(ops) for node in self._by_op.get(op, ())]

    def kinds_of(self, ops: frozenset[str]) -> list[Node]:
        """Return the first node of each kind; nodes that share a sheet are of one kind."""
        if ops not in self._kinds:
            first = {id(self.sheet(node)): node for node in reversed(self.nodes_of(ops))}
            self._kinds[ops] = list(first.values())
        return self._kinds[ops]

    def keeps(self, node: Node) -> bool:
        """Return whether the node stays float on the host at the request of the user."""
        return bool(self.kept) and not self.kept.isdisjoint(self.model.origin(node))

    def facts(self, node: Node) -> dict[str, Any]:
        """The facts of a node, measured once per lint."""
        return self.sheet(node).facts

    def sheet(self, node: Node) -> Sheet:
        """The sheet of a node, looked up once per lint."""
        found = self._by_node.get(id(node))
        if found is None:
            found = self._by_node[id(node)] = self._look_up(node)
        return found

    def _look_up(self, node: Node) -> Sheet:
        key = _says(node)
        found = self.sheets.get(key) if key is not None else None
        if found is None:
            facts = self._measure(node)
            found = Sheet(facts, self._limits(node, facts))
            self._keep(key, found)
        return found

    def _keep(self, key: Hashable, sheet: Sheet) -> None:
        if len(self.sheets) >= _MOST_SHEETS:
            self.sheets.clear()
        if key is not None:
            self.sheets[key] = sheet

    def _measure(self, node: Node) -> dict[str, Any]:
        # Nothing can be measured where the lengths of attributes contradict the axes.
        facts = {} if any(contradictions(node)) else dict(measuring.measure(node))
        return {**facts, "layout": self.options.layout} if facts else {}

    def _limits(self, node: Node, facts: dict[str, Any]) -> dict[str, Limit]:
        operator = self.operator(node)
        return operator.limits_for(str(facts.get("mode", "plain"))) if operator else {}

    def operator(self, node: Node) -> Operator | None:
        """Return the target's entry for the node's operator; None if there is none."""
        key = (_STANDS_FOR.get(node.op, node.op), node.domain or "")
        if key not in self._operators:
            self._operators[key] = self.target.operator(*key)
        return self._operators[key]

    def covers(self, node: Node) -> bool:
        """Return whether the target covers the node; convolutions, with their own rule, count."""
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
        return self.sheet(node).limits

    def violations(self, node: Node, *names: str) -> Iterator[Violation]:
        """One violation for each of these facts of a convolution that is beyond a known limit.

        The message may use ``{fact}``, ``{value}`` and ``{limit}``. A pool may run on the
        host; operator-beyond-limits speaks of it.
        """
        if node.op in query.POOLS:
            return iter(())
        return _beyond(node.op, self.sheet(node), names)


def _beyond(op: str, sheet: Sheet, names: tuple[str, ...]) -> Iterator[Violation]:
    facts = sheet.facts
    for name in names:
        limit, value = sheet.limits.get(name), lookup(facts, name)
        if limit is None or limit.allows(value, facts) is not False:
            continue
        text, seen = limit.text(facts), shown(value)
        yield Violation(
            {"fact": name, "value": seen, "limit": text, "op": op},
            value=f"{name}={seen}",
            limit=text,
            source=limit.cite(),
        )


def _says(node: Node) -> Hashable | None:
    """Return a key of all that facts are measured on; None if it cannot be hashed.

    Facts depend on attributes, shapes and types, and numbers such as the amounts of a Pad.
    Nodes with the same key have the same facts, in one lint or in two.
    """
    attrs = tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in node.attrs.items())
    read, made = tuple(map(_tensor, node.inputs)), tuple(map(_tensor, node.outputs))
    key = (node.op, node.domain, attrs, read, made)
    try:
        hash(key)
    except TypeError:  # a tensor or a graph: rare, and nothing to share
        return None
    return key


def _tensor(tensor: Tensor) -> Hashable:
    shape = None if tensor.shape is None else tuple(tensor.shape)
    values = _numbers(tensor) if query.is_constant(tensor) else None
    return (values, bool(tensor.name), tensor.dtype, shape)


def _numbers(tensor: Tensor) -> Hashable:
    """The values where they are one number or a few integers, else only that there are some."""
    size = math.prod(tensor.shape)
    few = size == 1 or (size <= _FEW and tensor.dtype.kind in "iu")
    return tensor.values.tobytes() if few else True
