"""BERT on packs: equal to Hugging Face's on the sequences one by one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tessera
from tessera import graph as tg

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 120,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 64,
}
LENGTHS = (17, 9, 23, 12)


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(**SIZES, initializer_range=0.2)
    return transformers.BertForPreTraining(config).eval()


def sequences() -> list[dict[str, Any]]:
    random = np.random.default_rng(1)
    found = []
    for i, length in enumerate(LENGTHS):
        labels = np.full(length, -100)
        masked = random.choice(length, 2 + i, replace=False)
        labels[masked] = random.integers(0, SIZES["vocab_size"], len(masked))
        types = (np.arange(length) > length // 2).astype(np.int64)
        tokens = random.integers(0, SIZES["vocab_size"], length)
        found.append({"input_ids": tokens, "token_type_ids": types, "labels": labels, "next": i % 2})
    return found


def packed(packs: list[list[dict[str, Any]]], tokens: int, most: int, predictions: int) -> dict[str, NDArray[Any]]:
    def rows(width: int, fill: int = 0) -> NDArray[Any]:
        return np.full((len(packs), width), fill)

    arrays = {name: rows(tokens) for name in ("input_ids", "token_type_ids", "position_ids", "sequence_ids")}
    arrays |= {"masked_lm_positions": rows(predictions), "masked_lm_labels": rows(predictions, -100)}
    arrays |= {"cls_positions": rows(most), "next_sentence_labels": rows(most, -100)}
    for p, pack in enumerate(packs):
        begin = slot = 0
        for i, each in enumerate(pack):
            length = len(each["input_ids"])
            here = np.s_[p, begin : begin + length]
            arrays["input_ids"][here] = each["input_ids"]
            arrays["token_type_ids"][here] = each["token_type_ids"]
            arrays["position_ids"][here] = np.arange(length)
            arrays["sequence_ids"][here] = i + 1
            arrays["cls_positions"][p, i] = begin
            arrays["next_sentence_labels"][p, i] = each["next"]
            for place in np.flatnonzero(each["labels"] != -100):
                arrays["masked_lm_positions"][p, slot] = begin + place
                arrays["masked_lm_labels"][p, slot] = each["labels"][place]
                slot += 1
            begin += length
    return arrays


def outputs_of(session: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Outputs of a graph that may not take all of the arrays."""
    return session.run(**{name: array for name, array in arrays.items() if name in session._given})


def padded(model: Any) -> Any:
    """Hugging Face's results for a batch of the sequences, each padded."""
    length = max(LENGTHS)

    def rows(name: str, fill: int) -> Any:
        all = [np.pad(each[name], (0, length - len(each[name])), constant_values=fill) for each in sequences()]
        return torch.tensor(np.stack(all))

    mask = torch.tensor(np.stack([np.arange(length) < n for n in LENGTHS]).astype(np.int64))
    return model(
        input_ids=rows("input_ids", 0),
        token_type_ids=rows("token_type_ids", 0),
        attention_mask=mask,
        labels=rows("labels", -100),
        next_sentence_label=torch.tensor([each["next"] for each in sequences()]),
    )


def test_packs_give_hugging_faces_losses_and_gradients(model: Any) -> None:
    first, second, third, fourth = sequences()
    arrays = packed([[first, third], [fourth, second]], 48, 2, 9)
    bert = tg.bert_for_pretraining(model.config, packs=2, tokens=48, sequences=2, predictions=9)
    session = bert.graph.training_step(bert.loss, "sgd", lr=1.0).session()
    session.copy_from(model)
    before = session.parameters()

    model.zero_grad()
    wanted = padded(model)
    wanted.loss.backward()
    assert session.run(**arrays) == pytest.approx(float(wanted.loss.detach()), rel=1e-5)
    gradients = {name: each.grad for name, each in model.named_parameters()}
    for name, values in session.parameters().items():
        gradient = gradients[name].numpy()
        error = np.abs(before[name] - values - gradient).max()
        assert error <= 1e-4 * max(np.abs(gradient).max(), 1e-2), name


def test_outputs_are_hugging_faces(model: Any) -> None:
    each = sequences()
    arrays = packed([each], sum(LENGTHS), 4, 14)
    bert = tg.bert_for_pretraining(model.config, packs=1, tokens=sum(LENGTHS), sequences=4, predictions=14)
    bert.graph.output("hidden", bert.hidden)
    bert.graph.output("pairs", bert.next_sentence_logits)
    session = bert.graph.session()
    session.copy_from(model)
    found = outputs_of(session, arrays)
    with torch.no_grad():
        wanted = padded(model)
        hidden = model.bert(
            torch.tensor(each[2]["input_ids"])[None], token_type_ids=torch.tensor(each[2]["token_type_ids"])[None]
        )[0].numpy()
    begin = LENGTHS[0] + LENGTHS[1]
    np.testing.assert_allclose(found["hidden"][:, begin : begin + LENGTHS[2]], hidden, atol=1e-5 * np.abs(hidden).max())
    np.testing.assert_allclose(found["pairs"], wanted.seq_relationship_logits.numpy(), atol=1e-5)


