"""Benchmarks of ONNX models against ONNX Runtime and OpenVINO, as far as these are installed."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera._arguments import chosen
from tessera._config import get_num_threads
from tessera._tessera import OnnxModel
from tessera.onnx import InferenceSession

Feed = dict[str, NDArray[Any]]
Run = Callable[[Feed], Any]
Shapes = Mapping[str, Sequence[int] | int]

_ENGINES = ("tessera", "onnxruntime", "openvino")
#: The number of turns into which the time of an engine with several streams is divided.
_TURNS = 10


def benchmark(
    model: str | os.PathLike[str],
    shapes: Shapes | None = None,
    *,
    batch: int = 0,
    threads: int = 0,
    streams: int = 1,
    seconds: float = 10.0,
    warm_up: float = 1.0,
    engines: Sequence[str] = _ENGINES,
    seed: int = 0,
) -> dict[str, dict[str, float]]:
    """Time runs of a model on random inputs, the engines in turn, so that a disturbance affects all engines alike.

    All engines compute in FP32, with `threads` threads, which `streams` simultaneous runs share. `batch` is the number
    of samples where the model leaves it open, and `seconds` the time of all engines together. Returns for each engine
    the number of runs and their seconds, quantiles of the seconds of a run, and the largest difference between its
    results and the results of ONNX Runtime (or of the first engine), relative to the largest result. Engines that are
    not installed are left out.
    """
    for each in engines:
        chosen("engine", each, _ENGINES)
    if not all(0 <= each < math.inf for each in (seconds, warm_up)):
        raise ValueError(f"it runs {seconds} seconds, after {warm_up}: these must be finite, and not negative")
    threads = threads or get_num_threads()
    if streams > threads:
        raise ValueError(f"streams is {streams}; it must be at most the number of threads, {threads}")
    given = dict(shapes or {}) if batch == 0 else _shapes_of_batch(model, shapes or {}, batch)
    session = InferenceSession(model, shapes=given, threads=threads // streams)
    feed = _random_feed(session, np.random.default_rng(seed))
    makers: dict[str, Callable[[], list[Run]]] = {
        "tessera": lambda: _tessera(session, model, given, threads // streams, streams),
        "onnxruntime": lambda: [_onnxruntime(model, threads // streams) for _ in range(streams)],
        "openvino": lambda: _openvino(model, threads, streams, feed),
    }
    runs: dict[str, list[Run]] = {}
    for name in engines:
        try:
            runs[name] = makers[name]()
        except ImportError:
            continue
    if not runs:
        raise ValueError(f"{sys.executable} cannot import {' or '.join(engines)}")
    results = {name: [run(feed) for run in each][0] for name, each in runs.items()}
    expected = results.get("onnxruntime", next(iter(results.values())))
    _times(runs, feed, warm_up)
    times = _times(runs, feed, seconds)
    samples = next((array.shape[0] if array.ndim else 1 for array in feed.values()), 1)
    return {
        name: {**times[name].quantities(samples), "difference": _difference(results[name], expected)} for name in runs
    }


@dataclass
class _Times:
    """Times of the runs of an engine."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def quantities(self, samples: int) -> dict[str, float]:
        ascending = sorted(self.latencies)

        def quantile(fraction: float) -> float:
            return ascending[int(fraction * (len(ascending) - 1))]

        return {
            "runs": len(ascending),
            "seconds": self.seconds,
            "samples_per_run": samples,
            "samples_per_second": len(ascending) * samples / self.seconds,
            "least_seconds": quantile(0),
            "median_seconds": quantile(0.5),
            "p90_seconds": quantile(0.9),
            "p99_seconds": quantile(0.99),
        }


def _shapes_of_batch(model: str | os.PathLike[str], shapes: Shapes, batch: int) -> dict[str, Sequence[int] | int]:
    """These shapes, with the number of samples where the model and the shapes leave it open."""
    found = dict(shapes)
    inputs = OnnxModel.read(os.fspath(model)).inputs
    sizes = []
    for each in inputs:
        if each.name in shapes:
            sizes.append(_first(shapes[each.name]))
        elif each.shape and each.shape[0] is None:
            raise ValueError(f"the first dimension of {each.name!r} has no name for the batch: give its shape")
        elif each.shape:
            first = each.shape[0]
            sizes.append(_first(found.setdefault(first, batch)) if isinstance(first, str) else first)
    if batch not in sizes:
        known = ", ".join(map(repr, inputs))
        raise ValueError(f"the batch is {batch}, but no input leaves its first dimension open: {known}")
    return found


def _first(shape: Sequence[int] | int) -> int | None:
    return shape if isinstance(shape, int) else next(iter(shape), None)


def _random_feed(session: InferenceSession, generator: np.random.Generator) -> Feed:
    """Random inputs for the prepared shapes: normally distributed numbers; 0 and 1 for integers and booleans."""
    shapes = session.prepared_shapes()
    if shapes is None:
        open_ones = ", ".join(repr(each) for each in session.get_inputs())
        raise ValueError(f"the model leaves sizes of its inputs open: give shapes of {open_ones}")
    feed: Feed = {}
    for each in session.get_inputs():
        name = each.type.removeprefix("tensor(").removesuffix(")")
        dtype = {"float": "float32", "double": "float64", "bfloat16": "float32"}.get(name, name)
        values = generator.standard_normal(shapes[each.name], dtype=np.float32)
        feed[each.name] = (values if dtype.startswith("float") else values > 0).astype(dtype)
    return feed


def _tessera(
    first: InferenceSession, model: str | os.PathLike[str], shapes: Shapes, threads: int, streams: int
) -> list[Run]:
    others = [InferenceSession(model, shapes=shapes, threads=threads) for _ in range(streams - 1)]

    def run_of(session: InferenceSession) -> Run:
        return lambda feed: session.run(None, feed)

    return [run_of(each) for each in (first, *others)]


