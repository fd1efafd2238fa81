"""Weights of compiled modules that change between calls, in all ways that PyTorch has."""

import gc
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
from compiled_models import SIZE, Function, as_bsr, as_csr, expect_like, network, pruned, with_mask  # noqa: E402
from tessera import nn as tnn  # noqa: E402
from tessera.graph import UnsupportedModuleError  # noqa: E402
from tessera.graph._kernels import matrix_of, parameter_of_matrix  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

def test_weights_that_change_are_read_again():
    model, x = network(), torch.randn(16, SIZE)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    session = compiled.first
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = model[0].weight.detach() != 0
    model(x).square().sum().backward()
    model[0].weight.grad.mul_(kept)
    optimizer.step()
    expect_like(model, compiled, x)
    assert compiled.first is session  # the zeros are where they were
    model.load_state_dict({**model.state_dict(), "0.weight": pruned(torch.randn(SIZE, SIZE), 4)})
    expect_like(model, compiled, x)
    assert compiled.report.layers[0].block_size == 4
    with torch.no_grad():
        model[0].weight.normal_()
    expect_like(model, compiled, x)
    assert not compiled.report.layers[0].is_sparse


@pytest.mark.parametrize(
    "function",
    [
        lambda w, x: x @ w.t() + x @ (2 * w).t(),
        lambda w, x: x @ w.t() / w.norm(),
        lambda w, x: x @ (w / w.reshape(-1).norm()).t() + (x @ w.reshape(16, 4)[:8]).sum(),
        lambda w, x: x * (1 + w) + w,
        lambda w, x: x @ w + x @ w.t(),
        lambda w, x: x @ w,
        lambda w, x: (x @ w) * 0.5,
        lambda w, x: (x @ w[:4].t()) * 0.5 + x @ w[4:].t(),
    ],
)
def test_all_that_depends_on_a_weight_follows_it(function):
    model, x = Function(function, 8, 8).eval(), torch.randn(8, 8)
    compiled = tessera.compile(model, x)
    with torch.no_grad():
        model.w.mul_(3)
    expect_like(model, compiled, x)


@pytest.mark.parametrize("product", [lambda w: w @ w.t(), lambda w: w.t() @ w, lambda w: torch.mm(w.t(), w.t())])
def test_weights_are_factors_of_one_another(product):
    torch.manual_seed(0)
    model = Function(lambda w, x: F.linear(x, w) @ w + product(w).sum(), SIZE, SIZE).eval()
    model.w.data = pruned(model.w.data, 1, 0.05)
    x = torch.randn(64, SIZE)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    with torch.no_grad():
        model.w.mul_(-0.5)
    expect_like(model, compiled, x)


def test_what_depends_on_parts_of_a_weight_follows_it():
    torch.manual_seed(0)
    model, x = Function(lambda w, x: x @ w[2].t() + w[0] @ w[1], 3, 8, 8).eval(), torch.randn(8, 8)
    compiled = tessera.compile(model, x)
    with torch.no_grad():
        model.w.mul_(3)
    expect_like(model, compiled, x)


def new_parameter(model):
    model[0].weight = torch.nn.Parameter(torch.randn(SIZE, SIZE))


def new_part(model):
    model[0] = torch.nn.Linear(SIZE, SIZE)


