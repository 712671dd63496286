"""HTML reports of real models, in a real browser: small, quick, and nothing is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import npuconv
from npuconv.report import render
from npuconv.schemas.report import Report
from report import chromium
from report.chromium import Chromium
from report.test_html_browser import CUT, WIDTHS
from support.real_models import MODELS, each, name_of, needs_models

NAMES = ("ppocrv4_det", "light_densenet121", "brainchop_gw_ae", "style_candy")
CHECKED = [path for path in MODELS if path.parent.name in NAMES]
pytestmark = [
    pytest.mark.e2e,
    needs_models,
    pytest.mark.skipif(not chromium.find(), reason="no Chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """One browser for all pages."""
    with chromium.started() as found:
        yield found


def look_at(browser: Chromium, report: Report, folder: Path) -> None:
    page = folder / "report.html"
    page.write_text(render(report, "html"), "utf-8")
    assert page.stat().st_size < 3_000_000
    for width, height in WIDTHS:
        browser.open(page, width=width, height=height)
        assert (browser.errors, browser.requests) == ([], [])
        assert browser.run("document.querySelectorAll('[data-ready]').length") == 1
        assert browser.run(CUT) == []


@pytest.mark.parametrize("path", each(*CHECKED), ids=name_of)
def test_checked(browser, tmp_path, path):
    """Models that can be converted, one that is refused, all with unknown limits."""
    look_at(browser, npuconv.check(path), tmp_path)


def test_converted(browser, tmp_path, conversions):
    """A conversion with accuracy, layers and ranges."""
    (path,) = (path for path in MODELS if path.parent.name == "yunet_n_320")
    look_at(browser, conversions.of(path).report, tmp_path)
