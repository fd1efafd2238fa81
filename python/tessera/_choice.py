"""Whether a layer is faster with a sparse weight."""

from __future__ import annotations

import functools
import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tessera._layers import GAIN, LayerReport
from tessera._matrices import Matrix, values_in
from tessera._prepared import STORED_TYPES
from tessera._tessera import Zeros
from tessera._zeros import zeros_of, zeros_of_matrix
from tessera.graph._convolution import ungrouped_weight
from tessera.graph._graph import Graph
from tessera.graph._parameters import Groups, type_of
from tessera.graph._values import linear


@dataclass(frozen=True)
class _Pattern:
    """The sparse form of a weight, without its values, which are in graphs and sessions."""

    shape: tuple[int, int]
    block_size: int
    crow_indices: NDArray[Any]
    col_indices: NDArray[Any]

    @staticmethod
    def of(matrix: Matrix) -> _Pattern:
        return _Pattern(matrix.shape, matrix.block_size, matrix.crow_indices.copy(), matrix.col_indices.copy())

    def matrix(self, weight: NDArray[np.float32]) -> Matrix:
        return Matrix(self.shape, self.block_size, self.crow_indices, self.col_indices, self.values_of(weight))

    def values_of(self, weight: NDArray[np.float32]) -> NDArray[np.float32]:
        """The values of a dense weight in the blocks of the pattern."""
        return values_in((self.crow_indices, self.col_indices), self.block_size, weight)


