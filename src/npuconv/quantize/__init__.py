"""Quantization: from a legal float model and samples to integers for every tensor and weight.

The steps, in the order in which ``pipeline.convert`` takes them; each takes values and returns
values:

``host_prep``    what the host pads and moves, decided on a few samples
``calibrate``    one float pass: extremes, values, Hessians of convolutions
``ranges``       scale and zero point of every channel -> ``QuantState``
``rounding``     integer weights and biases, GPTQ-style
``sensitivity``  what every rounding adds to the error of the outputs
``host_padding`` what crosses to the host to be padded
``budget``       what runs several times for more accuracy

Below them: ``state`` (the values), ``settings`` (every threshold), ``scale_constraints``,
``range_margin`` and ``correlated_error`` (ranges), ``hessian`` and ``gptq`` (weights),
``oversampling`` and ``dither`` (copies), ``fake_quant``, ``output_error`` and ``gradients``
(simulation).
"""
