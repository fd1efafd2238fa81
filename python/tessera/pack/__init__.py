"""Sequence packing: plans, index arrays, boundaries for attention, and packed tables and data sets.

Joins sequences into packs of at most `max_length` tokens. Planning needs only lengths; `plan` reports the number of
packs that is provably necessary, and every function reports dropped tokens.
"""

from tessera.pack._boundaries import boundaries
from tessera.pack._plan import Histogram, Index, Plan, histogram, index, plan, verify_certificate
from tessera.pack._sampler import BatchSampler
from tessera.pack._tables import LostTokensWarning, pack_dataset, pack_table

__all__ = [
    "BatchSampler",
    "Histogram",
    "Index",
    "LostTokensWarning",
    "Plan",
    "boundaries",
    "histogram",
    "index",
    "pack_dataset",
    "pack_table",
    "plan",
    "verify_certificate",
]
