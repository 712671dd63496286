"""``npuconv init``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from npuconv import files
from npuconv.cli import screen
from npuconv.errors import UsageError
from npuconv.validated import Record, default_of

_SCHEMA = "npuconv.schema.json"
# Keys that a project sets first; the schema, which editors complete, has all keys.
_FIRST = (
    "target", "input_shape", "calibration", "preprocess", "format", "min_sqnr", "keep_float",
    "fail_on", "ignore",
)  # fmt: skip


@click.command()
@click.argument("folder", default=".")
@click.option("--force", is_flag=True, help="overwrite a configuration that is there")
@click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")
def init(folder: str, force: bool, quiet: bool) -> None:
    """Write npuconv.yaml, with the keys that a project sets first, and its JSON schema.

    check, convert and verify read the file by themselves, here and in folders below. Every key
    begins as a comment with its default.
    """
    from npuconv.cli import schema as schemas
    from npuconv.config_files import OWN_FILE

    path, schema = Path(folder, OWN_FILE), Path(folder, _SCHEMA)
    if path.exists() and not force:
        raise UsageError(f"{path}: is there already", hint="--force overwrites it")
    for destination in (path, schema):
        files.check_writable(destination)
    with files.together():
        files.write(path, starting_config())
        files.write(schema, schemas.text("config"))
    screen.say(f"wrote {path}, {schema}", quiet=quiet)


def starting_config() -> str:
    """Return a configuration whose keys are comments, each with its description and default."""
    from npuconv.config import Options

    lines = [
        f"# yaml-language-server: $schema={_SCHEMA}",
        "# Options of npuconv: check, convert and verify read this file by themselves.",
        "# A flag wins over it. Paths are relative to this file. Remove the # of what you set;",
        "# `npuconv convert --help-all` lists every key.",
    ]
    for name in _FIRST:
        field = Options.model_fields[name]
        default = default_of(field)
        if isinstance(default, Record):
            default = default.model_dump(exclude_defaults=True)
        text = default if isinstance(default, str) else json.dumps(default)
        lines += ["", f"# {field.metadata['description']}", f"# {name}: {text}"]
    return "\n".join(lines) + "\n"
