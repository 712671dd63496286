"""verify: an int8 model against the float model it was made from."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.errors import CalibrationError, ModelError, UsageError
from npuconv.evaluate.verify import LAYER_SAMPLES, UNNORMALIZED
from support.builders import Net, digits, images
from support.int8_pairs import explicit_model, float_model, integer_model, samples


@pytest.mark.parametrize("other", [integer_model, explicit_model])
def test_whole_and_by_layer(other):
    """The error of outputs and of layers is small, and not zero."""
    found = npuconv.verify(float_model(), other(), {"x": samples()})
    assert isinstance(found, npuconv.VerifyReport)
    assert (found.samples, found.synthetic, found.passed) == (4, False, True)
    assert 30 < found.total.sqnr_db < 60
    (output,) = found.outputs
    assert (output.name, output.top1_agreement) == ("y", 1.0)
    assert 0 < output.max_abs_error < 0.03
    (layer,) = found.layers
    assert (layer.name, layer.tensor) == ("conv", "r")
    assert 30 < layer.sqnr_db < 60
    assert 0.01 < layer.max_abs_error < 0.1
    assert found.layer_samples == 4


def test_the_same_bytes():
    """Two runs give the same report."""
    found = [npuconv.verify(float_model(), integer_model()).model_dump_json() for _ in range(2)]
    assert found[0] == found[1]


def test_a_model_beside_itself():
    """A model has no error against itself."""
    found = npuconv.verify(float_model(), float_model(), {"x": samples()})
    assert (found.total.sqnr_db, found.total.cosine, found.total.max_abs_error) == (None, 1.0, 0.0)
    assert (found.layers, found.layer_samples, found.unmatched) == ((), 0, ())


def test_swapped_models():
    """Swapped models are refused before anything runs; two float models give a warning."""
    with pytest.raises(
        UsageError, match=r"has no int8 node.*are the two swapped\?.*float model first"
    ):
        npuconv.verify(integer_model(), float_model(), {"x": samples()})
    found = npuconv.verify(float_model(), float_model(), {"x": samples()})
    assert any("compares two float models" in text for text in found.warnings)
    found = npuconv.verify(float_model(), integer_model(), {"x": samples()})
    assert not any("float models" in text for text in found.warnings)


def test_a_converted_model():
    """A model that convert has written is compared layer by layer."""
    x = images(16, 1, 8, 8)
    result = npuconv.convert(digits(), calibration={"x": x})
    found = npuconv.verify(digits(), result.model, {"x": x})
    assert found.total.sqnr_db > 15
    assert found.samples == 16


def test_minimum():
    """A missed minimum fails the report; without a minimum it passes."""
    pair = (float_model(), integer_model(), {"x": samples()})
    assert npuconv.verify(*pair, min_sqnr=10).passed
    assert not npuconv.verify(*pair, min_sqnr=100).passed


def test_indices_alone_have_no_goal():
    """A goal in dB is not judged for integers, and the report says so."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).op("ArgMax", axis=1)
    data = {"x": images(16, 3, 8, 8)}
    made = npuconv.convert(net.model(), calibration=data, min_sqnr=99)
    assert any("--min-sqnr is not judged" in one for one in made.report.summary.warnings)
    found = npuconv.verify(net.model(), made.model, data, min_sqnr=99)
    assert found.passed
    assert any("--min-sqnr is not judged" in one for one in found.warnings)
    (output,) = found.outputs
    assert (output.holds_indices, output.sqnr_db, output.positions) == (True, None, 16 * 36)
    assert 0.9 < output.agreement <= 1


def test_samples():
    """The default is 64 samples, and 8 of them for layers."""
    pair = (float_model("N"), integer_model(batch="N"))
    many = {"x": samples(80)}
    found = npuconv.verify(*pair, many)
    assert (found.samples, found.layer_samples) == (64, LAYER_SAMPLES)
    assert npuconv.verify(*pair, many, samples=3).samples == 3


def test_made_up_samples():
    """Made-up samples give a warning."""
    found = npuconv.verify(float_model(), integer_model())
    assert found.synthetic
    assert any("made up" in text for text in found.warnings)


def test_pictures_without_normalization():
    """Their warning asks for the normalization, which says more than other samples."""
    model = Net(x=(1, 3, 32, 32)).conv("x", (4, 3, 3, 3)).model()
    assert UNNORMALIZED in npuconv.verify(model, model).warnings


def truth(x: np.ndarray) -> np.ndarray:
    """Return the classes that the float model gives."""
    session = npuconv.executor.Session(float_model())
    return np.asarray([session.run({"x": row[None]})["y"].argmax() for row in x])


