"""A separate environment for tests, and reproducible random numbers."""

import collections
import gc
import os
import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np
import pytest

# Files and settings of the user are neither read nor written. This must come before anything reads the environment.
# Names with TEST are for tests, and TESSERA_DATA is the folder of data.
OWN = tempfile.TemporaryDirectory(prefix="tessera-test-")
for _name in list(os.environ):
    is_for_tests = _name.startswith("TESSERA_TEST_") or _name in ("TESSERA_DATA", "TESSERA_UPDATE_GOLDEN")
    if _name.startswith(("TESSERA_", "OMP_", "GOMP_", "XDG_")) and not is_for_tests:
        del os.environ[_name]
# If several tests run at once, PyTorch's waiting threads would spin on cores of other tests.
os.environ["OMP_WAIT_POLICY"] = "passive"
# Tests run on all cores at once: threads of a test would wait for cores of other tests. Tests about threads set their
# number.
if os.environ.get("TESSERA_TEST_FULL", "0") == "0":
    os.environ["TESSERA_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HOME"] = OWN.name
os.environ["TESSERA_CACHE"] = str(pathlib.Path(OWN.name) / "cache")


@pytest.hookimpl(tryfirst=True)  # before tests marked full are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as full the cases of a grid that the short run leaves out."""
    seen: collections.Counter[str] = collections.Counter()
    for item in items:
        every_nth, pairs = item.get_closest_marker("every_nth"), item.get_closest_marker("pairs")
        if every_nth is None and pairs is None:
            continue
        test = item.nodeid.partition("[")[0]
        number = seen[test] if every_nth is not None else sum(places_of(item, seen[test]))
        if number % (every_nth or pairs).args[0] != 0:
            item.add_marker(pytest.mark.full)
        seen[test] += 1


def pytest_collection_finish() -> None:
    """Exclude the objects of modules from garbage collection: half a million of them take a fifth of the time."""
    gc.collect()
    gc.freeze()


def places_of(item: pytest.Item, number: int) -> list[int]:
    """The positions of a case's values among the values of each parameter."""
    places = []
    for parameter in reversed(list(item.iter_markers("parametrize"))):  # the last changes from case to case
        number, place = divmod(number, len(parameter.args[1]))
        places.append(place)
    return places


@pytest.fixture
def own_folder() -> pathlib.Path:
    """The folder of home and caches."""
    return pathlib.Path(OWN.name)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Products and sessions take two threads at least."""
    import tessera

    tessera.set_num_threads(max(2, tessera.get_num_threads()))
    yield
    tessera.set_num_threads(0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261122)
