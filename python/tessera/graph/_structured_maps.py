"""Structured maps of the last dimension (docs/structured.md).

The last dimensions of a parameter are one. With form="unfused" they are the operations of plain PyTorch, one after
another, for comparisons on tiled machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from tessera._arguments import checked_seed
from tessera.graph._values import Form, Value, apply, graph_of

Structure: TypeAlias = Literal["dense", "butterfly", "bpbp", "pixelfly", "fastfood", "circulant", "low-rank", "monarch"]


def butterfly(
    x: Value,
    twiddle: Value,
    outputs: int,
    *,
    nblocks: int = 1,
    tied: bool = False,
    complex: bool = False,
    decreasing: bool = False,
    form: Form = "fused",
) -> Value:
    """A butterfly map: `twiddle` is [stacks, nblocks, log₂ N, 2 N], or tied [stacks, 4 (N - 1)].

    Complex numbers are pairs, real part first, in x, the result and twiddle; `outputs` counts them.
    """
    graph = graph_of("butterfly", x, twiddle)
    of = (outputs, nblocks, tied, complex, decreasing)
    return Value(graph, graph.native.butterfly(x.id, twiddle.id, *of, form))


def kronecker(x: Value, weight: Value, factor: tuple[int, int, int, int], outputs: int = 0) -> Value:
    """A Kronecker-sparse factor (a, b, c, d): the weight is [a, d, b · c]. 0 outputs: all outputs of the factor."""
    a, b, c, d = factor
    return apply("kronecker", x, weight, a=a, b=b, c=c, d=d, outputs=outputs)


def circulant(x: Value, c: Value, outputs: int = 0) -> Value:
    """A circulant matrix by its first column. 0 outputs: the size of `c`."""
    graph_of("circulant", x, c)
    return apply("circulant", x, c, size=c.shape[0], outputs=outputs)


def toeplitz(x: Value, c: Value) -> Value:
    """A Toeplitz matrix: c [outputs + inputs - 1] goes from the end of the first row to the end of the first column."""
    graph_of("toeplitz", x, c)
    return apply("toeplitz", x, c, outputs=c.shape[0] - x.shape[-1] + 1)


def fastfood(
    x: Value,
    s: Value,
    g: Value,
    b: Value,
    permutation: Sequence[int],
    outputs: int,
    *,
    form: Form = "fused",
) -> Value:
    """S · H · G · Π · H · B, with diagonals `s`, `g` and `b` of [stacks, N], and `permutation` with as many indices."""
    graph = graph_of("fastfood", x, s, g, b)
    places = [int(place) for place in permutation]
    return Value(graph, graph.native.fastfood(x.id, [s.id, g.id, b.id], places, outputs, form))


def linear_layer(
    x: Value,
    outputs: int,
    name: str,
    *,
    structure: Structure = "dense",
    rank: int = 1,
    block_size: int = 32,
    butterfly_size: int = 16,
    scaled: bool = True,
    seed: int = 0,
    form: Form = "fused",
) -> Value:
    """A linear layer of a structure, without bias, with parameters whose names begin with `name`.

    With `scaled`, initial values keep the size of activations; otherwise they are the values published with the
    structure.
    """
    graph = graph_of("linear_layer", x)
    options = (structure, rank, block_size, butterfly_size, scaled, checked_seed(seed), form)
    return Value(graph, graph.native.linear_layer(name, x.id, outputs, *options))
