"""`tessera benchmark` of ONNX files."""

from __future__ import annotations

import json
import pathlib
import sys

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import helper  # noqa: E402
from onnx_files import model_of  # noqa: E402

from tessera import _onnx_benchmark  # noqa: E402


def test_times_beside_others(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    weight = np.ones((3, 2), np.float32)
    path.write_bytes(model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("n", 3)}, ["y"], {"w": weight}))
    command = ["benchmark", str(path), "--seconds", "0.01", "--warm-up", "0.01", "--threads", "2"]
    for samples in (["--shape", "n=4"], ["--batch", "4"], ["--batch", "4", "--shape", "x=4,3", "--streams", "2"]):
        _onnx_benchmark.main([*command, *samples, "--json"])
        result = json.loads(capsys.readouterr().out)
        streams = 2 if "--streams" in samples else 1
        assert (result["streams"], result["threads_per_stream"]) == (streams, 2 // streams)
        row = result["results"][0]
        assert row["engine"] == "tessera" and row["runs"] >= streams and row["difference"] < 1e-5
        assert row["samples_per_run"] == 4 and row["samples_per_second"] == 4 * row["runs"] / row["seconds"]
        times = [row[f"{which}_seconds"] for which in ("least", "median", "p90", "p99")]
        assert 0 < times[0] and times == sorted(times)
    _onnx_benchmark.main([*command, "--batch", "4", "--engines", "tessera"])
    assert capsys.readouterr().out.splitlines()[1].startswith("tessera ")
    for wrong, message in (
        ([], "leaves sizes of its inputs open"),
        (["--batch", "4", "--shape", "n=3"], "the batch is 4, but no input leaves its first dimension open"),
        (["--batch", "4", "--streams", "3"], "streams is 3; it must be at most the number of threads, 2"),
        (["--batch", "0"], "argument --batch: invalid"),
        (["--batch", "4", "--engines", "tessera,other"], "unknown engine 'other'"),
        (["--batch", "4", "--seconds", "nan"], "it runs nan seconds, after 0.01: these must be finite"),
    ):
        with pytest.raises(SystemExit) as error:
            _onnx_benchmark.main([*command, *wrong])
        assert error.value.code == 2 and message in capsys.readouterr().err


def test_differences_of_results_that_are_no_numbers(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def difference(result: list[float], expected: list[float]) -> float:
        return _onnx_benchmark._difference([np.array(result, np.float32)], [np.array(expected, np.float32)])

    assert difference([np.nan, np.inf, -np.inf, 2], [np.nan, np.inf, -np.inf, 4]) == 0.5
    for result, expected in (([np.nan, 1], [1, 1]), ([1, 1], [1, np.nan]), ([np.inf], [1]), ([np.inf], [-np.inf])):
        assert np.isnan(difference(result, expected))
    assert _onnx_benchmark._difference([np.float32(3)], [np.float32(4)]) == 0.25
    monkeypatch.setattr(_onnx_benchmark, "_difference", lambda *_: np.nan)
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 3)}, ["y"], {}))
    times = ["--seconds", "0.01", "--warm-up", "0.01"]
    _onnx_benchmark.main(["benchmark", str(path), *times, "--engines", "tessera", "--json"])
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert printed["results"][0]["difference"] is None


def test_times_of_engines_that_are_missing(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 3)}, ["y"], {}))
    command = ["benchmark", str(path), "--seconds", "0.01", "--warm-up", "0.01"]
    _onnx_benchmark.main([*command, "--json"])
    printed = capsys.readouterr()
    assert [row["engine"] for row in json.loads(printed.out)["results"]] == ["tessera"]
    assert "cannot import onnxruntime, openvino" in printed.err
    with pytest.raises(SystemExit):
        _onnx_benchmark.main([*command, "--engines", "openvino"])
    assert "cannot import openvino" in capsys.readouterr().err
