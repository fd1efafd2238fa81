"""The interpolation and the fits of scripts/fit-machine."""

import importlib.machinery
import importlib.util
import math
import types
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "fit-machine"


@pytest.fixture(scope="module")
def fit():
    loader = importlib.machinery.SourceFileLoader("fit_machine", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fit_machine", loader))
    loader.exec_module(module)
    return module


@pytest.fixture
def grid(fit):
    return fit.Grid(types.SimpleNamespace(share=[1.0, 0.5, 0.25], superstep=[100.0, 300.0]))


def product_with(fit, errors):
    product = fit.Product("f16 static b = 4 d = 1/8 m = 64 n = 16", 2.0, fit.Product.rate)
    product.errors = errors
    return product


def test_errors_are_interpolated_in_the_cycles_of_the_constants(fit, grid):
    product = product_with(fit, [[0, 2], [10, 12], [40, 42]])
    expected = {(1.0, 100): 0, (0.25, 300): 42, (0.5, 200): 11, (1 / 3, 100): 25, (1 / 1.5, 150): 5.5}
    for constants, error in expected.items():
        assert grid.errors([product], *constants) == [pytest.approx(error)]


def test_candidates_span_the_estimates(fit, grid):
    candidates = grid.candidates()
    assert len(candidates) == (fit.STEPS + 1) ** 2
    assert candidates[0] == (1.0, 100.0)
    assert candidates[-1] == pytest.approx((0.25, 300.0))


def test_rates_and_speed_ups(fit):
    product = product_with(fit, [])
    cells = {product.name: 1e-6, product.dense: 3e-6}
    assert product.rate(cells) == pytest.approx(2e-12 * 64 * 64 / 8 * 16 / 1e-6)
    assert product.speed_up(cells) == pytest.approx(3)
    assert product.read([[cells]])
    assert product.errors == [[pytest.approx(math.log(product.rate(cells) / 2))]]
    assert not product.read([[cells], [{product.name: None}]])


def test_the_committed_tables_and_constants_are_read(fit):
    options = types.SimpleNamespace(published=SCRIPT.parent.parent / "src/studies/popsparse/published",
                                    m=[512, 1024, 2048, 4096, 8192], against="speed-up")
    assert len(list(fit.published_products(options))) == 389
    options.against = "rate"
    products = list(fit.published_products(options))
    assert {product.m for product in products} == {1024, 2048, 4096, 8192}
    one = next(p for p in products if p.name == "f16 static b = 1 d = 1/4 m = 1024 n = 4")
    assert one.published == pytest.approx(0.923 * 6.1 / 4)
    share, superstep = fit.present_constants()
    assert 0 < share <= 1 < superstep
