"""Concat of unlike scales against onnxruntime."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npuconv.arithmetic.rescaling import TensorScale
from support.kernels import (
    BOTH,
    FEW,
    SCALES,
    SEEDS,
    SHIFT,
    assert_near,
    computed,
    parts,
    runtime,
    stored,
)


@BOTH
@FEW
@given(scales=st.tuples(SCALES, SCALES), y_at=SCALES, seed=SEEDS)
def test_concat_is_the_runtimes(how, scales, y_at, seed):
    both = [stored(seed, 1, 2, 3), stored(seed + 1, 1, 4, 3)]
    given_parts = [part for q, at in zip(both, scales, strict=True) for part in (q, *parts(at))]
    theirs = runtime("QLinearConcat", [*parts(y_at), *given_parts], axis=1)
    assert_near(computed("Concat", both, (*scales, y_at), how, axis=1), theirs)


def test_concat_of_the_same_scale_moves_integers():
    at, both = TensorScale(0.1, 3), [stored(1, 2, 2), stored(2, 2, 3)]
    np.testing.assert_array_equal(
        computed("Concat", both, [at, at, at], SHIFT, axis=1), np.hstack(both)
    )