def _onnxruntime(model: str | os.PathLike[str], threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(os.fspath(model), options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def _openvino(model: str | os.PathLike[str], threads: int, streams: int, feed: Feed) -> list[Run]:
    import openvino

    core = openvino.Core()
    read = core.read_model(os.fspath(model))
    read.reshape({name: list(array.shape) for name, array in feed.items()})
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    settings |= {"PERFORMANCE_HINT": "LATENCY"} if streams == 1 else {"NUM_STREAMS": streams}
    compiled = core.compile_model(read, "CPU", settings)

    def run_of(request: Any) -> Run:
        return lambda given: [np.array(each) for each in request.infer(given).values()]

    return [run_of(compiled.create_infer_request()) for _ in range(streams)]


def _times(runs: Mapping[str, Sequence[Run]], feed: Feed, seconds: float) -> dict[str, _Times]:
    """Time engines in turn: run by run for one stream, for a while for several, so that all streams are busy."""
    times = {name: _Times() for name in runs}
    most = max(len(streams) for streams in runs.values())
    turn = 0.0 if most == 1 else seconds / len(runs) / _TURNS
    end = time.perf_counter() + seconds
    with ThreadPoolExecutor(most) as pool:
        while True:
            for name, (first, *others) in runs.items():
                start = time.perf_counter()
                waiting = [pool.submit(_run_until, each, feed, start + turn) for each in others]
                times[name].latencies += _run_until(first, feed, start + turn)
                for each in waiting:
                    times[name].latencies += each.result()
                times[name].seconds += time.perf_counter() - start
            if time.perf_counter() >= end:
                return times


def _run_until(run: Run, feed: Feed, end: float) -> list[float]:
    """Run until `end`, at least once; returns the seconds of each run."""
    latencies: list[float] = []
    while not latencies or time.perf_counter() < end:
        start = time.perf_counter()
        run(feed)
        latencies.append(time.perf_counter() - start)
    return latencies


def _difference(results: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest relative difference; NaN if only one result is NaN at some place."""
    most = 0.0
    for result, wanted in zip(results, expected, strict=True):
        ours, theirs = np.asarray(result, np.float64), np.asarray(wanted, np.float64)
        differ = (ours != theirs) & ~(np.isnan(ours) & np.isnan(theirs))
        distances = np.abs(ours[differ] - theirs[differ])
        if not np.isfinite(distances).all():
            return math.nan
        scale = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0)) or 1.0
        most = max(most, float(distances.max(initial=0)) / scale)
    return most


def main(arguments: Sequence[str] | None = None) -> None:
    """The command of `python -m tessera.onnx`."""
    parser = argparse.ArgumentParser(
        prog="python -m tessera.onnx",
        description="Time a model from an ONNX file in Tessera, ONNX Runtime and OpenVINO.",
        epilog="example: python -m tessera.onnx benchmark model.onnx --batch 8 --shape tokens=128 --streams 2",
    )
    parser.add_argument("command", choices=["benchmark"])
    parser.add_argument("model")
    parser.add_argument(
        "--shape", action="append", default=[], metavar="NAME=1,128", help="shape of an input, or size of a dimension"
    )
    parser.add_argument("--batch", type=_count, default=0, help="samples per run, where the model leaves them open")
    parser.add_argument("--streams", type=_count, default=1, help="simultaneous runs, which share the threads")
    parser.add_argument("--threads", type=_count, default=0, help="threads of each engine (default: all cores)")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds of measurement of all engines together")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds of runs before the measurement")
    parser.add_argument("--engines", default=",".join(_ENGINES), help="engines to time (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    shapes: dict[str, list[int]] = {}
    for each in given.shape:
        name, _, sizes = each.rpartition("=")
        if not name or not all(size.isdigit() for size in sizes.split(",")):
            parser.error(f"argument --shape: invalid value {each!r} (expected NAME=SIZES, such as ids=1,128)")
        shapes[name] = [int(size) for size in sizes.split(",")]
    threads, engines = given.threads or get_num_threads(), given.engines.split(",")
    options = {"batch": given.batch, "streams": given.streams, "seconds": given.seconds, "warm_up": given.warm_up}
    try:
        results = benchmark(given.model, shapes, threads=threads, engines=engines, **options)
    except ValueError as error:
        parser.error(str(error))
    except RuntimeError as error:
        sys.exit(f"tessera: {error}")
    if missing := [name for name in engines if name not in results]:
        print(f"tessera: {sys.executable} cannot import {', '.join(missing)}", file=sys.stderr)
    if given.json:
        about = {"model": given.model, "streams": given.streams, "threads_per_stream": threads // given.streams}
        rows = [
            # JSON has no NaN.
            {"engine": name, **{key: None if math.isnan(number) else number for key, number in each.items()}}
            for name, each in results.items()
        ]
        print(json.dumps({"schema": 1, "command": "benchmark", **about, "results": rows}, indent=2))
        return
    titles = ("samples/s", "minimum ms", "median ms", "90 % ms", "99 % ms", "difference")
    print(f"{'engine':12} {'runs':>6}" + "".join(f"{title:>11}" for title in titles))
    for name, each in results.items():
        times = [1e3 * each[f"{which}_seconds"] for which in ("least", "median", "p90", "p99")]
        row = f"{name:12} {each['runs']:6.0f}{each['samples_per_second']:11.1f}"
        print(row + "".join(f"{time:11.3f}" for time in times) + f"{each['difference']:11.1e}")


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid value {text!r} (expected a whole number from 1)")
    return int(text)
