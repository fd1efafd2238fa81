"""Values of a graph, and the operations on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from tessera._products import type_name
from tessera._tessera import Initial

if TYPE_CHECKING:
    from tessera.model._graph import Graph

Factors: TypeAlias = Literal["best", "published"]
Structure: TypeAlias = Literal["dense", "butterfly", "bpbp", "pixelfly", "fastfood", "circulant", "low-rank", "monarch"]
Over: TypeAlias = Literal["all", "columns", "rows"]
Attribute: TypeAlias = int | float | str | list[int]


class Value:
    """A value of a graph: an input, a parameter, or what an operation computes.

    Values combine by `+`, `-`, `*` and `/`, with each other and with numbers. As in PyTorch, the smaller of two is
    broadcast: a scalar, a vector along the last dimension, or a column [..., 1].
    """

    __slots__ = ("graph", "id")

    def __init__(self, graph: Graph, id: int) -> None:
        self.graph = graph
        self.id = id

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.graph.native.shape(self.id))

    @property
    def dtype(self) -> str:
        """The type: "f32", "f16", "bf16" or "u32"."""
        return self.graph.native.dtype(self.id)

    @property
    def name(self) -> str:
        return self.graph.native.name(self.id)

    @name.setter
    def name(self, name: str) -> None:
        self.graph.native.rename(self.id, name)

    def __add__(self, other: Value | float) -> Value:
        if isinstance(other, Value):
            return apply("add", self, other)
        return apply("offset", self, factor=float(other))

    def __sub__(self, other: Value | float) -> Value:
        return apply("sub", self, other) if isinstance(other, Value) else self + -other

    def __mul__(self, other: Value | float) -> Value:
        if isinstance(other, Value):
            return apply("mul", self, other)
        return apply("scale", self, factor=float(other))

    def __truediv__(self, other: Value | float) -> Value:
        return apply("div", self, other) if isinstance(other, Value) else self * (1 / other)

    def __neg__(self) -> Value:
        return apply("neg", self)

    def __radd__(self, other: float) -> Value:
        return self + other

    def __rsub__(self, other: float) -> Value:
        return -self + other

    def __rmul__(self, other: float) -> Value:
        return self * other

    def __rtruediv__(self, other: float) -> Value:
        return reciprocal(self) * other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and other.graph is self.graph and other.id == self.id

    def __hash__(self) -> int:
        return hash((id(self.graph), self.id))

    def __repr__(self) -> str:
        return f"<{self.name}: {self.graph.native.describe(self.id)}>"


def value_type(dtype: DTypeLike | str) -> str:
    """The library's name of a type of values."""
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name if dtype in (np.uint32,) else ""
    return "u32" if name in ("u32", "uint32") else type_name(dtype)


def graph_of(operation: str, *values: Value) -> Graph:
    """Return the graph of all values."""
    for value in values:
        if not isinstance(value, Value):
            raise TypeError(f"{operation}: {value!r} is no value of a graph; use Graph.constant() for arrays")
        if value.graph is not values[0].graph:
            raise ValueError(f"{operation}: {values[0]!r} and {value!r} are of two graphs")
    return values[0].graph


def apply_all(operation: str, inputs: Sequence[Value], attributes: dict[str, Attribute]) -> list[Value]:
    """Apply an operation by its name; all of its results."""
    graph = graph_of(operation, *inputs)
    ids = graph.native.apply(operation, [value.id for value in inputs], attributes)
    return [Value(graph, id) for id in ids]


def apply(operation: str, *inputs: Value, **attributes: Attribute) -> Value:
    return apply_all(operation, inputs, attributes)[0]


# Initial contents of parameters.


def constant(value: float) -> Initial:
    """All elements equal."""
    return Initial.constant(value)


def normal(deviation: float) -> Initial:
    """Normally distributed around 0."""
    return Initial.normal(deviation)


def uniform(bound: float) -> Initial:
    """Uniformly distributed in (-bound, bound)."""
    return Initial.uniform(bound)


