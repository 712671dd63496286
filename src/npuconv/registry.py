"""Registry of objects by name, filled by importing the modules of packages."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def in_order(after: Mapping[str, Collection[str]]) -> list[str]:
    """Return names in an order that ``after`` allows, otherwise sorted.

    Raises:
        ValueError: ``after`` has an unknown name or a circle.
    """
    waiting, result = dict(after), list[str]()
    while waiting:
        ready = [name for name, before in waiting.items() if waiting.keys().isdisjoint(before)]
        if not ready or not all(after.keys() >= set(after[name]) for name in ready):
            raise ValueError(f"cannot be ordered: {sorted(waiting)}")
        result.append(min(ready))
        del waiting[result[-1]]
    return result


def described(function: Callable[..., Any]) -> str:
    """Return the docstring of a function, or else the docstring of its module."""
    return inspect.getdoc(function) or inspect.cleandoc(function.__globals__["__doc__"] or "")


class Registry(Generic[T]):
    """Objects by name, registered once, listed in a stable order.

    Modules whose name begins with an underscore are not imported.
    """

    def __init__(self, *packages: str) -> None:
        self._packages = packages  # not imported yet
        self._items: dict[str, T] = {}
        self._lock = threading.RLock()

    def add(self, name: str, item: T) -> None:
        """Register ``item``.

        Raises:
            ValueError: the name is taken.
        """
        if name in self._items:
            raise ValueError(f"{name!r} is registered twice")
        self._items[name] = item

    def load(self) -> None:
        """Import every module of the packages once; a new file needs no list.

        A second thread waits for the first: it must not take a part of the table for all of it.
        """
        with self._lock:
            packages, self._packages = self._packages, ()
            try:
                for package in packages:
                    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
                    for module in sorted(m.name for m in modules if not m.name.startswith("_")):
                        importlib.import_module(f"{package}.{module}")
            except BaseException:
                self._packages = packages
                raise

    def get(self, name: str) -> T | None:
        """Return the object of that name, or None."""
        self.load()
        return self._items.get(name)

    def registered(self) -> list[T]:
        """Return the objects that are registered so far, without loading anything."""
        return list(self._items.values())

    def names(self) -> list[str]:
        """Return all names, sorted."""
        self.load()
        return sorted(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter([self._items[name] for name in self.names()])
