"""Records of files: dataclasses that pydantic validates where it has to.

To import pydantic, and to make its models of all options, limits and parts of a report, takes a
tenth of a second. So a file whose values have the declared types is read without it; it converts
or refuses all others, and writes the schemas.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import operator
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from types import MappingProxyType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)  # fmt: skip

from npuconv.records import dataclass, field, fields, replace

_NONE = dataclasses.MISSING
# mypy takes no class for the argument of a cached function.
_once: Callable[[Callable[[Any], Any]], Callable[[Any], Any]] = cache
_PLAIN = (bool, int, str, type(None))
_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "min_length": lambda value, length: len(value) >= length,
    "max_length": lambda value, length: len(value) <= length,
    "strict": lambda *_: True,  # only declared types are read
    "json_schema_extra": lambda *_: True,
    "allow_inf_nan": lambda value, allowed: allowed or math.isfinite(value),
}


def Field(  # noqa: N802 as in pydantic
    *,
    default: Any = _NONE,
    default_factory: Any = _NONE,
    description: str = "",
    keys: tuple[str, ...] = (),
    **settings: Any,
) -> Any:
    """Declare a field of a record.

    Args:
        default: default.
        default_factory: makes the default.
        description: meaning, for schemas and helps.
        keys: keys in files, if others than the name; the first is written.
        settings: of ``pydantic.Field``, such as the bound ``ge``.
    """
    metadata = {"description": description, "keys": keys, "settings": settings}
    return field(default=default, default_factory=default_factory, metadata=metadata)


class Bounded:
    """First mark of a type whose values have bounds, which are named as in ``pydantic.Field``."""

    def __init__(self, **bounds: Any) -> None:
        self.bounds = bounds

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import Field

        return handler.generate_schema(Annotated[source, Field(**self.bounds)])


class Before:
    """Mark of a type whose values a function converts first; it takes the type ``accepts``."""

    def __init__(self, function: Callable[[Any], Any], accepts: Any = Any) -> None:
        self.function, self.accepts = function, accepts

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import BeforeValidator

        mark = BeforeValidator(self.function, json_schema_input_type=self.accepts)
        return mark.__get_pydantic_core_schema__(source, handler)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class Record:
    """Dataclass with the content of a file, and with the methods of a model of pydantic.

    A value of the declared type is taken without pydantic, which converts or refuses all others.
    The constructor checks nothing: its values are npuconv's own.
    """

    model_fields: ClassVar[dict[str, dataclasses.Field[Any]]]
    model_config: ClassVar[dict[str, Any]] = {}
    _given: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, *, kw_only: bool = True) -> None:
        dataclass(frozen=True, kw_only=kw_only)(cls)
        cls.model_fields = {item.name: item for item in fields(cls)}  # type: ignore[arg-type]

    def check(self) -> None:
        """Check values of a file against each other; raise ValueError."""

    @classmethod
    def model_validate(cls, data: Any) -> Self:
        """Return the record of a mapping.

        Raises:
            ValueError: pydantic's, with every fault.
        """
        try:
            return cast("Self", _read(cls, data))
        except (ValueError, TypeError, KeyError):
            return cast("Self", _adapter(cls).validate_python(data))

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Self:
        """Return the record of a text in JSON; raises as ``model_validate``."""
        return cast("Self", _adapter(cls).validate_json(text))

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema."""
        return cast("dict[str, Any]", _adapter(cls).json_schema())

    @classmethod
    def from_attributes(cls, source: Any, **values: Any) -> Self:
        """Return the record whose fields are attributes of ``source``, or ``values``."""
        names = [name for name in cls.model_fields if hasattr(source, name)]
        return cls(**{name: getattr(source, name) for name in names} | values)

    @classmethod
    def _stated(cls, values: dict[str, Any]) -> Self:
        """Return the record of values that have the declared types; raise as ``check``."""
        record = cls(**values)
        vars(record)["_given"] = frozenset(values)
        record.check()
        return record

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic import WrapValidator

        def read(value: Any, inner: Callable[[Any], Any]) -> Any:
            if isinstance(value, cls):
                return value
            model = inner(value)
            return cls._stated({name: getattr(model, name) for name in model.model_fields_set})

        return handler.generate_schema(Annotated[_model(cls), WrapValidator(read)])

    @property
    def model_fields_set(self) -> frozenset[str]:
        """Fields that the file states."""
        return self._given

    def model_copy(self, update: Mapping[str, Any] = MappingProxyType({})) -> Self:
        """Return the record with other values, which count as stated."""
        copy = replace(self, **update)  # type: ignore[type-var]
        vars(copy)["_given"] = self._given | update.keys()
        return copy

    def model_dump(
        self,
        *,
        mode: Literal["python", "json"] = "python",
        by_alias: bool = False,
        exclude_unset: bool = False,
        exclude_defaults: bool = False,
    ) -> dict[str, Any]:
        """Return the fields as a dict, records inside of it as well."""

        def plain(value: Any) -> Any:
            if isinstance(value, Record):
                return {
                    keys_of(item)[0] if by_alias else name: plain(getattr(value, name))
                    for name, item in value.model_fields.items()
                    if not (exclude_unset and name not in value._given)
                    and not (exclude_defaults and getattr(value, name) == default_of(item))
                }
            if isinstance(value, tuple | list):
                is_list = mode == "json" or isinstance(value, list)
                return [*map(plain, value)] if is_list else tuple(map(plain, value))
            if isinstance(value, dict):
                return {plain(key): plain(item) for key, item in value.items()}
            return value.value if mode == "json" and isinstance(value, Enum) else value

        return cast("dict[str, Any]", plain(self))

    def model_dump_json(self, *, indent: int | None = None, by_alias: bool = False) -> str:
        """Return the fields as JSON."""
        return json.dumps(self.model_dump(mode="json", by_alias=by_alias), indent=indent)


