"""Quantization arithmetic: pure numpy, knows no graph.

``encoding``    scales and zero points of a tensor, and its integers
``layer``       integer weights and bias of a convolution, at scales that the device can apply
``device``      factors of accumulators, in float and as multiplier and shift
``whole``       whole numbers that kernels compute with, as arrays or as nodes of a graph
``rescaling``   requantization of whole numbers to int8
``gemmlowp``    requantization of TFLite's reference kernels
``statistics``  statistics of a tensor by channel
``metrics``     error of a tensor against another
"""
