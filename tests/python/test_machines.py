"""Products on the host and on modelled machines."""

import json
import pickle
import re

import numpy as np
import pytest
import scipy.sparse

import tessera
from tessera import graph as tg


@pytest.fixture(scope="module")
def matrix():
    return tessera.generate(256, 192, 0.1, block_size=4, seed=3)


@pytest.mark.pairs(2)
@pytest.mark.parametrize("mode", ["static", "dynamic", "dense"])
@pytest.mark.parametrize("product", ["forward", "input_gradient", "sddmm"])
@pytest.mark.parametrize("machine", ["host", "bow"])
def test_products_are_right(matrix, machine, mode, product):
    tiles = {} if machine == "host" else {"tiles": 64}
    result = tessera.profile_product(
        matrix,
        n=32,
        machine=tessera.Machine(machine, **tiles),
        dtype="f32" if machine == "host" else "f16",
        mode=mode,
        product=product,
        verify="full",
    )
    assert result.fits and result.verified
    assert result.error <= result.tolerance
    assert result.seconds > 0
    assert sum(result.phases.values()) == pytest.approx(result.seconds)
    assert (result.cycles is None) == (machine == "host")


def test_machines():
    bow = tessera.Machine("bow", tiles=2944)
    assert (bow.tiles, bow.is_host, bow.name) == (2944, False, "bow")
    assert bow.tile_bytes == 638976
    assert tessera.Machine("bow").tiles == 1472
    assert "tiles=2944" in repr(bow)
    assert tessera.Machine("host", threads=2).tiles == 2


def test_memory_by_tile_and_purpose(matrix):
    result = tessera.profile_product(matrix, 32, tessera.Machine("bow", tiles=64), dtype="f16", execute=False)
    assert result.memory.shape == (64, len(result.purposes))
    weights = result.memory[:, result.purposes.index("parameter")].sum()
    assert weights >= 2 * len(matrix.values)
    described = json.loads(result.to_json())["results"][0]
    assert result.memory.sum(1).max() == described["memory"]["max_tile_bytes"]
    assert result.cycles == described["cycles"]
    assert result.seconds == described["seconds"]


def test_estimates_multiply_nothing(matrix):
    bow = tessera.Machine("bow", tiles=64)
    run = tessera.profile_product(matrix, 32, bow, dtype="f16")
    estimated = tessera.profile_product(matrix, 32, bow, dtype="f16", execute=False)
    assert estimated.cycles == run.cycles
    assert estimated.verified is None and estimated.error is None


def test_planners_and_types(matrix):
    bow = tessera.Machine("bow", tiles=64)
    best = tessera.profile_product(matrix, 32, bow, dtype="f16", execute=False)
    vendor = tessera.profile_product(matrix, 32, bow, dtype="f16", planner="vendor", execute=False)
    wide = tessera.profile_product(matrix, 32, bow, dtype="f16-f32", execute=False)
    assert best.seconds <= vendor.seconds
    assert best.plan and wide.seconds != vendor.seconds


def test_scipy_and_numpy(rng):
    rows = scipy.sparse.random_array((64, 64), density=0.2, rng=rng, dtype=np.float32, format="csr")
    assert tessera.profile_product(rows, 8, "host", block_size=4, verify="full").verified
    assert tessera.profile_product(rows.toarray(), 8, verify="full").verified


def test_reports(matrix, tmp_path):
    result = tessera.profile_product(matrix, 32, tessera.Machine("bow", tiles=64), dtype="f16")
    result.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    assert "bow tiles=64" in page
    inline = result._repr_html_()
    assert inline.startswith("<iframe srcdoc=") and "<script" not in inline
    assert re.search(r"bow", repr(result)) or "tiles" in repr(result)


