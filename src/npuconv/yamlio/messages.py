"""Messages on invalid values, and suggestions of similar names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

from npuconv.validated import Record, faults, types_of

MAX_WORD = 100  # characters; longer words are no misspellings
_MAPPING = "a mapping of keys to values"
_TYPES = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "string": "text",
    "list": "a list", "tuple": "a list", "dict": _MAPPING, "model": _MAPPING,
}  # fmt: skip
_TYPE_ERROR = re.compile(f"({'|'.join(_TYPES)})_(type|parsing|from_float|attributes_type)")
_FORMS = {  # message by type of pydantic's error
    "extra_forbidden": "unknown key",
    "missing": "this key is required",
    "value_error": "{error}",
    "greater_than_equal": "must be at least {ge}, not {input}",
    "greater_than": "must be more than {gt}, not {input}",
    "less_than_equal": "must be at most {le}, not {input}",
    "less_than": "must be less than {lt}, not {input}",
    "too_short": "needs at least {min_length} item{s}, not {actual_length}",
    "too_long": "needs at most {max_length} item{s}, not {actual_length}",
    "literal_error": "{input} is not {one_of}{expected}",
}
_SIMPLE = re.compile(r"[\w./*-]{1,40}")  # needs no quotes inside a list


def explain(fault: Mapping[str, Any]) -> str:
    """Return one readable sentence for one entry of pydantic's ``ValidationError.errors()``."""
    context, value = {"error": fault["msg"], **(fault.get("ctx") or {})}, fault["input"]
    words = {True: "true", False: "false", None: "nothing"}
    text = words[value] if isinstance(value, bool) or value is None else repr(value)
    context["input"] = text if len(text) <= 40 else f"{text[:37]}..."
    if match := _TYPE_ERROR.fullmatch(fault["type"]):
        plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        in_list = _TYPES[match[1]] == "a list" and plain and _SIMPLE.fullmatch(str(value))
        example = f", as [{value}]" if in_list else ""
        return f"must be {_TYPES[match[1]]}{example}, not {context['input']}"
    if fault["type"] not in _FORMS:
        return str(fault["msg"][:1].lower() + fault["msg"][1:])
    context["s"] = "s" * (1 not in (context.get("min_length"), context.get("max_length")))
    expected = context.get("expected", "")
    context["one_of"] = "one of " if " or " in expected or "," in expected else ""
    return _FORMS[fault["type"]].format(**context)


def first_fault(error: ValueError) -> str:
    """Return the first fault that ``Record.model_validate`` found, with its place."""
    first = faults(error)[0]
    return f"{'.'.join(map(str, first['loc']))}: {explain(first)}"


def suggest(word: object, options: Iterable[object]) -> str:
    """Return ``did you mean 'kernel_h'?``, or '' if no option is close."""
    close = nearest(word, options)
    return f"did you mean {close!r}?" if close else ""


def nearest(word: object, options: Iterable[object]) -> str:
    """Return the option most like ``word``, in any case; '' if no option is close."""
    if len(str(word)) > MAX_WORD:
        return ""
    by_case = {str(option).lower(): str(option) for option in options}
    close = difflib.get_close_matches(str(word).lower(), list(by_case), n=1, cutoff=0.6)
    return by_case[close[0]] if close else ""


def hint_of(fault: Mapping[str, Any], model: Any) -> str:
    """Return the likely meaning of a misspelt key or choice, or the value to write.

    A model may have a mapping ``misplaced`` from words that are not its keys to hints.
    """
    kind = fault["type"]
    *outer, key = fault["loc"] or ("",)
    models = [model]  # records of the values at this place
    for part in outer if kind in ("extra_forbidden", "missing") else ():
        types = [types_of(m)[part] for m in models if part in types_of(m)]
        # the index of a list or the key of a free mapping leads to no other model
        models = [m for kind in types for m in _models_in(kind)] or models
    if kind == "extra_forbidden":
        hints = [hint for m in models if (hint := getattr(m, "misplaced", {}).get(key))]
        return hints[0] if hints else suggest(key, [name for m in models for name in types_of(m)])
    if kind == "missing":
        types = [types_of(m)[key] for m in models if key in types_of(m)]
        choices = [get_args(kind) for kind in types if get_origin(kind) is Literal]
        return f"write {key}: {choices[0][0]}" if choices and len(choices[0]) == 1 else ""
    if kind == "literal_error":
        return suggest(fault["input"], re.findall(r"'([^']*)'", fault["ctx"]["expected"]))
    if kind == "string_type" and isinstance(fault["input"], int | float):
        return "quote it to mean the text"
    return ""


def _models_in(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def dotted(path: Iterable[str | int]) -> str:
    """Return a path as text: ``operators.Conv.require[0].then``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")
