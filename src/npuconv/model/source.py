"""Source of a node: module, class and lines of the training code that it comes from.

PyTorch's dynamo exporter writes them into the metadata of each node. Its legacy exporter,
TensorFlow and Keras name nodes by their module. The texts are untrusted: they are bounded here,
and name no file that is opened, except below a folder of the user (``locate``).
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from npuconv.errors import UsageError
from npuconv.records import dataclass, replace

_MAX_CHARS = 300  # characters of a module, class, path or line of code
_MAX_TEXT = 1 << 14  # characters of an entry; a stack trace has the innermost frames at its end
_MAX_FRAMES = 32
_MAX_FILES, _MAX_FOLDERS, _MAX_BYTES = 1000, 16, 1 << 22  # of the files that are compared
_PREFIX = "pkg.torch.onnx."
_FRAME = re.compile(
    r'^ *File "([^"\n]+)", line (\d{1,9})(?:, in ([^\n]*))?(?:\n(?! *File ")([^\n]*))?', re.M
)
# Frames of PyTorch, of other packages, and of code without a file.
_FOREIGN = re.compile(
    r"^<|(?:^|[\\/])(?:(?:site|dist)-packages|python3\.\d+|torch[\\/](?:_\w+|nn|fx|onnx|export))[\\/]"
)
_CALLS = ("StatefulPartitionedCall", "PartitionedCall")  # scopes of TensorFlow around a model
_VARIABLE = re.compile(r"/(?:BiasAdd/)?ReadVariableOp\b.*")  # weights of a layer of TensorFlow


class Frame(NamedTuple):
    """A line of code in a stack trace."""

    file: str
    line: int
    function: str
    text: str  # the line, without its indentation
    path: str = ""  # path of the file in the folder of the user; empty: it has no such line


@dataclass(frozen=True)
class Source:
    """Training code of a node."""

    module: str  # ``m.bert.embeddings.LayerNorm``; empty: the model itself
    class_name: str = ""  # ``LayerNorm in BertEmbeddings``; empty: not known
    frames: tuple[Frame, ...] = ()  # the innermost frame is the last

    @property
    def frame(self) -> Frame | None:
        """The innermost frame in the folder of the user, else outside of packages."""
        frames = [f for f in reversed(self.frames) if not _FOREIGN.search(f.file)]
        return next((f for f in frames if f.path), frames[0] if frames else None)


def read_source(name: str, metadata: Iterable[Any]) -> Source | None:
    """Return the source of a node from its metadata, else from its name; None without either.

    Args:
        name: name of the node.
        metadata: entries with key and value.
    """
    entries = {entry.key: entry.value for entry in metadata if entry.key.startswith(_PREFIX)}
    scopes, classes = (
        entries.get(_PREFIX + key, "")[:_MAX_TEXT][2:-2].split("', '")  # a list in Python
        for key in ("name_scopes", "class_hierarchy")
    )
    trace = entries.get(f"{_PREFIX}stack_trace", "")[-_MAX_TEXT:]
    frames = tuple(
        Frame(file[:_MAX_CHARS], int(line), function[:_MAX_CHARS], text.strip()[:_MAX_CHARS])
        for file, line, function, text in _FRAME.findall(trace)[-_MAX_FRAMES:]
    )
    if len(scopes) == 1 and not frames:
        module = _module_of(name) if "/" in name else ""
        return Source(module) if module else None
    # The last scope is the operator.
    module = scopes[-2][:_MAX_CHARS] if len(scopes) > 1 else ""
    class_names = [item.rpartition(".")[2][:_MAX_CHARS] for item in reversed(classes[-3:-1])]
    return Source(module, " in ".join(class_names), frames)


def _module_of(name: str) -> str:
    """Return the module in the name of a node: ``/layer1/layer1.0/conv/Conv``, ``a/conv/BiasAdd``.

    TFLite joins the names of fused nodes; most of them are of one layer.
    """
    modules = Counter[str]()
    for part in name[: 10 * _MAX_CHARS].split(";"):
        scopes: list[str] = []
        for scope in _VARIABLE.sub("/weights", part).strip("/").split("/")[:-1]:
            if scopes and scope.startswith(f"{scopes[-1]}."):
                scopes.pop()  # PyTorch repeats the name of a Sequential
            scopes += [scope] if scope and scope not in _CALLS else []
        modules[".".join(scopes)[:_MAX_CHARS]] += 1
    return modules.most_common(1)[0][0]


def locate(sources: Mapping[str, Source], folder: str) -> dict[str, Source]:
    """Return the sources with paths and present lines of their frames in a folder.

    A frame is located where the folder has a file of its path, or of the end of its path, with
    the same line of code; if that stands on several lines, on the nearest.

    Raises:
        UsageError: there is no such folder.
    """
    if not Path(folder).is_dir():
        hint = "give the folder with the training code, as --source-root src"
        raise UsageError(f"source_root {folder}: no such folder", hint=hint)
    files: dict[str, tuple[str, dict[str, list[int]]]] = {}

    def located(frame: Frame) -> Frame:
        if _FOREIGN.search(frame.file) or not frame.text:
            return frame
        if frame.file not in files:
            is_read = len(files) < _MAX_FILES
            files[frame.file] = _read_lines(Path(folder), frame.file) if is_read else ("", {})
        path, numbers = files[frame.file]
        if frame.text not in numbers:
            return frame
        lines = numbers[frame.text]  # ascending
        nearest = lines[max(bisect_left(lines, frame.line) - 1, 0) :][:2]
        line = min(nearest, key=lambda number: abs(number - frame.line))
        return frame._replace(path=path, line=line)

    return {
        label: replace(source, frames=tuple(map(located, source.frames)))
        for label, source in sources.items()
    }


def _read_lines(folder: Path, file: str) -> tuple[str, dict[str, list[int]]]:
    """Return the path of a file of Python below a folder, and the numbers of its lines by text."""
    parts = [part for part in re.split(r"[\\/]", file) if part not in ("", ".")][-_MAX_FOLDERS:]
    numbers: dict[str, list[int]] = {}
    root = folder.resolve()
    for start in range(len(parts)):
        path = folder.joinpath(*parts[start:])
        try:
            if ".." in parts or path.suffix != ".py" or not path.is_file():
                continue
            if not path.resolve().is_relative_to(root) or path.stat().st_size > _MAX_BYTES:
                continue
            text = path.read_text("utf-8", errors="replace")
        except (OSError, ValueError):  # unreadable, or no name of a file
            continue
        for number, line in enumerate(text.split("\n"), 1):  # as Python counts: no form feeds
            numbers.setdefault(line.strip()[:_MAX_CHARS], []).append(number)
        inside = path.is_absolute() and path.is_relative_to(Path.cwd())
        return (Path(os.path.relpath(path)) if inside else path).as_posix(), numbers
    return "", numbers
