"""Uses of native signatures, for type checkers: read by mypy, never run."""

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import tessera

matrix = tessera.generate(4, 4, 0.5)
weight = tessera.Weight(matrix)
x = np.ones((4, 3), np.float32)

y = tessera.Spmm(weight, 3)(x)
assert_type(y, NDArray[np.float32])
assert_type(tessera.Spmm(weight, 3)(x, out=None), NDArray[np.float32])
floats: bytearray = tessera.Spmm(weight, 3)(x, bytearray())  # the result is `out`, whatever its type
assert_type(tessera.Sddmm(weight, 3)(y, x), NDArray[np.float32])
assert_type(tessera.permute_packed(0, weight.packed_format, matrix, matrix.values), NDArray[np.float32])
assert_type(tessera.zeros_of(x, rows=4), tessera.Zeros)
assert_type(tessera.inspect("model").tensors[0].shape, tuple[int, ...])
