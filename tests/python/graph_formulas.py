"""Operations of graphs in PyTorch: functions of float64 tensors, by the operations' names."""

import numpy as np
import torch
from tessera.nn import formulas
from torch.nn import functional


def rows_of(x):
    return x.reshape(-1, x.shape[-1]) if x.dim() else x.reshape(1, 1)


def dims_of(x, dim):
    return tuple(range(x.dim())) if dim is None else dim


def block_diagonal(x, blocks):
    a, _, c = blocks.shape
    return torch.einsum("rac,abc->rab", x.reshape(-1, a, c), blocks).reshape(*x.shape[:-1], -1)


def padded(x, dim, before, after, value):
    return functional.pad(x, [0, 0] * (x.dim() - 1 - dim) + [before, after], value=value)


def added(values, ids, dim, size):
    shape = [*values.shape[:dim], size, *values.shape[dim + 1 :]]
    return values.new_zeros(shape).index_add(dim, ids.long(), values)


def scattered(x, ids, values):
    last = {int(row): i for i, row in enumerate(ids)}
    return x.index_copy(0, torch.tensor(list(last)), values[list(last.values())])


def rotated(x, interleaved):
    pairs = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :pairs], x[..., pairs:])
    turned = (a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin())
    return torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)


def padded_image(x, padding):
    """Channels first, with zeros around."""
    return functional.pad(x.movedim(-1, 1), [p for p in reversed(padding) for _ in range(2)])


def convolved(x, w, *bias, kernel, stride, padding, dilation, groups):
    weight = w.reshape(w.shape[0], *kernel, -1).movedim(-1, 1)
    call = functional.conv1d if len(kernel) == 1 else functional.conv2d
    return call(padded_image(x, padding), weight, *bias, stride=stride, dilation=dilation, groups=groups).movedim(1, -1)


def convolved_back(x, w, *bias, kernel, stride, padding, dilation, groups, output_padding):
    weight = w.reshape(w.shape[0], *kernel, -1).movedim(-1, 1)
    call = functional.conv_transpose1d if len(kernel) == 1 else functional.conv_transpose2d
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return call(x.movedim(-1, 1), weight, *bias, output_padding=output_padding, **options).movedim(1, -1)


def seen(x, kernel, stride, padding, dilation):
    """The elements under a window, by unfolding dimension by dimension."""
    image = padded_image(x, padding).movedim(1, -1)
    for d, size in enumerate(kernel):
        count = (image.shape[1 + d] - (size - 1) * dilation[d] - 1) // stride[d] + 1
        places = torch.arange(count)[:, None] * stride[d] + torch.arange(size) * dilation[d]
        image = image.index_select(1 + d, places.flatten()).unflatten(1 + d, (count, size)).movedim(2 + d, -2)
    return image.flatten(1 + len(kernel))


