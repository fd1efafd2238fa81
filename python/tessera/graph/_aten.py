"""PyTorch's operators as operations of a graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from tessera import _operators as _operators  # modules may use them, and sessions share PyTorch's threads
from tessera._matrices import Matrix
from tessera.graph import _values as ops
from tessera.graph._graph import Graph
from tessera.graph._values import Value

_TYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_INTEGERS = (torch.int64, torch.int32, torch.uint32)
_MEAN = 1  # PyTorch's numbers of reductions: none, mean, sum
_REDUCTION_NAMES: tuple[Literal["none", "mean", "sum"], ...] = ("none", "mean", "sum")
_REDUCTIONS: tuple[Callable[[Value], Value], ...] = (lambda x: x, ops.mean, ops.sum)


def type_of(dtype: torch.dtype, *, allow_integers: bool = False) -> str:
    if allow_integers and dtype in _INTEGERS:
        return "u32"
    if dtype == torch.bool:
        return "f32"
    if dtype not in _TYPES:
        raise ValueError(f"values of {dtype} are not possible: use float32, float16 or bfloat16")
    return _TYPES[dtype]


# What is added to the graph only where it is used.


class Parameter:
    """A parameter of the module."""

    def __init__(self, graph: Graph, name: str, tensor: Tensor) -> None:
        self.name = name
        self.tensor = tensor.detach()
        self._trains = tensor.requires_grad
        self._graph = graph
        self._value: Value | None = None

    def value(self, shape: Sequence[int] | None = None) -> Value:
        """Its value, in the shape in which it is first used."""
        if self._value is None:
            values = self.tensor.float().numpy()
            values = values if shape is None else values.reshape(tuple(shape))
            self._value = self._graph.parameter(self.name, initial=values, dtype=type_of(self.tensor.dtype))
            self._note()
        return self._value

    def sparse(self, matrix: Matrix, capacity: int | None) -> Value:
        if self._value is None:
            self._value = self._graph.sparse_parameter(
                self.name,
                matrix,
                dynamic=False if capacity is None else capacity,
                dtype=type_of(self.tensor.dtype),
            )
            self._note()
        return self._value

    def _note(self) -> None:
        if not self._trains:
            self._graph.freeze(self.name)


class Constant:
    """A buffer of the module, or a tensor in its code."""

    def __init__(self, graph: Graph, tensor: Tensor) -> None:
        self.tensor = tensor.detach()
        self._graph = graph
        self._value: Value | None = None

    def value(self, *, signed: bool = False) -> Value:
        """Its value; integers below 0 only where a floating-point number will do."""
        if self._value is None:
            dtype = type_of(self.tensor.dtype, allow_integers=True)
            if dtype == "u32" and not ((self.tensor >= 0) & (self.tensor <= 2**24)).all():
                if not signed or (self.tensor.abs() > 2**24).any():
                    raise ValueError("a constant has integers below 0 or above 2^24")
                return self._graph.constant(self.tensor.float().numpy())
            self._value = self._graph.constant(self.tensor.float().numpy(), dtype=dtype)
        return self._value


class Transposed:
    """A value whose last two dimensions are exchanged, which a product takes as it was."""

    def __init__(self, of: Value) -> None:
        self.of = of
        self._value: Value | None = None

    def value(self) -> Value:
        if self._value is None:
            order = list(range(len(self.of.shape)))
            self._value = ops.permute(self.of, [*order[:-2], order[-1], order[-2]])
        return self._value


def value_of(known: Any) -> Any:
    """A value of the graph, or whatever else an argument is."""
    if isinstance(known, (Parameter, Constant, Transposed)):
        return known.value()
    return [value_of(each) for each in known] if isinstance(known, (tuple, list)) else known


def _holds_truth(argument: Any) -> bool:
    meaning = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None
    return isinstance(meaning, Tensor) and meaning.dtype == torch.bool


class Call:
    """An operator applied in an exported program."""

    def __init__(
        self, graph: Graph, node: torch.fx.Node, known: dict[torch.fx.Node, Any], form: ops.Form = "fused"
    ) -> None:
        self.graph = graph
        #: What structured layers become.
        self.form = form
        self._known = known
        self._node = node
        meaning = node.meta.get("val")
        #: Shape and type of the result.
        self.shape = tuple(int(size) for size in meaning.shape) if isinstance(meaning, Tensor) else ()
        self.dtype = meaning.dtype if isinstance(meaning, Tensor) else None
        self.lacks_input = any(known.get(argument) is None for argument in node.all_input_nodes)
        self.operator = str(node.target)

    @property
    def are_bools(self) -> list[bool]:
        """By argument: whether it holds truth values."""
        return [_holds_truth(argument) for argument in self._node.args]

    def is_bool(self, name: str, position: int) -> bool:
        """Whether an argument, by its name or its position, holds truth values."""
        args = self._node.args
        return _holds_truth(args[position] if position < len(args) else self._node.kwargs.get(name))

    @property
    def args(self) -> list[Any]:
        lazily = str(self._node.target) in _LAZY
        return [known if lazily else self._value_of(known) for known in map(self._of, self._node.args)]

    @property
    def kwargs(self) -> dict[str, Any]:
        return {name: value_of(self._of(argument)) for name, argument in self._node.kwargs.items()}

    def _value_of(self, known: Any) -> Any:
        return known.value(signed=self.dtype in _TYPES) if isinstance(known, Constant) else value_of(known)

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


# Elementwise.

for _name in "relu tanh sigmoid exp log sqrt rsqrt reciprocal abs square silu erf sin cos".split():
    HANDLERS[f"aten.{_name}.default"] = lambda call, x, function=getattr(ops, _name): function(x)
HANDLERS["aten.hardsigmoid.default"] = lambda call, x: ops.hard_sigmoid(x)
HANDLERS["aten.hardswish.default"] = lambda call, x: ops.hard_swish(x)
HANDLERS["aten.neg.default"] = lambda call, x: -x
HANDLERS["aten.gelu.default"] = lambda call, x, approximate="none": ops.gelu(x, approximate)
HANDLERS["aten.leaky_relu.default"] = lambda call, x, slope=0.01: ops.leaky_relu(x, slope)
HANDLERS["aten.softplus.default"] = lambda call, x, beta=1.0, threshold=20.0: ops.softplus(x, beta, threshold)
HANDLERS["aten.mish.default"] = lambda call, x: x * ops.tanh(ops.softplus(x))
HANDLERS["aten.log_sigmoid.default"] = lambda call, x: -ops.softplus(-x)


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


def _together(call: Call, *values: Any) -> list[Any]:
    """Values and numbers as PyTorch combines them: in the type that holds all."""
    held = [value for value in values if isinstance(value, Value)]
    types = {value.dtype for value in [each for each in held if each.shape] or held}
    if call.dtype in _TYPES:
        types = {type_of(call.dtype)}
    elif call.dtype in _INTEGERS:
        types = {"u32"}
    elif len(types) > 1:
        types -= {"u32"}
    common = types.pop() if len(types) == 1 else "f32"
    return [ops.cast(value, common) if isinstance(value, Value) else value for value in values]


def _of_two(function: Callable[[Any, Any], Value]) -> Handler:
    """Of two values, or a value and a number; the second one times alpha, where an operator has that."""

    def handler(call: Call, a: Any, b: Any, alpha: float = 1) -> Value:
        a, b = _together(call, a, b)
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
for _name in ("maximum", "minimum"):
    HANDLERS[f"aten.{_name}.default"] = _of_two(getattr(ops, _name))


# Truth is 1, falsehood 0, as comparisons give them.


def _as_bools(call: Call, *values: Value) -> list[Value]:
    bools = [x if is_bool else ops.not_equal(x, 0) for x, is_bool in zip(values, call.are_bools, strict=False)]
    return _together(call, *bools)


@handles("logical_not.default", "bitwise_not.default")
def _not(call: Call, x: Value) -> Value:
    _require_bools(call, "bitwise")
    return ops.equal(x, 0)


@handles("logical_and.default", "bitwise_and.Tensor", "__and__.Tensor")
def _and(call: Call, a: Value, b: Value) -> Value:
    _require_bools(call, "bitwise")
    first, second = _as_bools(call, a, b)
    return first * second


@handles("logical_or.default", "bitwise_or.Tensor", "__or__.Tensor")
def _or(call: Call, a: Value, b: Value) -> Value:
    _require_bools(call, "bitwise")
    return ops.maximum(*_as_bools(call, a, b))


@handles("logical_xor.default", "bitwise_xor.Tensor", "__xor__.Tensor")
def _xor(call: Call, a: Value, b: Value) -> Value:
    _require_bools(call, "bitwise")
    return ops.not_equal(*_as_bools(call, a, b))


def _require_bools(call: Call, kind: str) -> None:
    if call.dtype != torch.bool:
        raise ValueError(f"{kind} operations on integers are not possible, only on truth values")


@handles("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(call: Call, condition: Value, a: Any, b: Any) -> Value:
    if call.dtype in _INTEGERS:
        raise ValueError("choices between integers are not possible, only between floating-point numbers")
    a, b = _together(call, a, b)
    if not isinstance(a, Value) and not isinstance(b, Value):
        condition = ops.cast(condition, type_of(call.dtype))  # type: ignore[arg-type]
    return ops.where(condition, a, b)


@handles("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(call: Call, x: Value, mask: Value, value: Any) -> Value:
    return _where(call, mask, value, x)


@handles(
    "clamp.default",
    "clamp.Tensor",
    "clamp_max.default",
    "clamp_min.default",
    "clip.default",
    "hardtanh.default",
    "relu6.default",
)
def _clamp(call: Call, x: Value, least: Any = None, most: Any = None) -> Value:
    if call.operator == "aten.hardtanh.default" and (least, most) == (None, None):
        least, most = -1.0, 1.0
    if call.operator == "aten.relu6.default":
        least, most = 0.0, 6.0
    if call.operator == "aten.clamp_max.default":
        least, most = None, least
    if x.dtype != "u32" and not isinstance(least, Value) and not isinstance(most, Value):
        return ops.clip(x, least, most)
    if least is not None and (isinstance(least, Value) or least > 0):
        x = ops.maximum(*_together(call, x, least))
    return x if most is None else ops.minimum(*_together(call, x, most))


@handles("pow.Tensor_Scalar")
def _pow(call: Call, x: Value, exponent: float) -> Value:
    powers: dict[float, Callable[[Value], Value]] = {
        2: ops.square,
        1: lambda x: x,
        0.5: ops.sqrt,
        -1: ops.reciprocal,
        -0.5: ops.rsqrt,
    }
    return powers[exponent](x) if exponent in powers else ops.pow(x, exponent)


@handles("pow.Scalar")
def _power_of(call: Call, base: float, x: Value) -> Value:
    if base <= 0:
        raise ValueError(f"powers of {base} are not possible: only of a number above 0")
    return ops.exp(x * math.log(base))


@handles("to.dtype", "_to_copy.default", "type_as.default")
def _cast(call: Call, x: Value, *_: Any, **__: Any) -> Value:
    if call.dtype is None:
        raise ValueError("the result has no type")
    if call.dtype == torch.bool:
        return x if all(call.are_bools[:1]) else ops.not_equal(x, 0)
    return ops.cast(x, type_of(call.dtype, allow_integers=True))


# Reductions, softmax, losses.


def _in_floats(call: Call, x: Value, function: Callable[[Value], Value]) -> Value:
    """Of integers, of truth values whose sum is an integer, and of what gives FP32, as FP32."""
    y = function(ops.cast(x, "f32") if x.dtype == "u32" or call.dtype is torch.float32 else x)
    return ops.cast(y, "u32") if call.dtype in _INTEGERS else y


@handles("sum.default", "sum.dim_IntList")
def _sum(call: Call, x: Value, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    return _in_floats(call, x, lambda x: ops.sum(x, dims, keepdim))


@handles("mean.default", "mean.dim")
def _mean(call: Call, x: Value, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    return _in_floats(call, x, lambda x: ops.mean(x, dims, keepdim))


@handles("any.default", "any.dim", "any.dims")
def _any(call: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return ops.amax(_truth(call, x), dims, keepdim)


@handles("all.default", "all.dim", "all.dims")
def _all(call: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return ops.amin(_truth(call, x), dims, keepdim)


def _truth(call: Call, x: Value) -> Value:
    """1 for elements that are not 0, in FP32."""
    return ops.cast(x if call.is_bool("self", 0) else ops.not_equal(x, 0), "f32")


@handles("max.default", "amax.default")
def _max(call: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return _in_floats(call, x, lambda x: ops.amax(x, dims, keepdim))


@handles("min.default", "amin.default")
def _min(call: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return _in_floats(call, x, lambda x: ops.amin(x, dims, keepdim))


def _arg(x: Value, dim: int | None, keepdim: bool, sign: int) -> Value:
    x = ops.cast(x, "f32") if x.dtype == "u32" else x
    if dim is None:
        x, dim = ops.reshape(x, (-1,)), 0
    return ops.argmax(x if sign > 0 else -x, dim, keepdim)


@handles("argmax.default")
def _argmax(call: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return shaped(call, _arg(x, dim, keepdim, 1))


@handles("argmin.default")
def _argmin(call: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return shaped(call, _arg(x, dim, keepdim, -1))


@handles("max.dim")
def _max_and_place(call: Call, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    return [ops.amax(x, dim, keepdim), _arg(x, dim, keepdim, 1)]


@handles("min.dim")
def _min_and_place(call: Call, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    return [ops.amin(x, dim, keepdim), _arg(x, dim, keepdim, -1)]


@handles("cumsum.default")
def _cumsum(call: Call, x: Value, dim: int, **_: Any) -> Value:
    dtype = type_of(call.dtype, allow_integers=True) if call.dtype is not None else x.dtype
    return ops.cumsum(ops.cast(x, dtype), dim)


def _variance(x: Value, dims: Any, correction: float, keepdim: bool) -> tuple[Value, Value]:
    mean = ops.mean(x, dims, keepdim=True)
    count = math.prod(x.shape) / math.prod(mean.shape)
    if correction >= count:
        raise ValueError(f"the variance of {count:.0f} elements with a correction of {correction} is not possible")
    variance = ops.mean(ops.square(x - mean), dims, keepdim) * (count / (count - correction))
    return variance, mean if keepdim else ops.reshape(mean, variance.shape)


@handles("var.correction", "var.dim")
def _var(call: Call, x: Value, dims: Any = None, correction: Any = 1, keepdim: bool = False) -> Value:
    return _variance(x, dims, 1 if correction is None else float(correction), keepdim)[0]


@handles("std.correction", "std.dim")
def _std(call: Call, x: Value, dims: Any = None, correction: Any = 1, keepdim: bool = False) -> Value:
    return ops.sqrt(_var(call, x, dims, correction, keepdim))


@handles("var_mean.correction")
def _var_mean(call: Call, x: Value, dims: Any = None, correction: Any = 1, keepdim: bool = False) -> list[Value]:
    return list(_variance(x, dims, 1 if correction is None else float(correction), keepdim))


@handles("logsumexp.default")
def _logsumexp(call: Call, x: Value, dims: Any, keepdim: bool = False) -> Value:
    most = ops.amax(x, dims, keepdim=True)
    y = ops.log(ops.sum(ops.exp(x - most), dims, keepdim=True)) + most
    return shaped(call, y)


@handles("softmax.int", "_softmax.default")
def _softmax(call: Call, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    return ops.softmax(_in_result_type(call, x), dim)


@handles("log_softmax.int", "_log_softmax.default")
def _log_softmax(call: Call, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    return ops.log_softmax(_in_result_type(call, x), dim)


def _in_result_type(call: Call, x: Value) -> Value:
    return x if call.dtype is None else ops.cast(x, type_of(call.dtype))


def over_last(x: Value, shape: Sequence[int], *parameters: Value | None) -> list[Value | None]:
    """x and parameters of some last dimensions, with these as one."""
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
    epsilon: float = 1e-5,
    *_: Any,
) -> Value:
    flat, weight, bias = over_last(x, shape, weight, bias)
    assert flat is not None
    return shaped(call, ops.layer_norm(flat, weight, bias, epsilon=epsilon))


@handles("native_layer_norm.default")
def _native_layer_norm(
    call: Call, x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None, epsilon: float
) -> list[Value]:
    flat, weight, bias = over_last(x, shape, weight, bias)
    assert flat is not None
    return [ops.reshape(ops.layer_norm(flat, weight, bias, epsilon=epsilon), x.shape)]


@handles("rms_norm.default")
def _rms_norm(
    call: Call, x: Value, shape: Sequence[int], weight: Value | None = None, epsilon: float | None = None
) -> Value:
    flat, weight = over_last(x, shape, weight)
    assert flat is not None
    if epsilon is None:
        epsilon = torch.finfo(torch.float32).eps  # 16-bit values are widened
    return shaped(call, ops.rms_norm(flat, weight, epsilon=epsilon))


@handles("embedding.default")
def _embedding(
    call: Call,
    weight: Value,
    ids: Value,
    padding: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    if scale_grad_by_freq:
        raise ValueError("gradients that are scaled by the frequency of ids are not possible")
    return ops.embedding(ids, weight, padding=None if padding < 0 else padding)


@handles("dropout.default")
def _dropout(call: Call, x: Value, p: float, train: bool) -> Value:
    return ops.dropout(x, p) if train and p > 0 else x


@handles("native_dropout.default")
def _native_dropout(call: Call, x: Value, p: float, train: bool | None) -> list[Value]:
    return [_dropout(call, x, p, train is not False)]


def _with_classes_last(x: Value) -> Value:
    """[rows, classes, …] as [rows, …, classes]."""
    count = len(x.shape)
    return x if count < 3 else ops.permute(x, [0, *range(2, count), 1])


@handles("cross_entropy_loss.default")
def _cross_entropy(
    call: Call,
    logits: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    has_labels = target.dtype == "u32"
    y = ops.cross_entropy(
        _with_classes_last(logits),
        target if has_labels else _with_classes_last(target),
        weight=weight,
        ignored=ignore_index if has_labels else None,
        smoothing=label_smoothing,
        reduction=_REDUCTION_NAMES[reduction],
    )
    return shaped(call, y)


@handles("nll_loss.default", "nll_loss_nd.default")
def _nll_loss(
    call: Call,
    logs: Value,
    labels: Value,
    weight: Value | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
) -> Value:
    x = _with_classes_last(logs)
    classes = x.shape[-1]
    counts = np.ones(classes)
    if 0 <= ignore_index < classes:
        counts[ignore_index] = 0
    numbers = call.graph.constant(np.arange(classes), dtype="u32")
    is_chosen = ops.cast(ops.equal(ops.reshape(labels, (*labels.shape, 1)), numbers), x.dtype)
    chosen = is_chosen * call.graph.constant(counts, dtype=x.dtype)
    chosen = chosen if weight is None else chosen * weight
    terms = -ops.sum(ops.where(is_chosen, x, 0.0) * chosen, -1)  # others may be infinite
    if _REDUCTION_NAMES[reduction] == "mean":
        return ops.sum(terms) / ops.sum(chosen)
    return shaped(call, _REDUCTIONS[reduction](terms))


@handles("binary_cross_entropy_with_logits.default")
def _binary_cross_entropy(
    call: Call,
    logits: Value,
    target: Value,
    weight: Value | None = None,
    pos_weight: Value | None = None,
    reduction: int = _MEAN,
) -> Value:
    factor = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    y = (1 - target) * logits + ops.softplus(-logits) * factor
    return _REDUCTIONS[reduction](y if weight is None else y * weight)


@handles("mse_loss.default")
def _mse_loss(call: Call, x: Value, target: Value, reduction: int = _MEAN) -> Value:
    return _REDUCTIONS[reduction](ops.square(x - target))


@handles("l1_loss.default")
def _l1_loss(call: Call, x: Value, target: Value, reduction: int = _MEAN) -> Value:
    return _REDUCTIONS[reduction](ops.abs(x - target))


@handles("alias.default", "clone.default", "contiguous.default", "lift_fresh_copy.default", lazy=True)
def _same(call: Call, x: Any, *_: Any, **__: Any) -> Any:
    return x


@handles("_assert_tensor_metadata.default", lazy=True)
def _checked(call: Call, *_: Any, **__: Any) -> None:
    """A check that export has made already."""


@handles("detach.default", "detach_.default", lazy=True)
def _detach(call: Call, x: Any) -> Any:
    raise ValueError("gradients cannot be stopped")
