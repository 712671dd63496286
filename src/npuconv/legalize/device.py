"""The target as passes ask it: nodes that it takes, and their costs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from npuconv.legalize.split.layer import layer_of
from npuconv.legalize.split.layer import of_window as layer_of_window
from npuconv.model import Model, Node, Window, query, window
from npuconv.model.facts import of_window
from npuconv.partition.costs import Cost
from npuconv.partition.operators import takes_as
from npuconv.records import dataclass, field, replace

if TYPE_CHECKING:
    from npuconv.config import Options
    from npuconv.legalize.split.planner import Planner, SplitPlan
    from npuconv.target import Target

_LEAST_OPSET = 13  # least opset of split layers
INTEGER_FORMS = ("qoperator", "qdq")  # formats that can state the integer arithmetic of the device


@dataclass(frozen=True)
class TargetDevice:
    """A target and the options of a run.

    Attributes:
        target: limits of the device.
        options: options of the run, with the options for this model.
        keep_float: pattern of the user by label of a source node that stays float, on the host.
    """

    target: Target
    options: Options
    keep_float: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def planner(self) -> Planner:
        """Planner of splits for convolutions that break a known limit."""
        from npuconv.legalize.split.planner import Planner

        return Planner(
            self.target,
            self.options.layout,
            most_weights=self.options.max_folded_mib * 2**18,  # float32
            exact_sums=self.accumulates,
            joins_constants=self.options.format in ("float", *INTEGER_FORMS),
            form=self.options.format,
            prefer=self.options.prefer,
        )

    @property
    def accumulates(self) -> bool:
        """Return whether the device adds partial sums in int32, and the format can state it."""
        is_exact = self.target.activations.accumulate == "int32"
        return is_exact and self.options.format != "tflite" and self.options.layout == "nchw"

    @property
    def free_zero(self) -> int:
        """Zero point of weights, and of tensors whose zero point in the file is free."""
        return -1 if self.target.rescales_symmetric and self.options.format == "qdq" else 0

    def objections(self, win: Window, *, bias: bool = True) -> list[str]:
        """Return the limits that a considered convolution would break, one sentence each."""
        operator = self.target.operator("Conv")
        if operator is None:
            return [f"target {self.target.name} does not list Conv"]
        return operator.objections({**of_window(win), "layout": self.options.layout, "bias": bias})

    def breaks(self, win: Window, node: Node) -> bool:
        """Return whether a Conv breaks a known limit."""
        return bool(self.objections(win, bias=query.input_of(node, 2) is not None))

    def split_plans(self, model: Model) -> list[tuple[Node, SplitPlan]]:
        """Return the convolutions beyond a limit whose parts have their integers, with plans."""
        if model.opset < _LEAST_OPSET or self.target.operator("Conv") is None:
            return []
        convs = (node for node in model.nodes("Conv") if node.name not in self.keep_float)
        return [(conv, plan) for conv in convs if (plan := self.split_plan(conv)) is not None]

    def split_plan(self, conv: Node) -> SplitPlan | None:
        """Return the plan of a Conv beyond a limit whose parts have its integers, if there is one.

        None if the device takes the Conv unchanged.
        """
        win = window(conv)
        if win is None or not self.options.fit or not self.breaks(win, conv):
            return None
        layer = layer_of(conv, self.target)
        plan = None if isinstance(layer, str) else self.planner.exact_plan(layer)
        return None if plan is None or plan.proposal is None else plan

    def change_objections(self, conv: Node, changed: Window) -> list[str]:
        """Return the objections to a change of a Conv; a split layer may be split otherwise."""
        objections = self.objections(changed)
        is_split = objections and self.split_plan(conv)
        layer = layer_of_window(changed, bias=True) if is_split else None
        return [] if layer is not None and self.planner.exact_plan(layer) else objections

    def is_biasless(self, conv: Node) -> bool:
        """Return whether the device can add no bias to a Conv, or only a small one."""
        win, plan = window(conv), self.split_plan(conv)
        if plan is not None and plan.biasless:
            return True
        if win is None or query.input_of(conv, 2) is not None:
            return False
        if plan is None:
            return bool(self.objections(win))
        demand = self.planner.demand
        return demand is not None and not all(
            demand.fits(replace(leaf, bias=True)) for leaf in plan.leaves
        )

    def lasting_objections(self, win: Window) -> list[str]:
        """Return the objections to a considered convolution that no split of it removes."""
        objections = self.objections(win)
        return [] if objections and self._fitted(win) is not None else objections

    def adds_bias(self, win: Window) -> bool:
        """Return whether the bias of a considered convolution needs an Add, or has no place."""
        plan = self._fitted(win)
        return plan is None or plan.adds_bias

    def cost(self, win: Window) -> Cost:
        """Return the cost of a considered convolution after it is fitted to the limits."""
        plan = self._fitted(win)
        return Cost(win.macs, win.parameters(), 1) if plan is None else plan.cost

    def _fitted(self, win: Window) -> SplitPlan | None:
        layer = layer_of_window(win, bias=True) if self.options.fit else None
        return None if layer is None else self.planner.plan(layer)[0]

    def offloads(self, node: Node, *, listed: bool = False) -> bool:
        """Return whether to rewrite a node as a Conv: requested, and the target does not take it.

        With ``listed`` also if the target takes it.
        """
        stays = not listed and takes_as(node.op, node, self.target)
        is_requested = self.options.offload and node.name not in self.keep_float
        return is_requested and not stays and self.target.operator("Conv") is not None
