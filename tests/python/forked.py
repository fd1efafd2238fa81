"""Processes that fork from one that has imported PyTorch, as importing it takes longer than most runs."""

import contextlib
import importlib
import multiprocessing
import os
import socket
import sys
import tempfile
from pathlib import Path

import torch

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["torch.distributed", "torch.export._trace", "torch._decomp", "tessera.graph", "tessera.text"]
)


def _work(worker, arguments, environment, errors):
    """Run a worker's main() with its own arguments and environment; its stderr goes to a file."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND), 2)
    os.environ.update(environment)
    torch.set_num_threads(1)
    sys.argv = [worker, *arguments]
    importlib.import_module(worker).main()


class Rank:
    """A process that runs main() of a worker, a module of this folder, on one thread."""

    def __init__(self, worker, arguments, environment):
        self._errors = tempfile.NamedTemporaryFile(prefix="tessera-rank-")
        work = (worker, [str(each) for each in arguments], environment, self._errors.name)
        self._process = CONTEXT.Process(target=_work, args=work, daemon=True)
        self._process.start()

    def wait(self, timeout=900):
        """The exit status, at the latest after this time."""
        self._process.join(timeout)
        self.kill()
        return self._process.exitcode

    def complaint(self):
        return Path(self._errors.name).read_text()

    def send_signal(self, number):
        if self._process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def kill(self):
        self._process.kill()
        self._process.join()


def start(worker, *arguments, ranks):
    """One process for each rank, as torchrun would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    return [Rank(worker, arguments, shared | {"RANK": str(rank)}) for rank in range(ranks)]


def finish(ranks):
    """The exit status and the messages of each rank."""
    return [rank.wait() for rank in ranks], [rank.complaint() for rank in ranks]
