"""What a node costs."""

from __future__ import annotations

import pytest

from npuconv.partition import cost, macs, weight_bytes
from support.asserts import read
from support.builders import Net


def recurrent(op: str, gates: int, x=(7, 2, 5), **attrs):
    """A layer of 5 inputs and 3 units."""
    net = Net(x=x)
    net.op(
        op, "x", net.random(1, gates * 3, 5), net.random(1, gates * 3, 3), hidden_size=3, **attrs
    )
    return read(net.model()).nodes(op)[0]


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_layers(op, gates):
    """Every step of every sample multiplies with all weights."""
    assert macs(recurrent(op, gates)) == 7 * 2 * gates * 3 * (5 + 3)


def test_recurrent_layers_with_open_extents():
    """A symbolic batch counts as one, a symbolic length is not known."""
    assert macs(recurrent("GRU", 3, x=(7, "N", 5))) == 7 * 9 * 8
    assert macs(recurrent("GRU", 3, x=("T", 2, 5))) is None
    assert macs(recurrent("GRU", 3, x=(2, 7, 5), layout=1)) == 2 * 7 * 9 * 8


def test_several_nodes():
    """Unknown as soon as one is."""
    net = Net(x=(1, 4, 6, 6)).conv("x", (4, 4, 3, 3)).op("Relu").conv("", (2, 4, 1, 1))
    model = read(net.model())
    found = cost(model.nodes())
    assert (found.macs, found.weight_bytes, found.convolutions) == (16 * 144 + 16 * 8, 152, 2)
    open_model = read(Net(x=(1, 4, "H", 6)).conv("x", (4, 4, 3, 3)).model())
    assert cost(open_model.nodes()).macs is None
    assert weight_bytes(model.nodes("Relu")[0]) == 0
