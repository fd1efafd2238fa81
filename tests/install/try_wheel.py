"""Uses an installed wheel where there is no compiler, with PyTorch if it is installed: scripts/build-wheel runs it."""

import importlib.metadata
import importlib.util
import pathlib
import shutil
import sys

import numpy as np

# Libraries that manylinux lets a wheel take from the computer, and extensions of Python's own library.
FROM_COMPUTER = ("libstdc++.so", "libgcc_s.so", "libm.so", "libz.so")


def mapped_libraries():
    fields = [line.split(maxsplit=5) for line in pathlib.Path("/proc/self/maps").read_text().splitlines()]
    return {pathlib.Path(each[5]) for each in fields if len(each) == 6 and ".so" in each[5]}


BEFORE = mapped_libraries()

import tessera  # noqa: E402
from tessera import graph as tg  # noqa: E402


def foreign_libraries():
    """Those that came with the package, but not in the environment."""
    return [
        path
        for path in mapped_libraries() - BEFORE
        if pathlib.Path(sys.prefix) not in path.parents
        and "lib-dynload" not in path.parts
        and not path.name.startswith(FROM_COMPUTER)
    ]


def try_numpy():
    random = np.random.default_rng(0)
    matrix = tessera.generate(256, 192, 0.1, seed=1)
    x = random.standard_normal((192, 32), np.float32)
    np.testing.assert_allclose(tessera.Spmm(tessera.Weight(matrix), 32)(x), matrix.to_dense() @ x, rtol=1e-4, atol=1e-4)
    on_tiles = tessera.profile_product(matrix, 32, "gc200")
    assert on_tiles.verified and on_tiles.cycles > 0

    graph = tg.Graph()
    inputs = graph.input("x", (16, 8))
    graph.output("y", tg.linear(inputs, graph.parameter("w", (4, 8), tg.uniform(0.3))))
    session = graph.training_step("cross_entropy", "sgd", lr=0.1).session()
    labels = random.integers(0, 4, 16)
    losses = [session.run(random.standard_normal((16, 8), np.float32), labels) for _ in range(3)]
    assert np.isfinite(losses).all()


def try_torch():
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).eval()
    with torch.no_grad():
        model[0].weight[torch.rand(512, 256) < 0.95] = 0
        x = torch.randn(64, 256)
        expected = model(x)
        torch.testing.assert_close(torch.as_tensor(tessera.compile(model, x)(x)), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.compile(model, backend="tessera")(x), expected, rtol=1e-4, atol=1e-5)
    return f" and PyTorch {torch.__version__}"


compilers = [name for name in ("cc", "gcc", "g++", "c++", "clang", "clang++") if shutil.which(name)]
assert not compilers, compilers
assert pathlib.Path(sys.prefix) in pathlib.Path(tessera.__file__).parents, tessera.__file__
assert not foreign_libraries(), foreign_libraries()
try_numpy()
beside = try_torch() if importlib.util.find_spec("torch") else ""
print(f"tessera {importlib.metadata.version('tessera')} works with NumPy {np.__version__}{beside}")
