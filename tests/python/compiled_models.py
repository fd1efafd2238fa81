"""Modules that are compiled, and results beside PyTorch's."""

import torch
from torch.nn.utils import prune

SIZE = 512


def pruned(weight, block_size, density=0.1):
    kept = torch.rand(weight.shape[0] // block_size, weight.shape[1] // block_size) < density
    return weight * kept.repeat_interleave(block_size, 0).repeat_interleave(block_size, 1)


def network(block_size=1):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE), torch.nn.GELU(), torch.nn.Linear(SIZE, 8)).eval()
    with torch.no_grad():
        model[0].weight.copy_(pruned(model[0].weight, block_size))
    return model


def expect_like(model, compiled, *args, **kwargs):
    with torch.no_grad():
        wanted = model(*args, **kwargs)
    wanted = [wanted] if isinstance(wanted, torch.Tensor) else wanted.values() if isinstance(wanted, dict) else wanted
    for _ in range(2):  # from the second call on as few steps as possible
        found = compiled(*args, **kwargs)
        found = [found] if isinstance(found, torch.Tensor) else found.values() if isinstance(found, dict) else found
        for expected, each in zip(wanted, found, strict=True):
            assert each.dtype == expected.dtype
            scale = max(1.0, float(expected.float().abs().max()))
            torch.testing.assert_close(each.float(), expected.float(), rtol=0, atol=1e-4 * scale)


def with_mask(layer):
    prune.l1_unstructured(layer, "weight", 0.9)


def as_csr(layer):
    layer.weight = torch.nn.Parameter(pruned(layer.weight.data, 1).to_sparse_csr())


def as_bsr(layer):
    layer.weight = torch.nn.Parameter(pruned(layer.weight.data, 16).to_sparse_bsr(16))


class Function(torch.nn.Module):
    """A function of a parameter and of inputs."""

    def __init__(self, forward, *shape):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(*shape)) if shape else None
        self.function = forward

    def forward(self, *inputs, **named):
        return self.function(self.w, *inputs, **named) if self.w is not None else self.function(*inputs, **named)


class Pooled(torch.nn.Module):
    """A layer, and the mean of the tokens that a mask keeps."""

    def __init__(self, masked):
        super().__init__()
        self.layer = torch.nn.Linear(SIZE, SIZE)
        self.masked = masked

    def forward(self, x, mask):
        y = self.layer(x)
        weight = mask[..., None] if self.masked else torch.ones_like(x[..., :1])
        return y, (y * weight).sum(1) / weight.sum(1)


NAMED = {"x": {0: "batch", 1: "tokens"}, "mask": {0: "batch", 1: "tokens"}}
