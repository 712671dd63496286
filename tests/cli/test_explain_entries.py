"""Output of explain: every rule and pass, found by code, name, or nearly so."""

from __future__ import annotations

import json

import pytest

from npuconv.cli import explain as catalog
from npuconv.errors import UsageError
from npuconv.legalize.registry import PASSES, Phase
from npuconv.rules import RULES, SECTIONS

RULE = next(iter(RULES))
LIMITED = next(r for r in RULES if r.limits)
PASS = next(iter(PASSES))


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
@pytest.mark.parametrize("name", [r.code for r in RULES] + PASSES.names())
def test_everything_can_be_explained(name, form):
    """Each has a text that names it and ends in one newline."""
    text = catalog.describe(name, form)
    assert name in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@pytest.mark.parametrize("rule", list(RULES), ids=lambda r: r.code)
def test_a_rule_says_everything(rule):
    """All sections, the message, and the limits it enforces."""
    text = catalog.describe(rule.code)
    assert all(f"{title}:" in text for title in SECTIONS)
    assert all(limit in text for limit in rule.limits)
    assert "Checked on" in text
    assert all(len(line) <= 79 for line in text.splitlines())


def test_codes_and_names():
    """A rule is found by its code in any case, and by its name."""
    texts = {catalog.describe(word) for word in (RULE.code, RULE.code.lower(), RULE.name)}
    assert len(texts) == 1


def test_json():
    """JSON has kind, name and sections."""
    entry = json.loads(catalog.describe(LIMITED.code, "json"))
    assert (entry["kind"], entry["code"]) == ("rule", LIMITED.code)
    assert set(entry["sections"]) == set(SECTIONS)
    assert all(entry["sections"].values())
    assert entry["limits"] == list(LIMITED.limits)
    entry = json.loads(catalog.describe(PASS.name, "json"))
    assert (entry["kind"], entry["phase"]) == ("pass", str(PASS.phase))
    everything = json.loads(catalog.describe_all("json"))
    assert len(everything["rules"]) == len(RULES.names())
    assert len(everything["passes"]) == len(PASSES.names())


def test_markdown():
    """A heading for each; limits are code."""
    text = catalog.describe(LIMITED.code, "markdown")
    assert text.startswith(f"## {LIMITED.code} {LIMITED.name}\n")
    assert f"`{LIMITED.limits[0]}`" in text
    assert catalog.describe_all("markdown").count("## ") == len(RULES.names()) + len(PASSES.names())


def test_all_as_text():
    """One after the other."""
    text = catalog.describe_all()
    assert all(rule.code in text for rule in RULES)
    assert all(name in text for name in PASSES.names())


def test_the_listing():
    """A line for each, none wider than a terminal."""
    entries = [*catalog.rules(), *catalog.passes()]
    lines = catalog.list_entries(entries).splitlines()
    codes = [line.split(" ")[0] for line in lines]
    assert all(codes.count(rule.code) == 1 for rule in RULES)
    assert all(any(name in line for line in lines) for name in PASSES.names())
    assert (
        max(
            map(
                len,
                catalog.list_entries([*catalog.rules(), *catalog.passes()], 79).splitlines(),
            )
        )
        <= 79
    )


def test_order():
    """Rules by code, passes by phase and name."""
    codes = [entry["code"] for entry in catalog.rules()]
    assert codes == sorted(codes)
    phases = [entry["phase"] for entry in catalog.passes()]
    assert list(dict.fromkeys(phases)) == [str(p) for p in Phase]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        (PASS.name + "x", f"did you mean {PASS.name}?"),
        (RULE.code.lower() + "9", f"did you mean {RULE.code}?"),
        ("xyzzy", "npuconv explain lists them"),
    ],
)
def test_what_does_not_exist(word, hint):
    """The nearest is suggested."""
    with pytest.raises(UsageError) as caught:
        catalog.describe(word)
    assert repr(word) in str(caught.value)
    assert hint in str(caught.value)
