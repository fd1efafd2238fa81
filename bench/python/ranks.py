"""Training steps of one and of several ranks, beside DistributedDataParallel of PyTorch, in one run.

    python bench/python/ranks.py                            # 2 ranks of one core each: BERT-base, and a small network
    python bench/python/ranks.py --cases bert               # about five minutes on two cores; others one or two
    python bench/python/ranks.py --cases network --ranks 1 2 4
    python bench/python/ranks.py --json ranks.json          # for bench/python/scaling.py

Each rank is a process with its own core and one thread; ranks exchange through gloo. All jobs take turns of a few
steps; with BERT, whose processes take gigabytes each, first the jobs of one library do, then the jobs of the other.
Times are medians; the speed-up is rows per second over rows per second of one rank of the same library. Bytes are sent
by a rank in a step: as predicted, as counted, and as all network interfaces of this computer count them, with the
headers of packets. If there are more ranks than cores, ranks share cores. With stages, each rank has some of the
layers, and all have the same rows; DDP has no such division.

The transport is also measured alone: two ranks send each other a message of each size at the same time. Its busy time
is the processor time of all threads of a rank.

Each measurement is reported on stderr.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from progress import tell

MARK = "@@"  # begins a line for the other process, as libraries print lines too
SIZES = [64 * 4**power for power in range(10)]
NETWORK = ((784, 1024, 1024, 10), 512)
#: Rows of a micro-batch, width and number of equal layers, stages, micro-batches in a step.
PIPELINE = (256, 1024, 4, 2, 8)
CASES = ("bert", "network", "divided", "stages")
LIBRARIES = ("Tessera", "PyTorch")
#: Seconds for which ranks wait for each other, so that the loss of one ends the others.
RANK_TIMEOUT = 120


@dataclass(frozen=True)
class Turns:
    """The number of steps of a job before the first turn and in each turn, and the number of turns."""

    warm_up: int
    steps: int
    count: int


#: A step of BERT-base takes five to ten seconds of a core, a step of the network a tenth of a second.
TURNS = {"bert": Turns(1, 1, 4), "network": Turns(2, 10, 5), "divided": Turns(2, 10, 5), "stages": Turns(2, 1, 5)}


@dataclass
class Spec:
    """The work of a process."""

    case: str
    package: str
    ranks: int
    size: str = "base"

    def title(self) -> str:
        if self.case == "bert":
            return f"BERT-{self.size}, two packs each"
        if self.case == "stages":
            rows, width, layers, stages, micro_batches = PIPELINE
            return f"{layers} layers of {width} on {stages} stages, {micro_batches} micro-batches of {rows}"
        sizes, batch = NETWORK
        return f"{'-'.join(map(str, sizes))}, batch {batch} {'in all' if self.case == 'divided' else 'each'}"

    def job(self) -> str:
        return f"{self.package}, {self.ranks} × 1 core"

    def rows(self) -> int:
        """The rows of all ranks as a multiple of the rows of one rank alone."""
        return 1 if self.case in ("divided", "stages") else self.ranks

    def is_possible(self) -> bool:
        """Whether the library can do this: only Tessera divides stages, equally among ranks."""
        return self.case != "stages" or (self.package == "Tessera" and PIPELINE[3] % self.ranks == 0)


# A rank, in its own process.


@dataclass
class Rank:
    step: Callable[[], object]
    session: Any = None
    #: Bytes of gradients, in the order in which they are computed.
    gradients: list[int] = field(default_factory=list)
    #: Bytes that one layer passes to the next for a micro-batch.
    message: int = 0


def group_of(spec: Spec) -> Any:
    return None if spec.ranks == 1 else connected()


def connected() -> Any:
    """All processes of the job."""
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=RANK_TIMEOUT))
    return dist.group.WORLD


def wrapped(module: Any, group: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return module if group is None else DistributedDataParallel(module)


def rank_of(step: Any, group: Any, arrays: Callable[[Any], object], message: int) -> Rank:
    session = step.session("host", threads=1, process_group=group, rank_timeout=RANK_TIMEOUT)
    sizes = [4 * session.get(value.name).size for value in step.parameters]
    return Rank(lambda: arrays(session), session, sizes[::-1], message)


def bert_rank(spec: Spec, group: Any) -> Rank:
    from packed_bert import PREDICTIONS, Batch, config_of, in_pytorch, packs_of, step_in_tessera

    config, batch = config_of(spec.size), Batch(packs_of(2), PREDICTIONS)
    if spec.package == "PyTorch":
        return Rank(in_pytorch(config, batch, False, lambda module: wrapped(module, group)))
    step = step_in_tessera(config, batch, replicas=spec.ranks)
    message = 4 * batch.arrays["input_ids"].size * config.hidden_size
    return rank_of(step, group, lambda session: session.run(**batch.arrays), message)


def network_rank(spec: Spec, group: Any) -> Rank:
    import torch
    from training_step import RATE, in_pytorch, network

    from tessera import graph as tg

    sizes, batch = NETWORK
    rows = batch // spec.ranks if spec.case == "divided" else batch
    torch.manual_seed(1)
    module, x, labels = network(sizes, None), torch.randn(rows, sizes[0]), torch.randint(sizes[-1], (rows,))
    if spec.package == "PyTorch":
        return Rank(in_pytorch(wrapped(module, group), "sgd", x, labels, fused=True))
    graph = tg.from_torch(module, x)
    step = graph.training_step("cross_entropy", "sgd", lr=RATE, momentum=0.9, replicas=spec.ranks)
    return rank_of(step, group, lambda session: session.run(x, labels), 4 * rows * sizes[1])


def stages_rank(spec: Spec, group: Any) -> Rank:
    import numpy as np

    from tessera import graph as tg

    rows, width, layers, stages, micro_batches = PIPELINE
    layer = tg.Graph()
    layer.output("y", tg.gelu(tg.linear(layer.input("x", (rows, width)), layer.input("weight", (width, width)))))
    graph = tg.Graph()
    h = graph.input("x", (rows, width))
    for number in range(layers):
        weight = graph.parameter(f"weight{number}", (width, width), tg.normal(0.03))
        h = graph.call(layer, h, weight, stage=number * stages // layers)["y"]
    graph.output("logits", h)
    step = graph.training_step(
        "cross_entropy", "sgd", lr=0.01, momentum=0.9, micro_batches=micro_batches, pipeline="1f1b"
    )
    random = np.random.default_rng(1)  # the ranks of a replica have the same rows
    x = random.standard_normal((rows * micro_batches, width), np.float32)
    labels = random.integers(width, size=rows * micro_batches)
    return rank_of(step, group, lambda session: session.run(x, labels), 4 * rows * width)


RANKS_OF = {"bert": bert_rank, "network": network_rank, "divided": network_rank, "stages": stages_rank}


def timed(step: Callable[[], object], count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds


def reply(answer: object) -> None:
    print(MARK + json.dumps(answer), flush=True)


def backward_share(session: Any) -> float:
    """The part of the backward pass in a step's predicted time: its products take twice as long as forward products."""
    kinds = session.cost().seconds_by_kind
    products = sum(seconds for kind, seconds in kinds.items() if kind in ("products", "attention"))
    return float(2 / 3 * products / sum(kinds.values()))


