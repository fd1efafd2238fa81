"""Signals to ranks that mpirun has started, of the tool: python faults.py TOOL MPIRUN FOLDER."""

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
import faults  # noqa: E402

#: Seconds in which mpirun ends the processes that are left.
GRACE = 30
TRAIN = (
    *("train", "bert", "--documents", "60", "--vocabulary", "100", "--length", "16", "--batch", "4", "--threads", "1"),
    *("--steps", "60", "--evaluate-every", "5", "--seed", "3"),
)
STAGES = ("--stages", "2", "--micro-batches", "2", "--pipeline", "1f1b")
#: Options for each division; the tool chooses the number of replicas from the number of ranks.
DIVIDED = {"replicas": (), "stages": STAGES, "both": STAGES}


class MpiRanks:
    """Processes that mpirun starts. Each writes its id in a file before it becomes the tool."""

    def __init__(self, mpirun: str, ranks: int, command: list[str], folder: Path) -> None:
        self._count = ranks
        self._ids = folder / "ids"
        shutil.rmtree(self._ids, ignore_errors=True)
        self._ids.mkdir()
        self._log = folder / "log"
        script = 'echo $$ >"$0/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" && exec "$@"'
        start = [mpirun, "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
        with self._log.open("wb") as log:
            self._mpirun = subprocess.Popen(
                [*start, "bash", "-c", script, str(self._ids), *command], stdout=log, stderr=subprocess.STDOUT
            )

    def send_signal(self, rank: int, number: int) -> None:
        if (process := self._process(rank)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def finish(self, struck: int | None = None, seconds: float = faults.PATIENCE) -> faults.Outcome:
        deadline = time.monotonic() + seconds
        while not self._have_ended(struck) and time.monotonic() < deadline:
            time.sleep(0.05)
        have_ended = self._have_ended(struck)
        status = self._end(struck if have_ended else None, GRACE if have_ended else 0)
        return faults.Outcome(have_ended, status == 0, self._log.read_text(errors="replace"))

    def _process(self, rank: int) -> int | None:
        try:
            return int((self._ids / str(rank)).read_text())
        except (OSError, ValueError):  # not yet, or not all of it
            return None

    def _is_gone(self, rank: int) -> bool:
        process = self._process(rank)
        if process is None:
            return False
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        return False

    def _have_ended(self, struck: int | None) -> bool:
        if self._mpirun.poll() is not None:
            return True
        return struck is not None and all(self._is_gone(rank) for rank in range(self._count) if rank != struck)

    def _end(self, struck: int | None, seconds: float) -> int:
        """The status of mpirun, which ends a rank that the others left behind, or has to be ended itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._mpirun.wait(seconds)
        if struck is not None:  # it was stopped when all was done
            self.send_signal(struck, signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._mpirun.wait(GRACE)
        for rank in range(self._count):
            self.send_signal(rank, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._mpirun.wait(GRACE)
        self._mpirun.kill()
        return self._mpirun.wait()


class MpiTraining:
    stops_after = (signal.SIGTERM,)  # all ranks learn of it

    def __init__(self, tool: str, mpirun: str, kind: str) -> None:
        self._mpirun, self._ranks, self._command = mpirun, faults.RANKS[kind], [tool, *TRAIN, *DIVIDED[kind]]

    def start(self, folder: Path, longest_wait: float) -> MpiRanks:
        file = self._file(folder)
        file.parent.mkdir(exist_ok=True)
        options = ["--rank-timeout", str(longest_wait), "--checkpoint", str(file)]
        command = [*self._command, *options, *(["--resume"] if file.exists() else [])]
        return MpiRanks(self._mpirun, self._ranks, command, folder)

    def result(self, folder: Path) -> bytes | None:
        file = self._file(folder)
        return file.read_bytes() if file.exists() else None

    def names(self, rank: int, complaints: str, folder: Path) -> bool:
        """The others cannot name a rank that hangs while MPI connects or ends."""
        return re.search(rf"rank {rank}\b|the ranks have not (connected|ended)", complaints) is not None

    def strangers(self, folder: Path) -> list[str]:
        file = self._file(folder)
        return [each.name for each in file.parent.iterdir() if each != file]

    def _file(self, folder: Path) -> Path:
        return folder / "run" / "checkpoint.safetensors"


def main() -> None:
    tool, mpirun, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    nth = faults.SHORT_NTH if os.environ.get("TESSERA_TEST_FULL", "0") == "0" else 1
    shutil.rmtree(folder, ignore_errors=True)

    def new(name: str) -> Path:
        (folder / name).mkdir(parents=True)
        return folder / name

    @functools.cache
    def whole_of(kind: str) -> faults.Whole:
        return faults.whole(MpiTraining(tool, mpirun, kind), new(f"whole-{kind}"))

    numbers = range(0, faults.COUNT, nth)
    for number in numbers:
        fault, own = faults.Fault.of(number, tuple(DIVIDED)), new(str(number))
        faults.strike(MpiTraining(tool, mpirun, fault.kind), fault, whole_of(fault.kind), own)
        shutil.rmtree(own)
    print(f"{len(numbers)} faults")


if __name__ == "__main__":
    main()
