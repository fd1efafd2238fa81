"""PyTorch's operators as operations of a graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from tessera import _operators as _operators  # modules may use them, and sessions share PyTorch's threads
from tessera.graph import _values as ops
from tessera.graph._graph import Graph
from tessera.graph._parameters import INTEGER_TYPES, Parameter, Weights, type_of
from tessera.graph._values import Truth, Value

# Operands that are added to the graph only where they are used.


class Constant:
    """A buffer of the module, a tensor in its code, or a value computed from these, or for inference from parameters."""

    def __init__(self, graph: Graph, tensor: Tensor, *, of_parameters: bool = False) -> None:
        self.tensor = tensor.detach()
        self.of_parameters = of_parameters
        self._graph = graph
        self._value: Value | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    def value(self) -> Value:
        if self._value is None:
            dtype = type_of(self.tensor.dtype, allow_integers=True)
            array = self.tensor.numpy() if dtype in ops.INTEGERS else self.tensor.float().numpy()
            self._value = as_known(self._graph.constant(array, dtype=dtype), self.tensor)
        return self._value


class State:
    """A buffer that a module changes, such as running statistics."""

    def __init__(self, graph: Graph, name: str, tensor: Tensor) -> None:
        self.name = name
        self._tensor = tensor.detach()
        self._graph = graph
        self._value: Value | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._tensor.shape)

    def value(self) -> Value:
        if self._value is None:
            self._value = self._graph.add_state(self.name, self._tensor.float().numpy(), type_of(self._tensor.dtype))
        return self._value


class Transposed:
    """A value whose last two dimensions are exchanged; products take it untransposed."""

    def __init__(self, of: Value | Parameter) -> None:
        self.of = of
        self._value: Value | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        *leading, rows, cols = self.of.shape
        return (*leading, cols, rows)

    def value(self) -> Value:
        if self._value is None:
            order = list(range(len(self.of.shape)))
            permuted = ops.permute(value_of(self.of), [*order[:-2], order[-1], order[-2]])
            self._value = Truth(permuted.graph, permuted.id) if isinstance(self.of, Truth) else permuted
        return self._value


class Split:
    """A view with more dimensions than values may have: the elements of a value, row by row, in a longer shape."""

    def __init__(self, of: Value, shape: Sequence[int]) -> None:
        self.of = of
        self.shape = tuple(shape)

    def value(self) -> Value:
        most = ops.MOST_DIMENSIONS
        raise ValueError(f"{list(self.shape)} has more than {most} dimensions: it can only be permuted and reshaped")

    def permuted(self, order: Sequence[int]) -> Value | Split:
        """Permute dimensions: neighbours that stay together count as one; if these are too many, in several steps."""
        runs: list[list[int]] = []
        for dim in (dim for dim in order if self.shape[dim] != 1):
            if runs and all(self.shape[between] == 1 for between in range(runs[-1][-1] + 1, dim)) and dim > runs[-1][-1]:
                runs[-1].append(dim)
            else:
                runs.append([dim])
        inputs, shape = sorted(runs), [self.shape[dim] for dim in order]
        if not runs:
            return in_shape(self, shape)
        if len(runs) <= ops.MOST_DIMENSIONS:
            merged = ops.reshape(self.of, [self._size_of([run]) for run in inputs])
            return in_shape(ops.permute(merged, [inputs.index(run) for run in runs]), shape)
        now, y = inputs, self.of
        for i, run in enumerate(runs):
            if (begin := now.index(run)) != i:
                count = next(n for n in range(1, len(runs) + 1) if now[begin : begin + n + 1] != runs[i : i + n + 1])
                parts = [now[:i], now[i:begin], now[begin : begin + count], now[begin + count :]]
                y = ops.permute(ops.reshape(y, [self._size_of(part) for part in parts]), (0, 2, 1, 3))
                now = [*parts[0], *parts[2], *parts[1], *parts[3]]
        return in_shape(y, shape)

    def _size_of(self, runs: list[list[int]]) -> int:
        return math.prod(self.shape[dim] for run in runs for dim in run)


def in_shape(x: Value | Split, shape: Sequence[int]) -> Value | Split:
    """The same elements in another shape."""
    value = x.of if isinstance(x, Split) else x
    return ops.reshape(value, shape) if len(shape) <= ops.MOST_DIMENSIONS else Split(value, shape)


def value_of(known: Any) -> Any:
    """A value of the graph for a known argument; other arguments as they are."""
    if isinstance(known, (Parameter, Constant, State, Transposed, Split)):
        return known.value()
    return [value_of(each) for each in known] if isinstance(known, (tuple, list)) else known


def sizes_of(meaning: Tensor) -> tuple[int, ...]:
    if not all(isinstance(size, int) for size in meaning.shape):
        raise ValueError(f"the sizes of the result {list(meaning.shape)} depend on data; a graph's are fixed")
    return tuple(meaning.shape)


def as_known(result: Any, meaning: Any) -> Any:
    """A value with the meaning of PyTorch's tensor: truth values, integers or numbers, in its shape."""
    if isinstance(result, (tuple, list)) and isinstance(meaning, (tuple, list)):
        return [as_known(each, of) for each, of in zip(result, meaning, strict=False)]
    if not isinstance(result, Value) or not isinstance(meaning, Tensor):
        return result
    if result.shape != sizes_of(meaning):
        raise ValueError(f"a result of {list(meaning.shape)} is not possible")
    if meaning.dtype == torch.bool:
        return Truth(result.graph, result.id)
    if meaning.dtype in INTEGER_TYPES:
        result = ops.cast(result, INTEGER_TYPES[meaning.dtype])
    return Value(result.graph, result.id) if isinstance(result, Truth) else result


