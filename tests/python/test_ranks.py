"""Sessions whose replicas and stages are divided among processes of torch.distributed."""

import ast
import functools
import os
import queue
import signal
import threading
import time

import numpy as np
import pytest

import tessera
from tessera import _tessera

torch = pytest.importorskip("torch")

import faults  # noqa: E402
import forked  # noqa: E402

#: Steps of runs with faults: enough for files after some of them.
STEPS = 60


def start(ranks, *arguments):
    return forked.start("ranks_worker", *arguments, ranks=ranks)


def run(ranks, *arguments):
    """The exit status and the messages of each rank."""
    return forked.finish(start(ranks, *arguments))


def test_ranks_have_the_bits_of_one_process(tmp_path):
    files = {ranks: tmp_path / f"{ranks}.safetensors" for ranks in (1, 2, 4)}
    for ranks, file in files.items():
        status, complaints = run(ranks, "--out", file)
        assert status == [0] * ranks, complaints
    assert files[2].read_bytes() == files[1].read_bytes()
    assert files[4].read_bytes() == files[1].read_bytes()


def test_ranks_share_statistics_of_norms(tmp_path):
    files = {ranks: tmp_path / f"{ranks}.safetensors" for ranks in (1, 2)}
    for ranks, file in files.items():
        status, complaints = run(ranks, "--out", file, "--steps", 2, "--norm")
        assert status == [0] * ranks, complaints
    assert files[2].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("pipeline, places", [("interleaved", (0, 1, 1, 0)), ("1f1b", (0, 1, 0, 1))])
def test_ranks_divide_stages_that_share_places(tmp_path, pipeline, places):
    files = {ranks: tmp_path / f"{ranks}.safetensors" for ranks in (1, 2)}
    for ranks, file in files.items():
        options = ("--steps", 2, "--stages", 4, "--pipeline", pipeline, "--places", *places)
        status, complaints = run(ranks, "--out", file, *options)
        assert status == [0] * ranks, complaints
    assert files[2].read_bytes() == files[1].read_bytes()


def test_ranks_that_differ_are_refused(tmp_path):
    status, complaints = run(2, "--out", tmp_path / "none", "--seed-of-last", 1)
    assert status == [1, 1]
    for complaint in complaints:
        assert "rank 1 has another seed than rank 0, 1 and not 0: start all ranks with the same" in complaint


@pytest.mark.parametrize("trainer", ["--bert", "--resnet", ""])
def test_a_file_that_one_rank_lacks_ends_all(trainer, tmp_path):
    status, complaints = run(2, "--out", tmp_path / "none", "--lack", *trainer.split())
    assert status == [1, 1]
    assert "RuntimeError: rank 1: lacked.toml: " in complaints[0]
    assert "RuntimeError: lacked.toml: " in complaints[1]


def test_a_rank_that_is_killed_ends_the_others(tmp_path):
    status, complaints = run(4, "--out", tmp_path / "none", "--die-after", 2)
    assert status == [1, 1, 1, -9]
    for complaint in complaints[:3]:  # even of ranks that wait for one of the others
        assert "rank 3 has failed, ended, or not answered in time" in complaint
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_ranks_do_not_wait_forever(seconds):
    import ranks_worker

    with pytest.raises(ValueError, match="rank_timeout is .*; it must be at least 0.001 seconds"):
        ranks_worker.training_step().session("host", process_group=object(), rank_timeout=seconds)


def ask_while_ranks_wait():
    """Ask a session for its inputs while its run waits for the other rank, which is a thread."""
    import ranks_worker
    import tessera.graph._graph as graphs

    letters = {(0, 1): queue.Queue(), (1, 0): queue.Queue()}

    def communicator_of(rank, *_):
        def exchange(sent, received):
            for to, view in sent:
                letters[rank, to].put(bytes(view))
            for sender, view in received:
                view[:] = letters[sender, rank].get(timeout=60)

        return _tessera.communicator(rank, 2, 60, exchange, lambda message: None, False)

    graphs.communicator_of = communicator_of
    steps = [ranks_worker.training_step() for _ in range(2)]
    sessions, runs = [None, None], threading.Event()

    def work(rank):
        session = sessions[rank] = steps[rank].session("host", threads=1, process_group=rank)
        x, labels = (np.split(array, 2)[rank] for array in ranks_worker.batch_of(0))
        if rank == 0:
            runs.set()
        else:
            runs.wait()
            time.sleep(1)
        session.run(x, labels)

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    assert runs.wait(60)
    time.sleep(0.2)
    assert "labels" in sessions[0]._native.inputs
    for thread in threads:
        thread.join()
    assert all(session.step == 2 for session in sessions)


def test_who_asks_a_session_of_ranks_waits_for_its_run():
    process = forked.CONTEXT.Process(target=ask_while_ranks_wait)
    process.start()
    process.join(600)
    process.kill()
    assert process.exitcode == 0


def test_bert_is_trained_as_in_one_process(tmp_path):
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    runs = ((1, whole, 8), (2, parts, 4), (2, parts, 4, "--interrupt"), (1, parts, 1), (2, parts, 2))
    for ranks, file, steps, *more in runs:
        status, complaints = run(ranks, "--bert", "--out", file, "--steps", steps, *more)
        assert status == [0] * ranks, complaints
    assert parts.read_bytes() == whole.read_bytes()


