"""Weights that sessions have prepared, and when these change."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor
from torch.fx import GraphModule

from tessera import _tessera
from tessera._choice import Choice
from tessera._held import memory_of
from tessera.graph._session import Session

#: The most sets of weights with their own sessions; equal layers, for example, have one set each.
_MOST_SETS = 256
#: Weights that change after fewer calls than this are read where they lie until they stay unchanged as long.
PATIENCE = 8

#: Addresses and versions of tensors, and the fingerprint of their contents.
State: TypeAlias = tuple[list[tuple[int, int]], int]

#: The state of no tensors.
_OTHER: State = ([], 0)


@dataclass(frozen=True)
class Weight:
    """A parameter of sessions: its name, and how it is computed from sources (None: it is its only source)."""

    name: str
    sources: tuple[int, ...]
    compute: GraphModule | None
    #: Whether no session may take it as an input: for other values, sessions are made again.
    must_be_parameter: bool
    #: The module whose product takes it, for reports.
    place: str = ""

    def of(self, sources: Sequence[Tensor]) -> Tensor:
        given = [sources[i].detach() for i in self.sources]
        computed: Tensor = given[0] if self.compute is None else self.compute(*given)
        return computed


class WeightSet:
    """Tensors that are weights, and sessions that have them as parameters."""

    def __init__(self, sources: Sequence[Tensor], state: State, patience: int) -> None:
        self._sources = [weakref.ref(each) for each in sources]
        #: The state that the sessions have, if there are any, and the state that the last call found.
        self.state = self._seen = state
        self._contents: _tessera.Contents | None = None
        #: Sessions by their program; the first one has the parameters, which the others share.
        self.sessions: dict[Any, Session] = {}
        #: The forms in which sessions have the weights: sparse where zeros make that pay.
        self.choice = Choice(measure=False)
        #: Calls since the last change.
        self.calls = 0
        self._patience = self._calls_needed = patience

    def is_of(self, sources: Sequence[Tensor]) -> bool:
        return all(own() is each for own, each in zip(self._sources, sources, strict=True))

    @property
    def is_alive(self) -> bool:
        return all(own() is not None for own in self._sources)

    def note_contents(self, sources: Sequence[Tensor]) -> None:
        """Record the contents that the sessions are about to get."""
        self._contents = _tessera.Contents([memory_of(each) for each in sources])

    def compare_contents(self) -> None:
        """Compare a part of the contents of sources in the recorded state; if they changed, note that."""
        if self._contents is not None and not self._contents.next_are_unchanged():
            self.state = _OTHER

    def rests(self, state: State) -> bool:
        """Whether the present weights, which sessions do not have, are worth preparing."""
        if state != self._seen:
            self._calls_needed = PATIENCE if self.calls < PATIENCE else self._patience
            self.calls = 0
            self._seen = state
        self.calls += 1
        return self.calls > self._calls_needed


def state_of(sources: Sequence[Tensor]) -> State | None:
    """A state that differs if tensors have changed; None if a tensor has no version, as in inference mode.

    Writes by way of `data` have no version; the fingerprint, from a few words of each tensor, shows most of them.
    """
    try:
        versions = [(each.data_ptr(), each._version) for each in sources]
    except RuntimeError:
        return None
    return versions, _tessera.fingerprint([memory_of(each) for each in sources])


class WeightSets:
    """Sets of weights from which sessions are made, by the identity of their tensors.

    A set is prepared after `patience` calls that did not change it.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._sets: dict[tuple[int, ...], WeightSet] = {}
        self._is_open = True

    def find(self, sources: Sequence[Tensor]) -> WeightSet | None:
        found = self._sets.get(tuple(map(id, sources)))
        return found if found is not None and found.is_of(sources) else None

    def add(self, sources: Sequence[Tensor], state: State) -> WeightSet | None:
        """A new set, unless there are too many sets, or the same memory belonged to other tensors before."""
        dead = [each for each in self._sets.values() if not each.is_alive]
        if any(each.state == state for each in dead):
            self._is_open = False
        self._sets = {key: each for key, each in self._sets.items() if each not in dead}
        if not self._is_open or len(self._sets) >= _MOST_SETS:
            return None
        added = self._sets[tuple(map(id, sources))] = WeightSet(sources, state, self._patience)
        return added
