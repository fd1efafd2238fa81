"""Plans from lengths or histograms, and the packs of a data set as arrays."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tessera import _tessera
from tessera._arguments import checked_seed

Algorithm: TypeAlias = Literal["best", "lpfhp", "spfhp", "nnlshp", "ffd", "next-fit"]
Overlong: TypeAlias = Literal["error", "drop", "truncate", "split"]
IndexArray: TypeAlias = NDArray[np.uint32] | NDArray[np.uint64]
Lengths: TypeAlias = NDArray[Any] | Sequence[int]


class Histogram(Counter[int]):
    """Number of sequences of each length. Histograms of shards add: `sum(shards, Histogram())`."""

    def __add__(self, other: Counter[int]) -> Histogram:  # type: ignore[override]
        return Histogram(Counter.__add__(self, other))


def histogram(lengths: Lengths) -> Histogram:
    """Count sequences by length."""
    values, counts = np.unique(lengths_array(lengths), return_counts=True)
    return Histogram(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def lengths_array(lengths: Lengths) -> NDArray[Any]:
    """Return lengths as a contiguous array of integers, without a copy if they are one already."""
    array = np.ascontiguousarray(lengths)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1:
        raise ValueError(f"lengths must be one-dimensional, not {array.ndim}-dimensional")
    if array.dtype.kind not in "iu":
        raise TypeError(f"lengths must be integers, not {array.dtype}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def count(lengths: Lengths | Mapping[int, int], max_length: int, overlong: Overlong) -> _tessera.PackInput:
    """Count lengths, or take their histogram, and apply the policy to sequences that are too long."""
    max_length = _tessera.whole_number("max_length", max_length, 1)
    if not isinstance(overlong, str):
        raise TypeError(f"overlong must be 'error', 'drop', 'truncate' or 'split', not {overlong!r}")
    if isinstance(lengths, Mapping):
        return _tessera.count_histogram(
            _whole_numbers("a length", lengths), _whole_numbers("a count", lengths.values()), max_length, overlong
        )
    return _tessera.count_lengths(lengths_array(lengths), max_length, overlong)


def _whole_numbers(name: str, values: Iterable[int]) -> NDArray[np.int64]:
    return np.array([_tessera.whole_number(name, value, 0, 2**63 - 1) for value in values], np.int64)


class Plan:
    """A packing of a histogram: kinds of packs, and the number of packs of each kind.

    `overlong_sequences` sequences exceeded the maximum; `lost_tokens` of their tokens were dropped or truncated.
    """

    def __init__(self, packing: _tessera.Packing, counted: _tessera.PackInput, overlong: Overlong) -> None:
        self._packing = packing
        self._counted = counted
        self.overlong: Overlong = overlong
        self.max_length: int = packing.max_length
        self.max_per_pack: int = packing.max_per_pack
        self.algorithm: str = packing.algorithm
        self.packs: int = packing.packs
        self.lower_bound: int = packing.lower_bound
        self.sequences: int = packing.sequences
        self.tokens: int = packing.tokens
        self.padding: int = packing.padding
        self.efficiency: float = packing.efficiency
        self.packing_factor: float = packing.packing_factor
        self.cut_short: bool = packing.cut_short
        self.seconds: float = packing.seconds
        self.overlong_sequences: int = counted.overlong_sequences
        self.lost_tokens: int = counted.lost_tokens

    @property
    def gap(self) -> int:
        """Number of packs beyond the number that is provably necessary."""
        return self.packs - self.lower_bound

    @property
    def optimal(self) -> bool:
        """Whether no packing has fewer packs."""
        return self.gap == 0

    @property
    def strategies(self) -> list[tuple[list[int], int]]:
        """Kinds of packs: the lengths in one pack, and the number of such packs."""
        return self._packing.strategies

    @property
    def depths(self) -> list[int]:
        """`depths[d]` packs hold d sequences."""
        return self._packing.depths

    def save_certificate(self, path: str | os.PathLike[str]) -> None:
        """Write the proof of the lower bound as JSON; `verify_certificate` checks it."""
        self._packing.save_certificate(os.fspath(path))

    def shard(self, lengths: Lengths | Mapping[int, int]) -> Plan:
        """Plan a part of the sequences by this plan of all sequences."""
        counted = count(lengths, self.max_length, self.overlong)
        return Plan(_tessera.plan_shard(self._packing, counted), counted, self.overlong)

    def index(self, lengths: Lengths, *, shuffle: int | None = None, ranks: int = 0) -> Index:
        """List the sequences in each pack, for the lengths that were planned.

        With a seed, packs are in random order. `ranks` orders them for that number of data-parallel ranks that take
        packs round-robin: the cost of attention, Σ length², is nearly equal in every step. Raises ValueError for
        lengths other than the planned ones.
        """
        array = lengths_array(lengths)
        if shuffle is not None:
            shuffle = checked_seed(shuffle, "shuffle")
        ranks = _tessera.whole_number("ranks", ranks)
        arrays = _tessera.index_packs(self._packing, self._counted, array, shuffle, ranks)
        return Index(*arrays, self)

    def __repr__(self) -> str:
        lost = f", {self.lost_tokens} tokens lost" if self.lost_tokens else ""
        bound = "optimal" if self.optimal else f"at least {self.lower_bound} needed"
        return f"Plan({self.packs} packs of {self.max_length}, {bound}, {100 * self.efficiency:.2f} % used{lost})"


@dataclass(frozen=True)
class Index:
    """Packs as arrays: pack p has the entries `offsets[p]` to `offsets[p + 1] - 1`.

    An entry is `sequence`, the position of a sequence in the input, and `start`, its first token in the pack. If
    sequences were truncated or split, an entry's tokens are `begin` to `begin + length - 1` of its sequence;
    otherwise both are None, and each entry is a whole sequence.
    """

    offsets: IndexArray
    sequence: IndexArray
    start: IndexArray
    begin: IndexArray | None
    length: IndexArray | None
    plan: Plan

    @property
    def packs(self) -> int:
        return len(self.offsets) - 1

    @property
    def lost_tokens(self) -> int:
        """Tokens that were dropped or truncated."""
        return self.plan.lost_tokens

    def lengths_of(self, lengths: Lengths) -> NDArray[Any]:
        """Number of tokens of each entry, from the lengths that were indexed."""
        return lengths_array(lengths)[self.sequence] if self.length is None else self.length

    def __repr__(self) -> str:
        return f"Index of {self.plan!r}"


def plan(
    lengths: Lengths | Mapping[int, int],
    max_length: int,
    algorithm: Algorithm = "best",
    *,
    max_per_pack: int = 0,
    overlong: Overlong = "error",
    seed: int = 0,
    certify: bool = False,
    time_limit: float | None = None,
) -> Plan:
    """Plan packs of at most `max_length` tokens for lengths, or for a histogram {length: count}.

    `max_per_pack` limits the sequences of a pack (0: any number). `overlong` says what happens to longer sequences: an
    error, or they are dropped, truncated, or split into pieces of the maximum length and a remainder. `certify` finds
    the best bound that linear programming gives, whatever the algorithm. After `time_limit` seconds the best packing so
    far is returned, and `cut_short` is set. Raises TypeError for lengths that are not integers, ValueError for numbers
    out of range and, unless `overlong` says otherwise, for sequences that are too long.
    """
    max_per_pack = _tessera.whole_number("max_per_pack", max_per_pack)
    seed = checked_seed(seed)
    counted = count(lengths, max_length, overlong)
    packing = _tessera.plan_packs(counted, algorithm, max_per_pack, seed, certify, time_limit or 0.0)
    return Plan(packing, counted, overlong)


def index(
    lengths: Lengths,
    max_length: int,
    algorithm: Algorithm = "best",
    *,
    max_per_pack: int = 0,
    overlong: Overlong = "error",
    seed: int = 0,
    time_limit: float | None = None,
    shuffle: int | None = None,
    ranks: int = 0,
) -> Index:
    """Plan packs and list the sequences in each pack: `plan(…).index(…)`."""
    array = lengths_array(lengths)
    packs = plan(
        array,
        max_length,
        algorithm,
        max_per_pack=max_per_pack,
        overlong=overlong,
        seed=seed,
        time_limit=time_limit,
    )
    return packs.index(array, shuffle=shuffle, ranks=ranks)


def verify_certificate(path: str | os.PathLike[str]) -> None:
    """Check the proof of a lower bound in integer arithmetic; raise RuntimeError if it does not hold."""
    _tessera.verify_certificate(os.fspath(path))
