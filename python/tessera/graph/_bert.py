"""BERT for pretraining on packed sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tessera import _tessera
from tessera._matrices import Matrix
from tessera._tessera import BertConfig
from tessera.graph._graph import Graph
from tessera.graph._training import Numbers
from tessera.graph._values import Value

PackedAverage: TypeAlias = Literal["token", "sequence", "pack"]

#: The only supported values of fields that other configurations may have.
_ONLY = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
    "is_decoder": False,
}
_FIELDS = [name for name, member in vars(BertConfig).items() if isinstance(member, property)]


@dataclass(frozen=True)
class Bert:
    """The values of a model; parameters of its graph have the names of Hugging Face's BertForPreTraining."""

    graph: Graph
    #: Last hidden states [packs, tokens, hidden].
    hidden: Value
    #: The pooled state of the first token of each sequence: [packs · sequences, hidden], and its logits
    #: [packs · sequences, 2].
    pooled: Value
    next_sentence_logits: Value
    next_sentence_loss: Value
    #: The sum of both losses.
    loss: Value
    #: The logits of masked tokens [packs · predictions, vocabulary], unless the head is computed in slices, and
    #: their loss.
    masked_lm_logits: Value | None = None
    masked_lm_loss: Value | None = None


def bert_for_pretraining(
    config: str | BertConfig | Any = "base",
    *,
    packs: int,
    tokens: int = 512,
    sequences: int = 1,
    predictions: int = 76,
    average: PackedAverage = "token",
    dropout: bool = False,
    seed: int = 0,
    numbers: Numbers = "fp32",
    head_slices: int = 1,
    patterns: Mapping[str, Any] | None = None,
    dynamic: bool = False,
    layer_stages: Sequence[int] = (),
    feed_forward_stages: Sequence[int] = (),
    head_with_last_layer: bool = False,
    recompute: bool = False,
) -> Bert:
    """A graph of BERT with the losses of masked tokens and next sentences, on packs of sequences.

    `config` is a name ("tiny", "mini", "small", "medium", "base", "large"), a BertConfig, or a configuration of
    `transformers`, as an object or as a dict. The inputs are integers:
    - `input_ids`, `token_type_ids`, `position_ids` and `sequence_ids` [packs, tokens]: a token attends to the tokens
      with the same sequence id; sequence ids count from 1, and 0 is padding;
    - `masked_lm_positions` (in the pack) and `masked_lm_labels` [packs, predictions];
    - `cls_positions` and `next_sentence_labels` [packs, sequences].

    Entries with label -100 are left out of the losses.

    Each loss is divided once, by the number of its terms in a whole training step, over all micro-batches and replicas:
    `average` is over each "token", each "sequence" as if it were alone, or each "pack", as in Graphcore's submissions
    to MLPerf. `numbers` sets the types of parameters and products, as for `Graph.training_step`; losses are FP32. With
    `dropout`, the configuration's dropout probabilities apply. `head_slices` computes the logits of the masked tokens
    in that many slices, so that fewer logits are in memory. `patterns` makes weights of the encoder sparse: it maps
    their names to matrices with the pattern; patterns may change in sessions if `dynamic`.

    `layer_stages` divides the layers among stages: it has the stage of each layer, in non-decreasing order. Stage 0 also
    has the embeddings; the prediction of masked tokens is a stage after the last layer's, on the chips of stage 0, or,
    with `head_with_last_layer`, part of the last layer's stage, which then lies on these chips. With
    `feed_forward_stages`, `layer_stages` has the stages of attention only. With `recompute`, only the inputs of layers
    are kept for backward passes, which compute the other values again.
    """
    graph = Graph()
    batch = _tessera.BertBatch(
        _tessera.whole_number("packs", packs, 1),
        _tessera.whole_number("tokens", tokens, 1),
        _tessera.whole_number("sequences", sequences, 1),
        _tessera.whole_number("predictions", predictions),
    )
    found = graph.native.bert_for_pretraining(
        bert_config(config),
        batch,
        average,
        graph.step().id if dropout else None,
        _tessera.whole_number("seed", seed),
        numbers,
        _tessera.whole_number("head_slices", head_slices, 1),
        {name: Matrix.of(matrix) for name, matrix in (patterns or {}).items()},
        dynamic,
        [_tessera.whole_number("stage", stage) for stage in layer_stages],
        [_tessera.whole_number("stage", stage) for stage in feed_forward_stages],
        bool(head_with_last_layer),
        bool(recompute),
    )
    return Bert(graph, **{name: Value(graph, id) for name, id in found.items()})


def bert_config(config: str | BertConfig | Any) -> BertConfig:
    """A configuration by name, or with the fields of another one; fields that a dict does not have are BERT-base's."""
    if isinstance(config, str):
        return BertConfig.named(config)
    if isinstance(config, BertConfig):
        return config
    if isinstance(config, Mapping):
        given = dict(config)
    else:
        given = {name: getattr(config, name) for name in (*_FIELDS, *_ONLY) if hasattr(config, name)}
        missing = [name for name in _FIELDS if name not in given]
        if missing:
            raise TypeError(
                f"the configuration has no {missing[0]}: give a name, a BertConfig or the BertConfig of transformers"
            )
    for name, wanted in _ONLY.items():
        if given.get(name) not in (wanted, None):
            raise ValueError(f"the configuration's {name} is {given[name]!r}; only {wanted!r} is supported")
    own = BertConfig()
    for name in _FIELDS:
        if name not in given:
            continue
        is_size = isinstance(getattr(own, name), int)
        setattr(own, name, _tessera.whole_number(name, given[name], 1) if is_size else float(given[name]))
    return own
