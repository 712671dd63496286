"""C header: a compiler takes it, and a layer computed by it is right."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.evaluate.pairs import open_model
from npuconv.evaluate.split import split
from npuconv.evaluate.vectors import device_layers, simulate, target_of
from npuconv.target import Target
from support.builders import Net
from support.int8_pairs import integer_model

COMPILER = shutil.which("cc")

# A driver's loops: one image [C][H][W] from stdin, one to stdout, by the float factor or by
# multiplier and shift, rounded in one of the ways that a target file can say.
PROGRAM = r"""
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "weights.h"

static int8_t saturated(long v) { return (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v); }

#define FLOAT 0
#define HALF_AWAY 1
#define HALF_UP 2
#define HALF_EVEN 3
#define GEMMLOWP 4

static int64_t away(int64_t v, int places) { /* v / 2**places, half a step away from zero */
  int64_t power = (int64_t)1 << places, half = power >> 1;
  return places == 0 ? v : (v + (v < 0 ? -half : half)) / power;
}

static long scaled(int32_t sum, float factor, int32_t multiplier, int shift) {
  int64_t product = (int64_t)sum * multiplier, half = shift ? (int64_t)1 << (shift - 1) : 0;
#if FORM == FLOAT
  (void)product, (void)half, (void)away;
  return (long)rintf((float)sum * factor);
#elif FORM == HALF_AWAY
  (void)half, (void)factor;
  return (long)away(product, shift);
#elif FORM == HALF_UP
  (void)away, (void)factor;
  return (long)((product + half) >> shift);
#elif FORM == HALF_EVEN
  (void)away, (void)factor;
  int64_t whole = product >> shift, rest = product - (whole << shift);
  return (long)(whole + (rest > half || (rest == half && shift && (whole & 1))));
#else /* TFLite: MultiplyByQuantizedMultiplier */
  int exponent = 31 - shift;
  int64_t left = (int64_t)sum << (exponent > 0 ? exponent : 0);
  left = left < INT32_MIN ? INT32_MIN : left > INT32_MAX ? INT32_MAX : left;
  (void)product, (void)half, (void)factor;
  return (long)away((left * multiplier + ((int64_t)1 << 30)) >> 31, exponent < 0 ? -exponent : 0);
#endif
}

