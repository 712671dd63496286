"""Tests of the lock of a folder: two batches, and locks of ended processes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

import npuconv
from batch.conftest import PATIENCE, has_ended
from npuconv.batch.journal import LOCK_NAME, directory_lock
from npuconv.errors import OutputError

HOLD = """
import sys, time
from pathlib import Path
from npuconv.batch.journal import directory_lock
with directory_lock(Path("build"), "build"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(folder):
    """Lock ``build`` in another process."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()
    assert folder


def left(**changes: object) -> None:
    """Write the lock of this process with changes."""
    me = psutil.Process()
    said = {"host": socket.gethostname(), "pid": me.pid, "began": me.create_time(), **changes}
    Path("build").mkdir(exist_ok=True)
    (Path("build") / LOCK_NAME).write_text(json.dumps(said))


def there() -> list[str]:
    """Return the names of the files in ``build``."""
    return [path.name for path in Path("build").iterdir()]


def taken() -> bool:
    """Return whether the folder is locked."""
    try:
        with directory_lock(Path("build"), "build"):
            return False
    except OutputError:
        return True


@pytest.mark.usefixtures("in_process")
def test_the_second_is_reported(holder, write):
    """The error names the process and a remedy; nothing is run, and the lock is released."""
    path = write("version: 1\njobs: [{model: '*.onnx', format: float}]\n")
    Path("m.onnx").write_bytes(b"no model")
    with pytest.raises(OutputError) as raised:
        npuconv.run_batch(path)
    assert str(raised.value) == (
        f"build: another npuconv batch writes there (process {holder.pid}) "
        "(wait until it has ended, or give another output)"
    )
    assert there() == [LOCK_NAME]
    holder.communicate("", timeout=300)
    assert npuconv.run_batch(path).jobs[0].status == "failed"
    assert LOCK_NAME not in there()


def test_a_dead_one(holder):
    """The lock of a killed process is taken over."""
    assert taken()
    holder.send_signal(signal.SIGKILL)
    assert has_ended(holder.pid)  # also while nobody has waited for it
    assert (Path("build") / LOCK_NAME).is_file()
    assert not taken()
    assert there() == []


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({}, True),
        ({"began": 1.0}, False),  # another process has its number now
        ({"pid": 2**22 + 1}, False),  # beyond what there is
        ({"host": "elsewhere"}, True),
        ({"host": "elsewhere", "pid": 2**22 + 1}, True),  # nobody can tell from here
        ({"pid": "no number"}, False),
        ({"began": None}, False),
    ],
)
def test_who_has_it(folder, changes, held):
    """A process is identified by host, number and start time."""
    left(**changes)
    assert taken() is held
    assert (folder / "build" / LOCK_NAME).exists() is held


def test_another_machine(folder):
    """The error names the machine, and the file to delete."""
    left(host="elsewhere", pid=7)
    with pytest.raises(OutputError, match=rf"7 on elsewhere\).*delete {LOCK_NAME} there"):
        directory_lock(folder / "build", "build").__enter__()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_half_a_file(folder, text):
    """An incomplete lock file counts as none."""
    (folder / "build").mkdir()
    (folder / "build" / LOCK_NAME).write_text(text)
    assert not taken()


def test_only_one_takes_over(folder):
    """One at a time of many processes takes an old lock over."""
    left(began=1.0)
    found = []
    tried = threading.Barrier(8)  # whoever has the lock keeps it until all others have tried

    def come():
        try:
            with directory_lock(folder / "build", "build"):
                found.append("inside")
                tried.wait(PATIENCE)
        except OutputError:
            found.append("refused")
            tried.wait(PATIENCE)

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["inside", *["refused"] * 7]
    assert there() == []


def test_an_error_lets_go(folder):
    """The lock is released on an error and on an interrupt."""

    def fail():
        with directory_lock(folder / "build", "build"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not taken()
