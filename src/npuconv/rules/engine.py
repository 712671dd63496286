"""Run the rules over a graph and make findings of their violations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

from npuconv.errors import bugs_in
from npuconv.findings import Finding, sort_key
from npuconv.model import Node, query
from npuconv.rules import RULES, Rule, Stage, Violation
from npuconv.rules.context import RuleContext

# Arguments of PyTorch's convolutions by the facts that they decide.
_ARGUMENTS = {
    "group": "groups",
    "bias": "bias",
    "pad_mode": "padding_mode",
    **dict.fromkeys(("in_c", "weight_c"), "in_channels"),
    **dict.fromkeys(("out_c", "weight_n"), "out_channels"),
    **dict.fromkeys(("kernel_h", "kernel_w"), "kernel_size"),
    **dict.fromkeys(("stride_h", "stride_w"), "stride"),
    **dict.fromkeys(("dilation_h", "dilation_w"), "dilation"),
    **dict.fromkeys(("pad_top", "pad_left", "pad_bottom", "pad_right", "pad_max"), "padding"),
    **dict.fromkeys(("output_padding_h", "output_padding_w"), "output_padding"),
}
_CONVOLUTION = re.compile(r"Conv(?:Transpose)?[123]d\b")
Mark = tuple[str, str]  # code of a rule, and the source node of its finding ('': the model)


def all_rules() -> list[Rule]:
    """Return every rule, by code."""
    return sorted(RULES, key=lambda r: r.code)


def binding(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that no option takes back.

    They are of nodes without a defined meaning, or of parts that the form cannot hold.
    """
    codes = {rule.code for rule in RULES if rule.malformed or rule.stage == "form"}
    return [finding for finding in findings if finding.code in codes]


def lint_malformed(ctx: RuleContext) -> list[Finding]:
    """Return the findings of nodes that have no defined meaning, worst first.

    Other rules take a meaning for granted: they run where this finds nothing.

    Raises:
        InternalError: a rule failed, which is a bug in it.
    """
    codes = [rule.code for rule in RULES if rule.malformed]
    return sorted([*lint(ctx, only=codes), *lint(ctx, stage="source", only=codes)], key=sort_key)


def lint(ctx: RuleContext, *, stage: Stage = "float", only: Iterable[str] = ()) -> list[Finding]:
    """Return the findings of the rules of one stage, worst first.

    All rules of the stage run where ``only`` names none.

    Raises:
        InternalError: a rule failed, which is a bug in it.
    """
    codes = set(only)
    rules = [r for r in all_rules() if r.stage == stage and (not codes or r.code in codes)]
    return sorted((finding for rule in rules for finding in run_rule(rule, ctx)), key=sort_key)


def run_rule(rule: Rule, ctx: RuleContext, labels: Set[str] = frozenset()) -> list[Finding]:
    """Return the findings of one rule, in the order of the nodes.

    With ``labels``, a rule about nodes looks only at nodes that replace these source nodes.

    Raises:
        InternalError: the rule failed, which is a bug in it.
    """
    with bugs_in(f"rule {rule.name!r}"):
        pairs: Iterable[tuple[Node | None, Violation]]
        if rule.ops is None:
            pairs = ((violation.node, violation) for violation in rule.function(ctx.model, ctx))
        else:
            nodes, origin = ctx.nodes_of(rule.ops), ctx.model.origin
            nodes = [n for n in nodes if not labels.isdisjoint(origin(n))] if labels else nodes
            pairs = ((n, v) for n in nodes for v in rule.function(n, ctx))
        return [
            make_finding(rule, ctx, violation, node)
            for node, violation in pairs
            # A node that is kept on the host breaks no limit; it may still be malformed.
            if node is None or rule.malformed or not ctx.is_kept_float(node)
        ]


def marks(findings: Iterable[Finding]) -> set[Mark]:
    """Return rule and source nodes of each of the findings."""
    return {(f.code, label) for f in findings for label in f.origin or ("",)}


def make_finding(rule: Rule, ctx: RuleContext, violation: Violation, node: Node | None) -> Finding:
    """Make the finding of a violation; ``node`` is None if it is about the model."""
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
        fix=(violation.fix or rule.advice) + (_in_code(ctx, violation, node) if node else ""),
        origin=ctx.model.origin(node) if node is not None else (),
    )


def _in_code(ctx: RuleContext, violation: Violation, node: Node) -> str:
    """Return the argument to change in the training code: `nn.Conv2d(..., groups=4)`."""
    source = ctx.model.sources.get(ctx.model.label(node))
    argument = _ARGUMENTS.get(str(violation.values.get("fact")))
    layer = _CONVOLUTION.match(source.class_name) if source is not None else None
    if argument is None or layer is None:
        return ""
    value, limit = (str(violation.values[key]) for key in ("value", "limit"))
    shown_value = value.capitalize() if value in ("true", "false") else value
    return f" (`nn.{layer[0]}(..., {argument}={shown_value})` in the code; it may be {limit})"
