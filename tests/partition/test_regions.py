"""Regions: of all sets of operators, the set whose crossings cost least."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from npuconv.partition.crossings import crossings, price
from npuconv.partition.operators import candidates
from npuconv.partition.placement import make_plan
from npuconv.partition.regions import DEVICE, HOST, Cut
from support.asserts import read
from support.builders import Net
from support.dice import Dice
from support.target_files import chip

X = (1, 4, 8, 8)
ONE = ("Sigmoid", "Softsign", "Relu", "MaxPool", "GlobalAveragePool", "Transpose", "Conv")
TWO = ("Add", "Mul", "Sub")


def listing(*ops: str, costs: dict[str, float] | None = None):
    operators = {op: {} for op in ("Conv", *ops)}
    return chip(
        "",
        also={"operators": operators, "unlisted_operators": "host", "costs": costs or {}},
    )


def random_net(dice: Dice) -> Net:
    """Operators of the device, of the host and of both, that join and branch."""
    built = Net(x=X).conv("x", (4, 4, 1, 1), to="v0")
    made = ["x", "v0"]
    for number in range(1, 10):
        source, to = dice.one_of(made[-4:]), f"v{number}"
        if dice.chance(40):
            built.op(dice.one_of(TWO), source, dice.one_of(made[-4:]), to=to)
        elif (op := dice.one_of(ONE)) == "Conv":
            built.conv(source, (4, 4, 1, 1), to=to)
        elif op == "MaxPool":
            built.op(op, source, kernel_shape=[1, 1], to=to)
        elif op == "Transpose":
            built.op(op, source, perm=[0, 1, 3, 2], to=to)
        else:
            built.op(op, source, to=to)
        made.append(to)
    return built.output(*{dice.one_of(made[1:]), made[-1]})


@pytest.mark.parametrize("costs", [{}, {"crossing": 0}, {"crossing_byte": 0}])
@pytest.mark.parametrize("seed", range(30))
def test_no_other_set_of_operators_costs_less(seed, costs):
    """All sets are tried, and measured as the report measures them."""
    dice = Dice("regions", seed)
    model = read(random_net(dice).model())
    ops = ("Sigmoid", "GlobalAveragePool", "Relu", "MaxPool", "Transpose", *TWO)
    target = listing(*(op for op in ops if dice.chance(80)), costs=costs)
    names = [node.name for node in candidates(model, target, ())]
    subsets = chain.from_iterable(combinations(names, k) for k in range(len(names) + 1))

    def price_with(operators=None):
        return price(model, make_plan(model, target, operators=operators), target)

    assert price_with() == min(map(price_with, subsets))


@pytest.mark.parametrize("seed", range(100))
def test_a_device_that_lists_more_never_costs_more(seed):
    """Random networks, each with a target and a target that lists more operators."""
    dice = Dice("monotone", seed)
    model = read(random_net(dice).model())
    ops = ("Sigmoid", "GlobalAveragePool", "Relu", "MaxPool", "Transpose", *TWO)
    more = [op for op in ops if dice.chance(70)]
    fewer = [op for op in more if dice.chance(60)]
    counts = []
    for listed in (fewer, more):
        target = listing(*listed)
        counts.append(price(model, make_plan(model, target), target))
    assert counts[1] <= counts[0]


def test_moves_between_two_of_the_host_stay_there():
    """A Reshape on int8 between Transposes that the device does not take."""
    net = Net(x=X).conv("x", (4, 4, 1, 1)).op("Transpose", perm=[0, 2, 3, 1])
    net.op("Reshape", net.last, net.constant([1, 64, 4])).op("Transpose", perm=[0, 2, 1])
    net.op("Reshape", net.last, net.constant([1, 4, 8, 8])).conv(net.last, (4, 4, 1, 1))
    model = read(net.model())
    few, more = listing(), listing("Reshape")
    assert len(crossings(model, make_plan(model, few)).ports) == 4
    plan = make_plan(model, more)
    assert len(crossings(model, plan).ports) == 4
    first, last = model.nodes("Reshape")
    assert (plan.placement[id(first)], plan.placement[id(last)]) == ("host", "device")
    assert plan.reason[id(first)] == (
        "Reshape is listed, but less crosses with it on the host; runs on int8 tensors, exactly"
    )
    assert plan.is_passthrough(first)


def test_a_region_that_pays_only_as_a_whole():
    """Each operator alone has a neighbour on the host, so that it costs as much as it saves."""
    built = Net(x=X).conv("x", (4, 4, 1, 1), to="a").op("Sigmoid", "a", to="s")
    built.op("Tanh", "s", to="t").op("Mul", "s", "t", to="m").op("Elu", "m", to="e")
    built.op("Add", "e", "t", to="w").conv("w", (4, 4, 1, 1), to="o")
    model = read(built.model())
    ops = ("Sigmoid", "Tanh", "Mul", "Elu", "Add")
    assert len(crossings(model, make_plan(model, listing(*ops))).ports) == 2
    plan = make_plan(model, listing("Sigmoid", "Mul", "Elu"))
    assert [node.op for node in plan.operators] == ["Sigmoid"]


def test_a_chain_between_two_of_the_host_stays_there():
    """However long it is, it crosses twice for nothing."""
    built = Net(x=X).conv("x", (4, 4, 1, 1), to="a").op("Softsign", "a", to="h")
    for number in range(5):
        built.op("Sigmoid", "h" if number == 0 else f"s{number - 1}", to=f"s{number}")
    model = read(built.op("Softsign", "s4").model())
    assert not make_plan(model, listing("Sigmoid")).operators


@pytest.mark.parametrize(("last", "device"), [(7, [2, 3, 4]), (9, [3]), (8, [3])])
def test_the_cheapest_cut(last, device):
    """Ways of 3 and 5 that join: the last edge is cut, or both of them; of equals the first."""
    cut = Cut()
    a, b, c = cut.vertex(), cut.vertex(), cut.vertex()
    for edge in ((DEVICE, a, 3), (a, c, 4), (DEVICE, b, 8), (b, c, 5), (c, HOST, last)):
        cut.edge(*edge)
    assert cut.device() == {DEVICE, *device}
