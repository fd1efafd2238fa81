"""Values of a graph, and the operations on them."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tessera._arguments import checked_seed, chosen
from tessera._products import type_name
from tessera._tessera import Initial, whole_number

if TYPE_CHECKING:
    from tessera.graph._graph import Graph

Form: TypeAlias = Literal["fused", "unfused"]
Rounding: TypeAlias = Literal["nearest", "stochastic"]
Dims: TypeAlias = int | Sequence[int] | None
#: A size for each dimension of images or sequences, or one for all.
Sizes: TypeAlias = int | Sequence[int]
Attribute: TypeAlias = int | float | str | list[int]

#: Types of integers, with the smallest and the largest integer of each.
INTEGERS = {"u32": (0, 2**32 - 1), "i32": (-(2**31), 2**31 - 1)}
MOST_DIMENSIONS = 5
MOST_EXACT = 2**24  # FP32 has all integers up to this one


class Value:
    """A value of a graph: an input, a parameter, or the result of an operation.

    Values combine by `+`, `-`, `*` and `/`, with each other and with numbers. As in PyTorch, the smaller value is
    broadcast. Comparisons by `<`, `<=`, `>` and `>=` are 1 where they hold, else 0, in the type of the values. `==`
    tells whether two objects are the same value of a graph; use `equal` to compare elements. Values of u32 and i32 can
    be added, subtracted, multiplied and compared, modulo 2^32.
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
        """The type: "f32", "f16", "bf16", "u32" or "i32"."""
        return self.graph.native.dtype(self.id)

    @property
    def is_integer(self) -> bool:
        return self.dtype in INTEGERS

    @property
    def name(self) -> str:
        return self.graph.native.name(self.id)

    @name.setter
    def name(self, name: str) -> None:
        self.graph.native.rename(self.id, name)

    def __add__(self, other: Value | float) -> Value:
        if isinstance(other, Value) or self.is_integer:
            return apply("add", self, value_of(other, self))
        return apply("offset", self, factor=float(other))

    def __sub__(self, other: Value | float) -> Value:
        if isinstance(other, Value) or self.is_integer:
            return apply("sub", self, value_of(other, self))
        return self + -other

    def __mul__(self, other: Value | float) -> Value:
        if isinstance(other, Value) or self.is_integer:
            return apply("mul", self, value_of(other, self))
        return apply("scale", self, factor=float(other))

    def __truediv__(self, other: Value | float) -> Value:
        if not isinstance(other, Value) and _has_exact_reciprocal(other):
            return self * (1 / other)
        return apply("div", self, value_of(other, self))

    def __neg__(self) -> Value:
        return 0 - self if self.is_integer else apply("neg", self)

    def __radd__(self, other: float) -> Value:
        return self + other

    def __rsub__(self, other: float) -> Value:
        return value_of(other, self) - self if self.is_integer else -self + other

    def __rmul__(self, other: float) -> Value:
        return self * other

    def __rtruediv__(self, other: float) -> Value:
        return reciprocal(self) if other == 1 else apply("div", value_of(other, self), self)

    def __lt__(self, other: Value | float) -> Value:
        return apply("less", self, value_of(other, self))

    def __le__(self, other: Value | float) -> Value:
        return apply("less_equal", self, value_of(other, self))

    def __gt__(self, other: Value | float) -> Value:
        return apply("less", value_of(other, self), self)

    def __ge__(self, other: Value | float) -> Value:
        return apply("less_equal", value_of(other, self), self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and other.graph is self.graph and other.id == self.id

    def __hash__(self) -> int:
        return hash((id(self.graph), self.id))

    def __repr__(self) -> str:
        return f"<{self.name}: {self.graph.native.describe(self.id)}>"


class Truth(Value):
    """Truth values: 1 where something holds, else 0, in whatever type."""

    __slots__ = ()


def value_type(dtype: DTypeLike | str) -> str:
    """The library's name of a type of values."""
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name if dtype in (np.uint32, np.int32) else ""
    integers = {"u32": "u32", "uint32": "u32", "i32": "i32", "int32": "i32"}
    return integers.get(name) or type_name(dtype)


def input_type(dtype: DTypeLike | str) -> str:
    """The library's name of a type of inputs, which may also be "u8", for pixels."""
    is_pixels = dtype in ("u8", "uint8") if isinstance(dtype, str) else dtype in (np.uint8,)
    return "u8" if is_pixels else value_type(dtype)


def is_stochastic(rounding: str) -> bool:
    return chosen("rounding", rounding, get_args(Rounding)) == "stochastic"


def require_integers(numbers: NDArray[Any], dtype: str) -> None:
    """Raise ValueError unless all numbers are integers that the type holds."""
    least, most = INTEGERS[dtype]
    wide = numbers.astype(np.float64)
    wrong = numbers[~((wide >= least) & (wide <= most) & (wide == np.floor(wide)))]
    if wrong.size:
        raise ValueError(
            f"{wrong.flat[0]} is not a value of {dtype}: only whole numbers from {least} to {most} are, so keep other "
            "numbers out of the model"
        )


def _has_exact_reciprocal(number: float) -> bool:
    """Return whether a number is a power of two."""
    part, exponent = math.frexp(number)
    return part in (-0.5, 0.5) and -100 < exponent < 100


def value_of(number: Value | float, like: Value) -> Value:
    """A number as a scalar of the type of a value."""
    if isinstance(number, Value):
        return number
    return like.graph.constant(number, dtype=like.dtype)


def graph_of(operation: str, *values: Value) -> Graph:
    """Return the graph of all values."""
    for value in values:
        if not isinstance(value, Value):
            raise TypeError(f"{operation}: {value!r} is not a value of a graph; use Graph.constant() for arrays")
        if value.graph is not values[0].graph:
            raise ValueError(f"{operation}: {values[0]!r} and {value!r} belong to different graphs")
    return values[0].graph


def given(*values: Value | None) -> list[Value]:
    """Return the optional operands that an operation was given."""
    return [value for value in values if value is not None]


def id_of(value: Value | None) -> int | None:
    return None if value is None else value.id


def sizes_along(x: Value, sizes: Sizes) -> list[int]:
    """Return a size for each dimension of images or sequences; an int stands for all dimensions."""
    return [int(sizes)] * max(1, len(x.shape) - 2) if isinstance(sizes, int) else [int(size) for size in sizes]


def apply_all(operation: str, inputs: Sequence[Value], attributes: dict[str, Attribute]) -> list[Value]:
    """Apply an operation by its name, and return all of its results."""
    graph = graph_of(operation, *inputs)
    ids = graph.native.apply(operation, [value.id for value in inputs], attributes)
    return [Value(graph, id) for id in ids]


def apply(operation: str, *inputs: Value, **attributes: Attribute) -> Value:
    return apply_all(operation, inputs, attributes)[0]


# Initial contents of parameters.


def constant(value: float) -> Initial:
    """Initial contents: all elements equal `value`."""
    return Initial.constant(value)


def normal(deviation: float) -> Initial:
    """Initial contents: normally distributed around 0, with this standard deviation."""
    return Initial.normal(deviation)


def uniform(bound: float) -> Initial:
    """Initial contents: uniformly distributed in (-bound, bound)."""
    return Initial.uniform(bound)


# Operations.


def linear(x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x · Wᵀ + b, with x [..., k], a weight W [m, k], dense or sparse, and b [m]."""
    return apply("linear", x, weight) if bias is None else apply("linear", x, weight, bias)


def matmul(a: Value, b: Value, *, transpose_a: bool = False, transpose_b: bool = False) -> Value:
    """a · b, with a [..., m, k] and b [..., k, n] of the same leading dimensions.

    b may also be one matrix for all matrices of a. A transposed factor is given as [..., k, m] or [..., n, k]. Either
    factor may be a sparse matrix, one for all matrices of the other factor.
    """
    graph = graph_of("matmul", a, b)
    return Value(graph, graph.native.matmul(a.id, b.id, transpose_a, transpose_b))


def attention(
    q: Value,
    k: Value,
    v: Value,
    *,
    heads: int,
    kv_heads: int | None = None,
    scale: float | None = None,
    left: int | None = None,
    right: int | None = None,
    offset: int = 0,
    query_ids: Value | None = None,
    key_ids: Value | None = None,
    lengths: Value | None = None,
    bias: Value | None = None,
    dropout: float = 0.0,
    step: Value | None = None,
    seed: int = 0,
) -> Value:
    """softmax(scale · q · kᵀ + bias) · v for each head (Vaswani et al. 2017).

    Queries are [..., queries, heads · size], keys [..., keys, kv_heads · size] and values [..., keys, kv_heads · value
    size]; the result is [..., queries, heads · value size]. Each of the `kv_heads` heads of keys and values is shared
    by the same number of consecutive heads of queries. The scale is 1 / √size by default.

    Query i attends to the keys from i + offset - left to i + offset + right; None means no limit, so `right=0` is
    causal attention. For packed sequences, `query_ids` [..., queries] and `key_ids` [..., keys], u32, are equal where
    queries attend to keys; queries with id 0 attend to no key, and their result is 0. Instead of ids, `lengths` [...],
    u32 or i32, has the number of keys of each sequence: later keys are padding, to which no query attends; a negative
    number counts as 0. The bias is [sequences, heads, queries, keys]; all dimensions but the last may be 1. Attention
    probabilities are dropped with probability `dropout`, as by `dropout()`.

    On the host it takes one pass over the keys (Dao et al. 2022), without a matrix of scores, and skips blocks of
    queries and keys that are fully masked.
    """
    counter = None
    if dropout:
        counter = graph_of("attention", q).step() if step is None else step
    operands = {"query_ids": query_ids, "key_ids": key_ids, "lengths": lengths, "bias": bias, "step": counter}
    graph = graph_of("attention", q, k, v, *given(*operands.values()))
    y = graph.native.attention(
        q.id,
        k.id,
        v.id,
        **{name: id_of(value) for name, value in operands.items()},
        heads=whole_number("heads", heads),
        kv_heads=0 if kv_heads is None else whole_number("kv_heads", kv_heads, 1),
        scale=scale,
        left=None if left is None else whole_number("left", left),
        right=None if right is None else whole_number("right", right),
        offset=offset,
        dropout=dropout,
        seed=checked_seed(seed),
    )
    return Value(graph, y)


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
silu = _elementwise("silu", "x · sigmoid(x).")
hard_sigmoid = _elementwise("hard_sigmoid", "x + 3 within [0, 6], divided by 6.")
hard_swish = _elementwise("hard_swish", "x · hard_sigmoid(x).")
tanh = _elementwise("tanh", "Hyperbolic tangent.")
sigmoid = _elementwise("sigmoid", "1 / (1 + exp(-x)).")
exp = _elementwise("exp", "Exponential.")
log = _elementwise("log", "Natural logarithm.")
sqrt = _elementwise("sqrt", "Square root.")
rsqrt = _elementwise("rsqrt", "1 / √x.")
sin = _elementwise("sin", "Sine.")
cos = _elementwise("cos", "Cosine.")
erf = _elementwise("erf", "The error function.")
square = _elementwise("square", "x².")
abs = _elementwise("abs", "|x|.")
reciprocal = _elementwise("reciprocal", "1 / x.")


def gelu(x: Value, approximate: Literal["none", "tanh"] = "none") -> Value:
    """GELU: the exact form (Hendrycks & Gimpel 2016), or the approximation by tanh."""
    is_exact = chosen("approximation of gelu", approximate, ("none", "tanh")) == "none"
    return apply("gelu" if is_exact else "gelu_tanh", x)


def leaky_relu(x: Value, slope: float = 0.01) -> Value:
    """x where x ≥ 0, else slope · x."""
    return apply("leaky_relu", x, slope=float(slope))


def elu(x: Value, alpha: float = 1.0) -> Value:
    """x where x > 0, else alpha · (exp(x) - 1)."""
    return apply("elu", x, alpha=float(alpha))


def softplus(x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """log(1 + exp(beta · x)) / beta; x where beta · x is above the threshold."""
    return apply("softplus", x, beta=float(beta), threshold=float(threshold))


def pow(x: Value, exponent: Value | float) -> Value:
    """x to a power; NaN for a negative x if the exponent is not an integer."""
    if not isinstance(exponent, Value):
        return apply("pow", x, exponent=float(exponent))
    graph = graph_of("pow", x, exponent)
    return Value(graph, graph.native.power(x.id, exponent.id))


def fmod(a: Value, b: Value | float) -> Value:
    """The exact remainder of a / b, with the sign of a."""
    return apply("fmod", a, value_of(b, a))


def remainder(a: Value, b: Value | float) -> Value:
    """The exact remainder of a / b, with the sign of b, like Python's %."""
    b = value_of(b, a)
    graph = graph_of("remainder", a, b)
    return Value(graph, graph.native.remainder(a.id, b.id))


def floor_divide(a: Value, b: Value | float) -> Value:
    """The largest integer that is at most a / b."""
    b = value_of(b, a)
    graph = graph_of("floor_divide", a, b)
    return Value(graph, graph.native.floor_divide(a.id, b.id))


def maximum(a: Value, b: Value | float) -> Value:
    """The larger of two elements."""
    return apply("maximum", a, value_of(b, a))


def minimum(a: Value, b: Value | float) -> Value:
    """The smaller of two elements."""
    return apply("minimum", a, value_of(b, a))


def clip(x: Value, low: float | None = None, high: float | None = None) -> Value:
    """x limited to [low, high]; one bound may be None. NaN stays NaN. Elements at a bound have no gradient."""
    bounds = {"low": low, "high": high}
    return apply("clip", x, **{name: float(bound) for name, bound in bounds.items() if bound is not None})


def equal(a: Value, b: Value | float) -> Value:
    """1 where two elements are equal, else 0."""
    return apply("equal", a, value_of(b, a))


def not_equal(a: Value, b: Value | float) -> Value:
    """1 where two elements differ, else 0."""
    return apply("not_equal", a, value_of(b, a))


def where(condition: Value, a: Value | float, b: Value | float) -> Value:
    """a where the condition is not 0, else b."""
    graph_of("where", *(each for each in (condition, a, b) if isinstance(each, Value)))
    like = next((each for each in (a, b) if isinstance(each, Value)), condition)
    # In the type of `like`, a number other than 0 may become 0.
    may_vanish = condition.dtype not in ("u32", "i32", like.dtype) and like.dtype in ("u32", "i32", "f16")
    holds = not_equal(condition, 0) if may_vanish else condition
    return apply("where", cast(holds, like.dtype), value_of(a, like), value_of(b, like))


def _dims_of(operation: str, dim: Dims) -> list[int]:
    """Dimensions as a list; None stands for all dimensions."""
    try:
        return [] if dim is None else [operator.index(each) for each in (dim if isinstance(dim, Sequence) else [dim])]
    except TypeError:
        raise TypeError(f"{operation}: a dimension must be a whole number, not {dim!r}") from None


def _dim_of(operation: str, dim: int) -> int:
    if dim is None:
        raise TypeError(f"{operation}: dim is None; it must be a dimension")
    return _dims_of(operation, dim)[0]


def _reduced(operation: str, x: Value, dim: Dims, keepdim: bool) -> Value:
    graph = graph_of(operation, x)
    return Value(graph, graph.native.reduce(operation, x.id, _dims_of(operation, dim), keepdim))


def sum(x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """Sum over a dimension, over several, or over all."""
    return _reduced("sum", x, dim, keepdim)


def mean(x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """Mean over a dimension, over several, or over all."""
    return _reduced("mean", x, dim, keepdim)


def amax(x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """Maximum over a dimension, over several, or over all."""
    return _reduced("amax", x, dim, keepdim)


def amin(x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """Minimum over a dimension, over several, or over all."""
    return _reduced("amin", x, dim, keepdim)


def argmax(x: Value, dim: int, keepdim: bool = False) -> Value:
    """The first position of the maximum along a dimension, or of NaN; u32."""
    graph = graph_of("argmax", x)
    return Value(graph, graph.native.argmax(x.id, _dim_of("argmax", dim), keepdim))


def cumsum(x: Value, dim: int) -> Value:
    """The sum of each element and all elements before it along a dimension."""
    graph = graph_of("cumsum", x)
    return Value(graph, graph.native.cumsum(x.id, _dim_of("cumsum", dim)))


def mean_over_replicas(x: Value, group: int | None = None) -> Value:
    """The mean of each element over all replicas of a graph, or over each group of `group` consecutive replicas.

    In a graph without replicas it is x itself. The gradient is the mean of the gradients in the group. Running a graph
    raises `ValueError` if the groups do not divide its replicas.
    """
    return apply("mean_over_replicas", x, **_in_groups(group))


def sum_over_replicas(x: Value, group: int | None = None) -> Value:
    """The sum of each element over all replicas, or each group of replicas; see `mean_over_replicas`."""
    return apply("sum_over_replicas", x, **_in_groups(group))


def _in_groups(group: int | None) -> dict[str, Attribute]:
    return {} if group is None else {"group": whole_number("group", group, 1)}


def mean_over_step(x: Value) -> Value:
    """The mean of x over the micro-batches and replicas of a training step; x itself in a graph without them.

    If a loss is a sum divided by `mean_over_step` of its number of terms, then its mean over the step is the sum of all
    terms divided by their total number. It has no gradient, so x must not depend on parameters that are trained.
    """
    return apply("mean_over_step", x)


def stop_gradient(x: Value) -> Value:
    """x itself, as if it were a constant: nothing has a gradient through it."""
    return apply("stop_gradient", x)


def transpose(x: Value) -> Value:
    """The transpose of a matrix."""
    return apply("transpose", x)


def reshape(x: Value, shape: Sequence[int]) -> Value:
    """The same elements in another shape; one size may be -1, and follows from the others."""
    sizes = [int(size) for size in shape]
    if sizes.count(-1) == 1:
        graph_of("reshape", x)
        others = math.prod(size for size in sizes if size != -1)
        if others > 0 and math.prod(x.shape) % others == 0:
            sizes[sizes.index(-1)] = math.prod(x.shape) // others
    return apply("reshape", x, shape=sizes)


def slice(x: Value, dim: int, begin: int, end: int) -> Value:
    """Elements [begin, end) of a dimension."""
    return apply("slice", x, dimension=dim, begin=begin, end=end)


def concatenate(values: Sequence[Value], dim: int) -> Value:
    """Values one after another along a dimension."""
    if not values:
        raise ValueError("concatenate: there are no values")
    return apply("concatenate", *values, dimension=dim)


def split(x: Value, sizes: Sequence[int], dim: int) -> list[Value]:
    """Parts of a dimension, one after another, with these sizes."""
    ends = np.cumsum(sizes).tolist()
    parts = [slice(x, dim, end - size, end) for end, size in zip(ends, sizes, strict=True)]
    if not parts or ends[-1] != x.shape[dim]:
        raise ValueError(f"split: parts of {[*sizes]} elements do not add up to dimension {dim} of {x.shape}")
    return parts


def pad(x: Value, dim: int, before: int, after: int, value: float = 0.0) -> Value:
    """x with `before` elements at the beginning of a dimension and `after` at its end, all equal to `value`."""
    graph = graph_of("pad", x)
    return Value(graph, graph.native.pad(x.id, dim, before, after, value))


def expand(x: Value, shape: Sequence[int]) -> Value:
    """x in a larger shape: dimensions of size 1 are repeated."""
    return x if x.shape == tuple(shape) else apply("expand", x, shape=[int(size) for size in shape])


def permute(x: Value, dims: Sequence[int]) -> Value:
    """The dimensions in another order: dimension i of the result is dimension dims[i]."""
    graph = graph_of("permute", x)
    return Value(graph, graph.native.permute(x.id, _dims_of("permute", dims)))


def permute_features(x: Value, permutation: Sequence[int]) -> Value:
    """y[..., i] = x[..., permutation[i]]."""
    return apply("permute_features", x, permutation=[int(place) for place in permutation])


def select_features(x: Value, places: Sequence[int]) -> Value:
    """y[..., i] = x[..., places[i]]; features may be selected several times, or not at all."""
    return apply("select_features", x, places=[int(place) for place in places])


def sum_neighbours(x: Value, neighbours: int) -> Value:
    """Sums of each `neighbours` consecutive elements of the last dimension."""
    return apply("sum_neighbours", x, neighbours=neighbours)


def cast(
    x: Value, dtype: DTypeLike | str, *, rounding: Rounding = "nearest", step: Value | None = None, seed: int = 0
) -> Value:
    """The value in another type: "f32", "f16", "bf16", "u32" or "i32".

    Conversions to integers cut off fractions; NaN becomes 0, and a number out of range becomes the nearest number of
    the type. Integers are converted to other integers modulo 2^32. With `rounding="stochastic"`, to "f16" or "bf16", a
    number becomes one of the two neighbouring numbers of the type, so that the expected result is the number. The
    choice is a function of the seed, the number of the step, the operation and the element, on every machine. Without
    `step`, the graph's input of this name is used, which sessions count, as for `dropout`.
    """
    graph = graph_of("cast", x)
    name = value_type(dtype)
    if not is_stochastic(rounding):
        return x if x.dtype == name else apply("cast", x, type=name)
    if name not in ("f16", "bf16"):
        raise ValueError(f"cast: stochastic rounding is for 'f16' and 'bf16', not for {name!r}")
    if x.dtype == name:
        return x
    counter = graph.step() if step is None else step
    graph_of("cast", x, counter)
    return Value(graph, graph.native.stochastic_cast(x.id, name, counter.id, whole_number("seed", seed)))


def softmax(x: Value, dim: int = -1) -> Value:
    """Softmax over a dimension."""
    graph = graph_of("softmax", x)
    return Value(graph, graph.native.softmax(x.id, _dim_of("softmax", dim)))


def log_softmax(x: Value, dim: int = -1) -> Value:
    """The logarithm of softmax over a dimension."""
    graph = graph_of("log_softmax", x)
    return Value(graph, graph.native.log_softmax(x.id, _dim_of("log_softmax", dim)))


def layer_norm(x: Value, weight: Value | None = None, bias: Value | None = None, *, eps: float = 1e-5) -> Value:
    """(x - mean) / √(variance + eps) · weight + bias over the last dimension; weight and bias are [features]."""
    if weight is None and bias is not None:
        return layer_norm(x, eps=eps) + bias
    inputs = [each for each in (x, weight, bias) if each is not None]
    return apply("layer_norm", *inputs, epsilon=float(eps))


def embedding(ids: Value, weight: Value, *, padding: int | None = None) -> Value:
    """weight[ids], with integer ids [...] and a weight [rows, features], dense or sparse.

    The weight may be the weight of `linear` too. On tiles, a sparse weight is made dense for it. The row `padding`,
    which may be counted from the end, has a gradient of 0. An id that is negative or not below the number of rows is an
    error of the run, as is every such index that a run gets or computes.
    """
    graph_of("embedding", ids, weight)
    ids = cast(ids, "u32") if ids.dtype == "i32" else ids
    operation = "embedding" if weight.graph.native.block_size(weight.id) == 0 else "sparse_embedding"
    if padding is None:
        return apply(operation, ids, weight)
    rows = weight.shape[0]
    if not -rows <= padding < rows:
        raise ValueError(f"embedding: the padding is row {padding} of {rows}")
    return apply(operation, ids, weight, padding=int(padding) % rows)


def index_select(x: Value, dim: int, ids: Value) -> Value:
    """The elements of a dimension at the indices `ids`, a list of integers."""
    graph = graph_of("index_select", x, ids)
    return Value(graph, graph.native.index_select(x.id, dim, ids.id))


def scatter_add(values: Value, dim: int, ids: Value, size: int) -> Value:
    """The adjoint of `index_select`: element i of the `size` elements is the sum of the values with index i."""
    graph = graph_of("scatter_add", values, ids)
    return Value(graph, graph.native.scatter_add(values.id, dim, ids.id, size))


def scatter(x: Value, ids: Value, values: Value) -> Value:
    """x with row ids[i] of its first dimension replaced by values[i]; of equal indices the last one counts."""
    graph = graph_of("scatter", x, ids, values)
    return Value(graph, graph.native.scatter(x.id, ids.id, values.id))


def gather(x: Value, dim: int, ids: Value) -> Value:
    """y[…, i, …] = x[…, ids[…, i, …], …] along one dimension; in all other ones `ids` have x's shape."""
    graph = graph_of("gather", x, ids)
    return Value(graph, graph.native.gather(x.id, dim, ids.id))


def rms_norm(x: Value, weight: Value | None = None, *, eps: float = 1e-6) -> Value:
    """x / √(mean of x² + eps) · weight over the last dimension; the weight is [features]."""
    inputs = [x] if weight is None else [x, weight]
    return apply("layer_norm", *inputs, epsilon=float(eps), centred=0)


def rotary(
    x: Value,
    cosines: Value | None = None,
    sines: Value | None = None,
    *,
    base: float = 10000.0,
    interleaved: bool = False,
) -> Value:
    """Rotary position embedding of x [..., positions, features] (Su et al. 2021).

    Rotates features i and i + features / 2, or neighbouring features if `interleaved`, by the angle of their position.
    Cosines and sines are [positions, features / 2]; by default they are computed for positions from 0.
    """
    graph = graph_of("rotary", x, *given(cosines, sines))
    if cosines is None or sines is None:
        if cosines is not sines or len(x.shape) < 2:
            raise ValueError("rotary: give cosines and sines, or neither for x of [..., positions, features]")
        first, second = graph.native.rotary_tables(x.shape[-2], x.shape[-1], base)
    else:
        first, second = cosines.id, sines.id
    return Value(graph, graph.native.rotary(x.id, first, second, interleaved))


def cross_entropy(
    logits: Value,
    target: Value,
    *,
    weight: Value | None = None,
    ignored: int | None = None,
    smoothing: float = 0.0,
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Value:
    """-log softmax(logits)[label] per row; the target is integer labels [rows], or a probability for each class.

    As in PyTorch, rows whose label is `ignored`, such as -100, do not count, `weight` has a weight for each class, and
    `smoothing` is the fraction of each target that is spread over all classes.
    """
    graph = graph_of("cross_entropy", logits, target, *given(weight))
    label = None if ignored is None else operator.index(ignored) % 2**32
    of_classes = id_of(weight)
    return Value(graph, graph.native.cross_entropy(logits.id, target.id, of_classes, label, smoothing, reduction))


def mean_squared_error(x: Value, target: Value) -> Value:
    """Mean of (x - target)²; it may be finite even if a square exceeds the range of FP16."""
    difference = x - target
    if difference.is_integer:
        return mean(square(difference))
    return cast(mean(square(cast(difference, "f32"))), difference.dtype)


def dropout(x: Value, p: float = 0.5, *, step: Value | None = None, seed: int = 0) -> Value:
    """Zero elements with probability `p`, and divide the other elements by 1 - p.

    The mask depends on the seed, the step, the operation and the element alone. Sessions count the graph's input `step`.
    """
    graph = graph_of("dropout", x)
    counter = graph.step() if step is None else step
    graph_of("dropout", x, counter)
    return Value(graph, graph.native.dropout(x.id, p, counter.id, checked_seed(seed)))
