"""Write what is derived from the code: reference pages and JSON schemas.

python tools/gendocs.py          # write
python tools/gendocs.py --check  # say what is stale, exit code 1 if anything is
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from npuconv import catalog, schemas
from npuconv.config import Options, Preprocess
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
    return f"{NOTE}# Rules\n\n{table}\n\n{body}"


def _passes() -> str:
    rows = [f"| {e['phase']} | [{e['name']}](#{e['name']}) | {e['summary']} |"
            for e in catalog.passes()]  # fmt: skip
    table = "\n".join(["| phase | name | |", "|---|---|---|", *rows])
    body = "\n".join(catalog.explain(e["name"], "markdown") for e in catalog.passes())
    return f"{NOTE}# Passes\n\n{table}\n\n{body}"


def _options() -> str:
    lines = ["| key | default | |", "|---|---|---|"]
    for name, field in Options.model_fields.items():
        if name == "preprocess":
            for key, part in Preprocess.model_fields.items():
                lines.append(f"| preprocess.{key} | `{part.default}` | {part.description} |")
            continue
        default = field.get_default(call_default_factory=True)
        lines.append(f"| {name} | `{default}` | {field.description} |")
    text = "Keys of a `--config` file; the flags of the same names win over it."
    return f"{NOTE}# Options\n\n{text}\n\n" + "\n".join(lines) + "\n"


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