def new_values(model):
    state = {name: each.clone() * 2 for name, each in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def new_memory(model):
    model[0].weight.data = model[0].weight.data * 2


def new_mask(model):
    prune.l1_unstructured(model[0], "weight", 0.5)


def appended(model):
    model.append(torch.nn.Tanh())


def silent(model):
    model[0].weight.data.mul_(2)


def by_numpy(model):
    model[2].bias.detach().numpy()[...] = 3


def fewer(model):
    del model[-1]


CHANGES = [new_parameter, new_part, new_values, new_memory, new_mask, appended, fewer, silent, by_numpy]


@pytest.mark.pairs(2)
@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_replaced_is_seen(change, reads, monkeypatch):
    assert tessera._tessera.reads_tensor_states()
    monkeypatch.setattr(tessera._tessera, "reads_tensor_states", lambda: reads)
    model, x = network(), torch.randn(16, SIZE)
    compiled = tessera.compile(model, x)
    change(model)
    expect_like(model, compiled, x)


@pytest.mark.parametrize("reads", [True, False])
def test_memory_that_is_written_is_seen(reads, monkeypatch):
    monkeypatch.setattr(tessera._tessera, "reads_tensor_states", lambda: reads)
    model = Function(lambda w, x: x @ w[:64].t() + x @ w[64:].t(), 128, 96).eval()
    with torch.no_grad():
        model.w.mul_(torch.rand(128, 96) < 0.02)  # so that most words are zeros
    x = torch.randn(8, 96)
    compiled = tessera.compile(model, x)
    for write in (lambda w: w.mul_(-2), lambda w: w.add_(1), lambda w: w.numpy().fill(3), lambda w: w.normal_()):
        write(model.w.data)
        expect_like(model, compiled, x)
    model.w.data[5, 7] = 4
    compiled.refresh()
    expect_like(model, compiled, x)


def write_one(model):
    """Write an element that is not zero, where no word is sampled, in a way that PyTorch does not see."""
    row = model[0].weight.data[50]
    row[row.nonzero()[0]] += 3


#: Calls in which all contents of network() have their turn: 262 blocks, two in each call.
CALLS = 131


@pytest.mark.parametrize("reads", [True, False])
def test_any_write_is_seen_after_some_calls(reads, monkeypatch):
    monkeypatch.setattr(tessera._tessera, "reads_tensor_states", lambda: reads)
    model, x = network(), torch.randn(2, SIZE)
    compiled = tessera.compile(model, x)
    for _ in range(2):  # from any turn on
        write_one(model)
        for _ in range(CALLS):
            compiled(x)
        expect_like(model, compiled, x)


def test_any_write_is_seen_at_once_if_all_contents_are_compared():
    model, x = network(), torch.randn(2, SIZE)
    compiled = tessera.compile(model, x, check="all")
    session = compiled.first
    write_one(model)
    expect_like(model, compiled, x)
    assert compiled.first is session  # the zeros are where they were
    with pytest.raises(ValueError, match=r"unknown check 'none' \(choose from some, all\)"):
        tessera.compile(model, x, check="none")


def another_weight(model, compiled, path):
    with torch.no_grad():
        model[2].weight.mul_(2)


def another_size(model, compiled, path):
    compiled(torch.randn(3, SIZE))


def file(model, compiled, path):
    compiled.save(path)
    expect_like(model, tessera.load(path), torch.randn(2, SIZE))


@pytest.mark.parametrize("event", [another_weight, another_size, file])
def test_writes_are_not_taken_for_what_was(event, tmp_path):
    model, x = network(), torch.randn(2, SIZE)
    compiled = tessera.compile(model, x, dynamic_shapes={"input": {0: "n"}})
    compiled(x)
    write_one(model)
    event(model, compiled, tmp_path / "m.safetensors")
    expect_like(model, compiled, x)


def test_contents_are_compared_word_by_word():
    memory = np.zeros(4096 * 3 + 5, np.uint8)
    contents = tessera._tessera.Contents([(0, 0), (memory.ctypes.data, memory.size), (memory.ctypes.data, 3)])
    assert all(contents.look_unchanged() for _ in range(5))
    for place in (4096 * 2 + 17, memory.size - 1):
        memory[place] = 128
        assert not contents.are_unchanged() and contents.changed([0, 1, 2]) == [False, True, False]
        assert not all(contents.next_are_unchanged() for _ in range(3))
        memory[place] = 0
        assert contents.are_unchanged() and all(contents.next_are_unchanged() for _ in range(3))
    memory[[15, 47]] = 128  # the highest bits of two words
    assert contents.changed([1]) == [True]


@pytest.mark.parametrize("reads", [True, False])
def test_a_factor_of_the_only_weight_is_seen(reads, monkeypatch):
    monkeypatch.setattr(tessera._tessera, "reads_tensor_states", lambda: reads)
    model, x = Function(lambda w, x: x @ w.t(), 128, 96).eval(), torch.ones(1, 96)
    with torch.no_grad():
        model.w.zero_()[51, 20] = 0.1
    compiled = tessera.compile(model, x)
    model.w.data.mul_(2)
    expect_like(model, compiled, x)


@pytest.mark.parametrize("hide", [with_mask, as_csr, as_bsr, "sparse layer", "columns"])
def test_weights_in_all_forms_are_followed(hide, tmp_path):
    model, x = network(), torch.randn(16, SIZE)
    if hide == "sparse layer":
        model[0] = tnn.SparseLinear.from_dense(model[0], density=None, block_size=1)
    elif hide == "columns":
        model[0].weight = torch.nn.Parameter(torch.randn(SIZE, SIZE).t())
    else:
        hide(model[0])
    compiled = tessera.compile(model, x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    compiled.save(tmp_path / "m.safetensors")
    for _ in range(2):
        expect_like(model, compiled, x)
    expect_like(model, tessera.load(tmp_path / "m.safetensors"), x)


def test_weights_live_no_longer_than_what_was_compiled():
    model, x = network(), torch.randn(16, SIZE)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    weight = weakref.ref(model[0].weight)
    del model, compiled
    gc.collect()
    assert weight() is None


def test_buffers_that_change_are_read_again():
    class Shifted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("shift", torch.ones(4))

        def forward(self, x):
            return x + self.shift

    model, x = Shifted().eval(), torch.randn(2, 4)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    model.shift.mul_(3)
    expect_like(model, compiled, x)



@pytest.mark.parametrize("is_input", [False, True])
def test_buffers_and_inputs_that_a_call_changes_are_refused(is_input):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            return (x if is_input else self.total).add_(x.sum(0)) + 1

    changed = "x" if is_input else "total"
    with pytest.raises(UnsupportedModuleError, match=f"it changes '{changed}', which a compiled module does not"):
        tessera.compile(Counting().eval(), torch.randn(2, 4))


# Settings, which are not tensors.


SETTINGS = {
    "eps": lambda m: setattr(m[1], "eps", 2.0),
    "slope": lambda m: setattr(m[2], "negative_slope", 0.9),
    "by what was none": lambda m: setattr(m[3], "most", 0.25),
    "tuple": lambda m: setattr(m[3], "dims", (0,)),
    "hook": lambda m: m[0].register_forward_hook(lambda module, inputs, y: 2 * y),
    "hook before": lambda m: m[0].register_forward_pre_hook(lambda module, inputs: (3 * inputs[0],)),
    "forward": lambda m: setattr(m[1], "forward", lambda x: 2 * x),
}


class Summed(torch.nn.Module):
    """Computes with its settings, and counts its calls in two ways."""

    def __init__(self):
        super().__init__()
        self.most, self.dims, self.calls, self.others = None, (1,), 0, 0

    def forward(self, x):
        self.calls += 1
        self.count()
        y = x.sum(self.dims, keepdim=True)
        return y if self.most is None else y.clamp(max=self.most)

    def count(self):
        self.others = self.others + 1


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_that_change_are_seen(setting):
    torch.manual_seed(0)
    parts = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.LeakyReLU(0.1), Summed()
    model, x = torch.nn.Sequential(*parts).eval(), torch.randn(4, 8)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    hook = SETTINGS[setting](model)
    expect_like(model, compiled, x)
    if hook is not None:
        hook.remove()
        expect_like(model, compiled, x)


def test_hooks_that_were_prepended_are_no_change():
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8)).eval(), torch.randn(4, 8)
    model[0].register_forward_hook(lambda module, inputs, y: y + 1)
    model[0].register_forward_hook(lambda module, inputs, y: 2 * y, prepend=True)
    compiled = tessera.compile(model, x)
    session = compiled.first
    expect_like(model, compiled, x)
    assert compiled.first is session


