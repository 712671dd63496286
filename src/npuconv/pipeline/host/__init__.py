"""What the host does for the device: it pads, puts inputs on their grid, and takes tensors over."""
