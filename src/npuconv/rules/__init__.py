"""Rules on what a device accepts: one rule per module, registered by its decorator.

A rule looks at a node (or at the whole model) and yields a ``Violation`` for each fault;
it changes nothing and knows no pass. Its docstring has exactly the sections *What it
checks*, *Why it matters* and *How to fix*, from which ``npuconv explain``, the reference
pages and the reports are made. The chip's numbers come from the target file.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from npuconv.diagnostics import Severity, Status
from npuconv.facts import FACTS
from npuconv.registry import Registry

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext

    NodeRule = Callable[[Node, RuleContext], Iterator["Violation"]]
    ModelRule = Callable[[Model, RuleContext], Iterator["Violation"]]

Stage = Literal["source", "float", "planned", "calibrated", "lowered", "measured"]
SECTIONS = ("What it checks", "Why it matters", "How to fix")
SLIDING = {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"}
# What onnxruntime runs on a host's CPU besides the standard domain.
HOST_DOMAINS = {"ai.onnx.ml", "com.microsoft", "ai.onnx.preview.training"}
CODE = re.compile(r"^(MDL|OPS|SHP|DTY|QNT|MEM|CAL)\d{3}$")


@dataclass(frozen=True)
class Violation:
    """Fault that a rule found. ``values`` fill the placeholders of the rule's message."""

    values: dict[str, Any] = field(default_factory=dict)
    value: str = ""  # what the model has, for the report's column
    limit: str = ""  # what is allowed
    source: str = ""  # who says so
    fix: str = ""  # instead of the rule's own advice
    node: Any = None  # for a model rule: the node it is about
    status: Status = Status.REMAINING
    severity: Severity | None = None  # instead of the rule's own


@dataclass(frozen=True)
class Example:
    """Two small models, one on which a rule fires and one on which it does not.

    Text, so that ``explain`` needs no onnx; the tests build and judge what it shows. A line
    for each tensor that is given, then nodes as ``onnx.parser`` reads them. Weights are
    random where no numbers are written; one number is all of them.
    """

    fires: str = ""
    silent: str = ""
    device: str = ""  # keys of a target file; empty: the built-in target
    other: str = ""  # those for the second model, where it is the target that differs


@dataclass(frozen=True)
class Rule:
    """One registered rule."""

    code: str
    name: str
    severity: Severity
    message: str
    function: Callable[..., Iterator[Violation]]
    ops: frozenset[str] | None  # None: a rule about the whole model
    limits: tuple[str, ...]
    at: Stage
    malformed: bool
    alike: bool
    example: Example
    doc: str

    @property
    def summary(self) -> str:
        """The first sentence of the docstring."""
        return self.doc.split("\n\n", 1)[0].replace("\n", " ")

    @cached_property
    def advice(self) -> str:
        """Text of the section *How to fix*."""
        return self.section("How to fix")

    def section(self, title: str) -> str:
        """The text of one section of the docstring."""
        found = re.search(rf"^{title}:\n(.*?)(?=\n\S|\Z)", self.doc, re.M | re.S)
        return " ".join(found.group(1).split()) if found else ""


_NONE = Example()
RULES: Registry[Rule] = Registry("npuconv.rules")


def rule(  # noqa: PLR0913 - a rule has that many parts
    code: str,
    *,
    message: str,
    example: Example = _NONE,
    severity: Severity = Severity.ERROR,
    ops: set[str] | None = None,
    limits: tuple[str, ...] = (),
    at: Stage = "float",
    malformed: bool = False,
    alike: bool = False,
) -> Callable[[Callable[..., Iterator[Violation]]], Rule]:
    """Register a rule; its name is the function's, in kebab case.

    Args:
        code: letters and three digits, never used again.
        message: what a person reads; holes are filled from the violation's ``values``.
        example: models that show what it finds and what it does not.
        severity: errors stop a conversion.
        ops: operators it looks at, ``{"*"}`` for all; None for a rule about the model.
        limits: facts of the target file that it enforces.
        at: the graph it looks at.
        malformed: what it finds has no defined meaning, so nothing may be rewritten.
        alike: what it says of a node holds for all nodes that are alike (``Sheet``): it
            looks at attributes, shapes, types and limits, and at no name, neighbour or weight.

    Raises:
        ValueError: a code or name that is taken or malformed, a section that is missing,
            or a fact that does not exist.
    """

    def register(function: Callable[..., Iterator[Violation]]) -> Rule:
        """Make a rule of the function."""
        doc = inspect.getdoc(function) or ""
        name = function.__name__.replace("_", "-")
        _require(name, code, doc, limits)
        frozen = None if ops is None else frozenset(ops)
        item = Rule(
            code,
            name,
            severity,
            message,
            function,
            frozen,
            limits,
            at,
            malformed,
            alike,
            _tidied(example),
            doc,
        )
        RULES.add(name, item)
        return item

    return register


def _require(name: str, code: str, doc: str, limits: tuple[str, ...]) -> None:
    """Raise ValueError for a bad or taken code, a missing section or an unknown fact."""
    missing = [s for s in SECTIONS if f"\n{s}:\n" not in doc]
    unknown = [fact for fact in limits if fact not in FACTS]
    if not CODE.match(code) or missing or unknown:
        raise ValueError(f"rule {name!r}: code {code!r}, {missing=}, {unknown=}")
    if any(other.code == code for other in RULES.registered()):
        raise ValueError(f"rule {name!r}: code {code} is taken")


def _tidied(example: Example) -> Example:
    """Return the example without the indentation of the source."""
    texts = (example.fires, example.silent, example.device, example.other)
    return Example(*map(inspect.cleandoc, texts))


def is_convolution(node: Node) -> bool:
    """Return whether the operator is a convolution: FusedConv is, ConvertLayout is not."""
    return _names_convolution(node.op)


@lru_cache(maxsize=512)
def _names_convolution(op: str) -> bool:
    return re.search(r"Conv(?![a-z])", op) is not None


def find(code_or_name: str) -> Rule | None:
    """The rule of that code or name."""
    by_code = {item.code: item for item in RULES}
    return by_code.get(code_or_name.upper()) or RULES.get(code_or_name)
