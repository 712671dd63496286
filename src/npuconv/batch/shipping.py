"""Files that a job reads, as bytes to send to a machine without access to them.

Paths stay as they are in the jobs file, so that a report is the same on every machine;
absolute paths can therefore not be shipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from npuconv.batch.digests import NAMES_A_FILE, data_files, external_files
from npuconv.batch.job import Job
from npuconv.errors import UsageError
from npuconv.target import builtin_names

Parcel = dict[str, bytes]  # path relative to the root of the jobs -> content
PARTS = ".npuconv-calibration"  # folder of what blocks of a calibration have made


def pack(paths: Iterable[str], root: Path) -> Parcel:
    """Files as they are now; what cannot be read is left out, the job will miss it.

    Raises:
        UsageError: a path is absolute.
    """
    found: Parcel = {}
    for path in paths:
        if Path(path).is_absolute():
            raise UsageError(
                f"{path}: an absolute path means another file on another machine",
                hint="write it relative to the jobs file, or leave out --ship",
            )
        if (root / path).is_file():
            found[path] = (root / path).read_bytes()
    return found


def needs(job: Job, root: Path) -> list[list[str]]:
    """The files of a job: model, target, and each set of files that its options name."""
    model = root / job.model
    sets = [[job.model, *_beside(job.model, model, external_files(model))]]
    if job.options.target not in builtin_names():
        sets.append([job.options.target])
    for key in NAMES_A_FILE:
        name = getattr(job.options, key, None)
        if name:
            sets.append(_beside(name, root / name, data_files(root / name)))
    return sets


def made_parts(root: Path) -> Parcel:
    """Return the files made by blocks of a calibration, for the worker that does the job."""
    found = sorted((root / PARTS).glob("*.npz"))
    return {f"{PARTS}/{path.name}": path.read_bytes() for path in found}


def unpack(parcels: Iterable[Mapping[str, bytes]], folder: Path) -> Path:
    """Lay files out below a folder; ``..`` in their paths does not leave it.

    Returns:
        What their paths are relative to.
    """
    whole = {path: data for parcel in parcels for path, data in parcel.items()}
    depth = max((PurePosixPath(path).parts.count("..") for path in whole), default=0)
    root = folder.joinpath(*["root"] * (depth + 1))
    root.mkdir(parents=True, exist_ok=True)
    for path, data in whole.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return root


def _beside(name: str, path: Path, files: Iterable[Path]) -> list[str]:
    """Files that lie beside or in something that is named, named in the same way."""
    given = PurePosixPath(Path(name).as_posix())
    return [_named(given, path, file) for file in files]


def _named(given: PurePosixPath, path: Path, file: Path) -> str:
    if file == path:
        return str(given)
    if path in file.parents:
        return str(given / file.relative_to(path).as_posix())
    inside = path.parent in file.parents
    return str(given.parent / file.relative_to(path.parent).as_posix()) if inside else str(file)
