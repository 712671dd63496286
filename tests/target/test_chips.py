"""The targets of real chips: legal and illegal nodes get the verdict that the document says."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from npuconv import yamlio
from npuconv.config import Options
from npuconv.errors import TargetError
from npuconv.rules import engine
from npuconv.rules.context import RuleContext
from npuconv.target import builtin_names
from npuconv.target.lint import lint
from npuconv.yamlio import dotted
from support.asserts import builtin, findings, read
from support.builders import Net, integer_conv

CHIPS = ["ethos-u55", "horizon-x3", "mediatek-mdla2", "qnn-htp", "rknn"]


def conv(c=4, o=4, k=(3, 3), size=(32, 32), n=1, group=1, **attrs):
    net = Net(x=(n, c, *size))
    return net.conv("x", (o, c // group, *k), group=group, bias=False, **attrs).model()


def depthwise(c=4, k=(3, 3), multiplier=1, **attrs):
    return conv(c, c * multiplier, k, group=c, **attrs)


def up(c=4, o=4, k=(4, 4), size=(8, 8), group=1, **attrs):
    net = Net(x=(1, c, *size))
    weight = (c, o // group, *k)
    return net.conv("x", weight, op="ConvTranspose", group=group, bias=False, **attrs).model()


def op(name, *shapes, **attrs):
    names = [f"x{i}" for i in range(len(shapes))]
    return Net(**dict(zip(names, shapes, strict=True))).op(name, *names, **attrs).model()


def pad(amounts, **attrs):
    return Net(x=(1, 4, 8, 8)).pad(amounts, **attrs).model()


def resize(factor, size=(8, 8), mode="linear", **attrs):
    net = Net(x=(1, 4, *size))
    return net.op(
        "Resize", "x", "", net.constant([1.0, 1, factor, factor]), mode=mode, **attrs
    ).model()


def biased():
    net = Net(x=(1, 4, 8, 8))
    return net.op("Add", "x", net.random(4, 1, 1)).model()


# No convolution in it; limits that are not known; a ConvTranspose, which is always rewritten.
ASIDE = ("MDL002", "OPS005", "OPS004")


def said(proto, chip):
    """Return the findings on the model as it is."""
    ctx = RuleContext(read(proto), builtin(chip), Options())
    found = [f for f in engine.lint(ctx) if f.code not in ASIDE]
    return [f.value or f.limit for f in found]


LEGAL = {
    "ethos-u55": [
        lambda: conv(k=(64, 1), size=(80, 8)),
        # three axes of any length, or the axes of a pixel shuffle as far as Vela moves them
        lambda: op("Transpose", (1, 48, 400, 400), perm=[0, 2, 3, 1]),
        lambda: op("Transpose", (24, 2, 1936), perm=[1, 0, 2]),
        lambda: op("Transpose", (1, 4, 64, 32, 32), perm=[0, 2, 1, 3, 4]),
        lambda: op("Transpose", (2, 48, 256, 256), perm=[0, 2, 3, 1]),
        lambda: conv(k=(64, 64), size=(70, 70)),
        lambda: conv(strides=[3, 3]),
        lambda: conv(k=(3, 4), strides=[1, 4], size=(32, 32)),
        lambda: conv(k=(1, 6), strides=[1, 9], size=(32, 33)),
        # one line of output: any stride
        lambda: conv(k=(32, 3), strides=[7, 3]),
        lambda: conv(8, 8, group=2),
        lambda: depthwise(strides=[3, 3]),
        lambda: up(k=(4, 4), strides=[2, 2], pads=[1, 1, 1, 1]),
        lambda: up(k=(3, 3), strides=[2, 2]),
        lambda: up(k=(1, 4), size=(1, 8), strides=[1, 2], pads=[0, 1, 0, 1]),
        lambda: op("MaxPool", (1, 4, 300, 300), kernel_shape=[256, 256], strides=[3, 3]),
        lambda: op("AveragePool", (1, 4, 32, 32), kernel_shape=[9, 9]),
        lambda: op("Add", (1, 4, 8, 8), (1, 1, 8, 1)),
        lambda: pad([0, 0, 1, 1, 0, 0, 1, 1]),
        lambda: op("Squeeze", (7, 4, 1, 8)),
        lambda: op("GlobalAveragePool", (1, 4, 16, 4096)),
        lambda: op("Softmax", (5, 10)),
        lambda: resize(2.0),
        lambda: resize(8.0, coordinate_transformation_mode="asymmetric"),
        lambda: resize(3.0, size=(1, 1)),
    ],
    "horizon-x3": [
        lambda: conv(k=(7, 7)),
        lambda: conv(4096, 4, (1, 1)),
        lambda: conv(strides=[9, 5]),
        lambda: conv(dilations=[2, 4], strides=[2, 2]),
        lambda: conv(strides=[2, 2]),
        lambda: conv(n=128),
        lambda: up(strides=[2, 4]),
        lambda: up(k=(4, 4), strides=[2, 2], pads=[1, 1, 1, 1]),
        lambda: op("MaxPool", (1, 4, 64, 64), kernel_shape=[64, 1], strides=[185, 1]),
        lambda: op("AveragePool", (1, 4, 8, 8), kernel_shape=[7, 7]),
        lambda: op("GlobalAveragePool", (1, 4, 128, 64)),
        lambda: depthwise(k=(1, 1)),
        lambda: conv(pads=[2, 2, 2, 2], dilations=[2, 2]),
        lambda: conv(pads=[1, 1, 1, 1]),
        lambda: op("Concat", (1, 1024, 2, 2), (1, 1024, 2, 2), axis=1),
        lambda: pad([0, 0, 1, 1, 0, 0, 1, 1]),
        lambda: op("DepthToSpace", (1, 8, 4, 4), blocksize=2),
        lambda: op("Sigmoid", (1, 32, 16, 16)),
        lambda: op("Add", (1, 4, 8, 8), (1, 4, 1, 1)),
        lambda: op("Mul", (1, 4, 8, 8), (1, 1, 1, 1)),
        lambda: op("Reciprocal", (1, 4, 8, 8)),
        lambda: resize(3.0),
        lambda: resize(4.0, mode="nearest", coordinate_transformation_mode="asymmetric"),
        # 3 x 7 is 4 x 8 or 32 x 7 to the device: the smaller fits
        lambda: op("Sigmoid", (1, 3, 256, 7)),
    ],
    "mediatek-mdla2": [
        lambda: conv(k=(16, 16)),
        lambda: conv(8194, 4, (1, 1), size=(2, 2)),
        lambda: conv(strides=[8, 3]),
        lambda: conv(dilations=[8, 4]),
        lambda: conv(n=300),
        lambda: conv(k=(1, 1)),
        lambda: conv(pads=[15, 15, 15, 15]),
        lambda: depthwise(k=(8, 8), strides=[4, 3]),
        # only of plain convolutions is it said that dilation forbids strides
        lambda: depthwise(dilations=[2, 2], strides=[2, 2]),
        lambda: op("AveragePool", (1, 4, 32, 32), kernel_shape=[8, 8], strides=[8, 8]),
        lambda: op("AveragePool", (1, 4, 32, 32), kernel_shape=[32, 32]),
        lambda: op("GlobalAveragePool", (1, 4, 512, 512)),
    ],
    "qnn-htp": [
        lambda: conv(k=(64, 64), size=(64, 64), strides=[64, 64]),
        lambda: depthwise(dilations=[64, 64], size=(129, 129)),
        lambda: up(8, 8, group=2, strides=[3, 3]),
        lambda: op("MaxPool", (1, 4, 64, 64), kernel_shape=[64, 64], strides=[2, 1]),
        lambda: op("Transpose", (1, 4, 8, 4, 4), perm=[0, 2, 1, 3, 4]),
        lambda: resize(1.5, coordinate_transformation_mode="align_corners"),
        lambda: op("Softmax", (1, 4, 8, 8), axis=2),
    ],
    "rknn": [
        lambda: conv(k=(63, 63), size=(64, 64)),
        lambda: conv(strides=[7, 7]),
        lambda: conv(pads=[64, 64, 64, 64]),
        lambda: conv(dilations=[64, 64], size=(129, 129)),
        lambda: conv(8, 8, group=2),
        lambda: conv(k=(2, 1), size=(2, 65536)),
        lambda: depthwise(k=(31, 31)),
        lambda: conv(auto_pad="SAME_UPPER"),
        lambda: up(k=(2, 2), strides=[2, 2]),
        lambda: up(8, 8, group=2, strides=[2, 2]),
        lambda: up(dilations=[2, 2]),
        lambda: op("MaxPool", (1, 4, 64, 64), kernel_shape=[32, 32], strides=[16, 16]),
        lambda: op("MaxPool", (1, 4, 9, 9), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        lambda: op("AveragePool", (1, 4, 64, 64), kernel_shape=[64, 64], strides=[64, 64]),
        lambda: op(
            "AveragePool", (1, 4, 8, 8), kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1
        ),
        lambda: op("GlobalAveragePool", (1, 4, 400, 400)),
        lambda: pad([0, 1, 0, 0, 0, 1, 0, 0], value=3.0),
        lambda: pad([0, 0, 1, 1, 0, 0, 1, 1], mode="reflect"),
        lambda: op("Sub", (1, 4, 8, 8), (1, 4, 8, 1)),
        lambda: op("Softmax", (1, 4, 8, 8), axis=2),
        lambda: op("Transpose", (1, 4, 7, 7), perm=[0, 2, 3, 1]),
        lambda: op("Transpose", (1, 4, 128, 128), perm=[0, 3, 1, 2]),
        lambda: op("HardSigmoid", (1, 4, 8, 8)),
        lambda: op("Elu", (1, 4, 8, 8), alpha=0.5),
        lambda: op("DepthToSpace", (1, 64, 4, 4), blocksize=8),
        lambda: resize(2.0),
        lambda: resize(1 / 3, size=(9, 9), coordinate_transformation_mode="asymmetric"),
        lambda: resize(1.5, mode="nearest", coordinate_transformation_mode="align_corners"),
        lambda: op("MatMul", (1, 4, 128, 64), (1, 4, 64, 128)),
    ],
}

STRIDE_W = "in_w % (stride_w / 2) == 0 || stride_w % 3 == 0"
ILLEGAL = {
    "ethos-u55": [
        (lambda: op("Transpose", (1, 4, 64, 32, 33), perm=[0, 2, 1, 3, 4]), "all_but_two <= 65536"),
        (lambda: op("Transpose", (2, 48, 256, 257), perm=[0, 2, 3, 1]), "all_but_two <= 65536"),
        (lambda: conv(k=(65, 1), size=(80, 8)), "dilated_kernel_h=65"),
        (lambda: conv(k=(33, 1), size=(80, 8), dilations=[2, 1]), "dilated_kernel_h=65"),
        (lambda: conv(k=(64, 65), size=(70, 70)), "dilated_kernel_h * dilated_kernel_w <= 4096"),
        (lambda: conv(strides=[4, 1]), "stride_h <= 3 when"),
        (lambda: conv(strides=[1, 5]), STRIDE_W),
        (lambda: conv(strides=[1, 8], size=(32, 31)), STRIDE_W),
        (lambda: conv(n=2), "in_n=2"),
        (lambda: conv(k=(1, 1), size=(1, 65536)), "in_w=65536"),
        (lambda: depthwise(strides=[1, 4], size=(32, 32)), "stride_w=4"),
        (lambda: depthwise(multiplier=2), "in_c == 1 && out_c == channel_multiplier"),
        (lambda: up(strides=[2, 1], pads=[1, 1, 1, 1]), "stride_h in [1, 2]"),
        (lambda: up(strides=[3, 3], k=(3, 3)), "stride_h in [1, 2]"),
        (lambda: up(strides=[2, 2], pads=[0, 0, 1, 1]), "in_h * stride_h + kernel_h - stride_h"),
        (lambda: up(k=(2, 2), strides=[2, 2], group=4), "group=4"),
        (lambda: op("MaxPool", (1, 4, 300, 300), kernel_shape=[257, 1]), "kernel_h=257"),
        (lambda: op("MaxPool", (1, 4, 300, 300), kernel_shape=[256, 257]), "kernel_area=65792"),
        (
            lambda: op("AveragePool", (1, 4, 32, 32), kernel_shape=[9, 9], pads=[1] * 4),
            "kernel_h <= 8 && kernel_w <= 8 when pad_max > 0",
        ),
        (lambda: op("Add", (1, 4, 1, 8), (1, 1, 8, 1)), "in_h == out_h"),
        (lambda: op("Relu", (1, 2, 2, 2, 2)), "rank=5"),
        (lambda: op("GlobalAveragePool", (1, 4, 2, 4097)), "in_w <= 4096"),
        (lambda: resize(3.0), "out_h == 2 * in_h"),
        (lambda: resize(4.0), 'resize_mode == "linear"'),
        (lambda: pad([0, 1, 0, 0, 0, 0, 0, 0]), "pad_outside_hw=1"),
        (lambda: pad([0, 0, 1, 1, 0, 0, 1, 1], mode="reflect"), "pad_mode=reflect"),
    ],
    "horizon-x3": [
        (lambda: conv(k=(8, 7)), "kernel_h=8"),
        (lambda: conv(4097, 4, (1, 1), size=(2, 2)), "in_c_per_group=4097"),
        (lambda: conv(4098, 2, (1, 1), size=(2, 2), group=2), "in_c_per_group=2049"),
        (lambda: conv(2049, 4, (2, 1), size=(4, 4), dilations=[2, 2]), "in_c_per_group <= 2048"),
        (lambda: conv(1000, 4, (7, 7), size=(8, 8)), "kernel_volume=49000"),
        (lambda: conv(dilations=[3, 4]), "dilation_h=3"),
        (lambda: conv(dilations=[4, 4], strides=[3, 1]), "dilation_h % stride_h == 0"),
        (lambda: conv(dilations=[4, 2]), "dilation_h <= dilation_w"),
        (lambda: conv(auto_pad="SAME_UPPER"), "auto_pad=SAME_UPPER"),
        (lambda: conv(n=129), "in_n=129"),
        (lambda: up(k=(1, 4), strides=[2, 2]), "kernel_h=1"),
        (lambda: up(strides=[3, 4]), "stride_h=3"),
        (lambda: up(strides=[4, 2]), "stride_h <= stride_w"),
        (lambda: up(strides=[2, 2], pads=[2, 1, 1, 1]), "pad_top <= (kernel_h - 1) / 2"),
        (lambda: up(strides=[2, 2], output_padding=[1, 0]), "output_padding_h=1"),
        (lambda: op("MaxPool", (1, 4, 80, 80), kernel_shape=[65, 1]), "kernel_h=65"),
        (lambda: op("AveragePool", (1, 4, 8, 8), kernel_shape=[8, 7]), "kernel_h=8"),
        (lambda: op("GlobalAveragePool", (1, 4, 128, 65)), "in_h * in_w <= 8192"),
        (lambda: op("GlobalAveragePool", (1, 4, 129, 1)), "in_h=129"),
        (lambda: conv(pads=[0, 0, 2, 0]), "pad_bottom <= dilated_kernel_h / 2"),
        (lambda: up(k=(12, 4), strides=[2, 2], pads=[2, 1, 3, 1]), "pad_top >= kernel_h - 9"),
        (lambda: up(group=4, strides=[2, 2]), "out_c % 8 == 0"),
        (lambda: op("Concat", (1, 1024, 2, 2), (1, 1025, 2, 2), axis=1), "out_c=2049"),
        (lambda: pad([0, 1, 0, 0, 0, 1, 0, 0]), "pad_outside_hw=1"),
        (lambda: op("DepthToSpace", (1, 9, 4, 4), blocksize=3), "blocksize=3"),
        (lambda: op("Sigmoid", (1, 33, 16, 16)), "<= 8192"),
        (lambda: op("Sigmoid", (2, 3, 4, 4)), "in_n=2"),
        (lambda: op("Add", (1, 4, 8, 8), (1, 1, 8, 8)), "broadcast=c"),
        (lambda: biased(), "!constant_operand"),
        (lambda: op("Mul", (1, 4, 8, 8), (1, 4, 8, 1)), "broadcast=w"),
        (lambda: resize(3.0, mode="nearest"), "out_h % in_h == 0"),
        (lambda: op("Sqrt", (1, 33, 16, 16)), "<= 8192"),
    ],
    "mediatek-mdla2": [
        (lambda: conv(k=(17, 1)), "kernel_h=17"),
        (lambda: conv(8195, 4, (1, 1), size=(2, 2)), "in_c=8195"),
        (lambda: conv(8, 8, group=2), "mode=grouped"),
        (lambda: conv(strides=[5, 1]), "stride_h=5"),
        (lambda: conv(dilations=[2, 1], strides=[1, 2]), "stride_h == 1 && stride_w == 1"),
        (lambda: conv(dilations=[1, 3]), "dilation_w=3"),
        (lambda: conv(k=(1, 1), pads=[1, 1, 1, 1]), "pad_max == 0"),
        (lambda: conv(pads=[16, 0, 0, 0]), "pad_top=16"),
        (lambda: depthwise(k=(9, 1)), "kernel_h=9"),
        (lambda: depthwise(strides=[8, 1]), "stride_h=8"),
        (lambda: depthwise(strides=[4, 1]), "stride_h <= kernel_h"),
        (lambda: op("AveragePool", (1, 4, 32, 32), kernel_shape=[9, 1]), "kernel_h <= 8"),
        (
            lambda: op("AveragePool", (1, 4, 32, 32), kernel_shape=[2, 2], strides=[3, 1]),
            "stride_h <= kernel_h",
        ),
        (lambda: op("GlobalAveragePool", (1, 4, 513, 512)), "in_h * in_w <= 262144"),
        (lambda: op("Abs", (256, 4, 8, 8)), "in_n=256"),
    ],
    "qnn-htp": [
        (lambda: up(dilations=[2, 1]), "dilation_h=2"),
        (
            lambda: op("MaxPool", (1, 4, 8, 8), kernel_shape=[3, 3], dilations=[2, 2]),
            "dilation_h=2",
        ),
        (
            lambda: op("Transpose", (1, 4, 2, 2, 8, 8), perm=[0, 1, 4, 2, 5, 3]),
            "rank=6",
        ),
    ],
    "rknn": [
        (lambda: conv(k=(64, 1), size=(80, 8)), "kernel_h=64"),
        (lambda: conv(strides=[8, 1]), "stride_h=8"),
        (lambda: conv(pads=[0, 0, 65, 0]), "pad_bottom=65"),
        (lambda: conv(pads=[0, 0, 3, 0]), "pad_bottom < dilated_kernel_h when pad_max <= 15"),
        (lambda: conv(k=(2, 1), size=(80, 8), dilations=[65, 1]), "dilation_h=65"),
        (lambda: up(strides=[3, 1]), "stride_h=3"),
        (lambda: up(k=(32, 1), strides=[2, 1]), "kernel_h=32"),
        (lambda: up(k=(2, 1), size=(2, 16383)), "in_w < 16383 when dilated_kernel_h > 1"),
        (lambda: op("MaxPool", (1, 4, 64, 64), kernel_shape=[33, 1]), "kernel_h=33"),
        (
            lambda: op(
                "AveragePool", (1, 4, 9, 9), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1
            ),
            "ceil_mode=true",
        ),
        (
            lambda: op("AveragePool", (1, 4, 8, 8), kernel_shape=[3, 3], pads=[1] * 4),
            "count_include_pad when pad_max > 0",
        ),
        (lambda: op("GlobalAveragePool", (1, 4, 401, 7)), "in_h=401"),
        (lambda: pad([0, 0, 1, 1, 0, 0, 1, 1], mode="edge"), "pad_mode=edge"),
        (lambda: op("Transpose", (1, 4, 8, 8), perm=[1, 0, 2, 3]), "perm=1,0,2,3"),
        (lambda: op("Transpose", (1, 4, 128, 129), perm=[0, 3, 1, 2]), "in_h * in_w <= 16384"),
        (lambda: op("Transpose", (1, 17, 2, 8192), perm=[0, 2, 3, 1]), "in_c * in_w <= 131072"),
        (lambda: op("DepthToSpace", (1, 9, 4, 4), blocksize=3), "blocksize=3"),
        (
            lambda: resize(2.0, coordinate_transformation_mode="align_corners"),
            'coordinate_mode == "half_pixel"',
        ),
        (lambda: resize(1.5), "out_h % in_h == 0"),
        (lambda: op("MatMul", (1, 2, 8193), (1, 8193, 2)), "depth=8193"),
        (lambda: op("MatMul", (1, 4, 400, 64), (1, 4, 64, 400)), "depth * out_w <= 16384"),
    ],
}


def cases(table):
    return [
        pytest.param(chip, case, id=f"{chip}-{i}")
        for chip, listed in table.items()
        for i, case in enumerate(listed)
    ]


@pytest.mark.parametrize("name", builtin_names())
def test_lints_clean(name):
    """Every problem would be one line."""
    assert lint(yamlio.loads(builtin(name).yaml, name=name, error=TargetError)) == []


@pytest.mark.parametrize("name", builtin_names())
def test_is_called_as_its_file(name):
    """Reports show the name, commands take that of the file."""
    target = builtin(name)
    assert target.name == target.file == name
    assert target.version
    assert target.description.strip()
    assert pickle.loads(pickle.dumps(target)).operator("Conv")


@pytest.mark.parametrize("name", CHIPS)
def test_every_part_cites_a_document(name):
    """Every document is cited."""
    target = builtin(name)
    uncited = [path for path, part in target.cited() if not part.source and path != ("costs",)]
    # a known zero point and the block it stands in may share one source
    assert [path for path in uncited if path != ("activations", "zero_point")] == []
    cited = {part.source.partition("/")[0] for _, part in target.cited() if part.source}
    assert cited == set(target.sources)


@pytest.mark.parametrize("name", CHIPS)
def test_what_npuconv_makes_is_what_the_chip_reads(name):
    """Numbers: int8 with zero point 0, int8 weights per channel, int32 bias."""
    assert not findings(conv(), "QNT003", name)


@pytest.mark.parametrize(("chip", "build"), cases(LEGAL))
def test_legal(chip, build):
    """At the edge, and still within."""
    assert said(build(), chip) == []


@pytest.mark.parametrize(("chip", "case"), cases(ILLEGAL))
def test_illegal(chip, case):
    """Just beyond; the finding shows by how much."""
    build, expected = case
    assert any(expected in one for one in said(build(), chip)), said(build(), chip)


def test_ethos_bounds_the_sum_of_the_weights():
    """Known only once they are integers."""
    heavy = np.full((1, 8323072 // 127 + 1, 1, 1), 127, np.int8)
    assert findings(integer_conv(heavy), "QNT002", "ethos-u55")
    assert not findings(integer_conv(heavy[:, 1:]), "QNT002", "ethos-u55")


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_ethos_takes_8_bit_types(kind):
    """Signed or not."""
    weight = np.ones((4, 4, 3, 3), kind)
    assert not findings(integer_conv(weight, dtype=kind), "DTY001", "ethos-u55")
    assert bool(findings(integer_conv(weight, dtype=kind), "DTY001", "rknn")) is (kind is np.uint8)


def test_what_mdla_does_not_say_is_asked():
    """The limits of TransposeConv2D exist and have not been read."""
    unknown = {dotted(path) for path, _ in builtin("mediatek-mdla2").unknown_limits()}
    assert {f"operators.ConvTranspose.limits.{k}" for k in ("kernel_h", "stride_w")} <= unknown
