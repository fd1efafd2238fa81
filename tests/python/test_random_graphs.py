"""Random graphs of all operations beside PyTorch in float64: values, and steps of training.

A failing graph is made as small as possible, and printed as Python. TESSERA_TEST_PYTHON_GRAPHS sets the number of
graphs in each part.
"""

import inspect
import os
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
from graph_formulas import ALL, BINARY, POSITIVE, UNARY, seen  # noqa: E402
from tessera import graph as tg  # noqa: E402

EPSILON = 2.0**-23
PARTS = 8
COUNT = int(os.environ.get("TESSERA_TEST_PYTHON_GRAPHS", "6"))
LARGEST = 50.0


@dataclass
class Node:
    """A leaf with its contents, or an operation on earlier nodes."""

    operation: str
    inputs: tuple = ()
    options: dict = field(default_factory=dict)
    array: np.ndarray | None = None
    matrix: tessera.Matrix | None = None  # of a sparse parameter

    @property
    def is_leaf(self):
        return self.array is not None


@dataclass
class Lesson:
    loss: int
    optimizer: str = "sgd"
    micro_batches: int = 1
    clip_norm: float | None = None


@dataclass
class Recipe:
    seed: int
    machine: str
    size: int  # threads or tiles
    nodes: list = field(default_factory=list)
    outputs: list = field(default_factory=list)
    lesson: Lesson | None = None


# Compared elsewhere: random numbers, structured maps, operations that others cover, attention with its masks, and
# operations over micro-batches and replicas.
ELSEWHERE = {"attention", "matmul", "dropout", "butterfly", "fastfood", "linear_layer", "split"}
ELSEWHERE |= {"mean_over_step", "mean_over_replicas", "sum_over_replicas", "stop_gradient"}


def test_every_operation_takes_part():
    public = [getattr(tg, name) for name in tg.__all__]
    parts = ("_values", "_structured_maps", "_convolution", "_vision")
    operations = {f.__name__ for f in public if inspect.isfunction(f) and f.__module__.removeprefix("tessera.graph.") in parts}
    of_no_values = {"constant", "normal", "uniform", "ungrouped_weight"}
    missing = operations - of_no_values - ELSEWHERE - set(ALL)
    assert not missing, f"say what {sorted(missing)} are in PyTorch"


def apply(graph_values, node):
    """An operation in the graph."""
    inputs = [graph_values[i] for i in node.inputs]
    if node.operation in ("add", "sub", "mul"):
        a, b = inputs
        return {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b}[node.operation]()
    if node.operation in ("index_select", "gather", "scatter_add"):
        return getattr(tg, node.operation)(inputs[0], ids=inputs[1], **node.options)
    if node.operation == "concatenate":
        return tg.concatenate(inputs, **node.options)
    if node.operation == "batch_norm":
        inputs[2] = tg.square(inputs[2])
    if node.operation == "group_norm":
        return tg.group_norm(inputs[0], node.options["groups"], *inputs[1:], eps=node.options["eps"])
    if node.operation == "batch_norm_of_batch":
        return tg.batch_norm_of_batch(*inputs, **node.options)[0]
    return getattr(tg, node.operation)(*inputs, **node.options)


def evaluate(node, values):
    call = UNARY[node.operation]["call"] if node.operation in UNARY else ALL[node.operation]
    return call(*(values[i] for i in node.inputs), **node.options)


