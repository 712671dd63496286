"""Write the pages that are derived from the code: reference pages and JSON schemas.

python tools/gendocs.py          # write
python tools/gendocs.py --check  # name stale files; exit code 1 if there are any
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from copy import copy
from inspect import cleandoc
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

import keywords
from npuconv.batch.jobs_file import JobsFile
from npuconv.cli import cli
from npuconv.cli import explain as catalog
from npuconv.cli import schema as schemas
from npuconv.cli.help import SHOWS_ALL
from npuconv.config import Options, Preprocess, Selection
from npuconv.legalize.registry import PASSES, Phase
from npuconv.legalize.split.proposal import splits_of
from npuconv.rules import RULES
from npuconv.schemas.batch import BatchReport
from npuconv.schemas.report import Report
from npuconv.schemas.verify import VerifyReport
from npuconv.target import Target, builtin_names
from npuconv.target.facts import FACTS
from npuconv.target.limit import Limit, Relation
from npuconv.validated import Record, default_of
from npuconv.yamlio.messages import dotted

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
NOTE = "<!-- Made by tools/gendocs.py; `make docs` writes it anew. -->\n\n"


def pages() -> dict[Path, str]:
    """Every derived file and its text."""
    texts = {
        REFERENCE / "rules.md": _rules(),
        REFERENCE / "passes.md": _passes(),
        REFERENCE / "options.md": _options(),
        REFERENCE / "errors.md": _errors(),
        REFERENCE / "targets.md": _targets(),
        REFERENCE / "glossary.md": _glossary(),
        REFERENCE / "facts.md": _facts(),
        ROOT / "docs" / "fitting.md": _filled(
            "fitting.md", convolutions=_splits("Conv"), pools=_splits("MaxPool")
        ),
        ROOT / "docs" / "writing_passes.md": _filled("writing_passes.md", phases=_phases()),
        ROOT / "docs" / "architecture.md": _filled("architecture.md", packages=_packages()),
    }
    # Commands keep the flags of help that they first see: those of the command line.
    context = click.Context(cli, info_name="npuconv", **cli.context_settings)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if command is not None:
            texts[REFERENCE / f"command_{name}.md"] = f"{NOTE}{_command(command, context, name)}"
    texts[ROOT / "src" / "npuconv" / "keywords.py"] = keywords.module()
    for name in schemas.NAMES:
        path = ROOT / "src" / "npuconv" / "schemas" / f"{name}.schema.json"
        texts[path] = json.dumps(_schema(name), indent=2, sort_keys=True) + "\n"
    return texts


def _schema(name: str) -> dict[str, Any]:
    """Return the schema of that name, with the codes and passes that exist now."""
    models: dict[str, Any] = {
        "report": Report, "config": Options, "batch": JobsFile, "target": Target,
    }  # fmt: skip
    schema = models[name].model_json_schema()
    if name == "report":
        _complete_report(schema["$defs"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _complete_report(definitions: dict[str, Any]) -> None:
    """Add the reports of verify and batch, and the codes and names of rules and passes."""
    for model in (VerifyReport, BatchReport):
        schema = model.model_json_schema()
        definitions |= schema.pop("$defs")
        definitions[model.__name__] = schema
    finding = definitions["FindingInfo"]["properties"]
    finding["code"]["enum"] = sorted(rule.code for rule in RULES)
    finding["name"]["enum"] = RULES.names()
    for name in ("Rewrite", "Refusal"):
        definitions[name]["properties"]["pass"]["enum"] = PASSES.names()


def _rules() -> str:
    rows = [f"| {e['code']} | [{e['name']}](#{e['code'].lower()}-{e['name']}) | {e['severity']} | "
            f"{e['summary']} |" for e in catalog.rules()]  # fmt: skip
    table = "\n".join(["| code | name | severity | |", "|---|---|---|---|", *rows])
    body = "\n".join(catalog.describe(e["code"], "markdown") for e in catalog.rules())
    text = (
        "What `npuconv explain --all` says of rules. The examples are in ONNX's own text "
        "syntax; weights without numbers are random, and one number is all of them. They "
        "are built and judged by the tests. Where no target is named, it is the built-in one."
    )
    return f"{NOTE}# Rules\n\n{text}\n\n{table}\n\n{body}"


def _passes() -> str:
    rows = [f"| {e['phase']} | [{e['name']}](#{e['name']}) | {e['summary']} |"
            for e in catalog.passes()]  # fmt: skip
    table = "\n".join(["| phase | name | |", "|---|---|---|", *rows])
    body = "\n".join(catalog.describe(e["name"], "markdown") for e in catalog.passes())
    return f"{NOTE}# Passes\n\n{table}\n\n{body}"


def _filled(page: str, **tables: str) -> str:
    """A page of docs; each table is between the two comments with its name."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    for name, table in tables.items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        head, _, tail = text.partition(start)
        text = f"{head}{start}{table}{end}{tail.partition(end)[2]}"
    return text


