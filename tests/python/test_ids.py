"""Ids without a row in their table: an error wherever a model runs, and its message."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
from tessera import graph as tg  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS, SIZE = 24, 16


class Embedded(nn.Module):
    """Ids of tokens, and computed ones of positions."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(ROWS, SIZE), nn.Embedding(8, SIZE)
        self.head = nn.Linear(SIZE, ROWS)

    def forward(self, ids, offset):
        return self.head(self.tokens(ids) + self.positions(torch.arange(ids.shape[1]) + offset))


def example(batch=2):
    torch.manual_seed(0)
    return Embedded().eval(), torch.randint(0, ROWS, (batch, 6)), torch.tensor([1])


def changed(ids, at, value):
    ids = ids.clone()
    ids[at] = value
    return ids


@pytest.mark.parametrize("value", [ROWS, -1, 2**31 - 1, -(2**31)])
def test_compiled_models_say_which_id_of_which_table(value, tmp_path):
    model, ids, offset = example()
    compiled = tessera.compile(model, (ids, offset))
    compiled.save(tmp_path / "model.safetensors")
    for each in (compiled, tessera.load(tmp_path / "model.safetensors")):
        wanted = each(ids, offset)
        for wrong in (changed(ids, (1, 2), value), changed(ids, (1, 2), value).numpy()):
            with pytest.raises(ValueError, match=rf"'ids', is {value}; 'tokens.weight' has rows 0 to 23"):
                each(wrong, offset)
        for _ in range(2):
            assert torch.equal(each(ids, offset), wanted), "it runs again"


def test_computed_ids_are_checked_too():
    model, ids, offset = example()
    compiled = tessera.compile(model, (ids, offset))
    with pytest.raises(ValueError, match=r"'offset', is 8; 'positions.weight' has rows 0 to 7"):
        compiled(ids, offset + 2)
    with pytest.raises(ValueError, match=r"'offset', is -1; 'positions.weight' has rows 0 to 7"):
        compiled(ids, offset - 2)


@pytest.mark.parametrize("batch", [3, 32])
def test_entries_are_those_of_the_whole_batch(batch):
    model, ids, offset = example(batch)
    compiled = tessera.compile(model, (ids, offset), threads=2)
    for sample in (0, batch // 2, batch - 1):
        with pytest.raises(ValueError, match=rf"entry \[{sample}, 5\] of the ids, which come from 'ids', is 99"):
            compiled(changed(ids, (sample, 5), 99), offset)


def test_ids_from_the_end_are_those_of_pytorch():
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(5, 4))

        def forward(self, x, ids):
            return self.table[ids], x.gather(1, ids.clamp(0)[None])

    model, x, ids = Rows().eval(), torch.randn(1, 7), torch.tensor([-5, 4, -1, 0])
    compiled = tessera.compile(model, (x, ids))
    for found, wanted in zip(compiled(x, ids), model(x, ids), strict=True):
        torch.testing.assert_close(found, wanted.detach())
    for wrong in (-6, 5):
        with pytest.raises(ValueError, match=f"is {wrong + 5 if wrong < 0 else wrong}; 'table' has rows 0 to 4"):
            compiled(x, changed(ids, 1, wrong))


@pytest.mark.parametrize("batch", [2, 32])
def test_hashes_of_ids_do_not_wrap_around(batch):
    class Hashed(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(ROWS, SIZE)

        def forward(self, ids):
            return self.table((ids * 40503 + 7) % ROWS)

    torch.manual_seed(0)
    model, ids = Hashed().eval(), torch.randint(0, 50000, (batch, 6))
    compiled = tessera.compile(model, ids, threads=2)
    torch.testing.assert_close(compiled(ids), model(ids).detach())
    with pytest.raises(ValueError, match="mul of integers that come from 'ids' is beyond 32 bits"):
        compiled(changed(ids, (batch - 1, 5), 60000))
    torch.testing.assert_close(compiled(ids), model(ids).detach())


def test_gathered_elements_stay_in_their_rows():
    class Gathered(nn.Module):
        def forward(self, x, ids):
            return x.gather(1, ids)

    x, ids = torch.randn(3, 5), torch.randint(0, 5, (3, 2))
    compiled = tessera.compile(Gathered().eval(), (x, ids))
    assert torch.equal(compiled(x, ids), x.gather(1, ids))
    for wrong in (5, -1, 14):
        with pytest.raises(ValueError, match="an index that comes from 'ids' is not one of a dimension of 5"):
            compiled(x, changed(ids, (0, 0), wrong))


def test_torch_compile_refuses_them_as_well(caplog):
    model, ids, offset = example()
    compiled = torch.compile(model, backend=tessera.backend)
    with torch.no_grad():
        for _ in range(12):  # from then on its weights are prepared
            torch.testing.assert_close(compiled(ids, offset), model(ids, offset), rtol=1e-4, atol=1e-5)
        with pytest.raises((IndexError, ValueError)):
            compiled(changed(ids, (0, 0), ROWS), offset)
    with pytest.raises((IndexError, ValueError)):
        compiled(changed(ids, (0, 0), ROWS), offset).sum().backward()
    assert "a session failed" not in caplog.text  # it computes the next call


def test_a_training_step_changes_nothing():
    model, ids, _ = example()

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, labels):
            logits = self.model(ids, 0)
            return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    labels = changed(ids, (0, 0), -100)  # this label is ignored
    graph = tg.from_torch(Loss(), (ids, labels))
    session = graph.training_step(graph.outputs["output"], momentum=0.9, lr=0.1).session()
    before = {f"model.{name}": np.array(session.get(f"model.{name}")) for name, _ in model.named_parameters()}
    with pytest.raises(ValueError, match=r"entry \[1, 5\] of the ids, which come from 'ids', is 24"):
        session.run(changed(ids, (1, 5), ROWS), labels)
    for name, expected in before.items():
        np.testing.assert_array_equal(session.get(name), expected)
    assert np.isfinite(session.run(ids, labels))


def test_added_rows_are_checked():
    class Added(nn.Module):
        def forward(self, x, ids, values):
            return x.index_add(0, ids, values)

    arguments = torch.zeros(5, 2), torch.tensor([0, 4, 4]), torch.randn(3, 2)
    compiled = tessera.compile(Added().eval(), arguments)
    torch.testing.assert_close(compiled(*arguments), Added()(*arguments))
    with pytest.raises(ValueError, match="is 5; there are rows 0 to 4"):
        compiled(arguments[0], torch.tensor([0, 5, 4]), arguments[2])
