"""Findings of a model while passes rewrite it, and what of them is left."""

from __future__ import annotations

from npuconv.config import Options
from npuconv.findings import Status
from npuconv.legalize.legal import legalize
from npuconv.legalize.log import RewriteRecord
from npuconv.legalize.registry import Phase
from npuconv.legalize.tracker import SWEEP, Tracker
from npuconv.rules import RULES, engine
from npuconv.rules.checks.limit_unknown import limit_unknown
from npuconv.rules.context import RuleContext
from support.asserts import builtin, context, read
from support.builders import Net
from support.outlier_nets import loud

X = (1, 4, 8, 8)


def test_the_code_of_unknown_limits_is_that_of_the_rule():
    """All findings of that code have the status unknown."""
    assert next(rule.name for rule in RULES if rule.code == limit_unknown.code) == "limit-unknown"
    every = legalize(loud("Relu"), Options()).findings.all_findings
    found = [f for f in every if f.code == limit_unknown.code]
    assert found
    assert all(f.status == Status.UNKNOWN for f in found)


def rules(model):
    return RuleContext(model, builtin(), Options())


def gone(before, records, pass_name):
    """Return the findings that the report says this pass has removed."""
    model = read(Net(x=X).op("Relu", name="other").model())
    tracker = Tracker(before)
    tracker.credit(pass_name, rules(model))
    return tracker.merge([], records)


def finding(name):
    model = read(Net(x=X).conv("x", (4, 4, 3, 3), auto_pad="VALID", name=name).model())
    (found,) = engine.lint(rules(model), only=["SHP003"])
    return found


def test_the_last_result_counts():
    """The last result of the pass counts, for a node of the finding."""
    records = [
        RewriteRecord("a-pass", ("one",), "was", "first"),
        RewriteRecord("a-pass", ("zero", "one"), "was", "second"),
        RewriteRecord("a-pass", ("two",), "was", "of another node"),
        RewriteRecord("b-pass", ("one",), "was", "by another pass"),
    ]
    (found,) = gone([finding("one")], records, "a-pass")
    assert (found.status, found.rewritten_by) == (Status.REWRITTEN, "a-pass")
    assert found.rewritten_into == "second"
    (found,) = gone([finding("three")], records, "a-pass")
    assert found.rewritten_into == ""


def test_what_nothing_reads():
    """The sweep rewrites nothing, so it has no results."""
    (found,) = gone([finding("one")], [], SWEEP)
    assert found.rewritten_into == "nothing reads it any more"


def test_findings_about_the_model():
    """Any result of the pass is theirs."""
    model = read(Net(opset=7, x=X).op("Relu", name="r").model())
    ctx = rules(model)
    before = [f for f in engine.lint(ctx) if not f.origin]
    assert before
    tracker = Tracker(before)
    raised = context()
    for phase in (Phase.CANONICALIZE,):
        raised.run_phase(model, phase, lambda item, _: tracker.credit(item.name, ctx))
    records = [RewriteRecord("x", ("r",), "", "no"), *raised.rewrites]
    merged = [f for f in tracker.merge([], records) if f.status == Status.REWRITTEN]
    assert [f.rewritten_by for f in merged] == ["raise-opset"] * len(merged)
