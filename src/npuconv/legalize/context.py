"""Context of a pass: the target, records of its rewrites and of its near misses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from npuconv.config import Options
from npuconv.legalize import region as _region
from npuconv.legalize.fitting.layer import of_window as layer_of
from npuconv.legalize.source import SourceScales
from npuconv.model import query
from npuconv.model.conv import Window, window
from npuconv.model.core import Model
from npuconv.model.facts import of_window, settled
from npuconv.model.types import Node, Tensor
from npuconv.partition.costs import Cost, Form, cost
from npuconv.target import Target

if TYPE_CHECKING:
    import numpy as np

    from npuconv.legalize.fitting.planner import Plan, Planner

    Expected = tuple[np.ndarray, np.ndarray]  # mean and standard deviation of every channel

NOTHING = Cost(0, 0)
INTEGER_FORMS = ("qoperator", "qdq")  # forms that can say what the device does to integers


@dataclass
class RewriteRecord:
    """One change, with the region before and after it until it has been measured."""

    pass_name: str
    origin: tuple[str, ...]
    before: str
    after: str
    old: _region.Region | None = None
    new: _region.Region | None = None
    modulus: int | None = None
    exact: frozenset[int] = frozenset()
    difference: float | None = None
    reference: str = "not measured"
    note: str = ""
    cost_before: Cost = NOTHING
    cost_after: Cost = NOTHING
    made: list[Node] = field(default_factory=list)  # what stands there now, until it is costed
    forms: tuple[Form, ...] = ()

    @property
    def node(self) -> str:
        """The user's own name of the node."""
        return self.origin[0] if self.origin else ""


@dataclass(frozen=True)
class RefusalRecord:
    """A pass that nearly fired, and why it did not."""

    pass_name: str
    node: str
    reason: str


