"""Relations between facts of one node, in the Common Expression Language."""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field

from npuconv.facts import FACTS, lookup
from npuconv.target.limit import Cited

if TYPE_CHECKING:
    from npuconv.facts import Fact, Facts

# what the CEL engine knows besides its operators; `frob(x)` compiles and fails only when run
_FUNCTIONS = {
    "size", "contains", "startsWith", "endsWith", "matches", "int", "double", "string", "bool",
    "type",
}  # fmt: skip
_MACRO = r"\.(?:all|exists|exists_one|map|filter)\(\s*{}\s*,"

MAX_CHARACTERS, MAX_LOOPS = 2000, 2  # of one expression


class Relation(Cited):
    """Relation between facts: if ``if`` holds (or is not given), ``then`` must hold."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    if_: str = Field("", alias="if", description="a condition on facts, in CEL; empty: always")
    then: str = Field(description="what must hold then, in CEL")

    def holds(self, facts: Facts) -> bool | None:
        """Return whether a node with these facts satisfies the relation.

        Returns:
            None if that cannot be said: a fact it needs is not known, or it divides by zero.
        """
        applies = _run(compile_cel(self.if_), facts) if self.if_ else True
        if applies is False:
            return True
        result = _run(compile_cel(self.then), facts)
        return True if result else result if applies else None

    def text(self, facts: Facts | None = None) -> str:
        """Return the text: ``stride_h == 1 when dilation_h > 1 (dilation_h=2, stride_h=2)``."""
        sentence = f"{self.then} when {self.if_}" if self.if_ else self.then
        known = {name: lookup(facts or {}, name) for name in self.facts}
        shown = ", ".join(f"{name}={value}" for name, value in known.items() if value is not None)
        return f"{sentence} ({shown})" if shown else sentence

    @property
    def facts(self) -> list[str]:
        """Names of the facts it depends on, sorted."""
        programs = [compile_cel(self.then), *([compile_cel(self.if_)] if self.if_ else [])]
        names = {name for program in programs for name in program.variables()}
        return sorted(names & FACTS.keys())


@cache
def compile_cel(source: str) -> Any:
    """Compile a CEL program, once; the engine is only imported by targets with relations.

    Programs are kept here and not in the relation, so that a target can be pickled.

    Raises:
        ValueError: not CEL.
    """
    import cel

    return cel.compile(source)


class CelError(ValueError):
    """Fault in an expression, with the character (from 0) where it is."""

    def __init__(self, message: str, offset: int = 0, hint: str = "") -> None:
        """Keep the parts, so that the caller can add the place in the file."""
        super().__init__(message)
        self.message, self.offset, self.hint = message, offset, hint


def check_cel(source: str) -> None:
    """Refuse an expression that could fail later, on a user's model.

    Raises:
        CelError: not CEL, an unknown fact or function, mixed types, or not a truth value.
    """
    _check_costs(source)
    try:
        program = compile_cel(source)
    except ValueError as cause:
        raise _syntax_fault(str(cause)) from None
    _check_names(source, program)
    try:
        result = program.execute({name: _sample(fact) for name, fact in FACTS.items()})
    except TypeError:
        raise CelError("compares or combines values of different types") from None
    except (ZeroDivisionError, ValueError, RuntimeError, OverflowError):
        return  # depends on the values; `holds` says None then
    if not isinstance(result, bool):
        raise CelError("must be true or false, such as 'stride_h == 1'")


def _check_costs(source: str) -> None:
    """Refuse long expressions and nested loops: a relation is evaluated for every node."""
    if len(source) > MAX_CHARACTERS:
        raise CelError(f"longer than {MAX_CHARACTERS} characters")
    if len(re.findall(_MACRO.format(r"\w+"), source)) > MAX_LOOPS:
        raise CelError(f"more than {MAX_LOOPS} of all, exists, map and filter")


def _check_names(source: str, program: Any) -> None:
    for name in program.variables():
        bound = re.search(_MACRO.format(re.escape(name)), source)
        if name not in FACTS and not bound and name not in _FUNCTIONS:
            raise _name_fault("fact", name, source, sorted(FACTS))
    for name in program.functions():
        if name.isidentifier() and name[0] != "_" and name not in _FUNCTIONS:
            raise _name_fault("function", name, source, sorted(_FUNCTIONS))


def _name_fault(what: str, name: str, source: str, options: list[str]) -> CelError:
    found = re.search(rf"\b{re.escape(name)}\b", source)
    close = difflib.get_close_matches(name, options, n=1)
    hint = f"did you mean {close[0]!r}?" if close else ""
    return CelError(f"unknown {what} {name!r}", found.start() if found else 0, hint)


def _syntax_fault(text: str) -> CelError:
    found = re.search(r"ERROR: <input>:(\d+):(\d+): (?:Syntax error: )?([^\n]*)", text)
    if not found:
        return CelError(f"not a CEL expression: {text.splitlines()[0]}")
    line, column, reason = found.groups()
    reason = reason.partition(" expecting {")[0]
    return CelError(f"not a CEL expression: {reason}", int(column) - 1 if line == "1" else 0)


def _sample(fact: Fact) -> int | str | bool:
    samples: dict[str, int | str | bool] = {"int": 1, "str": "", "bool": True}
    return fact.choices[0] if fact.choices else samples[fact.kind]


def _run(program: Any, facts: Facts) -> bool | None:
    values = {name: lookup(facts, name) for name in program.variables() if name in FACTS}
    if None in values.values():
        return None
    try:
        return bool(program.execute(values))
    except (ZeroDivisionError, ValueError, RuntimeError, TypeError, OverflowError):
        return None
