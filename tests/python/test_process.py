"""Threads, processes and settings."""

import json
import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import tessera


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )


def test_imports_numpy_alone():
    heavy = "torch scipy pyarrow datasets trl onnx onnxruntime transformers tokenizers nir matplotlib"
    result = run(f"import sys, tessera; print([m for m in '{heavy}'.split() if m in sys.modules])")
    assert result.stdout.strip() == "[]", result.stderr


def seconds_of_import():
    """Processor time of importing NumPy, and of the rest; not wall time, as other tests run at the same time."""
    now = "time.process_time()"
    code = f"import time; t = {now}; import numpy; u = {now}; import tessera; print(u - t, {now} - u)"
    result = run(code)
    assert result.returncode == 0, result.stderr
    return [float(each) for each in result.stdout.split()]


def test_importing_takes_less_than_a_third_of_a_second():
    """NumPy counts as half of that at most, as it takes longer on slow computers."""
    for _ in range(3):  # the first may compile, and read files that are not cached
        numpy, rest = seconds_of_import()
        if min(numpy, 0.15) + rest < 0.3:
            return
    pytest.fail(f"NumPy {numpy:.3f} s, the rest {rest:.3f} s")


def test_modules_are_imported_when_they_are_used():
    modules = "tessera.onnx, tessera.text, tessera.vision"
    code = f"import sys, tessera; print([each.__name__ for each in ({modules})], 'torch' in sys.modules)"
    result = run(code)
    assert result.stdout.strip() == "['tessera.onnx', 'tessera.text', 'tessera.vision'] False", result.stderr


def test_scripts_end_silently():
    """Tensors whose gradients the package computes are alive at the end."""
    pytest.importorskip("torch")
    code = "import torch; from tessera.nn import SparseLinear; y = SparseLinear(64, 64, density=0.2)(torch.ones(4, 64))"
    assert run(code).stderr == ""


def test_threads():
    before = tessera.get_num_threads()
    tessera.set_num_threads(3)
    try:
        assert tessera.get_num_threads() == 3
        assert tessera.Machine("host").tiles == 3
    finally:
        tessera.set_num_threads(0)
    assert tessera.get_num_threads() == before
    assert run("import tessera; print(tessera.get_num_threads())", TESSERA_THREADS="5").stdout.strip() == "5"
    for wrong, error in ((-1, ValueError), (10**6, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="threads"):
            tessera.set_num_threads(wrong)


def test_show_config(capsys):
    tessera.show_config()
    shown = capsys.readouterr().out
    assert "instruction set in use:" in shown
    assert f"threads: {tessera.get_num_threads()}" in shown


def test_instruction_sets():
    product = "tessera.profile_product(tessera.generate(64, 64, 0.5), 8)"
    code = f"import tessera; tessera.show_config(); print({product}.verified)"
    generic = run(code, TESSERA_ISA="generic")
    assert "in use: generic of" in generic.stdout and generic.stdout.endswith("True\n"), generic.stderr
    wrong = run(code, TESSERA_ISA="mmx")
    assert "ValueError: TESSERA_ISA: unknown instruction set 'mmx'" in wrong.stderr


def product_in_child(weight, spmm, x, queue):
    queue.put((spmm(x), tessera.Spmm(weight, x.shape[1], threads=2)(x)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_processes_use_what_their_parent_used(rng):
    weight = tessera.Weight(tessera.generate(512, 512, 0.2, seed=1))
    spmm = tessera.Spmm(weight, 64, threads=2)
    x = rng.standard_normal((512, 64)).astype(np.float32)
    wanted = spmm(x)
    stop = threading.Event()

    def keep_busy():
        own = tessera.Spmm(weight, 64, threads=2)
        while not stop.is_set():
            own(x)

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        context = multiprocessing.get_context("fork")
        for _ in range(5):
            queue = context.SimpleQueue()
            child = context.Process(target=product_in_child, args=(weight, spmm, x, queue))
            child.start()
            for result in queue.get():
                np.testing.assert_array_equal(result, wanted)
            child.join(60)
            assert child.exitcode == 0
    finally:
        stop.set()
        busy.join()
    np.testing.assert_array_equal(spmm(x), wanted)


def test_tests_have_an_environment_of_their_own(own_folder):
    printed = run("import json, os; print(json.dumps(dict(os.environ)))").stdout
    environment = json.loads(printed)
    assert environment["HOME"] == str(own_folder)
    assert environment.pop("TESSERA_CACHE") == str(own_folder / "cache")
    of_library = {name for name in environment if name.startswith(("TESSERA_", "XDG_", "OMP_", "GOMP_"))}
    assert {name for name in of_library if not name.startswith("TESSERA_TEST_")} <= {
        *("TESSERA_DATA", "TESSERA_THREADS", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")
    }
