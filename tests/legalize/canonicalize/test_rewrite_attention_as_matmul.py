"""Tests of rewrite-attention-as-matmul."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import Passes, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "rewrite-attention-as-matmul"


def attention(q=(2, 2, 5, 4), k=(2, 2, 6, 4), v=(2, 2, 6, 3), mask=None, **attrs):
    net = Net(q=q, k=k, v=v, opset=23, **({"m": mask} if isinstance(mask, tuple) else {}))
    masks = [] if mask is None else ["m" if isinstance(mask, tuple) else net.constant(mask)]
    return net.op("Attention", "q", "k", "v", *masks, **attrs).model()


def of_rank_3(heads=2, keys=2, **attrs):
    shapes = {"q": (2, 5, 8), "k": (2, 6, 4 * keys), "v": (2, 6, 3 * keys)}
    return attention(**shapes, q_num_heads=heads, kv_num_heads=keys, **attrs)


def grouped():
    return attention(q=(1, 4, 5, 4), k=(1, 2, 5, 4), v=(1, 2, 5, 4))


BOOLEANS = np.tri(5, 6, 1, dtype=bool)
CASES = {
    "plain": attention,
    "scale": lambda: attention(scale=1.0),
    "added mask": lambda: attention(mask=(5, 6)),
    "constant booleans": lambda: attention(mask=BOOLEANS),
    "causal": lambda: attention(k=(2, 2, 5, 4), v=(2, 2, 5, 3), is_causal=1),
    "causal and a mask": lambda: attention(mask=BOOLEANS, is_causal=1),
    "rank 3": of_rank_3,
    "rank 3, causal": lambda: of_rank_3(is_causal=1),
}
FIRES = [*CASES.values(), lambda: attention(("n", 2, 5, 4), ("n", 2, 6, 4), ("n", 2, 6, 3))]
SILENT = [
    grouped,
    lambda: attention(softcap=2.0),
    lambda: attention(mask=np.tri(5, 6, -1, dtype=bool)),  # the first query has no key
    lambda: attention(q=(1, 2, "t", 4), k=(1, 2, "t", 4), v=(1, 2, "t", 4)),
]


@pytest.mark.parametrize("case", CASES)
def test_same_numbers(case):
    """Two products and a Softmax compute what Attention does."""
    proto = CASES[case]()
    model = read(proto)
    assert run_pass(NAME, model, Passes()) == 1
    operators = [node.op for node in model.nodes()]
    assert operators.count("MatMul") == 2
    assert "Attention" not in operators
    same_numbers(proto, model)


def test_refusals_name_the_obstacle():
    """The obstacle of each counterexample."""
    assert [refusals(NAME, make(), Passes())[0][1] for make in SILENT] == [
        "keys have other heads than queries",
        "it has a soft cap",
        "no key answers a query",
        "an extent is not known",
    ]
