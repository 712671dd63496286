"""Write what is derived from the code: reference pages and JSON schemas.

python tools/gendocs.py          # write
python tools/gendocs.py --check  # say what is stale, exit code 1 if anything is
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import BaseModel

import rooms
from npuconv import catalog
from npuconv import json_schemas as schemas
from npuconv.config import Options, Preprocess, Selection
from npuconv.legalize.registry import PASSES, Phase
from npuconv.target import Target, builtin_names
from npuconv.target.limit import Limit
from npuconv.target.relation import Relation
from npuconv.yamlio.check import dotted

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
NOTE = "<!-- Made by tools/gendocs.py; `make docs` writes it anew. -->\n\n"


def pages() -> dict[Path, str]:
    """Every derived file and its text."""
    found = {
        REFERENCE / "rules.md": _rules(),
        REFERENCE / "passes.md": _passes(),
        REFERENCE / "options.md": _options(),
        REFERENCE / "errors.md": _errors(),
        REFERENCE / "targets.md": _targets(),
        ROOT / "docs" / "writing_passes.md": _filled("writing_passes.md", phases=_phases()),
        ROOT / "docs" / "architecture.md": _filled(
            "architecture.md", packages=rooms.package_table(), calls=rooms.calls_of_conversion()
        ),
        ROOT / "docs" / "site" / "rooms.svg": rooms.picture(),
    }
    for name in schemas.NAMES:
        text = schemas.make(name)
        found[ROOT / "src" / "npuconv" / "schemas" / f"{name}.json"] = text
        full = json.dumps(schemas.complete(name, text), indent=2) + "\n"
        found[REFERENCE / f"{name}.schema.json"] = full
    return found


def _rules() -> str:
    rows = [f"| {e['code']} | [{e['name']}](#{e['code'].lower()}-{e['name']}) | {e['severity']} | "
            f"{e['summary']} |" for e in catalog.rules()]  # fmt: skip
    table = "\n".join(["| code | name | severity | |", "|---|---|---|---|", *rows])
    body = "\n".join(catalog.explain(e["code"], "markdown") for e in catalog.rules())
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
    body = "\n".join(catalog.explain(e["name"], "markdown") for e in catalog.passes())
    return f"{NOTE}# Passes\n\n{table}\n\n{body}"


def _filled(page: str, **tables: str) -> str:
    """A page of docs with each table between the two comments of its name."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    for name, table in tables.items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        head, _, rest = text.partition(start)
        text = f"{head}{start}{table}{end}{rest.partition(end)[2]}"
    return text


def _phases() -> str:
    """A table of the phases of passes."""
    homes: dict[str, str] = {}
    for item in PASSES:
        package = item.function.__module__.rpartition(".")[0].removeprefix("npuconv.")
        homes[item.phase] = package.replace(".", "/")
    rows = [f"| `{phase.name}` | {phase.purpose} | `{homes[phase]}` |" for phase in Phase]
    return "\n".join(["| phase | purpose | package |", "|---|---|---|", *rows, ""])


def _options() -> str:
    rows = _keys(Options, "")
    lines = ["| key | default | values | |", "|---|---|---|---|", *rows]
    others = [name for name, said in Options.misplaced.items() if said.startswith("a flag")]
    flags = ", ".join(f"`--{name.replace('_', '-')}`" for name in others)
    text = (
        "Keys of a `--config` file; the flags of the same names win over it. `rules` has no flag. "
        "Those inside `preprocess` are flags without that word, but for `preset`, which is "
        f"`--preprocess`, and `layout`, which is `--input-layout`. No keys are {flags}."
    )
    return f"{NOTE}# Options\n\n{text}\n\n" + "\n".join(lines) + "\n"


def _keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """A row for each key, those of a part under its name."""
    parts = {"preprocess": (Preprocess, "preprocess."), "rules": (Selection, "rules.PATTERN.")}
    for name, field in model.model_fields.items():
        if not prefix and name in parts:
            yield from _keys(*parts[name])
            continue
        default = _yaml(field.get_default(call_default_factory=True))
        values = ", ".join(f"`{one}`" for one in _values(field.annotation))
        yield f"| {prefix}{name} | `{default}` | {values} | {field.description} |"


def _yaml(value: object) -> str:
    """A default as a file would have it."""
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


def cell(text: str) -> str:
    """A bar would end the cell of a table."""
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
