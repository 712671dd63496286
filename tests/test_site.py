"""The site of the documentation: every page, no dead link, nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md"))


def listed(part: Any) -> list[str]:
    """The pages that a part of the navigation names."""
    if isinstance(part, str):
        return [part]
    parts = part.values() if isinstance(part, dict) else part
    return [page for one in parts for page in listed(one)]


def test_every_page_is_in_the_navigation():
    """A page that nobody can find is none."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert sorted(listed(config["nav"])) == sorted(["index.md", *PAGES])


def test_what_the_site_adds_is_there():
    """Its style, and what makes the search work on the disk; nothing from elsewhere."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert "offline" in config["plugins"]
    own = [*config["extra"]["polyfills"], *config["extra_css"]]
    assert any("iframe-worker" in path for path in own)  # else offline names one on a server
    assert [path for path in own if not (ROOT / "docs" / path).is_file()] == []


@pytest.mark.e2e
def test_the_site_is_built(tmp_path: Path):
    """Strictly: mkdocs takes no link that leads nowhere. No page asks another host."""
    pytest.importorskip("mkdocs", reason="make site installs it")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        build,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rules = (tmp_path / "reference/rules.html").read_text("utf-8")
    assert 'id="shp001-rank-unsupported"' in rules
    assert "An example that it finds" in rules
    assert (tmp_path / "search/search_index.js").is_file()  # the search of pages on the disk
    assert "site/iframe-worker.js" in (tmp_path / "tutorial.html").read_text("utf-8")
    for page in tmp_path.rglob("*.html"):
        text = page.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"?(https?:[^\s\">]+)", text)
        loaded += re.findall(
            r"<link[^>]* rel=\"?stylesheet\"?[^>]* href=\"?(https?:[^\s\">]+)", text
        )
        assert loaded == []


def test_links_that_leave_the_documentation_are_names(monkeypatch: pytest.MonkeyPatch):
    """Links of the README lead to the pages."""
    pytest.importorskip("mkdocs", reason="make site installs it")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from site_hooks import inside

    text = "[a](docs/ci.md#scripts) [b](samples/README.md) [c](https://x.org) [d](#e)"
    assert inside(text, ".") == "[a](ci.md#scripts) b [c](https://x.org) [d](#e)"
    text = "[a](targets.md) [b](../configs/check.yaml) [c](reference/rules.md)"
    assert inside(text, "docs") == "[a](targets.md) b [c](reference/rules.md)"
    assert inside("[a](../ci.md) [b](rules.md)", "docs/reference") == "[a](../ci.md) [b](rules.md)"
