"""BERT-tiny on WikiText-2: loss by the number of training sequences, packed and padded, in FP32 and FP16.

    python bench/python/bert_curves.py --tessera build/release/cli/tessera --data data/text --out packed-bert

Trains with the validation file, holds a part of the test file out, and evaluates every 18 steps; each paragraph is a
document. A batch of padded sequences has as many sequences as a batch of packs has on average. Packs depend on the
seed; batches do not, and neither does the number of steps, which is that of an epoch with the first seed. Prints a
table of the held-out loss, with mean, range and the largest difference from packed training with the same seed, and a
table of the packs. Writes OUT.json with all evaluations and OUT.svg.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from progress import tell

from tessera.text import tokenize

FP16 = ["--numbers", "mlperf-v1", "--rounding"]
#: Options of each training, besides the common options.
VARIANTS = {
    "packed": ["--pack", "optimal"],
    "padded": ["--pack", "none"],
    "packed, FP16, stochastic rounding": ["--pack", "optimal", *FP16, "stochastic"],
    "packed, FP16, rounding to nearest": ["--pack", "optimal", *FP16, "nearest"],
}
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728")
STYLE = (
    "<style>text{fill:#1f2328}.paper{fill:#fff}.grid{stroke:#d8dee4}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117}.grid{stroke:#30363d}}</style>"
)


def trained(
    options: argparse.Namespace, folder: Path, variant: str, seed: int, batch: int, duration: list[str]
) -> dict[str, Any]:
    command = [options.tessera, "train", "bert", "--data", str(folder), "--size", options.size, "--json"]
    command += ["--length", str(options.length), "--batch", str(batch), *duration]
    command += ["--evaluate-every", str(options.every), "--average", "sequence"]
    command += ["--seed", str(seed), "--lr", str(options.lr), "--lr-schedule", "linear"]
    command += ["--warmup", "16", *VARIANTS[variant]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)["results"][0]
    last = result["evaluations"][-1]
    tell(f"{variant}, seed {seed}: {last['held_out_loss']:.4f}, {result['seconds']:.0f} s")
    return result


def tokenised(options: argparse.Namespace, folder: Path) -> None:
    for name, part in (("train", "valid"), ("test", "test")):
        source = options.data / f"wikitext2-{part}.txt"
        text = tokenize(source, options.data / "bert-base-uncased-vocab.txt", documents="paragraphs")
        if name == "test":
            text = text.split(options.held_out)[1]
        text.save(str(folder / f"{name}.safetensors"))


def held_out_losses(runs: list[dict[str, Any]]) -> list[float]:
    return [run["evaluations"][-1]["held_out_loss"] for run in runs]


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    lines = ["| | held-out loss | its range | from packed | packs of a step | padding |", "| --- " * 6 + "|"]
    packed = held_out_losses(results["packed"])
    for variant, runs in results.items():
        losses = held_out_losses(runs)
        farthest = max(abs(loss / other - 1) for loss, other in zip(losses, packed, strict=True))
        packs = runs[0]["settings"]["phases"][0]["batch"]
        padding = 100 * sum(1 - run["phases"][0]["efficiency"] for run in runs) / len(runs)
        lines.append(
            f"| {variant} | {sum(losses) / len(losses):.4f} | {min(losses):.4f} to {max(losses):.4f} "
            f"| {100 * farthest:.2f} % | {packs} | {padding:.0f} % |"
        )
    return "\n".join(lines)


def packs_table(results: dict[str, list[dict[str, Any]]]) -> str:
    lines = ["| seed | sequences | packs | padding without packing |", "| --- " * 4 + "|"]
    for seed, runs in enumerate(zip(results["packed"], results["padded"], strict=True)):
        packed, padded = (run["phases"][0] for run in runs)
        padding = 100 * (1 - padded["efficiency"])
        lines.append(f"| {seed} | {packed['sequences']:,} | {packed['packs']:,} | {padding:.0f} % |")
    return "\n".join(lines)


def picture(results: dict[str, list[dict[str, Any]]]) -> str:
    """Bands from the smallest to the largest loss of the seeds, and their means as lines, as SVG."""
    width, height, left, top, right, bottom = 760, 400, 60, 20, 20, 50
    points = [e for runs in results.values() for run in runs for e in run["evaluations"]]
    most = max(e["sequences"] for e in points)
    low = math.floor(2 * min(e["held_out_loss"] for e in points)) / 2
    high = math.ceil(2 * max(e["held_out_loss"] for e in points)) / 2

    def x(value: float) -> float:
        return left + (width - left - right) * value / most

    def y(value: float) -> float:
        return top + (height - top - bottom) * (high - value) / (high - low)

    def path(pairs: list[tuple[float, float]]) -> str:
        return "M" + " L".join(f"{x(a):.1f},{y(b):.1f}" for a, b in pairs)

    parts = [f'<rect class="paper" width="{width}" height="{height}"/>']
    for i in range(round(2 * (high - low)) + 1):
        at = y(low + i / 2)
        parts.append(f'<path d="M{left},{at:.1f} H{width - right}" class="grid"/>')
        parts.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{low + i / 2:.1f}</text>')
    for count in range(0, most + 1, 500):
        parts.append(f'<text x="{x(count):.1f}" y="{height - bottom + 18}" text-anchor="middle">{count:,}</text>')
    for i, (variant, runs) in enumerate(results.items()):
        rows = [list(at) for at in zip(*(run["evaluations"] for run in runs), strict=True)]
        seen = [sum(e["sequences"] for e in row) / len(row) for row in rows]
        losses = [[e["held_out_loss"] for e in row] for row in rows]
        band = list(zip(seen, map(max, losses), strict=True)) + list(zip(seen, map(min, losses), strict=True))[::-1]
        means = [(at, sum(row) / len(row)) for at, row in zip(seen, losses, strict=True)]
        parts.append(f'<path d="{path(band)} Z" fill="{COLOURS[i]}" opacity="0.2"/>')
        parts.append(f'<path d="{path(means)}" fill="none" stroke="{COLOURS[i]}" stroke-width="1.5"/>')
        at = top + 16 + 18 * i
        parts.append(f'<path d="M{width - 290},{at - 4} h24" stroke="{COLOURS[i]}" stroke-width="2"/>')
        parts.append(f'<text x="{width - 258}" y="{at}">{variant}</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 10}" text-anchor="middle">sequences trained with</text>')
    parts.append(f'<text x="{left}" y="{top - 6}">held-out loss</text>')
    style = 'font-family="sans-serif" font-size="12"'
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {style}>'
    return frame + STYLE + "".join(parts) + "</svg>\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default="tessera", help="the tool")
    parser.add_argument("--data", type=Path, required=True, help="folder with wikitext2-….txt and the vocabulary")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8, help="packs of a step")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--every", type=int, default=18, help="steps from one evaluation to the next")
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--held-out", type=float, default=0.05, help="fraction of the test file that is evaluated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="prefix of the names of the two files to write")
    options = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {variant: [] for variant in VARIANTS}
    with tempfile.TemporaryDirectory() as name:
        tokenised(options, Path(name))
        for seed in range(options.seeds):
            for variant, runs in results.items():
                factor = results["packed"][0]["phases"][0]["packing_factor"] if variant == "padded" else 1
                duration = ["--steps", str(runs[0]["steps"])] if runs else ["--epochs", str(options.epochs)]
                runs.append(trained(options, Path(name), variant, seed, round(options.batch * factor), duration))
            write(options, results)
    print(table(results), packs_table(results), sep="\n\n")


def write(options: argparse.Namespace, results: dict[str, list[dict[str, Any]]]) -> None:
    if options.out:
        kept = ("settings", "phases", "evaluations", "seconds", "sequences_per_second", "tokens_per_second")
        runs = {variant: [{key: run[key] for key in kept} for run in of] for variant, of in results.items()}
        options.out.with_suffix(".json").write_text(json.dumps(runs, indent=1) + "\n")
        options.out.with_suffix(".svg").write_text(picture(results))


if __name__ == "__main__":
    main()
