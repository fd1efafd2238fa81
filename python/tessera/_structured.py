"""Products of structured matrices with batch-major activations, in PyTorch's operations."""

from __future__ import annotations

import torch
from torch import Tensor

from tessera.nn import formulas


def butterfly(x: Tensor, twiddle: Tensor, out_features: int, increasing_stride: bool) -> Tensor:
    """Complex values have a trailing dimension of 2."""
    if twiddle.dim() in (4, 6):
        return formulas.butterfly(x, twiddle, out_features, increasing_stride=increasing_stride)
    z, factors = torch.view_as_complex(x.contiguous()), torch.view_as_complex(twiddle)
    return torch.view_as_real(formulas.butterfly(z, factors, out_features, increasing_stride=increasing_stride))


def kronecker(x: Tensor, weight: Tensor, a: int, b: int, c: int, d: int, out_features: int) -> Tensor:
    return formulas.kronecker(x, weight.reshape(a, d, b, c), out_features)


def circulant(x: Tensor, c: Tensor, out_features: int) -> Tensor:
    return formulas.circulant(x, c, out_features)


def toeplitz(x: Tensor, c: Tensor) -> Tensor:
    return formulas.toeplitz(x, c)


def fastfood(x: Tensor, S: Tensor, G: Tensor, B: Tensor, P: Tensor, out_features: int) -> Tensor:
    return formulas.fastfood(x, S, G, B, P, out_features)