def as_truth(x: Value) -> Truth:
    """Whether each element is not 0."""
    if isinstance(x, Truth):
        return x
    holds = ops.not_equal(x, 0)
    return Truth(holds.graph, holds.id)


class Call:
    """An operator applied in an exported program."""

    def __init__(
        self,
        graph: Graph,
        node: torch.fx.Node,
        known: dict[torch.fx.Node, Any],
        form: ops.Form = "fused",
        weights: Weights | None = None,
        folded: set[str] | None = None,
        module: str = "",
        joint_norms: Mapping[str, int | None] | None = None,
    ) -> None:
        self.graph = graph
        self.weights = weights
        #: The number of replicas over which a norm takes statistics of batches, by the norm's path; None: all.
        self._joint_norms = joint_norms or {}
        #: Names of parameters from which this operator computes other values.
        self.folded: set[str] = set() if folded is None else folded
        #: The form that structured layers get.
        self.form = form
        self._module = module
        self._known = known
        self._node = node
        meaning = node.meta.get("val")
        #: Shape and type of the result.
        self.shape = sizes_of(meaning) if isinstance(meaning, Tensor) else ()
        self.dtype = meaning.dtype if isinstance(meaning, Tensor) else None
        self.operator = str(node.target)

    def refuse_draws(self) -> None:
        if self.weights is not None:
            raise ValueError("it draws random numbers in evaluation mode too: draw them only in training mode")

    def replicas_of_norm(self, running_mean: Any) -> int | None:
        """The number of replicas over which a norm takes statistics of batches; None: all replicas."""
        path = running_mean.name.rpartition(".")[0] if isinstance(running_mean, State) else self._module
        return self._joint_norms.get(path, 1)

    def named(self, x: Value) -> Value:
        """Name an intermediate value of an operation after its module."""
        if self._module and x.name.startswith("%") and not self.graph.native.contains(self._module):
            x.name = self._module
        return x

    @property
    def args(self) -> list[Any]:
        lazily = str(self._node.target) in _LAZY
        return [known if lazily else value_of(known) for known in map(self._of, self._node.args)]

    @property
    def kwargs(self) -> dict[str, Any]:
        return {name: value_of(self._of(argument)) for name, argument in self._node.kwargs.items()}

    def _of(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self._known[argument]
        return [self._of(each) for each in argument] if isinstance(argument, (tuple, list)) else argument


Handler: TypeAlias = Callable[..., Any]
_Function = TypeVar("_Function", bound=Handler)
HANDLERS: dict[str, Handler] = {}
#: Operators whose arguments need not be values of the graph.
_LAZY: set[str] = set()


def handles(*names: str, lazy: bool = False) -> Callable[[_Function], _Function]:
    def register(handler: _Function) -> _Function:
        for name in names:
            full = name if name.startswith("tessera.") else f"aten.{name}"
            HANDLERS[full] = handler
            if lazy:
                _LAZY.add(full)
        return handler

    return register


def shaped(call: Call, x: Value) -> Value:
    return x if x.shape == call.shape else ops.reshape(x, call.shape)


def in_result_type(call: Call, x: Value) -> Value:
    is_number = call.dtype is not None and call.dtype != torch.bool
    return ops.cast(x, type_of(call.dtype, allow_integers=True)) if is_number else x


# Elementwise.

_OF_INTEGERS: dict[str, Callable[[Value], Value]] = {
    "neg": operator.neg,
    "relu": lambda x: ops.maximum(x, 0),
    "abs": lambda x: ops.maximum(x, -x),
    "square": lambda x: x * x,
    "sign": lambda x: (x > 0) - (x < 0),
    **dict.fromkeys(("floor", "ceil", "trunc", "round"), lambda x: x),
}


def _whole(x: Value, of: Value) -> Value:
    """`of` where x may have a fraction, else x, as numbers from 2^23 on are integers. The derivative is 0."""
    return ops.apply("where", ops.abs(x) < 2.0**23, of, x, zero_derivative=1)


def _trunc(x: Value) -> Value:
    return _whole(x, ops.cast(ops.cast(x, "i32"), x.dtype))


def _floor(x: Value) -> Value:
    y = _trunc(x)
    return y - (x < y)


def _round(x: Value) -> Value:
    """x rounded to the nearest integer, halves to the even one."""
    low = _floor(x)
    rest = x - low
    is_odd = low - _floor(low * 0.5) * 2
    return _whole(x, low + ops.maximum(rest > 0.5, ops.equal(rest, 0.5) * is_odd))


def _log1p(x: Value) -> Value:
    """log(1 + x), by its series where 1 + x would lose too many digits."""
    small = ops.clip(x, -0.03, 0.03)
    series = small * (small * (small * (small * -0.25 + 1 / 3) - 0.5) + 1)
    return ops.where(ops.abs(x) < 0.03, series, ops.log(x + 1))


def _in_f32(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """Round 16-bit results once, not in each operation of a function."""
    return lambda x: ops.cast(function(ops.cast(x, "f32")), x.dtype)


_UNARY: dict[str, Callable[[Value], Value]] = {
    **{
        name: getattr(ops, name)
        for name in "relu tanh sigmoid exp log sqrt rsqrt reciprocal abs square silu erf sin cos".split()
    },
    "neg": operator.neg,
    "sign": lambda x: (x > 0) - (x < 0),
    "trunc": _trunc,
    "floor": _floor,
    "ceil": lambda x: -_floor(-x),
    "round": _round,
    "log1p": _in_f32(_log1p),
    "expm1": _in_f32(lambda x: ops.tanh(x * 0.5) * (ops.exp(x) + 1)),
    "log2": _in_f32(lambda x: ops.log(x) * (1 / math.log(2))),
    "log10": _in_f32(lambda x: ops.log(x) * (1 / math.log(10))),
    "exp2": _in_f32(lambda x: ops.exp(x * math.log(2))),
    "tan": _in_f32(lambda x: ops.sin(x) / ops.cos(x)),
    "isnan": lambda x: ops.not_equal(x, x),
    "isinf": lambda x: ops.equal(ops.abs(x), math.inf),
}


def _unary(name: str) -> Handler:
    def handler(call: Call, x: Value) -> Value:
        if call.dtype in INTEGER_TYPES and name in _OF_INTEGERS:
            return _OF_INTEGERS[name](x)
        return _UNARY[name](in_result_type(call, x))

    return handler


for _name in _UNARY:
    HANDLERS[f"aten.{_name}.default"] = _unary(_name)
HANDLERS["aten.hardsigmoid.default"] = lambda call, x: ops.hard_sigmoid(x)
HANDLERS["aten.hardswish.default"] = lambda call, x: ops.hard_swish(x)
HANDLERS["aten.gelu.default"] = lambda call, x, approximate="none": ops.gelu(x, approximate)
HANDLERS["aten.leaky_relu.default"] = lambda call, x, slope=0.01: ops.leaky_relu(x, slope)
HANDLERS["aten.softplus.default"] = lambda call, x, beta=1.0, threshold=20.0: ops.softplus(x, beta, threshold)
HANDLERS["aten.mish.default"] = lambda call, x: x * ops.tanh(ops.softplus(x))
HANDLERS["aten.log_sigmoid.default"] = lambda call, x: -ops.softplus(-x)


@handles("xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other")
def _xlogy(call: Call, x: Any, y: Any) -> Value:
    x, y = together(call, x, y)
    if not isinstance(y, Value):
        logarithm = math.log(y) if y > 0 else -math.inf if y == 0 else math.nan
        product = x * logarithm
        return product if math.isfinite(logarithm) or math.isnan(y) else ops.where(ops.equal(x, 0), 0.0, product)
    if not isinstance(x, Value):
        return ops.log(y) * x if x != 0 else ops.where(ops.not_equal(y, y), y, 0.0)
    logs = ops.log(ops.where(ops.equal(x, 0), 1.0, y)) * x
    return ops.where(ops.not_equal(y, y), y, logs)


@handles("rrelu.default")
def _rrelu(call: Call, x: Value, least: float = 1 / 8, most: float = 1 / 3, train: bool = False, *_: Any) -> Value:
    if train:
        raise ValueError("random slopes are not possible: use evaluation mode")
    return ops.leaky_relu(x, (least + most) / 2)


@handles("prelu.default", "_prelu_kernel.default")
def _prelu(call: Call, x: Value, slopes: Value) -> Value:
    if call.operator == "aten.prelu.default" and len(x.shape) > 1:
        slopes = ops.reshape(slopes, (-1, *[1] * (len(x.shape) - 2)))
    return ops.where(x > 0, x, x * slopes)


@handles("threshold.default")
def _threshold(call: Call, x: Value, threshold: float, value: float) -> Value:
    return ops.where(x <= threshold, value, x)


@handles("elu.default", "selu.default", "celu.default")
def _elu(call: Call, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    if call.operator == "aten.selu.default":
        alpha, scale = 1.6732632423543772, 1.0507009873554805
    elif call.operator == "aten.celu.default":
        input_scale = 1 / alpha
        # alpha · (exp(x / alpha) - 1) below 0, and x above.
        return ops.elu(x * input_scale, 1.0) * alpha
    return ops.elu(x, alpha) * scale if input_scale == 1 else _scaled_elu(x, alpha, scale, input_scale)


def _scaled_elu(x: Value, alpha: float, scale: float, input_scale: float) -> Value:
    return ops.where(x > 0, x, ops.elu(x * input_scale, alpha)) * scale


def _type_of_all(values: Sequence[Any]) -> str:
    """The type in which PyTorch compares these values and numbers."""
    held = [value for value in values if isinstance(value, Value)]
    floats = [value for value in held if not value.is_integer and not isinstance(value, Truth)]
    if not floats and any(isinstance(value, float) for value in values):
        return "f32"
    integers = [value for value in held if value.is_integer and not isinstance(value, Truth)]
    if not floats and not integers and any(type(value) is int for value in values):
        return "i32"
    kind = floats or integers or held
    types = {value.dtype for value in [each for each in kind if each.shape] or kind}
    return types.pop() if len(types) == 1 else "i32" if integers and not floats else "f32"


def together(call: Call, *values: Any) -> list[Any]:
    """Values and numbers as PyTorch combines them: in the type that holds all."""
    if call.dtype is not None and call.dtype != torch.bool:
        common = type_of(call.dtype, allow_integers=True)
    else:
        common = _type_of_all(values)
    return [ops.cast(value, common) if isinstance(value, Value) else value for value in values]


#: Functions of integers that have 64 bits in PyTorch: a result that needs more than 32 bits is an error of the run.
_EXACT: dict[Callable[[Any, Any], Any], str] = {operator.add: "add", operator.sub: "sub", operator.mul: "mul"}


def _exact(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if not isinstance(a, Value) and not isinstance(b, Value):
        return function(a, b)
    x = a if isinstance(a, Value) else ops.value_of(a, b)
    return ops.apply("exact", x, ops.value_of(b, x), function=_EXACT[function])


def _of_two(function: Callable[[Any, Any], Value]) -> Handler:
    """An operator on two values, or a value and a number; the second one is multiplied by alpha where there is one."""

    def handler(call: Call, a: Any, b: Any, alpha: float = 1) -> Value:
        if call.dtype == torch.bool and function in _OF_TRUTH:
            return _OF_TRUTH[function](call, a, b)
        a, b = together(call, a, b)
        if call.dtype == torch.int64 and function in _EXACT:
            result: Value = _exact(function, a, b if alpha == 1 else _exact(operator.mul, b, alpha))
            return result
        return function(a, b if alpha == 1 else b * alpha)

    return handler


_ARITHMETIC: dict[str, Callable[[Any, Any], Value]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": ops.equal,
    "ne": ops.not_equal,
}
for _name, _function in _ARITHMETIC.items():
    for _kind in ("Tensor", "Scalar"):
        HANDLERS[f"aten.{_name}.{_kind}"] = _of_two(_function)
for _kind in ("Tensor", "Scalar"):
    HANDLERS[f"aten.rsub.{_kind}"] = lambda call, a, b, alpha=1: _of_two(operator.sub)(call, b, a, alpha)
for _name, _other in (("maximum", "max"), ("minimum", "min")):
    HANDLERS[f"aten.{_name}.default"] = HANDLERS[f"aten.{_other}.other"] = _of_two(getattr(ops, _name))


def _both(call: Call, a: Any, b: Any) -> tuple[Value, Value]:
    """Two values, or a value and a number, as values of one type."""
    a, b = together(call, a, b)
    x: Value = a if isinstance(a, Value) else ops.value_of(a, b)
    return x, ops.value_of(b, x)


def _floor_quotient(call: Call, a: Any, b: Any) -> tuple[Value, Value, Value]:
    """a and b as integers, and the largest integer that is at most a / b."""
    if not isinstance(b, Value) and b == 0:
        raise ValueError("integers cannot be divided by 0")
    x, y = _both(call, a, b)

    def about(of: Value) -> Value:
        return ops.cast(ops.cast(of, "f32") / ops.cast(y, "f32"), x.dtype)

    quotient = about(x)
    quotient = quotient + about(x - quotient * y)  # corrects large quotients, which FP32 rounds
    rest = x - quotient * y
    return x, y, quotient - ops.not_equal(rest, 0) * ops.not_equal(rest < 0, y < 0)


@handles("floor_divide.default", "floor_divide.Scalar", "div.Tensor_mode", "div.Scalar_mode")
def _whole_quotient(call: Call, a: Any, b: Any, *, rounding_mode: str | None = "floor") -> Value:
    if rounding_mode is None:
        quotient: Value = _of_two(operator.truediv)(call, a, b)
        return quotient
    if call.dtype not in INTEGER_TYPES:
        x, y = _both(call, a, b)
        if rounding_mode == "floor":
            return ops.floor_divide(x, y)
        return ops.cast(_trunc(ops.cast(x, "f32") / ops.cast(y, "f32")), x.dtype)
    x, y, quotient = _floor_quotient(call, a, b)
    if rounding_mode == "floor":
        return quotient
    return quotient + (quotient < 0) * ops.not_equal(quotient * y, x)


@handles("remainder.Scalar", "remainder.Tensor", "remainder.Scalar_Tensor")
def _remainder(call: Call, a: Any, b: Any) -> Value:
    if call.dtype not in INTEGER_TYPES:
        return ops.remainder(*_both(call, a, b))
    x, y, quotient = _floor_quotient(call, a, b)
    return x - quotient * y


@handles("fmod.Scalar", "fmod.Tensor")
def _fmod(call: Call, a: Any, b: Any) -> Value:
    if call.dtype not in INTEGER_TYPES:
        return ops.fmod(*_both(call, a, b))
    x, y, _ = _floor_quotient(call, a, b)
    return x - _whole_quotient(call, a, b, rounding_mode="trunc") * y


# True is 1 and false is 0, as in the results of comparisons.


def _as_truths(call: Call, *values: Any) -> list[Any]:
    return together(call, *(as_truth(x) if isinstance(x, Value) else float(bool(x)) for x in values))


@handles("logical_not.default", "bitwise_not.default")
def _not(call: Call, x: Value) -> Value:
    return ops.equal(x, 0) if call.dtype == torch.bool else -x - 1


@handles("logical_and.default", "bitwise_and.Tensor", "bitwise_and.Scalar", "__and__.Tensor", "__and__.Scalar")
def _and(call: Call, a: Any, b: Any) -> Value:
    _require_truth(call)
    first, second = _as_truths(call, a, b)
    both: Value = first * second
    return both


@handles("logical_or.default", "bitwise_or.Tensor", "bitwise_or.Scalar", "__or__.Tensor", "__or__.Scalar")
def _or(call: Call, a: Any, b: Any) -> Value:
    _require_truth(call)
    first, second = _as_truths(call, a, b)
    return ops.maximum(first, second) if isinstance(first, Value) else ops.maximum(second, first)


@handles("logical_xor.default", "bitwise_xor.Tensor", "bitwise_xor.Scalar", "__xor__.Tensor", "__xor__.Scalar")
def _xor(call: Call, a: Any, b: Any) -> Value:
    _require_truth(call)
    first, second = _as_truths(call, a, b)
    return ops.not_equal(first, second) if isinstance(first, Value) else ops.not_equal(second, first)


#: The operations that PyTorch uses as sum and product of truth values.
_OF_TRUTH = {operator.add: _or, operator.mul: _and}


def _require_truth(call: Call) -> None:
    if call.dtype != torch.bool:
        raise ValueError("bitwise operations are possible only on truth values, not on integers")


@handles("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(call: Call, condition: Value, a: Any, b: Any) -> Value:
    a, b = together(call, a, b)
    like = next((each for each in (a, b) if isinstance(each, Value)), None)
    dtype = type_of(call.dtype, allow_integers=True) if like is None else like.dtype
    return ops.where(ops.cast(condition, dtype), a, b)  # 0 and 1 exist in every type


@handles("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(call: Call, x: Value, mask: Value, value: Any) -> Value:
    return _where(call, mask, value, x)


@handles(
    "clamp.default",
    "clamp.Tensor",
    "clamp_max.default",
    "clamp_max.Tensor",
    "clamp_min.default",
    "clamp_min.Tensor",
    "clip.default",
    "hardtanh.default",
    "relu6.default",
)
def _clamp(call: Call, x: Value, least: Any = None, most: Any = None) -> Value:
    x = ops.cast(x, type_of(call.dtype, allow_integers=True))
    if call.operator == "aten.hardtanh.default":  # exported programs leave out default arguments
        least, most = -1.0 if least is None else least, 1.0 if most is None else most
    if call.operator == "aten.relu6.default":
        least, most = 0.0, 6.0
    if call.operator.startswith("aten.clamp_max."):
        least, most = None, least
    if not x.is_integer and not isinstance(least, Value) and not isinstance(most, Value):
        return ops.clip(x, least, most)
    if x.is_integer:  # a limit at the end of the type's range has no effect
        lowest, highest = ops.INTEGERS[x.dtype]
        least = None if type(least) is int and least <= lowest else least
        most = None if type(most) is int and most >= highest else most
    if least is not None:
        x = ops.maximum(*together(call, x, least))
    return x if most is None else ops.minimum(*together(call, x, most))


@handles("pow.Tensor_Scalar")
def _pow(call: Call, x: Value, exponent: float) -> Value:
    powers: dict[float, Callable[[Value], Value]] = {
        2: ops.square,
        1: lambda x: x,
        0.5: ops.sqrt,
        -1: ops.reciprocal,
        -0.5: ops.rsqrt,
    }
    if call.dtype not in INTEGER_TYPES:
        x = in_result_type(call, x)
        return powers[exponent](x) if exponent in powers else ops.pow(x, exponent)
    if exponent not in (1, 2, 3):
        raise ValueError(f"integers to the power of {exponent} are not possible, only to 1, 2 or 3")
    return math.prod([x] * (int(exponent) - 1), start=x)


@handles("pow.Scalar")
def _power_of(call: Call, base: float, x: Value) -> Value:
    if call.dtype in INTEGER_TYPES:
        raise ValueError(f"{base} to the power of integers is not possible: use a floating-point exponent")
    x = in_result_type(call, x)
    is_usual = 0 < base < math.inf and base != 1
    return ops.exp(x * math.log(base)) if is_usual else ops.pow(ops.value_of(base, x), x)


@handles("pow.Tensor_Tensor")
def _power(call: Call, x: Value, exponent: Value) -> Value:
    if call.dtype in INTEGER_TYPES:
        raise ValueError("powers of integers with computed exponents are not possible: use a floating-point base")
    return ops.pow(*_both(call, x, exponent))


@handles("to.dtype", "to.dtype_layout", "to.device", "_to_copy.default", "type_as.default")
def _cast(call: Call, x: Value, *_: Any, **__: Any) -> Value:
    if call.dtype is None:
        raise ValueError("the result has no type")
    if call.dtype == torch.bool:
        return as_truth(x)
    return ops.cast(x, type_of(call.dtype, allow_integers=True))


def over_last(x: Value, shape: Sequence[int], *parameters: Value | None) -> list[Value | None]:
    """x and parameters over its last dimensions, with these dimensions merged into one."""
    if len(shape) == 1:
        return [x, *parameters]
    size = math.prod(shape)
    flat = [None if each is None else ops.reshape(each, (size,)) for each in parameters]
    return [ops.reshape(x, (*x.shape[: len(x.shape) - len(shape)], size)), *flat]


@handles("layer_norm.default")
def _layer_norm(
    call: Call,
    x: Value,
    shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Value:
    flat, weight, bias = over_last(x, shape, weight, bias)
    assert flat is not None
    return shaped(call, ops.layer_norm(flat, weight, bias, eps=eps))


@handles("rms_norm.default")
def _rms_norm(
    call: Call, x: Value, shape: Sequence[int], weight: Value | None = None, eps: float | None = None
) -> Value:
    flat, weight = over_last(x, shape, weight)
    assert flat is not None
    if eps is None:
        eps = torch.finfo(torch.float32).eps  # as norms compute 16-bit values in FP32
    return shaped(call, ops.rms_norm(flat, weight, eps=eps))


@handles("dropout.default")
def _dropout(call: Call, x: Value, p: float, train: bool) -> Value:
    if train and p > 0:
        call.refuse_draws()
        return ops.dropout(x, p)
    return x


@handles("bernoulli.p")
def _bernoulli(call: Call, x: Value, p: float) -> Value:
    call.refuse_draws()
    raise ValueError("it draws random numbers; in a graph, only dropout can")


@handles("native_dropout.default")
def _native_dropout(call: Call, x: Value, p: float, train: bool | None) -> list[Value]:
    return [_dropout(call, x, p, train is not False)]


@handles("alias.default", "clone.default", "contiguous.default", "lift_fresh_copy.default", lazy=True)
def _same(call: Call, x: Any, *_: Any, **__: Any) -> Any:
    return x


@handles("_assert_tensor_metadata.default", lazy=True)
def _checked(call: Call, *_: Any, **__: Any) -> None:
    """Ignore an assertion: the export has checked it."""


@handles("item.default", "_local_scalar_dense.default", lazy=True)
def _number(call: Call, x: Any) -> Any:
    raise ValueError("a Python number depends on data: keep it in a tensor, such as the result of torch.max(x)")


@handles("detach.default", "detach_.default", lazy=True)
def _detach(call: Call, x: Any) -> Any:
    if call.weights is not None or isinstance(x, (Constant, State)):  # has no gradient
        return x
    if isinstance(x, Transposed):
        return Transposed(ops.stop_gradient(value_of(x.of)))
    if isinstance(x, Split):
        return Split(ops.stop_gradient(x.of), x.shape)
    return ops.stop_gradient(value_of(x))
