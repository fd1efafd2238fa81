"""A training step of BERT on packs of 512 tokens beside PyTorch's, in one run.

    python bench/python/packed_bert.py                         # BERT-base, two packs, AdamW, with dropout
    python bench/python/packed_bert.py --size mini --packs 4 --density 0.1 --block 16
    python bench/python/packed_bert.py --memory                # peak memory instead of time

PyTorch's model is Hugging Face's, with scaled_dot_product_attention and a mask that keeps sequences apart, positions of
each sequence, and a head that computes the masked tokens only, as Tessera's does; eager and compiled, each with fused
AdamW. `by sequence` calls scaled_dot_product_attention for one sequence after the other instead, without a mask, and
`nested` calls it once, for all sequences as a nested (jagged) tensor. `padded` has one sequence in each row of 512. All
take turns. Prints the least time of a step, and per sequence. With a density, products of the encoder have dynamic
block-sparse weights.

Below are Tessera's times by kind of operation, in the fastest of three measured steps, and the part of the step that is
not products. Work on the results of products, such as adding biases, counts as products. Attention, which computes its
softmax between its two products, is one operation: the part is given without attention, and with all of it.

Memory is the largest resident size (Linux's VmHWM) of a process that runs two steps, less its size before the model is
made, when all modules are loaded. Beside it stands the memory that the cost report predicts.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
from models import Job, least
from numpy.typing import NDArray
from torch import Tensor, nn

import tessera
from tessera import graph as tg

TOKENS = 512
#: Lengths of the sequences of packs, two in each, about as the planner packs Wikipedia at 512 tokens.
PACKS = ((312, 200), (256, 256))
MASKED = 0.15
PREDICTIONS = 76 + 2

#: The lengths of the sequences of each pack.
Lengths = Sequence[Sequence[int]]


def attend_by_sequence(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    lengths: Lengths = (),
    **_: object,
) -> tuple[Tensor, None]:
    """Attention within each sequence, one after the other; arrays are [packs, heads, tokens, size of a head]."""
    packs = []
    for p, pack in enumerate(lengths):
        parts = [x[p : p + 1].split(list(pack), dim=2) for x in (query, key, value)]
        each = [
            nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling)
            for q, k, v in zip(*parts, strict=True)
        ]
        packs.append(torch.cat(each, dim=2))
    return torch.cat(packs).transpose(1, 2), None


def attend_nested(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    lengths: Lengths = (),
    **_: object,
) -> tuple[Tensor, None]:
    """The same for all sequences at once, which are the entries of a nested tensor."""
    packs, heads, tokens, size = query.shape
    offsets = torch.tensor([0, *itertools.accumulate(itertools.chain.from_iterable(lengths))])

    def nested(x: Tensor) -> Tensor:
        rows = x.transpose(1, 2).reshape(packs * tokens, heads, size)
        return torch.nested.nested_tensor_from_jagged(rows, offsets).transpose(1, 2)

    y = nn.functional.scaled_dot_product_attention(
        nested(query), nested(key), nested(value), dropout_p=dropout, scale=scaling
    )
    return y.transpose(1, 2).values().reshape(packs, tokens, heads, size), None


#: Ways to keep sequences apart in PyTorch without a mask.
WAYS = {"by sequence": attend_by_sequence, "nested": attend_nested}


class Batch:
    """Arrays of packs with random tokens."""

    def __init__(self, packs: list[tuple[int, ...]], predictions: int) -> None:
        random = np.random.default_rng(0)
        self.sequences = max(len(pack) for pack in packs)
        self.predictions = predictions
        self.count = sum(len(pack) for pack in packs)
        #: Padding is a separate sequence.
        self.lengths = [[*pack, TOKENS - sum(pack)] if sum(pack) < TOKENS else [*pack] for pack in packs]
        shape = (len(packs), TOKENS)
        self.arrays: dict[str, NDArray[np.int64]] = {
            "input_ids": random.integers(1000, 30000, shape),
            "token_type_ids": np.zeros(shape, np.int64),
            "position_ids": np.zeros(shape, np.int64),
            "sequence_ids": np.zeros(shape, np.int64),
            "masked_lm_positions": np.zeros((len(packs), predictions), np.int64),
            "masked_lm_labels": np.full((len(packs), predictions), -100),
            "cls_positions": np.zeros((len(packs), self.sequences), np.int64),
            "next_sentence_labels": np.full((len(packs), self.sequences), -100),
        }
        for p, pack in enumerate(packs):
            begin = slot = 0
            for i, length in enumerate(pack):
                here = np.s_[p, begin : begin + length]
                self.arrays["position_ids"][here] = np.arange(length)
                self.arrays["sequence_ids"][here] = i + 1
                self.arrays["cls_positions"][p, i] = begin
                self.arrays["next_sentence_labels"][p, i] = i % 2
                count = int(MASKED * length)
                masked = begin + random.choice(length, count, replace=False)
                self.arrays["masked_lm_positions"][p, slot : slot + count] = np.sort(masked)
                self.arrays["masked_lm_labels"][p, slot : slot + count] = random.integers(1000, 30000, count)
                begin, slot = begin + length, slot + count

    def tensors(self) -> dict[str, Tensor]:
        return {name: torch.from_numpy(array) for name, array in self.arrays.items()}


class InPyTorch(nn.Module):
    """The losses of a batch, by Hugging Face's layers, with a mask unless the lengths of sequences are given."""

    def __init__(self, config: object, lengths: Lengths | None = None) -> None:
        from transformers import BertForPreTraining

        super().__init__()
        self.model = BertForPreTraining(config)
        self.lengths = lengths

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        ids = batch["sequence_ids"]
        bert = self.model.bert
        x = bert.embeddings(batch["input_ids"], batch["token_type_ids"], batch["position_ids"])
        if self.lengths is None:
            mask = (ids[:, None, :, None] == ids[:, None, None, :]) & (ids != 0)[:, None, None, :]
            mask |= torch.eye(ids.shape[1], dtype=torch.bool)  # padding attends to itself
            hidden = bert.encoder(x, attention_mask=mask)[0]
        else:
            hidden = bert.encoder(x, lengths=self.lengths)[0]
        rows = torch.arange(ids.shape[0])[:, None]
        scores = self.model.cls.predictions(hidden[rows, batch["masked_lm_positions"]])
        pooled = bert.pooler.activation(bert.pooler.dense(hidden[rows, batch["cls_positions"]]))
        pairs = self.model.cls.seq_relationship(pooled)
        loss = nn.functional.cross_entropy
        masked: Tensor = loss(scores.flatten(0, 1), batch["masked_lm_labels"].flatten())
        return masked + loss(pairs.flatten(0, 1), batch["next_sentence_labels"].flatten())


