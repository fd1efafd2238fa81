"""Sparse matrices, and their conversions from and to SciPy and NumPy."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tessera import _tessera
from tessera._arguments import checked_seed

if TYPE_CHECKING:
    import scipy.sparse


_LONGEST = 2**31 - 1  # rows and columns


class Matrix(_tessera.Matrix):
    """A sparse matrix of m × k in CSR (block size 1) or BSR, values in float32.

    `crow_indices`, `col_indices` and `values` are views of its memory; `values` holds the blocks one after another,
    each row by row. If the block size does not divide m or k, the last blocks overhang the matrix, and elements outside
    it are ignored. `Matrix(matrix)` is a copy. Raises ValueError for arrays that are not a matrix; columns must ascend
    in each row, without repetition.
    """

    @staticmethod
    def of(matrix: Any, block_size: int | None = None) -> Matrix:
        """Take a Matrix, a sparse matrix of SciPy or PyTorch, or a two-dimensional array, whose zeros are dropped.

        With a block size, elements are covered with aligned blocks, except that a BSR matrix keeps its own blocks.
        Raises TypeError for complex numbers, ValueError for another number of dimensions.
        """
        if block_size is not None:
            block_size = _tessera.whole_number("block_size", block_size, 1)
        found: Matrix
        if isinstance(matrix, _tessera.Matrix):
            found = matrix if isinstance(matrix, Matrix) else Matrix(matrix)
        elif hasattr(matrix, "tocsr"):
            found = _from_scipy(matrix, block_size)
        elif is_tensor(matrix):
            found = _from_tensor(matrix, block_size)
        else:
            found = _from_dense(np.asarray(matrix))
        return adopt(found, block_size)

    def to_scipy(self) -> scipy.sparse.csr_array | scipy.sparse.bsr_array:
        """Return a SciPy CSR array, or a BSR array if blocks are larger than one element and none overhangs the matrix.
        """
        import scipy.sparse

        b = self.block_size
        if b == 1:
            return scipy.sparse.csr_array((self.values, self.col_indices, self.crow_indices), shape=self.shape)
        if any(size % b for size in self.shape):
            return scipy.sparse.csr_array(self.to_dense())
        blocks = self.values.reshape(-1, b, b)
        return scipy.sparse.bsr_array((blocks, self.col_indices, self.crow_indices), shape=self.shape)

    def to_dense(self) -> NDArray[np.float32]:
        """Return the matrix as an array of m × k."""
        (m, k), b = self.shape, self.block_size
        rows, cols = -(-m // b), -(-k // b)
        dense = np.zeros((rows, b, cols, b), np.float32)
        dense[_rows_of(self.crow_indices), :, self.col_indices, :] = self.values.reshape(-1, b, b)
        return dense.reshape(rows * b, cols * b)[:m, :k]

    def __repr__(self) -> str:
        m, k = self.shape
        return f"Matrix({m} × {k}, {len(self.col_indices)} blocks of size {self.block_size})"


def blocks_of(array: NDArray[np.float32], b: int) -> NDArray[np.float32]:
    """An array as [block rows, block columns, b, b], padded with 0."""
    m, k = array.shape
    rows, cols = -(-m // b), -(-k // b)
    padded = np.pad(array, ((0, rows * b - m), (0, cols * b - k)))
    return padded.reshape(rows, b, cols, b).swapaxes(1, 2)


def values_in(
    pattern: tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]], b: int, array: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The values of an array in the blocks of a pattern, crow_indices and col_indices, in their order."""
    crow_indices, col_indices = pattern
    return np.ascontiguousarray(blocks_of(array, b)[_rows_of(crow_indices), col_indices]).reshape(-1)