@dataclass
class PassContext:
    """Target and options for every pass of one conversion, and records of rewrites."""

    target: Target
    options: Options
    verify: bool = True  # whether rewrites are measured
    kept: frozenset[str] = frozenset()  # labels of source nodes that stay float, on the host
    current: str = ""  # name of the pass that runs
    # Mean and standard deviation of a tensor's channels in training, by tensor.
    expected: dict[str, Expected] = field(default_factory=dict)
    # Of a model that was quantized before.
    source_scales: SourceScales = field(default_factory=SourceScales)
    # In the order in which they were made.
    rewrites: list[RewriteRecord] = field(default_factory=list)
    refusals: dict[RefusalRecord, None] = field(default_factory=dict)  # in order, each once
    _broken: dict[tuple[Window, bool], bool] = field(default_factory=dict)

    @cached_property
    def planner(self) -> Planner:
        """Plans of convolutions that break a known limit."""
        from npuconv.legalize.fitting.planner import Planner

        return Planner(
            self.target,
            self.options.layout,
            exact_sums=self.accumulates,
            joins_constants=self.options.format in ("float", *INTEGER_FORMS)
            and self.options.layout == "nchw",
        )

    @property
    def accumulates(self) -> bool:
        """Return whether the device adds partial sums in int32, and the form can say so."""
        is_exact = self.target.activations.accumulate == "int32"
        return is_exact and self.options.format != "tflite" and self.options.layout == "nchw"

    def split_plan(self, conv: Node) -> Plan | None:
        """Return the plan of a Conv beyond a limit whose parts have its integers, if there is one.

        None if the device takes it as it is.
        """
        win = window(conv)
        if win is None or not self.options.fit or not self.breaks(win, conv):
            return None
        if not all(map(query.is_constant, conv.inputs[1:])):
            return None
        layer = layer_of(win, bias=query.input_of(conv, 2) is not None)
        plan = None if layer is None else self.planner.exact_plan(layer)
        return None if plan is None or plan.proposal is None else plan

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

    def change_objections(self, conv: Node, changed: Window) -> list[str]:
        """Return the objections to a change of a Conv; one that is split may stay so."""
        objections = self.objections(changed)
        layer = layer_of(changed, bias=True) if objections and self.split_plan(conv) else None
        return [] if layer is not None and self.planner.exact_plan(layer) else objections

    def refuse(self, model: Model, node: Node, reason: str) -> None:
        """Say why a pass that nearly fired did not; the report shows it."""
        self.refusals[RefusalRecord(self.current, model.label(node), reason)] = None

    def objections(self, win: Window) -> list[str]:
        """Return the objections of the target to a convolution that is only considered.

        Returns:
            One sentence each; none where it breaks no known limit.
        """
        operator = self.target.operator("Conv")
        if operator is None:
            return [f"target {self.target.name} does not list Conv"]
        facts = {**of_window(win), "layout": self.options.layout, "bias": True}
        return operator.objections(facts)

    def breaks(self, win: Window, node: Node) -> bool:
        """Return whether a Conv breaks a known limit; nodes that are alike are judged once."""
        operator, bias = self.target.operator("Conv"), query.input_of(node, 2) is not None
        if operator is None:
            return False
        key = (win, bias)
        if key not in self._broken:
            facts = {**of_window(win), "layout": self.options.layout, "bias": bias}
            self._broken[key] = bool(operator.objections(facts))
        return self._broken[key]

    def lasting_objections(self, win: Window) -> list[str]:
        """Return the objections to a Conv that no rewrite of it removes."""
        objections = self.objections(win)
        layer = layer_of(win, bias=True) if objections and self.options.fit else None
        return objections if layer is None else self.planner.objections(layer)

    def adds_bias(self, win: Window) -> bool:
        """Return whether a considered convolution would have its bias from an Add, or none."""
        layer = layer_of(win, bias=True) if self.options.fit else None
        plan = None if layer is None else self.planner.plan(layer)[0]
        return plan is None or plan.adds_bias

    def fitted(self, win: Window) -> Form:
        """Return the cost of a considered convolution after it is fitted to the limits."""
        is_beyond = self.options.fit and self.objections(win)
        layer = layer_of(win, bias=True) if is_beyond else None
        plan = None if layer is None else self.planner.plan(layer)[0]
        if plan is None:
            return Form("", Cost(win.macs, win.parameters(), 1))
        return Form("", plan.price.cost, plan.price.moved)

    def offloads(self, node: Node, *, listed: bool = False) -> bool:
        """Return whether to rewrite a node as a Conv: requested, and not taken as it is.

        With ``listed`` also if the target takes it.
        """
        operator = self.target.operator(node.op, node.domain or "")
        fits = operator is not None and not operator.objections(settled(node))
        stays = fits and not listed
        is_requested = self.options.offload and node.name not in self.kept
        return is_requested and not stays and self.target.operator("Conv") is not None

    @contextlib.contextmanager
    def rewrite(  # noqa: PLR0913 - a change has that many parts
        self,
        model: Model,
        nodes: Sequence[Node],
        before: str,
        after: str,
        *,
        outputs: Sequence[Tensor] | None = None,
        modulus: int | None = 1,
        exact: Iterable[int] = (),
        measure: bool = True,
    ) -> Iterator[RewriteRecord]:
        """Bracket one change, so that it is recorded and measured.

        Args:
            model: the model that changes.
            nodes: the nodes that are replaced.
            before: what they are, for people.
            after: what they become.
            outputs: tensors whose values must not change; by default what the rest of
                the graph reads of ``nodes``.
            modulus: the change holds for any spatial extent that is equal to the real
                one modulo this, so a small one is measured; None: for that extent only.
            exact: axes of the inputs that keep their real extents in spite of ``modulus``.
            measure: False where there is nothing to compare (names, types).
        """
        record = RewriteRecord(self.current, model.origin(*nodes), before, after, modulus=modulus)
        record.exact, record.cost_before = frozenset(exact), cost(nodes)
        border, makers = _region.border(nodes)
        if not measure:
            record.reference = "nothing to compare"
        watch = self.verify and measure
        results = list(outputs) if outputs is not None else _region.results(model, nodes)
        if watch:
            record.old = _region.capture(model, nodes, results)
        yield record
        record.made = _region.between(border, results, makers)
        if watch and record.old is not None and record.new is None:
            record.new = _region.trace(model, record.old, results, record.made)
        self.rewrites.append(record)
