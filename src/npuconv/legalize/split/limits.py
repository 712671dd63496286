"""Known limits of a target that a layer breaks, and their topics."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
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
    """One limit or relation, with the facts that it is about, and their topics."""

    name: str
    part: Limit | Relation
    facts: frozenset[str]
    topics: frozenset[str]

    def holds(self, facts: Facts) -> bool | None:
        """Return whether the limit or relation holds for these facts; None if not known."""
        if isinstance(self.part, Limit):
            return self.part.allows(lookup(facts, self.name), facts)
        return self.part.holds(facts)

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
            checks = [
                _check(name, limit, " ".join(v for v in limit.values if isinstance(v, str)))
                for name, limit in limits
                if limit.is_documented
            ]
            checks += [_check("", r, f"{r.if_} {r.then}") for r in self.operator.require]
            self._checks[mode] = tuple(checks)
        return self._checks[mode]


def _check(name: str, part: Limit | Relation, text: str) -> _Check:
    """Return a check on the fact of that name, if any, and on the facts that a text names."""
    facts = (frozenset(_NAMES.findall(text)) & frozenset(FACTS)) | frozenset(filter(None, [name]))
    return _Check(name, part, facts, frozenset(topic for fact in facts for topic in topics(fact)))
