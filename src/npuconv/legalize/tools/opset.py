"""Conversion of a model from one opset to another.

A node crosses each version of its operator in order. For most versions the two schemas suffice:
an attribute becomes the input of that name, a default that changes is written out. ``STEPS``
holds the changes that schemas do not show. A node that cannot cross a version keeps the model
below it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from npuconv.lazy import np, onnx
from npuconv.legalize.log import Log
from npuconv.model import Graph, Model, Node, Tensor, edit, query
from npuconv.model.core import subgraphs
from npuconv.records import dataclass
from npuconv.version import OLDEST_OPSET

DECIDED = 28  # newest opset whose changes are known here: no node crosses a later one


class _ObstacleError(Exception):
    """A node cannot cross a version of its operator."""

    node: Node
    target: int  # opset that it cannot reach
    last = 0  # newest opset that the node reaches


def _require(condition: object, otherwise: str) -> None:
    if not condition:
        raise _ObstacleError(otherwise)


def newer_node(model: Model, target: int) -> Node | None:
    """Return the first node that an older opset reads differently, or not at all."""
    for node, _ in model.walk():
        draft = _Draft(model, model.graph, node)
        try:
            if query.is_standard(node):
                draft.check(target)
                draft.cross(target, model.opset)
        except _ObstacleError:
            return node
        if draft.is_changed:
            return node
    return None


def obstacle(model: Model, target: int) -> str:
    """Return the node that keeps the model from an opset, with the reason; '' if there is none."""
    if model.opset > target:
        node = newer_node(model, target)
        return "" if node is None else f"{node.op} at {model.label(node)!r} is not in the older one"
    target = target if model.opset >= OLDEST_OPSET else OLDEST_OPSET
    errors = _plan(model, target)[2] if model.opset < target else []
    return "".join(f"{e.node.op} at {model.label(e.node)!r}: {e}" for e in errors[-1:])


def raise_to(model: Model, log: Log, target: int, least: int) -> int:
    """Convert the model to the newest opset from ``least`` to ``target`` that every node reaches.

    Returns:
        Number of converted nodes, plus 1 for the opset itself; 0 if nothing changes.
    """
    source = model.opset
    reached, drafts, errors = _plan(model, target)
    for error in errors:
        log.refuse(model, error.node, f"opset {source} -> {error.target}: {error}")
    if reached < least:
        return 0
    for draft in drafts:
        operators = " + ".join(step.op for step in draft.steps)
        legacy = source < 7 and draft.node.op in _BROADCASTING  # no runtime runs it: no comparison
        with log.rewrite(
            model, [draft.node], f"{draft.node.op} of opset {source}", f"{operators} of {reached}",
            modulus=None, measure=draft.graph is model.graph and not legacy,
        ):  # fmt: skip
            model.graph.opset = reached  # opset of the new region
            draft.write()
        model.graph.opset = source  # opset of the next old region
    if reached > source:
        with log.rewrite(model, [], f"opset {source}", f"opset {reached}", measure=False):
            model.graph.opset = reached
    return len(drafts) + (reached > source)


def _plan(model: Model, target: int) -> tuple[int, list[_Draft], list[_ObstacleError]]:
    """Return the newest opset that every node reaches, the nodes that change, and obstacles."""
    errors = []
    while target >= model.opset:
        nodes = _all_nodes(model.graph)
        drafts = [_Draft(model, graph, n) for graph, n in nodes if query.is_standard(n)]
        for draft in drafts:
            try:
                draft.cross(model.opset, target, runnable=True)
            except _ObstacleError as error:
                error.node, error.target, target = draft.node, target, error.last
                errors.append(error)
                break
        else:
            return target, [draft for draft in drafts if draft.is_changed], errors
    return 0, [], errors


def _all_nodes(graph: Graph) -> Iterator[tuple[Graph, Node]]:
    for node in graph.nodes:
        yield graph, node
        for _, inner in subgraphs(node):
            yield from _all_nodes(inner)


@dataclass
class _Step:
    """A node to be written."""

    op: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    attrs: dict[str, Any]


class _Draft(_Step):
    """A node on its way to another opset, with nodes to be written before and after it."""

    def __init__(self, model: Model, graph: Graph, node: Node) -> None:
        super().__init__(node.op, list(node.inputs), list(node.outputs), dict(node.attrs))
        self.model, self.graph, self.node = model, graph, node
        self.before: list[_Step] = []
        self.after: list[_Step] = []

    @property
    def steps(self) -> list[_Step]:
        return [*self.before, self, *self.after]

    @property
    def is_changed(self) -> bool:
        node, ids = self.node, [id(t) for t in (*self.inputs, *self.outputs)]
        alike = ids == [id(t) for t in (*node.inputs, *node.outputs)] and len(self.steps) == 1
        return not alike or self.op != node.op or self.attrs != node.attrs

    def cross(self, source: int, target: int, *, runnable: bool = False) -> None:
        """Cross every version after ``source`` up to ``target``; raise _ObstacleError at the last.

        With ``runnable`` only versions for which onnxruntime has a kernel.
        """
        version = source
        if _schema(self.op, source).deprecated:
            version = max(v for v in _versions(self.op) if v <= source) - 1
        while version := next((v for v in _versions(self.op) if version < v <= target), 0):
            try:
                lacks = runnable and self.op in _UNRUNNABLE.get(version, ())
                _require(version <= DECIDED, f"npuconv does not know what opset {version} changes")
                _require(not lacks, f"onnxruntime does not run it in opset {version}")
                op, step = self.op, STEPS.get((self.op, version))
                if step is not None:
                    step(self)
                if self.op == op:
                    self._follow_schema(version, is_plain=step is None)
            except _ObstacleError as error:
                error.last = version - 1
                raise

    def _follow_schema(self, version: int, *, is_plain: bool) -> None:
        """Write attributes as inputs, and changed defaults as attributes, by two schemas."""
        from npuconv.model.surgeon import Variable

        old, new = _schema(self.op, version - 1), _schema(self.op, version)
        names = list(new.inputs)
        is_prefix = names[: len(old.inputs)] == list(old.inputs)
        _require(is_prefix or not is_plain, f"its inputs change with opset {version}")
        for name in [n for n in self.attrs if n not in new.attributes]:
            value, successor = self.attrs.pop(name), _SUCCESSORS.get(name, name)
            if successor in new.attributes:
                self.attrs[successor] = value
            elif successor in names:
                index = names.index(successor)
                values = np.atleast_1d(value) if name == "k" else np.asarray(value)
                is_float = values.size and values.dtype.kind == "f"
                floats = np.float32 if values.ndim else self.inputs[0].dtype or np.float32
                self.inputs += [Variable.empty() for _ in range(len(self.inputs), index + 1)]
                self.inputs[index] = self.constant(values, floats if is_float else np.int64)
            else:
                _require(name in _OBSOLETE, f"opset {version} has no attribute {name!r} of it")
        for name, (kind, _, default) in old.attributes.items():
            new_kind, _, new_default = new.attributes.get(name, (kind, False, default))
            if name not in self.attrs and default not in (None, new_default):
                self.attrs[name] = default.decode() if isinstance(default, bytes) else default
            if name in self.attrs and kind != new_kind:  # Cast-1 had the name of a type
                value, names_type = self.attrs[name], isinstance(self.attrs[name], str)
                _require(names_type or value == int(value), f"its {name} is {value}")
                self.attrs[name] = (
                    onnx.TensorProto.DataType.Value(value) if names_type else int(value)
                )
        self.check(version)

    def check(self, opset: int) -> None:
        """Raise _ObstacleError if the operator of an opset does not take the node."""
        schema, where = _schema(self.op, opset), f"in opset {opset}"
        _require(not schema.deprecated, f"it is deprecated {where}")
        count = max((i + 1 for i, t in enumerate(self.inputs) if t.name), default=0)
        parameters, attributes = list(schema.inputs.items()), schema.attributes.items()
        wrong = [name for name in self.attrs if name not in schema.attributes]
        wrong += [name for name, (_, must, _) in attributes if must and name not in self.attrs]
        for index, (name, (must, _)) in enumerate(parameters):
            is_missing = index >= count or not self.inputs[index].name
            wrong += [name] * (must and is_missing)
        _require(not wrong, f"{', '.join(wrong)} is another {where}")
        fits = count <= schema.most[0] and len(self.outputs) <= schema.most[1]
        _require(fits, f"it has fewer inputs or outputs {where}")
        for index, tensor in enumerate(self.inputs[:count]):
            types = parameters[min(index, len(parameters) - 1)][1][1]
            kind = _type_name(tensor.dtype) if types and tensor.name and tensor.dtype else ""
            _require(not kind or kind in types, f"it does not take {kind} {where}")

    def constant(self, values: Any, dtype: Any = "int64") -> Tensor:
        array = np.asarray(values, dtype)
        return edit.constant(self.model, f"{self.node.name}/constant", array)

    def dims(self, tensor: Tensor) -> Tensor:
        """Return the shape of a tensor as a tensor."""
        shape = query.static_shape(tensor)
        return self.put_before("Shape", tensor) if shape is None else self.constant(shape)

    def put_before(self, op: str, *inputs: Tensor, **attrs: Any) -> Tensor:
        """Write an operator before this node; return its result."""
        result = edit.variable(self.model, f"{self.node.name}/{op}")
        self.before.append(_Step(op, list(inputs), [result], attrs))
        return result

    def reshape(self, op: str, *inputs: Tensor, **attrs: Any) -> None:
        """Compute on the reshaped first input; reshape the result to the original shape."""
        result = edit.variable(self.model, f"{self.node.name}/reshaped")
        dims = self.dims(self.inputs[0])
        self.inputs[0] = self.put_before(op, self.inputs[0], *inputs, **attrs)
        self.after.append(_Step("Reshape", [result, dims], [self.outputs[0]], {}))
        self.outputs[0] = result

    def is_read(self, *indices: int) -> bool:
        """Return whether a node or graph output reads any of these outputs."""
        read = [self.outputs[i] for i in indices if i < len(self.outputs)]
        return any(t.outputs or any(t is end for end in self.graph.outputs) for t in read)

    def write(self) -> None:
        """Replace the node in its graph."""
        model, node, graph = self.model, self.node, self.graph
        edit.disconnect(node)
        position, count = [id(n) for n in graph.nodes].index(id(node)), len(graph.nodes)
        for step in self.steps:
            parts = (step.op, step.inputs, step.outputs)
            edit.add_node(model, *parts, origin=[node], attrs=step.attrs, graph=graph)
        added = graph.nodes[count:]
        del graph.nodes[count:]
        graph.nodes[position : position + 1] = added


# Versions of operators


class _Schema(NamedTuple):
    """A version of an operator, cached: onnx's own object computes its fields on every access."""

    deprecated: bool
    most: tuple[int, int]  # largest number of inputs and outputs
    inputs: dict[str, tuple[bool, frozenset[str]]]  # whether an input is required, and its types
    attributes: dict[str, tuple[Any, bool, Any]]  # type, whether an attribute is required, default