def step_of(module: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, compiled: bool) -> Job:
    # Sizes of one batch do not change.
    forward = torch.compile(module, dynamic=False) if compiled else module
    tensors = batch.tensors()

    def step() -> float:
        optimizer.zero_grad()
        loss = forward(tensors)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def adamw(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), 1e-4, fused=True)


def in_pytorch(
    config: object, batch: Batch, compiled: bool, wrapped: Callable[[nn.Module], nn.Module] = lambda module: module
) -> Job:
    torch.manual_seed(0)
    module = wrapped(InPyTorch(config).train())
    return step_of(module, adamw(module), batch, compiled)


def with_parameters_of(other: nn.Module, module: nn.Module) -> nn.Module:
    """The module, which now trains the same parameters as the other one."""
    module.load_state_dict(other.state_dict(keep_vars=True), assign=True)
    return module


def trains(way: str, batch: Batch) -> bool:
    """Whether a small model trains with a way to keep sequences apart. Its loss must equal the loss with a mask."""
    torch.manual_seed(0)
    masked = InPyTorch(config_of("tiny")).eval()
    other = with_parameters_of(masked, InPyTorch(config_of("tiny", way), batch.lengths)).eval()
    tensors = batch.tensors()
    expected = float(masked(tensors).detach())
    try:
        found = float(other(tensors).detach())
        other.train()(tensors).backward()
    except Exception as error:  # the type depends on what PyTorch lacks
        print(f"PyTorch, packed, {way} is left out: {error!r}")
        return False
    assert abs(found - expected) < 1e-5 * expected, f"{way}: the loss is {found}; with a mask it is {expected}"
    return True


def jobs_in_pytorch(size: str, padded: Batch, packed: Batch) -> dict[str, tuple[Job, int]]:
    """Steps that all train the same parameters, so that these are in memory only once."""
    torch.manual_seed(0)
    masked = InPyTorch(config_of(size)).train()
    optimizer = adamw(masked)
    jobs: dict[str, tuple[Job, int]] = {}

    def add(name: str, module: nn.Module, batch: Batch, compiles: bool = True) -> None:
        jobs[name] = (step_of(module, optimizer, batch, False), batch.count)
        if compiles:
            jobs[f"{name}, compiled"] = (step_of(module, optimizer, batch, True), batch.count)

    add("PyTorch, padded", masked, padded)
    add("PyTorch, packed", masked, packed)
    for way in WAYS:
        if trains(way, packed):
            module = with_parameters_of(masked, InPyTorch(config_of(size, way), packed.lengths)).train()
            # Splitting nested tensors takes Python numbers from tensors, which cannot be compiled.
            add(f"PyTorch, packed, {way}", module, packed, compiles=way != "nested")
    return jobs


def patterns_of(config: object, density: float, block: int) -> dict[str, tessera.Matrix]:
    """Random blocks for all products of the encoder."""
    empty = tg.bert_for_pretraining(config, packs=1, tokens=8, predictions=1).graph
    encoder = [value for value in empty.parameters if "encoder" in value.name and len(value.shape) == 2]
    return {
        value.name: tessera.generate(*value.shape, density, block_size=block, seed=i) for i, value in enumerate(encoder)
    }


def step_in_tessera(
    config: object, batch: Batch, patterns: dict[str, tessera.Matrix] | None = None, replicas: int = 1
) -> tg.TrainingStep:
    bert = tg.bert_for_pretraining(
        config,
        packs=len(batch.arrays["input_ids"]),
        sequences=batch.sequences,
        predictions=batch.predictions,
        dropout=True,
        patterns=patterns,
        dynamic=patterns is not None,
    )
    return bert.graph.training_step(bert.loss, "adamw", lr=1e-4, replicas=replicas)


