"""Rules on the limits of a device: one rule a module in ``checks``, named after the fault.

A rule looks at a node (or at the whole model) and yields a ``Violation`` for each fault;
it changes nothing and knows no pass. The docstring of its module has exactly the sections
*What it checks*, *Why it matters* and *How to fix*, from which ``npuconv explain``, the
reference pages and the reports are made. The chip's numbers come from the target file.

``checks``         the rules
``context``        input of a rule: model, target, cached facts of nodes, and measurements
``engine``         runs the rules and makes findings of violations
``host_nodes``     reasons why nodes run on the host, in a few words
``target_limits``  unknown limits, open extents, written integer convolutions
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable
from typing import Literal

from npuconv.findings import Severity as Severity
from npuconv.model import Node
from npuconv.records import dataclass
from npuconv.registry import Registry, described
from npuconv.rules.context import RuleContext as RuleContext
from npuconv.rules.context import Violation as Violation
from npuconv.rules.context import Violations as Violations
from npuconv.rules.context import is_convolution as is_convolution
from npuconv.target.facts import FACTS

Stage = Literal["source", "float", "planned", "form", "calibrated", "lowered", "measured"]
SECTIONS = ("What it checks", "Why it matters", "How to fix")
SLIDING = {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"}
# Domains of operators that onnxruntime runs on the CPU of a host besides the standard domain.
HOST_DOMAINS = {"ai.onnx.ml", "com.microsoft", "ai.onnx.preview.training"}
_CODE = re.compile(r"^(MDL|OPS|SHP|DTY|QNT|MEM|CAL)\d{3}$")


@dataclass(frozen=True)
class Example:
    """Two small models, one on which a rule fires and one on which it does not.

    Text, so that ``explain`` needs no onnx; the tests build the models and run the rule. A
    line for each tensor that is given, then nodes as ``onnx.parser`` reads them. Weights are
    random where no numbers are written; one number is all of them.
    """

    fires: str
    silent: str
    device: str  # keys of a target file; empty: the built-in target
    silent_device: str  # keys for the second model; empty: the same as `device`


@dataclass(frozen=True)
class Rule:
    """One registered rule."""

    code: str
    name: str
    severity: Severity
    message: str
    function: Callable[..., Violations]
    ops: frozenset[str] | None  # None: a rule about the whole model
    limits: tuple[str, ...]
    stage: Stage
    malformed: bool
    example: Example
    doc: str

    @property
    def summary(self) -> str:
        """The first sentence of the docstring."""
        return self.doc.split("\n\n", 1)[0].replace("\n", " ")

    @functools.cached_property
    def advice(self) -> str:
        """Text of the section *How to fix*."""
        return self.section("How to fix")

    def section(self, title: str) -> str:
        """Return the text of one section of the docstring."""
        match = re.search(rf"^{title}:\n(.*?)(?=\n\S|\Z)", self.doc, re.M | re.S)
        return " ".join(match.group(1).split()) if match else ""


def conv(attributes: str = "", x: str = "1,3,8,8", w: str = "4,3,3,3", weights: str = "") -> str:
    """Return a model with one convolution, for examples; shapes of input and weights."""
    attribute_text = f" <{attributes}>" if attributes else ""
    values = f" = {weights}" if weights else ""
    return f"input x: float[{x}]\nweight w: float[{w}]{values}\ny = Conv{attribute_text} (x, w)"


def integer_conv(weights: int = 1, zero: str = "int8[] = 0", attributes: str = "") -> str:
    """Return a model with one QLinearConv, for examples; type and value of its zero points."""
    attribute_text = f" <{attributes}>" if attributes else ""
    return (
        "input x: float[1,1,4,4]\nweight s: float[] = 0.1\n"
        f"weight z: {zero}\nweight w: int8[1,1,3,3] = {weights}\nweight zw: int8[] = 0\n"
        f"q = QuantizeLinear (x, s, z)\nc = QLinearConv{attribute_text} (q, s, z, w, s, zw, s, z)\n"
        "y = DequantizeLinear (c, s, z)"
    )


def after_conv(line: str) -> str:
    """Return a model with a node behind one convolution ``c``, for examples."""
    return f"{conv().replace('y = ', 'c = ')}\n{line}"


CONV = conv()  # breaks no limit of the built-in target
RULES: Registry[Rule] = Registry("npuconv.rules.checks")


def rule(  # noqa: PLR0913 - a rule has that many parts
    code: str,
    *,
    message: str,
    fires: str = "",
    silent: str = "",
    model: str = "{}",
    device: str = "",
    silent_device: str = "",
    severity: Severity = Severity.ERROR,
    ops: set[str] | None = None,
    limits: tuple[str, ...] = (),
    stage: Stage = "float",
    malformed: bool = False,
) -> Callable[[Callable[..., Violations]], Rule]:
    """Register a rule; its name is the function's, in kebab case.

    Args:
        code: letters and three digits, never used again.
        message: text for people; its placeholders are filled from the violation's ``values``.
        fires: an example with a finding of the rule; see ``Example``.
        silent: an example without.
        model: text of both examples around these, which take the place of ``{}``.
        device: keys of a target file for the examples.
        silent_device: keys for the silent example, if they differ.
        severity: errors stop a conversion.
        ops: operators it looks at, ``{"*"}`` for all; None for a rule about the model.
        limits: facts of the target file that it enforces.
        stage: stage of the conversion at which it runs.
        malformed: a node with a finding has no defined meaning, so nothing may be rewritten.

    Raises:
        ValueError: a code or name that is taken or malformed, a section that is missing,
            or a fact that does not exist.
    """
    models = (model.replace("{}", text) for text in (fires, silent))
    example = Example(*map(inspect.cleandoc, (*models, device, silent_device)))

    def register(function: Callable[..., Violations]) -> Rule:
        name, doc = function.__name__.replace("_", "-"), described(function)
        operators = None if ops is None else frozenset(ops)
        item = Rule(
            code, name, severity, message, function, operators, limits, stage, malformed, example,
            doc,
        )  # fmt: skip
        _check(item)
        RULES.add(name, item)
        return item

    return register


def _check(item: Rule) -> None:
    missing = [s for s in SECTIONS if f"\n{s}:\n" not in item.doc]
    unknown = [fact for fact in item.limits if fact not in FACTS]
    is_taken = any(registered.code == item.code for registered in RULES.registered())
    if not _CODE.match(item.code) or missing or unknown or is_taken:
        raise ValueError(
            f"rule {item.name!r}: {item.code!r}, taken={is_taken}, {missing=}, {unknown=}"
        )


def limit_rule(
    module: str, code: str, *limits: str, fires: str, silent: str, device: str = ""
) -> None:
    """Register a rule that compares facts of convolutions with limits of the target.

    The rule gets the name and the docstring of the module.
    """

    def broken(node: Node, ctx: RuleContext) -> Violations:
        return ctx.violations(node, *limits)

    broken.__name__ = module.rpartition(".")[2]
    broken.__module__, broken.__doc__ = module, sys.modules[module].__doc__
    rule(
        code,
        message="{fact} is {value}; the device takes {limit}",
        fires=fires,
        silent=silent,
        device=device,
        ops=SLIDING,
        limits=limits,
    )(broken)


def find(code_or_name: str) -> Rule | None:
    """Return the rule of that code or name, if there is one."""
    by_code = {item.code: item for item in RULES}
    return by_code.get(code_or_name.upper()) or RULES.get(code_or_name)
