"""Where the zeros of weights are, and whether they would save time."""

from __future__ import annotations

import os
from typing import Any

from tessera import _tessera
from tessera._matrices import Matrix
from tessera._tessera import InspectedModel, Zeros

_MOST_ROWS = 2**31 - 1


def inspect(path: str | os.PathLike[str], *, tensor: str | None = None, rows: int = 128) -> InspectedModel:
    """Find the zeros of the weights in files, and predict dense and sparse products with them on the host.

    `path` is the folder of a model in the layout of Hugging Face, or a `.onnx`, `.safetensors`, `.npy`, `.mtx` or
    `.smtx` file; weights may be dense, masked by `torch.nn.utils.prune`, in CSR or BSR, of a SparseLinear, or stored by
    compressed-tensors with bitmasks. `rows` is the number of rows of a layer's input, such as sentences times tokens,
    unless it follows from the fixed shapes of an ONNX model. Raises RuntimeError, naming the file, for a missing or
    malformed file, and for quantised weights of other formats.
    """
    return _tessera.inspect(os.fspath(path), tensor or "", _rows(rows))


def zeros_of(weight: Any, *, rows: int = 128) -> Zeros:
    """Find the zeros of a weight [outputs, inputs] in memory, and predict products with it, like `inspect`.

    The weight is an array of float32, float16 or bfloat16 with contiguous rows, of NumPy or any library with DLPack; or
    a Matrix or a sparse matrix of SciPy or PyTorch, whose stored elements count as non-zeros.
    """
    rows = _rows(rows)
    if hasattr(weight, "detach"):
        weight = weight.detach()
    if isinstance(weight, _tessera.Matrix) or hasattr(weight, "tocsr") or _is_sparse(weight):
        return _tessera.zeros_of_matrix(Matrix.of(weight), rows)
    return _tessera.zeros_of_array(weight, rows)


def zeros_of_matrix(matrix: Matrix, rows: int, dtype: str, groups: int = 1, taps: int = 1) -> Zeros:
    """Like `zeros_of`, for a matrix whose values are stored as "f32", "f16" or "bf16".

    With `groups`, the matrix is the weight of a convolution, [outputs, taps · channels per group].
    """
    return _tessera.zeros_of_matrix(matrix, _rows(rows), dtype, groups, taps)


def _is_sparse(weight: Any) -> bool:
    return hasattr(weight, "layout") and str(weight.layout) != "torch.strided"


def _rows(rows: int) -> int:
    return _tessera.whole_number("rows", rows, 1, _MOST_ROWS)
