"""Executables of sessions in files, without PyTorch."""

import subprocess
import sys

import numpy as np
import pytest

from tessera import graph as tg


def mlp(batch):
    graph = tg.Graph()
    x = graph.input("x", (batch, 12))
    h = tg.relu(tg.linear(x, graph.parameter("first.weight", (16, 12), tg.uniform(0.3))))
    graph.output("logits", tg.linear(h, graph.parameter("second.weight", (5, 16), tg.normal(0.2))))
    return graph


def training(machine, **options):
    return mlp(batch=20).training_step("cross_entropy", "sgd", lr=0.1, momentum=0.9).session(machine, **options)


@pytest.mark.parametrize("machine", ["host", "gc200"])
def test_sessions_from_files_are_those_that_were_compiled(rng, tmp_path, machine):
    path = tmp_path / "step.executable"
    compiled = training(machine, seed=1)
    compiled.save_executable(path)
    found = training(machine, seed=1, executable=path)
    assert found.program() == compiled.program()
    x, labels = rng.standard_normal((20, 12)).astype(np.float32), rng.integers(0, 5, 20)
    for _ in range(2):
        assert found.run(x, labels) == compiled.run(x, labels)
    evaluation = mlp(batch=4).session(share=compiled)
    evaluation.save_executable(path)
    shared = mlp(batch=4).session(share=found, executable=path)
    np.testing.assert_array_equal(shared.run(x[:4]), evaluation.run(x[:4]))


def test_files_of_other_sessions_are_refused(tmp_path):
    path = tmp_path / "step.executable"
    mlp(batch=4).session().save_executable(path)
    with pytest.raises(RuntimeError, match=r"step\.executable: it was made for another graph than this session's"):
        mlp(batch=8).session(executable=path)
    with pytest.raises(RuntimeError, match=r"step\.executable: it was made for another machine than"):
        mlp(batch=4).session("bow", executable=path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RuntimeError, match=r"step\.executable: it is damaged"):
        mlp(batch=4).session(executable=path)
    with pytest.raises(RuntimeError, match="missing"):
        mlp(batch=4).session(executable=tmp_path / "missing")


TRAINING_OF_CALLS = """
import sys
import numpy as np
from tessera import graph as tg

machine, saved, loaded = sys.argv[1:]
functions = []
for activation in (tg.relu, tg.tanh, tg.sigmoid):
    function = tg.Graph()
    x, w = function.input("x", (8, 16)), function.input("w", (16, 16))
    function.output("y", x + activation(tg.linear(x, w)))
    functions.append(function)
graph = tg.Graph()
value = graph.input("x", (8, 16))
for i in range(6):
    value = graph.call(functions[i % 3], value, graph.parameter(f"w{i}", (16, 16), tg.normal(0.3)))["y"]
graph.output("y", tg.linear(value, graph.parameter("last", (4, 16), tg.normal(0.3))))
step = graph.training_step("cross_entropy", "adam", lr=0.01)
session = step.session(machine, seed=1, executable=loaded or None)
if saved:
    session.save_executable(saved)
print([float(session.run(np.ones((8, 16), np.float32), np.arange(8) % 4)) for _ in range(3)])
"""


@pytest.mark.parametrize("machine", ["host", "gc200"])
def test_files_are_for_other_processes(tmp_path, machine):
    path = str(tmp_path / "step.executable")

    def losses(saved, loaded):
        command = [sys.executable, "-c", TRAINING_OF_CALLS, machine, saved, loaded]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    compiled = losses(path, "")
    assert compiled.count(",") == 2
    for _ in range(3):
        assert losses("", path) == compiled
