"""Targets as text: a table, JSON, the problems of a file, the differences of two targets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from npuconv.errors import TargetError
from npuconv.target import ListedOperator, Target, builtin_names, read, value_text
from npuconv.target.description import COST_WEIGHTS, Bias, Block, Demands
from npuconv.target.facts import FACTS
from npuconv.target.limit import Cited, Limit
from npuconv.target.semantics import lint

Rows = dict[str, str]  # name of a limit, format or cost -> its value as text

MAX_NAME_WIDTH, MAX_VALUE_WIDTH = 40, 28  # columns; wider cells are not aligned

_ORDER = {name: place for place, name in enumerate(FACTS)}


def summaries() -> list[str]:
    """Return one line for each built-in target."""
    targets = [Target.load(name) for name in builtin_names()]
    width = max(len(target.name) for target in targets)
    return [f"{t.file:<{width}}  {t.description.split('. ')[0].strip()}" for t in targets]


def as_text(target: Target) -> str:
    """Return the target as a table of limits with their sources."""
    lines = [f"{target.name} {target.version}".strip(), *_indented(target.description.split("\n"))]
    for name, block in target.blocks():
        lines += ["", f"{name}{_cited(block)}", *_indented(_rows(block_rows(block)))]
    fused = target.fused_activations
    lines += ["", f"fused_activations: {with_assumed(fused)}{_cited(fused)}"]
    weights = [name for name in COST_WEIGHTS if name in target.costs.model_fields_set]
    lines += _section("costs", ((name, f"{getattr(target.costs, name):g}") for name in weights))
    lines += _section("all operators", _operator_rows(target.all_operators))
    for name, operator in target.operators.items():
        title = name + (f" ({operator.domain})" if operator.domain else "")
        lines += ["", title, *_indented(_rows(_operator_rows(operator)))]
    lines += ["", f"operators not listed: {target.unlisted_operators}"]
    lines += [f"opset: {target.opset}"] if target.opset else []
    if target.sources:
        texts = [f"{name}: {text}" for name, text in target.sources.items()]
        lines += ["", "sources", *_indented(texts)]
    return "\n".join(line.rstrip() for line in lines).strip() + "\n"


def as_json(target: Target) -> str:
    """Return the target as JSON, in the form of its file."""
    data = target.model_dump(by_alias=True, exclude_unset=True, mode="json")
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def schema_json() -> str:
    """Return the JSON schema of target files, for editors and CI."""
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
    lines = []
    for error in problems:
        where = error.file + (f":{error.line}:{error.column}" if error.line else "")
        prefix = f"{where}: " if where else ""
        lines.append(f"{prefix}error: {str(error).removeprefix(prefix)}")
    return lines


def block_rows(block: Block) -> Iterator[tuple[str, ...]]:
    """Key, value and whether it is assumed, of a number format."""
    for key in type(block).model_fields:
        if key in ("source", "why", "assumed"):
            continue
        if key == "assume" and isinstance(block, Bias) and block.is_documented:
            continue
        assumed = "assumed" if key in block.assumed else ""
        yield key, value_text(getattr(block, key)), assumed


def _section(title: str, rows: Iterator[tuple[str, ...]]) -> list[str]:
    lines = _indented(_rows(rows))
    return ["", title, *lines] if lines else []


def _operator_rows(operator: Demands) -> Iterator[tuple[str, ...]]:
    yield from _limit_rows(operator.limits)
    for mode, limits in operator.modes.items() if isinstance(operator, ListedOperator) else ():
        yield from _limit_rows(limits, f" ({mode})")
    for relation in operator.require:
        yield "require", relation.text(), *_origin(relation)


def _limit_rows(limits: dict[str, Limit], suffix: str = "") -> Iterator[tuple[str, ...]]:
    for fact, limit in limits.items():
        yield fact + suffix, with_assumed(limit), *_origin(limit)


def with_assumed(limit: Limit) -> str:
    """Return a limit with the assumed value while it is not known."""
    return f"{limit.text()} (assumed: {limit.assumed})" if limit.assume else limit.text()


def _origin(part: Cited) -> tuple[str, str]:
    return part.source, part.why


def _cited(part: Cited) -> str:
    origin = ": ".join(filter(None, _origin(part)))
    return f"  [{origin}]" if origin else ""


def _rows(rows: Iterator[tuple[str, ...]]) -> list[str]:
    table = list(rows)
    # one long relation must not push every source off the screen
    limits = (MAX_NAME_WIDTH, MAX_VALUE_WIDTH)
    columns = enumerate(zip(*table, strict=True))
    widths = [min(max(map(len, column)), limits[number > 0]) for number, column in columns]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in table]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines if line]


def differences(old: Target, new: Target) -> list[str]:
    """Return a line for each limit, format or relation that differs, by operator."""
    before, after = dict(_groups(old)), dict(_groups(new))
    lines: list[str] = []
    for title in dict.fromkeys([*before, *after]):
        (values, required), (new_values, new_required) = (
            groups.get(title, ({}, [])) for groups in (before, after)
        )
        names = sorted(
            dict.fromkeys([*values, *new_values]),
            key=lambda name: _ORDER.get(name.partition(" ")[0], -1),
        )
        rows = [(name, values.get(name, "-"), new_values.get(name, "-")) for name in names]
        changed = [row for row in rows if row[1] != row[2]]
        widths = [max((len(row[column]) for row in changed), default=0) for column in (0, 1)]
        texts = [f"{n:<{widths[0]}}  {o:<{widths[1]}} -> {v}" for n, o, v in changed]
        texts += [f"- require {text}" for text in required if text not in new_required]
        texts += [f"+ require {text}" for text in new_required if text not in required]
        if texts:
            indent = "  " if title else ""
            lines += ["", *([title] if title else []), *(indent + text for text in texts)]
    return lines[1:]


def _groups(target: Target) -> Iterator[tuple[str, tuple[Rows, list[str]]]]:
    """Yield the limits or keys of each part of a target, and its relations."""
    general = {
        "version": target.version or "-",
        "opset": str(target.opset or "-"),
        "unlisted_operators": target.unlisted_operators,
        "fused_activations": with_assumed(target.fused_activations),
    }
    yield "", (general, [])
    for name, block in target.blocks():
        yield name, ({key: value for key, value, _ in block_rows(block)}, [])
    yield "costs", ({name: f"{getattr(target.costs, name):g}" for name in COST_WEIGHTS}, [])
    for name, part in {"all operators": target.all_operators, **target.operators}.items():
        rows = {name: with_assumed(limit) for name, limit in part.limits.items()}
        if isinstance(part, ListedOperator):
            domain = {"domain": part.domain} if part.domain else {}
            rows = {"operator": "listed", **domain, **rows}
            for mode, limits in part.modes.items():
                rows |= {f"{name} ({mode})": with_assumed(limit) for name, limit in limits.items()}
        yield name, (rows, [relation.text() for relation in part.require])
