"""Error of int8 against float (outputs, layers, labels), and integer test vectors for hardware."""
