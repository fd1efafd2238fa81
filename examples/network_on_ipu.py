"""A PyTorch network trained by one program on the host, and its step estimated for a tiled processor.

The cells (# %%) run in Jupyter, VS Code or Spyder, where the last line of one shows a page; as a program it prints.

python examples/network_on_ipu.py --hidden 1024 --batch 128
"""

# %% A pruned classifier: most of the hidden layers' weights are zero.
import argparse

import images
import numpy as np
import torch
from tessera import graph as tg
from tessera.nn import SparseLinear
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--hidden", type=int, default=1024, help="features of the hidden layers")
parser.add_argument("--batch", type=int, default=128, help="samples per step")
parser.add_argument("--epochs", type=int, default=3, help="passes over the training images")
a = parser.parse_args()

torch.manual_seed(1)
network = nn.Sequential(
    SparseLinear(784, a.hidden, density=0.1, block_size=16),
    nn.ReLU(),
    nn.Dropout(0.1),
    SparseLinear(a.hidden, a.hidden, density=0.1, block_size=16),
    nn.ReLU(),
    nn.Linear(a.hidden, 10),
)

# %% Its training step: forward and backward pass and updates are one program.
example = torch.zeros(a.batch, 784)
step = tg.from_torch(network.train(), example).training_step("cross_entropy", "adamw", lr=1e-3)

# %% Would it fit on a tiled processor? How long would a step take there?
estimate = step.estimate("gc200")
print(estimate)

# %% The same program, for the host: train.
name, (pixels, labels), test = images.load()
session = step.session(seed=1)
for epoch in range(a.epochs):
    losses = []
    for rows in torch.randperm(len(pixels)).split(a.batch):
        if len(rows) == a.batch:
            losses.append(session.run(pixels[rows], labels[rows]))
    print(f"{name}, epoch {epoch + 1}: loss {np.mean(losses):.3f}, {1e3 * session.seconds:.2f} ms per step")

# %% Back in PyTorch.
session.copy_to(network)
print(f"accuracy {images.accuracy(network.eval(), test):.3f}")

# %% The page: memory of each tile, operations by time.
estimate
