"""Limits of a target: predicates on one fact, or ``?``, and relations between facts in CEL."""

import re
import sys
from collections.abc import Callable, Collection
from functools import cache, cached_property
from operator import ge, le
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal

from npuconv.target.facts import FACTS, Facts, FactValue, lookup
from npuconv.validated import Before, Bounded, Field, Record
from npuconv.yamlio import suggest

_STRICT = Bounded(strict=True)
Value = Annotated[bool, _STRICT] | Annotated[int, _STRICT] | Annotated[str, _STRICT]
PREDICATES = ("equals", "one_of", "range", "min", "max", "power_of_two", "multiple_of", "limit")


class Cited(Record):
    """A part of a target with its source."""

    source: str = Field(
        default="", description="the document it is taken from: a name in `sources`, /part"
    )
    why: str = Field(default="", description="the reason, for people")
    _place: ClassVar[str] = ""

    def cite(self) -> str:
        """``npu-int8:12 operators.Conv.limits.group (notes/group: only 1 or C)``."""
        origin = ": ".join(filter(None, (self.source, self.why)))
        return " ".join(filter(None, (self._place, f"({origin})" if origin else "")))

    def locate(self, place: str) -> None:
        """Set the file, line and path of this part; called once, by the loader."""
        vars(self)["_place"] = place


class Limit(Cited):
    """Allowed values of one fact. The name of a fact is replaced by its value."""

    equals: Value | None = Field(default=None, description="exactly this")
    one_of: tuple[Value, ...] | None = Field(default=None, description="one of these")
    range: tuple[Value, Value] | None = Field(
        default=None, description="[lowest, highest], inclusive"
    )
    min: Value | None = Field(default=None, description="at least this")
    max: Value | None = Field(default=None, description="at most this")
    power_of_two: Literal[True] | None = Field(default=None, description="1, 2, 4, 8, ...")
    multiple_of: Value | None = Field(default=None, description="divisible by this")
    limit: Literal["?"] | None = Field(
        default=None, description="a limit exists, nobody wrote it down"
    )
    assume: tuple[Value, ...] = Field(
        default=(), description="with `?`: taken as allowed until known"
    )
    native: "Limit | None" = Field(
        default=None,
        description="values of one operator of the hardware; the vendor's tool splits more",
    )

    def check(self) -> None:
        """Check that there is one predicate, with keys that belong to it."""
        names = [name for name in PREDICATES if getattr(self, name) is not None]
        if len(names) != 1:
            raise ValueError(
                f"needs exactly one of {', '.join(PREDICATES)}, not {', '.join(names) or 'none'}"
            )
        if self.assume and self.is_documented:
            raise ValueError("`assume` only goes with an undocumented limit, `limit: '?'`")
        if self.native and (not self.native.is_documented or self.native.native):
            raise ValueError("`native` must be a documented limit without another `native`")

    @cached_property
    def is_documented(self) -> bool:
        """Return whether the limit is documented."""
        return self.limit is None

    @cached_property
    def predicate(self) -> str:
        """The one predicate that is given, such as ``one_of``."""
        return next(name for name in PREDICATES if getattr(self, name) is not None)

    @cached_property
    def values(self) -> tuple[FactValue, ...]:
        """Values that the predicate compares with, names of facts unresolved."""
        value = getattr(self, self.predicate)
        return value if isinstance(value, tuple) else (value,)

    @property
    def assumed(self) -> str:
        """Values assumed to be allowed while the limit is unknown, as text; or empty."""
        return ", ".join(_value_text(value, {}) for value in self.assume)

    def allows(self, value: FactValue | None, facts: Facts) -> bool | None:
        """Return whether the limit allows ``value`` on a node with these facts.

        Returns:
            None if the limit, or a fact that it needs, is unknown.
        """
        if value is None or not self.is_documented:
            return None
        bounds = [resolve(bound, facts) for bound in self.values]
        if self.predicate in ("equals", "one_of"):
            # True == 1 in Python, but a bias that is present is not the number one
            matches = (
                value == b and isinstance(value, bool) == isinstance(b, bool) for b in bounds
            )
            return True if any(matches) else None if None in bounds else False
        number = int(value)
        if self.predicate == "power_of_two":
            return number > 0 and number & (number - 1) == 0
        tests = zip(_TESTS[self.predicate], bounds, strict=True)
        answers = [None if bound is None else test(number, int(bound)) for test, bound in tests]
        return False if False in answers else None if None in answers else True

    def __str__(self) -> str:
        return self.text()

    def text(self, facts: Facts | None = None) -> str:
        """Return the limit for people: ``1 or C (=32)``, ``1..7``, ``a power of two``, ``?``."""
        words = [_value_text(value, facts or {}) for value in self.values]
        if self.predicate != "one_of":
            return _FORMS.get(self.predicate, "{}").format(*words)
        return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:]))) or "nothing"


_TESTS: dict[str, tuple[Callable[[int, int], bool | None], ...]] = {
    "range": (ge, le), "min": (ge,), "max": (le,),
    "multiple_of": (lambda number, divisor: number % divisor == 0 if divisor else None,),
}  # fmt: skip
_FORMS = {
    "range": "{}..{}",
    "min": "at least {}",
    "max": "at most {}",
    "power_of_two": "a power of two",
    "multiple_of": "a multiple of {}",
}


