"""PyTorch's products and attention as operations of a graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tessera._matrices import Matrix
from tessera._prepared import prepared_for, stored
from tessera.graph import _values as ops
from tessera.graph._aten import Call, Constant, Transposed, handles, shaped, value_of
from tessera.graph._parameters import Parameter
from tessera.graph._values import Truth, Value


@handles("linear.default", lazy=True)
def _linear(call: Call, x: Any, weight: Any, bias: Any = None) -> Value:
    with_left = _product_with_left(x, _transposed(weight)) if len(_shape_of(weight)) == 2 else None
    if with_left is None:
        return _of_layer(value_of(x), weight, value_of(bias))
    return with_left if bias is None else with_left + value_of(bias)


def _transposed(known: Any) -> Any:
    """The value with its last two dimensions exchanged."""
    return known.of if isinstance(known, Transposed) else Transposed(known)


def _of_layer(x: Value, weight: Any, bias: Value | None, *, transposed: bool = False) -> Value:
    """x · Wᵀ + b; `transposed`: the weight is a parameter [in, out]."""
    rows = math.prod(x.shape[:-1])
    value = weight.weight(rows, transposed=transposed) if isinstance(weight, Parameter) else value_of(weight)
    return ops.linear(x, value, bias)


def _has_transposed_form(weight: Parameter, rows: int) -> bool:
    """Whether products may use a separate form of a parameter [in, out]."""
    if weight.weights is None:
        return False
    return weight.is_weight or weight.sparse_copy(rows, transposed=True) is not None


def _product_with_left(a: Any, b: Any) -> Value | None:
    """A product whose first factor is a weight with a form of its own; None: it has none, or is no parameter."""
    left = a.of if isinstance(a, Transposed) else a
    if not isinstance(left, Parameter) or len(left.shape) not in (2, 3):
        return None
    if len(left.shape) == 3:
        by_group = _product_by_group(_transposed(b), _transposed(a))
        return None if by_group is None else Transposed(by_group).value()
    *leading, _, columns = _shape_of(b)
    weight = left.left_factor(math.prod(leading) * columns, transposed=isinstance(a, Transposed))
    if weight is None:
        return None
    if weight.graph.native.block_size(weight.id) == 0:
        weight = ops.expand(weight, (*leading, *weight.shape))
    right, is_transposed = (b.of, True) if isinstance(b, Transposed) else (b, False)
    return ops.matmul(weight, value_of(right), transpose_b=is_transposed)


def _product_by_group(a: Any, b: Any) -> Value | None:
    """A product with a sparse weight for each group, in turn; None: the weights stay dense, or are no parameter.

    If the weights are the first factors, the product is computed as (bᵀ · aᵀ)ᵀ.
    """
    stack, a_shape = b.of if isinstance(b, Transposed) else b, _shape_of(a)
    if not isinstance(stack, Parameter) or len(stack.shape) != 3:
        return None
    count = stack.shape[0]
    leading = a_shape[-3] if len(a_shape) > 2 and count > 1 else 1  # a single group takes all rows
    if leading not in (1, count):
        return None
    weights = stack.groups(math.prod(a_shape[:-1]) // leading, transposed=not isinstance(b, Transposed))
    if weights is None:
        return None
    x = value_of(a)
    x = ops.reshape(x, (1, *a_shape)) if len(a_shape) == 2 else x
    if count == 1:
        return ops.linear(x, weights[0])
    dim = len(x.shape) - 3
    parts = [x] * count if leading == 1 else ops.split(x, [1] * count, dim)
    return ops.concatenate([ops.linear(part, weight) for part, weight in zip(parts, weights, strict=True)], dim)


def _is_input(known: Value | Parameter) -> bool:
    return isinstance(known, Value) and known.graph.native.kind(known.id) == "input"


@handles("bilinear.default")
def _bilinear(call: Call, x: Value, y: Value, weight: Value, bias: Value | None = None) -> Value:
    outputs, left, right = weight.shape
    matrix = ops.reshape(ops.permute(weight, (1, 0, 2)), (left, outputs * right))
    products = ops.reshape(ops.matmul(ops.reshape(x, (-1, left)), matrix), (-1, outputs, right))
    sums = shaped(call, ops.sum(products * ops.reshape(y, (-1, 1, right)), -1))
    return sums if bias is None else sums + bias


def _shape_of(known: Any) -> tuple[int, ...]:
    return known.shape if isinstance(known, (Parameter, Transposed)) else value_of(known).shape


def _factor(known: Any, leading: tuple[int, ...]) -> tuple[Value, bool]:
    """A factor with these leading dimensions, and whether it is transposed."""
    value = value_of(known.of if isinstance(known, Transposed) else known)
    return ops.expand(value, (*leading, *value.shape[-2:])), isinstance(known, Transposed)


def _product(a: Any, b: Any, bias: Value | None = None) -> Value:
    """a · b as PyTorch's matmul; with a parameter, by the product of a layer."""
    a_shape, b_shape = _shape_of(a), _shape_of(b)
    if len(a_shape) == 1 or len(b_shape) == 1:
        rows = ops.reshape(value_of(a), (1, *a_shape)) if len(a_shape) == 1 else a
        cols = ops.reshape(value_of(b), (*b_shape, 1)) if len(b_shape) == 1 else b
        y = _product(rows, cols)
        kept = y.shape[:-2] if len(a_shape) == 1 else y.shape[:-1]
        return ops.reshape(y, kept if len(b_shape) == 1 else (*kept, y.shape[-1]))
    with_left = _product_with_left(a, b)
    if with_left is not None:
        return with_left if bias is None else with_left + bias
    if isinstance(b, Transposed) and len(b_shape) == 2 and not _is_input(b.of):
        return _of_layer(value_of(a), b.of, bias)
    if isinstance(b, Parameter) and len(b_shape) == 2 and _has_transposed_form(b, math.prod(a_shape[:-1])):
        return _of_layer(value_of(a), b, bias, transposed=True)
    by_group = _product_by_group(a, b)
    if by_group is not None:
        return by_group if bias is None else by_group + bias
    if len(b_shape) == 2 and len(a_shape) > 2:
        left, of_a = value_of(a), False
        right, of_b = _factor(b, ())
    else:
        leading = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
        left, of_a = _factor(a, leading)
        right, of_b = _factor(b, leading)
    y = ops.matmul(left, right, transpose_a=of_a, transpose_b=of_b)
    return y if bias is None else y + bias


