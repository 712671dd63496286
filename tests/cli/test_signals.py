"""Tests of what signals end a command with."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
# A command that a signal meets in the middle of its work.
SCRIPT = """
import os, signal, sys, time
import click
from npuconv import cli
signal.signal(signal.SIGINT, signal.default_int_handler)
work = lambda: (os.kill(os.getpid(), {number}), time.sleep(60))
cli.LazyGroup.get_command = lambda *_: click.Command("explain", callback=work)
sys.argv = ["npuconv", "explain"]
cli.main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.skipif(os.name != "posix", reason="other systems have no such signals")
def test_exit_code(folder, number, code):
    """As shells have it, and one line."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(number=int(number))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.strip() == "npuconv: error: interrupted; nothing was written"


@pytest.mark.parametrize("page", ["ci.md", "report.md"])
def test_the_pages_have_them(page):
    """Where exit codes are listed."""
    text = (DOCS / page).read_text("utf-8")
    assert re.search(r"^\| 130, 143 \| .*SIGINT.*SIGTERM", text, re.MULTILINE)
