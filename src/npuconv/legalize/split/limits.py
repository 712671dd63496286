"""Known limits of a target that a layer breaks, and their topics."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from npuconv.legalize.split.layer import Layer
from npuconv.model.facts import of_window
from npuconv.target import value_text
from npuconv.target.description import ListedOperator
from npuconv.target.facts import FACTS, Facts, lookup
from npuconv.target.limit import Limit, Relation

BATCH, PADS, STRIDE, DILATION, KERNEL = "batch", "pads", "stride", "dilation", "kernel"
GROUP, INPUTS, OUTPUTS, EXTENT, BIAS = "group", "inputs", "outputs", "extent", "bias"

# What a rewrite must change so that a fact changes.
_TOPICS: dict[str, tuple[str, ...]] = {
    "in_n": (BATCH,), "out_n": (BATCH,),
    "pad_max": (PADS,), "kernel_area": (KERNEL,), "kernel_volume": (KERNEL, INPUTS),
    "weight_h": (KERNEL,), "weight_w": (KERNEL,), "weight_n": (OUTPUTS, GROUP),
    "weight_c": (INPUTS, GROUP), "in_c_per_group": (INPUTS, GROUP),
    "out_c_per_group": (OUTPUTS, GROUP), "in_c": (INPUTS, GROUP), "C": (INPUTS, GROUP),
    "out_c": (OUTPUTS, GROUP), "group": (GROUP,), "mode": (GROUP,),
    "channel_multiplier": (GROUP,), "bias": (BIAS,),
}  # fmt: skip
_BY_PREFIX = {
    "pad_": (PADS,), "stride_": (STRIDE,), "dilation_": (DILATION,), "kernel_": (KERNEL,),
    "dilated_kernel_": (KERNEL, DILATION), "in_": (EXTENT,), "out_": (EXTENT,),
}  # fmt: skip
_FIXED = frozenset({"pad_value", "rank", "layout", "auto_pad", "dtype", "weight_dtype"})
_NAMES = re.compile(r"[A-Za-z_]\w*")


def topics(fact: str) -> tuple[str, ...]:
    """Return the topics of a fact: properties that a rewrite can change; () if there are none."""
    if fact in _FIXED:
        return ()
    by_prefix = (v for prefix, v in _BY_PREFIX.items() if fact.startswith(prefix))
    return _TOPICS.get(fact) or next(by_prefix, ())


@dataclass(frozen=True)
class Fault:
    """One known limit that a layer breaks."""

    text: str  # ``kernel_h is 7, the device takes at most 5``
    facts: frozenset[str]
    topics: frozenset[str]


@dataclass(frozen=True)
class _Check:
    """One limit or relation, ready to be asked about thousands of layers."""

    name: str
    part: Limit | Relation
    holds: Callable[[Facts], bool | None]
    facts: frozenset[str]
    topics: frozenset[str]

    def fault(self, facts: Facts) -> Fault:
        """Return the broken limit as text, with its facts and topics."""
        if isinstance(self.part, Limit):
            value = value_text(lookup(facts, self.name))
            text = f"{self.name} is {value}, the device takes {self.part.text(facts)}"
        else:
            text = f"{self.part.text(facts)} does not hold"
        return Fault(text, self.facts, self.topics)


@dataclass
class Demand:
    """Demands of a target on an operator, for layers outside a graph.

    Attributes:
        operator: entry of the operator in the target file.
        layout: order of the dimensions.
        adds: whether the device or a host adds tensors.
        joins_constants: whether the device puts constants beside a tensor: by Concat.
        joins_slices: whether it takes Slices without a step, and puts them side by side.
        pads_channels: whether it pads channels, with any number.
    """

    operator: ListedOperator
    layout: str = "nchw"
    adds: bool = True
    joins_constants: bool = False
    joins_slices: bool = False
    pads_channels: bool = False
    _broken_checks: dict[Layer, tuple[_Check, ...]] = field(default_factory=dict)
    _checks: dict[str, tuple[_Check, ...]] = field(default_factory=dict)

    def faults(self, layer: Layer) -> tuple[Fault, ...]:
        """The known limits and relations that the layer breaks."""
        broken = self._broken(layer)
        if not broken:
            return ()
        facts = self._facts(layer)
        return tuple(check.fault(facts) for check in broken)

    def fits(self, layer: Layer) -> bool:
        """Return whether the layer breaks no known limit."""
        return not self._broken(layer)

    def breaks(self, layer: Layer, *about: str) -> bool:
        """Return whether a fault of the layer has any of these topics."""
        return any(not check.topics.isdisjoint(about) for check in self._broken(layer))

    def count(self, layer: Layer) -> int:
        """Return the number of limits the layer breaks."""
        return len(self._broken(layer))

    def broken_facts(self, layer: Layer) -> list[frozenset[str]]:
        """The facts that each of the broken limits is about."""
        return [check.facts for check in self._broken(layer)]

    def multiple(self, fact: str) -> int:
        """The number that a fact must be a multiple of; 1 if there is no such limit."""
        limit = self.operator.limits.get(fact)
        value = None if limit is None else limit.multiple_of
        return value if isinstance(value, int) and value > 0 else 1

    def most(self, fact: str) -> int | None:
        """Return the largest value that a limit on a fact allows; None where it sets none."""
        limit = self.operator.limits.get(fact)
        if limit is None or not limit.is_documented:
            return None
        if limit.predicate in ("max", "range", "equals", "one_of"):
            numbers = [v for v in limit.values if type(v) is int]
            return max(numbers) if len(numbers) == len(limit.values) else None
        return None

    def exceeds(self, fact: str, value: int) -> bool:
        """Return whether a value is beyond the largest that is taken: more of it never fits."""
        most = self.most(fact)
        return most is not None and value > most

    def _broken(self, layer: Layer) -> tuple[_Check, ...]:
        broken = self._broken_checks.get(layer)
        if broken is None:
            facts = self._facts(layer)
            checks = self._checks_of(str(facts["mode"]))
            broken = tuple([check for check in checks if check.holds(facts) is False])
            self._broken_checks[layer] = broken
        return broken

    def _facts(self, layer: Layer) -> dict[str, Any]:
        facts = {**of_window(layer.window()), "layout": self.layout}
        if layer.op == "Conv":
            return {**facts, "bias": layer.bias}
        return {**facts, "ceil_mode": False, "count_include_pad": layer.counted}

    def _checks_of(self, mode: str) -> tuple[_Check, ...]:
        if mode not in self._checks:
            limits = self.operator.limits_for(mode).items()
            checks = [_of_limit(name, limit) for name, limit in limits if limit.is_documented]
            self._checks[mode] = (*checks, *map(_of_relation, self.operator.require))
        return self._checks[mode]


def _of_limit(name: str, limit: Limit) -> _Check:
    facts = _facts_in(" ".join(str(v) for v in limit.values if isinstance(v, str))) | {name}
    holds = _compile(name, limit) or (lambda facts: limit.allows(lookup(facts, name), facts))
    return _Check(name, limit, holds, facts, _topics_of(facts))


def _compile(name: str, limit: Limit) -> Callable[[Facts], bool | None] | None:
    """Compile a range or an enumeration to a faster test; None for other limits."""
    values, predicate = limit.values, limit.predicate
    if name == "C":
        return None
    if predicate in ("equals", "one_of"):
        literals = frozenset((type(v), v) for v in values if v not in FACTS)
        references = [v for v in values if isinstance(v, str) and v in FACTS]
        return partial(_allows_literal, name, literals, references)
    if any(type(value) is not int for value in values):
        return None
    numbers: list[float] = [int(value) for value in values]
    ranges = {"max": [-math.inf, *numbers], "min": [*numbers, math.inf], "range": numbers}
    if predicate not in ranges:
        return None
    least, most = ranges[predicate]

    def is_inside(facts: Facts) -> bool | None:
        value = facts.get(name)
        return least <= value <= most if type(value) is int else None

    return is_inside


def _allows_literal(
    name: str, literals: frozenset[Any], references: list[str], facts: Facts
) -> bool | None:
    """Answer ``equals`` and ``one_of``; True differs from 1."""
    value = facts.get(name)
    if value is None or (type(value), value) in literals:
        return None if value is None else True
    allowed = [lookup(facts, fact) for fact in references]
    if any(type(item) is type(value) and item == value for item in allowed):
        return True
    return None if None in allowed else False


def _of_relation(relation: Relation) -> _Check:
    named = _facts_in(f"{relation.if_} {relation.then}")
    return _Check("", relation, relation.holds, named, _topics_of(named))


def _facts_in(text: str) -> frozenset[str]:
    return frozenset(_NAMES.findall(text)) & frozenset(FACTS)


def _topics_of(facts: frozenset[str]) -> frozenset[str]:
    return frozenset(topic for fact in facts for topic in topics(fact))
