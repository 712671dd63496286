"""Answers to undocumented limits that hold for one run: ``--assume kernel_h=5``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from npuconv import yamlio
from npuconv.errors import UsageError
from npuconv.facts import FACTS
from npuconv.target.description import Description, Operator
from npuconv.target.limit import Limit, Place
from npuconv.yamlio import dotted

if TYPE_CHECKING:
    from npuconv.yamlio import KeyPath

_FORM = "LIMIT=VALUE, as kernel_h=5, stride_h=1,2, in_c=1..64 or bias=true"
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")


def answered(target: Description, answers: Iterable[str], file: str) -> dict[str, Any]:
    """Return the fields of a target in which undocumented limits have an answer.

    Args:
        target: as its file says.
        answers: ``LIMIT=VALUE`` or ``OPERATOR.LIMIT=VALUE``. A number is the largest that is
            taken, ``1..5`` a range, ``1,2,4`` a list, and ``true`` or ``false`` that value.
        file: name of the target's file, for citations.

    Returns:
        ``operators`` and ``all_operators``, for a copy of the target.

    Raises:
        UsageError: no such limit is marked ``?``, or the value has no such form.
    """
    limits = {dotted(path): (path, limit) for path, limit in target.limits() if not limit.known}
    given: dict[KeyPath, Limit] = {}
    for text in answers:
        name, _, value = (part.strip() for part in text.partition("="))
        for path, old in _named(name, limits, text):
            limit = Limit.model_validate(
                {**_predicate(str(path[-1]), value, text), "source": old.source, "why": said(text)}
            )
            limit.locate(Place(file, dotted(path), old.line))
            given[path] = limit
    operators = {
        name: _with(operator, ("operators", name), given)
        for name, operator in target.operators.items()
    }
    common = _with(target.all_operators, ("all_operators",), given)
    return {"operators": operators, "all_operators": common}


def said(answer: str) -> str:
    """Return what citations and assumptions say of an answer."""
    return f"assumed for this run: --assume {answer}"


def paths(target: Description, answers: Iterable[str]) -> list[tuple[str, str]]:
    """Return the path of every limit that was answered, with what was assumed."""
    wanted = {said(answer) for answer in answers}
    return [
        (dotted(path), f"{limit.text()} (--assume)")
        for path, limit in target.limits()
        if limit.why in wanted
    ]


def _named(
    name: str, limits: Mapping[str, tuple[KeyPath, Limit]], text: str
) -> list[tuple[KeyPath, Limit]]:
    """Return the undocumented limits of this name.

    Raises:
        UsageError: there is none.
    """
    if "=" not in text or not name:
        raise UsageError(f"--assume {text!r} is not of the form {_FORM}")
    operator, _, fact = name.rpartition(".")
    found = [
        (path, limit)
        for path, limit in limits.values()
        if str(path[-1]) == fact and (not operator or operator in map(str, path))
    ]
    if found:
        return found
    known = list(dict.fromkeys(str(path[-1]) for path, _ in limits.values()))
    near = yamlio.suggest(fact, known)
    hint = near or f"those marked '?' are {', '.join(known) or 'none'}"
    raise UsageError(f"--assume {text!r}: the target has no undocumented limit {name!r}", hint=hint)


def _predicate(fact: str, value: str, text: str) -> dict[str, Any]:
    """Return the limit that a value stands for."""
    kind = FACTS[fact].kind if fact in FACTS else "str"
    if kind == "bool" and value in ("true", "false"):
        return {"equals": value == "true"}
    if kind == "str" and value:
        return {"one_of": value.split(",")}
    if kind == "int":
        if match := _RANGE.fullmatch(value):
            return {"range": [int(match[1]), int(match[2])]}
        if re.fullmatch(r"-?\d+(,-?\d+)+", value):
            return {"one_of": [int(part) for part in value.split(",")]}
        if re.fullmatch(r"-?\d+", value):
            return {"max": int(value)}
    raise UsageError(f"--assume {text!r} is not of the form {_FORM}")


def _with(part: Any, top: KeyPath, given: Mapping[KeyPath, Limit]) -> Any:
    """Return an operator, or what is common to all, with the limits that were answered."""
    update: dict[str, Any] = {"limits": _replaced((*top, "limits"), part.limits, given)}
    if isinstance(part, Operator):
        update["modes"] = {
            mode: _replaced((*top, "modes", mode), limits, given)
            for mode, limits in part.modes.items()
        }
    return part.model_copy(update=update)


def _replaced(
    top: KeyPath, limits: Mapping[str, Limit], given: Mapping[KeyPath, Limit]
) -> dict[str, Limit]:
    return {name: given.get((*top, name), limit) for name, limit in limits.items()}
