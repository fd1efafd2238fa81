"""The examples run, on small problems."""

import contextlib
import io
import os
import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples"


def output_of(name, *arguments, with_data=False):
    """Runs in this process: importing PyTorch again takes longer than most examples."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        if not with_data:  # synthetic images are fewer than MNIST's
            patch.delenv("TESSERA_DATA", raising=False)
        patch.setattr(sys, "argv", [name, *arguments])
        patch.syspath_prepend(EXAMPLES)
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return out.getvalue()


def test_images_are_those_of_the_data_folder():
    if not (Path(os.environ.get("TESSERA_DATA", "")) / "mnist").is_dir():
        pytest.skip("TESSERA_DATA names no folder with MNIST")
    out = output_of("network_on_ipu.py", "--hidden", "16", "--batch", "256", "--epochs", "1", with_data=True)
    assert "mnist" in out.lower() and "synthetic" not in out


def test_prune_and_finetune():
    out = output_of("prune_and_finetune.py", "--hidden", "128", "--epochs", "2", "--density", "0.2")
    accuracies = [float(line.split("accuracy ")[1].split(",")[0]) for line in out.splitlines() if "accuracy" in line]
    assert len(accuracies) == 3 and accuracies[0] > 0.85 and accuracies[2] > 0.85
    assert "saved in" in out


@pytest.mark.parametrize("schedule", ["RigL", pytest.param("SET", marks=pytest.mark.full)])
def test_rigl_mnist(schedule):
    out = output_of("rigl_mnist.py", "--hidden", "128", "--epochs", "3", "--density", "0.1", "--schedule", schedule)
    assert float(out.splitlines()[-1].split("accuracy ")[1]) > 0.85


def test_sparse_encoder():
    sizes = ["--layers", "2", "--width", "64", "--hidden", "128", "--heads", "2", "--batch", "2", "--length", "16"]
    assert "speed-up" in output_of("sparse_encoder.py", *sizes)


def test_pack_for_trl():
    pytest.importorskip("datasets")
    out = output_of("pack_for_trl.py", "300", "2048")
    assert "300 rows of" in out and "cu_seq_lens_q [0, " in out


def test_bow_notebook():
    out = output_of("bow_notebook.py")
    assert "2944 tiles, dynamic" in out and "largest error" in out


def test_network_on_ipu():
    out = output_of("network_on_ipu.py", "--hidden", "128", "--batch", "64", "--epochs", "2")
    assert "gc200" in out and "fullest tile" in out
    assert float(out.splitlines()[-1].split("accuracy ")[1]) > 0.85


def test_structured_layer():
    out = output_of(
        "structured_layer.py", "--hidden", "128", "--epochs", "2", "--layers", "dense", "butterfly", "monarch"
    )
    accuracies = [float(line.split("accuracy ")[1].split(",")[0]) for line in out.splitlines()[1:4]]
    assert len(accuracies) == 3 and min(accuracies) > 0.85
    assert "dense to low_rank: error 0." in out


def test_spiking_mnist():
    out = output_of("spiking_mnist.py", "--hidden", "64", "--epochs", "2")
    assert float(out.splitlines()[-1].split("accuracy ")[1].split(",")[0]) > 0.7 and "more pass gradients" in out


def test_compiled_encoder():
    out = output_of("compiled_encoder.py", "--layers", "1", "--width", "64", "--batch", "2", "--length", "8")
    differences = [float(line.split("difference ")[1]) for line in out.splitlines() if "difference" in line]
    assert len(differences) == 2 and max(differences) < 1e-3


def test_prune_and_compile(tmp_path):
    pytest.importorskip("transformers")
    sizes = ["--layers", "1", "--width", "64", "--batch", "2", "--length", "8"]
    out = output_of("prune_and_compile.py", *sizes, "--folder", str(tmp_path))
    differences = [float(line.split("difference ")[1]) for line in out.splitlines() if "difference" in line]
    assert len(differences) == 2 and max(differences) < 1e-3
    assert "encoder.layer.0.intermediate.dense.weight" in out and "of a call: " in out and "speed-up" in out
    assert {"config.json", "model.safetensors", "compiled.safetensors"} <= {each.name for each in tmp_path.iterdir()}


def test_onnx_network(tmp_path):
    pytest.importorskip("onnx")
    file = tmp_path / "network.onnx"
    out = output_of("onnx_network.py", "--width", "16", "--size", "16", "--file", str(file))
    differences = [float(line.split("PyTorch ")[1]) for line in out.splitlines() if "PyTorch" in line]
    assert len(differences) == 2 and max(differences) < 1e-4
    assert file.exists()


def test_bert_pretraining(tmp_path):
    model = tmp_path / "model.safetensors"
    out = output_of("bert_pretraining.py", "--length", "48", "--packs", "8", "--steps", "20", "--save", str(model))
    losses = [float(line.split("held out ")[1]) for line in out.splitlines() if "held out" in line]
    assert len(losses) == 5 and losses[-1] < losses[0] and model.exists()


def test_bert_pretraining_refuses_steps_longer_than_an_epoch(capsys):
    with pytest.raises(SystemExit) as ended:
        output_of("bert_pretraining.py", "--packs", "100000")
    assert ended.value.code == 2 and "--packs 100000: a step takes from 1 to" in capsys.readouterr().err