def folded(x, sizes, **window):
    taps = int(np.prod(window["kernel"]))
    image = x.new_zeros(x.shape[0], *sizes, x.shape[-1] // taps, requires_grad=True)
    return torch.autograd.grad(seen(image, **window), image, x, create_graph=True)[0]


def on_images(function):
    """Wrap a function of channels first for channels last."""
    return lambda x, *inputs, **options: function(x.movedim(-1, 1), *inputs, **options).movedim(1, -1)


def max_pooled(x, window, stride, padding, dilation, ceil):
    return getattr(functional, f"max_pool{x.dim() - 2}d")(x, window, stride, padding, dilation, ceil)


def averaged(x, window, stride, padding, ceil, counts_padding):
    return getattr(functional, f"avg_pool{x.dim() - 2}d")(x, window, stride, padding, ceil, counts_padding)


def interpolated(x, sizes, mode, coordinates):
    if mode == "nearest":
        return functional.interpolate(x, sizes)
    mode = "bicubic" if mode == "cubic" else "bilinear" if x.dim() == 4 else "linear"
    return functional.interpolate(x, sizes, mode=mode, align_corners=coordinates == "align_corners")


def normed_by(x, mean, deviation, scale=1, shift=0, *, eps):
    return (x - mean) / (deviation.square() + eps).sqrt() * scale + shift


def batch_normed(x, *weights, eps):
    return functional.batch_norm(x, None, None, *weights, training=True, eps=eps)


def unary(function, low=-2.0, high=2.0):
    return {"call": function, "range": (low, high)}


# By name; the options are the keyword arguments.
UNARY = {
    "relu": unary(torch.relu),
    "gelu": unary(functional.gelu),
    "tanh": unary(torch.tanh),
    "sigmoid": unary(torch.sigmoid),
    "exp": unary(torch.exp),
    "log": unary(torch.log),
    "sqrt": unary(torch.sqrt),
    "square": unary(torch.square),
    "abs": unary(torch.abs),
    "reciprocal": unary(torch.reciprocal),
    "rsqrt": unary(torch.rsqrt),
    "erf": unary(torch.erf),
    "sin": unary(torch.sin),
    "cos": unary(torch.cos),
    "silu": unary(functional.silu),
    "leaky_relu": unary(functional.leaky_relu),
    "elu": unary(functional.elu),
    "softplus": unary(functional.softplus),
    "hard_sigmoid": unary(functional.hardsigmoid),
    "hard_swish": unary(functional.hardswish),
}
POSITIVE = ("log", "sqrt", "reciprocal", "rsqrt", "pow")
BINARY = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "equal": lambda a, b: torch.eq(a, b).double(),
    "not_equal": lambda a, b: torch.ne(a, b).double(),
}
OTHERS = {
    "sum": lambda x, dim, keepdim: x.sum(dims_of(x, dim), keepdim),
    "mean": lambda x, dim, keepdim: x.mean(dims_of(x, dim), keepdim),
    "amax": lambda x, dim, keepdim: x.amax(dims_of(x, dim), keepdim),
    "amin": lambda x, dim, keepdim: x.amin(dims_of(x, dim), keepdim),
    "argmax": torch.argmax,
    "cumsum": torch.cumsum,
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "pow": torch.pow,
    "clip": lambda x, low, high: x.clip(low, high),
    "where": lambda c, a, b: torch.where(c != 0, a, b),
    "expand": lambda x, shape: x.expand(shape),
    "pad": padded,
    "index_select": lambda x, ids, dim: x.index_select(dim, ids.long()),
    "gather": lambda x, ids, dim: x.gather(dim, ids.long()),
    "scatter_add": added,
    "scatter": scattered,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "floor_divide": lambda a, b: torch.floor_divide(a.detach(), b.detach()) + 0 * (a + b),
    "rotary": rotated,
    "rms_norm": lambda x, *w, eps: x * (x.square().mean(-1, True) + eps).rsqrt() * (w[0] if w else 1),
    "transpose": lambda x: x.t(),
    "reshape": lambda x, shape: x.reshape(shape),
    "slice": lambda x, dim, begin, end: x.narrow(dim, begin, end - begin),
    "concatenate": lambda a, b, dim: torch.cat((a, b), dim),
    "permute": lambda x, dims: x.permute(dims),
    "permute_features": lambda x, permutation: x[..., list(permutation)],
    "select_features": lambda x, places: x[..., list(places)],
    "sum_neighbours": lambda x, neighbours: x.unflatten(-1, (-1, neighbours)).sum(-1),
    "cast": lambda x, dtype: x,
    "cross_entropy": lambda x, labels, smoothing, ignored, reduction: functional.cross_entropy(
        rows_of(x), labels.long().reshape(-1), None, None, ignored, None, reduction, smoothing
    ),
    "mean_squared_error": functional.mse_loss,
    "layer_norm": lambda x, *of, eps: functional.layer_norm(x, x.shape[-1:], *of, eps=eps),
    "max_pool": on_images(max_pooled),
    "average_pool": on_images(averaged),
    "adaptive_max_pool": on_images(lambda x, sizes: functional.adaptive_max_pool2d(x, sizes)),
    "adaptive_average_pool": on_images(lambda x, sizes: functional.adaptive_avg_pool2d(x, sizes)),
    "interpolate": on_images(interpolated),
    "batch_norm": normed_by,
    "batch_norm_of_batch": on_images(batch_normed),
    "group_norm": on_images(lambda x, *w, groups, eps: functional.group_norm(x, groups, *w, eps=eps)),
    "embedding": lambda ids, w, padding=None: functional.embedding(ids.long(), w, padding),
    "linear": lambda x, w, *bias: x @ w.t() + (bias[0] if bias else 0),
    "convolution": convolved,
    "transposed_convolution": convolved_back,
    "patches": seen,
    "fold": folded,
    "circulant": lambda x, c: formulas.circulant(x, c, c.numel()),
    "toeplitz": formulas.toeplitz,
    "kronecker": lambda x, w, factor: block_diagonal(x, w.reshape(factor[:3])),
}
ALL = {**UNARY, **BINARY, **OTHERS}
