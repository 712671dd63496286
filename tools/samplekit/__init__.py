"""Parts of ``make_samples.py``: a small numpy trainer and an ONNX exporter."""
