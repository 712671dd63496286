"""Layout of graphs: lines lead down, nothing overlaps, few lines cross."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from npuconv.report import graph_layout
from npuconv.report.graph_layout import BOX, HEIGHT, arrange, crossings, cut, draw, shift


@st.composite
def graphs(draw_from: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """Draw a number of boxes, and edges that go from lower to higher ones."""
    count = draw_from(st.integers(0, 24))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    chosen = st.lists(st.sampled_from(pairs), unique=True, max_size=40) if pairs else st.just([])
    return count, draw_from(chosen)


@given(graphs())
def test_lines_lead_down(graph: tuple[int, list[tuple[int, int]]]) -> None:
    """Every edge goes from a layer to a deeper one, slot by slot."""
    count, edges = graph
    layers = arrange(count, edges)
    for source, target in edges:
        assert layers.level[source] < layers.level[target]
    for slot, below in enumerate(layers.below):
        assert all(layers.level[lower] == layers.level[slot] + 1 for lower in below)
    reached = [_reached(layers, box) for box in range(count)]
    assert {(a, b) for a in range(count) for b in reached[a]} == set(edges)


def _reached(layers: graph_layout.Layers, box: int) -> set[int]:
    found, left = set(), list(layers.below[box])
    while left:
        slot = left.pop()
        if slot < layers.boxes:
            found.add(slot)
        else:
            left += layers.below[slot]
    return found


@given(graphs())
def test_nothing_overlaps(graph: tuple[int, list[tuple[int, int]]]) -> None:
    """No two boxes overlap, and all are on the paper; the same input gives the same drawing."""
    drawing = draw(*graph)
    assert drawing == draw(*graph)
    if drawing is None:
        assert graph[0] == 0
        return
    for at, (x, y) in enumerate(drawing.boxes):
        assert BOX / 2 <= x <= drawing.width - BOX / 2
        assert 0 <= y <= drawing.height - HEIGHT
        for other_x, other_y in drawing.boxes[at + 1 :]:
            assert abs(x - other_x) >= BOX or abs(y - other_y) >= HEIGHT
    assert set(drawing.paths) == {source for source, _ in graph[1]}


def test_a_chain_is_straight() -> None:
    """The reader of a box stands right below it."""
    layers = arrange(4, [(0, 1), (1, 2), (2, 3)])
    assert layers.level == [0, 1, 2, 3]
    assert len(set(shift(layers, [0]))) == 1


def test_residual_blocks_do_not_drift() -> None:
    """A line beside a box does not shift the boxes below it."""
    edges = [e for b in range(0, 30, 3) for e in ((b, b + 1), (b + 1, b + 2), (b, b + 2))]
    edges += [(b + 2, b + 3) for b in range(0, 27, 3)]
    layers = arrange(30, edges)
    x = shift(layers, [0])
    heads = [x[box] for box in range(0, 30, 3)]
    assert max(heads) - min(heads) < 1


def test_lines_are_untangled() -> None:
    """Two chains whose boxes come crosswise do not cross."""
    layers = arrange(6, [(0, 3), (1, 2), (2, 5), (3, 4)])
    assert crossings(layers) == 0


def test_inputs_stand_above_their_readers() -> None:
    """A second input is not at the top, but right above what reads it."""
    layers = arrange(4, [(0, 2), (2, 3), (1, 3)])
    assert layers.level[1] == 1


def test_graphs_with_too_many_lines(monkeypatch) -> None:
    """A graph whose lines pass through too many layers is not drawn."""
    edges = [*pairwise(range(61)), (0, 60)]
    assert draw(61, edges) is not None
    monkeypatch.setattr(graph_layout, "_MAX_SLOTS", 58)
    assert draw(61, edges) is None


def test_tall_graphs_are_folded() -> None:
    """A deep network fits on a screen: columns side by side, each from the top."""
    drawing = draw(100, list(pairwise(range(100))))
    assert 0.7 < drawing.width / drawing.height < 4
    tops = {x for x, y in drawing.boxes if y == min(y for _, y in drawing.boxes)}
    assert len(tops) > 3
    assert draw(4, list(pairwise(range(4)))).width < 2 * BOX


def test_columns_part_where_few_lines_pass() -> None:
    """A block with parallel branches is not cut if a cut beside it is possible."""
    edges = list(pairwise(range(40)))
    edges += [(18, 21), (18, 22), (19, 22)]
    layers = arrange(40, edges)
    first = cut(layers, 2)[1]
    assert {upper for slot in layers.rows[first] for upper in layers.above[slot]} == {first - 1}


def test_no_graph() -> None:
    """A graph without boxes is not drawn."""
    assert draw(0, []) is None
