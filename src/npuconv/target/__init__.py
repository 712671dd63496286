"""The device as data: a target file with operators, limits and their sources.

``limit``        one limit of one fact, or ``?`` where it is undocumented; relations of facts
``description``  the fields of a target file
``semantics``    checks beyond the structure, and every problem of a file
``view``         targets as text, and the differences of two
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from npuconv import yamlio
from npuconv.errors import TargetError, UsageError, raise_together
from npuconv.target.description import Description, Operator, value_text
from npuconv.target.facts import FACTS
from npuconv.target.limit import Limit, Place
from npuconv.target.semantics import lint, semantic_problems
from npuconv.yamlio import KeyPath, dotted

__all__ = ["Operator", "Target", "builtin_names", "listed_operators", "read", "value_text"]


class Target(Description):
    """Description of one NPU: operators, limits, number formats and costs."""

    _file: str = PrivateAttr("")
    _text: str = PrivateAttr("")
    _answers: tuple[str, ...] = PrivateAttr(())

    @classmethod
    def load(cls, name_or_path: str | Path) -> Target:
        """Return a built-in target by name, or one from a YAML file.

        Raises:
            TargetError: no such target, or the file is wrong; with line and column.
        """
        if str(name_or_path) in builtin_names():
            return _builtin(str(name_or_path))
        return cls.from_document(read(name_or_path))

    @classmethod
    def from_document(cls, document: yamlio.Document) -> Target:
        """Return a target from YAML that has been read.

        Raises:
            TargetError: all that is wrong, with lines and columns.
        """
        try:
            target = yamlio.validate(document, cls, error=TargetError)
        except TargetError:
            raise_together(lint(document), TargetError)
            raise
        raise_together(semantic_problems(target, document), TargetError)
        target._file, target._text = document.name, document.text
        for path, part in target.cited():
            line = document.mark(path)[0] if document.known(path) == path else 0
            part.locate(Place(document.name, yamlio.dotted(path), line))
        return target

    def assuming(self, answers: Sequence[str]) -> Target:
        """Return the target with undocumented limits answered, as ``kernel_h=5``.

        Raises:
            UsageError: no such limit is undocumented, or the value has another form.
        """
        if not answers:
            return self
        target = self.model_copy(update=answered(self, answers, self._file))
        target._whole, target._answers = {}, tuple(answers)
        return target

    def assumptions(self) -> list[tuple[str, str]]:
        """Return path and value of all that is assumed, by the file or for this run."""
        return [*paths(self, self._answers), *super().assumptions()]

    @property
    def file(self) -> str:
        """Name of the built-in target, or the path as it was given."""
        return self._file

    @property
    def yaml(self) -> str:
        """The text of the file."""
        return self._text

    @property
    def sha256(self) -> str:
        """Digest of the file, in hexadecimal."""
        return hashlib.sha256(self._text.encode("utf-8")).hexdigest()


@cache
def _builtin(name: str) -> Target:
    """Read a built-in target, once: neither its file nor a target changes."""
    return Target.from_document(read(name))


@cache
def builtin_names() -> tuple[str, ...]:
    """Names of the targets that come with npuconv, sorted."""
    files = resources.files("npuconv.targets").iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


@cache
def listed_operators(name: str) -> frozenset[str]:
    """Return the operators that a built-in target lists; its limits, which take long, are not read.

    In a file of ours every operator begins a line, indented by two.
    """
    _, _, rest = _text_of(name).partition("\noperators:\n")
    section = re.split(r"^(?=\w)", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return frozenset(re.findall(r"^  (\w+):", section, re.MULTILINE))


def read(name_or_path: str | Path) -> yamlio.Document:
    """Return the YAML of a built-in target by name, or of a file; its meaning is not checked.

    Raises:
        TargetError: no such target, unreadable, or not YAML.
    """
    name = str(name_or_path)
    if name in builtin_names():
        return yamlio.loads(_text_of(name), name=name, error=TargetError)
    if Path(name).suffix not in (".yaml", ".yml") and not Path(name).is_file():
        hint = yamlio.suggest(name, builtin_names()) or "or give a .yaml file"
        raise TargetError(
            f"unknown target {name!r}; known: {', '.join(builtin_names())}", hint=hint
        )
    return yamlio.load(name, error=TargetError)


def _text_of(name: str) -> str:
    return resources.files("npuconv.targets").joinpath(f"{name}.yaml").read_text("utf-8")


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
    by_path: dict[KeyPath, Limit] = {}
    for text in answers:
        name, _, value = (part.strip() for part in text.partition("="))
        for path, old in _find_open_limits(name, limits, text):
            limit = Limit.model_validate(
                {
                    **_parse_value(str(path[-1]), value, text),
                    "source": old.source,
                    "why": said(text),
                }
            )
            limit.locate(Place(file, dotted(path), old.line))
            by_path[path] = limit
    operators = {
        name: _with_answers(operator, ("operators", name), by_path)
        for name, operator in target.operators.items()
    }
    common = _with_answers(target.all_operators, ("all_operators",), by_path)
    return {"operators": operators, "all_operators": common}


def said(answer: str) -> str:
    """Return the text of an answer in citations and assumptions."""
    return f"assumed for this run: --assume {answer}"


def paths(target: Description, answers: Iterable[str]) -> list[tuple[str, str]]:
    """Return the path of every limit that was answered, with the assumed value."""
    texts = {said(answer) for answer in answers}
    return [
        (dotted(path), f"{limit.text()} (--assume)")
        for path, limit in target.limits()
        if limit.why in texts
    ]


def _find_open_limits(
    name: str, limits: Mapping[str, tuple[KeyPath, Limit]], text: str
) -> list[tuple[KeyPath, Limit]]:
    """Return the undocumented limits of this name.

    Raises:
        UsageError: there is none.
    """
    if "=" not in text or not name:
        raise UsageError(f"--assume {text!r} is not of the form {_FORM}")
    operator, _, fact = name.rpartition(".")
    matches = [
        (path, limit)
        for path, limit in limits.values()
        if str(path[-1]) == fact and (not operator or operator in map(str, path))
    ]
    if matches:
        return matches
    names = list(dict.fromkeys(str(path[-1]) for path, _ in limits.values()))
    near = yamlio.suggest(fact, names)
    hint = near or f"those marked '?' are {', '.join(names) or 'none'}"
    raise UsageError(f"--assume {text!r}: the target has no undocumented limit {name!r}", hint=hint)


def _parse_value(fact: str, value: str, text: str) -> dict[str, Any]:
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


def _with_answers(part: Any, top: KeyPath, given: Mapping[KeyPath, Limit]) -> Any:
    """Return an operator, or what is common to all, with the limits that were answered."""
    update: dict[str, Any] = {"limits": _replace_limits((*top, "limits"), part.limits, given)}
    if isinstance(part, Operator):
        update["modes"] = {
            mode: _replace_limits((*top, "modes", mode), limits, given)
            for mode, limits in part.modes.items()
        }
    return part.model_copy(update=update)


def _replace_limits(
    top: KeyPath, limits: Mapping[str, Limit], given: Mapping[KeyPath, Limit]
) -> dict[str, Limit]:
    return {name: given.get((*top, name), limit) for name, limit in limits.items()}
