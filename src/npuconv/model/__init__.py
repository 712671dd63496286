"""The graph of a model. The only package that imports onnx-graphsurgeon.

``surgeon``         graph-surgeon's classes, to make objects of them
``core``            Model: the graph, its header, the origin of every node; names of types
``load``            file or ModelProto -> Model
``graph_import``    checked proto -> Model
``untrusted``       checks on a model before anything else reads it
``external_data``   checks on external data, and what of it stays in files
``source``          module and lines of training code of every node
``validate``        validity of a proto, and of a graph after every pass
``store``           large weights in memory-mapped files
``proto``           walks over protos; nodes and tensors -> protos
``save``            Model -> ModelProto -> files
``query``           queries on nodes and tensors (imports nothing heavy)
``edit``            the only ways to change a graph
``conv``            one convolution or pool as a value, and its window arithmetic
``attributes``      contradictions between attributes of a convolution or pool
``axis_removal``    removal of an axis of a 3-D convolution
``nhwc``            operators of onnxruntime's domains in terms of ONNX's
``facts``           properties of a node that a target can limit
``shapes``          shapes of tensors: of the user, of the file, inferred
``inference``       shape inference by ONNX on the graph without its weights
"""

from npuconv.model.conv import Window, window
from npuconv.model.core import Graph, Model, Node, Tensor

__all__ = ["Graph", "Model", "Node", "Tensor", "Window", "window"]
