"""Check and convert: the order of all steps, each use case on a page.

``convert``   from a float model to int8
``check``     what stands against a conversion
``prepare``   checks of the float model and the samples that both make
"""
