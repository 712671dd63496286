"""The frame of rules that look at what calibration has shown."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from npuconv.diagnostics import Severity
from npuconv.rules import Example, Rule, Violation, rule

if TYPE_CHECKING:
    from npuconv.rules._context import RuleContext
    from npuconv.rules._seen import Seen

# Of the node or model the rule is about, and what was seen.
Looking = Callable[[Any, "Seen"], Iterator[Violation]]


def calibrated_rule(
    code: str,
    *,
    message: str,
    example: Example,
    severity: Severity = Severity.WARNING,
    ops: set[str] | None = None,
) -> Callable[[Looking], Rule]:
    """Register a rule that is asked after calibration, and given what that has shown.

    Args:
        code: as for ``rule``; so are the others.
        message: what a person reads.
        example: models that show it; the samples are noise between 0 and 1.
        severity: samples may be wrong, so as a rule it only warns.
        ops: operators it looks at; None for a rule about the model.
    """

    def register(function: Looking) -> Rule:
        """Hand the function what calibration has shown; it is silent before."""

        @functools.wraps(function)
        def looking(subject: Any, ctx: RuleContext) -> Iterator[Violation]:
            return iter(()) if ctx.seen is None else function(subject, ctx.seen)

        decorate = rule(
            code, message=message, example=example, severity=severity, ops=ops, at="calibrated"
        )
        return decorate(looking)

    return register
