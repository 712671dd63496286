"""A file appears whole or not at all."""

from __future__ import annotations

import os
import stat
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
    """What the system says of the right to write is believed."""
    monkeypatch.setattr(os, "access", lambda *_args: False)
    assert "is not writable" in refused(tmp_path / "f")


def test_what_was_written_is_noted(tmp_path):
    """Each file once, in order, and only what is complete."""
    with files.noted() as found:
        for name in ("a", "b", "a"):
            files.write(tmp_path / name, b"")
        refused(tmp_path / "none" / "c")
    files.write(tmp_path / "d", b"")
    assert found == [tmp_path / "a", tmp_path / "b"]