@handles("matmul.default", "mm.default", "bmm.default", lazy=True)
def _matmul(call: Call, a: Any, b: Any) -> Value:
    return _product(a, b)


@handles("baddbmm.default", lazy=True)
def _baddbmm(call: Call, added: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Value:
    y = _product(a, b)
    y = y if alpha == 1 else y * alpha
    return y if beta == 0 else y + (value_of(added) if beta == 1 else value_of(added) * beta)


@handles("addmm.default", lazy=True)
def _addmm(call: Call, bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Value:
    if beta != 1 or alpha != 1:
        return _baddbmm(call, bias, a, b, beta=beta, alpha=alpha)
    added = value_of(bias)
    return _product(a, b, added) if len(added.shape) == 1 else added + _product(a, b)


@handles("tessera.linear.default", lazy=True)
def _sparse_linear(call: Call, x: Any, weight: Any, *arguments: Any) -> Value:
    crow, col, packed_format, out_features, in_features, block_size, dynamic, bias, activation = arguments
    if not isinstance(weight, Parameter):
        raise ValueError("the weight is computed; it must be a parameter")
    index = (crow.tensor, col.tensor, packed_format.tensor)
    shape = (out_features, in_features)
    prepared = prepared_for(*index, *shape, block_size, dynamic)
    values = prepared.weight(torch.float32).unpack(weight.tensor.float().contiguous())
    blocks = stored(crow.tensor, col.tensor)
    matrix = Matrix(shape, block_size, crow.tensor.numpy(), blocks.numpy(), np.asarray(values))
    if call.weights is not None:
        call.weights.note(weight.name, matrix, math.prod(call.shape[:-1]), weight.tensor.dtype)
    y = ops.linear(value_of(x), weight.sparse(matrix, col.tensor.numel() if dynamic else None), value_of(bias))
    functions: dict[str, Callable[[Value], Value]] = {"none": lambda v: v, "relu": ops.relu, "gelu": ops.gelu}
    return functions[activation](y)


def _swapped(x: Value) -> Value:
    """[..., a, b, size] as [..., b, a, size]."""
    count = len(x.shape)
    return ops.permute(x, [*range(count - 3), count - 2, count - 3, count - 1])


def heads_last(x: Value) -> Value:
    """[..., heads, tokens, size] as [..., tokens, heads · size]."""
    y = _swapped(x)
    return ops.reshape(y, (*y.shape[:-2], y.shape[-2] * y.shape[-1]))


def heads_first(x: Value, heads: int) -> Value:
    return _swapped(ops.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads)))