def spell_out(value: Any) -> Any:
    """``"?"`` is short for ``{limit: "?"}``, and a list for ``{one_of: [...]}``."""
    if value == "?":
        return {"limit": "?"}
    return {"one_of": value} if isinstance(value, list | tuple) else value


LimitField = Annotated[Limit, Before(spell_out, Limit | Literal["?"] | tuple[Value, ...])]


def resolve(value: FactValue, facts: Facts) -> FactValue | None:
    """Return the value, or the value of the fact that it names."""
    return lookup(facts, value) if isinstance(value, str) and value in FACTS else value


def _value_text(value: FactValue, facts: Facts) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    fact_value = resolve(value, facts)
    is_fact = isinstance(value, str) and value in FACTS
    return f"{value} (={fact_value})" if is_fact and fact_value is not None else str(value)


# Functions of the CEL engine; an unknown function, as in `frob(x)`, fails only when it is run.
_FUNCTIONS = {
    "size", "contains", "startsWith", "endsWith", "matches", "int", "double", "string", "bool",
    "type",
}  # fmt: skip
_MACRO = r"\.(?:all|exists|exists_one|map|filter)\(\s*{}\s*,"

MAX_CHARACTERS, MAX_LOOPS = 2000, 2  # largest length and number of loops of one expression


class Relation(Cited):
    """Relation between facts: if ``if`` holds (or is not given), ``then`` must hold."""

    if_: str = Field(
        default="", keys=("if",), description="a condition on facts, in CEL; empty: always"
    )
    then: str = Field(description="the condition that must hold then, in CEL")

    def holds(self, facts: Facts) -> bool | None:
        """Return whether a node with these facts satisfies the relation.

        Returns:
            None if a fact that it needs is unknown, or if it divides by zero.
        """
        applies = _run(compile_cel(self.if_), facts) if self.if_ else True
        if applies is False:
            return True
        result = _run(compile_cel(self.then), facts)
        return True if result else result if applies else None

    def text(self, facts: Facts | None = None) -> str:
        """Return the text: ``stride_h == 1 when dilation_h > 1 (dilation_h=2, stride_h=2)``."""
        sentence = f"{self.then} when {self.if_}" if self.if_ else self.then
        values_by_fact = {name: lookup(facts or {}, name) for name in self.facts}
        values = ", ".join(
            f"{name}={value}" for name, value in values_by_fact.items() if value is not None
        )
        return f"{sentence} ({values})" if values else sentence

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
    # The package imports its command line, which takes as long as all our other imports together.
    sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))
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
    if len(source) > MAX_CHARACTERS:  # a relation is evaluated for every node
        raise CelError(f"longer than {MAX_CHARACTERS} characters")
    if len(re.findall(_MACRO.format(r"\w+"), source)) > MAX_LOOPS:
        raise CelError(f"more than {MAX_LOOPS} of all, exists, map and filter")
    try:
        program = compile_cel(source)
    except ValueError as cause:
        raise _syntax_fault(str(cause)) from None
    names: list[tuple[str, str, Collection[str]]] = [
        ("fact", name, FACTS)
        for name in program.variables()
        if not re.search(_MACRO.format(re.escape(name)), source)
    ]
    functions = [name for name in program.functions() if name.isidentifier() and name[0] != "_"]
    names += [("function", name, _FUNCTIONS) for name in functions]
    for kind, name, vocabulary in names:
        if name not in vocabulary and name not in _FUNCTIONS:
            place = re.search(rf"\b{re.escape(name)}\b", source)
            hint = suggest(name, sorted(vocabulary))
            raise CelError(f"unknown {kind} {name!r}", place.start() if place else 0, hint)
    samples = {"int": 1, "str": "", "bool": True}
    facts = {name: (*fact.choices, samples[fact.kind])[0] for name, fact in FACTS.items()}
    try:
        result = program.execute(facts)
    except TypeError:
        raise CelError("compares or combines values of different types") from None
    except (ZeroDivisionError, ValueError, RuntimeError, OverflowError):
        return  # the error depends on the values; `holds` returns None for it
    if not isinstance(result, bool):
        raise CelError("must be true or false, such as 'stride_h == 1'")


def _syntax_fault(text: str) -> CelError:
    match = re.search(r"ERROR: <input>:(\d+):(\d+): (?:Syntax error: )?([^\n]*)", text)
    if not match:
        return CelError(f"not a CEL expression: {text.splitlines()[0]}")
    line, column, reason = match.groups()
    reason = reason.partition(" expecting {")[0]
    return CelError(f"not a CEL expression: {reason}", int(column) - 1 if line == "1" else 0)


def _run(program: Any, facts: Facts) -> bool | None:
    values = {name: lookup(facts, name) for name in program.variables() if name in FACTS}
    if None in values.values():
        return None
    try:
        return bool(program.execute(values))
    except (ZeroDivisionError, ValueError, RuntimeError, TypeError, OverflowError):
        return None
