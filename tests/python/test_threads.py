"""The kernels on PyTorch's threads, after a fork, and within parallel regions."""

import multiprocessing
import os
import signal
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tessera
from tessera import _threads
from tessera.nn import SparseLinear


def take_two_threads():
    torch.set_num_threads(max(2, torch.get_num_threads()))
    tessera.set_num_threads(max(2, tessera.get_num_threads()))


@pytest.fixture(autouse=True)
def two_threads_of_each():
    before = torch.get_num_threads()
    take_two_threads()
    yield
    torch.set_num_threads(before)
    tessera.set_num_threads(0)


def layer_of():
    torch.manual_seed(0)
    return SparseLinear(1024, 1024, density=0.2, block_size=8)


@pytest.fixture(params=[True, False], ids=["shared", "own"])
def threads(request):
    if _threads.share_threads(request.param) != request.param:
        pytest.skip("PyTorch has no OpenMP runtime with GNU's interface")
    yield
    _threads.share_threads()


def test_results_do_not_depend_on_whose_threads_compute(threads):
    layer = layer_of()
    x = torch.randn(256, 1024)
    exact = torch.nn.functional.linear(x.double(), layer.dense_weight().double(), layer.bias.double())
    for _ in range(3):
        torch.mm(x, x.t())  # PyTorch's turn
        assert torch.allclose(layer(x).double(), exact, atol=1e-4)


def in_child(layer, x, expected):
    same = (layer(x).numpy() == expected.numpy()).all()  # PyTorch's own threads do not survive a fork
    os._exit(0 if same else 1)


def test_a_forked_process_computes_too(threads):
    layer = layer_of()
    x = torch.randn(256, 1024)
    with torch.no_grad():
        expected = layer(x)
        child = multiprocessing.get_context("fork").Process(target=in_child, args=(layer, x, expected))
        child.start()
        child.join(timeout=60)
        alive = child.is_alive()
        child.kill()
    assert not alive and child.exitcode == 0


def backward_in_child(layer, x):
    layer(x).sum().backward()
    os._exit(0 if layer.bias.grad.eq(x.shape[0]).all() else 1)


def train_in_fork(used):
    """Making a layer already starts threads of PyTorch."""
    take_two_threads()
    layer = layer_of()
    x = torch.randn(300, 1024)
    if used:
        layer(x).sum().backward()
        layer.zero_grad()
    child = multiprocessing.get_context("fork").Process(target=backward_in_child, args=(layer, x))
    child.start()
    child.join(timeout=60)
    alive = child.is_alive()
    child.kill()
    assert not alive and child.exitcode == 0


@pytest.mark.parametrize("used", [pytest.param(False, marks=pytest.mark.full), True])
def test_a_forked_process_trains_too(used):
    """In a separate process: another test may have started threads of autograd, and then a fork cannot train."""
    process = multiprocessing.get_context("spawn").Process(target=train_in_fork, args=(used,))
    process.start()
    process.join(timeout=300)
    assert process.exitcode == 0


def status_of_child(run):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)  # rather than hang
            status = run()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore")
def test_what_another_thread_uses_at_a_fork_is_refused_in_the_child():
    torch.manual_seed(0)
    x = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)
    used, other = (tessera.compile(torch.nn.Linear(512, 512).eval(), torch.from_numpy(x)) for _ in range(2))
    wanted = [used(x), other(x)]
    right, wrong, refused = 0, 1, 3

    def call():
        if not np.array_equal(other(x), wanted[1]):
            return wrong
        try:
            return right if np.array_equal(used(x), wanted[0]) else wrong
        except RuntimeError as error:
            return refused if "when this process was forked" in str(error) else wrong

    assert status_of_child(call) == right
    has_lock, is_forked = threading.Event(), threading.Event()

    def prepare():
        with used._lock:
            has_lock.set()
            is_forked.wait()

    def keep_calling():
        while not is_forked.is_set():
            used(x)
            has_lock.set()

    for use, expected in ((prepare, {refused}), (keep_calling, {right, refused})):
        has_lock.clear()
        is_forked.clear()
        thread = threading.Thread(target=use)
        thread.start()
        has_lock.wait()
        statuses = {status_of_child(call) for _ in range(3)}
        is_forked.set()
        thread.join()
        assert statuses <= expected
    assert status_of_child(call) == right
    assert np.array_equal(used(x), wanted[0])


class Rows(torch.utils.data.Dataset):
    """Rows that a layer has computed, in the workers of a DataLoader."""

    def __init__(self, layer):
        self.layer = layer

    def __len__(self):
        return 8

    def __getitem__(self, i):
        with torch.no_grad():
            return self.layer(torch.full((1024,), float(i)))


def test_workers_of_a_data_loader_compute_too(threads):
    layer = layer_of()
    rows = Rows(layer)
    expected = torch.stack([rows[i] for i in range(8)])
    loader = torch.utils.data.DataLoader(rows, batch_size=4, num_workers=2, timeout=60, multiprocessing_context="fork")
    assert torch.allclose(torch.cat(list(loader)), expected, atol=1e-5)
