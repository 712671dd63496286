"""A target for people: as a table and as data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from npuconv.errors import TargetError, _LocatedError
from npuconv.target import Operator, Target, builtin_names, read, shown
from npuconv.target.costs import WEIGHTS
from npuconv.target.formats import Bias
from npuconv.target.lint import lint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npuconv.target.costs import Costs
    from npuconv.target.description import Demands
    from npuconv.target.formats import Block
    from npuconv.target.limit import Cited, Limit

_WIDEST_NAME, _WIDEST_VALUE = 40, 28  # columns; what is wider is not aligned


def summaries() -> list[str]:
    """One line for each built-in target."""
    targets = [Target.load(name) for name in builtin_names()]
    width = max(len(target.name) for target in targets)
    return [f"{t.file:<{width}}  {t.description.split('. ')[0].strip()}" for t in targets]


def as_text(target: Target) -> str:
    """The target as a table of limits with their sources."""
    lines = [f"{target.name} {target.version}".strip(), *_indented(target.description.split("\n"))]
    for name, block in target.blocks():
        lines += ["", f"{name}{_cited(block)}", *_indented(_rows(block_rows(block)))]
    fused = target.fused_activations
    lines += ["", f"fused_activations: {with_assumed(fused)}{_cited(fused)}"]
    lines += _section("costs", _cost_rows(target.costs))
    lines += _section("all operators", _operator_rows(target.all_operators))
    for name, operator in target.operators.items():
        title = name + (f" ({operator.domain})" if operator.domain else "")
        lines += ["", title, *_indented(_rows(_operator_rows(operator)))]
    lines += ["", f"operators not listed: {target.unlisted_operators}"]
    lines += ["", *_source_lines(target)]
    return "\n".join(line.rstrip() for line in lines).strip() + "\n"


def as_json(target: Target) -> str:
    """The target as JSON, in the form of its file."""
    data = target.model_dump(by_alias=True, exclude_unset=True, mode="json")
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def schema_json() -> str:
    """The JSON schema of target files, for editors and CI."""
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Target.model_json_schema(),
    }
    return json.dumps(schema, indent=2) + "\n"


def lint_lines(name_or_path: str) -> list[str]:
    """``file:line:column: error: what (hint)`` for every problem of a target file."""
    try:
        problems = lint(read(name_or_path))
    except TargetError as cause:
        problems = [cause]
    return [_lint_line(problem) for problem in problems]


def _lint_line(error: _LocatedError) -> str:
    where = error.file + (f":{error.line}:{error.column}" if error.line else "")
    if not where:
        return f"error: {error}"
    return f"{where}: error: {str(error).removeprefix(where + ': ')}"


def block_rows(block: Block) -> Iterator[tuple[str, ...]]:
    """Key, value and whether it is assumed, of a number format."""
    for key in type(block).model_fields:
        if key in ("source", "why", "assumed"):
            continue
        if key == "assume" and isinstance(block, Bias) and block.known:
            continue
        assumed = "assumed" if key in block.assumed else ""
        yield key, shown(getattr(block, key)), assumed


def _section(title: str, rows: Iterator[tuple[str, ...]]) -> list[str]:
    """A table under its title, or nothing."""
    lines = _indented(_rows(rows))
    return ["", title, *lines] if lines else []


def _cost_rows(costs: Costs) -> Iterator[tuple[str, ...]]:
    """The weights that the file sets."""
    given = [name for name in WEIGHTS if name in costs.model_fields_set]
    return ((name, f"{getattr(costs, name):g}") for name in given)


def _operator_rows(operator: Demands) -> Iterator[tuple[str, ...]]:
    yield from _limit_rows(operator.limits)
    for mode, limits in operator.modes.items() if isinstance(operator, Operator) else ():
        yield from _limit_rows(limits, f" ({mode})")
    for relation in operator.require:
        yield "require", relation.text(), *_origin(relation)


def _limit_rows(limits: dict[str, Limit], of: str = "") -> Iterator[tuple[str, ...]]:
    for fact, limit in limits.items():
        yield fact + of, with_assumed(limit), *_origin(limit)


def with_assumed(limit: Limit) -> str:
    """A limit with what is taken as allowed while it is not known."""
    return f"{limit.text()} (assumed: {limit.assumed})" if limit.assume else limit.text()


def _origin(part: Cited) -> tuple[str, str]:
    return part.source, part.why


def _cited(part: Cited) -> str:
    origin = ": ".join(filter(None, _origin(part)))
    return f"  [{origin}]" if origin else ""


def _rows(rows: Iterator[tuple[str, ...]]) -> list[str]:
    table = list(rows)
    # one long relation must not push every source off the screen
    most = (_WIDEST_NAME, _WIDEST_VALUE)
    columns = enumerate(zip(*table, strict=True))
    widths = [min(max(map(len, column)), most[at > 0]) for at, column in columns]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in table]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines if line]


def _source_lines(target: Target) -> list[str]:
    if not target.sources:
        return []
    return ["sources", *_indented([f"{name}: {text}" for name, text in target.sources.items()])]
