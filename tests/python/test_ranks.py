"""Sessions whose replicas are divided among processes of torch.distributed."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

WORKER = Path(__file__).with_name("ranks_worker.py")


def run(ranks, *arguments):
    """The exit status and what it complains of, of each rank, as torchrun would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(WORKER), *map(str, arguments)]
    processes = [
        subprocess.Popen(
            command, env={**os.environ, **shared, "RANK": str(rank)}, stderr=subprocess.PIPE, encoding="utf-8"
        )
        for rank in range(ranks)
    ]
    complaints = [process.communicate(timeout=900)[1] for process in processes]
    return [process.returncode for process in processes], complaints


def test_ranks_have_the_bits_of_one_process(tmp_path):
    files = {ranks: tmp_path / f"{ranks}.safetensors" for ranks in (1, 2, 4)}
    for ranks, file in files.items():
        status, complaints = run(ranks, "--out", file)
        assert status == [0] * ranks, complaints
    assert files[2].read_bytes() == files[1].read_bytes()
    assert files[4].read_bytes() == files[1].read_bytes()


def test_ranks_that_differ_are_refused(tmp_path):
    status, complaints = run(2, "--out", tmp_path / "none", "--seed-of-last", 1)
    assert status == [1, 1]
    for complaint in complaints:
        assert "rank 1 has another seed than rank 0, 1 and not 0: start all ranks with the same" in complaint


def test_a_rank_that_is_killed_ends_the_others(tmp_path):
    status, complaints = run(2, "--out", tmp_path / "none", "--die-after", 2)
    assert status == [1, -9]
    assert "rank 1 has failed, ended, or not answered in time" in complaints[0]
    assert not (tmp_path / "none").exists()