class InTessera:
    """A session that trains on a batch."""

    def __init__(self, config: object, batch: Batch, patterns: dict[str, tessera.Matrix] | None = None) -> None:
        self.session = step_in_tessera(config, batch, patterns).session()
        self.batch = batch

    def __call__(self) -> object:
        return self.session.run(**self.batch.arrays)

    def breakdown(self) -> str:
        """Milliseconds by kind of operation, and the part that is not products."""
        steps = [self.session.measure(**self.batch.arrays) for _ in range(3)]
        fastest = min(steps, key=lambda step: step.seconds)
        kinds = fastest.seconds_by_kind
        times = ", ".join(f"{kind} {1e3 * each:.0f}" for kind, each in kinds.items() if each >= 5e-4)
        other = 1 - kinds.get("products", 0.0) / fastest.seconds
        attention = kinds.get("attention", 0.0) / fastest.seconds
        shares = f"{100 * (other - attention):.1f} % no product, {100 * other:.1f} % with attention"
        return f"{times} of {1e3 * fastest.seconds:.0f} ms; {shares}"


def config_of(size: str, way: str = "sdpa") -> object:
    from transformers import AttentionInterface, BertConfig

    for name, attend in WAYS.items():
        AttentionInterface.register(name, attend)
    own = tg.BertConfig.named(size)
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    return BertConfig(**{name: getattr(own, name) for name in names}, attn_implementation=way)


def packs_of(count: int) -> list[tuple[int, ...]]:
    return [PACKS[i % len(PACKS)] for i in range(count)]


def use_threads(threads: int) -> None:
    torch.set_num_threads(threads)
    tessera.set_num_threads(threads)


def resident(field: str) -> float:
    """MiB of this process: VmRSS now, VmHWM at most."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def peak_of(library: str, size: str, packs: int, threads: int) -> float:
    """MiB that two training steps take in a new process."""
    from transformers import BertForPreTraining  # loads what PyTorch's model needs

    assert BertForPreTraining
    use_threads(threads)
    config, batch = config_of(size), Batch(packs_of(packs), PREDICTIONS)
    before = resident("VmRSS")
    step = in_pytorch(config, batch, False) if library == "PyTorch" else InTessera(config, batch)
    for _ in range(2):
        step()
    return resident("VmHWM") - before


def compare_memory(size: str, packs: int, threads: int) -> None:
    new = multiprocessing.get_context("spawn")
    peaks = {}
    for library in ("Tessera", "PyTorch"):
        with ProcessPoolExecutor(1, mp_context=new) as process:
            peaks[library] = process.submit(peak_of, library, size, packs, threads).result()
    batch = Batch(packs_of(packs), PREDICTIONS)
    predicted = step_in_tessera(config_of(size), batch).estimate("host").total_bytes / 2**20
    own, other = peaks["Tessera"], peaks["PyTorch"]
    print(f"BERT-{size}, a training step of {packs} × {TOKENS} tokens, AdamW, dropout; MiB beside Python's modules")
    print(f"  {'Tessera, predicted':<20}{predicted:9,.0f}")
    print(f"  {'Tessera':<20}{own:9,.0f} {own / predicted:6.3f} of the prediction, {own / other:.3f} of PyTorch's")
    print(f"  {'PyTorch':<20}{other:9,.0f}")


def compare(size: str, packs: int, rounds: int, sparse: tuple[float, int] | None) -> None:
    config = config_of(size)
    chosen = packs_of(packs)
    packed = Batch(chosen, PREDICTIONS)
    padded = Batch([(length,) for pack in chosen for length in pack][:packs], PREDICTIONS)
    jobs = jobs_in_pytorch(size, padded, packed)
    own = {"Tessera, padded": InTessera(config, padded), "Tessera, packed": InTessera(config, packed)}
    if sparse is not None:
        own["Tessera, packed, sparse"] = InTessera(config, packed, patterns_of(config, *sparse))
    jobs |= {name: (job, job.batch.count) for name, job in own.items()}
    times = least({name: job for name, (job, _) in jobs.items()}, rounds, calls=1)
    print(f"BERT-{size}, a training step of {packs} × {TOKENS} tokens, AdamW, dropout")
    best = min(each for name, each in times.items() if name.startswith("PyTorch, packed"))
    for name, (_, count) in jobs.items():
        each = times[name]
        print(f"  {name:<38}{each:9.0f} ms {each / best:6.2f} {each / count:9.0f} ms a sequence")
    for name, job in own.items():
        print(f"  {name}: {job.breakdown()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base")
    parser.add_argument("--packs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--density", type=float)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--memory", action="store_true", help="measure the peak memory instead of the time")
    options = parser.parse_args()
    if options.memory:
        compare_memory(options.size, options.packs, options.threads)
        return
    use_threads(options.threads)
    sparse = None if options.density is None else (options.density, options.block)
    compare(options.size, options.packs, options.rounds, sparse)


if __name__ == "__main__":
    main()
