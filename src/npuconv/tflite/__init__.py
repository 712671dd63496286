"""TFLite graphs: as plain values, as the bytes of a file, and as drafts that operators append to.

``flatbuffer``   a TFLite graph as plain values, and as the bytes of a file
``draft``        a graph being made: ONNX tensors, and the orders of axes they are stored in
``windows``      padding of convolutions and pools
"""