def test_what_calls_assign_is_no_setting():
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), Summed()).eval(), torch.randn(4, 8)
    compiled = tessera.compile(model, x)
    session = compiled.first
    expect_like(model, compiled, x)
    model.train()
    compiled(x)
    assert compiled.first is session and model[1].calls > 0


def count_in_hook(module, inputs, y):
    module.calls += 1


HOOKS = {
    "seen": count_in_hook,
    "not seen": lambda module, inputs, y: setattr(module, "calls", module.calls + 1),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_what_hooks_assign_is_no_setting(hook):
    """Each check of padding runs the module, which is then compiled again if its settings have changed."""
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8)).eval(), torch.randn(4, 8)
    model[0].calls = 0
    model[0].register_forward_hook(HOOKS[hook])
    compiled = tessera.compile(model, x, dynamic_shapes={"input": {0: "n"}}, buckets={"n": [2, 4]})
    session = compiled.first
    expect_like(model, compiled, x)
    assert compiled.first is session or hook == "not seen"
    expect_like(model, compiled, x[:3])


@pytest.mark.parametrize("check", ["some", "all"])
def test_many_settings_are_seen_after_some_calls(check):
    model, x = torch.nn.Sequential(*(torch.nn.LeakyReLU(0.99) for _ in range(60))).eval(), torch.randn(4, 8)
    compiled = tessera.compile(model, x, check=check)
    for is_hook in (False, True):
        if is_hook:
            model[30].register_forward_hook(lambda module, inputs, y: -y)
        else:
            model[-1].negative_slope = 0.1
        for _ in range(32 if check == "some" else 0):
            compiled(x)
        expect_like(model, compiled, x)


