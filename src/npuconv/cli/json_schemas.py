"""JSON schemas of the files that npuconv reads and writes, from the models that define them."""

from __future__ import annotations

from typing import Any

NAMES = ("report", "config", "batch", "target")


def load(name: str) -> dict[str, Any]:
    """Return the schema of that name, with the codes and passes that exist now."""
    from npuconv.batch.jobs_file import JobsFile
    from npuconv.config import Options
    from npuconv.schemas.report import Report
    from npuconv.target import Target

    models: dict[str, Any] = {
        "report": Report, "config": Options, "batch": JobsFile, "target": Target,
    }  # fmt: skip
    schema = models[name].model_json_schema(by_alias=True)
    if name == "report":
        _complete_report(schema["$defs"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _complete_report(parts: dict[str, Any]) -> None:
    """Add the reports of verify and batch, and the codes and names of rules and passes."""
    from npuconv.legalize.registry import PASSES
    from npuconv.rules import RULES
    from npuconv.schemas.batch import BatchReport
    from npuconv.schemas.verify import VerifyReport

    for model in (VerifyReport, BatchReport):
        own = model.model_json_schema(by_alias=True)
        parts |= own.pop("$defs")
        parts[model.__name__] = own
    finding = parts["FindingInfo"]["properties"]
    finding["code"]["enum"] = sorted(rule.code for rule in RULES)
    finding["name"]["enum"] = RULES.names()
    for part in ("Rewrite", "Refusal"):
        parts[part]["properties"]["pass"]["enum"] = PASSES.names()
