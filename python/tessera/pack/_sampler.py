"""Batches of whole sequences with a bounded number of tokens, over ranks and restarts."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera import _tessera
from tessera._arguments import chosen
from tessera.pack._plan import Algorithm, Index, Lengths, Overlong, Plan, lengths_array, plan


@dataclass
class _Position:
    """A place in the sequence of batches: how many of an epoch have been taken."""

    epoch: int
    batches: int
    has_ended: bool = False


class BatchSampler:
    """Yield lists of positions of sequences, each of at most `max_tokens` tokens in all.

    A batch sampler for PyTorch's DataLoader. Every rank yields as many batches, of nearly equal attention cost in each
    step; if packs and ranks do not divide, the last step repeats packs, or is left out with `drop_last`. The order
    follows from the seed and the epoch. Batches hold whole sequences: sequences longer than `max_tokens` are an error,
    or with `overlong="drop"` left out.

    Each iterator has its own position. It begins with the first batch of the epoch, or where a restored state says;
    after an iterator has reached the end, the next iterator begins the next epoch. After a loop that is left early, the
    next iterator begins with the same batch as that loop did.
    """

    def __init__(
        self,
        lengths: Lengths,
        max_tokens: int,
        *,
        num_replicas: int = 1,
        rank: int = 0,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        algorithm: Algorithm = "best",
        max_per_batch: int = 0,
        overlong: Overlong = "error",
    ) -> None:
        num_replicas = _tessera.whole_number("num_replicas", num_replicas, 1)
        if not 0 <= rank < num_replicas:
            raise ValueError(f"rank {rank} of {num_replicas}: ranks are numbered from 0")
        chosen("overlong", overlong, ("error", "drop"))
        self._lengths = lengths_array(lengths)
        self.plan: Plan = plan(self._lengths, max_tokens, algorithm, max_per_pack=max_per_batch, overlong=overlong)
        self.num_replicas = num_replicas
        self.rank = _tessera.whole_number("rank", rank)
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self._contents = _checksum(self._lengths), _checksum(self.plan.strategies)
        self._begin(0, 0)

    @property
    def lost_tokens(self) -> int:
        """Number of tokens of the sequences that are dropped."""
        return self.plan.lost_tokens

    def set_epoch(self, epoch: int) -> None:
        """Let the next iterator begin this epoch."""
        self._begin(_tessera.whole_number("epoch", epoch, 0, 2**63 - 1), 0)

    def _begin(self, epoch: int, batches: int) -> None:
        self._first = _Position(epoch, batches)  # where the next iterator begins
        self._latest = self._first  # the position of the latest iterator

    def __len__(self) -> int:
        steps, rest = divmod(self.plan.packs, self.num_replicas)
        return steps + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        self._latest = replace(self._first)
        return self._batches(self._latest)

    def _batches(self, position: _Position) -> Iterator[list[int]]:
        packs = self._order(position.epoch)
        while position.batches < len(self):
            pack = (position.batches * self.num_replicas + self.rank) % packs.packs
            position.batches += 1
            yield packs.sequence[packs.offsets[pack] : packs.offsets[pack + 1]].tolist()
        position.has_ended = True
        if self._first.epoch == position.epoch:  # unless set_epoch or another iterator has chosen one
            self._first = _Position(position.epoch + 1, 0)

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the position of this rank: of the iterator that was begun last.

        If workers have taken more batches from it than were used, pass the number of its epoch's batches that were
        used.
        """
        at = self._latest
        if batches is not None:
            at = _Position(at.epoch, _tessera.whole_number("batches", batches, 0, len(self)))
        elif at.has_ended:
            at = self._first
        return {"epoch": at.epoch, "batches": at.batches, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the position of another sampler of the same data and options."""
        if "overlong" not in state and "overflow" in state:  # as earlier versions called it
            state = state | {"overlong": state["overflow"]}
        for key, own in self._identity().items():
            if key not in state:
                raise ValueError(f"the state has no {key!r}; it is not the state of a BatchSampler")
            if state[key] != own:
                raise ValueError(f"the state is of a sampler with {key} = {state[key]!r}; this one has {own!r}")
        epoch, batches = state.get("epoch"), state.get("batches")
        if not isinstance(epoch, int) or not isinstance(batches, int) or not 0 <= batches <= len(self) or epoch < 0:
            raise ValueError(f"the state is at batch {batches!r} of epoch {epoch!r}; an epoch has {len(self)}")
        self._begin(epoch, batches)

    def _order(self, epoch: int) -> Index:
        order = self.seed * 0x9E3779B97F4A7C15 + epoch  # an odd number: epochs of other seeds lie far away
        return self.plan.index(
            self._lengths,
            shuffle=order % 2**64 if self.shuffle else None,
            ranks=self.num_replicas if self.num_replicas > 1 else 0,
        )

    def _identity(self) -> dict[str, Any]:
        """Everything on which the order of all ranks depends."""
        return {
            "format": 2,
            "lengths": self._contents[0],
            "plan": self._contents[1],
            "packs": self.plan.packs,
            "max_tokens": self.plan.max_length,
            "max_per_batch": self.plan.max_per_pack,
            "algorithm": self.plan.algorithm,
            "overlong": self.plan.overlong,
            "num_replicas": self.num_replicas,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "drop_last": self.drop_last,
        }


def _checksum(contents: NDArray[Any] | list[tuple[list[int], int]]) -> int:
    """The CRC of lengths, whatever their type, or of the strategies of a plan."""
    if isinstance(contents, np.ndarray):
        return zlib.crc32(contents.astype(np.int64).tobytes())
    return zlib.crc32(repr(contents).encode())
