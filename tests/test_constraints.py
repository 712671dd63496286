"""The oldest versions that are tested are those that the package asks for."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent


def asked():
    """The lower bound of each dependency."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = {}
    for text in project["dependencies"]:
        one = Requirement(text)
        (bound,) = one.specifier
        assert bound.operator == ">=", text
        found[one.name] = Version(bound.version)
    return found


def oldest():
    """The versions that ``make test-oldest`` installs."""
    lines = (ROOT / "constraints/oldest.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {name: Version(version) for name, version in pairs}


def test_every_lower_bound_is_tested():
    """A bound that nobody has tried is a guess."""
    assert oldest() == asked()
