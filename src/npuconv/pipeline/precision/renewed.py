"""What the unknown limits of the target are asked of a model that precision was bought for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.diagnostics import Status
from npuconv.pipeline.selection import wanted
from npuconv.rules import _engine
from npuconv.rules._context import RuleContext
from npuconv.rules._unknown import needs

if TYPE_CHECKING:
    from npuconv.pipeline.legalize import Legalized

CODE = "OPS005"  # limit-unknown


def renew_needs(work: Legalized) -> None:
    """Ask again what the model needs of limits that are not known: it has more channels now.

    Args:
        work: still in float; its needs and its findings about them are replaced.

    Raises:
        InternalError: a bug in a rule.
    """
    rules = RuleContext(work.model, work.target, work.options, {}, kept=work.ctx.kept)
    found = _engine.lint(rules, only=[CODE])
    work.needs = needs(work.model, rules)
    work.every = [f for f in work.every if f.code != CODE or f.status != Status.UNKNOWN] + found
    rest = [f for f in work.findings if f.code != CODE]
    work.findings = wanted([*rest, *found], work.options, work.listed)
