"""``npuconv schema``: JSON schemas of the files that npuconv reads and writes."""

from __future__ import annotations

import json
from typing import Any

import click

NAMES = ("report", "config", "batch", "target")


@click.command()
@click.argument("name", type=click.Choice(NAMES))
def schema(name: str) -> int:
    """Print the JSON schema of a report, a configuration, a jobs or a target file."""
    click.echo(json.dumps(load(name), indent=2))
    return 0


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


def _complete_report(definitions: dict[str, Any]) -> None:
    """Add the reports of verify and batch, and the codes and names of rules and passes."""
    from npuconv.legalize.registry import PASSES
    from npuconv.rules import RULES
    from npuconv.schemas.batch import BatchReport
    from npuconv.schemas.verify import VerifyReport

    for model in (VerifyReport, BatchReport):
        schema = model.model_json_schema(by_alias=True)
        definitions |= schema.pop("$defs")
        definitions[model.__name__] = schema
    finding = definitions["FindingInfo"]["properties"]
    finding["code"]["enum"] = sorted(rule.code for rule in RULES)
    finding["name"]["enum"] = RULES.names()
    for name in ("Rewrite", "Refusal"):
        definitions[name]["properties"]["pass"]["enum"] = PASSES.names()
