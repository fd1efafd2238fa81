"""Batches of whole sequences with a bounded number of tokens, over ranks and restarts."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tessera.pack._plan import Algorithm, Index, Lengths, Overflow, Plan, lengths_array, plan


class BatchSampler:
    """Yield lists of positions of sequences, each of at most `max_tokens` tokens in all.

    A batch sampler for PyTorch's DataLoader. Every rank yields as many batches, of nearly equal attention cost in
    each step; if packs and ranks do not divide, the last step repeats packs, or is left out with `drop_last`. The
    order follows from the seed and the epoch: iterating begins the next one, and a restored sampler goes on with
    the batch after the last one taken.
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
        overflow: Overflow = "error",
    ) -> None:
        if num_replicas < 1 or not 0 <= rank < num_replicas:
            raise ValueError(f"rank {rank} of {num_replicas}: ranks are numbered from 0")
        if overflow not in ("error", "drop"):
            raise ValueError(f"overflow is {overflow!r}; batches hold whole sequences: use 'error' or 'drop'")
        self._lengths = lengths_array(lengths)
        self.plan: Plan = plan(self._lengths, max_tokens, algorithm, max_per_pack=max_per_batch, overflow=overflow)
        self.num_replicas = num_replicas
        self.rank = rank
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self._epoch = 0
        self._taken = 0

    @property
    def lost_tokens(self) -> int:
        """Tokens of the sequences that are dropped."""
        return self.plan.lost_tokens

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch."""
        self._epoch, self._taken = epoch, 0

    def __len__(self) -> int:
        steps, rest = divmod(self.plan.packs, self.num_replicas)
        return steps + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        packs = self._order()
        while self._taken < len(self):
            pack = (self._taken * self.num_replicas + self.rank) % packs.packs
            self._taken += 1
            yield packs.sequence[packs.offsets[pack] : packs.offsets[pack + 1]].tolist()
        self.set_epoch(self._epoch + 1)

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return where this rank is; `batches` that were used of this epoch, if workers have taken more."""
        taken = self._taken if batches is None else batches
        if not 0 <= taken <= len(self):
            raise ValueError(f"{taken} batches of an epoch of {len(self)}")
        return {"epoch": self._epoch, "batches": taken, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another sampler of the same data and options was."""
        for key, own in self._identity().items():
            if key not in state:
                raise ValueError(f"the state has no {key!r}; it is not that of a BatchSampler")
            if state[key] != own:
                raise ValueError(f"the state is of a sampler with {key} = {state[key]!r}; this one has {own!r}")
        epoch, batches = state.get("epoch"), state.get("batches")
        if not isinstance(epoch, int) or not isinstance(batches, int) or not 0 <= batches <= len(self) or epoch < 0:
            raise ValueError(f"the state is at batch {batches!r} of epoch {epoch!r}; an epoch has {len(self)}")
        self._epoch, self._taken = epoch, batches

    def _order(self) -> Index:
        order = self.seed * 0x9E3779B97F4A7C15 + self._epoch  # an odd number: epochs of other seeds lie far away
        return self.plan.index(
            self._lengths,
            shuffle=order % 2**64 if self.shuffle else None,
            ranks=self.num_replicas if self.num_replicas > 1 else 0,
        )

    def _identity(self) -> dict[str, Any]:
        """Everything that the order depends on, of all ranks."""
        return {
            "format": 1,
            "lengths": zlib.crc32(self._lengths.astype(np.int64).tobytes()),
            "packs": self.plan.packs,
            "max_tokens": self.plan.max_length,
            "num_replicas": self.num_replicas,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "drop_last": self.drop_last,
        }