def test_what_does_not_fit():
    large = tessera.generate(4096, 4096, 0.5, block_size=16)
    result = tessera.profile_product(large, 512, tessera.Machine("bow", tiles=16), dtype="f16")
    assert not result.fits
    assert result.seconds is None
    assert "does not fit" in result.overflow and result.overflow in repr(result)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda w: tessera.Machine("cray"), ValueError, "unknown machine 'cray'"),
        (lambda w: tessera.Machine("bow", tile=5), ValueError, "tile"),
        (lambda w: tessera.Machine("bow", tiles=float("nan")), ValueError, "tiles"),
        (lambda w: tessera.Machine("m2000", topology="torus"), ValueError, "topology is 'torus', a text; figures given"),
        (lambda w: tessera.Machine("host", tiles=5), ValueError, "host"),
        (lambda w: tessera.Machine("missing.toml"), RuntimeError, "missing.toml"),
        (lambda w: tessera.profile_product(w, 8, "bow", dtype="bf16"), ValueError, "bf16"),
        (lambda w: tessera.profile_product(w, 8, "host", dtype="f16-f32"), ValueError, "tiled machines"),
        (lambda w: tessera.profile_product(w, 8, mode="fixed"), ValueError, r"'fixed' \(choose from static, dynamic"),
        (lambda w: tessera.profile_product(w, 8, planner="good"), ValueError, "best, vendor"),
        (lambda w: tessera.profile_product(w, 8, product="dw"), ValueError, "forward, input_gradient, sddmm"),
        (lambda w: tessera.profile_product(w, 8, verify="some"), ValueError, "auto, full, sample, none"),
        (lambda w: tessera.profile_product(w, -1), ValueError, "n is -1; it must be from 0"),
        (lambda w: tessera.profile_product(w, 8, seed=-1), ValueError, "seed is -1"),
        (lambda w: tessera.profile_product(w, 8, machine=None), TypeError, "a name or a Machine, not None"),
        (lambda w: tessera.Machine("bow", threads=-1), ValueError, "threads is -1"),
        (lambda w: tessera.Machine("host", threads=10**6), ValueError, "threads is 1000000; it must be from 0 to 4096"),
        (lambda w: tessera.Machine("host", threads=10**6), ValueError, "threads is 1000000"),
    ],
)
def test_bad_requests(matrix, call, error, message):
    with pytest.raises(error, match=message):
        call(matrix)


def test_malformed_matrices():
    outside = tessera.Matrix((64, 64), 1, np.arange(65), np.full(64, 9), np.ones(64, np.float32))
    outside.col_indices[:] = 99
    for machine in ("host", "bow"):
        with pytest.raises(ValueError, match="column 99"):
            tessera.profile_product(outside, 8, machine)


def test_matrices_are_not_pickled_by_accident(matrix):
    with pytest.raises(TypeError):
        pickle.dumps(tessera.profile_product(matrix, 8, execute=False))


def test_machines_of_several_chips(matrix):
    m2000 = tessera.Machine("m2000", tiles=16)
    assert (m2000.chips, m2000.tiles, tessera.Machine("bow").chips) == (4, 64, 1)
    result = tessera.profile_product(matrix, n=256, machine=m2000, dtype="f32", verify="full")
    assert result.verified
    assert "chips" in result.plan


def test_errors_of_nan_are_nan():
    result = tessera.profile_product(np.full((8, 8), np.nan, np.float32), 4, verify="full")
    assert result.verified and np.isnan(result.error)
    assert "NaN" in repr(result)
    result = tessera.profile_product(np.full((8, 8), np.nan, np.float32), 4, product="sddmm", verify="full")
    assert result.verified and result.error <= result.tolerance, "the values take no part"


def test_what_does_not_fit():
    graph, bow = tg.Graph(), tessera.Machine("bow", tiles=64)
    w = graph.parameter("w", (5632, 2048))
    graph.output("y", tg.linear(graph.input("x", (256, 2048)), w))
    estimate = graph.estimate(bow)
    assert not estimate.fits and "bytes and has" in estimate.overflow and estimate.overflow in repr(estimate)
    assert "bytes and has" in estimate.page()
    with pytest.raises(ValueError, match="bytes and has"):
        graph.session(bow)


def test_a_large_dense_product_leaves_space_for_its_rows():
    graph = tg.Graph()
    graph.output("y", tg.linear(graph.input("x", (4096, 4096)), graph.parameter("w", (4096, 4096))))
    estimate = graph.estimate("gc200")
    assert estimate.fits, estimate.overflow
