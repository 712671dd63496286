"""Runs the rules over a graph and turns what they saw into findings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from npuconv.diagnostics import Finding, sort_key
from npuconv.errors import InternalError, NpuconvError
from npuconv.model import query
from npuconv.rules import RULES, Rule, Stage, Violation
from npuconv.rules._context import RuleContext

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node

Mark = tuple[str, str]  # code of a rule, and a source node that it fires on ('': the model)


def all_rules() -> list[Rule]:
    """Every rule, by code."""
    return sorted(RULES, key=lambda r: r.code)


def malformed(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings of nodes that have no defined meaning, so that nothing is rewritten."""
    codes = {rule.code for rule in RULES if rule.malformed}
    return [finding for finding in findings if finding.code in codes]


def lint(ctx: RuleContext, *, at: Stage = "float", only: Iterable[str] = ()) -> list[Finding]:
    """Return the findings of the rules of one stage, worst first.

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


def marks(findings: Iterable[Finding]) -> set[Mark]:
    """Return which rule fires on which source nodes, from the findings."""
    return {(f.code, label) for f in findings for label in f.origin or ("",)}


def marks_left(ctx: RuleContext, findings: Iterable[Finding]) -> set[Mark]:
    """Return the marks of these findings that are left; other findings are not looked for.

    The same as the marks of a new ``lint``, as far as these findings are concerned: a rule
    only checks nodes that stand for a source node of one of its findings.

    Raises:
        InternalError: a rule failed, which is a bug in it.
    """
    labels: dict[str, set[str]] = {}
    for code, label in marks(findings):
        labels.setdefault(code, set()).add(label)
    nodes = _by_label(ctx.model, set().union(*labels.values()))
    rules = [rule for rule in all_rules() if rule.code in labels]
    return {mark for rule in rules for mark in _marks_of(rule, ctx, labels[rule.code], nodes)}


def _by_label(model: Model, labels: set[str]) -> Mapping[str, list[Node]]:
    found: dict[str, list[Node]] = {label: [] for label in labels}
    for node in model.nodes():
        for label in model.origin(node):
            if label in found:
                found[label].append(node)
    return found


def _marks_of(
    rule: Rule, ctx: RuleContext, labels: set[str], nodes: Mapping[str, list[Node]]
) -> set[Mark]:
    if rule.ops is None or "" in labels:
        return marks(_run(rule, ctx))
    with _blamed_on(rule):
        concerned = {id(n): n for label in sorted(labels) for n in nodes.get(label, ())}
        asked = [n for n in concerned.values() if _takes(rule, n) and _asks(rule, n, ctx)]
        firing = [n for n in asked if _fires(rule, n, ctx)]
    return {(rule.code, label) for node in firing for label in ctx.model.origin(node)}


def _takes(rule: Rule, node: Node) -> bool:
    ops = rule.ops or frozenset()
    return "*" in ops or (node.op in ops and query.is_standard(node))


def _asks(rule: Rule, node: Node | None, ctx: RuleContext) -> bool:
    """Return whether the rule applies; to a node kept on the host, only if ``rule.malformed``."""
    return node is None or rule.malformed or not ctx.keeps(node)


def _fires(rule: Rule, node: Node, ctx: RuleContext) -> bool:
    return next(iter(_verdict(rule, node, ctx)), None) is not None


def _verdict(rule: Rule, node: Node, ctx: RuleContext) -> Iterable[Violation]:
    """Return the violations of a rule on a node; computed once per sheet if ``rule.alike``."""
    if not rule.alike:
        return rule.function(node, ctx)
    verdicts = ctx.sheet(node).verdicts
    found = verdicts.get(rule.code)
    if found is None:
        found = verdicts[rule.code] = tuple(rule.function(node, ctx))
    return found


def _run(rule: Rule, ctx: RuleContext) -> list[Finding]:
    with _blamed_on(rule):
        return list(_findings(rule, ctx))


@contextlib.contextmanager
def _blamed_on(rule: Rule) -> Iterator[None]:
    try:
        yield
    except (NpuconvError, MemoryError):  # too little memory is no bug
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise InternalError(text, where=f"rule {rule.name!r}") from error


def _findings(rule: Rule, ctx: RuleContext) -> Iterator[Finding]:
    if rule.ops is None:
        for violation in rule.function(ctx.model, ctx):
            if _asks(rule, violation.node, ctx):
                yield _finding(rule, ctx, violation, violation.node)
        return
    if rule.alike and not any(_verdict(rule, node, ctx) for node in ctx.kinds_of(rule.ops)):
        return  # as nearly always: no need to look at every node
    for node in ctx.nodes_of(rule.ops):
        violations = _verdict(rule, node, ctx)
        if violations and _asks(rule, node, ctx):
            for violation in violations:
                yield _finding(rule, ctx, violation, node)


def _finding(rule: Rule, ctx: RuleContext, violation: Violation, node: Node | None) -> Finding:
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=violation.severity or rule.severity,
        status=violation.status,
        node=ctx.model.label(node) if node is not None else "",
        op_type=query.qualified(node) if node is not None else "",
        message=rule.message.format(**violation.values),
        value=violation.value,
        limit=violation.limit,
        source=violation.source,
        fix=violation.fix or rule.advice,
        origin=ctx.model.origin(node) if node is not None else (),
    )
