"""Whole Transformers, dense and pruned, beside PyTorch, ONNX Runtime and OpenVINO, in one run.

    python bench/python/models.py                           # BERT-base of random weights, 128 tokens, batches 1 and 8
    python bench/python/models.py --batch 8 --density 0.5 0.2 0.1 0.05     # one after the other, and then as a table
    python bench/python/models.py --layers 1 --batch 1 2 4 8 16        # the first of its layers alone
    python bench/python/models.py --attention               # attention alone: 4 × 512 tokens, 12 heads
    python bench/python/models.py --packs                   # attention on packs of sequences of several lengths

The encoder is pruned by magnitude. All candidates compute the same in FP32, and take turns. Prints the least time of
each in milliseconds, with the speed-up over the fastest dense alternative. The floor of each is the time of its
products alone, the least of three measured runs. Alternatives that are not installed are left out.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import tessera
from tessera import graph as tg
from tessera.graph._values import Attribute, apply_all

warnings.filterwarnings("ignore")

Job = Callable[[], object]


class First(nn.Module):
    """A model's first output."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.model(x)[0]
        return result


def least(jobs: dict[str, Job], rounds: int, calls: int = 3) -> dict[str, float]:
    """The least milliseconds of each job. Jobs take turns of several calls, as a model in use gets."""
    times = dict.fromkeys(jobs, float("inf"))
    for job in jobs.values():
        job()
    for _ in range(rounds):
        for name, job in jobs.items():
            time.sleep(0.05)  # threads of the previous job spin for a while
            for _ in range(calls):
                start = time.perf_counter()
                job()
                times[name] = min(times[name], 1e3 * (time.perf_counter() - start))
    return times


def report(title: str, times: dict[str, float], rivals: set[str]) -> None:
    print(title)
    best = min((time for name, time in times.items() if name in rivals), default=float("nan"))
    for name, milliseconds in times.items():
        print(f"  {name:<28}{milliseconds:10.2f} ms {best / milliseconds:7.2f} ×")


class Grid:
    """Milliseconds by density and block size, each with the speed-up over the fastest alternative of its run."""

    def __init__(self, blocks: list[int]) -> None:
        self.blocks = blocks
        self.rows: dict[str, dict[float, list[str]]] = {}

    def add(self, who: str, density: float, times: dict[str, float], rivals: set[str]) -> None:
        best = min((times[name] for name in rivals), default=float("nan"))

        def cell(name: str) -> str:
            return f"{times[f'{who}, {name}']:.2f} ({best / times[f'{who}, {name}']:.2f} ×)"

        rows = self.rows.setdefault(who, {})
        rows[1.0] = [cell("dense")] * len(self.blocks)
        rows[density] = [cell(f"density {density:g}, b = {block}") for block in self.blocks]

    def print(self) -> None:
        """Print the table, unless there is only one density."""
        for who, rows in self.rows.items():
            if len(rows) < 3:
                continue
            print(f"{who}, ms\n  {'zeros':>8}" + "".join(f"{f'b = {block}':>20}" for block in self.blocks))
            for density, cells in rows.items():
                print(f"  {100 * (1 - density):6.3g} %" + "".join(f"{cell:>20}" for cell in cells))


def linear_layers(model: nn.Module) -> Iterator[nn.Linear]:
    for module in model.modules():
        if isinstance(module, nn.Linear):
            yield module