def _packages() -> str:
    """A table of the packages, from the highest layer down, with their first sentences."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    names = re.findall(r"npuconv\.(\w+)", " ".join(layers))
    lines = ["| package | holds |", "|---|---|"]
    for name in names:
        source = ROOT / "src" / "npuconv" / name / "__init__.py"
        if source.is_file():
            docstring = ast.get_docstring(ast.parse(source.read_text("utf-8"))) or ""
            lines.append(f"| `{name}/` | {docstring.partition(chr(10))[0]} |")
    return "\n".join(lines) + "\n"


def _phases() -> str:
    """A table of the phases of passes."""
    homes: dict[str, str] = {}
    for item in PASSES:
        package = item.function.__module__.rpartition(".")[0].removeprefix("npuconv.")
        homes[item.phase] = package.replace(".", "/")
    rows = [f"| `{phase.name}` | {phase.purpose} | `{homes[phase]}` |" for phase in Phase]
    return "\n".join(["| phase | purpose | package |", "|---|---|---|", *rows, ""])


def _splits(op: str) -> str:
    """A table of the ways to split layers of an operator, in the order in which they are tried."""
    rows = [
        f"| {', '.join(item.topics)} | {item.report_name} | {item.summary} | {item.rounding} |"
        for item in splits_of(op)
    ]
    lines = ["| limits on | way | rewrite | in int8 |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines).replace("``", "`")


def _options() -> str:
    rows = _keys(Options, "")
    lines = ["| key | default | values | |", "|---|---|---|---|", *rows]
    others = [name for name, hint in Options.misplaced.items() if hint.startswith("a flag")]
    flags = ", ".join(f"`--{name.replace('_', '-')}`" for name in others)
    text = (
        "Keys of a `--config` file; the flags of the same names win over it. `rules` has no flag. "
        "Those inside `preprocess` are flags without that word, but for `preset`, which is "
        f"`--preprocess`, and `layout`, which is `--input-layout`. No keys are {flags}."
    )
    return f"{NOTE}# Options\n\n{text}\n\n" + "\n".join(lines) + "\n"


def _keys(model: type[Record], prefix: str) -> Iterator[str]:
    """Yield a row for each key; keys of a part have its prefix."""
    parts = {"preprocess": (Preprocess, "preprocess."), "rules": (Selection, "rules.PATTERN.")}
    for name, field in model.model_fields.items():
        if not prefix and name in parts:
            yield from _keys(*parts[name])
            continue
        default = _yaml(default_of(field))
        values = ", ".join(f"`{word}`" for word in _values(field.type))
        yield f"| {prefix}{name} | `{default}` | {values} | {field.metadata['description']} |"


def _yaml(value: object) -> str:
    """A default in the syntax of YAML."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def _values(annotation: object) -> list[str]:
    """The words that a key takes, or the items of its list, or the values of its mapping."""
    parts = get_args(annotation)
    if get_origin(annotation) is Literal:
        return [str(part) for part in parts]
    return [word for part in parts for word in _values(part)]


def _errors() -> str:
    from npuconv import errors

    doc = (errors.__doc__ or "").strip()
    return f"{NOTE}# Errors and exit codes\n\n```\n{doc}\n```\n"


def _facts() -> str:
    rows = []
    for fact in FACTS.values():
        words = ("true", "false") if fact.kind == "bool" else fact.choices
        values = f": {', '.join(f'`{word}`' for word in words)}" if words else ""
        rows.append(f"| `{fact.name}` | {cell(fact.help)}{values} |")
    table = "\n".join(["| fact | |", "|---|---|", *rows])
    text = "The facts of a node that a limit of a [target file](../targets.md) can bound."
    return f"{NOTE}# Facts\n\n{text}\n\n{table}\n"


def _glossary() -> str:
    terms = (ROOT / "src/npuconv/report/templates/glossary.md").read_text("utf-8")
    return f"{NOTE}# Glossary\n\nThe terms of reports, messages and guides.\n\n{terms}"


def _command(command: click.Command, parent: click.Context, name: str, level: int = 1) -> str:
    """The page of a command: usage, description, options, and its subcommands."""
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"{'#' * level} npuconv {name}" if level == 1 else f"## {name}"]
    parts += [f"```\n{usage}\n```", _paragraphs(cleandoc(command.help or ""))]
    rows = [f"| `{cell(flags)}` | {cell(text)} |" for flags, text in _flags(command, context)]
    if rows:
        parts.append("\n".join(["| option | |", "|---|---|", *rows]))
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            subcommand = command.get_command(context, sub)
            if subcommand is not None:
                parts.append(_command(subcommand, context, sub, level + 1).strip())
    return "\n\n".join(part for part in parts if part) + "\n"


def _paragraphs(text: str) -> str:
    r"""The help of a command; paragraphs with click's mark \\b keep their lines."""
    parts = text.replace("\f", "").strip().split("\n\n")
    blocks = (
        f"```\n{p.strip().removeprefix(chr(8)).strip()}\n```" if "\b" in p else p for p in parts
    )
    return "\n\n".join(blocks)


def _flags(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield names and help of all options, also if the short help hides them."""
    context.meta[SHOWS_ALL] = True
    for option in command.get_params(context):
        # click makes --help, with the names of whichever context has asked for it first.
        if isinstance(option, click.Option) and "--help" not in option.opts:
            visible_option = copy(option)
            visible_option.hidden = False
            record = visible_option.get_help_record(context)
            if record is not None:
                yield record[0], " ".join(record[1].split())


def cell(text: str) -> str:
    """Escape bars, which would end the cell of a table."""
    return text.replace("|", "\\|")


def _targets() -> str:
    parts = []
    for name in builtin_names():
        target = Target.load(name)
        cited = [(dotted(path), part) for path, part in target.cited()]
        rows = [f"| `{path}` | {cell(part.text())} | {part.source} | {cell(part.why)} |"
                for path, part in cited if isinstance(part, Limit | Relation)]  # fmt: skip
        table = "\n".join(["| limit | value | source | |", "|---|---|---|---|", *rows])
        parts.append(f"## {name}\n\n{target.description.strip()}\n\n{table}\n")
    return f"{NOTE}# Built-in targets\n\n" + "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Write, or with ``--check`` compare."""
    stale = []
    for path, text in pages().items():
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT).as_posix())
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    if "--check" in arguments and stale:
        print("stale, run `make docs`: " + ", ".join(stale), file=sys.stderr)
        return 1
    print(f"{len(stale)} files written" if stale else "up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
