"""How much noise each of many roundings makes by itself."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from builders import Net
from npuconv import executor
from npuconv.quant.encoding import Encoding
from npuconv.tuning.noise.alone import noise_by_feed, noise_powers
from npuconv.tuning.noise.gated import Gate, Rounding, rounded

SHAPE = (1, 4, 16, 16)
LAYERS = 40


def chain() -> onnx.ModelProto:
    """Forty convolutions of one tensor, all of them outputs: their noise never meets."""
    net = Net(x=SHAPE)
    for number in range(LAYERS):
        net.conv("x", (4, 4, 3, 3), pads=[1, 1, 1, 1], name=f"n{number}", to=f"t{number}")
    return net.output(*(f"t{number}" for number in range(LAYERS))).model()


def roundings() -> list[Rounding]:
    """Steps of many sizes."""
    sizes = np.geomspace(0.01, 0.1, LAYERS)
    return [
        Rounding(Gate(f"n{k}", "output", f"t{k}"), Encoding.plain(size))
        for k, size in enumerate(sizes)
    ]


def feeds(count: int = 2) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [{"x": rng.standard_normal(SHAPE).astype(np.float32)} for _ in range(count)]


def by_hand(model: onnx.ModelProto, one: list[Rounding], given: list) -> float:
    """Squares of what these do to all outputs, with models that have nothing else rounded."""
    before, after = (executor.Session(m, threads=1) for m in (model, rounded(model, one)))
    pairs = [(before.run(feed), after.run(feed)) for feed in given]
    return sum(float(np.square(new[k] - old[k]).sum()) for old, new in pairs for k in old)


def deep() -> onnx.ModelProto:
    """Forty convolutions in a row, with a way around half of them, and two outputs."""
    net = Net(x=SHAPE)
    for number in range(LAYERS):
        source = f"t{number - 1}" if number else "x"
        net.conv(source, (4, 4, 1, 1), name=f"n{number}", to=f"t{number}")
    net.op("Add", "t5", f"t{LAYERS - 1}", to="y")
    return net.output("y", "t20").model()


@pytest.mark.parametrize("model", [chain(), deep()], ids=["side by side", "in a row"])
def test_each_is_what_it_costs_by_itself(model: onnx.ModelProto):
    """Also of a tensor that is read far behind, and with the model in several stages."""
    powers, signal = noise_powers(model, roundings(), feeds())
    exact = [by_hand(model, [one], feeds()) for one in roundings()]
    assert powers == pytest.approx(np.asarray(exact), rel=1e-3, abs=1e-9)
    outputs = [executor.Session(model).run(feed) for feed in feeds()]
    squares = sum(float(np.square(v).sum()) for found in outputs for v in found.values())
    assert signal == pytest.approx(squares, rel=1e-5)


def test_errors_that_are_alike_in_the_outputs_are_told_apart():
    """All of them shift one sum: what probes of several at once would take for one another."""
    net = Net(x=SHAPE)
    for number in range(LAYERS):
        net.conv("x", (4, 4, 3, 3), pads=[1, 1, 1, 1], name=f"n{number}", to=f"t{number}")
    net.op("Sum", *(f"t{number}" for number in range(LAYERS)), to="sum")
    model = net.op("ReduceSum", "sum", net.constant(np.asarray([1, 2, 3])), to="y").model()
    powers, _ = noise_powers(model, roundings(), feeds(1))
    exact = [by_hand(model, [one], feeds(1)) for one in roundings()]
    assert powers == pytest.approx(np.asarray(exact), rel=1e-2, abs=1e-7)


def test_weights_and_inputs_are_measured_as_well():
    """A layer with its input, its weights and its output as one unknown."""
    model = deep()
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0])
    every = [
        Rounding(Gate("n0", "input", "x"), Encoding.plain(0.1)),
        Rounding(Gate("n0", "weights", "c0"), constants={1: weight * np.float32(1.01)}),
        *roundings(),
    ]
    powers, _ = noise_powers(model, every, feeds(), [0, 0, *range(LAYERS)])
    first = by_hand(model, every[:3], feeds())
    assert powers[0] == pytest.approx(first, rel=0.02)
    assert powers[1] == pytest.approx(by_hand(model, every[3:4], feeds()), rel=1e-3)


def test_the_input_of_a_layer_may_be_a_constant():
    """It is rounded like any other tensor, and its weights of the same name apart from it."""
    model = Net(x=SHAPE).conv("x", (4, 4, 1, 1), name="n0", to="y").model()
    model.graph.node[0].input[0] = model.graph.node[0].input[1]
    weights = model.graph.node[0].input[1]
    given = Rounding(Gate("n0", "input", weights), Encoding.plain(0.1))
    values = onnx.numpy_helper.to_array(model.graph.initializer[0]) * np.float32(1.5)
    own = Rounding(Gate("n0", "weights", weights), constants={1: values})
    powers, _ = noise_powers(model, [given, own], feeds(1))
    assert powers[0] > 0
    assert powers[1] > powers[0]


def test_what_lies_in_several_stages_is_added():
    """The first and the last layer as one unknown: nearly what both together cost."""
    together = [*range(LAYERS - 1), 0]
    powers, _ = noise_powers(deep(), roundings(), feeds(), together)
    parts = [by_hand(deep(), [roundings()[k]], feeds()) for k in (0, LAYERS - 1)]
    assert powers[0] == pytest.approx(sum(parts), rel=1e-3)


def test_a_tensor_at_a_cut_may_be_a_sequence():
    """Then the model is not cut; the numbers are the same."""
    model = deep()
    model.graph.node.insert(3, helper.make_node("SequenceConstruct", ["t1", "t2"], ["both"]))
    model.graph.initializer.append(helper.make_tensor("last", TensorProto.INT64, [], [1]))
    model.graph.node.append(helper.make_node("SequenceAt", ["both", "last"], ["z"]))
    model.graph.output.append(helper.make_empty_tensor_value_info("z"))
    powers, _ = noise_powers(model, roundings(), feeds())
    exact = [by_hand(model, [one], feeds()) for one in roundings()]
    assert powers == pytest.approx(np.asarray(exact), rel=1e-2, abs=1e-9)


def test_outputs_that_are_no_tensors_or_constants_show_nothing():
    """A sequence and a weight beside the output that counts."""
    model = deep()
    model.graph.node.append(helper.make_node("SequenceConstruct", ["t1", "t2"], ["both"]))
    names = ["both", model.graph.initializer[0].name]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    powers, signal = noise_powers(model, roundings(), feeds())
    plain, wanted = noise_powers(deep(), roundings(), feeds())
    assert powers == pytest.approx(plain, rel=1e-2, abs=1e-9)
    assert signal == pytest.approx(wanted, rel=1e-5)


def test_nothing_to_round_makes_no_noise():
    """A model without layers on the device."""
    assert noise_powers(chain(), [], feeds())[0].size == 0


def test_no_more_is_looked_at_than_it_takes():
    """Two feeds at least, as one may be odd; without a bound all of them."""
    two, _ = noise_powers(chain(), roundings()[:1], feeds(4), enough=1)
    every, _ = noise_powers(chain(), roundings()[:1], feeds(4))
    assert two == pytest.approx([by_hand(chain(), roundings()[:1], feeds(4)[:2])], rel=1e-3)
    assert every == pytest.approx([by_hand(chain(), roundings()[:1], feeds(4))], rel=1e-3)


def test_a_model_that_does_not_run_is_refused():
    """Cut or not."""
    with pytest.raises(executor.RuntimeRefusedError):
        noise_powers(chain(), roundings(), [{"x": np.zeros((1, 3, 16, 16), np.float32)}])


def test_every_feed_by_itself():
    """A row for each rounding, a column for each feed; together they are what all make."""
    model, every = chain(), roundings()
    found = noise_by_feed(model, every, feeds(3))
    assert found.shape == (len(every), 3)
    np.testing.assert_allclose(found.sum(axis=1), noise_powers(model, every, feeds(3))[0])
    np.testing.assert_allclose(found[:, :1], noise_by_feed(model, every, feeds(1)))
