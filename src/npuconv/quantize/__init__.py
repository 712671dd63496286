"""Quantization: from a legal float model and samples to integers for every tensor and weight.

The steps, in the order in which ``convert_model`` takes them; each takes values and returns
values:

``calibrate``    one float pass: extremes, values, Hessians of convolutions
``host_prep``    padding on the host of the tensors that it makes
``ranges``       scale and zero point of every channel -> ``QuantState``
``rounding``     integer weights and biases, GPTQ-style
``sensitivity``  contribution of every rounding to the error of the outputs
``host_prep``    tensors of the device that cross to the host to be padded
``budget``       layers that run several times for more accuracy

Below them: ``state`` (the values), ``settings`` (every threshold), ``scale_constraints`` (ranges),
``hessian`` (weights), ``split`` (parts of layers beyond a limit), ``oversampling`` (copies),
``fake_quant`` (simulation).
"""