@cache
def _history() -> dict[str, list[onnx.defs.OpSchema]]:
    """Return all versions of the standard operators, oldest first."""
    schemas = defaultdict(list)
    for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda s: s.since_version):
        if schema.domain == "":
            schemas[schema.name].append(schema)
    return schemas


@cache
def _versions(op: str) -> tuple[int, ...]:
    return tuple(schema.since_version for schema in _history().get(op, ()))


@cache
def _schema(op: str, opset: int) -> _Schema:
    versions = [s for s in _history().get(op, ()) if s.since_version <= opset]
    _require(versions, f"opset {opset} does not have it")
    single, inputs, attributes = onnx.defs.OpSchema.FormalParameterOption.Single, {}, {}
    for formal in versions[-1].inputs:
        types = frozenset(t for t in formal.types if t.startswith("tensor("))
        inputs[_RENAMED.get(formal.name, formal.name)] = formal.option == single, types
    for name, a in versions[-1].attributes.items():
        default = onnx.helper.get_attribute_value(a.default_value) if a.default_value.name else None
        attributes[name] = a.type, a.required, default
    most = versions[-1].max_input, versions[-1].max_output
    return _Schema(versions[-1].deprecated, most, inputs, attributes)


_RENAMED = {"mean": "input_mean", "var": "input_var"}  # inputs of BatchNormalization-14
# Inputs and attributes with another name than the attribute that they follow.
_SUCCESSORS = {"value": "constant_value", "k": "K", "paddings": "pads"}
# Removed attributes. The number of outputs shows whether a Dropout or BatchNormalization trains:
# old exporters omit is_test.
_OBSOLETE = frozenset({"consumed_inputs", "is_test", "output_sequence", "broadcast", "spatial"})


