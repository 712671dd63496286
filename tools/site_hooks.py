"""Makes the site from the same pages that people read in the repository.

The README is its first page. Links to files that are not documentation, such as
configurations, have no page to lead to and become names.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the README as the first page."""
    text = (ROOT / "README.md").read_text("utf-8")
    files.append(File.generated(config, "index.md", content=inside(text, ".")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links that leave the documentation into names."""
    if page.file.src_uri == "index.md":
        return markdown
    return inside(markdown, posixpath.join("docs", posixpath.dirname(page.file.src_uri)))


def inside(text: str, folder: str) -> str:
    """The text of a page with only those links that lead to other pages of the site.

    Args:
        text: text of the page.
        folder: folder of the page in the repository.
    """

    def led(found: re.Match[str]) -> str:
        name, path, anchor = found[1], found[2], found[3] or ""
        target = posixpath.normpath(posixpath.join(folder, path))
        if not target.startswith("docs/"):
            return name
        start = folder if folder.startswith("docs") else "docs"
        return f"[{name}]({posixpath.relpath(target, start)}{anchor})"

    return _LINK.sub(led, text)
