"""TFLite files: the integer model of a device in the form that compilers of TFLite models read.

``translate``    an integer ONNX model, node by node, as the files of its operators define it
``functions``    operators that TFLite lacks, made of others
"""
