"""What makes the int8 model accurate: scales, rounding, and what is bought with more work.

``scales``     how every int8 tensor is stored
``weights``    how the weights of a layer are rounded
``noise``      what all that rounding does to the outputs: of layers, of channels, of samples
``precision``  what had better be made several times, and what that costs
"""
