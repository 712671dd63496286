"""Contracts of every rule and every pass, read from the registries.

The examples are those of the test modules: ``tests/rules/checks/test_<module>.py`` and
the test module of a pass hold ``FIRES`` and ``SILENT``, lists of callables without
arguments that return a model. An entry of a rule may be a pair with the target to judge it
by (``asserts.unpack``). ``NOT_RUNNABLE`` of a pass's tests lists those entries whose numbers
cannot be compared, and ``RTOL`` is how far they may differ where float32 is not the measure.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import onnx
import pytest

from npuconv.config import Options
from npuconv.emit import lowering
from npuconv.findings import Severity
from npuconv.legalize import canonicalize, rewrites
from npuconv.legalize import manager as _manager
from npuconv.legalize.registry import PASSES, Pass, Phase
from npuconv.model import validate
from npuconv.model.core import Model
from npuconv.quantize import rewrites as changes
from npuconv.rules import RULES, SECTIONS, Rule, checks, engine
from npuconv.rules.context import RuleContext
from npuconv.target import Target
from npuconv.target.facts import FACTS
from support.asserts import Passes, context, findings, read, run_pass, same_numbers, unpack
from support.target_files import chip
from support.zoo import ZOO

HERE = Path(__file__).parent
ROOT = HERE.parent
RTOL = 1e-4
FLOAT = (Phase.CANONICALIZE, Phase.LEGALIZE, Phase.SPLIT)
TARGETS = (
    Target.load("npu-int8"),
    Target.load(ROOT / "configs/targets/my_chip.yaml"),
    chip(""),
)

each_rule = pytest.mark.parametrize("rule", list(RULES), ids=lambda rule: rule.name)
each_pass = pytest.mark.parametrize("item", list(PASSES), ids=lambda item: item.name)
each_float_pass = pytest.mark.parametrize(
    "item", [p for p in PASSES if p.phase in FLOAT], ids=lambda item: item.name
)


def modules(package: ModuleType) -> list[str]:
    """The public modules of a package."""
    found = (module.name for module in pkgutil.iter_modules(package.__path__))
    return sorted(name for name in found if not name.startswith("_"))


@cache
def examples(function: Callable, name: str) -> ModuleType:
    """The test module of one rule or pass."""
    *folders, module = function.__module__.split(".")[1:]
    path = HERE.joinpath(*folders, f"test_{module}.py")
    assert path.is_file(), f"{name} has no tests: {path.relative_to(HERE.parent)} is missing"
    spec = importlib.util.spec_from_file_location(f"examples_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_examples(function: Callable, name: str) -> None:
    """A test module with examples of both kinds, and at least one test."""
    module = examples(function, name)
    assert module.FIRES
    assert module.SILENT
    assert any(test.startswith("test_") for test in vars(module)), f"{name}: nothing is tested"


def says(rule: Rule, example: object) -> list:
    """Return the findings of a rule on an example."""
    proto, target = unpack(example)
    return findings(proto, rule.code, target)


@cache
def zoo(name: str) -> onnx.ModelProto:
    return ZOO[name]()


@cache
def untouched(name: str) -> Model:
    """A model of the zoo for rules, which change nothing."""
    return read(zoo(name))


# Rules


def test_every_rule_module_holds_one_rule_of_its_name():
    """The file is named after the fault."""
    assert [rule.name.replace("-", "_") for rule in RULES] == modules(checks)


@each_rule
def test_a_rule_has_tests_and_examples(rule: Rule):
    """Models on which it fires and models on which it does not."""
    check_examples(rule.function, rule.name)


@each_rule
def test_a_rule_fires_on_its_examples(rule: Rule):
    """Its own code, no hole of the message left open, advice to follow."""
    for number, example in enumerate(examples(rule.function, rule.name).FIRES):
        found = says(rule, example)
        assert found, f"FIRES[{number}] does not"
        for one in found:
            assert (one.code, one.name, one.severity) == (rule.code, rule.name, rule.severity)
            assert one.message
            assert "{" not in one.message
            assert one.fix


@each_rule
def test_a_rule_is_silent_on_its_counterexamples(rule: Rule):
    """Near misses, and what other rules report."""
    for number, example in enumerate(examples(rule.function, rule.name).SILENT):
        assert not says(rule, example), f"SILENT[{number}] is not"


@each_rule
def test_a_rule_explains_itself(rule: Rule):
    """A first sentence, and the three sections that explain and the reports are made from."""
    assert rule.summary.endswith(".")
    assert tuple(re.findall(r"^(\w.*):$", rule.doc, re.MULTILINE)) == SECTIONS
    for section in SECTIONS:
        assert len(rule.section(section)) > 20, section
    assert isinstance(rule.severity, Severity)


@each_rule
def test_a_rule_shows_each_of_its_limits(rule: Rule):
    """Every fact it enforces has an example whose target limits that fact only."""
    targets = [unpack(example)[1] for example in examples(rule.function, rule.name).FIRES]
    shown = [_limited(target) & set(rule.limits) for target in targets]
    assert not [fact for fact in rule.limits if {fact} not in shown]


def _limited(target: Target) -> set[str]:
    """Facts that some operator of a target has a known limit on."""
    groups = [op.limits_for(mode) for op in target.operators.values() for mode in ("", *op.modes)]
    return {fact for limits in groups for fact, limit in limits.items() if limit.is_documented}


@each_rule
def test_a_rule_judges_every_model_of_the_zoo(rule: Rule):
    """Every target is tried, that of no operator too."""
    for target in TARGETS:
        for name in ZOO:
            ctx = RuleContext(untouched(name), target, Options())
            engine.lint(ctx, stage=rule.stage, only=[rule.code])


@each_rule
def test_all_rules_judge_the_examples_of_one(rule: Rule):
    """A fault that one rule reports is no reason for another to fail."""
    for example in examples(rule.function, rule.name).FIRES:
        proto, target = unpack(example)
        model = read(proto)
        for each in (target, *TARGETS):
            engine.lint(RuleContext(model, each, Options()))


@pytest.mark.parametrize("fact", FACTS)
def test_every_fact_of_a_target_is_enforced(fact: str):
    """A limit that can be written down and is not looked at would be a silent yes."""
    assert [rule.name for rule in RULES if fact in rule.limits]


# Passes


def test_every_pass_module_holds_one_pass_of_its_name():
    """The file is named after what it does."""
    found = [
        name for package in (canonicalize, rewrites, changes, lowering) for name in modules(package)
    ]
    assert [item.name.replace("-", "_") for item in PASSES] == sorted(found)


@each_pass
def test_a_pass_has_tests_and_examples(item: Pass):
    """Models on which it fires and models on which it does not."""
    check_examples(item.function, item.name)


@each_pass
def test_a_pass_explains_itself(item: Pass):
    """The first line is a sentence: it is what lists and reports show."""
    first = item.doc.splitlines()[0]
    assert first[0].isupper()
    assert first.endswith(".")


@each_pass
def test_a_pass_follows_passes_of_its_own_phase(item: Pass):
    """Phases are in order already."""
    here = {other.name for other in PASSES if other.phase == item.phase}
    assert set(item.after) <= here - {item.name}


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_can_be_ordered(phase: Phase):
    """All of its passes, each after those that it names."""
    ordered = _manager.order(phase)
    names = [item.name for item in ordered]
    assert sorted(names) == sorted(item.name for item in PASSES if item.phase == phase)
    for item in ordered:
        assert all(names.index(name) < names.index(item.name) for name in item.after)


@each_float_pass
def test_a_pass_fires_once_and_changes_no_number(item: Pass):
    """The second run has nothing left to do, and the model is in order."""
    module = examples(item.function, item.name)
    excused = [id(example) for example in getattr(module, "NOT_RUNNABLE", ())]
    for number, example in enumerate(module.FIRES):
        proto, target = unpack(example)
        model = read(proto)
        assert fired(item, model, target) >= 1, f"FIRES[{number}] does not"
        assert fired(item, model, target) == 0, f"FIRES[{number}] fires again"
        validate.check_model(model, after=item.name)
        if id(example) not in excused:
            same_numbers(proto, model, rtol=getattr(module, "RTOL", RTOL))


def fired(item: Pass, model: Model, target: Target) -> int:
    """Return the number of firings of a pass for a target."""
    return run_pass(item.name, model, Passes(target, Options()))


@each_float_pass
def test_a_pass_is_silent_on_its_counterexamples(item: Pass):
    """Near misses stay as they are."""
    for number, example in enumerate(examples(item.function, item.name).SILENT):
        proto, target = unpack(example)
        assert fired(item, read(proto), target) == 0, f"SILENT[{number}] is not"


@each_float_pass
def test_a_pass_survives_the_zoo(item: Pass):
    """A pass never fails, and a changed model computes the same."""
    for name in ZOO:
        model = read(zoo(name))
        if run_pass(item.name, model):
            same_numbers(zoo(name), model)


@pytest.mark.parametrize("name", ZOO)
def test_all_passes_come_to_rest(name: str):
    """Together they compute the same, and the second time there is nothing to do."""
    model, ctx = read(zoo(name)), context()
    for phase in FLOAT:
        ctx.run_phase(model, phase)
    same_numbers(zoo(name), model)
    assert [ctx.run_phase(model, phase) for phase in FLOAT] == [0] * len(FLOAT)
