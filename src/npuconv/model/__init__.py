"""The graph a user's model becomes, and the only place that knows onnx-graphsurgeon.

``types``     names for graph-surgeon's classes
``core``      Model: the graph, the header it came with, the origin of every node
``load``      file or ModelProto -> Model
``save``      Model -> ModelProto -> bytes on disk
``query``     questions about nodes and tensors (imports nothing heavy)
``edit``      the only ways to change a graph
``geometry``  arithmetic of kernels, strides and pads (pure integers)
``conv``      one convolution, pool or transposed convolution as a value
``facts``     what a target can limit, measured on a node
``shapes``    shape inference
``verify``    is the graph well formed
"""
