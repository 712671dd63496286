"""Files that are written whole or not at all, mapped files, and temporary folders.

A file is written beside its destination, then renamed. A process may be killed at any moment,
and two may write the same file: a reader finds the old content or the new. A killed process
leaves a hidden ``.NAME.PID.part`` beside the destination, which the next process that writes
into the folder removes. Its temporary folders are removed as well.

Pages of a mapped file count as memory of the process once they were read, although the system
may take them back at any time. So that a whole model is never counted, the pages of all files
are released each time that ``MAX_MAPPED_BYTES`` have been read.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import mmap
import os
import re
import shutil
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from npuconv.errors import OutputError
from npuconv.records import dataclass, field

try:
    import fcntl
except ImportError:  # Windows, which refuses to remove open files by itself
    fcntl = None  # type: ignore[assignment]

_PART = re.compile(r"\..*\.(\d+)\.part", re.DOTALL)
MAX_NAME_BYTES = 180  # longest file name, so that a process number and .part can be added
MAX_MAPPED_BYTES = 64 * 2**20  # bytes read from mapped files before their pages are released
UNNAMED = "model.onnx"  # file name without information; its folder names the model
_TEMPORARY = "npuconv-weights"
_numbers = itertools.count()
_swept: set[Path] = set()  # folders whose unfinished files this process has removed
_written: ContextVar[list[Path] | None] = ContextVar("written", default=None)
_waiting: ContextVar[_Set | None] = ContextVar("waiting", default=None)
_mapped: weakref.WeakSet[MappedFile] = weakref.WeakSet()
_mapped_bytes = 0  # bytes read since the last release of the pages


@dataclass
class _Set:
    """Complete files that are not renamed yet."""

    parts: list[tuple[Path, Path]] = field(default_factory=list)  # temporary path, destination
    afterwards: list[Callable[[], None]] = field(default_factory=list)


@contextlib.contextmanager
def record_written() -> Iterator[list[Path]]:
    """Collect the files completed in this thread, in order, within a with statement."""
    paths: list[Path] = []
    token = _written.set(paths)
    try:
        yield paths
    finally:
        _written.reset(token)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Name the files written within a with statement at its end, all at once, or none.

    No other process can write a set of files into the same folder in between.

    Raises:
        OutputError: a file cannot be written; then none is.
    """
    if _waiting.get() is not None:  # part of a larger set
        yield
        return
    file_set = _Set()
    token = _waiting.set(file_set)
    try:
        yield
        _name(file_set)
    finally:
        _waiting.reset(token)
        for part, _ in file_set.parts:
            with contextlib.suppress(OSError):
                part.unlink()


def afterwards(action: Callable[[], None]) -> None:
    """Call a function once the files of the present set have their names."""
    file_set = _waiting.get()
    assert file_set is not None, "only inside together()"
    file_set.afterwards.append(action)


