"""Questions to a tool in a process of its own: verdicts, crashes, time limits, junk."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from npuconv.errors import UsageError
from npuconv.vendors import tool
from npuconv.vendors.tool import HOME, VENDORS, Question, VendorTool
from support.vendor_tools import ACCEPTS, COPIES, REFUSES, environment

QNN = VENDORS["qnn"]
FEEDS = [{"x": np.float32([[1, 2]])}, {"x": np.float32([[3, 4]])}]


def reply(folder, body, *, chip="", seconds=60):
    """Ask a tool whose ``ask`` has this body."""
    asked = VendorTool(QNN, environment(folder, body), chip, seconds)
    version, (answer,) = asked.ask([Question(b"model", ["x"], FEEDS, 1)])
    assert version == "1.2.3"
    return answer


@pytest.mark.e2e
def test_outputs_of_all_samples(tmp_path):
    done = reply(tmp_path, COPIES)
    assert (done.verdict, done.answer.default_device) == ("accepted", "NPU")
    assert [values[0].tolist() for values in done.outputs] == [[[1, 2]], [[3, 4]]]


@pytest.mark.e2e
def test_a_tool_gets_the_file_and_the_keys(tmp_path):
    body = (
        "    assert Path(question['model']).read_bytes() == b'model'\n"
        "    return {'accepted': True, 'message': question['chip'] + str(question['seconds'])}, 0\n"
    )
    done = reply(tmp_path, body, chip="v73", seconds=9)
    assert done.answer.message == "v739"


@pytest.mark.e2e
def test_a_refusal_has_its_nodes(tmp_path):
    done = reply(tmp_path, REFUSES)
    assert (done.verdict, done.outputs) == ("refused", [])
    assert done.answer.layers == (("conv_token_1", "Conv", "CPU", "kernel is too large"),)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    os.kill(os.getpid(), signal.SIGSEGV)\n", "crashed: signal SIGSEGV"),
        ("    print('last words')\n    os._exit(7)\n", "exit code 7"),
        ("    raise RuntimeError('[12:34:56.789] bug')\n", "exit code 3: RuntimeError: bug"),
        ("    raise RuntimeError('no licence')\n", "exit code 3: RuntimeError: no licence"),
        ("    time.sleep(60)\n", "took more than 1 s and was ended"),
        ("    os.kill(os.getppid(), signal.SIGKILL)\n    time.sleep(60)\n", "its process ended"),
        ("    return 'yes', None\n", "cannot be read"),
    ],
)
def test_a_tool_that_fails(tmp_path, body, message):
    done = reply(tmp_path, body, seconds=1 if "more than 1 s" in message else 60)
    assert done.verdict == "failed"
    assert message in done.answer.message


@pytest.mark.e2e
def test_the_next_question_after_a_crash(tmp_path):
    """A fork crashes alone; after a process that has died there are no answers."""
    body = (
        "    if question['outputs'] == 1: os.abort()\n"
        "    if question['outputs'] == 2: os.kill(os.getppid(), signal.SIGKILL)\n" + ACCEPTS
    )
    _, replies = VendorTool(QNN, environment(tmp_path, body)).ask(
        [Question(b"", outputs=number) for number in (1, 0, 2, 0)]
    )
    verdicts = [done.verdict for done in replies]
    assert verdicts == ["failed", "accepted", "failed", "failed"]


@pytest.mark.e2e
def test_an_environment_without_the_tool():
    """The last line of Python says what is missing."""
    with pytest.raises(UsageError, match="No module named 'onnxruntime_qnn'") as caught:
        VendorTool(QNN, Path(sys.executable)).ask([])
    assert "docs/verify.md" in caught.value.hint


def test_an_interpreter_that_is_none(tmp_path):
    (tmp_path / "python").write_text("no program")
    with pytest.raises(UsageError, match=r"--vendor qnn: .*python: "):
        VendorTool(QNN, tmp_path / "python").ask([])


@pytest.mark.e2e
def test_nothing_is_left(tmp_path, monkeypatch):
    """The folders of questions go, and so does a fork that outlives the process."""
    monkeypatch.setattr(tool, "_START_SECONDS", 0)
    monkeypatch.setattr(tool.tempfile, "tempdir", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 60 & echo $! > ../../child; sleep 60\n")
    python.chmod(0o755)
    with pytest.raises(UsageError, match="does not start within 0 s"):
        VendorTool(QNN, python).ask([])
    assert list((tmp_path / "home").iterdir()) == []


def test_places_of_an_environment(tmp_path, monkeypatch):
    """The given path; the folder of all environments; npuconv's own; beside an executable."""
    monkeypatch.setenv(HOME, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UsageError, match="not installed") as caught:
        VendorTool.find("qnn")
    assert "--vendor-python" in caught.value.hint
    beside = tmp_path / "bin" / "python"
    beside.parent.mkdir()
    beside.touch()
    (beside.parent / "qnn").touch(0o755)
    assert VendorTool.find("qnn").python == beside
    monkeypatch.setattr(tool.importlib.util, "find_spec", lambda _: "there")
    assert VendorTool.find("qnn").python == Path(sys.executable)
    python = tmp_path / "qnn" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert VendorTool.find("qnn").python == python
    assert VendorTool.find("qnn", beside).python == beside
    with pytest.raises(UsageError, match="there is no file "):
        VendorTool.find("qnn", tmp_path / "absent")


def test_names_and_chips():
    python = Path(sys.executable)
    assert VendorTool.find("rknn:rk3566", python) == VendorTool(VENDORS["rknn"], python, "rk3566")
    with pytest.raises(UsageError, match="unknown tool 'hexagon'") as caught:
        VendorTool.find("hexagon")
    assert "qnn, rknn" in caught.value.hint
