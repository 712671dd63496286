"""``npuconv schema``."""

from __future__ import annotations

import json

import click

from npuconv.cli import json_schemas as schemas


@click.command()
@click.argument("name", type=click.Choice(schemas.NAMES))
def schema(name: str) -> int:
    """Print the JSON schema of a report, a configuration, a jobs or a target file."""
    click.echo(json.dumps(schemas.load(name), indent=2))
    return 0
