"""Questions to a tool in a process of its own: verdicts, crashes, time limits, junk."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from npuconv.errors import UsageError
from npuconv.vendors import tool
from npuconv.vendors.tool import HOME, VENDORS, VendorProcess, find_python, named
from support.vendor_tools import ACCEPTS, COPIES, REFUSES, environment

QNN = VENDORS["qnn"]
FEEDS = [{"x": np.float32([[1, 2]])}, {"x": np.float32([[3, 4]])}]


def reply(folder, body, *, seconds=60, **keys):
    """Ask a tool whose ``ask`` has this body."""
    with VendorProcess(QNN, environment(folder, body), seconds=seconds) as process:
        return process.ask(b"model", ["x"], FEEDS, outputs=1, **keys)


@pytest.mark.e2e
def test_outputs_of_all_samples(tmp_path):
    done = reply(tmp_path, COPIES)
    assert (done.verdict, done.answer.others) == ("accepted", "NPU")
    assert [values[0].tolist() for values in done.outputs] == [[[1, 2]], [[3, 4]]]


@pytest.mark.e2e
def test_a_tool_gets_the_file_and_the_keys(tmp_path):
    body = (
        "    assert Path(question['model']).read_bytes() == b'model'\n"
        "    return {'accepted': True, 'message': question['chip'] + str(question['seconds'])}, 0\n"
    )
    python = environment(tmp_path, body)
    with VendorProcess(QNN, python, chip="v73", seconds=9) as process:
        assert process.ask(b"model").answer.message == "v739"
        assert process.version == "1.2.3"


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
        ("    raise RuntimeError('no licence')\n", "exit code 3: RuntimeError: no licence"),
        ("    time.sleep(60)\n", "took more than 1 s and was ended"),
        # A tool that ignores the alarm is ended from outside.
        (
            "    signal.signal(signal.SIGALRM, signal.SIG_IGN)\n    time.sleep(60)\n",
            "took more than 1 s and was ended",
        ),
        ("    os.kill(os.getppid(), signal.SIGKILL)\n    time.sleep(60)\n", "its process ended"),
        ("    return 'yes', None\n", "cannot be read"),
    ],
)
def test_a_tool_that_fails(tmp_path, monkeypatch, body, message):
    monkeypatch.setattr(tool, "_GRACE_SECONDS", 1)
    done = reply(tmp_path, body, seconds=1 if "more than 1 s" in message else 60)
    assert done.verdict == "failed"
    assert message in done.answer.message


@pytest.mark.e2e
def test_the_next_question_after_a_crash(tmp_path):
    """A fork crashes alone; a process that has died starts again."""
    body = (
        "    if question.get('deadly'): os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)\n"
        "    if question.get('faulty'): os.abort()\n" + ACCEPTS
    )
    with VendorProcess(QNN, environment(tmp_path, body)) as process:
        keys = ({"faulty": True}, {}, {"deadly": True}, {})
        verdicts = [process.ask(b"", **key).verdict for key in keys]
    assert verdicts == ["failed", "accepted", "failed", "accepted"]


@pytest.mark.e2e
def test_an_environment_without_the_tool():
    """The last line of Python says what is missing."""
    with (
        VendorProcess(QNN, Path(sys.executable)) as process,
        pytest.raises(UsageError, match="No module named 'onnxruntime_qnn'") as caught,
    ):
        process.ask(b"")
    assert "docs/verify.md" in caught.value.hint


def test_an_interpreter_that_is_none(tmp_path):
    (tmp_path / "python").write_text("no program")
    with (
        VendorProcess(QNN, tmp_path / "python") as process,
        pytest.raises(UsageError, match=r"--vendor qnn: .*python"),
    ):
        process.ask(b"")


def test_nothing_is_left(tmp_path, monkeypatch):
    """The folders of questions go with the process."""
    monkeypatch.setattr(tool.tempfile, "tempdir", str(tmp_path))
    with VendorProcess(QNN, tmp_path):
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_places_of_an_environment(tmp_path, monkeypatch):
    """The given path; the folder of all environments; npuconv's own; beside an executable."""
    monkeypatch.setenv(HOME, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UsageError, match="not installed") as caught:
        find_python(QNN)
    assert "--vendor-python" in caught.value.hint
    beside = tmp_path / "bin" / "python"
    beside.parent.mkdir()
    beside.touch()
    (beside.parent / "qnn").touch(0o755)
    assert find_python(QNN) == beside
    monkeypatch.setattr(tool.importlib.util, "find_spec", lambda _: "there")
    assert find_python(QNN) == Path(sys.executable)
    python = tmp_path / "qnn" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert find_python(QNN) == python
    assert find_python(QNN, beside) == beside
    with pytest.raises(UsageError, match="absent does not exist"):
        find_python(QNN, tmp_path / "absent")


def test_names_and_chips():
    assert named("rknn:rk3566") == (VENDORS["rknn"], "rk3566")
    with pytest.raises(UsageError, match="unknown tool 'hexagon'") as caught:
        named("hexagon")
    assert "qnn, rknn" in caught.value.hint
