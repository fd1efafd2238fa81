"""Butterfly factors of a matrix: factor by factor with best approximations of rank one, then alternating least squares.

Matrices are batched: [stacks, N, N]. Twiddles are lists of [stacks, N/(2s), s, 2, 2] for the strides s = 1, 2, 4, …, in
order of application.
"""

from __future__ import annotations

import torch
from torch import Tensor


def factorise(matrix: Tensor, sweeps: int) -> list[Tensor]:
    """Factors whose product approximates the matrix.

    The first pass is exact for products of butterfly factors, and within a factor √(log₂ N - 1) of the best error for
    all others; each sweep then solves for one factor after the other, and ends early where nothing improves.
    """
    factors = _peel(matrix)
    error = _squared_error(matrix, factors)
    scale = float(matrix.abs().square().sum())
    for _ in range(sweeps):
        _sweep(matrix, factors)
        before, error = error, _squared_error(matrix, factors)
        if before - error <= 1e-6 * scale:
            break
    return factors


def _peel(matrix: Tensor) -> list[Tensor]:
    """Split off one factor after the other, from stride 1.

    For the rest R of a place t within the stride, and inputs in groups i of pairs q, the blocks R[:, (i, q)] have rank
    one. As the rows of the split-off factor are unit vectors, they do not magnify errors of the rest.
    """
    stacks, size, _ = matrix.shape
    # [stacks, place within the stride, rows, columns]: the matrix left to factorise for each place
    rest, factors = matrix.unsqueeze(1), []
    while rest.shape[-1] > 1:
        places, columns = rest.shape[1], rest.shape[-1]
        # Rows of a rest are the higher bits of the outputs; the lowest of these bits belongs to this stride.
        blocks = rest.reshape(stacks, places, columns // 2, 2, columns // 2, 2).permute(0, 1, 3, 4, 2, 5)
        u, s, vh = torch.linalg.svd(blocks, full_matrices=False)
        row, column = vh[..., 0, :], u[..., 0] * s[..., :1]
        # row: [stacks, place, output bit, group, input bit] → [stacks, group, place, output bit, input bit]
        factors.append(row.permute(0, 3, 1, 2, 4).resolve_conj().contiguous())
        # column: [stacks, place, output bit, group, row] → [stacks, (output bit, place), row, group]
        rest = column.permute(0, 2, 1, 4, 3).reshape(stacks, 2 * places, columns // 2, columns // 2)
    last = rest.reshape(stacks, 2, size // 2, 1, 1)  # a scale for each output (output bit, place)
    factors[-1] = factors[-1] * last.permute(0, 3, 2, 1, 4)
    return factors


def _earlier(factors: list[Tensor], stop: int) -> Tensor:
    """The product of the factors before one: [stacks, groups, s, s], a matrix for each group of s features."""
    stacks = factors[0].shape[0]
    size = 2 * factors[0].shape[1]
    product = torch.ones(stacks, size, 1, 1, dtype=factors[0].dtype, device=factors[0].device)
    for factor in factors[:stop]:
        groups, stride = factor.shape[1:3]
        halves = product.reshape(stacks, groups, 2, stride, stride)  # of the input bit
        product = torch.einsum("zgsij,zgjsq->zgisjq", factor, halves)
        product = product.reshape(stacks, groups, 2 * stride, 2 * stride)
    return product


def _later(factors: list[Tensor], start: int) -> Tensor:
    """The product of the factors from one on: [stacks, places, N/s, N/s], a matrix for each place within its stride."""
    stacks = factors[0].shape[0]
    size = 2 * factors[0].shape[1]
    product = torch.ones(stacks, size, 1, 1, dtype=factors[0].dtype, device=factors[0].device)
    for factor in reversed(factors[start:]):
        groups, stride = factor.shape[1:3]
        halves = product.reshape(stacks, 2, stride, groups, groups)  # [output bit, place, rows, groups]
        product = torch.einsum("zisrg,zgsij->zsrigj", halves, factor)
        product = product.reshape(stacks, stride, 2 * groups, 2 * groups)
    return product


def product_of(factors: list[Tensor]) -> Tensor:
    """The matrices [stacks, N, N]."""
    return _earlier(factors, len(factors)).squeeze(1)


def _squared_error(matrix: Tensor, factors: list[Tensor]) -> float:
    return float((matrix - product_of(factors)).abs().square().sum())


def _sweep(matrix: Tensor, factors: list[Tensor]) -> None:
    """Solve for each factor in turn; given the others, its elements do not depend on each other.

    An element T[g, s, i, j] adds the outer product of a column of the later factors' product and a row of the earlier
    factors' product, and no two of these meet in an element of the matrix.
    """
    stacks, size, _ = matrix.shape
    for index, factor in enumerate(factors):
        groups, stride = factor.shape[1:3]
        before = _earlier(factors, index).reshape(stacks, groups, 2, stride, stride)
        after = _later(factors, index + 1).reshape(stacks, 2, stride, groups, groups)
        blocks = matrix.reshape(stacks, groups, 2, stride, groups, 2, stride)
        products = torch.einsum("zrisgjq,zisrg,zgjsq->zgsij", blocks, after.conj(), before.conj())
        columns = after.abs().square().sum(3).permute(0, 3, 2, 1)  # [stacks, group, place, output bit]
        rows = before.abs().square().sum(4).permute(0, 1, 3, 2)  # [stacks, group, place, input bit]
        weights = columns.unsqueeze(-1) * rows.unsqueeze(-2)
        factors[index] = torch.where(weights > 0, products / weights.clamp_min(1e-300), factor)
