"""The structured layer that is nearest to a dense layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tessera import _blocks
from tessera._arguments import chosen
from tessera.nn import _butterfly_projection
from tessera.nn._butterfly import ButterflyLinear
from tessera.nn._fourier import CirculantLinear, ToeplitzLinear
from tessera.nn._kronecker import BlockDiagonalLinear, MonarchLinear
from tessera.nn._low_rank import LowRankLinear
from tessera.nn._pixelfly import PixelflyLinear
from tessera.nn._structured import StructuredLinear


class Projection(NamedTuple):
    """A layer to use in place of a dense layer, and the relative error of its weight in the Frobenius norm."""

    layer: StructuredLinear | PixelflyLinear
    error: float


@torch.no_grad()
def project(dense: nn.Linear | Tensor, structure: str, **options: Any) -> Projection:
    """Make the structured layer whose weight is nearest to the weight of a dense layer, or to a matrix.

    `structure` is one of

        butterfly        factor by factor, then alternating least squares (`sweeps`, at most 20); not for tied factors
                         or several blocks
        monarch          the best, by singular values of blocks
        block_diagonal   the best
        low_rank         the best, by singular values
        pixelfly         low rank outside the blocks, by alternating least squares (`sweeps`, at most 20), from
                         singular vectors and from random ones: a local optimum
        circulant        the best: means of diagonals
        toeplitz         the best

    `options` are options of the layer, such as `nblocks` or `rank`. The bias is kept.
    """
    chosen("projection", structure, _PROJECTIONS)
    matrix = (dense if isinstance(dense, Tensor) else dense.weight).detach()
    if matrix.dim() != 2 or matrix.numel() == 0:
        raise ValueError(f"a weight has two dimensions, not the shape {tuple(matrix.shape)}")
    if not (matrix.is_floating_point() or matrix.is_complex()):
        raise TypeError(f"a weight of {matrix.dtype}: use a floating-point type")
    if not bool(torch.isfinite(matrix).all()):
        raise ValueError("the weight has elements that are infinite or NaN: give finite ones")
    if "init" in options:
        raise ValueError("init is not an option: the values of the layer follow from the weight")
    bias = None if isinstance(dense, Tensor) else dense.bias
    real = matrix.dtype.to_real() if matrix.is_complex() else matrix.dtype
    out_features, in_features = matrix.shape
    given = {"bias": bias is not None, "dtype": real, **options}
    exact = matrix.to(torch.complex128 if matrix.is_complex() else torch.float64)
    if matrix.is_complex() and structure != "butterfly":
        raise ValueError(f"a complex weight can be projected to 'butterfly', not to {structure!r}")
    layer = _PROJECTIONS[structure](exact, in_features, out_features, given)
    if bias is not None and layer.bias is not None:
        layer.bias.copy_(_pairs(bias) if layer.bias.dim() > bias.dim() else bias)
    if isinstance(dense, nn.Linear):
        layer.train(dense.training)
    size = float(exact.norm())
    found = layer.dense_weight()
    error = float((found.to(torch.promote_types(found.dtype, exact.dtype)) - exact).norm())
    return Projection(layer, error / size if size > 0 else error)


def _pairs(values: Tensor) -> Tensor:
    """Real and imaginary parts."""
    return torch.view_as_real(values) if values.is_complex() else torch.stack((values, torch.zeros_like(values)), -1)


def _butterfly(matrix: Tensor, inputs: int, outputs: int, options: dict[str, Any]) -> ButterflyLinear:
    sweeps = options.pop("sweeps", 20)
    if matrix.is_complex():
        options.setdefault("complex", True)
    layer = ButterflyLinear(inputs, outputs, init="empty", **options)
    if layer.tied or layer.nblocks != 1:
        raise ValueError("butterflies with tied factors or several blocks have no projection: train them")
    if layer.complex:
        matrix = matrix.to(torch.complex128)
    padded = torch.zeros(layer.stacks * layer.size, layer.size, dtype=matrix.dtype)
    padded[:outputs, :inputs] = matrix
    if layer.permutation is not None:  # W = B · P: B has W's columns in the order of the inputs
        padded[:, : layer.permutation.numel()] = padded[:, layer.permutation]
    padded = padded.reshape(layer.stacks, layer.size, layer.size)
    if layer.increasing_stride:
        factors = _butterfly_projection.factorise(padded, sweeps)
    else:  # of the transposed matrix
        factors = _butterfly_projection.factorise(padded.transpose(1, 2).contiguous(), sweeps)
        factors = [factor.transpose(-1, -2) for factor in reversed(factors)]
    twiddle = torch.stack([factor.reshape(layer.stacks, -1, 2, 2) for factor in factors], 1).unsqueeze(1)
    layer._assign(twiddle)
    return layer


def _monarch(matrix: Tensor, inputs: int, outputs: int, options: dict[str, Any]) -> MonarchLinear:
    layer = MonarchLinear(inputs, outputs, init="empty", **options)
    k, hidden, width = layer.blkdiag1.shape
    height = layer.blkdiag2.shape[1]
    padded = torch.zeros(height * k, k * width, dtype=matrix.dtype)
    padded[:outputs, :inputs] = matrix
    # Block (j, i) has the outputs j, j + k, j + 2·k, … and the i-th group of inputs. The hidden value i · hidden + m of
    # a group leads to the outputs j = (i · hidden + m) mod k: the block's rank is at most its number of hidden values.
    blocks = padded.reshape(height, k, k, width).permute(1, 2, 0, 3)
    u, s, vh = torch.linalg.svd(blocks, full_matrices=False)
    root = s.sqrt()
    first = torch.zeros(k, hidden, width, dtype=matrix.dtype)
    second = torch.zeros(k, height, hidden, dtype=matrix.dtype)
    value = torch.arange(k * hidden)
    group, output, place = value // hidden, value % k, value // k
    order = _ranks_of(group * k + output)
    used = order < s.shape[-1]
    group, output, place, order, value = (each[used] for each in (group, output, place, order, value))
    first[group, value % hidden] = vh[output, group, order] * root[output, group, order].unsqueeze(-1)
    second[output, :, place] = u[output, group, :, order] * root[output, group, order].unsqueeze(-1)
    layer.blkdiag1.copy_(first)
    layer.blkdiag2.copy_(second)
    return layer


def _ranks_of(keys: Tensor) -> Tensor:
    """How often each key occurred before."""
    order = keys.argsort(stable=True)
    ordered = keys[order]
    starts = torch.searchsorted(ordered, ordered)
    ranks = torch.empty_like(keys)
    ranks[order] = torch.arange(keys.numel()) - starts
    return ranks


def _block_diagonal(matrix: Tensor, inputs: int, outputs: int, options: dict[str, Any]) -> BlockDiagonalLinear:
    layer = BlockDiagonalLinear(inputs, outputs, init="empty", **options)
    count, height, width = layer.weight.shape
    padded = torch.zeros(count * height, count * width, dtype=matrix.dtype)
    padded[:outputs, :inputs] = matrix
    if layer.shuffle:
        padded = padded[:, torch.arange(count * width).reshape(count, width).t().reshape(-1)]
    layer.weight.copy_(padded.reshape(count, height, count, width).diagonal(dim1=0, dim2=2).permute(2, 0, 1))
    return layer


def _low_rank_factors(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """U and V of equal norms."""
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    root = s[:rank].sqrt()
    return u[:, :rank] * root, root.unsqueeze(1) * vh[:rank]


def _low_rank(matrix: Tensor, inputs: int, outputs: int, options: dict[str, Any]) -> LowRankLinear:
    layer = LowRankLinear(inputs, outputs, init="empty", **options)
    u, v = _low_rank_factors(matrix, layer.rank)
    layer.U.copy_(u)
    layer.V.copy_(v)
    return layer


def _pixelfly(matrix: Tensor, inputs: int, outputs: int, options: dict[str, Any]) -> PixelflyLinear:
    sweeps = options.pop("sweeps", 20)
    layer = PixelflyLinear(inputs, outputs, **options)
    first, second = layer.lowrank_first, layer.lowrank_second
    rest = matrix
    if first is not None and second is not None:
        u, v = _low_rank_outside(matrix, layer.mask(), layer.rank, sweeps)
        second.weight.copy_(u)
        first.weight.copy_(v)
        rest = matrix - u @ v
    layer._pack(_blocks.gather_blocks(rest, layer._positions(), layer.block_size))
    return layer


def _low_rank_outside(matrix: Tensor, mask: Tensor, rank: int, sweeps: int) -> tuple[Tensor, Tensor]:
    """U and V nearest to a matrix where a mask, which the sparse part takes, is False: alternating least squares."""
    outside = (~mask).to(matrix.dtype)
    wanted = matrix * outside
    # Singular vectors are 0, and stay 0, in parts of the matrix that no place connects: begin with random ones, too.
    random = torch.randn(rank, matrix.shape[1], dtype=matrix.dtype, generator=torch.Generator().manual_seed(0))
    starts = [_low_rank_factors(wanted, rank), (torch.zeros_like(wanted[:, :rank]), random)]
    found = [_alternate(wanted, outside, *start, sweeps) for start in starts]
    _, u, v = min(found, key=lambda each: each[0])
    return _low_rank_factors(u @ v, rank)


def _alternate(wanted: Tensor, outside: Tensor, u: Tensor, v: Tensor, sweeps: int) -> tuple[float, Tensor, Tensor]:
    """The squared error at the places, U and V after alternating least squares."""
    ridge = 1e-4 * float(torch.linalg.matrix_norm(wanted, 2))  # the places may not determine unique factors
    size = float(wanted.square().sum())
    error = float((wanted - outside * (u @ v)).square().sum())
    for _ in range(sweeps):
        u = _nearest_rows(wanted, outside, v, ridge)
        v = _nearest_rows(wanted.t(), outside.t(), u.t(), ridge).t()
        before, error = error, float((wanted - outside * (u @ v)).square().sum())
        if before - error <= 1e-9 * size:
            break
    return error, u, v


def _nearest_rows(wanted: Tensor, outside: Tensor, v: Tensor, ridge: float) -> Tensor:
    """The U for which U · V is nearest to a matrix at some places: rows with the same places share an equation."""
    patterns, row_pattern = torch.unique(outside, dim=0, return_inverse=True)
    gram = torch.einsum("pc,ic,jc->pij", patterns, v, v)
    diagonal = gram.diagonal(dim1=1, dim2=2)
    # Keeps the matrix definite despite rounding where there are fewer places than factors and `ridge` is 0.
    diagonal.add_(max(ridge, 1e-30) + 1e-12 * diagonal.sum(1, keepdim=True))
    factors = torch.linalg.cholesky(gram)[row_pattern]
    return torch.cholesky_solve((wanted @ v.t()).unsqueeze(-1), factors).squeeze(-1)


def _diagonal_means(matrix: Tensor, diagonal: Tensor, count: int) -> Tensor:
    """The mean of the elements of each diagonal; `diagonal` has the number of each element's diagonal."""
    sums = torch.zeros(count, dtype=matrix.dtype).index_add_(0, diagonal.reshape(-1), matrix.reshape(-1))
    return sums / torch.bincount(diagonal.reshape(-1), minlength=count).clamp_min(1)


def _circulant(matrix: Tensor, inputs: int, outputs: int, options: dict[str, Any]) -> CirculantLinear:
    layer = CirculantLinear(inputs, outputs, **options)
    size = layer.c.numel()
    diagonal = (torch.arange(outputs).unsqueeze(1) - torch.arange(inputs)) % size
    layer.c.copy_(_diagonal_means(matrix, diagonal, size))
    return layer


def _toeplitz(matrix: Tensor, inputs: int, outputs: int, options: dict[str, Any]) -> ToeplitzLinear:
    layer = ToeplitzLinear(inputs, outputs, **options)
    diagonal = torch.arange(outputs).unsqueeze(1) - torch.arange(inputs) + inputs - 1
    layer.c.copy_(_diagonal_means(matrix, diagonal, layer.c.numel()))
    return layer


_PROJECTIONS: dict[str, Callable[[Tensor, int, int, dict[str, Any]], StructuredLinear | PixelflyLinear]] = {
    "butterfly": _butterfly,
    "monarch": _monarch,
    "block_diagonal": _block_diagonal,
    "low_rank": _low_rank,
    "pixelfly": _pixelfly,
    "circulant": _circulant,
    "toeplitz": _toeplitz,
}