def kept(weight: Tensor, density: float, block: int) -> Tensor:
    """The largest blocks of a matrix [outputs, inputs], and zeros elsewhere."""
    rows, cols = weight.shape
    if density >= 1 or rows % block or cols % block:
        return weight
    sizes = weight.view(rows // block, block, cols // block, block).abs().sum((1, 3))
    least_kept = sizes.flatten().kthvalue(max(1, int(sizes.numel() * (1 - density)))).values
    return weight * (sizes > least_kept).repeat_interleave(block, 0).repeat_interleave(block, 1)


def pruned(model: nn.Module, density: float, block: int) -> nn.Module:
    """A copy whose products keep their largest blocks."""
    model = copy.deepcopy(model)
    for layer in linear_layers(model.model.encoder):  # type: ignore[union-attr,arg-type]
        layer.weight.data = kept(layer.weight.data, density, block)
    return model


def alternatives(model: nn.Module, x: Tensor) -> dict[str, Job]:
    """Dense models of other libraries."""
    jobs: dict[str, Job] = {"PyTorch": lambda: model(x)}
    compiled = torch.compile(model)
    jobs["PyTorch, compiled"] = lambda: compiled(x)
    try:
        import openvino

        program = openvino.convert_model(model, example_input=x)
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
        request = openvino.compile_model(program, "CPU", settings).create_infer_request()
        jobs["OpenVINO"] = lambda: request.infer([x.numpy()])
    except ImportError as error:
        print(f"OpenVINO is left out: {error}")
    try:
        import io

        import onnxruntime

        file = io.BytesIO()
        torch.onnx.export(model, (x,), file, dynamo=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        jobs["ONNX Runtime"] = lambda: session.run(None, {name: x.numpy()})
    except ImportError as error:
        print(f"ONNX Runtime is left out: {error}")
    return jobs


def breakdown(model: tessera.CompiledModel, x: Tensor) -> str:
    """Milliseconds of a run by operation."""
    times: dict[str, float] = {}
    for operation in model.measure(x).operations:
        times[operation.operation] = times.get(operation.operation, 0) + 1e3 * operation.seconds
    return ", ".join(f"{name} {ms:.2f}" for name, ms in sorted(times.items(), key=lambda of: -of[1]) if ms >= 0.005)


def floor(model: tessera.CompiledModel, x: Tensor) -> float:
    """Milliseconds of the model's products alone."""
    return 1e3 * min(model.measure(x).seconds_by_kind["products"] for _ in range(3))


def compare_models(batch: int, layers: int, densities: list[float], blocks: list[int], rounds: int) -> None:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = First(BertModel(BertConfig(num_hidden_layers=layers), add_pooling_layer=False)).eval()
    x = torch.randint(5, 30000, (batch, 128))
    rivals, grid = alternatives(model, x), Grid(blocks)
    flops = 2 * x.numel() * sum(layer.weight.numel() for layer in linear_layers(model.model.encoder))
    for density in densities:
        modules = {"dense": model}
        modules |= {f"density {density:g}, b = {block}": pruned(model, density, block) for block in blocks}
        compiled = {name: tessera.compile(module, x) for name, module in modules.items()}
        for name, module in modules.items():
            wanted = module(x)
            error = float((compiled[name](x) - wanted).abs().max() / wanted.abs().max())
            assert error < 1e-4, f"{name} differs from PyTorch by {error}"
        jobs = {**rivals, **{f"Tessera, {name}": lambda m=m: m(x) for name, m in compiled.items()}}  # type: ignore[misc]
        times = least(jobs, rounds)
        report(f"BERT-base, {layers} layers, {batch} × 128 tokens, {flops / 1e9:.1f} GFLOP in products", times, set(rivals))
        for name, each in compiled.items():
            print(f"  {name}: {breakdown(each, x)} ms; floor {floor(each, x):.2f} ms")
        grid.add("Tessera", density, times, set(rivals))
    grid.print()


#: Sizes of attention alone, as in BERT-base.
BATCH, TOKENS, HEADS, HEAD_SIZE = 4, 512, 12, 64
#: Lengths of the sequences of a batch's packs. The last ones are like optimal packs of Wikipedia: twice as many
#: sequences as packs, and a sum of squares of three quarters of the maximum.
PACKS: dict[str, list[tuple[int, ...]]] = {
    "1 × 512": [(512,)] * BATCH,
    "2 × 256": [(256,) * 2] * BATCH,
    "4 × 128": [(128,) * 4] * BATCH,
    "8 × 64": [(64,) * 8] * BATCH,
    "270, 130, 70, 42": [(270, 130, 70, 42)] * BATCH,
    "as Wikipedia": [(512,), (450, 62), (400, 112), (360, 100, 52)],
}


def attention_in_tessera(
    arrays: dict[str, Tensor], trains: bool, packs: list[tuple[int, ...]] | None = None, **options: Attribute
) -> Job:
    """Attention of q, k and v, and its gradients; in packs, each sequence attends only to itself."""
    graph = tg.Graph()
    shape = tuple(arrays["q"].shape)
    inputs = [graph.input(name, shape) for name in "qkv"]
    given = {name: arrays[name] for name in ("q", "k", "v")}
    if packs is not None:
        inputs += [graph.input("ids", shape[:2], "u32")] * 2
        options["ids"] = 1
        numbers = [torch.arange(1, len(lengths) + 1, dtype=torch.int32) for lengths in packs]
        each = [ids.repeat_interleave(torch.tensor(lengths)) for ids, lengths in zip(numbers, packs, strict=True)]
        given["ids"] = torch.stack(each)
    if "p" in options:
        inputs.append(graph.step())
    attributes = {"heads": HEADS, **options}
    y, logarithms = apply_all("attention", inputs, attributes)
    graph.output("y", y)
    if trains:
        results = [y, logarithms, graph.input("dy", y.shape)]
        gradients = apply_all("attention_gradient", [*inputs, *results], attributes)
        for name, gradient in zip("qkv", gradients, strict=True):
            graph.output("d" + name, gradient)
        given["dy"] = arrays["dy"]
    session = graph.session()
    return lambda: session.run(**given)


def random_arrays() -> dict[str, Tensor]:
    return {name: torch.randn(BATCH, TOKENS, HEADS * HEAD_SIZE) for name in ("q", "k", "v", "dy")}


def compare_attention(rounds: int) -> None:
    arrays = random_arrays()

    def session(trains: bool = False, packed: bool = False, **options: Attribute) -> Job:
        return attention_in_tessera(arrays, trains, PACKS["4 × 128"] if packed else None, **options)

    by_head = [x.view(BATCH, TOKENS, HEADS, HEAD_SIZE).transpose(1, 2).contiguous() for x in arrays.values()]
    leaves = [x.requires_grad_() for x in by_head[:3]]

    def attend(trains: bool = False, **options: object) -> Job:
        def forward() -> Tensor:
            y: Tensor = nn.functional.scaled_dot_product_attention(*leaves, **options)  # type: ignore[arg-type]
            return y

        def step() -> object:
            with torch.enable_grad():
                return torch.autograd.grad(forward(), leaves, by_head[3])

        return step if trains else forward

    of = "attention, 4 × 512 tokens, 12 heads of 64"
    for trains in (False, True):
        jobs = {
            "PyTorch": attend(trains),
            "PyTorch, causal": attend(trains, is_causal=True),
            "Tessera": session(trains),
            "Tessera, causal": session(trains, right=0),
            "Tessera, packs of 4 × 128": session(trains, packed=True),
        }
        report(f"{of}{', forward and backward' if trains else ''}", least(jobs, rounds), {"PyTorch"})
    jobs = {
        "PyTorch, dropout": attend(True, dropout_p=0.1),
        "Tessera, dropout": session(True, p=0.1, seed=0),
    }
    report(f"{of}, forward and backward with dropout", least(jobs, min(rounds, 2)), {"PyTorch, dropout"})


def compare_packs(rounds: int) -> None:
    """Times of attention on packs, beside the times expected if they grow with the squares of lengths."""
    arrays = random_arrays()
    for trains in (False, True):
        jobs = {name: attention_in_tessera(arrays, trains, packs) for name, packs in PACKS.items()}
        jobs["1 × 512, without ids"] = attention_in_tessera(arrays, trains)
        times = least(jobs, rounds)
        print(f"attention, {BATCH} × {TOKENS} tokens, {HEADS} heads of {HEAD_SIZE}{', and gradients' * trains}")
        print(f"  {'sequences of a pack':<24}{'ms':>8} {'Σ length² / Σ tokens²':>22} {'time / expected':>16}")
        for name, milliseconds in times.items():
            lengths = [length for pack in PACKS.get(name, PACKS["1 × 512"]) for length in pack]
            squares = sum(length**2 for length in lengths) / (BATCH * TOKENS**2)
            ratio = milliseconds / (squares * times["1 × 512"])
            print(f"  {name:<24}{milliseconds:8.2f} {squares:22.3f} {ratio:16.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--density", type=float, nargs="*", default=[0.1])
    parser.add_argument("--block", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--attention", action="store_true", help="measure attention alone")
    parser.add_argument("--packs", action="store_true", help="measure attention on packs of several lengths")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tessera.set_num_threads(options.threads)
    with torch.no_grad():
        if options.attention or options.packs:
            (compare_packs if options.packs else compare_attention)(options.rounds)
            return
        for batch in options.batch:
            compare_models(batch, options.layers, options.density, options.block, options.rounds)


if __name__ == "__main__":
    main()