def test_residual_networks_are_trained_as_in_one_process(tmp_path):
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    for ranks, file, steps in ((1, whole, 6), (2, parts, 3), (1, parts, 1), (2, parts, 2)):
        status, complaints = run(ranks, "--resnet", "--out", file, "--steps", steps)
        assert status == [0] * ranks, complaints
    assert parts.read_bytes() == whole.read_bytes()


def test_stages_of_bert_are_trained_as_in_one_process(tmp_path):
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    for ranks, file, steps in ((1, whole, 8), (2, parts, 4), (1, parts, 2), (2, parts, 2)):
        status, complaints = run(ranks, "--bert", "--stages", 2, "--out", file, "--steps", steps)
        assert status == [0] * ranks, complaints
    assert parts.read_bytes() == whole.read_bytes()


class DictStore:
    """A store like those of torch.distributed, for one process."""

    def __init__(self):
        self._values = {}

    def set(self, key, value):
        self._values[key] = value

    def check(self, keys):
        return all(key in self._values for key in keys)

    def get(self, key):
        return self._values[key].encode()


def test_ranks_name_the_one_that_was_lost_first(monkeypatch):
    from tessera.graph import _ranks

    monkeypatch.setattr(_ranks, "_LONGEST_REASON", 0.2)
    ranks, store = object.__new__(_ranks._Ranks), DictStore()
    ranks._store, ranks._failure, ranks._rank = store, "failure", 0
    assert ranks._reason(1, "rank 1 has failed") == "rank 1 has failed"
    assert store.get("failure/0") == b"1 rank 1 has failed"
    store.set("failure/1", "0 rank 0 has failed")  # as this one closed the connection
    assert ranks._reason(1, "rank 1 has failed") == "rank 1 has failed"
    store.set("failure/1", "2 rank 2 has failed")
    assert ranks._reason(1, "rank 1 has failed") == "rank 2 has failed"
    store.set("failure", "rank 3: no memory")
    assert ranks._reason(1, "rank 1 has failed") == "rank 3: no memory"


class GlooRanks:
    """Processes of torch.distributed."""

    def __init__(self, ranks):
        self._ranks = ranks

    def send_signal(self, rank, number):
        self._ranks[rank].send_signal(number)

    def finish(self, struck=None, seconds=faults.PATIENCE):
        others = [rank for number, rank in enumerate(self._ranks) if number != struck]
        deadline = time.monotonic() + seconds
        statuses = [rank.wait(max(0.0, deadline - time.monotonic())) for rank in others]
        if struck is not None:
            self._ranks[struck].kill()
        complaints = "\n".join(rank.complaint() for rank in others)
        return faults.Outcome(-signal.SIGKILL not in statuses, not any(statuses), complaints)


class GlooTraining:
    """Some steps, with a checkpoint after each."""

    def __init__(self, kind):
        self._count, self._options = faults.RANKS[kind], ("--stages", 2) if kind == "stages" else ()

    def start(self, folder, longest_wait):
        self._steps(folder).mkdir(exist_ok=True)
        arguments = ("--out", folder / "out", "--steps", STEPS, "--checkpoints", self._steps(folder))
        return GlooRanks(start(self._count, *arguments, "--timeout", longest_wait, *self._options))

    def result(self, folder):
        return (folder / "out").read_bytes() if (folder / "out").exists() else None

    def names(self, rank, complaints, folder):
        """The others cannot name a rank that is lost while PyTorch connects."""
        is_connected = any(self._steps(folder).iterdir())
        return not is_connected or f"rank {rank} has failed, ended, or not answered in time" in complaints

    def strangers(self, folder):
        files = [*self._steps(folder).iterdir(), *(file for file in folder.iterdir() if file.is_file())]
        return [file.name for file in files if file.suffix != ".safetensors" and file.name != "out"]

    def _steps(self, folder):
        return folder / "steps"


@pytest.fixture(scope="module")
def whole_of(tmp_path_factory):
    """A training without faults, by kind."""
    return functools.cache(lambda kind: faults.whole(GlooTraining(kind), tmp_path_factory.mktemp("whole")))


@pytest.mark.every_nth(faults.SHORT_NTH)
@pytest.mark.parametrize("number", range(faults.COUNT))
def test_training_goes_on_after_a_signal_at_any_moment(whole_of, number, tmp_path):
    fault = faults.Fault.of(number, ("replicas", "stages"))
    faults.strike(GlooTraining(fault.kind), fault, whole_of(fault.kind), tmp_path)


@pytest.mark.skipif(tessera.get_num_threads() < 2, reason="needs two cores")
@pytest.mark.full
def test_ranks_of_a_computer_divide_its_cores(tmp_path):
    def cpus_of_ranks(*options):
        status, complaints = run(2, "--out", tmp_path / "trained", "--cores", tmp_path, *options)
        assert status == [0, 0], complaints
        return [set(ast.literal_eval((tmp_path / str(rank)).read_text())) for rank in range(2)]

    all_cpus = os.sched_getaffinity(0)
    assert cpus_of_ranks("--keep-cores") == [all_cpus, all_cpus]
    first, second = cpus_of_ranks()
    assert first and second and not first & second
    assert first | second <= all_cpus
