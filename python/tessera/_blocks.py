"""Patterns of blocks as tensors: flat positions (block row · block columns + block column), CSR, masks, matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tessera import _tessera

BLOCK_SIZES = (1, 4, 8, 16, 32)


def check_block_size(block_size: int, sizes: tuple[int, ...] = BLOCK_SIZES) -> None:
    """Refuse a block size for which there are no kernels."""
    if _tessera.whole_number("block_size", block_size) not in sizes:
        raise ValueError(f"unknown block_size {block_size!r} (choose from {', '.join(map(str, sizes))})")


def grid_of(out_features: int, in_features: int, block_size: int) -> tuple[int, int]:
    """Block rows and block columns; the last ones may overhang the matrix."""
    return -(-out_features // block_size), -(-in_features // block_size)


def count_for(density: float, blocks: int) -> int:
    """The number of blocks that a density means, at least one."""
    if not 0 < density <= 1:  # also refuses NaN
        raise ValueError(f"density is {density}; it must be above 0 and at most 1")
    return max(1, math.floor(density * blocks + 0.5))


def random_positions(count: int, blocks: int, generator: torch.Generator | None = None) -> Tensor:
    """`count` different positions, ascending, chosen uniformly."""
    return torch.randperm(blocks, generator=generator)[:count].sort().values


def csr_of(positions: Tensor, grid: tuple[int, int], capacity: int) -> tuple[Tensor, Tensor]:
    """crow_indices and col_indices of ascending positions; unused capacity is filled with 0."""
    rows, cols = grid
    if positions.numel() > capacity:
        raise ValueError(f"a pattern of {positions.numel()} blocks; there is room for {capacity}")
    row = torch.div(positions, cols, rounding_mode="floor")
    crow = torch.zeros(rows + 1, dtype=torch.int32)
    crow[1:] = torch.bincount(row, minlength=rows).cumsum(0)
    col = torch.zeros(capacity, dtype=torch.int32)
    col[: positions.numel()] = positions - row * cols
    return crow, col


def positions_of(crow: Tensor, col: Tensor, cols: int) -> Tensor:
    """The inverse of `csr_of`; col_indices may have unused entries at the end."""
    counts = crow.diff()
    row = torch.repeat_interleave(torch.arange(counts.numel()), counts)
    return row * cols + col[: row.numel()]


def blocks_of(matrix: Tensor, block_size: int) -> Tensor:
    """A matrix as [block rows, block columns, b, b], padded with 0 (a view, if it needs no padding)."""
    b = block_size
    rows, cols = grid_of(matrix.shape[0], matrix.shape[1], b)
    padding = (0, cols * b - matrix.shape[1], 0, rows * b - matrix.shape[0])
    padded = torch.nn.functional.pad(matrix, padding) if any(padding) else matrix
    return padded.reshape(rows, b, cols, b).transpose(1, 2)


def gather_blocks(matrix: Tensor, positions: Tensor, block_size: int) -> Tensor:
    """The values of blocks of a matrix, block after block, each row by row."""
    if block_size == 1:
        return matrix.reshape(-1)[positions]
    blocks = blocks_of(matrix, block_size)
    row = torch.div(positions, blocks.shape[1], rounding_mode="floor")
    return blocks[row, positions - row * blocks.shape[1]].reshape(-1)


def scatter_blocks(values: Tensor, positions: Tensor, shape: tuple[int, int], block_size: int) -> Tensor:
    """A matrix with these values in these blocks, 0 elsewhere."""
    b = block_size
    rows, cols = grid_of(*shape, b)
    blocks = torch.zeros(rows * cols, b * b, dtype=values.dtype)
    blocks = blocks.index_copy(0, positions, values.reshape(-1, b * b))
    return blocks.reshape(rows, cols, b, b).transpose(1, 2).reshape(rows * b, cols * b)[: shape[0], : shape[1]]


def block_norms(matrix: Tensor, block_size: int) -> Tensor:
    """The Euclidean norm of each block, flat."""
    if block_size == 1:
        return matrix.abs().reshape(-1)
    return blocks_of(matrix, block_size).square().sum((2, 3)).reshape(-1)


# From this number of scores on, it is faster to find the scores above a bound first.
_MANY_SCORES = 1 << 20


def largest(scores: Tensor, count: int) -> Tensor:
    """The positions of the `count` largest scores, ascending. NaN counts as largest."""
    if scores.numel() >= _MANY_SCORES and count < scores.numel() // 8:
        sample = scores[:: max(1, scores.numel() >> 16)]
        rank = min(sample.numel(), math.ceil(1.3 * count / scores.numel() * sample.numel()) + 64)
        # "Not below", since NaN counts as above every bound.
        above = (scores < torch.topk(sample, rank).values[-1]).logical_not_().nonzero().reshape(-1)
        if above.numel() >= count:
            return above[torch.topk(scores[above], count, sorted=False).indices].sort().values
    return torch.topk(scores, count, sorted=False).indices.sort().values


def positions_with_any(matrix: Tensor, block_size: int) -> Tensor:
    """The blocks with a non-zero element; if there is none, the first block."""
    found = blocks_of(matrix != 0, block_size).sum((2, 3)).reshape(-1).nonzero().reshape(-1)
    return found if found.numel() else torch.zeros(1, dtype=torch.int64)


def positions_in_mask(mask: Tensor, block_size: int) -> Tensor:
    """The blocks of a mask. Raises ValueError for a mask with blocks that it covers only in part."""
    mask = mask.to(torch.bool)
    if block_size == 1:
        return mask.reshape(-1).nonzero().reshape(-1)
    inside = blocks_of(torch.ones_like(mask), block_size).sum((2, 3))
    marked = blocks_of(mask, block_size).sum((2, 3))
    in_part = int(((marked > 0) & (marked < inside)).sum())
    if in_part:
        raise ValueError(
            f"the mask covers {in_part} blocks of {block_size} × {block_size} only in part: use whole aligned blocks, "
            "or a smaller block_size"
        )
    return (marked > 0).reshape(-1).nonzero().reshape(-1)
