"""Messages on invalid values, and suggestions of what was probably meant.

Reads pydantic's errors and models by their shape only, so that reading YAML does not
need pydantic to be imported.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

MAX_WORD = 100  # characters; longer words are no misspellings
_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping of keys to values",
    "model": "a mapping of keys to values",
}
_SIMPLE = re.compile(r"[\w./*-]{1,40}")  # needs no quotes inside a list
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


def explain(fault: Mapping[str, Any]) -> str:
    """Return one readable sentence for one entry of pydantic's ``ValidationError.errors()``."""
    kind, context = str(fault["type"]), fault.get("ctx") or {}
    if kind == "extra_forbidden":
        return "unknown key"
    if kind == "missing":
        return "this key is required"
    if kind == "value_error":
        return str(context.get("error") or fault["msg"])
    if kind == "literal_error":
        return f"{_shown(fault['input'])} is not {_choice(context['expected'])}"
    return _about_size(kind, context, fault) or _about_type(kind, fault) or _sentence(fault["msg"])


def suggest(word: object, options: Iterable[object]) -> str:
    """Return ``did you mean 'kernel_h'?``, or '' if no option is close."""
    close = nearest(word, options)
    return f"did you mean {close!r}?" if close else ""


def nearest(word: object, options: Iterable[object]) -> str:
    """Return the option most like ``word``, in any case; '' if none is."""
    if len(str(word)) > MAX_WORD:
        return ""
    by_case = {str(option).lower(): str(option) for option in options}
    close = difflib.get_close_matches(str(word).lower(), list(by_case), n=1, cutoff=0.6)
    return by_case[close[0]] if close else ""


def hint_of(fault: Mapping[str, Any], model: Any) -> str:
    """Return the likely meaning of a misspelt key or choice, or what to write.

    A model may have a mapping ``misplaced`` from words that are not its keys to hints.
    """
    if fault["type"] == "extra_forbidden":
        *outer, key = fault["loc"]
        models = _models_at(model, outer)
        said = [known[key] for m in models if key in (known := getattr(m, "misplaced", {}))]
        return said[0] if said else suggest(key, _keys_at(model, outer))
    if fault["type"] == "missing":
        *outer, key = fault["loc"]
        fields = [known[key] for m in _models_at(model, outer) if key in (known := _keys(m))]
        only = [get_args(f.annotation) for f in fields if get_origin(f.annotation) is Literal]
        return f"write {key}: {only[0][0]}" if only and len(only[0]) == 1 else ""
    if fault["type"] == "literal_error":
        return suggest(fault["input"], re.findall(r"'([^']*)'", fault["ctx"]["expected"]))
    if fault["type"] == "string_type" and isinstance(fault["input"], int | float):
        return "quote it to mean the text"
    return ""


def _keys_at(model: Any, loc: Iterable[object]) -> list[str]:
    """Return the keys that a pydantic model takes at a place inside it."""
    return [name for each in _models_at(model, loc) for name in _keys(each)]


def _models_at(model: Any, loc: Iterable[object]) -> list[Any]:
    models = [model]
    for part in loc:
        inner = [f for m in models for name, f in _keys(m).items() if name == part]
        # a list index or the key of a free mapping leads to no other model
        models = [m for f in inner for m in _models_in(f.annotation)] or models
    return models


def dotted(path: Iterable[str | int]) -> str:
    """Return a path as text: ``operators.Conv.require[0].then``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _keys(model: Any) -> dict[str, Any]:
    return {f.alias or name: f for name, f in model.model_fields.items()}


def _models_in(annotation: Any) -> list[Any]:
    if hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _about_size(kind: str, context: Mapping[str, Any], fault: Mapping[str, Any]) -> str:
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"must be {words} {context[key]}, not {_shown(fault['input'])}"
    if kind in ("too_short", "too_long"):
        bound = context.get("min_length", context.get("max_length"))
        words = "at least" if kind == "too_short" else "at most"
        noun = "item" if bound == 1 else "items"
        return f"needs {words} {bound} {noun}, not {context['actual_length']}"
    return ""


def _about_type(kind: str, fault: Mapping[str, Any]) -> str:
    name, _, rest = kind.partition("_")
    if name in _WANTED and rest in ("type", "parsing", "from_float", "attributes_type"):
        wanted = _WANTED[name] + (_bracketed(fault["input"]) if name in ("list", "tuple") else "")
        return f"must be {wanted}, not {_shown(fault['input'])}"
    return ""


def _bracketed(value: object) -> str:
    """Return how to write the value as a list of one; '' if it is not a simple one."""
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return f", as [{value}]" if plain and _SIMPLE.fullmatch(str(value)) else ""


def _choice(expected: str) -> str:
    several = " or " in expected or "," in expected
    return f"one of {expected}" if several else expected


def _sentence(message: str) -> str:
    return message[:1].lower() + message[1:]


def _shown(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "nothing"}[value]
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
