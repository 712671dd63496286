"""Dependencies: the oldest versions are tested, and nothing else is imported."""

from __future__ import annotations

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
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


def imported():
    """The distributions that modules of npuconv import, at the top or in a function.

    Scripts of vendors' tools run in environments of their own.
    """
    names = set()
    scripts = {*(ROOT / "src/npuconv/vendors/scripts").glob("*.py")}
    for path in {*(ROOT / "src").rglob("*.py")} - scripts:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(str(node.module).partition(".")[0])
    owners = packages_distributions()
    names -= {*sys.stdlib_module_names, "npuconv"}
    return {owners.get(name, [name])[0].lower().replace("_", "-") for name in names}


def test_the_plain_install_has_what_is_imported():
    """Built-in targets need no extra; jobs on a cluster do. onnx and jinja2 bring the others."""
    assert imported() - {name.lower() for name in asked()} == {
        "distributed", "markupsafe", "protobuf",
    }  # fmt: skip
