"""Runs the rules over a graph and turns what they saw into findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from npuconv.diagnostics import Finding, sort_key
from npuconv.errors import InternalError, NpuconvError
from npuconv.model import query
from npuconv.rules import RULES, Rule, Stage, Violation
from npuconv.rules._context import RuleContext

if TYPE_CHECKING:
    from npuconv.model.types import Node


def all_rules() -> list[Rule]:
    """Every rule, by code."""
    return sorted(RULES, key=lambda r: r.code)


def is_malformed(findings: Iterable[Finding]) -> bool:
    """Whether a node has no defined meaning, so that nothing may be rewritten."""
    codes = {rule.code for rule in RULES if rule.malformed}
    return any(finding.code in codes for finding in findings)


def lint(ctx: RuleContext, *, at: Stage = "float", only: Iterable[str] = ()) -> list[Finding]:
    """Everything the rules of one stage have to say, worst first.

    Args:
        ctx: model, target and options.
        at: which rules.
        only: codes of rules; all where empty.

    Raises:
        InternalError: a rule failed, which is a bug in it.
    """
    wanted = set(only)
    rules = [r for r in all_rules() if r.at == at and (not wanted or r.code in wanted)]
    found = [finding for rule in rules for finding in _run(rule, ctx)]
    return sorted(found, key=sort_key)


def _run(rule: Rule, ctx: RuleContext) -> list[Finding]:
    try:
        return list(_findings(rule, ctx))
    except NpuconvError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise InternalError(text, where=f"rule {rule.name!r}") from error


def _findings(rule: Rule, ctx: RuleContext) -> Iterator[Finding]:
    if rule.ops is None:
        for violation in rule.function(ctx.model, ctx):
            yield _finding(rule, ctx, violation, violation.node)
        return
    for node in ctx.nodes_of(rule.ops):
        for violation in rule.function(node, ctx):
            yield _finding(rule, ctx, violation, node)


def _finding(rule: Rule, ctx: RuleContext, violation: Violation, node: Node | None) -> Finding:
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=rule.severity,
        status=violation.status,
        node=ctx.model.label(node) if node is not None else "",
        op_type=query.qualified(node) if node is not None else "",
        message=rule.message.format(**violation.values),
        value=violation.value,
        limit=violation.limit,
        source=violation.source,
        fix=violation.fix or rule.section("How to fix"),
        origin=ctx.model.origin(node) if node is not None else (),
    )