def by_key(record: Record) -> dict[str, Any]:
    """Return the values of the fields by key; records inside stay records."""
    return {key: getattr(record, name) for key, name in _first_keys(type(record))}


@_once
def _first_keys(kind: Any) -> list[tuple[str, str]]:
    """Return first key and name of each field."""
    return [(keys_of(item)[0], item.name) for item in fields(kind)]


def read_json(kind: Any, text: str) -> Any:
    """Return the value of a type, such as ``list[Entry]``, that is written as JSON.

    Raises:
        ValueError: not JSON, or other types; without the place.
    """
    try:
        return _read(kind, json.loads(text))
    except (TypeError, KeyError, RecursionError) as cause:
        raise ValueError(str(cause)) from None


def read_entries(kind: Any, text: str) -> list[Any]:
    """Return the entries of a list in JSON; none if it has been edited, or is too old to read."""
    try:
        return cast("list[Any]", read_json(list[kind], text))
    except ValueError:
        return []


def faults(error: ValueError) -> list[dict[str, Any]]:
    """Return the faults in an error of ``Record.model_validate``, as pydantic describes them."""
    return cast("Any", error).errors()


def default_of(item: dataclasses.Field[Any]) -> Any:
    """Return the default of a field; ``dataclasses.MISSING`` if a value is required."""
    return item.default if item.default_factory is _NONE else item.default_factory()


def keys_of(item: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Return the keys of a field in files."""
    return item.metadata.get("keys") or (item.name,)


def types_of(kind: type[Record]) -> dict[str, Any]:
    """Return the types of fields by their first key."""
    return {key: _layout(kind)[key][1] for key, _ in _first_keys(kind)}


@_once
def _layout(kind: Any) -> dict[str, tuple[str, Any]]:
    """Return name and type of each field by key."""
    types = get_type_hints(kind, include_extras=True)
    for name, item in kind.model_fields.items():
        if bounds := item.metadata.get("settings"):
            types[name] = Annotated[types[name], Bounded(**bounds)]
    named = kind.model_fields.items()
    return {key: (name, types[name]) for name, item in named for key in keys_of(item)}


def _read(kind: Any, value: Any) -> Any:
    """Return a value of a type; raise ValueError if pydantic has to convert or refuse it."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any or (kind in _PLAIN and type(value) is kind):
        return value
    if kind is float and (type(value) is float or (type(value) is int and abs(value) < 2**53)):
        return float(value)
    if isinstance(kind, type) and issubclass(kind, Record):
        return value if isinstance(value, kind) else _read_record(kind, value)
    if origin is Annotated:
        return _read_marked(parts[0], parts[1:], value)
    if origin is Literal and any(value == word and type(value) is type(word) for word in parts):
        return value
    for part in parts if origin in (UnionType, Union) else ():
        with contextlib.suppress(ValueError, TypeError, KeyError):
            return _read(part, value)
    if origin is tuple and isinstance(value, list | tuple):
        kinds = [parts[0]] * len(value) if parts[1:] == (...,) else parts
        return tuple(_read(*pair) for pair in zip(kinds, value, strict=True))
    if origin is list and isinstance(value, list):
        return [_read(parts[0], item) for item in value]
    if origin is dict and isinstance(value, dict):
        return {_read(parts[0], key): _read(parts[1], item) for key, item in value.items()}
    raise ValueError


def _read_marked(kind: Any, marks: tuple[Any, ...], value: Any) -> Any:
    for mark in reversed(marks):
        if isinstance(mark, Before):
            value = mark.function(value)
    value = _read(kind, value)
    bounds = {k: v for mark in marks if isinstance(mark, Bounded) for k, v in mark.bounds.items()}
    # pydantic alone knows settings that are no bounds here.
    if value is not None and not all(_BOUNDS[name](value, end) for name, end in bounds.items()):
        raise ValueError
    return value


def _read_record(kind: Any, data: Any) -> Any:
    if kind.model_config or not isinstance(data, dict):  # pydantic alone knows its settings
        raise ValueError
    layout, values = _layout(kind), {}
    for key, value in data.items():
        name, value_type = layout[key]
        if name in values:
            raise ValueError
        values[name] = _read(value_type, value)
    return kind._stated(values)


@_once
def _model(kind: Any) -> Any:
    """Return the model of pydantic with the fields of a record."""
    from pydantic import AliasChoices, Field, create_model

    definitions: dict[str, Any] = {}
    types = get_type_hints(kind, include_extras=True)
    for name, item in kind.model_fields.items():
        settings: dict[str, Any] = {"validation_alias": AliasChoices(*keys_of(item))}
        settings |= item.metadata.get("settings", {})
        settings["description"] = item.metadata.get("description") or None
        if item.default_factory is not _NONE or isinstance(item.default, Record):
            settings["default_factory"] = partial(default_of, item)  # no default in the schema
        elif item.default is not _NONE:
            settings["default"] = item.default
        definitions[name] = (types[name], Field(**settings))
    config: Any = {"extra": "forbid", "defer_build": True, **kind.model_config}
    return create_model(
        kind.__name__, __config__=config, __doc__=kind.__doc__, __module__=kind.__module__,
        **definitions,
    )  # fmt: skip


@_once
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
