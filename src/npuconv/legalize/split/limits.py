"""Known limits of a target that a layer breaks, and their topics."""

from __future__ import annotations

from functools import cache
from typing import Any

from npuconv.legalize.split.layer import Layer
from npuconv.model.facts import of_window
from npuconv.records import dataclass, field
from npuconv.target.description import ListedOperator
from npuconv.target.facts import FACTS

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


@cache
def topics(fact: str) -> tuple[str, ...]:
    """Return the topics of a fact: properties that a rewrite can change; () if there are none."""
    if fact in _FIXED:
        return ()
    by_prefix = (v for prefix, v in _BY_PREFIX.items() if fact.startswith(prefix))
    return _TOPICS.get(fact) or next(by_prefix, ())


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
        most_weights: largest number of weights of a dense form of groups.
    """

    operator: ListedOperator
    layout: str = "nchw"
    adds: bool = True
    joins_constants: bool = False
    joins_slices: bool = False
    pads_channels: bool = False
    most_weights: int = 2**24
    _broken: dict[Layer, list[frozenset[str]]] = field(default_factory=dict)

    def objections(self, layer: Layer) -> list[str]:
        """Return the known limits and relations that the layer breaks, one sentence each."""
        return [] if self.fits(layer) else self.operator.objections(self._facts(layer))

    def fits(self, layer: Layer) -> bool:
        """Return whether the layer breaks no known limit."""
        return not self.broken_facts(layer)

    def breaks(self, layer: Layer, *about: str) -> bool:
        """Return whether a fault of the layer has any of these topics."""
        facts = frozenset[str]().union(*self.broken_facts(layer))
        return any(topic in about for fact in facts for topic in topics(fact))

    def broken_facts(self, layer: Layer) -> list[frozenset[str]]:
        """The facts that each of the broken limits is about."""
        if layer not in self._broken:
            limits, relations = self.operator.broken(self._facts(layer))
            named = [
                frozenset({fact, *(str(v) for v in limit.values if v in FACTS)})
                for fact, limit in limits.items()
            ]
            self._broken[layer] = [*named, *(frozenset(r.facts) for r in relations)]
        return self._broken[layer]

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

    def _facts(self, layer: Layer) -> dict[str, Any]:
        facts = {**of_window(layer.window()), "layout": self.layout}
        if layer.op == "Conv":
            return {**facts, "bias": layer.bias}
        return {**facts, "ceil_mode": False, "count_include_pad": layer.counted}
