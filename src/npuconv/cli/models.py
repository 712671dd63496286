"""Models that a command is given: files and folders, short names, shapes of their inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from npuconv.batch.job import SUFFIX
from npuconv.errors import UnknownInputError, UsageError

Shapes = dict[str, tuple[int, ...]]
_Result = TypeVar("_Result")


def expand(models: tuple[str, ...]) -> list[str]:
    """Return files as given and the models in directories, each once.

    In a directory, files named as ``convert`` names its results are left out.

    Raises:
        UsageError: a directory without models.
    """
    paths: dict[str, None] = {}
    for model in models:
        path = Path(model)
        if not model:
            raise UsageError("the name of a model is empty", hint="'.' is the current folder")
        if not os.path.isdir(path):  # noqa: PTH112 never raises
            paths[model] = None
            continue
        files = sorted(file.as_posix() for file in path.rglob("*.onnx") if file.is_file())
        sources = [file for file in files if not file.endswith(SUFFIX)]
        if not sources:
            results = f", but for what convert has written (*{SUFFIX})" if files else ""
            raise UsageError(f"{model}: no .onnx file in this directory{results}")
        paths.update(dict.fromkeys(sources))
    return list(paths)


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the paths without the folders that all begin with, and the parts that all end with.

    ``models/a/model.onnx`` and ``models/b/model.onnx`` are ``a`` and ``b``; a single path
    stays whole.
    """
    parts = [Path(path).parts for path in paths]
    shortest = min((len(p) for p in parts), default=0)
    first = next((i for i in range(shortest) if len({p[i] for p in parts}) > 1), 0)
    last = next((i for i in range(shortest - first) if len({p[-1 - i] for p in parts}) > 1), 0)
    names = [p[first : len(p) - last] for p in parts]
    return [str(Path(*name)) if name else path for name, path in zip(names, paths, strict=True)]


class InputShapes:
    """Shapes of ``--input-shape``, each for the models that have its input."""

    def __init__(self, shapes: Mapping[str, Sequence[int]]) -> None:
        self._shapes: Shapes = {name: tuple(dims) for name, dims in shapes.items()}
        self._refusals: dict[str, UnknownInputError] = {}  # the last one of each input
        self._accepted: set[str] = set()

    def apply(self, read: Callable[[Shapes], _Result]) -> _Result:
        """Read a model with the shapes of its inputs.

        A model that cannot be read may have had any of the inputs.
        """
        shapes = dict(self._shapes)
        try:
            while True:
                try:
                    return read(shapes)
                except UnknownInputError as error:
                    self._refusals[error.name] = error
                    del shapes[error.name]
        finally:
            self._accepted |= shapes.keys()

    def check(self) -> None:
        """Refuse a shape whose input no model has.

        Raises:
            UnknownInputError: the error of the last model that was refused for it.
        """
        for name, error in self._refusals.items():
            if name not in self._accepted:
                raise error
