"""PyTorch's gradients, and the values stored for them, as operations of a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.graph import _values as ops
from tessera.graph._aten import Call, handles, over_last, shaped, value_of
from tessera.graph._aten_products import heads_first, heads_last, mask_of
from tessera.graph._parameters import type_of
from tessera.graph._values import Attribute, Value

# Gradients of elementwise functions, from the gradient of the result and the value that a function keeps.

_OF_ARGUMENT_OR_RESULT = {
    "silu_backward": "silu_gradient",
    "tanh_backward": "tanh_gradient",
    "sigmoid_backward": "sigmoid_gradient",
}


@handles(*(f"{name}.default" for name in _OF_ARGUMENT_OR_RESULT))
def _gradient(call: Call, dy: Value, kept: Value) -> Value:
    return ops.apply(_OF_ARGUMENT_OR_RESULT[call.operator.split(".")[1]], dy, kept)


@handles("gelu_backward.default")
def _gelu_gradient(call: Call, dy: Value, x: Value, *, approximate: str = "none") -> Value:
    return ops.apply("gelu_tanh_gradient" if approximate == "tanh" else "gelu_gradient", dy, x)


@handles("threshold_backward.default")
def _threshold_gradient(call: Call, dy: Value, x: Value, threshold: float) -> Value:
    return ops.apply("relu_gradient", dy, x if threshold == 0 else x - threshold)


@handles("native_dropout_backward.default")
def _dropout_gradient(call: Call, dy: Value, mask: Value, scale: float) -> Value:
    return dy * ops.cast(mask, dy.dtype) * scale


# Gradients of softmax.


@handles("_softmax_backward_data.default")
def _softmax_gradient(call: Call, dy: Value, y: Value, dim: int, *_: Any) -> Value:
    weighted = dy * y
    return _as_result(call, weighted - y * ops.sum(weighted, dim, keepdim=True))


@handles("_log_softmax_backward_data.default")
def _log_softmax_gradient(call: Call, dy: Value, y: Value, dim: int, *_: Any) -> Value:
    return _as_result(call, dy - ops.exp(y) * ops.sum(dy, dim, keepdim=True))


def _as_result(call: Call, x: Value) -> Value:
    return x if call.dtype is None else ops.cast(x, type_of(call.dtype))


# Gradients of normalisation. Statistics have size 1 in the dimensions over which they are taken.


def _statistics_of(x: Value, shape: Sequence[int], *values: Value) -> list[Value]:
    sizes = (*x.shape[: len(x.shape) - len(shape)], *[1] * len(shape))
    return [ops.reshape(each, sizes) for each in values]


def normalised(x: Value, shape: Sequence[int], given: list[Value | None], attributes: dict[str, Any]) -> list[Value]:
    """y, mean and reciprocal deviation."""
    inputs = [each for each in over_last(x, shape, *given) if each is not None]
    y, mean, deviation = ops.apply_all("layer_norm", inputs, attributes)
    return [ops.reshape(y, x.shape), *_statistics_of(x, shape, mean, deviation)]


@handles("native_layer_norm.default")
def _layer_norm(
    call: Call, x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> list[Value]:
    y, *statistics = normalised(x, shape, [weight, bias] if weight is not None else [], {"epsilon": float(eps)})
    return [y if weight is not None or bias is None else y + bias, *statistics]


@handles("_fused_rms_norm.default")
def _rms_norm(
    call: Call, x: Value, shape: Sequence[int], weight: Value | None, eps: float | None
) -> list[Value]:
    least = 2.0**-23 if eps is None else float(eps)
    y, _, deviation = normalised(x, shape, [weight], {"epsilon": least, "centred": 0})
    return [y, deviation]


@handles("native_layer_norm_backward.default")
def _layer_norm_gradients(
    call: Call,
    dy: Value,
    x: Value,
    shape: Sequence[int],
    mean: Value,
    deviation: Value,
    weight: Value | None,
    bias: Value | None,
    needed: Sequence[bool],
) -> list[Value | None]:
    return _norm_gradients(dy, x, shape, mean, deviation, weight, bias is not None, True)


@handles("_fused_rms_norm_backward.default")
def _rms_norm_gradients(
    call: Call, dy: Value, x: Value, shape: Sequence[int], deviation: Value, weight: Value | None, needed: Any
) -> list[Value | None]:
    return _norm_gradients(dy, x, shape, deviation * 0, deviation, weight, False, False)[:2]


def _norm_gradients(
    dy: Value,
    x: Value,
    shape: Sequence[int],
    mean: Value,
    deviation: Value,
    weight: Value | None,
    has_bias: bool,
    is_centred: bool,
) -> list[Value | None]:
    flat, scale = over_last(x, shape, weight)
    assert flat is not None
    sizes = (*flat.shape[:-1], 1)
    statistics = [ops.reshape(ops.cast(each, "f32"), sizes) for each in (mean, deviation)]
    inputs = [ops.reshape(dy, flat.shape), flat, *statistics]
    attributes: dict[str, Attribute] = {"bias": int(has_bias and scale is not None), "centred": int(is_centred)}
    dx, *others = ops.apply_all("layer_norm_gradients", [*inputs, *([] if scale is None else [scale])], attributes)
    of_parameters = [ops.reshape(each, shape) for each in others]
    if has_bias and scale is None:
        of_parameters = [_sum_of_rows(dy, shape)] * 2
    return [ops.reshape(dx, x.shape), *of_parameters, *[None] * (2 - len(of_parameters))]


def _sum_of_rows(dy: Value, shape: Sequence[int]) -> Value:
    rows = ops.reshape(dy, (-1, math.prod(shape)))
    return ops.reshape(ops.sum(rows, 0), shape)


# Gradients of slices.


@handles("select_backward.default")
def _select_gradient(call: Call, dy: Value, sizes: Sequence[int], dim: int, index: int) -> Value:
    dim, index = dim % len(sizes), index % sizes[dim]
    return ops.pad(ops.reshape(dy, (*sizes[:dim], 1, *sizes[dim + 1 :])), dim, index, sizes[dim] - index - 1)


@handles("slice_backward.default")
def _slice_gradient(
    call: Call, dy: Value, sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Value:
    if step != 1:
        raise ValueError(f"gradients of slices with a step of {step} are not possible, only with a step of 1")
    dim %= len(sizes)
    begin, stop, _ = slice(start, end).indices(sizes[dim])
    return ops.pad(dy, dim, begin, sizes[dim] - stop) if stop - begin < sizes[dim] else shaped(call, dy)


# Gradients of attention: heads are the second dimension.


def _operands(
    call: Call, q: Value, k: Value, v: Value, mask: Any, is_causal: bool, scale: float | None
) -> tuple[list[Value], dict[str, Attribute]]:
    """Inputs and attributes of attention."""
    heads = q.shape[1]
    limits: dict[str, Any] = {"right": 0} if is_causal else {} if mask is None else mask_of(call, mask, q, k)
    bias = limits.pop("bias", None)
    attributes: dict[str, Attribute] = {"heads": heads, **limits}
    if k.shape[1] != heads:
        attributes["kv_heads"] = k.shape[1]
    if scale is not None:
        attributes["scale"] = float(scale)
    inputs = [heads_last(each) for each in (q, k, v)]
    if bias is not None:
        attributes["bias"] = 1
        inputs.append(bias)
    return inputs, attributes


@handles("_scaled_dot_product_flash_attention_for_cpu.default", lazy=True)
def _attention(
    call: Call,
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> list[Value]:
    q, k, v = (value_of(each) for each in (q, k, v))
    if dropout_p > 0:
        raise ValueError("dropout of probabilities is not possible")
    inputs, attributes = _operands(call, q, k, v, attn_mask, is_causal, scale)
    y, logarithms = ops.apply_all("attention", inputs, attributes)
    return [heads_first(y, q.shape[1]), ops.permute(logarithms, (0, 2, 1))]


@handles("_scaled_dot_product_flash_attention_for_cpu_backward.default", lazy=True)
def _attention_gradients(
    call: Call,
    dy: Any,
    q: Any,
    k: Any,
    v: Any,
    y: Any,
    logarithms: Any,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> list[Value]:
    dy, q, k, v, y, logarithms = (value_of(each) for each in (dy, q, k, v, y, logarithms))
    if dropout_p > 0:
        raise ValueError("dropout of probabilities is not possible")
    inputs, attributes = _operands(call, q, k, v, attn_mask, is_causal, scale)
    results = [heads_last(y), ops.permute(logarithms, (0, 2, 1)), heads_last(dy)]
    gradients = ops.apply_all("attention_gradient", [*inputs, *results], attributes)
    return [heads_first(each, of.shape[1]) for each, of in zip(gradients, (q, k, v), strict=True)]
