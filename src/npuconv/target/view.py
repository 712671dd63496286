"""A target for people: as a table, as data, and compared with another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from npuconv.errors import TargetError, _LocatedError
from npuconv.target import Target, builtin_names, read, shown
from npuconv.target.formats import Bias
from npuconv.target.lint import lint
from npuconv.target.relation import Relation
from npuconv.yamlio.check import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npuconv.target import Operator
    from npuconv.target.formats import Block
    from npuconv.target.limit import Cited, Limit


def summaries() -> list[str]:
    """One line for each built-in target."""
    targets = [Target.load(name) for name in builtin_names()]
    width = max(len(target.name) for target in targets)
    return [f"{t.file:<{width}}  {t.description.split('. ')[0].strip()}" for t in targets]


def as_text(target: Target) -> str:
    """The target as a table of limits with their sources."""
    lines = [f"{target.name} {target.version}".strip(), *_indented(target.description.split("\n"))]
    for name, block in target.blocks():
        lines += ["", f"{name}{_cited(block)}", *_indented(_rows(_block_rows(block)))]
    fused = target.fused_activations
    lines += ["", f"fused_activations: {_with_assumed(fused)}{_cited(fused)}"]
    for name, operator in target.operators.items():
        lines += ["", name + (f" ({operator.domain})" if operator.domain else "")]
        lines += _indented(_rows(_operator_rows(operator)))
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


def differences(old: Target, new: Target) -> list[str]:
    """One line for each limit, format or relation that is not the same in both."""
    before, after = _flat(old), _flat(new)
    return [
        f"{key}: {before.get(key, 'not listed')} -> {after.get(key, 'not listed')}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


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


def _block_rows(block: Block) -> Iterator[tuple[str, ...]]:
    for key in type(block).model_fields:
        if key in ("source", "why", "assumed"):
            continue
        if key == "assume" and isinstance(block, Bias) and block.known:
            continue
        assumed = "assumed" if key in block.assumed else ""
        yield key, shown(getattr(block, key)), assumed


def _operator_rows(operator: Operator) -> Iterator[tuple[str, ...]]:
    for fact, limit in operator.limits.items():
        yield fact, _with_assumed(limit), *_origin(limit)
    for mode, limits in operator.modes.items():
        for fact, limit in limits.items():
            yield f"{fact} ({mode})", _with_assumed(limit), *_origin(limit)
    for relation in operator.require:
        yield "require", relation.text(), *_origin(relation)


def _with_assumed(limit: Limit) -> str:
    return f"{limit.text()} (assumed: {limit.assumed})" if limit.assume else limit.text()


def _origin(part: Cited) -> tuple[str, str]:
    return part.source, part.why


def _cited(part: Cited) -> str:
    origin = ": ".join(filter(None, _origin(part)))
    return f"  [{origin}]" if origin else ""


def _rows(rows: Iterator[tuple[str, ...]]) -> list[str]:
    table = list(rows)
    # one long relation must not push every source off the screen
    widths = [min(max(map(len, column)), 40) for column in zip(*table, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in table]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines if line]


def _source_lines(target: Target) -> list[str]:
    if not target.sources:
        return []
    return ["sources", *_indented([f"{name}: {text}" for name, text in target.sources.items()])]


def _flat(target: Target) -> dict[str, str]:
    flat = {"version": target.version, "unlisted_operators": target.unlisted_operators}
    for name, block in target.blocks():
        flat |= {f"{name}.{key}": value for key, value, _ in _block_rows(block)}
    flat["fused_activations"] = _with_assumed(target.fused_activations)
    for name, operator in target.operators.items():
        flat[f"operators.{name}"] = "listed"
        flat |= {f"operators.{name}.domain": operator.domain or "ai.onnx"}
    for path, part in target.cited():
        if path[0] == "operators":
            flat |= _flat_part(path, part)
    return flat


def _flat_part(path: tuple[str | int, ...], part: Any) -> dict[str, str]:
    if isinstance(part, Relation):  # by its text: an inserted relation must not shift the rest
        return {f"{dotted(path[:-1])}: {part.text()}": "required"}
    return {dotted(path): _with_assumed(part)}
