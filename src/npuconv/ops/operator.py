"""Description of an operator, and the registry of all descriptions.

Modules of operators import numpy; they are loaded with the first look-up, so that commands that
look nothing up start fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

from npuconv.model import Node, Tensor, query
from npuconv.ops.channels import Follower, mixed
from npuconv.records import KW_ONLY, dataclass, field, replace
from npuconv.registry import Registry

if TYPE_CHECKING:
    import onnx

    from npuconv.arithmetic.rescaling import Rescaling, TensorScale
    from npuconv.arithmetic.whole import Whole
    from npuconv.ops.tape import Adjoint
    from npuconv.tflite.draft import Draft

Attributes = Mapping[str, Any]
Predicate = Callable[[Node], bool]
P = ParamSpec("P")
W = TypeVar("W", bound="Whole")


@dataclass(frozen=True)
class Arguments(Generic[W]):
    """Arguments of a kernel."""

    attributes: Attributes  # attributes of the node, and its parameters
    values: Sequence[W]  # int8 values of the inputs
    scales: Sequence[TensorScale]  # scales of the inputs, and last the scale of the result
    rescaling: Rescaling  # requantization of the device


Kernel = Callable[[Arguments[Any]], Any]  # function from arguments to int8 values


def always(_: Any) -> bool:
    """Return True: a predicate for operators without exceptions."""
    return True


@dataclass(frozen=True)
class Operator:
    """One operator of ONNX."""

    name: str
    _: KW_ONLY
    is_defined: Predicate | None = None  # whether int8 semantics are defined for a node

    # Inputs that hold values, by place; None: all. Others are shapes, axes, indices, parameters.
    data: tuple[int, ...] | None = (0,)
    # Inputs that are constants of the type of the values: bounds, a fill.
    bounds: tuple[int, ...] = ()
    # Inputs that are parameters, by place, and the attributes as which kernels get them.
    parameters: Mapping[int, str] = field(default_factory=dict)

    # Movement and comparison: on tensors of one scale they have the same result on int8.
    passes: Predicate | None = None  # whether a node passes int8 on
    follow: Follower = mixed  # slots of channels of the outputs

    # Arithmetic.
    function: Callable[..., Any] | None = None  # function of float64 arrays; attributes as keywords
    is_table: bool = False  # whether the device looks the function up in a table
    takes: Callable[[Attributes], bool] = always  # whether the kernel computes with attributes
    kernel: Kernel | None = None  # function to int8 values, for any requantization
    adjoint: Adjoint | None = None  # nodes that compute the gradients of the inputs

    # Written forms.
    integer_form: str = ""  # name of onnxruntime's operator on int8
    in_tflite: Predicate | None = None  # whether TFLite holds a node in int8
    tflite_kernel: Kernel | None = None  # kernel if more than the requantization differs
    # Scale of the result in TFLite, if it is not free: a fixed one, or that of the input.
    tflite_scale: TensorScale | Literal["input"] | None = None
    to_tflite: Callable[[Draft, onnx.NodeProto], None] | None = None  # appends a node to a draft
    takes_open: bool = False  # whether ``to_tflite`` takes extents that follow from values

    def values(self, node: Node) -> list[Tensor]:
        """Return the inputs of a node that hold values, constants among them."""
        if self.data is None:
            return list(node.inputs)
        return [node.inputs[k] for k in self.data if k < len(node.inputs)]

    def tflite_result_scale(self, scales: Sequence[TensorScale]) -> TensorScale:
        """Return the scale of the result in TFLite.

        Args:
            scales: scales of the inputs, and last the scale of the result in the model.
        """
        if self.tflite_scale == "input":
            return scales[0]
        return self.tflite_scale or scales[-1]

    def compute(self, call: Arguments[W]) -> W:
        """Return the int8 values of the device.

        In TFLite, a QUANTIZE follows if TFLite and the model have different scales of the result.
        """
        kernel, model_scale = self.kernel, call.scales[-1]
        scale = model_scale
        if call.rescaling.kind == "gemmlowp":
            kernel, scale = self.tflite_kernel or kernel, self.tflite_result_scale(call.scales)
        assert kernel is not None, f"{self.name} has a kernel"
        result: W = kernel(replace(call, scales=[*call.scales[:-1], scale]))
        return call.rescaling.requantized(result, scale, model_scale)


OPERATORS: Registry[Operator] = Registry("npuconv.ops")


def _registering(describe: Callable[P, Operator]) -> Callable[P, None]:
    def register(*args: P.args, **fields: P.kwargs) -> None:
        operator = describe(*args, **fields)
        OPERATORS.add(operator.name, operator)

    return register


register = _registering(Operator)  # adds an operator, with the fields of ``Operator``


def operator_of(node: Node) -> Operator | None:
    """Return the description of the operator of a node; None for other domains than ONNX's."""
    return OPERATORS.get(node.op) if query.is_standard(node) else None


def values_of(node: Node) -> list[Tensor]:
    """Return the inputs of an operator that are variable values, not shapes or parameters."""
    operator, inputs = OPERATORS.get(node.op), list(node.inputs)
    if operator is not None and operator.data is not None:
        places = (*operator.data, *operator.bounds)
        inputs = [inputs[k] for k in places if k < len(inputs)]
    return [t for t in inputs if t.name and not query.is_constant(t)]


def data_inputs(node: Node) -> list[Tensor]:
    """Return the inputs of a passthrough operator that hold values, not shapes or bounds."""
    operator = OPERATORS.get(node.op)
    assert operator is not None, f"{node.op} is described"
    return operator.values(node)