# New memory, which may have the old address.


def small(width=64):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(32, width), torch.nn.Tanh(), torch.nn.Linear(width, width)).eval()


def assign(model, *factors):
    for factor in factors:
        for parameter in model.parameters():
            parameter.data = parameter.data * factor


def assign_each(model, *factors):
    for parameter in model.parameters():
        for factor in factors:
            parameter.data = parameter.data * factor


def mask_and_scale(model):
    weight = model[0].weight
    weight.data = weight.data * (torch.rand_like(weight) > 0.5)
    weight.data = weight.data * 2


def round_to_half(model):
    model.half().float()


def round_twice(model):
    model.bfloat16().float().half().float()


def from_arrays(model):
    for _ in range(2):
        model[0].weight.data = torch.from_numpy(model[0].weight.detach().numpy() * 2)


def other_order(model):
    model[2].weight.data = model[2].weight.data.t()


REASSIGNED = [
    *(lambda model, n=n: assign(model, *range(2, 2 + n)) for n in (1, 2, 3)),
    *(lambda model, n=n: assign_each(model, *range(2, 2 + n)) for n in (2, 3)),
    *(mask_and_scale, round_to_half, round_twice, from_arrays, other_order),
]


@pytest.mark.parametrize(
    ("width", "reads"),
    [(64, False), (1024, True), *(pytest.param(*each, marks=pytest.mark.full) for each in ((64, True), (1024, False)))],
)
def test_memory_that_is_used_again_is_seen(width, reads, monkeypatch):
    monkeypatch.setattr(tessera._tessera, "reads_tensor_states", lambda: reads)
    model, x = small(width), torch.randn(4, 32)
    compiled = tessera.compile(model, x)
    for change in REASSIGNED * 2:
        for state, value in small(width).state_dict().items():
            model.state_dict()[state].copy_(value)
        expect_like(model, compiled, x)
        change(model)
        expect_like(model, compiled, x)


LAYOUTS = {
    "csr": torch.Tensor.to_sparse_csr,
    "csc": torch.Tensor.to_sparse_csc,
    "bsr": lambda each: each.to_sparse_bsr(4),
    "coo": torch.Tensor.to_sparse,
}


def scaled(weight, to):
    with torch.no_grad():
        weight.mul_(3)


def assigned(weight, to):
    for factor in (2, 3):
        weight.data = to(weight.detach().to_dense() * factor)


def moved(weight, to):
    for _ in range(2):
        weight.data = to(weight.detach().to_dense().roll(4, 1))


def written(weight, to):
    values = weight.detach()._values() if weight.layout is torch.sparse_coo else weight.detach().values()
    values.mul_(2)


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("change", [scaled, assigned, moved, written])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sparse_tensors_that_change_are_seen(layout, change):
    to, x = LAYOUTS[layout], torch.randn(4, 64)
    model = Function(lambda w, x: torch.nn.functional.linear(x, w), 1).eval()
    model.w = torch.nn.Parameter(to(pruned(torch.randn(64, 64), 4)), requires_grad=False)
    compiled = tessera.compile(model, x)

    def expect_right():
        wanted = x @ model.w.detach().to_dense().t()
        for _ in range(2):
            torch.testing.assert_close(compiled(x), wanted, rtol=1e-4, atol=1e-4)

    for _ in range(3):
        expect_right()
        change(model.w, to)
    expect_right()


