"""Layers for PyTorch with sparse and structured weights."""

from tessera.nn import formulas
from tessera.nn._block_butterfly import BlockButterflyLinear
from tessera.nn._butterfly import ButterflyLinear
from tessera.nn._fourier import CirculantLinear, FastfoodLinear, ToeplitzLinear
from tessera.nn._kronecker import BlockDiagonalLinear, KroneckerLinear, MonarchLinear
from tessera.nn._low_rank import LowRankLinear
from tessera.nn._pixelfly import PixelflyLinear, flat_butterfly
from tessera.nn._project import Projection, project
from tessera.nn._sparse import SparseLinear, load_optimizer_state
from tessera.nn._structured import StructuredLinear, parameter_groups
from tessera.nn._transforms import bit_reversal

__all__ = [
    "BlockButterflyLinear",
    "BlockDiagonalLinear",
    "ButterflyLinear",
    "CirculantLinear",
    "FastfoodLinear",
    "KroneckerLinear",
    "LowRankLinear",
    "MonarchLinear",
    "PixelflyLinear",
    "Projection",
    "SparseLinear",
    "StructuredLinear",
    "ToeplitzLinear",
    "bit_reversal",
    "flat_butterfly",
    "formulas",
    "load_optimizer_state",
    "parameter_groups",
    "project",
]
