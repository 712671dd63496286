"""Models that a command is given: files and folders, short names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from npuconv import files
from npuconv.config import SUFFIX
from npuconv.errors import UsageError


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
        onnx_files = sorted(file.as_posix() for file in path.rglob("*.onnx") if file.is_file())
        sources = [file for file in onnx_files if not file.endswith(SUFFIX)]
        if not sources:
            results = f", but for what convert has written (*{SUFFIX})" if onnx_files else ""
            raise UsageError(f"{model}: no .onnx file in this directory{results}")
        paths.update(dict.fromkeys(sources))
    return list(paths)


def model_names(paths: Sequence[str], arguments: Iterable[str] = ()) -> list[str]:
    """Return a name for each model: its path from the folder among the arguments that has it.

    A ``model.onnx`` is named by its folder, unless two models then had the same name.
    """
    folders = [Path(argument) for argument in arguments if Path(argument).is_dir()]
    names = []
    for path in map(Path, paths):
        inside = (path.relative_to(folder) for folder in folders if path.is_relative_to(folder))
        name = next(inside, Path(path.name) if path.is_absolute() else path)
        if path.name == files.UNNAMED:
            name = (
                name.parent if name.parent != Path() else Path(path.absolute().parent.name or name)
            )
        names.append(name.as_posix())
    times = Counter(names)
    return [name if times[name] == 1 else path for path, name in zip(paths, names, strict=True)]