def test_labels(tmp_path):
    """Labels make all samples count; a wrong label counts for both models."""
    x = samples(70)
    labels = truth(x)
    labels[:7] = (labels[:7] + 1) % 4
    np.save(tmp_path / "l.npy", labels)
    found = npuconv.verify(float_model(), integer_model(), {"x": x}, labels=tmp_path / "l.npy")
    assert (found.samples, found.labelled.samples, found.labelled.output) == (70, 70, "y")
    assert found.labelled.float_top1 == pytest.approx(0.9)
    assert found.labelled.int8_top1 == pytest.approx(0.9, abs=0.1)


def test_labels_of_some_samples(tmp_path):
    """Labels follow the samples that are used."""
    x = samples(30)
    np.save(tmp_path / "l.npy", truth(x))
    found = npuconv.verify(
        float_model(), integer_model(), {"x": x}, labels=tmp_path / "l.npy", samples=7
    )
    assert (found.labelled.samples, found.labelled.float_top1) == (7, 1.0)


def test_labels_that_do_not_fit(tmp_path):
    """Too few labels, labels without data, and classes of another model are refused."""
    np.save(tmp_path / "l.npy", np.zeros(3, np.int64))
    pair = (float_model(), integer_model())
    with pytest.raises(CalibrationError, match="3 labels, but 4 samples in arrays"):
        npuconv.verify(*pair, {"x": samples()}, labels=tmp_path / "l.npy")
    with pytest.raises(CalibrationError, match=r"labels need samples.*--data"):
        npuconv.verify(*pair, labels=tmp_path / "l.npy")
    np.save(tmp_path / "l.npy", np.full(4, 4))
    with pytest.raises(CalibrationError, match="label 4 is no class of the model, which has 4"):
        npuconv.verify(*pair, {"x": samples()}, labels=tmp_path / "l.npy")


def test_batches_and_labels(tmp_path):
    """A sample of two rows has two labels."""
    x = samples(6)
    np.save(tmp_path / "l.npy", truth(x))
    found = npuconv.verify(
        float_model(2), integer_model(batch=2), {"x": x}, labels=tmp_path / "l.npy"
    )
    assert (found.samples, found.labelled.samples, found.labelled.float_top1) == (3, 6, 1.0)


def test_models_that_do_not_belong_together():
    """Different inputs or outputs are an error that names both models."""
    other = Net(image=(1, 3, 6, 6)).op("Relu", to="y").model()
    with pytest.raises(ModelError, match="its inputs are image, those of test are x"):
        npuconv.verify(float_model(), other)
    renamed = Net(x=(1, 3, 6, 6)).op("Relu", to="z").model()
    with pytest.raises(ModelError, match="its outputs are z"):
        npuconv.verify(float_model(), renamed)


def test_a_model_that_does_not_run():
    """The error names the model that does not run."""
    broken = Net(x=(1, 3, 6, 6)).op("Thing", domain="com.example", to="y").model()
    broken.graph.name = "broken"
    for pair in ((float_model(), broken), (broken, float_model())):
        with pytest.raises(ModelError, match=r"^broken: onnxruntime does not run it"):
            npuconv.verify(*pair, {"x": samples()})


def test_extents_that_only_the_int8_model_has():
    """Made-up samples take the extents of the int8 model."""
    found = npuconv.verify(float_model("N"), integer_model())
    assert found.total.sqnr_db > 10


def test_paths(tmp_path):
    """The report has file names and digests."""
    paths = [tmp_path / "f.onnx", tmp_path / "q.onnx"]
    for model, path in zip((float_model(), integer_model()), paths, strict=True):
        onnx.save(model, path)
    found = npuconv.verify(*paths, {"x": samples()})
    assert (found.float_model.path, found.int8_model.path) == ("f.onnx", "q.onnx")
    assert len(found.float_model.sha256) == 64
    assert found.float_model.sha256 != found.int8_model.sha256


def test_what_an_output_is_put_together_from():
    """Large boxes and small scores in one output have errors of their own."""

    def detector(error: float) -> onnx.ModelProto:
        net = Net(x=(1, 1, 4, 4)).op("Mul", "x", "x", to="square")
        net.op("Mul", "square", net.constant(np.float32(1000)), to="boxes")
        net.op("Mul", "x", net.constant(np.float32(1 + error)), to="scores")
        return net.op("Concat", "boxes", "scores", axis=1, to="y").model()

    found = npuconv.verify(detector(0), detector(0.3), {"x": images(4, 1, 4, 4)})
    (output,) = found.outputs
    assert output.sqnr_db > 50
    assert output.top1_agreement is None
    boxes, scores = output.parts
    assert (boxes.name, boxes.sqnr_db, boxes.max_abs_error) == ("boxes", None, 0.0)
    assert scores.name == "scores"
    assert scores.sqnr_db == pytest.approx(-20 * np.log10(0.3), abs=0.02)
