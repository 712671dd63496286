"""A random graph of convolutions under construction, and what may stand between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from support.conv_layers import layer
from support.conv_text import Slide
from support.dice import Dice

OPSETS = {1: 3, 7: 3, 9: 4, 11: 6, 13: 7, 17: 8, 21: 10, 22: 10}  # and the IR of their time


class Sketch:
    """A model under construction: what it is so far, and the shape it has when it runs."""

    def __init__(self, dice: Dice, opset: int, rank: int, fault: str) -> None:
        self.dice, self.opset, self.fault = dice, opset, fault
        self.rng = np.random.default_rng(dice.number(0, 9))
        largest = {1: 14, 2: 9, 3: 6}[rank]
        smallest = 3 if fault == "3d" else 1
        self.extents: list[int] = [dice.number(smallest, largest) for _ in range(rank)]
        if rank == 3 and not fault and dice.chance(50):
            self.extents[dice.number(0, 2)] = 1
        self.batch, self.channels = dice.number(1, 3), dice.one_of([1, 2, 3, 4, 6])
        self.dynamic = [self._is_dynamic(rank)] * rank
        if rank > 1 and self.dynamic[0] and not fault:
            self.dynamic[dice.number(0, rank - 1)] = False
        self.shape = (self.batch, self.channels, *self.extents)
        names = [f"d{axis}" if d else n for axis, (d, n) in
                 enumerate(zip(self.dynamic, self.extents, strict=True))]  # fmt: skip
        self.dims = ["N" if dice.chance(50) else self.batch, self.channels, *names]
        self.feeds = {"x": self.values(*self.shape)}
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.dims)]
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs: list[tuple[str, int]] = []
        self.last, self.bad = "x", ""
        self.traits = {f"opset {opset}", f"{rank}D"}
        self.traits |= {"dynamic batch"} if self.dims[0] == "N" else set()
        self.traits |= {"dynamic extents"} if any(self.dynamic) else set()

    def _is_dynamic(self, rank: int) -> bool:
        if self.fault:
            return self.fault == "same-dynamic"
        return rank < 3 and self.dice.chance(15)

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.extents)

    def values(self, *shape: int) -> np.ndarray:
        """Multiples of 1/8, so that float32 sums are next to exact and differences are bugs."""
        return (self.rng.integers(-8, 9, shape) / 8).astype(np.float32)

    def constant(self, array: np.ndarray) -> str:
        """An initializer; returns its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def op(self, op: str, *rest: str, named: bool = True, **attrs: Any) -> str:
        """Append a node to the last result; returns how a finding calls it."""
        name = f"n{len(self.nodes)}" if named else ""
        result = f"t{len(self.nodes)}"
        number = sum(n.op_type == op for n in self.nodes)
        self.nodes.append(helper.make_node(op, [self.last, *rest], [result], name=name, **attrs))
        self.last = result
        return name or f"{op}_{number}"

    def convolution(self, fault: str) -> None:
        """Append one, with this fault."""
        op = "Conv"
        if fault not in ("3d", "same-dynamic"):
            op = self.dice.weighted(Conv=3, ConvTranspose=2)
        made = layer(self.dice, op, self.channels, self.extents, self.dynamic, fault)
        weight = self.values(*made.weight)
        names = [self._fed(weight) if fault == "weights" else self.constant(weight)]
        if self.dice.chance(60):
            names.append(self.constant(self.values(made.outputs)))
        node = self.op(made.op, *names, named=not self.dice.chance(20), **made.attrs)
        self.bad = node if fault else self.bad
        self.channels, self.extents = made.outputs, made.extents
        self.traits |= made.traits

    def _fed(self, weight: np.ndarray) -> str:
        self.feeds["w"] = weight
        self.inputs.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, weight.shape))
        return "w"

    def between(self) -> None:
        """Append what may stand behind a convolution, or nothing."""
        shares = {"nothing": 6, "relu": 3, "batchnorm": 2, "affine": 2, "pool": 3, "pad": 3}
        kind = self.dice.weighted(**shares)
        self.traits.add(kind)
        getattr(self, f"_{kind}")()
        if self.dice.chance(8) and self.nodes:
            self.outputs.append((self.last, self.rank + 2))
            self.traits.add("output in the middle")

    def _nothing(self) -> None:
        pass

    def _relu(self) -> None:
        self.op("Relu")

    def _batchnorm(self) -> None:
        stats = [self.values(self.channels) for _ in range(3)]
        stats.append(np.abs(self.values(self.channels)) + np.float32(0.5))
        attrs = {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]} if self.opset < 6 else {}
        self.op("BatchNormalization", *map(self.constant, stats), epsilon=1e-3, **attrs)

    def _affine(self) -> None:
        op = self.dice.one_of(["Add", "Mul"])
        if self.opset < 7:
            self.op(op, self.constant(self.values(self.channels)), broadcast=1, axis=1)
        else:
            shape = (self.channels, *[1] * self.rank)
            self.op(op, self.constant(self.values(*shape)))

    def _pool(self) -> None:
        op = self.dice.one_of(["MaxPool", "AveragePool"])
        kernel = [self.dice.number(1, min(3, n)) for n in self.extents]
        strides = [self.dice.number(1, 2) for _ in kernel]
        mode = self.dice.weighted(NOTSET=4, SAME_UPPER=1, SAME_LOWER=1, VALID=1)
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            # A stride beyond the kernel is where onnxruntime pads by less than nothing.
            strides = [1 if d else min(s, k) for s, k, d in
                       zip(strides, kernel, self.dynamic, strict=True)]  # fmt: skip
        pads = [self.dice.number(0, k - 1) if mode == "NOTSET" else 0 for k in kernel * 2]
        attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
        attrs |= {"pads": pads} if mode == "NOTSET" else {"auto_pad": mode}
        if op == "AveragePool" and self.opset >= 7 and self.dice.chance(50):
            attrs["count_include_pad"] = 1
        ceil = self.opset >= 10 and mode == "NOTSET" and self.dice.chance(25)
        attrs |= {"ceil_mode": 1} if ceil else {}
        slide = Slide(kernel, strides, [1] * self.rank, pads, mode, ceil)
        self.op(op, **attrs)
        self.extents = slide.counts(self.extents)

    def _pad(self) -> None:
        mode = self.dice.weighted(constant=4, value=1, reflect=1, edge=1, crop=1, channels=1)
        most = {"reflect": 1, "crop": 1}.get(mode, 2)
        sides = [(self.dice.number(0, most), self.dice.number(0, most))
                 for _ in self.extents]  # fmt: skip
        if mode == "reflect":
            sides = [(min(a, n - 1), min(b, n - 1)) for (a, b), n in
                     zip(sides, self.extents, strict=True)]  # fmt: skip
        if mode == "crop":
            sides = [(-a, b) if n > 1 else (0, b) for (a, b), n in
                     zip(sides, self.extents, strict=True)]  # fmt: skip
        if self.rank == 3:  # what grows cannot be removed
            sides = [(0, 0) if n == 1 else pair for pair, n in
                     zip(sides, self.extents, strict=True)]  # fmt: skip
        extra = 1 if mode == "channels" else 0
        begins, ends = [0, 0, *(a for a, _ in sides)], [0, extra, *(b for _, b in sides)]
        self._padded(mode, begins + ends)
        self.channels += extra
        self.extents = [n + a + b for n, (a, b) in zip(self.extents, sides, strict=True)]

    def _padded(self, mode: str, amounts: list[int]) -> None:
        value = 0.5 if mode == "value" else 0.0
        attrs = {"mode": mode} if mode in ("reflect", "edge") else {}
        if self.opset < 11:
            key = "paddings" if self.opset < 2 else "pads"
            self.op("Pad", **{key: amounts}, value=value, **attrs)
            return
        rest = [self.constant(np.asarray(amounts, np.int64))]
        if value:
            rest.append(self.constant(np.asarray(value, np.float32)))
        self.op("Pad", *rest, **attrs)

    def head(self) -> None:
        """End in a classifier, sometimes."""
        if not self.dice.chance(15):
            return
        self.traits.add("classifier")
        self.op("GlobalAveragePool")
        self.op("Flatten")
        wide = self.constant(self.values(self.channels, 3))
        self.op("Gemm", wide, self.constant(self.values(3)), **self._broadcast())
        self.outputs.append((self.last, 2))

    def _broadcast(self) -> dict[str, int]:
        return {"broadcast": 1} if self.opset < 7 else {}

    def model(self) -> onnx.ModelProto:
        """The finished model; before IR 4 every initializer is an input as well."""
        if (self.last, 2) not in self.outputs and (self.last, self.rank + 2) not in self.outputs:
            self.outputs.append((self.last, self.rank + 2))
        results = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, [f"{n}_{i}" for i in range(rank)])
            for n, rank in self.outputs
        ]
        inputs = list(self.inputs)
        if OPSETS[self.opset] < 4:
            inputs += [
                helper.make_tensor_value_info(c.name, c.data_type, c.dims) for c in self.constants
            ]
        graph = helper.make_graph(self.nodes, "random", inputs, results, self.constants)
        imports = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=imports, ir_version=OPSETS[self.opset])