int main(void) {
  const npuconv_layer *l = &npuconv_layers[LAYER];
  unsigned char *data = malloc(NPUCONV_WEIGHTS_BYTES);
  FILE *file = fopen("weights.bin", "rb");
  if (!file || fread(data, 1, NPUCONV_WEIGHTS_BYTES, file) != NPUCONV_WEIGHTS_BYTES) return 1;
  const int8_t *w = (const int8_t *)(data + l->weight_offset);
  const int32_t *bias = (const int32_t *)(data + l->bias_offset);
  int H = l->input_size[0], W = l->input_size[1], per = l->inputs / l->group;
  int8_t *x = malloc(l->inputs * H * W);
  if (fread(x, 1, l->inputs * H * W, stdin) != (size_t)(l->inputs * H * W)) return 2;
  for (int m = 0; m < l->outputs; m++)
    for (int i = 0; i < l->output_size[0]; i++)
      for (int j = 0; j < l->output_size[1]; j++) {
        int32_t sum = bias[m];
        int first = m / (l->outputs / l->group) * per;
        for (int c = 0; c < per; c++)
          for (int a = 0; a < l->kernel[0]; a++)
            for (int b = 0; b < l->kernel[1]; b++) {
              int r = i * l->strides[0] + a * l->dilations[0] - l->pad_begin[0];
              int s = j * l->strides[1] + b * l->dilations[1] - l->pad_begin[1];
              int v = r < 0 || s < 0 || r >= H || s >= W ? 0 : x[((first + c) * H + r) * W + s];
              int k = ((m * per + c) * l->kernel[0] + a) * l->kernel[1] + b;
              sum += (v - l->input_zero_point) * w[k];
            }
        long whole = scaled(sum, l->factor[m], l->multiplier[m], l->shift[m]);
        putchar(saturated(whole + l->output_zero_point));
      }
  return 0;
}
"""


FORMS = {
    "FLOAT": "float",
    "HALF_AWAY": "{kind: shift, multiplier_bits: 24}",
    "HALF_UP": "{kind: shift, multiplier_bits: 16, rounding: half_up}",
    "HALF_EVEN": "{kind: shift, multiplier_bits: 12, rounding: half_even}",
    "GEMMLOWP": "gemmlowp",
}


def computed(folder, layer: int, x: np.ndarray, form: str) -> np.ndarray:
    """Return the compiled program's result for one image."""
    (folder / "main.c").write_text(PROGRAM)
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-const-variable"]
    defines = [f"-DLAYER={layer}", f"-DFORM={form}"]
    command = [COMPILER, *flags, *defines, "main.c", "-o", "main", "-lm"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
    run = subprocess.run(
        [folder / "main"],
        cwd=folder,
        input=x.tobytes(),
        check=True,
        capture_output=True,
        timeout=600,
    )
    return np.frombuffer(run.stdout, np.int8)


def strided() -> onnx.ModelProto:
    """Two groups, uneven pads, stride 2, dilation 2 in one axis."""
    net = Net(x=(1, 4, 9, 7))
    net.conv("x", (6, 2, 3, 2), group=2, strides=[2, 1], dilations=[1, 2], pads=[1, 0, 2, 1])
    data = {"x": np.random.default_rng(0).normal(size=(4, 4, 9, 7)).astype(np.float32)}
    return npuconv.convert(net.model(), calibration=data, verify=False).model


@pytest.mark.e2e
@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
@pytest.mark.parametrize("build", [integer_model, strided])
@pytest.mark.parametrize("form", FORMS)
def test_a_layer_in_c(tmp_path, build, form):
    """Weights, bias, pads, strides and factors are right: every integer is the device's."""
    target = str(tmp_path / "chip.yaml")
    text = Target.load("npu-int8").yaml.replace(
        "activations:\n", f"activations:\n  requantize: {FORMS[form]}\n"
    )
    (tmp_path / "chip.yaml").write_text(text)
    model = build()
    folder = split(model, tmp_path / "d", target=target, emit=["c"]).directory
    device = target_of(open_model(model), target)
    for number, layer in enumerate(device_layers(model)):
        shape = sizes(model, layer.source)
        x = np.random.default_rng(number).integers(-128, 128, shape, np.int8)
        expected = simulate(layer, x, device)
        np.testing.assert_array_equal(computed(folder, number, x, form), expected.reshape(-1))
        assert np.unique(expected).size > 10


def sizes(model: onnx.ModelProto, name: str) -> list[int]:
    """The extents of a tensor."""
    from npuconv.evaluate.subgraphs import element_types

    return [d.dim_value for d in element_types(model)[name].shape.dim]


def test_names_cannot_leave_their_string(tmp_path):
    """A node may be called anything."""
    model = integer_model()
    node = next(n for n in model.graph.node if n.op_type == "QLinearConv")
    node.name = 'a"; } /* \\ ??/ ä\n#error'
    split(model, tmp_path, emit=["c"])
    text = (tmp_path / "weights.h").read_text("ascii")
    assert r'"a\042\073 \175 /\052 \134 \077\077/ \303\244\012\043error"' in text


def test_asymmetric_weights(tmp_path):
    """The header has no place for zero points of weights; the folder is not written."""
    model = integer_model()
    node = next(n for n in model.graph.node if n.op_type == "QLinearConv")
    for tensor in model.graph.initializer:
        if tensor.name == node.input[5]:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.ones(4, np.int8), tensor.name))
    with pytest.raises(npuconv.NpuconvError, match="not symmetric int8"):
        split(model, tmp_path / "d", emit=["c"])
    assert not list((tmp_path / "d").iterdir())
    split(model, tmp_path / "d")
