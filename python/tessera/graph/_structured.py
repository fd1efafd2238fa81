"""PyTorch's structured operators as operations of a graph, whose parameters are matrices."""

from __future__ import annotations

from typing import Any

from tessera import _structured as _structured  # modules may use its operators
from tessera._structured_products import is_complex_butterfly, is_tied
from tessera.graph import _structured_maps as ops
from tessera.graph._aten import Call, handles, value_of
from tessera.graph._parameters import Parameter
from tessera.graph._values import Value


def _matrix(parameter: Any, *rows: int) -> Value:
    """A parameter as a matrix: the dimensions after these rows are merged into one."""
    if not isinstance(parameter, Parameter):
        raise ValueError("a parameter of the structure is computed; it must be a parameter of the module")
    return parameter.value((*rows, -1))


@handles("tessera.butterfly.default", lazy=True)
def _butterfly(call: Call, x: Any, twiddle: Any, out_features: int, increasing_stride: bool) -> Value:
    given = twiddle.tensor if isinstance(twiddle, Parameter) else None
    if given is not None and is_complex_butterfly(given):
        raise ValueError("complex butterflies are not possible: graphs have no complex values")
    tied = given is not None and is_tied(given)
    leading = () if given is None else given.shape[: 1 if tied else 3]
    blocks = 1 if tied or given is None else given.shape[1]
    values = _matrix(twiddle, *leading)
    decreasing = not increasing_stride
    of, form = value_of(x), call.form
    return ops.butterfly(of, values, out_features, nblocks=blocks, tied=tied, decreasing=decreasing, form=form)


@handles("tessera.kronecker.default", lazy=True)
def _kronecker(call: Call, x: Any, weight: Any, a: int, b: int, c: int, d: int, out_features: int) -> Value:
    return ops.kronecker(value_of(x), _matrix(weight, a, d), (a, b, c, d), out_features)


@handles("tessera.circulant.default")
def _circulant(call: Call, x: Value, c: Value, out_features: int) -> Value:
    return ops.circulant(x, c, out_features)


@handles("tessera.toeplitz.default")
def _toeplitz(call: Call, x: Value, c: Value) -> Value:
    return ops.toeplitz(x, c)


@handles("tessera.fastfood.default", lazy=True)
def _fastfood(call: Call, x: Any, S: Any, G: Any, B: Any, P: Any, out_features: int) -> Value:
    permutation = P.tensor.reshape(-1).tolist()
    diagonals = value_of(S), value_of(G), value_of(B)
    return ops.fastfood(value_of(x), *diagonals, permutation, out_features, form=call.form)
