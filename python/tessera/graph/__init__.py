"""Networks: a graph of operations, its training step, and sessions that run it on the host or on a tiled machine.

    graph = Graph()
    x = graph.input("x", (50, 784))
    h = relu(linear(x, graph.parameter("w", (1024, 784), uniform(1 / 28))))
    …
    step = graph.training_step("cross_entropy", "sgd", lr=0.01, momentum=0.9)
    step.estimate("gc200")                      # does it fit, how long does a step take, and why
    session = step.session()
    loss = session.run(images, labels)

`from_torch` makes the graph of a PyTorch module. Everything else needs only NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera._tessera import BertConfig, OperationCost, ResnetConfig
from tessera.graph._bert import Bert, bert_for_pretraining
from tessera.graph._convolution import convolution, fold, patches, transposed_convolution, ungrouped_weight
from tessera.graph._estimate import Estimate
from tessera.graph._graph import Graph, TrainingStep
from tessera.graph._pipeline import (
    ActionList,
    PipelineAction,
    PipelineAnalysis,
    PipelineSchedule,
    pipeline_schedule,
    read_actions,
)
from tessera.graph._resnet import Resnet, resnet
from tessera.graph._session import Session
from tessera.graph._training import ParameterGroup, Schedule, betas_of_packs, packs_per_batch
from tessera.graph._structured_maps import butterfly, circulant, fastfood, kronecker, linear_layer, toeplitz
from tessera.graph._values import (
    Value,
    abs,
    amax,
    amin,
    argmax,
    cast,
    clip,
    concatenate,
    constant,
    cos,
    cross_entropy,
    cumsum,
    dropout,
    elu,
    embedding,
    equal,
    erf,
    exp,
    expand,
    floor_divide,
    fmod,
    gather,
    gelu,
    hard_sigmoid,
    hard_swish,
    index_select,
    layer_norm,
    leaky_relu,
    attention,
    linear,
    matmul,
    log,
    log_softmax,
    maximum,
    mean,
    mean_over_replicas,
    mean_over_step,
    mean_squared_error,
    minimum,
    normal,
    not_equal,
    pad,
    permute,
    permute_features,
    pow,
    reciprocal,
    remainder,
    relu,
    reshape,
    rms_norm,
    rotary,
    rsqrt,
    scatter,
    scatter_add,
    select_features,
    sigmoid,
    silu,
    sin,
    slice,
    softmax,
    softplus,
    split,
    sqrt,
    square,
    stop_gradient,
    sum,
    sum_neighbours,
    sum_over_replicas,
    tanh,
    transpose,
    uniform,
    where,
)
from tessera.graph._vision import (
    adaptive_average_pool,
    adaptive_max_pool,
    average_pool,
    batch_norm,
    batch_norm_of_batch,
    group_norm,
    interpolate,
    max_pool,
)

if TYPE_CHECKING:
    from tessera.graph._conversion import Missing
    from tessera.graph._from_torch import UnsupportedModuleError, from_torch

__all__ = [
    "ActionList",
    "Bert",
    "BertConfig",
    "Estimate",
    "Graph",
    "Missing",
    "OperationCost",
    "ParameterGroup",
    "PipelineAction",
    "PipelineAnalysis",
    "PipelineSchedule",
    "Resnet",
    "ResnetConfig",
    "Schedule",
    "Session",
    "TrainingStep",
    "UnsupportedModuleError",
    "Value",
    "abs",
    "adaptive_average_pool",
    "adaptive_max_pool",
    "amax",
    "amin",
    "argmax",
    "average_pool",
    "batch_norm",
    "batch_norm_of_batch",
    "bert_for_pretraining",
    "betas_of_packs",
    "butterfly",
    "cast",
    "circulant",
    "clip",
    "concatenate",
    "constant",
    "convolution",
    "cos",
    "cross_entropy",
    "cumsum",
    "dropout",
    "elu",
    "embedding",
    "equal",
    "erf",
    "exp",
    "expand",
    "fastfood",
    "floor_divide",
    "fmod",
    "fold",
    "from_torch",
    "gather",
    "gelu",
    "group_norm",
    "hard_sigmoid",
    "hard_swish",
    "index_select",
    "interpolate",
    "kronecker",
    "layer_norm",
    "leaky_relu",
    "attention",
    "linear",
    "matmul",
    "linear_layer",
    "log",
    "log_softmax",
    "max_pool",
    "maximum",
    "mean",
    "mean_over_replicas",
    "mean_over_step",
    "mean_squared_error",
    "minimum",
    "normal",
    "not_equal",
    "packs_per_batch",
    "pad",
    "patches",
    "permute",
    "permute_features",
    "pipeline_schedule",
    "pow",
    "read_actions",
    "reciprocal",
    "remainder",
    "relu",
    "reshape",
    "resnet",
    "rms_norm",
    "rotary",
    "rsqrt",
    "scatter",
    "scatter_add",
    "select_features",
    "sigmoid",
    "silu",
    "sin",
    "slice",
    "softmax",
    "softplus",
    "split",
    "sqrt",
    "square",
    "stop_gradient",
    "sum",
    "sum_neighbours",
    "sum_over_replicas",
    "tanh",
    "toeplitz",
    "transpose",
    "transposed_convolution",
    "ungrouped_weight",
    "uniform",
    "where",
]


def __getattr__(name: str) -> Any:
    """Import names that need PyTorch when they are used."""
    if name in ("Missing", "UnsupportedModuleError", "from_torch"):
        from tessera.graph import _from_torch

        return getattr(_from_torch, name)
    raise AttributeError(f"module 'tessera.graph' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names, including names that are imported when they are used."""
    return sorted({*globals(), *__all__})
