"""Names of the jobs of a batch as people know them: by the folder of a ``model.onnx``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Protocol

from npuconv import files

_UNNAMED = files.UNNAMED.removesuffix(".onnx")


class _NamedJob(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...


def shown_names(jobs: Sequence[_NamedJob]) -> dict[str, str]:
    """Return the short name of each job, by its name.

    That is its name; but for a ``model.onnx``, with its folder in the place of ``model``, unless
    two jobs then had the same name.
    """
    named = {job.name: _name_by_folder(job) for job in jobs}
    times = Counter(named.values())
    return {
        name: short_name if times[short_name] == 1 else name for name, short_name in named.items()
    }


def _name_by_folder(job: _NamedJob) -> str:
    *parts, last = job.name.split("/")
    folder = PurePosixPath(job.model).parent.name
    if last != _UNNAMED or PurePosixPath(job.model).name != files.UNNAMED or folder in ("", ".."):
        return job.name
    return "/".join(parts if folder in parts[-1:] else [*parts, folder])
