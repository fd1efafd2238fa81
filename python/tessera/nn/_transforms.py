"""Transforms that are butterflies exactly: their 2 × 2 matrices, one tensor [stride, 2, 2] for each stride 1, 2, 4, …

All strides increase; `twiddle_of` brings the factors into the layout of a layer's parameter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def levels_for(features: int) -> int:
    """log₂ of the size of a butterfly with that number of inputs, at least 1."""
    return max(1, (features - 1).bit_length())


def checked_permutation(given: Tensor | Sequence[int], shape: tuple[int, ...]) -> Tensor:
    """A copy of the indices in a shape; each of its rows must be a permutation."""
    indices = torch.as_tensor(given)
    if indices.is_floating_point() or indices.is_complex() or indices.dtype is torch.bool:
        raise TypeError(f"a permutation of {indices.dtype}: its indices must be integers")
    last = shape[-1] - 1
    rows = indices.to(torch.int64, copy=True)
    if rows.numel() != math.prod(shape) or bool((rows.reshape(shape).sort().values != torch.arange(last + 1)).any()):
        raise ValueError(f"a permutation of shape {tuple(rows.shape)} does not hold each of 0 to {last} once")
    return rows.reshape(shape)


def bit_reversal(size: int) -> Tensor:
    """The permutation that reverses the bits of indices: the result's element i is element p[i]."""
    if size < 1 or size & (size - 1):
        raise ValueError(f"bits are reversed for powers of two, not for {size}")
    permutation = torch.zeros(1, dtype=torch.int64)
    while permutation.numel() < size:
        permutation = torch.cat((2 * permutation, 2 * permutation + 1))
    return permutation


def identity_factors(levels: int) -> list[Tensor]:
    return [torch.eye(2, dtype=torch.float64).expand(1 << level, 2, 2) for level in range(levels)]


def hadamard_factors(levels: int) -> list[Tensor]:
    """The orthogonal Hadamard transform."""
    matrix = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64) / math.sqrt(2)
    return [matrix.expand(1 << level, 2, 2) for level in range(levels)]


def fourier_factors(levels: int, *, inverse: bool = False) -> list[Tensor]:
    """The unitary discrete Fourier transform of bit-reversed values (decimation in time)."""
    factors = []
    for level in range(levels):
        stride = 1 << level
        angles = torch.arange(stride, dtype=torch.float64) * (math.pi / stride)
        roots = torch.polar(torch.full_like(angles, 1.0), angles if inverse else -angles)
        ones = torch.ones_like(roots)
        matrices = torch.stack((torch.stack((ones, roots), -1), torch.stack((ones, -roots), -1)), -2)
        factors.append(matrices / math.sqrt(2))
    return factors


def cosine_factors(levels: int) -> list[Tensor]:
    """The orthogonal DCT-II, as the real part of a Fourier transform of values in `cosine_order`."""
    size = 1 << levels
    angles = torch.arange(size, dtype=torch.float64) * (-math.pi / (2 * size))
    scales = torch.full_like(angles, math.sqrt(2))
    scales[0] = 1
    factors = fourier_factors(levels)
    rows = torch.polar(scales, angles).reshape(2, size // 2).t()  # of the pairs (p, p + size/2)
    factors[-1] = factors[-1] * rows.unsqueeze(-1)
    return factors


def cosine_order(size: int) -> Tensor:
    """Elements with even index, then elements with odd index backwards; with bits reversed."""
    order = torch.arange(size)
    return torch.cat((order[::2], order[1::2].flip(0)))[bit_reversal(size)]


def twiddle_of(factors: list[Tensor], stacks: int, *, tied: bool) -> Tensor:
    """A parameter of one block whose strides increase."""
    if tied:
        return torch.cat(factors).expand(stacks, -1, 2, 2).contiguous()
    half = 1 << (len(factors) - 1)
    levels = torch.stack([matrices.repeat(half // matrices.shape[0], 1, 1) for matrices in factors])
    return levels.expand(stacks, 1, -1, -1, 2, 2).contiguous()


def transposed(factors: list[Tensor]) -> list[Tensor]:
    """The factors of the transposed matrix, whose strides decrease; still listed by increasing stride."""
    return [matrices.transpose(-1, -2) for matrices in factors]