@cache
def _type_name(dtype: Any) -> str:
    number = (
        dtype if isinstance(dtype, int) else onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    )
    return f"tensor({onnx.TensorProto.DataType.Name(number).lower()})"


# Changes that schemas do not show


def _flatten_softmax(draft: _Draft) -> None:
    """Compute in two dimensions, unless all later axes have extent 1."""
    axis, dims = int(draft.attrs.get("axis", 1)), query.shape(draft.inputs[0])
    draft.attrs["axis"] = axis
    if not dims or any(dim != 1 for dim in dims[axis % len(dims) + 1 :]):
        draft.attrs["axis"] = -1
        draft.reshape("Flatten", axis=axis)


def _normalize_groups(draft: _Draft) -> None:
    """Normalize groups as channels: GroupNormalization-18 has one scale for each group.

    It is deprecated from its first version on, but onnxruntime runs it.
    """
    draft.op, groups = "InstanceNormalization", draft.attrs.pop("num_groups")
    draft.reshape("Reshape", draft.constant([0, groups, -1]))


def _write_training_mode(draft: _Draft) -> None:
    """Write by attribute that a BatchNormalization with several outputs trains."""
    _require(not draft.is_read(3, 4), "its saved mean or variance is read")
    if len(draft.outputs) > 1:
        draft.outputs, draft.attrs["training_mode"] = draft.outputs[:3], 1


