"""TFLite files: the integer model of a device in the form that compilers of TFLite models read.

``flatbuffer``   a TFLite graph as plain values, and as the bytes of a file
``draft``        a graph being made: ONNX tensors, and the orders of axes they are stored in
``translate``    an integer ONNX model, node by node
``convolution``  QLinearConv
``conversions``  QuantizeLinear and DequantizeLinear
``movement``     operators that move, select or resize values, or compare neighbours
``floats``       operators of the host, in float
"""
