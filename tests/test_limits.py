"""Limits by name: one definition, a flag and a key for each."""

from __future__ import annotations

import re
from pathlib import Path

from npuconv import limits
from npuconv.config import Options

ROOT = Path(__file__).resolve().parent.parent


def test_options_have_them():
    """The defaults of the options are those of the limits, and what is given arrives."""
    assert Options().limits == limits.DEFAULT
    assert Options(max_nodes=7).limits.nodes == 7


def test_in_force():
    """Inside, and not outside."""
    before = limits.present()
    with limits.applied(limits.Limits(depth=1)):
        assert limits.present().depth == 1
    assert limits.present() is before


def test_the_page_has_them_all():
    """Each key with its default."""
    text = (ROOT / "docs" / "reference" / "options.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (max_[a-z_]+) \| `(\d+)` \|", text, re.MULTILINE))
    for name in limits.NAMES:
        assert rows[f"max_{name}"] == str(getattr(limits.DEFAULT, name))
