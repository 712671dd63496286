"""What ``make_samples.py`` is made of: a small numpy trainer and an ONNX exporter."""
