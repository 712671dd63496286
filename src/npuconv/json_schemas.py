"""JSON schemas of the files that npuconv reads and writes.

Committed, so that printing one needs no pydantic; codes and names of rules and passes are
filled in on request. ``tools/gendocs.py`` makes the files.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

NAMES = ("report", "config", "batch", "target")


def load(name: str) -> dict[str, Any]:
    """Return the schema of that name, with the codes and passes that exist now."""
    return complete(
        name, resources.files("npuconv.schemas").joinpath(f"{name}.json").read_text("utf-8")
    )


def complete(name: str, text: str) -> dict[str, Any]:
    """Return a schema file's text as a schema, with the codes and passes that exist now."""
    schema: dict[str, Any] = json.loads(text)
    if name == "report":
        from npuconv.legalize.registry import PASSES
        from npuconv.rules import RULES

        parts = schema["$defs"]
        codes = sorted(rule.code for rule in RULES)
        parts["FindingInfo"]["properties"]["code"]["enum"] = codes
        parts["FindingInfo"]["properties"]["name"]["enum"] = RULES.names()
        for part in ("Rewrite", "Refusal"):
            parts[part]["properties"]["pass"]["enum"] = PASSES.names()
    return schema


def make(name: str) -> str:
    """Return the text of a schema file, from the models that define it."""
    from npuconv.batch.expand import JobsFile
    from npuconv.config import Options
    from npuconv.schemas.batch import BatchReport
    from npuconv.schemas.report import Report
    from npuconv.schemas.verify import VerifyReport
    from npuconv.target import Target

    models: dict[str, Any] = {
        "report": Report, "config": Options, "batch": JobsFile, "target": Target,
    }  # fmt: skip
    schema = models[name].model_json_schema(by_alias=True)
    if name == "report":
        schema["$defs"] |= _definitions(VerifyReport) | _definitions(BatchReport)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


def _definitions(model: Any) -> dict[str, Any]:
    """Return the schema of a model and of its parts, as definitions."""
    schema = model.model_json_schema(by_alias=True)
    parts: dict[str, Any] = schema.pop("$defs")
    return {**parts, model.__name__: schema}