# Operations.


def linear(x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x · Wᵀ + b: x of [..., k], a weight W of [m, k], dense or sparse, b of [m]."""
    return apply("linear", x, weight) if bias is None else apply("linear", x, weight, bias)


class Elementwise(Protocol):
    """An operation on each element of a value."""

    def __call__(self, x: Value) -> Value: ...


def _elementwise(name: str, meaning: str) -> Elementwise:
    def function(x: Value) -> Value:
        return apply(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = meaning
    return function


relu = _elementwise("relu", "max(x, 0).")
gelu = _elementwise("gelu", "The exact form (Hendrycks & Gimpel 2016).")
tanh = _elementwise("tanh", "Hyperbolic tangent.")
sigmoid = _elementwise("sigmoid", "1 / (1 + exp(-x)).")
exp = _elementwise("exp", "Exponential.")
log = _elementwise("log", "Natural logarithm.")
sqrt = _elementwise("sqrt", "Square root.")
square = _elementwise("square", "x².")
abs = _elementwise("abs", "|x|.")
reciprocal = _elementwise("reciprocal", "1 / x.")


def maximum(a: Value, b: Value) -> Value:
    """The larger of two elements."""
    return apply("maximum", a, b)


def minimum(a: Value, b: Value) -> Value:
    """The smaller of two elements."""
    return apply("minimum", a, b)


def sum(x: Value, over: Over = "all") -> Value:
    """Sum over the last dimension ("columns", which stays with size 1), all others ("rows"), or everything."""
    return apply("sum", x, over=over)


def mean(x: Value, over: Over = "all") -> Value:
    """Mean over the dimensions that `sum` takes."""
    graph = graph_of("mean", x)
    return Value(graph, graph.native.mean(x.id, over))


def max(x: Value, over: Over = "all") -> Value:
    """Maximum over the dimensions that `sum` takes."""
    return apply("max", x, over=over)


def transpose(x: Value) -> Value:
    """Of a matrix."""
    return apply("transpose", x)


def reshape(x: Value, shape: Sequence[int]) -> Value:
    """The same elements in another shape."""
    return apply("reshape", x, shape=[int(size) for size in shape])


def slice(x: Value, dimension: int, begin: int, end: int) -> Value:
    """Elements [begin, end) of a dimension."""
    return apply("slice", x, dimension=dimension, begin=begin, end=end)


def concatenate(values: Sequence[Value], dimension: int) -> Value:
    """Values one after another along a dimension."""
    if not values:
        raise ValueError("concatenate: there are no values")
    return apply("concatenate", *values, dimension=dimension)


def permute(x: Value, permutation: Sequence[int]) -> Value:
    """y[..., i] = x[..., permutation[i]]."""
    return apply("permute", x, permutation=[int(place) for place in permutation])


def take(x: Value, places: Sequence[int]) -> Value:
    """y[..., i] = x[..., places[i]]; elements may be taken several times, or not at all."""
    return apply("take", x, places=[int(place) for place in places])


def sum_neighbours(x: Value, neighbours: int) -> Value:
    """Sums of so many neighbouring elements of the last dimension."""
    return apply("sum_neighbours", x, neighbours=neighbours)


# Structured maps of the last dimension (docs/structured.md). The last dimensions of a parameter are one. With
# factors="published" they are the operations of plain PyTorch, one after another, for comparisons on tiled machines.


def butterfly(
    x: Value,
    twiddle: Value,
    outputs: int,
    *,
    blocks: int = 1,
    tied: bool = False,
    complex: bool = False,
    decreasing: bool = False,
    factors: Factors = "best",
) -> Value:
    """A butterfly: twiddle is [stacks, blocks, log₂ N, 2 N], tied [stacks, 4 (N - 1)].

    Complex numbers are pairs, real part first, in x, the result and twiddle; `outputs` counts them.
    """
    graph = graph_of("butterfly", x, twiddle)
    of = (outputs, blocks, tied, complex, decreasing)
    return Value(graph, graph.native.butterfly(x.id, twiddle.id, *of, factors))


def kronecker(x: Value, weight: Value, factor: tuple[int, int, int, int], outputs: int = 0) -> Value:
    """A Kronecker-sparse factor (a, b, c, d): the weight is [a, d, b · c]. Without outputs: as many as it has."""
    a, b, c, d = factor
    return apply("kronecker", x, weight, a=a, b=b, c=c, d=d, outputs=outputs)


def circulant(x: Value, c: Value, outputs: int = 0) -> Value:
    """A circulant matrix by its first column. Without outputs: as many as its size."""
    graph_of("circulant", x, c)
    return apply("circulant", x, c, size=c.shape[0], outputs=outputs)


def toeplitz(x: Value, c: Value) -> Value:
    """A Toeplitz matrix: c is [outputs + inputs - 1], from the end of the first row to that of the first column."""
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
    factors: Factors = "best",
) -> Value:
    """S · H · G · Π · H · B: diagonals of [stacks, N], and as many places of permutations."""
    graph = graph_of("fastfood", x, s, g, b)
    places = [int(place) for place in permutation]
    return Value(graph, graph.native.fastfood(x.id, [s.id, g.id, b.id], places, outputs, factors))


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
    factors: Factors = "best",
) -> Value:
    """A linear layer of a structure, without bias, with parameters whose names begin with `name`.

    `scaled` chooses initial values that keep the size of activations, otherwise those published with the structure.
    """
    graph = graph_of("linear_layer", x)
    options = (structure, rank, block_size, butterfly_size, scaled, seed, factors)
    return Value(graph, graph.native.linear_layer(name, x.id, outputs, *options))


def cast(x: Value, dtype: DTypeLike | str) -> Value:
    """The value in another floating-point type."""
    graph_of("cast", x)
    name = value_type(dtype)
    return x if x.dtype == name else apply("cast", x, type=name)


def softmax(x: Value) -> Value:
    """Over the last dimension."""
    return apply("softmax", x)


def layer_norm(
    x: Value, weight: Value | None = None, bias: Value | None = None, *, epsilon: float = 1e-5
) -> Value:
    """(x - mean) / √(variance + epsilon) · weight + bias over the last dimension; weight and bias are of [features]."""
    if weight is None and bias is not None:
        return layer_norm(x, epsilon=epsilon) + bias
    inputs = [each for each in (x, weight, bias) if each is not None]
    return apply("layer_norm", *inputs, epsilon=float(epsilon))


def embedding(ids: Value, weight: Value, *, padding: int | None = None) -> Value:
    """weight[ids] of u32 ids [...] and a dense weight [rows, features], which may be the weight of `linear` as well.

    NaN for an id beyond the rows. The row `padding`, which may be counted from the end, has a gradient of 0.
    """
    if padding is None:
        return apply("embedding", ids, weight)
    rows = weight.shape[0]
    if not -rows <= padding < rows:
        raise ValueError(f"embedding: the padding is row {padding} of {rows}")
    return apply("embedding", ids, weight, padding=int(padding) % rows)


def cross_entropy(logits: Value, labels: Value) -> Value:
    """Mean over rows of -log softmax(logits)[label]; labels are u32 of [rows]."""
    return apply("cross_entropy", logits, labels)


def mean_squared_error(x: Value, target: Value) -> Value:
    """Mean of (x - target)²."""
    return mean(square(x - target))


def dropout(x: Value, rate: float, *, step: Value | None = None, seed: int = 0) -> Value:
    """Zero elements with probability `rate`, and divide the others by 1 - rate.

    The mask follows from the seed, the number of the step, the operation and the element, on every machine. Without
    `step` it is the graph's input of that name, which sessions count.
    """
    graph = graph_of("dropout", x)
    counter = graph.step() if step is None else step
    graph_of("dropout", x, counter)
    return Value(graph, graph.native.dropout(x.id, rate, counter.id, seed))
