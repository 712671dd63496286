"""Reports to render, and snapshot files to compare with."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from npuconv.schemas.report import FindingInfo, Report, Summary
from report.factory import EVIL, finding, make_clean, make_report, make_summary

ASSETS = re.compile(r"<(style|script)>.*?</\1>", re.DOTALL)
SNAPSHOTS = Path(__file__).parent.parent / "snapshots" / "report"


@pytest.fixture
def report() -> Report:
    """A refused report with every section filled."""
    return make_report()


@pytest.fixture
def clean() -> Report:
    """A report without findings."""
    return make_clean()


@pytest.fixture
def make() -> Callable[..., Report]:
    """Make a report; keyword arguments replace its parts."""
    return make_report


@pytest.fixture
def summary() -> Callable[..., Summary]:
    """Make a summary; keyword arguments replace its parts."""
    return make_summary


@pytest.fixture
def one() -> Callable[..., FindingInfo]:
    """Make a finding; keyword arguments replace its parts."""
    return finding


@pytest.fixture
def evil() -> tuple[str, ...]:
    """Names that try to break out of a format."""
    return EVIL


@pytest.fixture
def snapshot() -> Callable[[str, str], None]:
    """Compare a text with a file; NPUCONV_UPDATE_SNAPSHOTS=1 writes the file instead.

    Script and style of a page are files of the templates, and left out.
    """

    def check(name: str, text: str) -> None:
        path = SNAPSHOTS / name
        if path.suffix == ".html":
            text = ASSETS.sub(r"<\1></\1>", text)
        if os.environ.get("NPUCONV_UPDATE_SNAPSHOTS") == "1":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        assert path.read_bytes().decode() == text

    return check