def test_estimates_of_packs_skip_what_cannot_attend(model: Any) -> None:
    bert = tg.bert_for_pretraining(model.config, packs=1, tokens=64, sequences=4, predictions=8)
    step = bert.graph.training_step(bert.loss, "sgd", lr=1.0)
    machine = tessera.Machine("gc200", tiles=32)
    one, four = (np.repeat(np.arange(1, count + 1), 64 // count)[None] for count in (1, 4))
    whole = step.estimate(machine)
    packed = step.estimate(machine, inputs={"sequence_ids": four})
    assert step.estimate(machine, inputs={"sequence_ids": one}).cycles == pytest.approx(whole.cycles)
    assert packed.cycles["compute"] < whole.cycles["compute"]
    assert packed.seconds_by_kind["attention"] < whole.seconds_by_kind["attention"]
    assert packed.seconds_by_kind["products"] == pytest.approx(whole.seconds_by_kind["products"])
    with pytest.raises(ValueError, match="no input 'ids'"):
        step.estimate(machine, inputs={"ids": four})
    with pytest.raises(ValueError, match="sequence_ids has shape"):
        step.estimate(machine, inputs={"sequence_ids": four[0]})


def test_a_layer_of_the_base_size_gives_hugging_faces_logits() -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=1, vocab_size=2000, initializer_range=0.05)
    assert config.hidden_size == 768
    wide = transformers.BertForPreTraining(config).eval()
    random = np.random.default_rng(2)
    labels = np.full(40, -100)
    labels[3:35:4] = random.integers(0, config.vocab_size, 8)
    each = {"input_ids": random.integers(0, config.vocab_size, 40), "token_type_ids": np.arange(40) // 20}
    arrays = packed([[each | {"labels": labels, "next": 1}]], 40, 1, 8)
    bert = tg.bert_for_pretraining(config, packs=1, tokens=40, sequences=1, predictions=8)
    assert bert.masked_lm_logits is not None
    bert.graph.output("words", bert.masked_lm_logits)
    bert.graph.output("pairs", bert.next_sentence_logits)
    session = bert.graph.session()
    session.copy_from(wide)
    found = outputs_of(session, arrays)
    with torch.no_grad():
        wanted = wide(
            input_ids=torch.tensor(each["input_ids"])[None], token_type_ids=torch.tensor(each["token_type_ids"])[None]
        )
    words = wanted.prediction_logits[0, 3:35:4].numpy()
    np.testing.assert_allclose(found["words"], words, atol=1e-5 * np.abs(words).max())
    np.testing.assert_allclose(found["pairs"], wanted.seq_relationship_logits.numpy(), atol=1e-5)


def test_bert_large_has_336_million_parameters() -> None:
    bert = tg.bert_for_pretraining("large", packs=1, tokens=16, sequences=1, predictions=2)
    with torch.device("meta"):
        config = transformers.BertConfig(
            hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
        )
        model = transformers.BertForPreTraining(config)
    wanted = {name: tuple(each.shape) for name, each in model.named_parameters()}
    assert {value.name: value.shape for value in bert.graph.parameters} == wanted
    assert round(sum(math.prod(shape) for shape in wanted.values()) / 1e6) == 336


def test_a_pack_of_one_is_no_packing(model: Any) -> None:
    each = sequences()[2]
    length = len(each["labels"])

    def hidden(tokens: int) -> NDArray[Any]:
        bert = tg.bert_for_pretraining(model.config, packs=1, tokens=tokens, sequences=1, predictions=4)
        bert.graph.output("hidden", bert.hidden)
        session = bert.graph.session()
        session.copy_from(model)
        arrays = packed([[each]], tokens, 1, 4)
        return outputs_of(session, arrays)

    alone = hidden(length)
    np.testing.assert_allclose(hidden(40)[:, :length], alone, atol=1e-5 * np.abs(alone).max())


def test_weights_come_from_hugging_faces_files_and_go_there(model: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "model")
    bert = tg.bert_for_pretraining(model.config, packs=1, tokens=16, sequences=1, predictions=2)
    session = bert.graph.training_step(bert.loss, "adamw").session()
    session.load_parameters(tmp_path / "model")
    own = dict(model.named_parameters())
    for name, values in session.parameters().items():
        np.testing.assert_array_equal(values, own[name].detach().numpy())

    session.save_parameters(tmp_path / "model" / "model.safetensors")
    again = transformers.BertForPreTraining.from_pretrained(tmp_path / "model")
    for name, values in again.state_dict().items():
        assert torch.equal(values, model.state_dict()[name]), name


def test_files_that_do_not_fit_change_nothing(model: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    smaller = tg.BertConfig.named("tiny")
    bert = tg.bert_for_pretraining(smaller, packs=1, tokens=16, sequences=1, predictions=2)
    bert.graph.output("loss", bert.loss)
    session = bert.graph.session()
    before = session.parameters()
    with pytest.raises(RuntimeError, match=r"it must be F32, F16 or BF16 of \[30522, 128\]"):
        session.load_parameters(tmp_path)
    for name, values in session.parameters().items():
        np.testing.assert_array_equal(values, before[name])


def test_configurations_are_checked(model: Any) -> None:
    with pytest.raises(ValueError, match=r"unknown size 'huge' of BERT \(choose from tiny, mini"):
        tg.bert_for_pretraining("huge", packs=1)
    with pytest.raises(TypeError, match="the configuration has no vocab_size"):
        tg.bert_for_pretraining(3, packs=1)
    for name, other, wanted in (
        ("hidden_act", "relu", "gelu"),
        ("tie_word_embeddings", False, True),
        ("is_decoder", True, False),
    ):
        config = transformers.BertConfig(**SIZES, **{name: other})
        with pytest.raises(ValueError, match=f"{name} is {other!r}; only {wanted!r} is supported"):
            tg.bert_for_pretraining(config, packs=1, tokens=64)
    with pytest.raises(ValueError, match="at most max_position_embeddings, 64"):
        tg.bert_for_pretraining(model.config, packs=1, tokens=65)


def test_sparse_layers_train() -> None:
    config = transformers.BertConfig(**SIZES)
    name = "bert.encoder.layer.0.intermediate.dense.weight"
    dense = np.random.default_rng(0).random((96, 48)) < 0.3
    patterns = {name: dense.astype(np.float32)}
    bert = tg.bert_for_pretraining(config, packs=2, tokens=48, sequences=2, predictions=9, dropout=True, patterns=patterns)
    step = bert.graph.training_step(bert.loss, "adamw", lr=1e-3, micro_batches=2)
    session = step.session()
    first, second, third, fourth = sequences()
    arrays = packed([[first, third], [fourth, second]] * 2, 48, 2, 9)
    losses = [float(session.run(**arrays)) for _ in range(12)]
    assert losses[-1] < losses[0]
    assert session.matrix(name).values.size == dense.sum()


@pytest.mark.parametrize("numbers", ["bf16", "mlperf-v1", "mlperf-v2", "mlperf-slides"])
def test_published_numbers_train(numbers: Any) -> None:
    config = transformers.BertConfig(**SIZES)
    bert = tg.bert_for_pretraining(config, packs=2, tokens=48, sequences=2, predictions=9, numbers=numbers)
    session = bert.graph.training_step(bert.loss, "lamb", lr=0.01, numbers=numbers).session()
    first, second, third, fourth = sequences()
    arrays = packed([[first, third], [fourth, second]], 48, 2, 9)
    losses = [float(session.run(**arrays)) for _ in range(10)]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    with pytest.raises(ValueError, match="give either numbers or partial_dtype"):
        bert.graph.training_step(bert.loss, numbers=numbers, loss_scale=8.0)


def test_layers_lie_on_stages() -> None:
    def step(**options: Any) -> tg.TrainingStep:
        config = transformers.BertConfig(**SIZES)
        bert = tg.bert_for_pretraining(config, packs=1, tokens=16, sequences=1, predictions=2, **options)
        pipeline = "1f1b" if options else "sequential"
        return bert.graph.training_step(bert.loss, "sgd", micro_batches=4, pipeline=pipeline)

    def loss_of(step: tg.TrainingStep) -> float:
        random = np.random.default_rng(0)
        arrays = {each.name: random.integers(2, size=each.shape) for each in step.inputs if each.name != "lr"}
        return float(step.session(threads=2, seed=3).run(**arrays))

    expected = loss_of(step())
    for options in (
        {"layer_stages": [0, 1], "recompute": True},
        {"layer_stages": [0, 1], "head_with_last_layer": True},
        {"layer_stages": [0, 1], "feed_forward_stages": [1, 2]},
    ):
        assert loss_of(step(**options)) == pytest.approx(expected, rel=1e-5), options
    assert len(step(layer_stages=[0, 1]).estimate(tessera.Machine("m2000", chips=2)).lanes) == 2
    with pytest.raises(ValueError, match="the number of layers with a stage is 1; it must be"):
        step(layer_stages=[0])
    with pytest.raises(TypeError, match="stage must be a whole number, not 'x'"):
        step(layer_stages=["x", 1])


def test_means_are_over_the_whole_step() -> None:
    graph = tg.Graph()
    x, counted = graph.input("x", (3,)), graph.input("counted", (3,))
    weight = graph.parameter("weight", initial=np.ones(()))
    loss = tg.sum(x * weight * counted) / tg.mean_over_step(tg.sum(counted))
    session = graph.training_step(loss, "sgd", lr=1.0, micro_batches=2).session()
    x_of_all, counted_of_all = np.array([1.0, 2, 3, 4, 5, 6]), np.array([1.0, 0, 0, 1, 1, 1])
    assert session.run(x_of_all, counted_of_all) == pytest.approx((1 + 4 + 5 + 6) / 4)
    assert session.get("weight") == pytest.approx(1 - (1 + 4 + 5 + 6) / 4)