def _rows_of(crow_indices: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """The block row of each block."""
    starts = crow_indices.astype(np.int64)
    counts = starts[1:] - starts[:-1]
    return np.repeat(np.arange(len(counts)), counts)


def adopt(matrix: _tessera.Matrix, block_size: int | None = None) -> Matrix:
    """Return a matrix of the extension as one of this module, with larger blocks if wanted.

    If the matrix is not of this module, it is emptied, so nothing else may use it.
    """
    if block_size is not None and block_size != matrix.block_size:
        if matrix.block_size != 1:
            raise ValueError(
                f"the matrix has blocks of size {matrix.block_size}; they cannot become blocks of size {block_size}"
            )
        matrix = _tessera.cover_with_blocks(matrix, block_size)
    return matrix if isinstance(matrix, Matrix) else _tessera.adopt_matrix(Matrix, matrix)


def _require_real(dtype: Any, is_complex: bool) -> None:
    if is_complex:
        raise TypeError(f"the matrix has elements of type {dtype}; it must be real, so take .real or .imag")


def is_tensor(matrix: Any) -> bool:
    """Whether it is a tensor of PyTorch, which is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(matrix, torch.Tensor)


def why_not_dense(tensor: Any) -> str:
    """What a tensor of PyTorch is instead of a dense array, and what to give instead; "" for a dense one."""
    if tensor.is_nested:
        return "is a nested tensor: pad it, by to_padded_tensor()"
    return "" if str(tensor.layout) == "torch.strided" else f"is in {tensor.layout}: make it dense, by to_dense()"


def _from_tensor(tensor: Any, block_size: int | None) -> Matrix:
    import torch

    if tensor.dim() != 2:
        raise ValueError(f"a matrix must have two dimensions, not {tensor.dim()}")
    _require_real(tensor.dtype, tensor.is_complex())
    tensor = tensor.detach()
    if tensor.layout is torch.strided:
        return _from_dense(tensor.float().numpy())
    is_square = tensor.layout is torch.sparse_bsr and tensor.values().shape[1] == tensor.values().shape[2]
    if is_square and block_size != 1:
        rows, b = tensor, int(tensor.values().shape[1])
    elif tensor.layout in (torch.sparse_bsr, torch.sparse_bsc):
        return _from_dense(tensor.to_dense().float().numpy())
    else:
        rows, b = tensor.to_sparse_csr(), 1
    values = rows.values().float().contiguous().reshape(-1)
    return Matrix(tuple(rows.shape), b, rows.crow_indices().numpy(), rows.col_indices().numpy(), values.numpy())


def _from_scipy(matrix: Any, block_size: int | None) -> Matrix:
    if matrix.ndim != 2:
        raise ValueError(f"a matrix must have two dimensions, not {matrix.ndim}")
    _require_real(matrix.dtype, matrix.dtype.kind == "c")
    if matrix.format == "bsr" and matrix.blocksize[0] == matrix.blocksize[1] and block_size != 1:
        blocks = matrix.copy() if not matrix.has_sorted_indices else matrix
        blocks.sum_duplicates()
        b = blocks.blocksize[0]
        values = np.ascontiguousarray(blocks.data, np.float32).reshape(-1)
        return Matrix(blocks.shape, b, blocks.indptr, blocks.indices, values)
    rows = matrix.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return Matrix(rows.shape, 1, rows.indptr, rows.indices, np.ascontiguousarray(rows.data, np.float32))


def _from_dense(array: NDArray[Any]) -> Matrix:
    if array.ndim != 2:
        raise ValueError(f"a matrix must have two dimensions, not {array.ndim}")
    _require_real(array.dtype, array.dtype.kind == "c")
    rows, cols = np.nonzero(array)
    crow_indices = np.searchsorted(rows, np.arange(array.shape[0] + 1))
    values = np.ascontiguousarray(array[rows, cols], np.float32)
    return Matrix((array.shape[0], array.shape[1]), 1, crow_indices, cols, values)


def read_matrix(path: str | os.PathLike[str], tensor: str | None = None, *, seed: int = 0) -> Matrix:
    """Read a `.smtx`, `.mtx`, `.npy` or `.safetensors` file; `tensor` names the tensor of a safetensors file.

    For a file without values, synthetic values are generated from the seed.
    """
    return adopt(_tessera.read_matrix(os.fspath(path), tensor or "", checked_seed(seed)))


def generate(
    m: int,
    k: int,
    density: float,
    *,
    block_size: int = 1,
    kind: Literal["random", "banded", "power_law", "shuffled"] = "random",
    seed: int = 0,
) -> Matrix:
    """Generate a pattern with synthetic values, the same on every computer.

    ``shuffled`` places blocks uniformly, as the benchmark of PopSparse does with seed 123.
    """
    shape = _tessera.whole_number("m", m, 0, _LONGEST), _tessera.whole_number("k", k, 0, _LONGEST)
    block_size = _tessera.whole_number("block_size", block_size, 1)
    return adopt(_tessera.generate(shape, density, block_size, kind, checked_seed(seed)))
