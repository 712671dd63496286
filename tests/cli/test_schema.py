"""``npuconv schema``: the JSON schemas, and that what is written keeps to them."""

from __future__ import annotations

import json

import pytest

from npuconv.cli import schema as schemas
from npuconv.config import Options
from npuconv.rules import RULES


@pytest.mark.parametrize("name", schemas.NAMES)
def test_schema(cli, name):
    """Every schema is JSON, says its dialect, and is closed."""
    done = cli("schema", name)
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["$schema"].startswith("https://json-schema.org/")
    assert found["additionalProperties"] is False


def test_config(cli):
    """The configuration's schema has the options there are."""
    assert set(json.loads(cli("schema", "config").out)["properties"]) == set(Options.model_fields)


def test_report(cli):
    """The report's schema knows the codes there are."""
    finding = json.loads(cli("schema", "report").out)["$defs"]["FindingInfo"]
    assert finding["properties"]["code"]["enum"] == sorted(r.code for r in RULES)


def test_target(cli):
    """Both ways to the target's schema describe the same format."""
    own, other = (json.loads(cli(*c).out) for c in (["schema", "target"], ["target", "schema"]))
    assert own["properties"].keys() == other["properties"].keys()


def test_unknown(cli):
    """An unknown name is code 2, and lists those there are."""
    done = cli("schema", "raport")
    assert (done.code, done.out) == (2, "")
    assert "'report'" in done.error
