"""Tests of what each version of each operator changes, and of how nodes cross it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import defs, helper

import npuconv
from npuconv import executor
from npuconv.legalize.tools import opset
from npuconv.model import save
from support.asserts import Passes, context, read, run, run_pass, same_numbers
from support.builders import Net

Single = defs.OpSchema.FormalParameterOption.Single
# Boundaries that no node with the changed inputs crosses: it keeps its opset, and is named.
KEPT = {("Scan", 9), ("Tile", 6), ("Upsample", 7)}
# An input by another name than the attribute was; what went without a trace.
SUCCESSORS = {"value": "constant_value", "k": "K", "paddings": "pads"}
OBSOLETE = {"consumed_inputs", "is_test", "output_sequence", "broadcast"}
RENAMED = {"mean": "input_mean", "var": "input_var"}
X = (1, 4, 6, 8)


def boundaries() -> Iterator[tuple[defs.OpSchema, defs.OpSchema]]:
    """Each version of each standard operator, and the one after it."""
    history = defaultdict(list)
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            history[schema.name].append(schema)
    for versions in history.values():
        versions.sort(key=lambda schema: schema.since_version)
        yield from pairwise(versions)


def changes(old: defs.OpSchema, new: defs.OpSchema) -> list[str]:
    """Changes of a node of the old version that do not follow from the two schemas."""
    names, inputs = ([RENAMED.get(i.name, i.name) for i in s.inputs] for s in (old, new))
    gone = set(old.attributes) - set(new.attributes) - OBSOLETE
    successors = {SUCCESSORS.get(name, name) for name in old.attributes}
    known = set(inputs) | set(new.attributes)
    found = ["deprecated"] if new.deprecated else []
    found += [name for name in gone if SUCCESSORS.get(name, name) not in known]
    found += ["inputs"] if inputs[: len(names)] != names else []
    found += ["outputs"] if new.max_output < old.max_output else []
    required = [n for n, i in zip(inputs, new.inputs, strict=True) if i.option == Single]
    found += [name for name in required if name not in names and name not in successors]
    must = [n for n, a in new.attributes.items() if a.required and n not in old.attributes]
    return found + [name for name in must if name not in successors]


def test_every_version_of_every_operator_is_decided():
    """A version that neither the schemas nor a step nor a refusal decides fails here.

    A new release of onnx fails as well: its versions are to be gone through, and what they
    change without a word in the schema gets a step, before DECIDED is raised.
    """
    assert defs.onnx_opset_version() <= opset.DECIDED
    undecided = {(new.name, new.since_version) for old, new in boundaries() if changes(old, new)}
    assert undecided - set(opset.STEPS) == KEPT
    known = {(new.name, new.since_version) for _, new in boundaries()}
    first = {("GroupNormalization", 18)}  # was deprecated with its first version
    assert set(opset.STEPS) - known == first


@pytest.mark.parametrize("version", [opset.DECIDED, opset.DECIDED + 1])
def test_a_version_that_nobody_has_decided_on(monkeypatch, version):
    """The node keeps its opset, and the model with it."""
    monkeypatch.setattr(opset, "DECIDED", version - 7)
    model = read(Net(opset=19, ir_version=9, x=X).op("Identity", name="copy").model())
    ctx = context(opset=26)
    assert run_pass("write-opset", model, ctx) == 1
    assert model.opset == version - 7 if version == opset.DECIDED else 22
    assert "'copy': npuconv does not know what opset" in opset.obstacle(model, 26)


def net(version: int, **inputs: tuple[int, ...]) -> Net:
    return Net(opset=version, ir_version=8, x=X, **inputs)


def resized(version: int, amounts: list[float], **attrs: object) -> onnx.ModelProto:
    graph = net(version)
    empty = graph.constant(np.float32([]))
    return graph.op("Resize", "x", empty, graph.constant(np.float32(amounts)), **attrs).model()


def sized(version: int) -> onnx.ModelProto:
    graph = net(version)
    empty = graph.constant(np.float32([]))
    return graph.op("Resize", "x", empty, empty, graph.constant(np.int64([1, 4, 9, 5]))).model()


def roi_align(**attrs: object) -> onnx.ModelProto:
    graph = net(10)
    rois = graph.constant([[0, 0, 4, 5], [0.5, 1.5, 5, 3]])
    inputs = ["x", rois, graph.constant(np.int64([0, 0]))]
    return graph.op("RoiAlign", *inputs, output_height=2, output_width=3, **attrs).model()


def grid_sample(**attrs: object) -> onnx.ModelProto:
    graph = net(16)
    return graph.op(
        "GridSample", "x", graph.random(1, 5, 5, 2, low=-1.2, high=1.2), **attrs
    ).model()


def trained(version: int) -> onnx.ModelProto:
    graph = net(version)
    parameters = [graph.random(4, low=0.5, high=2.0) for _ in range(4)]
    graph.op("BatchNormalization", "x", *parameters, outputs=5, momentum=0.7)
    return graph.output("t0", "t0_1", "t0_2").model()


def group_norm(groups: int = 2, version: int = 18) -> onnx.ModelProto:
    graph = Net(opset=version, x=X)
    scale, bias = graph.random(groups), graph.random(groups)
    return graph.op("GroupNormalization", "x", scale, bias, num_groups=groups).model()


def scatter() -> onnx.ModelProto:
    graph = net(10)
    indices = graph.constant(np.int64([[[[1, 0, 2]]]]))
    return graph.op("Scatter", "x", indices, graph.random(1, 1, 1, 3), axis=2).model()


def top_k() -> onnx.ModelProto:
    graph = net(9).op("TopK", k=3, axis=2, outputs=2)
    return graph.output("t0").model()


# Old nodes whose meaning would change, or that would be invalid, under a newer number.
CHANGING = {
    "hardmax-9": lambda: net(9).op("Hardmax").model(),
    "hardmax-11, axis 2": lambda: net(11).op("Hardmax", axis=2).model(),
    "hardmax-12, last axis": lambda: net(12).op("Hardmax", axis=-1).model(),
    "softmax-11 of one cell": lambda: Net(opset=11, x=(2, 5, 1, 1)).op("Softmax", axis=1).model(),
    "softmax-12, axis 0": lambda: net(12).op("Softmax", axis=0).model(),
    "logsoftmax-12": lambda: net(12).op("LogSoftmax", axis=-2).model(),
    "softmax of open extents": lambda: Net(opset=11, x=("N", 4, "H", 8)).op("Softmax").model(),
    "split-2": lambda: net(7).op("Split", axis=3, outputs=2).model(),
    "split-2 by sizes": lambda: net(7).op("Split", axis=3, split=[3, 5], outputs=2).model(),
    "split-13": lambda: net(13).op("Split", axis=-1, outputs=4).model(),
    "gridsample-16": lambda: grid_sample(),
    "gridsample-16 bilinear": lambda: grid_sample(mode="bilinear", align_corners=1),
    "gridsample-16 bicubic": lambda: grid_sample(mode="bicubic", padding_mode="border"),
    "gridsample-16 nearest": lambda: grid_sample(mode="nearest", padding_mode="reflection"),
    "roialign-10": lambda: roi_align(),
    "roialign-10 max": lambda: roi_align(mode="max", sampling_ratio=2, spatial_scale=0.5),
    "dft-17": lambda: Net(opset=17, x=(2, 6, 5, 1)).op("DFT").model(),
    "dft-17, axis 2": lambda: Net(opset=17, x=(2, 6, 5, 2)).op("DFT", axis=2, inverse=1).model(),
    "groupnormalization-18": group_norm,
    "groupnormalization-18, 4 groups": lambda: group_norm(4),
    "groupnormalization-18 in opset 20": lambda: group_norm(version=20),
    "batchnormalization-9 trains": lambda: trained(9),
    "batchnormalization-7 trains": lambda: trained(7),
    "resize-11 by sizes": lambda: sized(11),
    "resize-11": lambda: resized(11, [1, 1, 2, 3], mode="linear"),
    "resize-12, coordinates that went": lambda: resized(
        12, [1, 1, 1.7, 0.6], coordinate_transformation_mode="tf_half_pixel_for_nn",
        nearest_mode="floor",
    ),
    "scatter-9": scatter,
    "topk-1": top_k,
    "pad-2 by a value": lambda: net(9).op("Pad", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=0.5).model(),
    "pad-2 reflected": lambda: net(9).op(
        "Pad", pads=[0, 0, 1, 0, 0, 0, 0, 2], mode="reflect", value=0.0
    ).model(),
    "clip-6 from below": lambda: net(7).op("Clip", min=0.1).model(),
    "reducemean-13 of all axes": lambda: net(13).op("ReduceMean", keepdims=0).model(),
    "reducel2-11": lambda: net(11).op("ReduceL2", axes=[1, -1]).model(),
    "squeeze-1": lambda: net(9).op("Squeeze", axes=[0]).model(),
    "upsample-9": lambda: net(8).op("Upsample", scales=[1.0, 1.0, 2.0, 3.0]).model(),
}  # fmt: skip
SAME = {
    "averagepool-7": lambda: net(7).op("AveragePool", kernel_shape=[3, 3], pads=[1] * 4).model(),
    "averagepool-10, rounded up": lambda: net(10).op(
        "AveragePool", kernel_shape=[3, 2], strides=[2, 3], ceil_mode=1, count_include_pad=1,
        pads=[1, 0, 1, 1],
    ).model(),
    "maxpool-10, rounded up": lambda: net(10).op(
        "MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, pads=[1] * 4
    ).model(),
    "lppool-11": lambda: net(11).op(
        "LpPool", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"
    ).model(),
    "batchnormalization-9": lambda: net(9).batchnorm(4).model(),
    "celu-12": lambda: net(12).op("Celu").model(),
}  # fmt: skip


def raised(build, wanted: int) -> tuple[onnx.ModelProto, Passes]:
    model, ctx = read(build()), context(opset=wanted)
    run_pass("raise-opset", model, ctx)
    run_pass("write-opset", model, ctx)
    return model, ctx


@pytest.mark.parametrize("wanted", [17, 21, 26])
@pytest.mark.parametrize("build", [*CHANGING.values(), *SAME.values()], ids=[*CHANGING, *SAME])
def test_the_same_numbers(build, wanted):
    """Each node gives in the newer opset what onnxruntime makes of it in its own."""
    proto = build()
    model, ctx = raised(build, wanted)
    reached = 21 if "RoiAlign" in {n.op_type for n in proto.graph.node} else 26
    assert model.opset == min(max(wanted, proto.opset_import[0].version), reached)
    assert all(r.reference in ("onnxruntime", "nothing to compare") for r in ctx.rewrites)
    same_numbers(proto, model)


@pytest.mark.parametrize("build", SAME.values(), ids=SAME)
def test_nodes_that_stay(build):
    """Only the number of the opset changes."""
    model, ctx = raised(build, 26)
    assert model.opset == 26
    assert {r.reference for r in ctx.rewrites} == {"nothing to compare"}


@pytest.mark.parametrize(("version", "dtype"), [(7, np.float32), (9, np.float32), (10, np.bool_)])
def test_a_mask_that_is_read(version, dtype):
    """Before opset 12 onnxruntime makes zeros of it, before opset 10 as numbers."""
    graph = net(version).op("Dropout", outputs=2)
    proto = graph.output("t0", "t0_1").model()
    for output, kind in zip(proto.graph.output, (np.float32, dtype), strict=True):
        output.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    model, _ = raised(lambda: proto, 21)
    assert model.opset == 21
    for old, new in zip(run(proto), run(save.to_proto(model)), strict=True):
        assert old.dtype == new.dtype
        assert np.array_equal(old, new)


def test_a_branch_is_raised_as_well():
    """The nodes of a subgraph are converted in their place."""
    taken = Net(opset=11, prefix="a/").op("Hardmax", "x").op("Neg")
    other = Net(opset=11, prefix="b/").op("Split", "x", axis=3, outputs=2)
    proto = Net(opset=11, x=X).branch(taken, other).model()
    model, _ = raised(lambda: proto, 21)
    assert model.opset == 21
    assert [n.op for n, path in model.walk() if path] == [
        "Split", "Flatten", "Hardmax", "Reshape", "Neg",
    ]  # fmt: skip
    same_numbers(proto, model)


REFUSED = {
    "its saved mean or variance is read": (
        lambda: _with_outputs(trained(9), "t0", "t0_3"), 14,
    ),
    "it has statistics for every position (spatial=0)": (
        lambda: net(7).op("BatchNormalization", "x", *_positions(), spatial=0).model(), 14,
    ),
    "opset 13 has no coordinates tf_half_pixel_for_nn": (
        lambda: resized(11, [1, 1, 2, 2], coordinate_transformation_mode="tf_half_pixel_for_nn"),
        14,
    ),
}  # fmt: skip


def _with_outputs(proto: onnx.ModelProto, *names: str) -> onnx.ModelProto:
    del proto.graph.output[:]
    proto.graph.output.extend(helper.make_tensor_value_info(n, 1, None) for n in names)
    return proto


def _positions() -> list[str]:
    return ["x"] * 4


@pytest.mark.parametrize(("reason", "build"), [(k, b) for k, (b, _) in REFUSED.items()])
def test_what_cannot_cross_is_named(reason, build):
    """The model keeps its opset, and nothing in it changes."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass("raise-opset", model, ctx) == 0
    assert model.opset == proto.opset_import[0].version
    obstacle = opset.obstacle(model, 14)
    assert obstacle.endswith(reason)
    assert [r.reason for r in ctx.refusals] == [
        f"opset {model.opset} -> 14: {obstacle.split(': ', 1)[1]}"
    ]


