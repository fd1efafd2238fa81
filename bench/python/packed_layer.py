"""The cycles that masks of packs save on a modelled machine: a layer of BERT, with packs of ever shorter sequences.

    python bench/python/packed_layer.py                      # BERT-base, a pack of 512 tokens, 16 bits, on a GC200
    python bench/python/packed_layer.py --size large --packs 2

Prints a table of docs/packing-bert.md: estimates of a network of one layer that differ only in ids. It has the cycles
of the layer's operations and, in brackets, of attention, also as a fraction of attention without ids, which skips no
block.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from tessera import graph as tg

TOKENS = 512
#: Lengths of the sequences of a pack; the last ones have a mean of 128 tokens, too.
PACKS = {
    "1 × 512": (512,),
    "2 × 256": (256,) * 2,
    "4 × 128": (128,) * 4,
    "270, 130, 70, 42": (270, 130, 70, 42),
    "8 × 64": (64,) * 8,
}


def sequence_ids(packs: int, lengths: tuple[int, ...]) -> NDArray[np.uint32]:
    ids = np.repeat(np.arange(1, len(lengths) + 1, dtype=np.uint32), lengths)
    return np.tile(ids, (packs, 1))


def layer_of(size: str, packs: int, trains: bool) -> tg.Graph:
    """The graph of one layer. Vocabulary and predictions are small, as their costs are not part of the layer's."""
    config = tg.BertConfig.named(size)
    config.num_hidden_layers = 1
    config.vocab_size = 1024
    sequences = max(len(lengths) for lengths in PACKS.values())
    bert = tg.bert_for_pretraining(
        config, packs=packs, tokens=TOKENS, sequences=sequences, predictions=8, dropout=trains, numbers="mlperf-v1"
    )
    if trains:
        return bert.graph.training_step(bert.loss, "lamb", numbers="mlperf-v1")
    bert.graph.output("hidden", bert.hidden)
    return bert.graph


class Layer:
    """Cycles of a layer's operations, by estimate."""

    def __init__(self, graph: tg.Graph, machine: str) -> None:
        self.graph = graph
        self.machine = machine
        self.without_ids = self.attention_of(graph.estimate(machine))

    @staticmethod
    def attention_of(estimate: tg.Estimate) -> float:
        return estimate.seconds_by_kind["attention"] * estimate.machine.clock_hz

    def cells(self, ids: NDArray[np.uint32] | None) -> str:
        estimate = self.graph.estimate(self.machine, inputs=None if ids is None else {"sequence_ids": ids})
        seconds = sum(operation.seconds for operation in estimate.in_functions)
        attention = self.attention_of(estimate)
        fraction = attention / self.without_ids
        return f"{seconds * estimate.machine.clock_hz:,.0f} ({attention:,.0f}, {fraction:.0%})"


def compare(size: str, packs: int, machine: str) -> None:
    layers = [Layer(layer_of(size, packs, trains), machine) for trains in (False, True)]
    print(f"A layer of BERT-{size} on {machine}, packs × tokens: {packs} × {TOKENS}")
    print("| sequences of a pack | Σ length² / tokens² | forward | forward and backward |")
    print("| --- | --- | --- | --- |")
    print("| without ids | 1 |", " | ".join(layer.cells(None) for layer in layers), "|")
    for name, lengths in PACKS.items():
        ids = sequence_ids(packs, lengths)
        squares = sum(length**2 for length in lengths) / TOKENS**2
        print(f"| {name} | {squares:.3f} |", " | ".join(layer.cells(ids) for layer in layers), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base")
    parser.add_argument("--packs", type=int, default=1)
    parser.add_argument("--machine", default="gc200")
    options = parser.parse_args()
    compare(options.size, options.packs, options.machine)


if __name__ == "__main__":
    main()
