"""Builders of models and other helpers that several tests share.

Models, simplest first:

- ``builders.Net``: any float model, one line for each node. ``digits``: a small classifier.
- ``quantized_nets.Quantized``: the same with QuantizeLinear and DequantizeLinear.
- ``int8_layers``, ``int8_operators``, ``int8_pairs``: written int8 models, a layer, an operator,
  and a pair with its float model.
- ``affine_nets``, ``outlier_nets``, ``partial_sums``: models of one subject.
- ``conv_graphs``, ``odd_models``, ``odd_networks``: random models by seed number, all choices by
  ``dice``; ``verdicts`` checks odd models and networks.
- ``real_models``: samples and public models, each converted once a run.
- ``zoo``: one model of each kind, for laws that hold for all.

Expected results: ``asserts`` (passes and findings), ``fits`` (splits), ``conv_text``,
``integer_conv`` and ``kernels`` (operators as ONNX describes them), ``judges`` and
``tflite_files`` (other runtimes). ``target_files.chip`` writes a target in a line, ``plans`` a
plan and its statistics.
"""
