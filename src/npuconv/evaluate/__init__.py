"""How far int8 is from float: outputs, layers, labels; and integers to test hardware with."""
