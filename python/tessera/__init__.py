"""Sparse networks that run fast: weights and products for CPUs, modelled machines, sequence packing.

Needs NumPy alone; SciPy, PyArrow, `datasets` and PyTorch are imported when used.
"""

from tessera._matrices import Matrix, generate, read_matrix
from tessera._products import Sddmm, Spmm, Weight, permute_packed

__all__ = ["Matrix", "Sddmm", "Spmm", "Weight", "generate", "permute_packed", "read_matrix"]
