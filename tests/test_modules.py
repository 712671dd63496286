"""Contracts of every module, read from source: imports, names, random numbers."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

HERE = Path(__file__).parent
ROOT = HERE.parent
PRIVATE = re.compile(r"\._[a-z]", re.IGNORECASE)  # a part that begins with one underscore
# Names that were this project's own, where the field has others (docs/architecture.md).
FORMER_NAMES = frozenset(
    {
        *("Bill", "Gate", "Judge", "Ledger", "Legalized", "Market", "Offer", "Seen", "Seller"),
        *("Sheet", "Shop", "Staggered", "Strand", "Trial", "channel_powers", "foresight", "gated"),
        *("glimpse", "half_used", "jury", "ledger", "lower_carried", "loudest"),
        *("market", "reluctance", "seller", "shop", "staggered", "strand", "twin", "twins"),
    }
)


@cache
def sources(*folders: str) -> dict[Path, str]:
    """The text of every module below these folders of the project."""
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return {path: path.read_text("utf-8") for path in found}


def private_imports(text: str) -> list[str]:
    """The private names of npuconv that a module imports, or reads of a module it imports."""
    tree = ast.parse(text)
    froms = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
    named = {
        item.asname or item.name: f"{node.module}.{item.name}"
        for node in froms
        if node.module.startswith("npuconv")
        for item in node.names
    }
    read = (
        f"{named[node.value.id]}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in named
    )
    return [name for name in (*named.values(), *read) if PRIVATE.search(name)]


def test_private_names_are_recognized():
    """An import, an attribute of an imported module, and a private module."""
    text = "from npuconv.model import _load, save\nfrom npuconv._x import y\nsave._to(save.VERSION)"
    found = private_imports(text)
    assert found == ["npuconv.model._load", "npuconv._x.y", "npuconv.model.save._to"]


def test_no_private_name_is_imported():
    """A name with an underscore belongs to its module."""
    found = {str(path): private_imports(text) for path, text in sources("src").items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_modules_import_each_other_in_no_circle():
    """Imports for types and imports inside functions count."""
    graph = grimp.build_graph("npuconv", cache_dir=None)
    order = TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    )
    order.prepare()  # raises CycleError, which names the circle


def test_the_layers_have_no_exceptions():
    """Contracts of imports count imports for types, and ignore none."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    assert not linter.get("exclude_type_checking_imports", False)
    assert [c["name"] for c in linter["contracts"] if c.get("ignore_imports")] == []


def test_names_are_those_of_the_field():
    """No identifier, module or word of the language that the project used to have."""
    pages = (*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    texts = sources("src", "tests") | {path: path.read_text("utf-8") for path in pages}
    del texts[Path(__file__)]
    found = []
    for path, text in texts.items():
        words = {*re.findall(r"[A-Za-z_]\w*", text), path.stem}
        found += [f"{path.relative_to(ROOT)}: {word}" for word in sorted(words & FORMER_NAMES)]
    assert found == []


def test_no_tests_draw_from_one_generator():
    """Numbers drawn from a generator of the module depend on the order of its tests."""
    shared = re.compile(r"^\w+ = np\.random\.default_rng\(\d*\)$", re.MULTILINE)
    found = {str(path): shared.findall(text) for path, text in sources("tests").items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_only_rules_and_passes_are_described_by_their_module():
    """Every other public function says itself what it does."""
    found = []
    for path, text in sources("src").items():
        for node in ast.parse(text).body:
            public = isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            if public and ast.get_docstring(node) is None:
                made_by = {ast.unparse(one).split("(")[0] for one in node.decorator_list}
                if made_by.isdisjoint({"rule", "register_pass"}):
                    found.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert found == []
