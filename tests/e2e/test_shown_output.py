"""Output shown in the pages against the commands, each run in a folder of its own."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from npuconv.cli import execute
from support.jobs import in_process  # noqa: F401 a fixture

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"Save (?:this|it) as `([^`]+)`:\s*$")
MEASURING = re.compile(r"npuconv (convert|batch)|score")
DIGEST = re.compile(r"sha256 [0-9a-f]{12}")
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
GUIDES = (
    "accuracy", "batch", "ci", "report", "split", "targets", "tutorial", "verify",
)  # fmt: skip
PAGES = ("README.md", *(f"docs/{name}.md" for name in GUIDES))
UPDATE = "NPUCONV_UPDATE_SNAPSHOTS"  # set: pages get what the commands print now


def parts(page: str) -> Iterator[tuple[str, str, str]]:
    """Files to save, and commands with the output that is shown, in their order."""
    text, end = (ROOT / page).read_text("utf-8"), 0
    for found in BLOCK.finditer(text):
        named = SAVED.search(text[end : found.start()])
        end = found.end()
        if named:
            yield "file", named[1], found[2]
        elif not found[1]:
            for one in re.split(r"^\$ ", found[2], flags=re.MULTILINE)[1:]:
                yield ("command", *split(one))


def split(text: str) -> tuple[str, str]:
    """A command, which may go over several lines, and what follows it."""
    found = re.match(r"(?:[^\n]*\\\n)*[^\n]*\n", text)
    assert found is not None, text
    return found[0], text[found.end() :]


def output(head: str) -> str:
    """Run a command in the current folder and return what it prints.

    npuconv runs in this process: starting it takes most of the time of a command. Text after a
    pipe, and every other command, runs in a shell.
    """
    line, _, filters = re.sub(r"\\\n\s*", "", head.strip()).partition(" | ")
    found = re.fullmatch(
        r"npuconv ((?:'[^']*'|[^';&><$`*])*?)( 2>&1| 2> \S+| > \S+)?(; echo .*\$\?\")?", line
    )
    if found is None:
        return shell(head)
    arguments, redirection, echo = found[1], (found[2] or "").split(), found[3]
    out, err = io.StringIO(), io.StringIO()
    printed_errors = out if redirection == ["2>&1"] or not (redirection or filters) else err
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(printed_errors):
        code = execute(shlex.split(arguments))
    text, beside = out.getvalue(), err.getvalue()
    if redirection[:1] == ["2>"]:
        Path(redirection[1]).write_text(beside, "utf-8")
        beside = ""
    if redirection[:1] == [">"]:
        Path(redirection[1]).write_text(text, "utf-8")
        text = ""
    if echo:
        text += f"exit code {code}\n"
    return beside + (shell(filters, text) if filters else text)


def shell(command: str, given: str = "") -> str:
    """Run a command in a shell and return what it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command],
        input=given,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    ).stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the files that the commands name, in a folder where they harm nothing; change to it."""
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    shutil.copytree(ROOT / "configs", tmp_path / "configs")  # results lie beside them
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def blanks(text: str) -> str:
    """Strip blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def words(text: str) -> list[str]:
    """Return words without numbers of accuracy, which every better way to quantize changes."""
    return NUMBER.sub("#", text).split()


def near(shown: str, printed: str) -> bool:
    """Return whether lines agree, whatever their order; digests do not count, numbers to 2 %.

    Processors round sums of floats differently, and so the last bits of scales.
    """
    one, two = (sorted(DIGEST.sub("sha256", blanks(text)).split("\n")) for text in (shown, printed))
    pairs = zip(NUMBER.finditer("\n".join(one)), NUMBER.finditer("\n".join(two)), strict=False)
    close = all(math.isclose(float(a[0]), float(b[0]), rel_tol=0.02) for a, b in pairs)
    return words("\n".join(one)) == words("\n".join(two)) and close


def same(head: str, shown: str, printed: str) -> bool:
    """Return whether a command prints what is shown."""
    if MEASURING.search(head):  # their order depends on the numbers
        return sorted({*words(shown)}) == sorted({*words(printed)})
    if "npuconv verify" in head:
        return near(shown, printed)
    return blanks(shown) == blanks(printed)


def test_numbers_of_other_processors():
    """A digest and the last digit of a number may differ, and no more."""
    shown = "int8 q.onnx (sha256 6a29dd639042)\nconv1 33.0 dB 0.9998"
    assert near(shown, "int8 q.onnx (sha256 bd961124ec99)\nconv1 33.1 dB 0.9998")
    assert not near(shown, "int8 q.onnx (sha256 6a29dd639042)\nconv1 35.0 dB 0.9998")
    assert not near(shown, "int8 q.onnx (sha256 6a29dd639042)\nconv2 33.0 dB 0.9998")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("in_process")  # of a batch: its processes are tested in tests/batch
def test_shown_output(page: str, folder: Path):
    """Pages show what their commands print."""
    wrong, text = [], (ROOT / page).read_text("utf-8")
    for kind, head, body in parts(page):
        if kind == "file":
            (folder / head).write_text(body)
            continue
        found = output(head)
        if not same(head, body, found):
            wrong.append(head)
        printed = blanks(found) + "\n" if found.strip() else ""
        text = text.replace(f"$ {head}{body}", f"$ {head}{printed}", 1)
    if os.environ.get(UPDATE):
        (ROOT / page).write_text(text, "utf-8")
    assert not wrong, f"update with {UPDATE}=1"


# Pages that show how to add a file: where their first block goes, and which is its test.
WORKED = {
    "writing_rules": ("rules/checks/weights_not_finite.py", 2),
    "writing_passes": ("legalize/canonicalize/merge_transposes.py", 1),
}


def test_every_page_is_run():
    """A page with commands and what they print is among those above."""
    shown = {
        path.stem for path in (ROOT / "docs").glob("*.md") if "\n$ " in path.read_text("utf-8")
    }
    assert shown == {*GUIDES, *WORKED}


@pytest.mark.parametrize("name", WORKED)
def test_worked_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The code of a page runs in a copy: its test passes, ``explain`` prints what is shown."""
    place, test = WORKED[name]
    text = (ROOT / f"docs/{name}.md").read_text("utf-8")
    blocks = [body for kind, body in BLOCK.findall(text) if kind == "python"]
    shutil.copytree(ROOT / "src/npuconv", tmp_path / "src/npuconv")
    shutil.copytree(ROOT / "tests/support", tmp_path / "tests/support")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    tested = (tmp_path / "tests" / place).with_name(f"test_{Path(place).name}")
    tested.parent.mkdir(parents=True)
    tested.write_text(blocks[test], "utf-8")
    (tmp_path / "src/npuconv" / place).write_text(blocks[0], "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "src"))
    assert "ended 0" in shell(f"pytest -q -p no:cacheprovider {tested}; echo ended $?")
    found = re.search(r"^\$ (npuconv explain [^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert blanks(shell(found[1].replace("npuconv", "python -m npuconv", 1))) == blanks(found[2])
