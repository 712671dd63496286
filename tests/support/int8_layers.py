"""Random integer convolutions, and whether the runtime at hand computes them as defined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from npuconv import executor
from npuconv.evaluate.simulator import as_float
from support.builders import Net
from support.integer_conv import IntegerConv


@dataclass(frozen=True)
class Case:
    """A QLinearConv with one input, and everything that it is made of."""

    layer: IntegerConv
    x: np.ndarray
    x_scale: np.float32
    x_zero: np.ndarray
    w_scales: np.ndarray
    y_scale: np.float32
    y_zero: np.ndarray

    def model(self, *, last: bool = False) -> onnx.ModelProto:
        """The layer alone, integers in and out; with its channels last if asked for."""
        layer, channels = self.layer, len(self.layer.weight)
        parts: dict[str, Any] = {
            "x_scale": self.x_scale, "x_zero": self.x_zero, "w": layer.weight,
            "w_scale": self.w_scales, "w_zero": np.zeros(channels, layer.weight.dtype),
            "y_scale": self.y_scale, "y_zero": self.y_zero,
        }  # fmt: skip
        parts |= {} if layer.bias is None else {"b": layer.bias}
        attrs: dict[str, Any] = {
            "strides": layer.strides, "dilations": layer.dilations, "pads": layer.pads,
            "group": layer.group,
        }  # fmt: skip
        attrs |= {"channels_last": 1, "domain": "com.microsoft"} if last else {}
        node = helper.make_node("QLinearConv", ["x", *parts], ["y"], name="conv", **attrs)
        return self._finished(node, parts, np.moveaxis(self.x, 1, -1) if last else self.x)

    def _finished(
        self, node: onnx.NodeProto, parts: dict[str, Any], x: np.ndarray
    ) -> onnx.ModelProto:
        types = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in (self.x, self.y_zero)]
        graph = helper.make_graph(
            [node],
            "layer",
            [helper.make_tensor_value_info("x", types[0], x.shape)],
            [helper.make_tensor_value_info("y", types[1], None)],
            [numpy_helper.from_array(np.asarray(v), k) for k, v in parts.items()],
        )
        domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=8)


def random_case(seed: int, **fixed: Any) -> Case:
    """A layer that uses what int8 can hold, its outputs spread over the whole range.

    Args:
        seed: of everything that is not fixed.
        fixed: ``group`` (1 or "C"), ``pads``, ``x_zero``, ``y_zero``, ``dtype``, ``channels``,
            ``ties``.
    """
    rng = np.random.default_rng([seed, 77])
    depthwise = fixed.get("group", rng.choice(["1", "C"])) == "C"
    channels = int(fixed.get("channels", rng.integers(1, 9)))
    outputs = channels if depthwise else int(rng.integers(1, 7))
    kernel = rng.integers(1, 5, 2)
    strides, dilations = rng.integers(1, 4, 2), rng.integers(1, 3, 2)
    pads = [int(rng.integers(0, k)) for k in (*kernel, *kernel)]
    weight = rng.integers(-127, 128, (outputs, 1 if depthwise else channels, *kernel))
    has_bias = rng.random() < 0.8
    kind = np.dtype(fixed.get("dtype", np.int8))
    limits = np.iinfo(kind)
    size = rng.integers(7, 14, 2)
    x = rng.integers(limits.min, limits.max + 1, (int(rng.integers(1, 3)), channels, *size))
    x_scale, w_scales, y_scale = _scales(rng, weight, fixed.get("ties", seed % 4 == 0))
    return Case(
        IntegerConv(
            weight.astype(np.int8),
            rng.integers(-20000, 20000, outputs).astype(np.int32) if has_bias else None,
            [int(s) for s in strides],
            [int(d) for d in dilations],
            fixed.get("pads", pads),
            channels if depthwise else 1,
        ),
        x.astype(kind),
        x_scale,
        np.asarray(fixed.get("x_zero", 0), kind),
        w_scales,
        y_scale,
        np.asarray(fixed.get("y_zero", 0), kind),
    )


def _scales(
    rng: np.random.Generator, weight: np.ndarray, ties: bool
) -> tuple[np.float32, np.ndarray, np.float32]:
    """Draw scales; ``ties`` are powers of two, with many products between two integers."""
    outputs = len(weight)
    spread = 74.0 * np.sqrt((weight.astype(float) ** 2).reshape(outputs, -1).sum(1).max() + 1)
    if ties:
        exponent = int(np.ceil(np.log2(spread / 60)))
        w_scales = 2.0 ** -(exponent + rng.integers(0, 3, outputs))
        return np.float32(0.25), w_scales.astype(np.float32), np.float32(0.25)
    x_scale = np.float32(rng.uniform(1e-3, 1))
    w_scales = rng.uniform(1e-4, 1e-2, outputs).astype(np.float32)
    y_scale = np.float32(float(x_scale) * float(w_scales.max()) * spread / 60)
    return x_scale, w_scales, y_scale


def run(
    model: onnx.ModelProto, x: np.ndarray, name: str = "y", *, optimize: bool = True
) -> np.ndarray:
    """One output of a model with the input ``x``, on one thread."""
    return executor.Session(model, threads=1, optimize=optimize).run({"x": x}, [name])[name]


def ops(model: onnx.ModelProto) -> set[str]:
    """Return the operators of a model."""
    return {node.op_type for node in model.graph.node}


def same(
    model: onnx.ModelProto,
    feeds: dict[str, np.ndarray],
    watch: tuple[str, ...] = (),
    optimized: tuple[bool, ...] = (False, True),
) -> None:
    """Assert that outputs and watched tensors are equal, with and without optimization."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in watch)
    expected = executor.Session(watched, threads=1, optimize=False).run(feeds)
    for optimize in optimized:
        float_form = as_float(model, watch)
        results = executor.Session(float_form, threads=1, optimize=optimize).run(feeds)
        assert list(results) == list(expected)
        for name, values in expected.items():
            assert results[name].dtype == values.dtype
            np.testing.assert_array_equal(results[name], values, name)


def integers(net: Net, source: str = "x", step: float = 0.02, zero: int = 0) -> str:
    """Append a QuantizeLinear; return its result."""
    names = [net.constant(np.float32(step)), net.constant(np.int8(zero))]
    return net.op("QuantizeLinear", source, *names).last
