"""The published schemas: they fit what is written, and know every code."""

from __future__ import annotations

import json
from typing import Any

import pytest

import npuconv
from npuconv.cli import schema as schemas
from npuconv.config import Options
from npuconv.errors import UnsupportedModelError
from npuconv.legalize.registry import PASSES
from npuconv.report import render
from npuconv.rules import RULES
from support.builders import Net, digits, images

KINDS: dict[str, Any] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list,
    "object": dict, "null": type(None),
}  # fmt: skip


def check(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str = "") -> None:
    """Check the part of JSON schema that ours use: types, enums, required and additional keys."""
    if "$ref" in schema:
        check(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, path)
        return
    if "anyOf" in schema:
        assert any(fits(value, option, root) for option in schema["anyOf"]), path
        return
    assert "enum" not in schema or value in schema["enum"], (path, value)
    assert "const" not in schema or value == schema["const"], (path, value)
    if "type" in schema:
        assert isinstance(value, KINDS[schema["type"]]), (path, value)
        assert schema["type"] == "boolean" or not isinstance(value, bool), (path, value)
    if isinstance(value, dict):
        _check_object(value, schema, root, path)
    if isinstance(value, list):
        for index, item in enumerate(value):
            check(item, schema.get("items", {}), root, f"{path}[{index}]")


def _check_object(
    value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], path: str
) -> None:
    known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    assert set(schema.get("required", ())) <= set(value), path
    for key, item in value.items():
        assert key in known or more is not False, f"{path}.{key}"
        check(item, known.get(key, more if isinstance(more, dict) else {}), root, f"{path}.{key}")


def fits(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    try:
        check(value, schema, root)
    except AssertionError:
        return False
    return True


def refused():
    """The report of a model that cannot be converted."""
    with pytest.raises(UnsupportedModelError) as caught:
        npuconv.convert(Net(x=(1, 3, 4, 8, 8)).conv("x", (4, 3, 3, 3, 3)).model())
    return caught.value.report


def reports():
    """One report of each kind."""
    cal = {"x": images(9, 1, 8, 8)}
    return {
        "converted": npuconv.convert(digits(), calibration=cal, timings=True).report,
        "checked": npuconv.check(digits()),
        "float": npuconv.convert(digits(), format="float").report,
        "refused": refused(),
    }


@pytest.fixture(scope="module")
def schema():
    return json.loads(schemas.text("report"))


@pytest.mark.parametrize(("name", "report"), reports().items())
def test_reports_fit_their_schema(name, report, schema):
    """Reports fit the published schema, whatever became of the model."""
    data = json.loads(render(report, "json"))
    assert data["summary"]["verdict"], name
    check(data, schema, schema)
    if jsonschema := pytest.importorskip("jsonschema") if _has_jsonschema() else None:
        jsonschema.validate(data, schema)


def _has_jsonschema() -> bool:
    import importlib.util

    return importlib.util.find_spec("jsonschema") is not None


def test_a_report_that_does_not_fit(schema):
    """The check itself finds a misspelt key, an unknown code and a wrong type."""
    data = json.loads(render(npuconv.check(digits()), "json"))
    for change in ({"sumary": {}}, {"schema_version": 2}, {"findings": 3}, {"tool": {}}):
        assert not fits({**data, **change}, schema, schema)
    data["findings"][0]["code"] = "XYZ999"
    assert not fits(data, schema, schema)


def test_every_code_is_known(schema):
    """Codes and names of rules, and names of passes, are filled in."""
    finding = schema["$defs"]["FindingInfo"]["properties"]
    assert finding["code"]["enum"] == sorted(r.code for r in RULES)
    assert finding["name"]["enum"] == sorted(r.name for r in RULES)
    for part in ("Rewrite", "Refusal"):
        assert schema["$defs"][part]["properties"]["pass"]["enum"] == PASSES.names()


@pytest.mark.parametrize("name", schemas.NAMES)
def test_every_schema_names_its_dialect(name):
    """Editors read the dialect."""
    assert json.loads(schemas.text(name))["$schema"].startswith("https://json-schema.org/")


def test_options_fit_their_schema():
    """The defaults are valid by the schema of a config file."""
    schema = json.loads(schemas.text("config"))
    check(Options().model_dump(mode="json"), schema, schema)
    assert not fits({"mehtod": "mse"}, schema, schema)
