"""A file appears whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from npuconv import files
from npuconv.errors import OutputError


def refused(path, data=b"new"):
    """The one line a destination is refused with."""
    with pytest.raises(OutputError) as caught:
        files.write(path, data)
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(str(path))
    return str(caught.value)


@pytest.mark.parametrize(("data", "content"), [(b"\0\xff", b"\0\xff"), ("ü\n", b"\xc3\xbc\n")])
def test_write(tmp_path, data, content):
    """Bytes are written as they are, text as UTF-8; nothing else is left."""
    files.write(tmp_path / "f", data)
    assert (tmp_path / "f").read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_an_old_file_is_replaced(tmp_path):
    """A shorter new content leaves nothing of a longer old one."""
    path = tmp_path / "f"
    path.write_bytes(b"old" * 100)
    files.write(str(path), "new")
    assert path.read_bytes() == b"new"


def test_a_relative_path(tmp_path, monkeypatch):
    """A bare name is written into the present folder."""
    monkeypatch.chdir(tmp_path)
    files.write("f", b"new")
    assert (tmp_path / "f").read_bytes() == b"new"


def test_a_directory(tmp_path):
    """A folder is no file name."""
    assert "is a directory; give a file name" in refused(tmp_path)


def test_a_missing_folder(tmp_path):
    """Folders are not made up."""
    assert "'{}' does not exist".format(tmp_path / "no") in refused(tmp_path / "no" / "f")


def test_a_folder_that_is_a_file(tmp_path):
    """Neither is a file a folder."""
    (tmp_path / "file").write_bytes(b"")
    assert "does not exist" in refused(tmp_path / "file" / "f")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(tmp_path):
    """A folder without the right to write is named before any work is done."""
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert "is not writable" in refused(tmp_path / "f")
    finally:
        tmp_path.chmod(stat.S_IRWXU)


def test_the_system_refuses(tmp_path):
    """A failure half way leaves no part of the file, and says what the system says."""
    assert "cannot be written: File name too long" in refused(tmp_path / ("n" * 300))
    assert not list(tmp_path.iterdir())


def test_no_part_is_left_when_the_last_step_fails(tmp_path, monkeypatch):
    """Old content stays, and the part beside it goes."""
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def fails(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fails)
    assert "No space left on device" in refused(path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_no_part_is_left_when_interrupted(tmp_path, monkeypatch):
    """Ctrl-C in the middle is passed on and leaves nothing either."""

    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write(tmp_path / "f", b"new")
    assert not list(tmp_path.iterdir())


def test_not_writable(tmp_path, monkeypatch):
    """The system's word on the right to write is believed."""
    monkeypatch.setattr(os, "access", lambda *_args: False)
    assert "is not writable" in refused(tmp_path / "f")


def test_what_was_written_is_noted(tmp_path):
    """Each file once, in order, and only what is complete."""
    with files.record_written() as found:
        for name in ("a", "b", "a"):
            files.write(tmp_path / name, b"")
        refused(tmp_path / "none" / "c")
    files.write(tmp_path / "d", b"")
    assert found == [tmp_path / "a", tmp_path / "b"]


def names(folder):
    """Return the names in a folder."""
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    """Every test is a new process as far as leftovers go."""
    monkeypatch.setattr(files, "_swept", set())


def gone():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_process_left_is_removed(tmp_path):
    """The part of a process that is gone goes; others stay, and so does what only looks alike."""
    kept = [f".f.0.{os.getpid()}.part", ".f.part", "f.1.part"]
    for name in (f".f.{gone()}.part", f".other.3.{gone()}.part", *kept):
        (tmp_path / name).write_bytes(b"half")
    files.write(tmp_path / "f", b"new")
    assert names(tmp_path) == sorted([*kept, "f"])


def test_parts_of_a_process_of_the_same_number(tmp_path):
    """Process numbers repeat in containers; files left by one are in nobody's way."""
    script = (
        "import os, pathlib, sys; from npuconv import files\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "for number in range(3):\n"
        "    (folder / f'.f.{number}.{os.getpid()}.part').write_bytes(b'half')\n"
        "files.write(folder / 'f', b'new')"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True)
    assert (tmp_path / "f").read_bytes() == b"new"
    assert len(names(tmp_path)) == 4


def test_a_part_that_is_held_stays(tmp_path):
    """Its process may be in another container, where our process numbers mean nothing."""
    fcntl = pytest.importorskip("fcntl")
    part = tmp_path / f".f.{gone()}.part"
    with part.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        files.write(tmp_path / "f", b"new")
        assert part.exists()


def test_buffers_one_after_the_other(tmp_path):
    """Buffers are not joined in memory first."""
    files.write(tmp_path / "f", (bytes([k]) * k for k in range(4)))
    assert (tmp_path / "f").read_bytes() == b"\1\2\2\3\3\3"


def test_together(tmp_path):
    """All at the end; what is written together inside belongs to it."""
    seen = []
    with files.record_written() as found, files.together():
        files.write(tmp_path / "a", b"1")
        with files.together():
            files.write(tmp_path / "b", b"2")
            files.afterwards(lambda: seen.append(names(tmp_path)))
        assert not (tmp_path / "a").exists()
        assert not (tmp_path / "b").exists()
        assert not found
    assert seen == [["a", "b"]]
    assert found == [tmp_path / "a", tmp_path / "b"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_together_or_not_at_all(tmp_path, error):
    """A failure on the way leaves the old files, and no part."""
    (tmp_path / "a").write_bytes(b"old")

    def some():
        with files.together():
            files.write(tmp_path / "a", b"new")
            raise error

    with pytest.raises(error):
        some()
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_permissions_are_kept(tmp_path):
    """A file that only its owner may read stays one."""
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o600)
    files.write(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_followed(tmp_path):
    """The file behind a link gets the new content."""
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/f")
    files.write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "there") == ["f"]


def test_a_device_stays_one():
    """``-o /dev/null`` throws the result away, not the device."""
    files.write("/dev/null", b"new")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_long_name(tmp_path):
    """Any name that the system takes is taken."""
    name = "n" * 255
    files.write(tmp_path / name, b"new")
    assert names(tmp_path) == [name]


def test_the_disk_is_full(tmp_path):
    """Here: no file may grow beyond a limit, which the system says in the same way."""
    path = tmp_path / "f"
    path.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        assert "File too large" in refused(path, b"new" * 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert names(tmp_path) == ["f"]
    assert path.read_bytes() == b"old"


def test_many_write_the_same(tmp_path):
    """Threads that write the same two files: both are of the same one in the end."""

    def work(number):
        for _ in range(20):
            with files.together():
                for name in "ab":
                    files.write(tmp_path / name, bytes([number]) * 1000 * (number + 1))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(tmp_path) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
