"""Structured linear maps by their formulas, in PyTorch's own operations.

They define what the layers of `tessera.nn` and the operators of `torch.ops.tessera` compute. They take values of any
floating-point type on any device, in float64 as references, and can be differentiated any number of times; they are not
fast. `x` is [..., in_features]; missing features, up to the size of a structure, count as zeros, and the first
`out_features` features of the result are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["block_diagonal", "butterfly", "circulant", "fastfood", "hadamard", "kronecker", "monarch", "toeplitz"]


def butterfly(x: Tensor, twiddle: Tensor, out_features: int, *, increasing_stride: bool = True) -> Tensor:
    """A product of log₂ N factors; the factor of stride s multiplies the pairs (p, p + s) by 2 × 2 matrices.

    `twiddle` is [stacks, blocks, log₂ N, N/2, 2, 2] in order of application, where several blocks alternate between
    increasing and decreasing strides; or tied, [stacks, N - 1, 2, 2], where the factor of stride s begins at s - 1.
    Stacks are butterflies of the same input, one after the other in the result. `twiddle` may be complex.
    """
    stacks = twiddle.shape[0]
    size = twiddle.shape[1] + 1 if twiddle.dim() == 4 else 2 * twiddle.shape[3]
    y = pad(x, (0, size - x.shape[-1])).unsqueeze(-2).to(torch.promote_types(x.dtype, twiddle.dtype))
    y = y.expand(*x.shape[:-1], stacks, size)
    for stride, matrices in _factors(twiddle, increasing_stride):
        low, high = y.reshape(*y.shape[:-1], size // (2 * stride), 2, stride).unbind(-2)
        (a, b), (c, d) = (row.unbind(-1) for row in matrices.unbind(-2))
        y = torch.stack((a * low + b * high, c * low + d * high), -2)
        y = y.reshape(*x.shape[:-1], stacks, size)
    return y.reshape(*x.shape[:-1], stacks * size)[..., :out_features]


def _factors(twiddle: Tensor, increasing_stride: bool) -> Iterator[tuple[int, Tensor]]:
    """Strides with their matrices [stacks, groups or 1, stride, 2, 2]."""
    if twiddle.dim() == 4:
        strides = [1 << level for level in range((twiddle.shape[1] + 1).bit_length() - 1)]
        for stride in strides if increasing_stride else reversed(strides):
            yield stride, twiddle[:, stride - 1 : 2 * stride - 1].unsqueeze(1)
        return
    stacks, blocks, levels = twiddle.shape[:3]
    for block in range(blocks):
        increases = increasing_stride == (block % 2 == 0)
        for level in range(levels):
            stride = 1 << (level if increases else levels - 1 - level)
            yield stride, twiddle[:, block, level].reshape(stacks, -1, stride, 2, 2)


def kronecker(x: Tensor, weight: Tensor, out_features: int) -> Tensor:
    """I_a ⊗ 1_{b × c} ⊗ I_d: y[(i·b + r)·d + t] = Σ_q weight[i, t, r, q] · x[(i·c + q)·d + t]."""
    a, d, b, c = weight.shape
    parts = pad(x, (0, a * c * d - x.shape[-1])).reshape(*x.shape[:-1], a, c, d)
    y = torch.einsum("idrq,...iqd->...ird", weight, parts)
    return y.reshape(*x.shape[:-1], a * b * d)[..., :out_features]


def block_diagonal(x: Tensor, weight: Tensor, out_features: int) -> Tensor:
    """A block-diagonal matrix; `weight` is [blocks, outputs per block, inputs per block]."""
    return kronecker(x, weight.unsqueeze(1), out_features)


def monarch(x: Tensor, blkdiag1: Tensor, blkdiag2: Tensor, out_features: int) -> Tensor:
    """Two block-diagonal matrices with transpositions between and after: (k, q, p, 1), then (1, s, r, l).

    `blkdiag1` is [k, q, p], and `blkdiag2` [l, s, r] with k · q = l · r.
    """
    hidden = kronecker(x, blkdiag1.unsqueeze(1), blkdiag1.shape[0] * blkdiag1.shape[1])
    return kronecker(hidden, blkdiag2.unsqueeze(0), out_features)


def hadamard(x: Tensor) -> Tensor:
    """The Hadamard transform of the last dimension, a power of two, divided by its root: it is its own inverse."""
    size = x.shape[-1]
    y = x
    stride = 1
    while stride < size:
        low, high = y.reshape(*x.shape[:-1], size // (2 * stride), 2, stride).unbind(-2)
        y = torch.stack((low + high, low - high), -2).reshape(x.shape)
        stride *= 2
    return y / math.sqrt(size)


def fastfood(x: Tensor, S: Tensor, G: Tensor, B: Tensor, P: Tensor, out_features: int) -> Tensor:
    """S · H · G · Π · H · B (Le et al. 2013), with the normalised Hadamard matrix H and (Π · v)[i] = v[P[i]].

    All are [stacks, N], with N a power of two: results of the same input, one after the other.
    """
    stacks, size = S.shape
    y = hadamard(B * pad(x, (0, size - x.shape[-1])).unsqueeze(-2))
    y = torch.gather(y, -1, P.expand(y.shape))
    y = S * hadamard(G * y)
    return y.reshape(*x.shape[:-1], stacks * size)[..., :out_features]


def circulant(x: Tensor, c: Tensor, out_features: int) -> Tensor:
    """y[i] = Σ_j c[(i - j) mod size] · x[j]: `c` is the first column."""
    return _convolve(x, c, c.shape[0])[..., :out_features]


def toeplitz(x: Tensor, c: Tensor) -> Tensor:
    """y[i] = Σ_j c[i - j + in_features - 1] · x[j].

    `c` is [out_features + in_features - 1], from the last element of the first row to the last element of the first
    column.
    """
    before = x.shape[-1] - 1
    size = 1 << (c.shape[0] + before - 1).bit_length()  # enough for all; powers of two are fast
    return _convolve(x, c, size)[..., before : c.shape[0]]


def _convolve(x: Tensor, c: Tensor, size: int) -> Tensor:
    """The cyclic convolution of the last dimensions, of at most `size` elements."""
    if x.numel() == 0:  # the transforms of older versions of PyTorch refuse this
        return pad(x, (0, size - x.shape[-1])) * c.sum()
    dtype = torch.promote_types(x.dtype, c.dtype)
    if dtype.itemsize < 4:  # types that have no transforms
        x, c = x.float(), c.float()
    y: Tensor = torch.fft.irfft(torch.fft.rfft(c, size) * torch.fft.rfft(x, size), size)
    return y.to(dtype)