# Tensors that are not parameters.


class Plain(torch.nn.Module):
    """Tensors in attributes, lists, tuples and dicts, of the module and of a part; some are not used."""

    def __init__(self, part=None):
        super().__init__()
        self.own = torch.randn(4)
        self.several = [torch.randn(4), torch.randn(4)]
        self.pair = (torch.randn(4), 3)
        self.named = {"a": {"b": torch.randn(4)}}
        self.unregistered = [torch.nn.Parameter(torch.randn(4))]
        self.unused, self.part = None, part

    def forward(self, x):
        y = x * self.own + sum(self.several) * self.pair[0] + self.named["a"]["b"] - self.unregistered[0]
        y = y if self.part is None else self.part(y)
        self.unused = None if torch.compiler.is_compiling() else y
        return y


PLAIN_CHANGES = {
    "attribute": lambda m: setattr(m, "own", m.own * 2),
    "attribute in place": lambda m: m.own.mul_(2),
    "element": lambda m: m.several.__setitem__(1, m.several[1] * 2),
    "more": lambda m: m.several.append(torch.ones(4)),
    "list": lambda m: setattr(m, "several", [torch.ones(4), torch.ones(4)]),
    "tuple": lambda m: setattr(m, "pair", (m.pair[0] * 2, 3)),
    "dict": lambda m: m.named["a"].update(b=m.own * 3),
    "unregistered": lambda m: m.unregistered[0].data.mul_(1) is m.unregistered[0].detach().add_(1),
    "again": lambda m: [setattr(m, "own", m.own * 2) for _ in range(3)],
}


@pytest.mark.pairs(2)
@pytest.mark.parametrize("of_part", [False, True])
@pytest.mark.parametrize("change", PLAIN_CHANGES)
def test_plain_tensors_that_are_replaced_are_seen(change, of_part):
    torch.manual_seed(2)
    model, x = Plain(Plain()).eval(), torch.randn(2, 4)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    session = compiled.first
    expect_like(model, compiled, x)
    assert compiled.first is session  # tensors on which no result depends may change
    PLAIN_CHANGES[change](model.part if of_part else model)
    expect_like(model, compiled, x)


class Unregistered(torch.nn.Module):
    """A layer whose weight is not a parameter."""

    def __init__(self, kind, weight, product=lambda w, x: F.linear(x, w)):
        super().__init__()
        self.product, self.is_listed = product, kind == "list"
        if kind == "buffer":
            self.register_buffer("w", weight)
        else:
            self.w = [weight] if self.is_listed else weight

    def forward(self, x):
        return self.product(self.w[0] if self.is_listed else self.w, x)


@pytest.mark.parametrize("kind", ["buffer", "attribute", "list"])
def test_weights_may_be_no_parameters(kind, tmp_path):
    torch.manual_seed(0)
    weight, x = pruned(torch.randn(SIZE, SIZE), 1), torch.randn(64, SIZE)
    model = Unregistered(kind, weight).eval()
    compiled = tessera.compile(model, x, dynamic_shapes={"x": {0: "rows"}})
    for change in (lambda: None, lambda: weight.mul_(2), lambda: weight[0].fill_(1)):
        change()
        expect_like(model, compiled, x)
        expect_like(model, compiled, x[:7])
        (layer,) = compiled.report.layers
        assert layer.is_sparse
    compiled.save(tmp_path / "m.safetensors")
    expect_like(model, tessera.load(tmp_path / "m.safetensors"), x)
    weight[:, 0] = torch.nan
    assert compiled(x).isnan().all() and not compiled.report.layers


