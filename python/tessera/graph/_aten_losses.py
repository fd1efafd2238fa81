"""PyTorch's losses as operations of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from tessera.graph import _values as ops
from tessera.graph._aten import Call, handles, in_result_type, shaped
from tessera.graph._values import Value

_MEAN = 1  # PyTorch's numbers of reductions: none, mean, sum
_REDUCTION_NAMES: tuple[Literal["none", "mean", "sum"], ...] = ("none", "mean", "sum")
_REDUCTIONS: tuple[Callable[[Value], Value], ...] = (lambda x: x, ops.mean, ops.sum)


def _with_classes_last(x: Value) -> Value:
    """[rows, classes, …] as [rows, …, classes]."""
    count = len(x.shape)
    return x if count < 3 else ops.permute(x, [0, *range(2, count), 1])


def checked_labels(call: Call, labels: Value, classes: int, ignored: int | None = None) -> Value:
    """Labels, unchanged; a label that is neither a class nor ignored is an error of the run, like a wrong id."""
    numbers = call.graph.constant(np.arange(classes), dtype=labels.dtype)
    is_ignored = None if ignored is None else ops.equal(labels, ignored)
    ids = labels if is_ignored is None else ops.where(is_ignored, 0, labels)
    found = ops.reshape(ops.index_select(numbers, 0, ops.reshape(ids, (-1,))), labels.shape)
    return found if is_ignored is None else ops.where(is_ignored, labels, found)


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
    has_labels = target.is_integer
    logits = _with_classes_last(logits)
    y = ops.cross_entropy(
        logits,
        checked_labels(call, target, logits.shape[-1], ignore_index) if has_labels else _with_classes_last(target),
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
    labels = checked_labels(call, labels, classes, ignore_index)
    labels = ops.reshape(labels, (*labels.shape, 1))
    numbers = call.graph.constant(np.arange(classes), dtype=labels.dtype)
    is_chosen = ops.cast(ops.equal(labels, numbers), "f32")
    counts = ops.reshape(ops.cast(ops.not_equal(labels, ignore_index), "f32"), labels.shape[:-1])
    chosen = ops.sum(is_chosen if weight is None else is_chosen * ops.cast(weight, "f32"), -1) * counts
    logs = ops.sum(ops.where(is_chosen, ops.cast(x, "f32"), 0.0), -1)  # unselected logarithms may be infinite
    terms = ops.where(counts, -logs * chosen, 0.0)
    if _REDUCTION_NAMES[reduction] == "mean":
        return in_result_type(call, ops.sum(terms) / ops.sum(chosen))
    return shaped(call, in_result_type(call, _REDUCTIONS[reduction](terms)))


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