class Choice:
    """Decides, once for each weight of a module, in which form the weight is kept: the `Weights` of imported graphs."""

    def __init__(self, measure: bool) -> None:
        self.measure = measure
        self.layers: list[LayerReport] = []
        self._forms: dict[str, _Pattern | None] = {}
        #: The contents of computed weights, and of the parameters of all graphs, by name.
        self._computed: dict[str, Any] = {}
        self._parameters: dict[str, Any] = {}

    def form_of(
        self, name: str, weight: Tensor, rows: int, copy: str | None = None, of: Groups | None = None
    ) -> Matrix | None:
        """The sparse form of a weight [out, in]; None: dense. `copy` names a sparse copy beside the dense weight."""
        own = copy or name
        if own not in self._forms:
            matrix, report = choose(name, weight, rows, self.measure, of, is_copy=copy is not None)
            self._forms[own] = None if matrix is None else _Pattern.of(matrix)
            self.layers.append(report)
        else:
            pattern = self._forms[own]
            matrix = None if pattern is None else pattern.matrix(weight.detach().float().contiguous().numpy())
        return matrix if matrix is None or of is None else ungrouped_weight(matrix, groups=of.groups, taps=of.taps)

    def forms_of(self, names: Sequence[str], weights: Sequence[Tensor], rows: int) -> list[Matrix] | None:
        """The sparse forms of weights [out, in]; None: not all become sparse, so all stay dense."""
        if names[0] not in self._forms:
            found: list[tuple[Matrix, LayerReport]] = []
            for name, weight in zip(names, weights, strict=True):
                matrix, report = choose(name, weight, rows, self.measure)
                if matrix is None:
                    self._forms[names[0]] = None
                    return None
                found.append((matrix, report))
            self._forms.update({name: _Pattern.of(each) for name, (each, _) in zip(names, found, strict=True)})
            self.layers += [report for _, report in found]
        if self._forms[names[0]] is None:
            return None
        forms = [self.form_of(*each, rows) for each in zip(names, weights, strict=True)]
        return [form for form in forms if form is not None]

    def note(self, name: str, matrix: Matrix, rows: int, dtype: torch.dtype) -> None:
        """Record a weight that is sparse already."""
        if name in self._forms:
            return
        self._forms[name] = _Pattern.of(matrix)
        dense, sparse, _ = predict(matrix, rows, dtype)
        if self.measure:
            dense, sparse = _measured(matrix, rows, dtype)
        report = LayerReport(name, matrix.shape, _stored(matrix), True, "", dense, sparse, matrix.block_size, rows)
        self.layers.append(report)

    def leave(self, name: str, weight: Tensor, rows: int, reason: str) -> None:
        """Record a weight [out, in] for which no sparse form is possible; 0 rows: there are no times."""
        if any(each.name == name for each in self.layers):
            return
        stored = _as_stored(weight)
        density = int(stored.count_nonzero()) / max(1, stored.numel())
        dense = sparse = math.nan
        if rows and stored.numel():
            dense, sparse, _ = _predicted(zeros := zeros_of(stored, rows=rows), zeros.best_block_size or 1)
        shape = (stored.shape[0], stored.shape[1])
        self.layers.append(LayerReport(name, shape, density, False, reason, dense, sparse, 1, rows))

    def forget(self) -> None:
        """Forget all choices, as weights have changed."""
        self.layers.clear()
        self._forms.clear()
        self._computed.clear()
        self._parameters.clear()

    def name_of(self, name: str, weight: Tensor) -> str:
        """The name of a computed weight: the given name, unless another weight has it, as for other input sizes."""
        values = weight.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        contents = (weight.dtype, tuple(weight.shape), hashlib.blake2b(values.data).digest())
        return _own_name(self._computed, name, contents, lambda _: True)

    def name_of_parameter(self, name: str, contents: int | None, is_free: Callable[[str], bool]) -> str:
        """The name of a parameter of a whole graph, by its contents; None: the weight of this name, unchanged."""
        return _own_name(self._parameters, name, contents, is_free)

    def values_of(self, name: str, weight: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """The present values as a session takes them; None if non-zeros lie outside the sparse form."""
        pattern = self._forms.get(name)
        if pattern is None:
            return np.ascontiguousarray(weight).reshape(-1)
        if weight.shape != pattern.shape:
            return None  # a layer that was sparse before: these are its values
        values = pattern.values_of(weight)
        return values if np.count_nonzero(values) == np.count_nonzero(weight) else None


def _own_name(known: dict[str, Any], name: str, contents: Any, is_free: Callable[[str], bool]) -> str:
    """The name, with a number if the name stands for other contents."""
    own, number = name, 1
    while (own != name and not is_free(own)) or known.setdefault(own, contents) != contents:
        number += 1
        own = f"{name}#{number}"
    return own


def choose(
    name: str, weight: Tensor, rows: int, measure: bool, of: Groups | None = None, *, is_copy: bool = False
) -> tuple[Matrix | None, LayerReport]:
    """The sparse form of a weight [out, in] for products of `rows` rows, or None, and why.

    The weight of a convolution in groups has the channels of one group.
    """
    stored = _as_stored(weight)
    if of is None:
        zeros = zeros_of(stored, rows=rows)
    else:
        zeros = zeros_of_matrix(Matrix.of(stored.float().numpy()), rows, type_of(stored.dtype), *of)
    shape, b = (weight.shape[0], weight.shape[1]), zeros.best_block_size or 1
    dense, sparse, reason = _predicted(zeros, b)
    if zeros.density == 1:
        return None, LayerReport(name, shape, 1.0, False, reason, dense, math.nan, 1, rows)
    matrix = Matrix.of(stored.float().numpy(), b)
    if measure:
        dense, sparse = _measured(matrix, rows, stored.dtype, of)
        reason = "" if sparse <= GAIN * dense else reason or "measured to be no faster"
    copied = zeros.sparse_bytes if is_copy and not reason else None
    report = LayerReport(name, shape, _stored(matrix), not reason, reason, dense, sparse, b, rows, copied or 0)
    return None if reason else matrix, report


def predict(matrix: Matrix, rows: int, dtype: torch.dtype) -> tuple[float, float, str]:
    """Seconds of products of `rows` rows, dense and in the blocks of a matrix, and why blocks do not pay.

    Seconds of blocks are NaN where they cannot be fastest.
    """
    return _predicted(zeros_of_matrix(matrix, rows, type_of(dtype)), matrix.block_size)


def _as_stored(weight: Tensor) -> Tensor:
    """The weight's values in the type that products use, with contiguous rows."""
    weight = weight.detach().contiguous()
    return weight if weight.dtype in STORED_TYPES else weight.float()


def _predicted(zeros: Zeros, block_size: int) -> tuple[float, float, str]:
    dense = math.nan if zeros.dense_seconds is None else zeros.dense_seconds
    found = next((each.seconds for each in zeros.blocks if each.block_size == block_size), None)
    sparse = math.nan if found is None else found
    if zeros.density == 1:
        return dense, sparse, "no zeros"
    pays = sparse <= GAIN * dense
    return dense, sparse, "" if pays else zeros.reason or f"only blocks of {zeros.best_block_size} would pay"


def _stored(matrix: Matrix) -> float:
    """The fraction of a matrix that is stored."""
    return len(matrix.col_indices) * matrix.block_size**2 / (matrix.shape[0] * matrix.shape[1])


def _measured(matrix: Matrix, rows: int, dtype: torch.dtype, of: Groups | None = None) -> list[float]:
    """Seconds of a product, dense and sparse, of weights and activations in this type.

    For a convolution in groups, a dense product for each group is compared with one sparse product.
    """
    stored, groups = type_of(dtype), 1 if of is None else of.groups
    whole = matrix if of is None else ungrouped_weight(matrix, groups=of.groups, taps=of.taps)
    jobs: list[Callable[[], object]] = []
    for form in (None, whole):
        graph = Graph()
        inputs = matrix.shape[1] if form is None else form.shape[1]
        x = graph.input("x", (rows, inputs), stored)
        if form is None:
            w = graph.parameter("w", (matrix.shape[0] // groups, inputs), dtype=stored)
        else:
            w = graph.sparse_parameter("w", form, dtype=stored)
        graph.output("y", linear(x, w))
        array = np.random.default_rng(0).standard_normal((rows, inputs), dtype=np.float32)
        jobs.append(functools.partial(graph.session().run, torch.from_numpy(array).to(dtype)))
    dense, sparse = least_seconds(jobs)
    return [groups * dense, sparse]


def least_seconds(jobs: Sequence[Callable[[], object]], rounds: int = 8) -> list[float]:
    """The smallest time of each job, run in turn, so that disturbances affect all jobs alike."""
    times = [math.inf] * len(jobs)
    for _ in range(rounds):
        for i, job in enumerate(jobs):
            start = time.perf_counter()
            job()
            times[i] = min(times[i], time.perf_counter() - start)
    return times