@pytest.mark.parametrize("layout", ["csr", "coo"])
@pytest.mark.parametrize(
    "product",
    [
        lambda w, x: torch.sparse.mm(w, x.t()).t(),
        lambda w, x: torch.sparse.addmm(torch.ones(SIZE, len(x)), w, x.t(), beta=3, alpha=0.5).t(),
    ],
)
def test_sparse_buffers_are_weights(product, layout):
    torch.manual_seed(0)
    weight, x = pruned(torch.randn(SIZE, SIZE), 1), torch.randn(64, SIZE)
    model = Unregistered("buffer", LAYOUTS[layout](weight), product).eval()
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    (layer,) = compiled.report.layers
    assert layer.is_sparse and model.w.layout is not torch.strided
    model.w = LAYOUTS[layout](weight.roll(1, 0))
    expect_like(model, compiled, x)


def test_results_of_another_type_are_refused():
    model, ids = torch.nn.Embedding(8, 4).eval(), torch.arange(3)
    compiled = tessera.compile(model, ids)
    model.half()
    with pytest.raises(ValueError, match="values of float16 instead of float32: compile it again"):
        compiled(ids)
    model.float()
    expect_like(model, compiled, ids)


def test_rows_that_are_weights_of_their_own_are_followed():
    def forward(w, x):
        return x @ w[:128].t(), torch.nn.functional.linear(x, w[128:]), w.unflatten(0, (2, 128))[0].sum(0)

    for function in (forward, lambda w, x: forward(w, x)[:2], lambda w, x: (x @ w[:SIZE // 2].t(),)):
        model, x = Function(function, 256, SIZE).eval(), torch.randn(16, SIZE)
        compiled = tessera.compile(model, x)
        for _ in range(2):
            expect_like(model, compiled, x)
            with torch.no_grad():
                model.w.mul_(2)
            expect_like(model, compiled, x)
            model.w.data = pruned(model.w.data, 4, 0.5)
        expect_like(model, compiled, x)


@pytest.mark.parametrize("outputs", [8, 12])  # 12: the matrices of both have the same sizes
def test_convolutions_may_share_their_weight_with_transposed_ones(outputs):
    def there_and_back(w, x):
        y = torch.nn.functional.conv2d(x, w, stride=2).relu()
        return torch.nn.functional.conv_transpose2d(y, w, stride=2)

    model, x = Function(there_and_back, outputs, 3, 2, 2).eval(), torch.randn(2, 3, 8, 6)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    with torch.no_grad():
        model.w.mul_(0.5)
    expect_like(model, compiled, x)


def test_convolutions_in_other_groups_may_share_their_weight():
    def twice(w, x):
        return torch.nn.functional.conv2d(x, w, groups=2) + torch.nn.functional.conv2d(x[:, :SIZE], w)

    model, x = Function(twice, SIZE, SIZE, 1, 1).eval(), torch.randn(1, 2 * SIZE, 6, 5)
    with torch.no_grad():
        model.w.copy_(pruned(model.w.flatten(1), 1).reshape(model.w.shape))
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    assert [each.reason for each in compiled.report.layers] == ["convolutions in different orders"]
    with torch.no_grad():
        model.w.mul_(0.5)
    expect_like(model, compiled, x)


@pytest.mark.pairs(2)
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("block_size", [1, 16])
@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize("kind", [torch.nn.Conv2d, torch.nn.ConvTranspose2d])
def test_convolutions_in_groups_may_be_sparse(kind, kernel, block_size, measure, tmp_path):
    torch.manual_seed(0)
    model = kind(SIZE, SIZE, kernel, padding=kernel // 2, groups=4).eval()
    x = torch.randn(2, SIZE, 12, 12)
    with torch.no_grad():
        matrix = pruned(matrix_of(model.weight), block_size)
        model.weight.copy_(parameter_of_matrix(model, "weight", matrix))
    compiled = tessera.compile(model, x, measure=measure)
    expect_like(model, compiled, x)
    (layer,) = compiled.report.layers
    assert (layer.name, layer.shape, layer.rows) == ("weight", (SIZE, SIZE // 4 * kernel**2), 288)
    assert layer.dense_seconds > 0 and layer.sparse_seconds > 0
    if measure:
        return  # the computer decides which of them is faster
    assert layer.is_sparse and layer.density < 0.5 and (layer.block_size > 1) == (block_size > 1)
    compiled.save(tmp_path / "m.safetensors")
    expect_like(model, tessera.load(tmp_path / "m.safetensors"), x)
    with torch.no_grad():
        model.weight.mul_(-2)
    expect_like(model, compiled, x)
    assert compiled.report.layers[0].is_sparse
    with torch.no_grad():
        model.weight.normal_()
    expect_like(model, compiled, x)
    assert [each.reason for each in compiled.report.layers] == ["no zeros"]


@pytest.mark.parametrize("outputs", [8, 16])
def test_transposed_convolutions_by_channel_stay_dense(outputs):
    model = torch.nn.ConvTranspose2d(8, outputs, 2, groups=8).eval()
    with torch.no_grad():
        model.weight[:4] = 0
    compiled = tessera.compile(model, x := torch.randn(1, 8, 4, 4))
    expect_like(model, compiled, x)
    (layer,) = compiled.report.layers
    assert (layer.reason, layer.density) == ("depthwise convolution", 0.5)


def test_transposed_convolutions_may_be_sparse():
    torch.manual_seed(0)
    model = torch.nn.ConvTranspose2d(SIZE, SIZE, 2, stride=2, output_padding=1).eval()
    with torch.no_grad():
        model.weight.copy_(parameter_of_matrix(model, "weight", pruned(matrix_of(model.weight), 16)))
    compiled = tessera.compile(model, x := torch.randn(2, SIZE, 12, 12))
    expect_like(model, compiled, x)
    (layer,) = compiled.report.layers
    assert layer.is_sparse and layer.shape == (SIZE, 4 * SIZE)


def test_sizes_may_have_a_weight_in_other_forms():
    class Either(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(8, 8))

        def forward(self, x):
            first = x @ self.weight.t() if len(x) != 3 else x @ self.weight
            return first if len(x) < 4 else torch.nn.functional.linear(x, self.weight[:4])

    model = Either().eval()
    compiled = tessera.compile(model, torch.rand(2, 8), dynamic_shapes={"x": {0: "n"}})
    for factor in (2, 3):
        for n in (2, 3, 5):
            expect_like(model, compiled, torch.rand(n, 8))
        with torch.no_grad():
            model.weight.mul_(factor)


@pytest.mark.every_nth(2)
@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda w, x: torch.nn.functional.linear(x, w) / len(x), (8, 8)),
        (lambda w, x: torch.nn.functional.linear(x, w) / len(x) if len(x) > 20 else x @ w.t(), (8, 8)),
        (lambda w, x: torch.nn.functional.linear(x, w / len(x)), (8, 8)),
        (lambda w, x: torch.nn.functional.linear(x, w * (torch.arange(SIZE) % len(x) == 0)), (SIZE, SIZE)),
        (lambda w, x: x.t() @ w[torch.arange(len(x))[:, None] + torch.arange(len(x))].t(), (64,)),
    ],
)
def test_weights_may_depend_on_sizes(function, shape, tmp_path):
    model = Function(function, *shape).eval()
    example = torch.rand(20, shape[-1])
    compiled = tessera.compile(model, example, dynamic_shapes={"inputs[0]": {0: "n"}})
    for n in (20, 30, 7, 20):
        expect_like(model, compiled, torch.rand(n, shape[-1]))
    compiled.save(tmp_path / "m.safetensors")
    loaded = tessera.load(tmp_path / "m.safetensors")
    for n in (30, 20, 7):
        expect_like(model, loaded, torch.rand(n, shape[-1]))
    with torch.no_grad():
        model.w.mul_(2)
    for n in (30, 20):
        expect_like(model, compiled, torch.rand(n, shape[-1]))


@pytest.mark.parametrize("parts", [torch.nn.ModuleDict, torch.nn.ParameterDict])
def test_what_is_put_into_an_empty_container_is_seen(parts):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.parts = torch.nn.Linear(SIZE, SIZE), parts()

        def forward(self, x):
            x = self.linear(x)
            for each in self.parts.values():
                x = each(x) if isinstance(each, torch.nn.Module) else x * each
            return x

    model, x = Model().eval(), torch.randn(4, SIZE)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    model.parts["a"] = torch.nn.Tanh() if parts is torch.nn.ModuleDict else torch.nn.Parameter(torch.randn(SIZE))
    expect_like(model, compiled, x)