def serve(spec: Spec) -> None:
    """Answer requests, one per line: a number of steps, or a word."""
    group = group_of(spec)
    rank = RANKS_OF[spec.case](spec, group)
    timed(rank.step, TURNS[spec.case].warm_up)
    about: dict[str, object] = {}
    if rank.session is not None:
        about = {
            "predicted": rank.session.cost().sent_bytes,
            "gradients": rank.gradients,
            "message": rank.message,
            "backward": backward_share(rank.session),
        }
    reply(about)
    for line in sys.stdin:
        before = 0 if rank.session is None else rank.session.sent_bytes
        seconds = timed(rank.step, int(line))
        reply({"seconds": seconds, "sent": 0 if rank.session is None else rank.session.sent_bytes - before})


def serve_transport() -> None:
    """Measure messages to and from the other rank, sent as by the engine, and the handling of a byte."""
    import numpy as np
    import torch.distributed as dist

    from tessera.graph._ranks import _Ranks

    ranks, other = _Ranks(connected(), RANK_TIMEOUT), 1 - dist.get_rank()
    for size in SIZES:
        sent, received = memoryview(bytearray(size)), memoryview(bytearray(size))
        count = max(8, min(500, (1 << 28) // size))

        def exchange(sent: memoryview = sent, received: memoryview = received) -> None:
            ranks.exchange([(other, sent)], [(other, received)])

        timed(exchange, 4)
        busy = time.process_time()
        seconds = timed(exchange, count)
        busy = (time.process_time() - busy) / count
        median = statistics.median(seconds)
        reply({"bytes": size, "seconds": median, "busy_seconds": min(busy, median)})
    numbers, others = np.ones(1 << 22, np.float32), np.ones(1 << 22, np.float32)
    message = np.empty_like(numbers)

    def handle() -> None:
        np.copyto(message, others)  # every message is written
        np.add(numbers, message, out=numbers)  # half of them are added, the others copied

    timed(handle, 3)
    reply(statistics.median(timed(handle, 20)) / numbers.nbytes)


# Starting ranks, and letting them take turns.


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def cores() -> list[int]:
    """One processor of each core."""

    def core_of(processor: int) -> str:
        try:
            return Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list").read_text("ascii")
        except OSError:
            return str(processor)

    return sorted({core_of(each): each for each in sorted(os.sched_getaffinity(0), reverse=True)}.values())


class Ranks:
    """The processes of a job."""

    def __init__(self, arguments: list[str], ranks: int) -> None:
        own = cores()
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
        self._processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank-of", *arguments, "--core", str(own[rank % len(own)])],
                env={**os.environ, **shared, "OMP_NUM_THREADS": "1", "RANK": str(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
            )
            for rank in range(ranks)
        ]

    def answers(self) -> list[Any]:
        return [self._answer_of(process) for process in self._processes]

    @staticmethod
    def _answer_of(process: subprocess.Popen[str]) -> Any:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(MARK):
                return json.loads(line[len(MARK) :])
        raise SystemExit(f"a rank has ended with status {process.wait()}")

    def ask(self, request: object) -> list[Any]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{request}\n")
            process.stdin.flush()
        return self.answers()

    def end(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        deadline = time.monotonic() + 30
        for process in self._processes:
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def started(arguments: list[str], ranks: int) -> Iterator[Ranks]:
    job = Ranks(arguments, ranks)
    try:
        yield job
    finally:
        job.end()


def bytes_of_interfaces() -> int:
    """The bytes that all network interfaces have sent since the computer started; 0: unknown."""
    try:
        lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()[2:]
    except OSError:
        return 0
    return sum(int(line.partition(":")[2].split()[8]) for line in lines)


@dataclass
class Result:
    spec: Spec
    about: dict[str, Any]
    seconds: list[float] = field(default_factory=list)
    sent: int = 0  # by rank 0
    wire: int = 0  # by all

    def add(self, job: Ranks, steps: int) -> None:
        before = bytes_of_interfaces()
        answers = job.ask(steps)
        self.wire += bytes_of_interfaces() - before
        self.seconds += answers[0]["seconds"]
        self.sent += answers[0]["sent"]

    def median(self) -> float:
        return statistics.median(self.seconds)

    def line(self, alone: Result) -> str:
        speed_up = self.spec.rows() * alone.median() / self.median()
        text = f"{'  ' + self.spec.job():<28}{1e3 * self.median():10.2f} ms{speed_up:7.3f} ×"
        if self.spec.ranks == 1:
            return text
        steps = len(self.seconds)
        own = f"{self.about['predicted']:14,} predicted {self.sent // steps:14,} counted" if self.about else " " * 49
        return f"{text}{own}{self.wire // steps // self.spec.ranks:14,} on interfaces"


def measured(case: str, a: argparse.Namespace) -> dict[str, list[Result]]:
    """Results by library, one for each number of ranks."""
    results: dict[str, list[Result]] = {}
    for libraries in [[library] for library in a.libraries] if case == "bert" else [a.libraries]:
        specs = [Spec(case, library, ranks, a.size) for library in libraries for ranks in a.ranks]
        for result in take_turns([spec for spec in specs if spec.is_possible()], TURNS[case], a.rounds):
            results.setdefault(result.spec.package, []).append(result)
    return results


def take_turns(specs: list[Spec], turns: Turns, rounds: int | None) -> list[Result]:
    """The results of jobs, run in turns: `rounds` of them, or as many as `turns` says."""
    count = turns.count if rounds is None else rounds
    jobs: list[tuple[Ranks, Result]] = []
    try:
        for spec in specs:
            job = Ranks([spec.case, spec.package, str(spec.ranks), spec.size], spec.ranks)
            jobs.append((job, Result(spec, {})))
            jobs[-1][1].about = job.answers()[0]
            tell(f"{spec.title()}: {spec.job()}: ready")
        for turn in range(count):
            for job, result in jobs:
                result.add(job, turns.steps)
                taken = statistics.median(result.seconds[-turns.steps :])
                tell(f"{result.spec.job()}, turn {turn + 1} of {count}: {1e3 * taken:,.0f} ms")
    finally:
        for job, _ in jobs:
            job.end()
    return [result for _, result in jobs]


def report(results: dict[str, list[Result]]) -> None:
    print(next(iter(results.values()))[0].spec.title())
    for of_library in results.values():
        for result in of_library:
            print(result.line(of_library[0]))


def transport_of() -> dict[str, Any]:
    messages = []
    with started(["transport", "Tessera", "2", ""], 2) as job:
        for size in SIZES:
            messages.append(job.answers()[0])
            tell(f"messages of {size:,} bytes: {1e6 * messages[-1]['seconds']:,.0f} µs")
        handling: float = job.answers()[0]
    return {"name": "gloo", "messages": messages, "handling_seconds_per_byte": handling}


def report_transport(transport: dict[str, Any]) -> None:
    print(f"{transport['name']}, two ranks send each other a message at the same time")
    for message in transport["messages"]:
        seconds = message["seconds"]
        print(
            f"  {message['bytes']:12,} bytes{1e6 * seconds:12,.0f} µs, core busy"
            f"{1e6 * message['busy_seconds']:10,.0f}{message['bytes'] / seconds / 1e6:10,.0f} MB/s each way"
        )


def model_of(of_library: list[Result]) -> dict[str, Any]:
    """The figures of a case for bench/python/scaling.py; its step is the same with any number of ranks."""
    from scaling import sums_of

    alone = of_library[0]
    return {
        "name": alone.spec.title(),
        "step_seconds": alone.median(),
        "backward_seconds": alone.median() * alone.about["backward"],
        "sums": sums_of(alone.about["gradients"]),
        "message_bytes": alone.about["message"],
        "points": [{"ranks": r.spec.ranks, "seconds": r.median()} for r in of_library],
    }


def computer() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.machine()
    return f"{len(cores())} cores of {model}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2], help="numbers of ranks, the first as reference")
    parser.add_argument("--size", default="base", help="size of BERT")
    parser.add_argument("--rounds", type=int, help="turns of each job (default: 4 with BERT, otherwise 5)")
    parser.add_argument("--json", type=Path, help="file for the measurements")
    parser.add_argument("--rank-of", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.rank_of is not None:
        os.sched_setaffinity(0, {a.core})
        case, library, ranks, size = a.rank_of
        if case == "transport":
            return serve_transport()
        import torch

        torch.set_num_threads(1)
        return serve(Spec(case, library, int(ranks), size))
    if a.ranks[0] != 1:
        parser.error("--ranks begins with 1")
    if max(a.ranks) > len(cores()):
        print(f"{max(a.ranks)} ranks share {len(cores())} cores")
    transport = transport_of()
    report_transport(transport)
    models, pipelines = [], []
    for case in a.cases:
        results = measured(case, a)
        if not results:
            continue
        report(results)
        if case == "stages":
            pipelines.append(model_of(results["Tessera"]) | {"micro_batches": PIPELINE[4]})
        elif case != "divided" and "Tessera" in results:
            models.append(model_of(results["Tessera"]))
    if a.json is not None:
        versions = f"PyTorch {importlib.metadata.version('torch').partition('+')[0]}"
        origin = {"computer": computer(), "versions": versions, "date": datetime.date.today().isoformat()}
        file = {**origin, "cores": len(cores()), "transport": transport, "cases": models, "pipelines": pipelines}
        a.json.write_text(json.dumps(file, indent=2), encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
