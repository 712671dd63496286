"""``npuconv schema``: JSON schemas of the files that npuconv reads and writes.

``tools/gendocs.py`` makes them of the records, with pydantic.
"""

from __future__ import annotations

from importlib import resources

import click

NAMES = ("report", "config", "batch", "target")


@click.command()
@click.argument("name", type=click.Choice(NAMES))
def schema(name: str) -> int:
    """Print the JSON schema of a report, a configuration, a jobs or a target file."""
    click.echo(text(name), nl=False)
    return 0


def text(name: str) -> str:
    """Return the schema of that name, with the codes and passes of this version."""
    return resources.files("npuconv.schemas").joinpath(f"{name}.schema.json").read_text("utf-8")