def _write_mask(draft: _Draft) -> None:
    """Write zeros for a mask that is read: onnxruntime returns these before opset 12."""
    from npuconv.model.surgeon import Constant

    draft.attrs.pop("ratio", None)  # has no effect without training
    if draft.is_read(1):
        kind = draft.inputs[0].dtype if draft.model.opset < 10 else np.bool_
        value = Constant("mask", np.zeros(1, kind or np.float32))
        dims, mask = draft.dims(draft.inputs[0]), [draft.outputs[1]]
        draft.before.append(_Step("ConstantOfShape", [dims], mask, {"value": value}))
        draft.op, draft.attrs = "Identity", {}
    draft.outputs = draft.outputs[:1]


def _broadcast(draft: _Draft) -> None:
    """Reshape the second operand so that numpy's broadcasting does the same."""
    axis, applies = draft.attrs.pop("axis", None), draft.attrs.pop("broadcast", 0)
    if axis is None or not applies:
        return
    values, rank = query.value(draft.inputs[1]), query.rank(draft.inputs[0])
    if values is None or rank is None:
        raise _ObstacleError("it broadcasts along an axis, and operand or rank is not known")
    trailing = rank - int(axis) % rank - values.ndim
    draft.inputs[1] = draft.constant(values.reshape(*values.shape, *(1,) * trailing), values.dtype)


