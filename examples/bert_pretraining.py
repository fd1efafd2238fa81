"""Pre-trains BERT on packs of sequences, step by step; `tessera train bert` does the same as one command.

    python -m tessera.text corpus.txt --vocabulary vocab.txt --out tokens.safetensors
    python examples/bert_pretraining.py --data tokens.safetensors --steps 200 --save model.safetensors

Without --data the text is synthetic. The model may also be given as a configuration of `transformers`.
"""

import argparse

import numpy as np

from tessera import graph as tg
from tessera.text import PretrainingData, TokenText, synthetic_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="file of tokens (default: synthetic text)")
    parser.add_argument("--size", default="tiny", help="size of BERT")
    parser.add_argument("--length", type=int, default=128, help="tokens per pack")
    parser.add_argument("--packs", type=int, default=16, help="packs per step")
    parser.add_argument("--steps", type=int, default=100, help="number of steps")
    parser.add_argument("--lr", type=float, default=0.005, help="learning rate")
    parser.add_argument("--save", help="file for the parameters, with Hugging Face's names")
    options = parser.parse_args()

    text = TokenText.load(options.data) if options.data else synthetic_text()
    train, held_out = text.split()
    data = PretrainingData(train, options.length)
    print(f"{data.sequences} sequences in {data.packs} packs, {data.packing_factor:.2f} in each")
    if not 0 < options.packs <= data.packs:
        parser.error(f"--packs {options.packs}: a step takes from 1 to {data.packs} packs, as many as an epoch has")

    config = tg.BertConfig.named(options.size)
    config.vocab_size = text.vocabulary
    bert = tg.bert_for_pretraining(config, **data.shape(options.packs), dropout=True)
    schedule = tg.Schedule("linear", steps=options.steps, warmup=options.steps // 10)
    no_decay = [tg.ParameterGroup(("*.bias", "*.LayerNorm.weight"), weight_decay=0, trust_ratio=False)]
    step = bert.graph.training_step(
        bert.loss, "lamb", lr=options.lr, weight_decay=0.01, groups=no_decay, schedule=schedule
    )
    session = step.session()

    unseen = PretrainingData(held_out, options.length)
    evaluation = tg.bert_for_pretraining(config, **unseen.shape(options.packs), average="sequence")
    evaluation.graph.output("loss", evaluation.loss)
    evaluate = evaluation.graph.session(share=session)

    def held_out_loss() -> float:
        """The mean of all sequences: the mean of a batch counts as often as it has sequences."""
        total = 0.0
        for first in range(0, unseen.packs, options.packs):
            batch = unseen.batch(0, first, options.packs)
            total += float(evaluate.run(**batch)) * np.count_nonzero(batch["next_sentence_labels"] >= 0)
        return total / unseen.sequences

    steps_per_epoch = data.packs // options.packs
    for number in range(options.steps):
        epoch, place = divmod(number, steps_per_epoch)
        loss = session.run(**data.batch(epoch, place * options.packs, options.packs))
        if (number + 1) % max(1, options.steps // 5) == 0:
            print(f"step {number + 1}: loss {float(loss):.4f}, held out {held_out_loss():.4f}")
    if options.save:
        session.save_parameters(options.save)


if __name__ == "__main__":
    main()
