"""Checks of a target file beyond its structure, each problem with line and column.

The models of ``description`` check the keys, the types and that a limit has one predicate.
This module checks operators, facts, sources and expressions. The operators of ONNX and of
onnxruntime's own domains are package data made by ``tools/gen_operators.py``, so that onnx is
not imported.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any, NamedTuple, TypedDict, TypeGuard, cast

from npuconv import yamlio
from npuconv.errors import LocatedError, TargetError
from npuconv.target.description import Description, canonical_domain
from npuconv.target.facts import FACTS, Fact
from npuconv.target.limit import CelError, Limit, Relation, check_cel
from npuconv.validated import faults
from npuconv.yamlio import KeyPath


class OperatorInfo(TypedDict):
    """Versions and attributes of one operator."""

    since: list[int]
    attributes: list[str]


@cache
def table() -> dict[str, dict[str, OperatorInfo]]:
    """Return domain (empty: ONNX's own) -> operator -> its versions and attributes."""
    text = resources.files("npuconv.target").joinpath("operators.json").read_text("utf-8")
    return cast("dict[str, dict[str, OperatorInfo]]", json.loads(text))


class Problem(NamedTuple):
    """One fault of a target file, and its place."""

    path: KeyPath
    message: str
    hint: str = ""
    offset: int | None = None  # characters before the fault in the value; None: the key is wrong


def semantic_problems(target: Description, document: yamlio.Document) -> list[LocatedError]:
    """Return the semantic problems of a target of valid structure, in the order of the file."""
    problems = [*_operator_problems(target), *_fused_problems(target)]
    for path, part in target.cited():
        source = part.source
        if source and target.sources.keys().isdisjoint((source, source.partition("/")[0])):
            message = f"{source!r} is not one of the `sources`"
            hint = yamlio.suggest(source, target.sources)
            problems.append(Problem((*path, "source"), message, hint, 0))
        if isinstance(part, Limit):
            problems += _limit_problems(path, part)
        if isinstance(part, Relation):
            problems += _relation_problems(path, part, document)
    errors: list[LocatedError] = [
        document.error(
            TargetError, problem.path, problem.message, problem.hint,
            key=problem.offset is None, offset=problem.offset or 0,
        )
        for problem in problems
    ]  # fmt: skip
    return sorted(errors, key=lambda error: (error.line, error.column))


def _operator_problems(target: Description) -> Iterator[Problem]:
    groups: dict[KeyPath, dict[str, Limit]]
    groups = {("all_operators", "limits"): target.all_operators.limits}
    for name, operator in target.operators.items():
        path: KeyPath = ("operators", name)
        groups[*path, "limits"] = operator.limits
        groups |= {(*path, "modes", mode): limits for mode, limits in operator.modes.items()}
        domain, domains = canonical_domain(operator.domain), table()
        if domain not in domains:
            hint = yamlio.suggest(domain, domains)
            yield Problem((*path, "domain"), f"unknown operator domain {domain!r}", hint)
        elif name not in domains[domain]:
            owner = f"the domain {domain!r}" if domain else "ONNX"
            hint = yamlio.suggest(name, domains[domain])
            yield Problem(path, f"{name!r} is not an operator of {owner}", hint)
    for key, limits in groups.items():
        for fact in limits:
            if fact not in FACTS:
                hint = yamlio.suggest(fact, FACTS)
                yield Problem((*key, fact), f"unknown fact {fact!r}", hint)


def _limit_problems(path: KeyPath, limit: Limit) -> Iterator[Problem]:
    if not limit.is_documented:
        return
    where = (*path, limit.predicate)
    if path == ("activations", "zero_point"):
        yield from _value_problems(where, limit, FACTS["pad_value"])
    elif path[0] in ("operators", "all_operators"):
        name = str(path[-2] if path[-1] == "native" else path[-1])
        yield from _value_problems(where, limit, FACTS[name]) if name in FACTS else ()
    numbers = [value for value in limit.values if _is_int(value)]
    if limit.predicate == "range" and len(numbers) == 2 and numbers[0] > numbers[1]:
        message = f"range: {numbers[0]} is greater than {numbers[1]}"
        yield Problem(where, message, "write [lowest, highest]", 0)


def _value_problems(where: KeyPath, limit: Limit, fact: Fact) -> Iterator[Problem]:
    if limit.predicate not in ("equals", "one_of") and fact.kind != "int":
        message = f"`{limit.predicate}` needs a number, and {fact.name!r} is not one"
        yield Problem(where, message)
        return
    if limit.predicate == "power_of_two":
        return
    for i, value in enumerate(limit.values):
        if message := _mismatch(value, fact):
            options = (*fact.choices, *FACTS) if isinstance(value, str) else ()
            yield Problem((*where, i), message, yamlio.suggest(value, options), 0)
        elif limit.predicate == "multiple_of" and _is_int(value) and value < 1:
            yield Problem(where, "multiple_of: must be at least 1", "", 0)


def _mismatch(value: Any, fact: Fact) -> str:
    if isinstance(value, str) and value in FACTS:
        kind = FACTS[value].kind
        return "" if kind == fact.kind else f"{fact.name!r} cannot be compared with {value!r}"
    if fact.kind == "str" and isinstance(value, str):
        is_allowed = not fact.choices or value in fact.choices
        return "" if is_allowed else f"{value!r} is not a value of {fact.name}, nor a fact"
    if isinstance(value, str):
        return f"unknown fact {value!r}"
    if fact.kind == ("bool" if isinstance(value, bool) else "int"):
        return ""
    text = str(value).lower() if isinstance(value, bool) else value
    return f"{fact.name!r} is {_KINDS[fact.kind]}, not {text}"


_KINDS = {"int": "a number", "str": "a word", "bool": "true or false"}


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _relation_problems(
    path: KeyPath, relation: Relation, document: yamlio.Document
) -> Iterator[Problem]:
    for key, source in (("if", relation.if_), ("then", relation.then)):
        if key == "if" and not source:
            continue
        try:
            check_cel(source)
        except CelError as fault:
            where = (*path, key)
            line, column = document.mark(where, key=False)
            first = document.text.splitlines()[line - 1][column - 1]
            # A quote takes a column; a block has no column, because its lines are joined.
            offset = 0 if first in "|>" else fault.offset + (first in "\"'")
            yield Problem(where, fault.message, fault.hint, offset)


def _fused_problems(target: Description) -> Iterator[Problem]:
    limit, where = target.fused_activations, "fused_activations"
    if limit.is_documented and limit.predicate not in ("equals", "one_of"):
        yield Problem((where,), f"{where}: only equals, one_of or '?'", "", 0)
        return
    key, names = (
        (limit.predicate, limit.values) if limit.is_documented else ("assume", limit.assume)
    )
    for i, name in enumerate(names):
        if name not in table()[""]:
            message = f"{where}: {name!r} is not an operator of ONNX"
            yield Problem((where, key, i), message, yamlio.suggest(name, table()[""]), 0)


def lint(document: yamlio.Document) -> list[LocatedError]:
    """Return every problem of a target file, in the order of the file."""
    problems = yamlio.problems(document, Description, error=TargetError)
    target = _salvage(document) if problems else Description.model_validate(document.data)
    if target is not None:
        problems += semantic_problems(target, document)
    return sorted(problems, key=lambda error: (error.line, error.column))


def _salvage(document: yamlio.Document) -> Description | None:
    """Return the target without its invalid limits and relations; None if that is invalid."""
    data = copy.deepcopy(document.data)
    paths = {document.existing_path(loc) for loc in _faults(data)}
    if any(len(path) < 4 or path[0] != "operators" for path in paths):
        return None  # further faults would only follow from this fault
    for path in sorted({path[:4] for path in paths}, key=str, reverse=True):
        part: Any = data
        for key in path[:-1]:
            part = part[key]
        # An invalid item of a list is replaced, not deleted: the other items keep their index.
        if isinstance(part, list):
            part[int(path[-1])] = {"then": "true"}
        else:
            del part[path[-1]]
    return None if _faults(data) else Description.model_validate(data)


def _faults(data: dict[str, Any]) -> list[KeyPath]:
    try:
        Description.model_validate(data)
    except ValueError as cause:
        return [fault["loc"] for fault in faults(cause)]
    return []
