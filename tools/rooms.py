"""Draw the packages of npuconv and their imports, and list the calls of a conversion.

    python tools/rooms.py > rooms.svg

The picture and the tables of docs/architecture.md come from here: from the import graph
(imports for types count) and from the source of ``pipeline/convert.py``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

import grimp

SOURCE = Path(__file__).resolve().parent.parent / "src" / "npuconv"
CONVERT = SOURCE / "pipeline" / "convert.py"
# Calls that a reader of the conversion can do without: values, messages, the clock.
ASIDE = ("schemas", "errors", "timings", "limits", "config", "report/builder/notices")
WIDTH, HEIGHT, GAP_X, GAP_Y = 132, 34, 26, 34  # of a box, and between boxes, in pixels
MARGIN = 12

Edges = dict[str, set[str]]


def packages() -> list[str]:
    """Return the names of the packages below npuconv that hold code."""
    found = (path.parent.name for path in SOURCE.glob("*/__init__.py"))
    return sorted(name for name in found if name != "targets")  # data only


def imports() -> Edges:
    """Return the packages that each package imports directly."""
    graph = grimp.build_graph("npuconv", cache_dir=None)
    edges: Edges = {name: set() for name in packages()}
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            start, end = ((*name.split("."), "")[1] for name in (module, other))
            if start != end and start in edges and end in edges:
                edges[start].add(end)
    return edges


def reduced(edges: Edges) -> Edges:
    """Return the edges that no longer way stands for: the transitive reduction.

    Args:
        edges: of a graph without circles.
    """
    below: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in below:
            below[name] = edges[name].union(*(reach(other) for other in edges[name]))
        return below[name]

    return {
        name: {end for end in ends if not any(end in reach(other) for other in ends)}
        for name, ends in edges.items()
    }


def rows(edges: Edges) -> list[list[str]]:
    """Return the packages in rows, so that every import leads to a lower row."""
    depth: dict[str, int] = {}

    def deep(name: str) -> int:
        if name not in depth:
            depth[name] = max((deep(other) + 1 for other in edges[name]), default=0)
        return depth[name]

    highest = max(map(deep, edges))
    return [sorted(name for name in edges if deep(name) == at) for at in range(highest, -1, -1)]


def picture() -> str:
    """Draw the packages as SVG, an arrow for each import that no longer way stands for."""
    edges = imports()
    placed = rows(edges)
    widest = max(map(len, placed))
    width = 2 * MARGIN + widest * (WIDTH + GAP_X) - GAP_X
    corners: dict[str, tuple[int, int]] = {}
    for at, names in enumerate(placed):
        left = (width - len(names) * WIDTH - (len(names) - 1) * GAP_X) // 2
        for k, name in enumerate(names):
            corners[name] = (left + k * (WIDTH + GAP_X), MARGIN + at * (HEIGHT + GAP_Y))
    height = 2 * MARGIN + len(placed) * (HEIGHT + GAP_Y) - GAP_Y
    arrows = [
        _arrow(corners[start], corners[end], width // 2)
        for start, ends in sorted(reduced(edges).items())
        for end in sorted(ends)
    ]
    boxes = [_box(name, *corners[name]) for name in sorted(corners)]
    return "\n".join([*_head(width, height), *arrows, *boxes, "</svg>", ""])


def _head(width: int, height: int) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="14">',
        "<title>Packages of npuconv; an arrow leads to what is imported</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#5c6b7a"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]


def _arrow(start: tuple[int, int], end: tuple[int, int], middle: int) -> str:
    """Draw an arrow; one that skips rows bends outwards, around the boxes between them."""
    x1, y1 = start[0] + WIDTH // 2, start[1] + HEIGHT
    x2, y2 = end[0] + WIDTH // 2, end[1] - 2
    path = f"M{x1} {y1} L{x2} {y2}"
    if y2 - y1 > GAP_Y:
        outwards = max(x1 - middle, x2 - middle, key=abs)
        side = WIDTH if outwards > 0 else -WIDTH
        path = f"M{x1} {y1} C{x1 + side} {y1 + GAP_Y} {x2 + side} {y2 - GAP_Y} {x2} {y2}"
    return f'<path d="{path}" fill="none" stroke="#5c6b7a" marker-end="url(#head)"/>'


def _box(name: str, x: int, y: int) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="#e8f0f8" '
        f'stroke="#2f5d8a"/><text x="{x + WIDTH // 2}" y="{y + 22}" text-anchor="middle" '
        f'fill="#10202f">{escape(name)}</text>'
    )


def summary(path: Path, name: str = "") -> str:
    """Return the first line of the docstring of a module, or of a function in it."""
    tree = ast.parse(path.read_text("utf-8"))
    if not name:
        return (ast.get_docstring(tree) or "").partition("\n")[0]
    found = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
    ]
    return (ast.get_docstring(found[0]) or "").partition("\n")[0] if found else ""


def package_table() -> str:
    """Return a table of the packages and single modules, with their first sentences."""
    names = [name for row in rows(imports()) for name in row]
    lines = ["| package | holds |", "|---|---|"]
    lines += [f"| `{name}/` | {summary(SOURCE / name / '__init__.py')} |" for name in names]
    lines += ["", "| module | holds |", "|---|---|"]
    modules = sorted(path for path in SOURCE.glob("*.py") if not path.stem.startswith("__"))
    lines += [f"| `{path.name}` | {summary(path)} |" for path in modules]
    return "\n".join(lines) + "\n"


def calls_of_conversion() -> str:
    """Return a table of the calls of ``convert``, in their order in the source."""
    tree = ast.parse(CONVERT.read_text("utf-8"))
    local = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    known = dict(_imported(tree))
    lines = ["| call | in `src/npuconv/` | |", "|---|---|---|"]
    shown: set[str] = set()
    for place, name in _calls("_convert", local, known):
        path = SOURCE / f"{place}.py"
        said = summary(path, name)
        if said and f"{place}.{name}" not in shown:
            shown.add(f"{place}.{name}")
            lines.append(f"| `{name}` | `{place}.py` | {said} |")
    return "\n".join(lines) + "\n"


def _imported(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each name imported from npuconv, with its module and name; a module has no name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("npuconv"):
            continue
        place = "/".join(str(node.module).split(".")[1:])
        for item in node.names:
            inner = f"{place}/{item.name}" if place else item.name
            if (SOURCE / f"{inner}.py").is_file():
                yield item.asname or item.name, (inner, "")
            elif (SOURCE / inner / "__init__.py").is_file():
                yield item.asname or item.name, (f"{inner}/__init__", "")
            else:
                own = f"{place}.py" if (SOURCE / f"{place}.py").is_file() else ""
                yield item.asname or item.name, (place if own else f"{place}/__init__", item.name)


def _calls(
    name: str,
    local: Mapping[str, ast.FunctionDef],
    known: Mapping[str, tuple[str, str]],
    inside: tuple[str, ...] = (),
) -> Iterator[tuple[str, str]]:
    """Yield module and name of what a function calls, with the calls of its own helpers."""
    found = [node for node in ast.walk(local[name]) if isinstance(node, ast.Call)]
    for call in sorted(found, key=lambda node: (node.lineno, node.col_offset)):
        head, attribute = call.func, ""
        if isinstance(head, ast.Attribute):
            head, attribute = head.value, head.attr
        if not isinstance(head, ast.Name):
            continue
        if head.id in local and not attribute and head.id not in inside:
            yield from _calls(head.id, local, known, (*inside, name))
        place, own = known.get(head.id, ("", ""))
        if place and not place.startswith(ASIDE) and bool(own) != bool(attribute):
            yield place, own or attribute


if __name__ == "__main__":
    print(picture(), end="")