def write(path: str | Path, data: bytes | str | Iterable[Any]) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Args:
        path: destination; its folder must exist. A link is followed, permissions are kept.
        data: bytes, or text (UTF-8), or buffers one after the other.

    Raises:
        OutputError: the folder is missing or not writable, the disk is full, ...
    """
    check_writable(path)
    pieces: Iterable[Any] = (
        [data.encode()] if isinstance(data, str) else [data] if isinstance(data, bytes) else data
    )
    try:
        if is_special(Path(path)):  # a pipe or a device has no old content to protect
            with Path(path).open("wb") as stream:
                stream.writelines(pieces)
            return
        with together():
            file_set = _waiting.get()
            assert file_set is not None
            target = Path(os.path.realpath(path))
            if target.parent not in _swept:
                _swept.add(target.parent)
                sweep(target.parent)
            file_set.parts.append((_stage(target, pieces), Path(path)))
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None


def _stage(target: Path, pieces: Iterable[Any]) -> Path:
    """Write a complete file beside its destination; return its path."""
    stem = os.fsencode(target.name)
    short = target.name if len(stem) <= MAX_NAME_BYTES else hashlib.sha256(stem).hexdigest()[:32]
    # A process of the same number, in another container, may have left some of these.
    names = (f".{short}.{number}.{os.getpid()}.part" for number in _numbers)
    part = next(path for name in names if not os.path.lexists(path := target.with_name(name)))
    try:
        with part.open("xb") as stream:
            hold(stream)  # marks the file as being written
            stream.writelines(pieces)
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileNotFoundError):
            part.chmod(stat.S_IMODE(target.stat().st_mode))
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    return part


def _name(file_set: _Set) -> None:
    """Rename all files of a set, and write their folders to the disk."""
    targets = {path: Path(os.path.realpath(path)) for _, path in file_set.parts}
    with contextlib.ExitStack() as stack:
        folders = []
        for folder in sorted({target.parent for target in targets.values()}):
            with contextlib.suppress(OSError):  # a folder cannot be opened on every system
                folders.append(os.open(folder, os.O_RDONLY))
                stack.callback(os.close, folders[-1])
                if len(file_set.parts) > 1:
                    hold(folders[-1])  # until it is closed, also by the end of the process
        written = _written.get()
        for part, path in file_set.parts:
            try:
                part.replace(targets[path])
            except OSError as error:
                raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
            if written is not None and path not in written:
                written.append(path)
        for handle in folders:  # a new name is on the disk only when its folder is
            with contextlib.suppress(OSError):
                os.fsync(handle)
        for action in file_set.afterwards:
            action()


def hold(file: IO[bytes] | int, *, wait: bool = True) -> bool:
    """Lock a file; return whether this process has the lock, True if files cannot be locked."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def sweep(folder: Path) -> None:
    """Remove the unfinished files of killed processes."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _PART.fullmatch(entry.name)
            if match and not is_alive(int(match[1])):
                with contextlib.suppress(OSError), Path(entry).open("rb") as stream:
                    if hold(stream, wait=False):  # no process of another container writes it
                        Path(entry).unlink()


def is_alive(pid: int) -> bool:
    """Return whether a process has this number."""
    import psutil  # rarely needed

    return bool(psutil.pid_exists(pid))


def is_special(path: Path) -> bool:
    """Return whether a path is a pipe or a device, which may never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # not there, or no name of a file
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def make_folder(path: str | Path) -> Path:
    """Make a folder and its missing parents; return its path.

    Raises:
        OutputError: it cannot be made.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot be made: {error.strerror}") from None
    return folder


def check_writable(path: str | Path) -> None:
    """Refuse a destination before any work is done for it.

    Raises:
        OutputError: the folder does not exist or is not writable, or it is a directory.
    """
    target = Path(path)
    try:
        is_directory, home = target.is_dir(), target.parent.is_dir()
    except OSError as error:  # a folder above that may not be entered, a name too long
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
    if is_directory:
        raise OutputError(f"{path}: is a directory; give a file name")
    if not home:
        raise OutputError(f"{path}: the folder {str(target.parent)!r} does not exist")
    if not os.access(target.parent, os.W_OK) and not is_special(target):
        raise OutputError(f"{path}: the folder {str(target.parent)!r} is not writable")


class MappedFile(mmap.mmap):
    """A file to be read as memory, with its path."""

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> MappedFile:
        """Map a file."""
        with Path(path).open("rb") as stream:
            mapped = cls(stream.fileno(), 0, access=mmap.ACCESS_READ)
        mapped.path = Path(path).absolute()
        _mapped.add(mapped)
        return mapped


def count_mapped(size: int) -> None:
    """Count bytes that are about to be read from mapped files."""
    global _mapped_bytes
    _mapped_bytes += size
    if _mapped_bytes > MAX_MAPPED_BYTES:
        release_mapped()
        _mapped_bytes = size


def release_mapped() -> None:
    """Give the pages of all mapped files back to the system."""
    for mapped in list(_mapped):
        if hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_DONTNEED)


def temporary_folder(owner: object) -> Path:
    """Make a folder below TMPDIR; it is removed with its owner, or with the process.

    Raises:
        OSError: it cannot be made.
    """
    home = Path(tempfile.gettempdir())
    for old in sorted(home.glob(f"{_TEMPORARY}-*-*")):
        with contextlib.suppress(OSError, ValueError):
            _remove_if_orphaned(old)
    folder = Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}-{os.getpid()}-", dir=home))
    handle = os.open(folder, os.O_RDONLY)
    hold(handle)  # until the handle is closed, also by the end of the process
    weakref.finalize(owner, _remove, folder, handle)
    return folder


def _remove(folder: Path, handle: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(handle)


def _remove_if_orphaned(old: Path) -> None:
    if old.stat().st_uid != os.getuid() or is_alive(int(old.name.split("-")[2])):
        return
    handle = os.open(old, os.O_RDONLY)
    try:
        if hold(handle, wait=False):  # a process of another container may hold it
            shutil.rmtree(old, ignore_errors=True)
    finally:
        os.close(handle)
