"""Tests of the decorator, the registry and the engine that runs the rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npuconv.config import Options
from npuconv.errors import InternalError, ModelError
from npuconv.findings import Severity, sort_key
from npuconv.model.source import Source
from npuconv.rules import RULES, Violation, engine, find, rule
from npuconv.rules.context import RuleContext
from support.asserts import context, read
from support.builders import Net
from support.target_files import chip

SECTIONS = """Something is wrong.

What it checks:
    One thing.

Why it matters:
    It does,
    very much.

How to fix:
    Like this.
"""


def register(code: str = "SHP999", *, doc: str = SECTIONS, name: str = "a_new_fault", **keys):
    """Declare a rule; each of these tests sees it refused, so nothing stays behind."""

    def function(node, ctx):
        raise AssertionError(node, ctx)

    function.__name__, function.__doc__ = name, doc
    return rule(code, message="", **keys)(function)


def lint_context(**inputs) -> RuleContext:
    model = read(Net(x=(1, 3, 8, 8)).conv("x", name="conv", **inputs).op("Elu", name="elu").model())
    return RuleContext(model, context().target, Options())


@pytest.mark.parametrize("code", ["SHP1", "SHP0001", "shp001", "ABC001", "", "SHP001x"])
def test_a_malformed_code_is_refused(code):
    """Letters that name a subject, and three digits."""
    with pytest.raises(ValueError, match=f"rule 'a-new-fault': '{code}'"):
        register(code)


@pytest.mark.parametrize("section", ["What it checks", "Why it matters", "How to fix"])
def test_a_missing_section_is_refused(section):
    """The reference page has all three."""
    with pytest.raises(ValueError, match=rf"missing=\['{section}'\]"):
        register(doc=SECTIONS.replace(section, "Something else"))


def test_no_docstring_is_refused():
    """All three sections are missing then."""
    with pytest.raises(ValueError, match=r"What it checks.*Why it matters.*How to fix"):
        register(doc="")


def test_an_unknown_fact_is_refused():
    """A limit nobody can write down would never be enforced."""
    with pytest.raises(ValueError, match=r"unknown=\['kernel_hight'\]"):
        register(limits=("kernel_h", "kernel_hight"))


def test_a_code_is_never_used_twice():
    """Reports and suppressions name it."""
    RULES.load()
    with pytest.raises(ValueError, match=r"'SHP001', taken=True"):
        register("SHP001")


def test_a_name_is_never_used_twice():
    """People allow or ignore a rule by its name."""
    RULES.load()
    with pytest.raises(ValueError, match="'rank-unsupported' is registered twice"):
        register(name="rank_unsupported")


@pytest.mark.parametrize("key", ["SHP001", "shp001", "rank-unsupported"])
def test_a_rule_is_found_by_code_or_name(key):
    """Codes in either case."""
    found = find(key)
    assert found is not None
    assert (found.code, found.name) == ("SHP001", "rank-unsupported")


def test_what_does_not_exist_is_not_found():
    """No exception: the caller knows what to suggest."""
    assert find("SHP998") is None
    assert find("rank") is None


def test_sections_are_read_from_the_docstring():
    """Sections are one line each; a missing one is empty."""
    known = find("SHP001")
    assert known is not None
    item = replace(known, doc=SECTIONS.strip())
    assert item.summary == "Something is wrong."
    assert item.section("Why it matters") == "It does, very much."
    assert item.section("How to fix") == "Like this."
    assert item.section("Nothing") == ""


def failing(error: Exception):
    """A known rule whose function fails."""
    known = find("SHP001")
    assert known is not None

    def function(node, ctx):
        yield Violation({"op": node.op, "value": 1, "limit": ctx.target.name})
        raise error

    return replace(known, function=function)


def test_a_rule_that_fails_is_a_bug_and_named():
    """Exit code 70, with the rule and what it raised."""
    with pytest.raises(InternalError, match="rule 'rank-unsupported': KeyError: 'x'") as caught:
        engine.run_rule(failing(KeyError("x")), lint_context())
    assert caught.value.exit_code == 70
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_message_with_an_unfilled_placeholder_is_a_bug_too():
    """Only a user would see it otherwise."""
    broken = replace(failing(KeyError("never")), message="{nothing}")
    with pytest.raises(InternalError, match="rule 'rank-unsupported': KeyError: 'nothing'"):
        engine.run_rule(broken, lint_context())


def test_errors_raised_on_purpose_pass_through():
    """Such errors have a message and an exit code of their own."""
    with pytest.raises(ModelError, match="damaged"):
        engine.run_rule(failing(ModelError("damaged")), lint_context())


def test_findings_come_worst_first():
    """Code, node and message follow, whatever the order of the rules."""
    found = engine.lint(lint_context(auto_pad="SAME_UPPER", group=2))
    assert found == sorted(found, key=sort_key)
    ranks = [f.severity.rank for f in found]
    assert ranks == sorted(ranks, reverse=True)
    assert {f.severity for f in found} == set(Severity)


def test_only_the_rules_that_are_asked_for_run():
    """Rules are chosen by code, and by the graph they look at."""
    ctx = lint_context(auto_pad="SAME_UPPER")
    assert {f.code for f in engine.lint(ctx, only=["SHP003", "OPS001"])} == {"SHP003", "OPS001"}
    assert not engine.lint(ctx, stage="lowered")


def test_a_finding_knows_where_it_comes_from():
    """Origins match findings after rewriting."""
    (found,) = engine.lint(lint_context(auto_pad="VALID"), only=["SHP003"])
    assert (found.origin, found.key) == (("conv",), ("SHP003", ("conv",)))
    assert (found.code, found.name) == ("SHP003", "auto-pad-unsupported")


@pytest.mark.parametrize(
    ("code", "window", "device", "advice"),
    [
        (
            "SHP008",
            {"dilations": [2, 1]},
            {"dilation_h": {"max": 1}},
            "dilation=2)` in the code; it may",
        ),
        (
            "SHP007",
            {"strides": [2, 1]},
            {"stride_h": {"max": 1}},
            "stride=2)` in the code; it may be",
        ),
        ("SHP014", {}, {"bias": {"equals": False}}, "bias=True)` in the code; it may be false)"),
    ],
)
def test_a_fix_names_the_argument_of_the_code(code, window, device, advice):
    """If the training code is known, with its value and the limit."""
    target = chip(**device)
    for class_name, is_named in (("Conv2d in Net", True), ("ConvBlock", False), ("", False)):
        ctx = replace(lint_context(**window), target=target)
        ctx.model.sources["conv"] = Source("stem", class_name)
        (finding,) = engine.lint(ctx, only=[code])
        assert (f"(`nn.Conv2d(..., {advice}" in finding.fix) == is_named


def test_rules_are_listed_by_code():
    """Stable from run to run."""
    codes = [item.code for item in engine.all_rules()]
    assert codes == sorted(codes)
    assert len(set(codes)) == len(codes)
