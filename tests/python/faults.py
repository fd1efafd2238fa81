"""Signals to one rank of a training at a random moment, and the conditions after them: all others end in time and name
the lost rank, nothing half-written remains, and training continues with the same bits as without an interruption.

Trainings come from test_ranks.py, with gloo, and from tests/mpi/faults.py, with MPI.
"""

import random
import resource
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

#: The number of faults in ./test --full; the short run takes every nth.
COUNT, SHORT_NTH = 100, 53
#: The number of ranks, by the division: among replicas, the stages of one replica, or the stages of two.
RANKS = {"replicas": 2, "stages": 2, "both": 4}
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGSEGV)
#: Seconds for which ranks wait for each other with faults, and without; and seconds after which a rank hangs, even on
#: slow computers.
LONGEST_WAIT, PATIENCE, LONGEST_END = 4, 600, 64


@dataclass(frozen=True)
class Fault:
    kind: str
    signal: signal.Signals
    rank: int
    #: When the fault comes, as a fraction of the time of a whole training.
    moment: float

    @staticmethod
    def of(number: int, kinds: Sequence[str]) -> "Fault":
        choice = random.Random(number)
        kind, what = kinds[number // len(SIGNALS) % len(kinds)], SIGNALS[number % len(SIGNALS)]
        return Fault(kind, what, choice.randrange(RANKS[kind]), choice.random())


@dataclass(frozen=True)
class Outcome:
    """How all ranks ended, or all but the one that had a signal."""

    have_ended: bool
    succeeded: bool
    complaints: str


class Ranks(Protocol):
    """The processes of a training."""

    def send_signal(self, rank: int, number: int) -> None:
        """Send a signal, unless the rank does not run yet, or has ended."""

    def finish(self, struck: int | None = None, seconds: float = PATIENCE) -> Outcome:
        """Wait for all ranks, or for all but one, and end the ranks that still run after that."""


class Training(Protocol):
    """A training of ranks whose checkpoints lie in a folder."""

    def start(self, folder: Path, longest_wait: float) -> Ranks:
        """Begin it, or continue from the last checkpoint, with ranks that wait this long for each other."""

    def result(self, folder: Path) -> bytes | None:
        """The file of a whole training; None or another content before its end."""

    def names(self, rank: int, complaints: str, folder: Path) -> bool:
        """Whether the others complain of a rank, if they can know its name."""

    def strangers(self, folder: Path) -> list[str]:
        """Files that no training should leave."""


@dataclass(frozen=True)
class Whole:
    """A training without faults."""

    seconds: float
    result: bytes


def whole(training: Training, folder: Path) -> Whole:
    begin = time.monotonic()
    outcome = training.start(folder, PATIENCE).finish()
    assert outcome.succeeded, f"without faults: {outcome.complaints}"
    result = training.result(folder)
    assert result is not None
    return Whole(time.monotonic() - begin, result)


def strike(training: Training, fault: Fault, without: Whole, folder: Path) -> None:
    """Begin a training, disturb it, and continue."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    after = fault.moment * without.seconds
    what = f"{fault.kind}: {fault.signal.name} to rank {fault.rank} after {after:.3f} s"
    ranks = training.start(folder, LONGEST_WAIT)
    time.sleep(after)
    ranks.send_signal(fault.rank, fault.signal)
    outcome = ranks.finish(fault.rank, LONGEST_END)
    assert outcome.have_ended, f"{what}: the others hang: {outcome.complaints}"
    if not outcome.succeeded and training.result(folder) != without.result:
        is_named = training.names(fault.rank, outcome.complaints, folder)
        assert is_named or ends_well(training, fault), f"{what}: nobody names the rank: {outcome.complaints}"
    assert not training.strangers(folder), f"{what}: there remain {training.strangers(folder)}"
    outcome = training.start(folder, PATIENCE).finish()
    assert outcome.succeeded, f"{what}: training does not go on: {outcome.complaints}"
    assert training.result(folder) == without.result, f"{what}: training goes on with other bits"


def ends_well(training: Training, fault: Fault) -> bool:
    """Whether ranks stop together, without an error, after this fault of one of them."""
    return fault.signal in getattr(training, "stops_after", ())
