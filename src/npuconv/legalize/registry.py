"""Rewrites of the graph: one pass per module, registered by its decorator.

A pass is a function of the model, or of the model and one node of certain operators, and of
further arguments, which the names of its parameters select:
``device`` (target and options), ``log`` (rewrites and refusals), and in int8 phases ``emission``.
It returns how often it fired, or values. It changes the graph through ``npuconv.model.edit``,
brackets each change in ``log.rewrite`` so that it is measured, and calls ``log.refuse`` where it
nearly fired. It knows no rule and no other pass, except by name in ``after``; order, fixed point,
checks and errors are the manager's (``manager.py``).

Modules take numpy and onnx from ``npuconv.lazy``: ``npuconv explain`` reads them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import cached_property
from typing import Any

from npuconv.legalize.device import TargetDevice as TargetDevice
from npuconv.legalize.log import Log as Log
from npuconv.records import dataclass
from npuconv.registry import Registry, described

# Parameters: the model, inputs by name; in HOST_PREP and OVERSAMPLE also a plan and a request.
PassFunction = Callable[..., Any]


class Phase(StrEnum):
    """The phases of a conversion, in order, each with its purpose."""

    purpose: str

    def __new__(cls, value: str, purpose: str = "") -> Phase:
        """Make a phase of its name and purpose."""
        phase = str.__new__(cls, value)
        phase._value_, phase.purpose = value, purpose
        return phase

    CANONICALIZE = "canonicalize", "one spelling for each meaning, whatever the target"
    LEGALIZE = "legalize", "fit the model to the target"
    SPLIT = "split", "write convolutions beyond a limit as several within it"
    HOST_PREP = "host-prep", "prepare tensors on the host before the device gets them"
    OVERSAMPLE = "oversample", "spend a budget of extra multiplications on accuracy"
    QUANTIZE = "quantize", "turn float into int8 with explicit conversions"
    LOWER = "lower", "absorb conversions into integer operators"


@dataclass(frozen=True)
class Pass:
    """One registered rewrite."""

    name: str
    phase: Phase
    function: PassFunction
    after: tuple[str, ...]
    infers: bool
    doc: str
    ops: tuple[str, ...] = ()  # operators of the nodes for the pass; empty: a model pass
    least_opset: int = 0

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the parameters beside the model and the node."""
        names = inspect.signature(self.function).parameters
        return tuple(name for name in names if name not in ("model", "node"))


PASSES: Registry[Pass] = Registry(
    "npuconv.legalize.canonicalize",
    "npuconv.legalize.rewrites",
    "npuconv.quantize.rewrites",
    "npuconv.emit.lowering",
)


def register_pass(
    phase: Phase,
    *ops: str,
    after: tuple[str, ...] = (),
    infers: bool = False,
    least_opset: int = 0,
) -> Callable[[PassFunction], Pass]:
    """Register a pass; its name is the function's, in kebab case.

    Args:
        phase: when it runs.
        ops: standard operators; the function is called with each of their nodes that it has not
            removed itself. Without any, it is called once for the model.
        after: passes of the same phase that must have run before it.
        infers: whether shape inference runs after the pass: its changes can make shapes known.
        least_opset: oldest opset of a model whose nodes it is called with.

    Raises:
        ValueError: a name that is taken.
    """

    def register(function: PassFunction) -> Pass:
        name, doc = function.__name__.replace("_", "-"), described(function)
        item = Pass(name, phase, function, after, infers, doc, ops, least_opset)
        PASSES.add(name, item)
        return item

    return register