def _limits_of(mask: Tensor, queries: int, keys: int) -> dict[str, int] | None:
    """The limits of attention that a mask of pairs stands for; None: it is another mask."""
    if mask.shape[-2:] != (queries, keys):
        return None
    pairs = mask.reshape(-1, queries, keys)
    if not pairs[0].any():
        return None
    distance = torch.arange(keys)[None, :] - torch.arange(queries)[:, None]
    low, high = int(distance[pairs[0]].min()), int(distance[pairs[0]].max())
    if low > 0 or high < 0 or not (pairs == (distance >= low) & (distance <= high)).all():
        return None
    limits = {"left": -low} if low > 1 - queries else {}
    return limits if high == keys - 1 else {**limits, "right": high}


def mask_of(call: Call, mask: Any, q: Value, k: Value) -> dict[str, Any]:
    """A mask of PyTorch's attention as limits or as a bias."""
    if isinstance(mask, Constant):
        tensor = mask.tensor
        if tensor.dtype is not torch.bool:
            attends = tensor == 0
            hides = tensor <= torch.finfo(tensor.dtype).min
            # A query from which a finite number hides all keys attends to all of them.
            if (attends | hides).all() and attends.any(-1).all():
                tensor = attends
        if tensor.dtype is torch.bool:
            limits = _limits_of(tensor, q.shape[-2], k.shape[-2])
            if limits is not None:
                return limits
            tensor = torch.where(tensor, 0.0, -torch.inf)
        bias = call.graph.constant(tensor.float().numpy(), dtype=q.dtype)
    else:
        bias = value_of(mask)
        if isinstance(bias, Truth):
            hidden = call.graph.constant(-np.inf, dtype=q.dtype)
            bias = ops.where(bias, call.graph.constant(0, dtype=q.dtype), hidden)
        if bias.dtype != q.dtype:
            raise ValueError(f"a mask of {bias.dtype} for queries of {q.dtype} is not possible")
    leading = len(q.shape) - 3
    bias = ops.expand(bias, (*bias.shape[:-1], k.shape[-2]))
    bias = ops.reshape(bias, (1,) * (leading + 3 - len(bias.shape)) + bias.shape)
    if any(size > 1 for size in bias.shape[:leading]):
        bias = ops.expand(bias, (*q.shape[:leading], *bias.shape[leading:]))
    sequences = math.prod(bias.shape[:leading])
    return {"bias": ops.reshape(bias, (sequences, *bias.shape[leading:]))}


@handles("scaled_dot_product_attention.default", lazy=True)
def _attention(
    call: Call,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    if dropout_p > 0:
        call.refuse_draws()
    q, k, v = value_of(q), value_of(k), value_of(v)
    if len(q.shape) == 2:
        q, k, v = (ops.reshape(each, (1, *each.shape)) for each in (q, k, v))
        y = _attention(call, q, k, v, mask, dropout_p, is_causal, scale=scale)
        return ops.reshape(y, y.shape[1:])
    q, k, v = (ops.expand(each, (*call.shape[:-3], *each.shape[-3:])) for each in (q, k, v))
    heads, kv_heads = q.shape[-3], k.shape[-3]
    are_broadcast = kv_heads == v.shape[-3] == 1
    if heads != kv_heads and not are_broadcast and not enable_gqa:
        raise ValueError(f"{heads} heads of queries with {kv_heads} of keys need enable_gqa")
    chosen: dict[str, Any] = {"right": 0} if is_causal else {} if mask is None else mask_of(call, mask, q, k)
    y = ops.attention(
        *(heads_last(x) for x in (q, k, v)),
        heads=heads,
        kv_heads=kv_heads,
        scale=scale,
        dropout=dropout_p,
        **chosen,
    )
    return heads_first(y, heads)