def test_the_newest_opset_that_every_node_reaches():
    """onnxruntime has no RoiAlign-22: the file is of opset 21, and MDL006 names the node."""
    graph = Net(opset=18, x=X).conv(weight=(4, 4, 3, 3))
    rois = graph.constant(np.float32([[0, 0, 4, 5]]))
    graph.op(
        "RoiAlign", graph.last, rois, graph.constant(np.int64([0])), output_height=4, name="roi"
    )
    result = npuconv.convert(graph.model(), format="float", opset=24)
    assert result.model.opset_import[0].version == 21
    (found,) = [f for f in result.report.findings if f.code == "MDL006"]
    assert "21, not 24: RoiAlign at 'roi': onnxruntime does not run it in opset 22" in found.message


@pytest.mark.parametrize("op", ["RoiAlign", "GlobalLpPool", "MaxRoiPool"])
def test_kernels_that_onnxruntime_lacks(op):
    """Fails once onnxruntime has the kernel: then the operator can go from the table."""
    if op == "RoiAlign":
        proto = roi_align()
    elif op == "MaxRoiPool":
        graph = net(7)
        proto = graph.op(
            op, "x", graph.constant(np.float32([[0, 0, 0, 3, 3]])), pooled_shape=(2, 2)
        ).model()
    else:
        proto = net(7).op(op).model()
    proto.opset_import[0].version = 22
    with pytest.raises(executor.RuntimeRefusedError, match="Could not find an implementation"):
        executor.Session(proto, threads=1)


LOWERED = [
    (lambda: Net(opset=21, ir_version=10, x=X).op("GridSample", "x", "x").model(), False),
    (lambda: Net(opset=20, ir_version=9, x=X).op("Split", num_outputs=2, outputs=2).model(), False),
    (lambda: Net(opset=20, ir_version=9, x=X).op("HardSwish").model(), True),
    (lambda: Net(opset=22, ir_version=10, x=X).op("Softmax", axis=1).model(), True),
]


@pytest.mark.parametrize(("build", "lowers"), LOWERED)
def test_an_older_opset_with_the_same_meaning(build, lowers):
    """A node is read in an older opset only if a node of that opset would become this one."""
    model = read(build())
    (node,) = model.nodes()
    assert opset.newer_node(model, 17) is (None if lowers else node)


def test_a_type_that_the_older_version_does_not_take():
    """ReduceMax takes booleans since opset 20."""
    model = read(Net(opset=20, ir_version=9, x=X).op("IsNaN").op("ReduceMax", name="any").model())
    assert opset.newer_node(model, 19).op == "ReduceMax"
    assert opset.newer_node(model, 20) is None