def _write_asymmetric(draft: _Draft) -> None:
    """Write the coordinates of Resize-10 out: cell i is cell ``i / scale`` of the input."""
    scales = query.value(draft.inputs[1])
    if scales is None:
        raise _ObstacleError("its scales are not constant")
    shrinks, grows = bool((scales < 1).any()), bool((scales > 1).any())
    _require(not (shrinks and grows), "it grows along one axis and shrinks along another")
    draft.inputs.insert(1, draft.constant([], np.float32))
    draft.attrs["coordinate_transformation_mode"] = "asymmetric"
    draft.attrs["nearest_mode"] = "ceil" if shrinks else "floor"


def _update_resize(draft: _Draft) -> None:
    """Remove empty inputs of a Resize; rename coordinate modes that opset 13 lacks."""
    from npuconv.model.surgeon import Variable

    for index, tensor in enumerate(draft.inputs):
        values = query.value(tensor)
        if values is not None and not values.size:
            draft.inputs[index] = Variable.empty()
    attrs = draft.attrs
    if attrs.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        is_floor = (
            attrs.get("mode", "nearest") == "nearest" and attrs.get("nearest_mode") == "floor"
        )
        _require(is_floor, "opset 13 has no coordinates tf_half_pixel_for_nn")
        # floor((i + 0.5) / scale) is (i + 0.5) / scale - 0.5, with halves rounded up.
        attrs["coordinate_transformation_mode"] = "half_pixel"
        attrs["nearest_mode"] = "round_prefer_ceil"


def _rename_modes(draft: _Draft) -> None:
    names = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}
    mode = str(draft.attrs.get("mode", "bilinear"))
    is_old = mode in names and query.rank(draft.inputs[0]) in (None, 4)
    _require(is_old, "opset 16 does not have this mode or rank")
    draft.attrs["mode"] = names[mode]


def _count_parts(draft: _Draft) -> None:
    """Write the number of equal parts if there are no sizes."""
    if query.input_of(draft.node, 1) is None and "split" not in draft.node.attrs:
        draft.attrs.setdefault("num_outputs", len(draft.outputs))


_BROADCASTING = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
# Versions that change the meaning of a node, its inputs, or its spelling in a way that the two
# schemas do not show.
STEPS: dict[tuple[str, int], Callable[[_Draft], object]] = {
    **{(op, 7): _broadcast for op in _BROADCASTING},
    **{(op, 13): _flatten_softmax for op in ("Softmax", "LogSoftmax", "Hardmax")},
    ("BatchNormalization", 9): lambda draft: _require(
        draft.attrs.get("spatial", 1), "it has statistics for every position (spatial=0)"
    ),
    ("BatchNormalization", 14): _write_training_mode,
    ("DFT", 20): lambda draft: draft.attrs.setdefault("axis", 1),
    ("Dropout", 12): _write_mask,
    ("GRU", 3): lambda draft: draft.attrs.setdefault("direction", "forward"),  # was "foward"
    ("GridSample", 20): _rename_modes,
    ("GroupNormalization", 18): _normalize_groups,
    ("PRelu", 7): lambda draft: _require(
        query.scalar_input(draft.node, 1) is not None,
        "its slope ran along the channels before opset 7",
    ),
    ("Resize", 11): _write_asymmetric,
    ("Resize", 13): _update_resize,
    ("RoiAlign", 16): lambda draft: draft.attrs.setdefault(
        "coordinate_transformation_mode", "output_half_pixel"
    ),
    ("Scatter", 11): lambda draft: setattr(draft, "op", "ScatterElements"),
    ("Split", 2): lambda _draft: None,  # sizes are an input once more in opset 13
    ("Split", 18): _count_parts,
    ("Upsample", 10): lambda draft: setattr(draft, "op", "Resize"),
}
# Versions without a kernel in onnxruntime, which runs the version before.
_UNRUNNABLE = {
    22: {"Bernoulli", "GlobalLpPool", "MaxRoiPool", "Multinomial", "RandomNormal", "RoiAlign"}
    | {"RandomNormalLike", "RandomUniform", "RandomUniformLike"},
}
