"""Models of ONNX files beside ONNX Runtime and OpenVINO, as far as these are installed."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera._config import get_num_threads
from tessera.onnx import InferenceSession

Feed = dict[str, NDArray[Any]]
Run = Callable[[Feed], Any]


def benchmark(
    model: str | os.PathLike[str],
    shapes: Mapping[str, Sequence[int] | int] | None = None,
    *,
    threads: int = 0,
    seconds: float = 10.0,
    engines: Sequence[str] = ("tessera", "onnxruntime", "openvino"),
    seed: int = 0,
) -> dict[str, dict[str, float]]:
    """Time runs of a model on random inputs, the engines in turn so that what disturbs one disturbs all.

    All compute in FP32, with as many threads. Returns, by engine, the least and the median of the seconds of a run, and
    the largest difference of its results to those of ONNX Runtime, or the first engine, relative to the largest result.
    Engines that are not installed are left out.
    """
    threads = threads or get_num_threads()
    session = InferenceSession(model, shapes=shapes, threads=threads)
    feed = _random_feed(session, np.random.default_rng(seed))
    makers: dict[str, Callable[[], Run]] = {
        "tessera": lambda: (lambda given: session.run(None, given)),
        "onnxruntime": lambda: _onnxruntime(model, threads),
        "openvino": lambda: _openvino(model, threads, feed),
    }
    unknown = [each for each in engines if each not in makers]
    if unknown:
        raise ValueError(f"there is no engine {unknown[0]!r}: use {', '.join(makers)}")
    runs: dict[str, Run] = {}
    for name in engines:
        try:
            runs[name] = makers[name]()
        except ImportError:
            continue
    results = {name: run(feed) for name, run in runs.items()}
    expected = results.get("onnxruntime", next(iter(results.values())))
    times = _times(runs, feed, seconds)
    return {
        name: {
            "runs": float(len(times[name])),
            "least_seconds": min(times[name]),
            "median_seconds": float(np.median(times[name])),
            "difference": _difference(results[name], expected),
        }
        for name in runs
    }


def _random_feed(session: InferenceSession, generator: np.random.Generator) -> Feed:
    """For the shapes of the session that is prepared: numbers normally distributed, integers and truth values 0 and 1."""
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


def _onnxruntime(model: str | os.PathLike[str], threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(os.fspath(model), options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def _openvino(model: str | os.PathLike[str], threads: int, feed: Feed) -> Run:
    import openvino

    core = openvino.Core()
    read = core.read_model(os.fspath(model))
    read.reshape({name: list(array.shape) for name, array in feed.items()})
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(read, "CPU", settings)
    return lambda given: [np.array(each) for each in compiled(given).values()]


def _times(runs: Mapping[str, Run], feed: Feed, seconds: float) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    while True:
        for name, run in runs.items():
            start = time.perf_counter()
            run(feed)
            times[name].append(time.perf_counter() - start)
        if time.perf_counter() >= end:
            return times


def _difference(results: Sequence[Any], expected: Sequence[Any]) -> float:
    most = 0.0
    for result, wanted in zip(results, expected, strict=True):
        scale = float(np.abs(wanted).max(initial=0)) or 1.0
        most = max(most, float(np.abs(np.asarray(result, np.float64) - wanted).max(initial=0)) / scale)
    return most if math.isfinite(most) else math.nan


def main(arguments: Sequence[str] | None = None) -> None:
    """The command of `python -m tessera.onnx`."""
    parser = argparse.ArgumentParser(
        prog="python -m tessera.onnx",
        description="Time a model of an ONNX file here, in ONNX Runtime and in OpenVINO.",
        epilog="example: python -m tessera.onnx benchmark model.onnx --shape batch=8 --shape tokens=128",
    )
    parser.add_argument("command", choices=["benchmark"])
    parser.add_argument("model")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=1,128")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    shapes: dict[str, list[int]] = {}
    for each in given.shape:
        name, _, sizes = each.rpartition("=")
        if not name or not all(size.isdigit() for size in sizes.split(",")):
            parser.error(f"--shape takes NAME=1,128; {each!r} is not that")
        shapes[name] = [int(size) for size in sizes.split(",")]
    try:
        results = benchmark(given.model, shapes, threads=given.threads, seconds=given.seconds)
    except ValueError as error:
        parser.error(str(error))
    except RuntimeError as error:
        sys.exit(f"tessera: {error}")
    if given.json:
        rows = [{"engine": name, **each} for name, each in results.items()]
        print(json.dumps({"schema": 1, "command": "benchmark", "model": given.model, "results": rows}, indent=2))
        return
    print(f"{'engine':12} {'runs':>6} {'least ms':>10} {'median ms':>10} {'difference':>11}")
    for name, each in results.items():
        milliseconds = f"{each['least_seconds'] * 1e3:10.3f} {each['median_seconds'] * 1e3:10.3f}"
        print(f"{name:12} {each['runs']:6.0f} {milliseconds} {each['difference']:11.1e}")