class Generator:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        host = self.rng.random() < 0.5
        size = int(self.rng.integers(1, 3)) if host else int(self.rng.integers(4, 41))
        self.recipe = Recipe(seed, "host" if host else "bow", size)
        self.values = []

    def add(self, node):
        self.recipe.nodes.append(node)
        self.values.append(leaf_tensor(node) if node.is_leaf else evaluate(node, self.values))
        return len(self.values) - 1

    def leaf(self, shape, low=-2.0, high=2.0, kind=None):
        array = self.rng.uniform(low, high, shape).astype(np.float32).astype(np.float64)
        drawn = str(self.rng.choice(["input", "parameter", "parameter", "constant"]))
        return self.add(Node(kind or drawn, array=array))

    def existing(self, fits):
        places = [
            i
            for i, v in enumerate(self.values)
            if self.recipe.nodes[i].matrix is None and v.is_floating_point() and fits(v)
        ]
        return int(self.rng.choice(places[-6:])) if places else None

    def some(self, fits=lambda v: True, shape=None):
        place = self.existing(fits) if self.rng.random() < 0.75 else None
        shapes = [(4, 6), (3, 4, 6), (5, 12), (6,), (8, 8)]
        if place is not None:
            return place
        return self.leaf(shapes[self.rng.integers(len(shapes))] if shape is None else shape)

    def run(self):
        while len([n for n in self.recipe.nodes if not n.is_leaf]) < 2 + self.recipe.seed // PARTS % 6:
            name = str(self.rng.choice(list(ALL)))
            before = len(self.values)
            place = self.try_operation(name)
            if place is None or not bool((self.values[place].isfinite() & (self.values[place].abs() < LARGEST)).all()):
                del self.recipe.nodes[before:], self.values[before:]
        operations = [i for i, n in enumerate(self.recipe.nodes) if not n.is_leaf]
        chosen = {operations[-1], int(self.rng.choice(operations)), self.some()}
        self.recipe.outputs = sorted(i for i in chosen if self.recipe.nodes[i].operation != "input")
        if self.depends_on_parameter(operations[-1]) and self.values[operations[-1]].is_floating_point() and self.rng.random() < 0.6:
            self.recipe.lesson = Lesson(
                operations[-1],
                str(self.rng.choice(["sgd", "adamw"])),
                int(self.rng.choice([1, 1, 2, 3])),
                float(self.rng.choice([0.5])) if self.rng.random() < 0.3 else None,
            )
        return self.recipe

    def depends_on_parameter(self, place):
        node = self.recipe.nodes[place]
        return node.operation in ("parameter", "sparse") or any(map(self.depends_on_parameter, node.inputs))

    def try_operation(self, name):
        rng = self.rng
        if name in UNARY:
            return self.add(Node(name, (self.leaf((4, 6), 0.4, 2.0) if name in POSITIVE else self.some(),)))
        if name in BINARY:
            a = self.some(lambda v: v.dim() > 0)
            shape = tuple(self.values[a].shape)
            reduced = tuple(1 if rng.random() < 0.5 else size for size in shape)
            like = [shape, shape, (shape[-1],), (), reduced][rng.integers(5)]
            b = self.some(lambda v: tuple(v.shape) == like, like)
            return self.add(Node(name, (a, b)))
        return getattr(self, f"try_{name}", self.try_shape)(name)

    def try_shape(self, name):
        rng = self.rng
        x = self.some(lambda v: v.dim() == 2, (4, 6)) if name == "transpose" else self.some(lambda v: v.dim() > 0)
        shape = tuple(self.values[x].shape)
        options = {}
        if name in ("sum", "mean", "amax", "amin"):
            dims = [int(d) for d in rng.permutation(len(shape))[: rng.integers(len(shape) + 1)]]
            options = {"dim": tuple(dims) or None, "keepdim": bool(rng.integers(2))}
        elif name in ("softmax", "log_softmax", "cumsum", "argmax"):
            options = {"dim": int(rng.integers(len(shape)))}
        elif name == "clip":
            options = {"low": -0.7, "high": 0.9}
        elif name == "pow":
            x, options = self.leaf((4, 6), 0.4, 2.0), {"exponent": float(rng.choice([3.0, -2.0, 1.5, 0.3]))}
        elif name == "expand":
            options = {"shape": [2, *shape] if len(shape) < 4 else list(shape)}
        elif name == "pad":
            options = {"dim": int(rng.integers(len(shape))), "before": 1, "after": int(rng.integers(3)), "value": 0.5}
        elif name == "reshape":
            rows = int(np.prod(shape[:-1]))
            options = {"shape": [rows, shape[-1]] if rng.random() < 0.5 else [rows * shape[-1]]}
        elif name == "slice":
            d = int(rng.integers(len(shape)))
            begin = int(rng.integers(shape[d]))
            options = {"dim": d, "begin": begin, "end": int(rng.integers(begin, shape[d])) + 1}
        elif name == "permute":
            options = {"dims": [int(i) for i in rng.permutation(len(shape))]}
        elif name == "permute_features":
            options = {"permutation": [int(i) for i in rng.permutation(shape[-1])]}
        elif name == "select_features":
            options = {"places": [int(i) for i in rng.integers(0, shape[-1], rng.integers(1, 9))]}
        elif name == "sum_neighbours":
            options = {"neighbours": int(rng.choice([d for d in range(1, shape[-1] + 1) if shape[-1] % d == 0]))}
        elif name == "cast":
            options = {"dtype": "f32"}
        return self.add(Node(name, (x,), options))

    def try_where(self, name):
        a = self.some(lambda v: v.dim() > 0)
        shape = tuple(self.values[a].shape)
        condition = self.leaf(shape, -2.0, 2.0, "input")
        chosen = self.add(Node("relu", (condition,)))
        return self.add(Node(name, (chosen, a, self.some(lambda v: tuple(v.shape) == shape, shape))))

    def try_index_select(self, name):
        x = self.some(lambda v: v.dim() > 0)
        shape = self.values[x].shape
        dim = int(self.rng.integers(len(shape)))
        size = shape[dim] if name == "scatter_add" else 5
        ids = self.add(Node("labels", array=self.rng.integers(0, shape[dim], size)))
        options = {"dim": dim, "size": int(shape[dim])} if name == "scatter_add" else {"dim": dim}
        return self.add(Node(name, (x, ids), options))

    try_scatter_add = try_index_select

    def try_scatter(self, name):
        x = self.some(lambda v: v.dim() > 0)
        shape = list(self.values[x].shape)
        rows, shape[0] = shape[0], 5
        ids = self.add(Node("labels", array=self.rng.integers(0, rows, 5)))
        return self.add(Node(name, (x, ids, self.some(lambda v: list(v.shape) == shape, shape))))

    def try_fmod(self, name):
        a, b = (self.leaf((4, 6), low, 2.0) for low in (-2.0, 0.4))
        return self.add(Node(name, (a, b)))

    try_remainder = try_floor_divide = try_fmod

    def try_gather(self, name):
        x = self.some(lambda v: v.dim() > 0)
        shape = list(self.values[x].shape)
        dim = int(self.rng.integers(len(shape)))
        count, shape[dim] = shape[dim], 3
        ids = self.add(Node("labels", array=self.rng.integers(0, count, shape)))
        return self.add(Node(name, (x, ids), {"dim": dim}))

    def try_rotary(self, name):
        x = self.some(lambda v: v.dim() > 1 and v.shape[-1] % 2 == 0, (4, 6))
        return self.add(Node(name, (x,), {"interleaved": bool(self.rng.integers(2))}))

    def try_rms_norm(self, name):
        x = self.some(lambda v: v.dim() > 0)
        features = tuple(self.values[x].shape[-1:])
        weights = [self.some(lambda v: tuple(v.shape) == features, features) for _ in range(self.rng.integers(2))]
        return self.add(Node(name, (x, *weights), {"eps": 0.1}))

    def try_concatenate(self, name):
        a = self.some(lambda v: v.dim() > 0)
        shape = tuple(self.values[a].shape)
        b = self.some(lambda v: tuple(v.shape) == shape, shape)
        return self.add(Node(name, (a, b), {"dim": int(self.rng.integers(len(shape)))}))

    def try_mean_squared_error(self, name):
        a = self.some(lambda v: v.dim() > 0)
        shape = tuple(self.values[a].shape)
        return self.add(Node(name, (a, self.some(lambda v: tuple(v.shape) == shape, shape))))

    def try_layer_norm(self, name):
        x = self.some(lambda v: v.dim() > 0)
        features = tuple(self.values[x].shape[-1:])
        weights = [self.some(lambda v: tuple(v.shape) == features, features) for _ in range(self.rng.integers(3))]
        return self.add(Node(name, (x, *weights), {"eps": 0.1}))

    def image(self, fits=lambda v: True):
        return self.some(lambda v: v.dim() in (3, 4) and fits(v), [(2, 4, 5, 6), (3, 8, 4)][self.rng.integers(2)])

    def try_max_pool(self, name):
        rng = self.rng
        x = self.image(lambda v: min(v.shape[1:-1]) > 2)
        sizes = [int(rng.integers(1, 4)) for _ in self.values[x].shape[1:-1]]
        options = {"window": sizes, "stride": int(rng.integers(1, 4)), "ceil": bool(rng.integers(2))}
        options["padding"] = [int(rng.integers(size // 2 + 1)) for size in sizes]
        if name == "max_pool":
            options["dilation"] = 2 if max(sizes) < 3 and min(self.values[x].shape[1:-1]) > 3 else 1
        else:
            options["counts_padding"] = bool(rng.integers(2))
        return self.add(Node(name, (x,), options))

    try_average_pool = try_max_pool

    def try_adaptive_max_pool(self, name):
        x = self.some(lambda v: v.dim() == 4, (2, 4, 5, 6))
        return self.add(Node(name, (x,), {"sizes": [int(size) for size in self.rng.integers(1, 6, 2)]}))

    try_adaptive_average_pool = try_adaptive_max_pool

    def try_interpolate(self, name):
        rng = self.rng
        mode = str(rng.choice(["nearest", "linear", "cubic"]))
        x = self.image(lambda v: mode != "cubic" or v.dim() == 4)
        if mode == "cubic" and self.values[x].dim() != 4:
            mode = "linear"
        options = {"sizes": [int(rng.integers(1, 9)) for _ in self.values[x].shape[1:-1]], "mode": mode}
        options["coordinates"] = "asymmetric" if mode == "nearest" else str(rng.choice(["half_pixel", "align_corners"]))
        return self.add(Node(name, (x,), options))

    def try_batch_norm(self, name):
        # PyTorch computes no statistics of a single value.
        x = self.some(lambda v: v.dim() > 1 and v.numel() > v.shape[-1], (4, 6))
        channels = tuple(self.values[x].shape[-1:])
        count = int(self.rng.integers(3)) + (2 if name == "batch_norm" else 0)
        others = [self.leaf(channels, 0.5, 2.0) for _ in range(count)]
        options = {"eps": 0.1}
        if name == "group_norm":
            options["groups"] = int(self.rng.choice([d for d in range(1, channels[0] + 1) if channels[0] % d == 0]))
        return self.add(Node(name, (x, *others), options))

    try_batch_norm_of_batch = try_batch_norm
    try_group_norm = try_batch_norm

    def try_embedding(self, name):
        w = self.some(lambda v: v.dim() == 2, (7, 5))
        rows = self.values[w].shape[0]
        shape = ((), (6,), (2, 3))[self.rng.integers(3)]
        ids = self.add(Node("labels", array=self.rng.integers(0, rows, shape)))
        padding = {"padding": int(self.rng.integers(rows))} if self.rng.random() < 0.3 else {}
        return self.add(Node(name, (ids, w), padding))

    def try_cross_entropy(self, name):
        x = self.some(lambda v: v.dim() == 2, (5, 12))
        rows, classes = self.values[x].shape
        labels = self.add(Node("labels", array=self.rng.integers(0, classes, rows)))
        options = {
            "smoothing": float(self.rng.choice([0.0, 0.2])),
            "ignored": int(self.rng.choice([1, -100])),
            "reduction": str(self.rng.choice(["mean", "sum", "none"])),
        }
        return self.add(Node(name, (x, labels), options))

    def try_linear(self, name):
        rng = self.rng
        x = self.some(lambda v: v.dim() > 0)
        k = int(self.values[x].shape[-1])
        if rng.random() < 0.3:
            w = self.sparse(int(rng.choice([4, 8, 12])), k)
        else:
            w = self.some(lambda v: v.dim() == 2 and v.shape[-1] == k, (int(rng.integers(1, 20)), k))
        bias = (self.leaf((self.values[w].shape[0],)),) if rng.random() < 0.4 else ()
        return self.add(Node(name, (x, w, *bias)))

    def window(self, dimensions, more):
        sizes = {"kernel": (1, 4), "stride": (1, 3), "padding": (0, 3), "dilation": (1, 3)}
        drawn = {name: [int(size) for size in self.rng.integers(*of, dimensions)] for name, of in sizes.items()}
        return {**drawn, **more}

    def try_convolution(self, name):
        rng = self.rng
        channels, outputs, dimensions = int(rng.choice([4, 6, 8])), int(rng.choice([4, 8])), int(rng.integers(1, 3))
        image = (2, *(int(size) for size in rng.integers(5, 8, dimensions)), channels)
        x = self.some(lambda v: v.dim() == dimensions + 2 and min(v.shape[1:-1]) > 4 and v.shape[-1] % 2 == 0, image)
        channels = int(self.values[x].shape[-1])
        groups = int(rng.choice([1, 1, 2, channels]))
        if groups == channels:
            outputs = channels * int(rng.integers(1, 3))
        options = self.window(dimensions, {"groups": groups})
        taps = int(np.prod(options["kernel"]))
        rows, cols = outputs, taps * channels
        if name == "transposed_convolution":
            options["output_padding"] = [0] * dimensions
            rows, cols = channels, taps * outputs
        if groups == 1 and rng.random() < 0.5:
            w = self.sparse(rows, cols)
        else:
            w = self.leaf((rows, cols // groups), -0.2, 0.2)
        bias = (self.leaf((outputs,)),) if rng.random() < 0.4 else ()
        return self.add(Node(name, (x, w, *bias), options))

    try_transposed_convolution = try_convolution

    def try_patches(self, name):
        dimensions = int(self.rng.integers(1, 3))
        x = self.leaf((2, *(int(size) for size in self.rng.integers(5, 8, dimensions)), 3), -0.5, 0.5)
        options = self.window(dimensions, {})
        if name == "patches":
            return self.add(Node(name, (x,), options))
        image = self.values[x]
        of = self.leaf(tuple(seen(image, **options).shape), -0.5, 0.5)
        return self.add(Node(name, (of,), {"sizes": list(image.shape[1:-1]), **options}))

    try_fold = try_patches

    def sparse(self, m, k):
        known = [i for i, n in enumerate(self.recipe.nodes) if n.matrix is not None and tuple(n.matrix.shape) == (m, k)]
        if known:
            return known[-1]
        block = 4 if m % 4 == 0 and k % 4 == 0 and self.rng.random() < 0.5 else 1
        matrix = tessera.generate(m, k, 0.4, block_size=block, seed=int(self.rng.integers(1000)))
        return self.add(Node("sparse", array=np.asarray(matrix.values, np.float64), matrix=matrix))

    def try_circulant(self, name):
        x = self.some(lambda v: v.dim() > 0)
        return self.add(Node(name, (x, self.leaf((self.values[x].shape[-1],), -0.5, 0.5))))

    def try_toeplitz(self, name):
        x = self.some(lambda v: v.dim() > 0)
        diagonals = int(self.values[x].shape[-1]) + int(self.rng.integers(8))
        return self.add(Node(name, (x, self.leaf((diagonals,), -0.5, 0.5))))

    def try_kronecker(self, name):
        x = self.some(lambda v: v.dim() > 0 and v.shape[-1] % 2 == 0, (4, 6))
        a, c = 2, int(self.values[x].shape[-1]) // 2
        b = int(self.rng.integers(1, 5))
        return self.add(Node(name, (x, self.leaf((a, 1, b * c), -0.5, 0.5)), {"factor": (a, b, c, 1)}))


def dense_of(matrix, values):
    """A sparse parameter's values as a matrix, with their gradient."""
    rows, cols = matrix.shape
    b = matrix.block_size
    crow_indices, col_indices = np.asarray(matrix.crow_indices).astype(int), np.asarray(matrix.col_indices).astype(int)
    block_row = np.repeat(np.arange(len(crow_indices) - 1), np.diff(crow_indices))
    r = (block_row[:, None, None] * b + np.arange(b)[None, :, None]).repeat(b, 2).reshape(-1)
    c = (col_indices[:, None, None] * b + np.arange(b)[None, None, :]).repeat(b, 1).reshape(-1)
    places = torch.from_numpy(r), torch.from_numpy(c)
    return torch.zeros(rows, cols, dtype=torch.float64).index_put(places, values.reshape(-1))


def leaf_tensor(node, array=None):
    values = torch.as_tensor(node.array if array is None else array)
    return dense_of(node.matrix, values) if node.matrix is not None else values


def disturbed(node, by, rng):
    if by == 0 or node.operation == "labels":
        return node.array
    return node.array * (1 + by * rng.uniform(-1, 1, node.array.shape))


class InTorch:
    """The recipe in float64, with slightly disturbed contents."""

    def __init__(self, recipe, by=0.0, seed=0):
        rng = np.random.default_rng(seed)
        self.recipe = recipe
        self.leaves = {i: torch.tensor(disturbed(n, by, rng)) for i, n in enumerate(recipe.nodes) if n.is_leaf}
        for i, n in enumerate(recipe.nodes):
            if n.operation in ("parameter", "sparse"):
                self.leaves[i].requires_grad_()

    def values(self, part=0):
        values = []
        for i, node in enumerate(self.recipe.nodes):
            if node.is_leaf:
                values.append(leaf_tensor(node, of_part(node, self.leaves[i], part)))
            else:
                values.append(evaluate(node, values))
        return values

    def parameters(self):
        return {f"v{i}": p for i, p in self.leaves.items() if p.requires_grad}

    def run(self, steps):
        """Outputs, losses, and parameters at the end."""
        found = {}
        lesson = self.recipe.lesson
        if lesson is None:
            values = self.values()
            return {f"y{i}": values[i].detach().numpy() for i in self.recipe.outputs}
        parameters = list(self.parameters().values())
        optimizer = (
            torch.optim.SGD(parameters, 0.1, momentum=0.9)
            if lesson.optimizer == "sgd"
            else torch.optim.AdamW(parameters, 0.1, eps=1e-2, weight_decay=0.01)
        )
        for step in range(steps):
            optimizer.zero_grad()
            total = 0.0
            for part in range(lesson.micro_batches):
                loss = self.values(part)[lesson.loss].square().mean()
                (loss / lesson.micro_batches).backward()
                total += float(loss.detach()) / lesson.micro_batches
            trained = [p for p in parameters if p.grad is not None]
            if lesson.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(trained, lesson.clip_norm)
            optimizer.step()
            found[f"loss {step}"] = np.asarray(total)
        return found | {name: p.detach().numpy() for name, p in self.parameters().items()}


def of_part(node, array, part):
    """An input's rows in a micro-batch: its own rows, reversed or negated in further parts."""
    if part == 0 or node.operation not in ("input", "labels") or array.dim() == 0:
        return array
    return array.flip(0) if part == 1 else -array if node.operation == "input" else array


def stacked(node, parts):
    """An input's array for all micro-batches."""
    dtype = np.uint32 if node.operation == "labels" else np.float32
    each = [np.asarray(of_part(node, torch.as_tensor(node.array), part), dtype) for part in range(parts)]
    if parts == 1:
        return each[0]
    return np.concatenate(each) if node.array.ndim else np.stack(each)


def in_tessera(recipe, steps):
    graph = tg.Graph()
    values, given = [], {}
    for i, node in enumerate(recipe.nodes):
        name = f"v{i}"
        if node.operation == "sparse":
            values.append(graph.sparse_parameter(name, node.matrix))
        elif node.operation == "parameter":
            scalar = node.array.ndim == 0
            values.append(graph.parameter(name, () if scalar else None, float(node.array) if scalar else node.array))
        elif node.operation == "constant":
            values.append(graph.constant(node.array))
        elif node.is_leaf:
            values.append(graph.input(name, node.array.shape, "u32" if node.operation == "labels" else "f32"))
            given[name] = node
        else:
            values.append(apply(values, node))
    size = {"threads" if recipe.machine == "host" else "tiles": recipe.size}
    machine = tessera.Machine(recipe.machine, **size)
    lesson = recipe.lesson
    if lesson is None:
        for i in recipe.outputs:
            graph.output(f"y{i}", values[i])
        session = graph.session(machine)
        results = session.run(**{name: stacked(n, 1) for name, n in given.items()})
        return results if isinstance(results, dict) else {f"y{recipe.outputs[0]}": np.asarray(results)}
    loss = tg.mean(tg.square(values[lesson.loss]))
    options = {"momentum": 0.9} if lesson.optimizer == "sgd" else {"eps": 1e-2, "weight_decay": 0.01}
    step = graph.training_step(
        loss, lesson.optimizer, lr=0.1, micro_batches=lesson.micro_batches, clip_norm=lesson.clip_norm, **options
    )
    session = step.session(machine)
    used = {}
    for value in step.inputs:  # an unused input has no micro-batches
        if value.name in given:
            node = given[value.name]
            parts = int(np.prod(step.native.bound_shape(value.id))) // node.array.size
            used[value.name] = stacked(node, parts)
    found = {f"loss {i}": np.asarray(session.run(**used)) for i in range(steps)}
    for name, array in session.parameters().items():
        found[name] = np.asarray(array).reshape(recipe.nodes[int(name[1:])].array.shape)
    return found


STEPS = 3


def difference(recipe, disturbances=3):
    """What differs, if anything does; None: it is refused, or float64 has no numbers of moderate size."""
    try:
        exact = InTorch(recipe).run(STEPS)
    except RuntimeError as error:
        if "does not require grad" in str(error):
            return None
        raise
    if not all(np.isfinite(v).all() and np.abs(v).max(initial=0) < 1e4 for v in exact.values()):
        return None
    allowed = {name: np.zeros_like(v) for name, v in exact.items()}
    for i in range(disturbances):
        for name, v in InTorch(recipe, 16 * EPSILON, 1 + i).run(STEPS).items():
            allowed[name] = np.maximum(allowed[name], np.abs(v - exact[name]))
    try:
        found = in_tessera(recipe, STEPS)
    except ValueError as error:
        return None if "depends on no parameter" in str(error) else f"refused: {error}"
    scale = max(1.0, *(float(np.abs(v).max(initial=0)) for v in exact.values()))
    for name, v in exact.items():
        bound = 4 * allowed[name] + 64 * EPSILON * scale
        wrong = ~(np.abs(found[name] - v) <= bound) & (bound < 0.1 * scale)
        if wrong.any():
            return f"{name} is {np.asarray(found[name])[wrong][:3]} instead of {v[wrong][:3]}"
    return ""


def without(recipe, removed):
    def moved(i):
        return i - (i > removed)

    nodes = [replace(n, inputs=tuple(map(moved, n.inputs))) for i, n in enumerate(recipe.nodes) if i != removed]
    lesson = recipe.lesson and replace(recipe.lesson, loss=moved(recipe.lesson.loss))
    return replace(recipe, nodes=nodes, outputs=[moved(i) for i in recipe.outputs], lesson=lesson)


def smaller(recipe):
    if recipe.lesson:
        yield replace(recipe, lesson=None)
        yield replace(recipe, lesson=replace(recipe.lesson, micro_batches=1, clip_norm=None))
    for i in recipe.outputs:
        if len(recipe.outputs) > 1:
            yield replace(recipe, outputs=[o for o in recipe.outputs if o != i])
    values = InTorch(recipe).values()
    used = {i for n in recipe.nodes for i in n.inputs} | set(recipe.outputs)
    used |= {recipe.lesson.loss} if recipe.lesson else set()
    for i in reversed(range(len(recipe.nodes))):
        if i not in used:
            yield without(recipe, i)
        elif not recipe.nodes[i].is_leaf:
            leaf = Node("input", array=values[i].detach().numpy().astype(np.float32).astype(np.float64))
            yield replace(recipe, nodes=[*recipe.nodes[:i], leaf, *recipe.nodes[i + 1 :]])


def shrunk(recipe):
    for candidate in smaller(recipe):
        if candidate != recipe and difference(candidate, 20):
            return shrunk(candidate)
    return recipe


def code_of(recipe):
    lines = ["g = tg.Graph()"]
    for i, n in enumerate(recipe.nodes):
        names = ", ".join([*(f"v{j}" for j in n.inputs), *(f"{k}={v!r}" for k, v in n.options.items())])
        if n.matrix is not None:
            b = n.matrix.block_size
            lines.append(f'v{i} = g.sparse_parameter("v{i}", tessera.generate(*{n.matrix.shape}, 0.4, block_size={b}))')
        elif n.is_leaf:
            lines.append(f'v{i} = g.{n.operation}("v{i}", {n.array.shape})')
        else:
            lines.append(f"v{i} = tg.{n.operation}({names})")
    lines += [f'g.output("y{i}", v{i})' for i in recipe.outputs]
    return "\n".join([*lines, f"{recipe.lesson} on {recipe.machine} of {recipe.size}, seed {recipe.seed}"])


@pytest.mark.parametrize("part", range(PARTS))
def test_random_graphs_agree_with_float64(part):
    compared = 0
    for i in range(COUNT):
        recipe = Generator(i * PARTS + part).run()
        what = difference(recipe)
        compared += what == ""
        if what and difference(recipe, 40):
            small = shrunk(recipe)
            pytest.fail(f"{what}\nmade smaller: {difference(small, 20)}\n{code_of(small)}")
    assert compared > 0.7 * COUNT - 4  # of a few, several may be refused
