"""PyTorch's embeddings as operations of a graph."""

from __future__ import annotations

import math
from typing import Any, Literal

from tessera.graph import _values as ops
from tessera.graph._aten import Call, Constant, handles, value_of
from tessera.graph._aten_losses import checked_labels
from tessera.graph._parameters import Parameter
from tessera.graph._values import Value

_MODES: tuple[Literal["sum", "mean", "max"], ...] = ("sum", "mean", "max")  # PyTorch's numbers


@handles("embedding.default", lazy=True)
def _embedding(
    call: Call,
    weight: Any,
    ids: Any,
    padding: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    if scale_grad_by_freq:
        raise ValueError("gradients scaled by the frequency of ids are not possible")
    return ops.embedding(value_of(ids), _table_of(weight), padding=None if padding < 0 else padding)


def _table_of(weight: Any) -> Any:
    return weight.table() if isinstance(weight, Parameter) else value_of(weight)


@handles("one_hot.default")
def _one_hot(call: Call, labels: Value, classes: int = -1) -> Value:
    if classes < 0:
        raise ValueError("the number of classes depends on data: give it")
    labels = checked_labels(call, labels, classes)
    numbers = call.graph.constant(list(range(classes)), dtype=labels.dtype)
    return ops.equal(ops.reshape(labels, (*labels.shape, 1)), numbers)


@handles("embedding_bag.padding_idx", "embedding_bag.default", "_embedding_bag.default", lazy=True)
def _embedding_bag(
    call: Call,
    weight: Any,
    ids: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    factors: Any = None,
    includes_last: bool = False,
    padding: int | None = None,
) -> list[Value | None]:
    """Sums, means or maxima of the rows of each bag, whose ids go from its offset to the next; 0 for empty bags."""
    ids, factors = value_of(ids), value_of(factors)
    padding = None if padding is None or padding < 0 else padding
    rows = _embedding(call, weight, ids, -1 if padding is None else padding, scale_grad_by_freq)
    count, features = rows.shape
    bags = (offsets.tensor.numel() if isinstance(offsets, Constant) else value_of(offsets).shape[0]) - includes_last
    size = _common_size(offsets, bags, count)
    if size is not None:
        rows, belongs = ops.reshape(rows, (bags, size, features)), call.graph.constant(1.0)
    else:
        rows, belongs, size = ops.reshape(rows, (1, count, features)), _membership(call, offsets, bags, count), count
    shape = (-1, size, 1)
    belongs = ops.expand(ops.reshape(belongs, (bags, size, 1) if belongs.shape else (1, 1, 1)), (bags, size, 1))
    if padding is not None:
        belongs = belongs * ops.reshape(ops.cast(ops.not_equal(ids, padding), "f32"), shape)
    if _MODES[mode] == "max":
        most = ops.amax(ops.where(belongs, rows, -math.inf), 1)
        return [ops.where(ops.equal(most, -math.inf), 0.0, most), None, None, None]
    chosen = rows if factors is None else rows * ops.reshape(factors, shape)
    total = ops.sum(ops.where(belongs, chosen, 0.0), 1)
    if _MODES[mode] == "mean":
        total = total / ops.maximum(ops.cast(ops.sum(belongs, 1), total.dtype), 1)
    return [total, None, None, None]


def _common_size(offsets: Any, bags: int, count: int) -> int | None:
    """The size that all bags have, if that is known."""
    if not isinstance(offsets, Constant) or count % bags != 0:
        return None
    begins = offsets.tensor[:bags].tolist()
    return count // bags if begins == list(range(0, count, count // bags)) else None


def _membership(call: Call, offsets: Any, bags: int, count: int) -> Value:
    """Whether an element is in a bag, [bags, elements]."""
    begins = ops.cast(value_of(offsets), "i32")
    begins = ops.reshape(begins if begins.shape[0] == bags else ops.slice(begins, 0, 0, bags), (bags, 1))
    places = call.graph.constant(list(range(count)), dtype="i32")
    is_after = ops.cast(begins <= places, "f32")
    after_next = ops.pad(ops.slice(is_after, 0, 1, bags), 0, 0, 1) if bags > 1 else is_after * 0
    return is_after - after_next
