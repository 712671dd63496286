"""Dataclasses that share their methods.

Python compiles six functions for every frozen dataclass, which takes half a millisecond; two
hundred classes would be a tenth of a second of each command.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, asdict, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["KW_ONLY", "asdict", "dataclass", "field", "fields", "replace"]

_NONE = dataclasses.MISSING

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, **options: bool) -> type | Callable[[type], type]:
        """Make a dataclass; takes ``frozen`` and ``kw_only``."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        is_frozen = options.pop("frozen", False)
        cls.__doc__ = cls.__doc__ or cls.__name__  # else made of a signature
        dataclasses.dataclass(init=False, repr=False, eq=False, **options)(cls)
        members = fields(cls)
        factories = {m.name: m.default_factory for m in members if m.default is _NONE}
        cls._members = {m.name: m.default for m in members}, factories
        cls._key = attrgetter("__class__", *(m.name for m in members if m.compare))
        names = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__")
        for name in names if is_frozen else names[:3]:
            if name not in vars(cls):
                setattr(cls, name, vars(_Methods)[name])
        return cls

    class _Methods:
        def __init__(self, *args: Any, **values: Any) -> None:
            defaults, factories = self._members
            state = self.__dict__
            state.update(defaults)
            state.update(zip(defaults, args, strict=False))
            state.update(values)
            for name, factory in factories.items():
                if state[name] is _NONE:
                    if factory is _NONE:
                        raise TypeError(f"{type(self).__name__} needs {name!r}")
                    state[name] = factory()
            if len(state) > len(defaults) or len(args) > len(defaults):
                raise TypeError(f"{type(self).__name__} takes {', '.join(defaults)}")

        def __repr__(self) -> str:
            names = [item.name for item in fields(self) if item.repr]
            values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
            return f"{type(self).__qualname__}({values})"

        def __eq__(self, value: object) -> bool:
            is_same_class = type(self) is type(value)
            return self._key(self) == value._key(value) if is_same_class else NotImplemented

        def __hash__(self) -> int:
            return hash(self._key(self))

        def __setattr__(self, name: str, value: object) -> NoReturn:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
