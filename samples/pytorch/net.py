"""A small network with grouped convolutions; ``python net.py`` writes net.onnx."""

import torch
from torch import nn


class Block(nn.Module):
    """A grouped convolution, and a convolution that mixes its channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.grouped = nn.Conv2d(channels, channels, 3, padding=1, groups=4)
        self.mix = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features of the block."""
        y = torch.relu(self.grouped(x))
        return x + self.mix(y)


class Net(nn.Module):
    """Two blocks between a stem and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(16), Block(16))
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a score for each digit."""
        x = torch.relu(self.stem(x))
        x = self.blocks(x)
        return self.head(x.mean((2, 3)))


if __name__ == "__main__":
    torch.manual_seed(0)
    images = torch.zeros(1, 1, 28, 28)
    torch.onnx.export(Net().eval(), (images,), "net.onnx", dynamo=True, external_data=False)
