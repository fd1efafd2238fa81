"""Compiled modules in files."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
from compiled_models import NAMED, SIZE, Pooled, expect_like, network, pruned  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def run_without_pytorch(code, *arguments, **environment):
    """Run code that prints JSON."""
    start = "import json, sys, numpy as np\nsys.modules['torch'] = None\nimport tessera\n"
    command = [sys.executable, "-c", start + textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_files_serve_other_instruction_sets(tmp_path):
    model, x = network(4), torch.randn(16, SIZE)
    tessera.compile(model, x).save(tmp_path / "here.safetensors")
    np.save(tmp_path / "x.npy", x.numpy())
    found = run_without_pytorch(
        """
        model = tessera.load(sys.argv[1] + "/here.safetensors")
        model.save(sys.argv[1] + "/there.safetensors")
        print(json.dumps(model(np.load(sys.argv[1] + "/x.npy")).tolist()))
        """,
        tmp_path,
        TESSERA_ISA="generic",
    )
    np.testing.assert_allclose(found, model(x).detach(), rtol=0, atol=1e-4)
    expect_like(model, tessera.load(tmp_path / "there.safetensors"), x)


def test_files_need_no_pytorch(tmp_path):
    model = Pooled(True).eval()
    model.layer.weight.data = pruned(model.layer.weight.data, 4)
    inputs = (torch.randn(2, 8, SIZE), torch.ones(2, 8))
    buckets = {"tokens": [8, 16], "batch": [4]}
    compiled = tessera.compile(model, inputs, dynamic_shapes=NAMED, buckets=buckets)
    compiled.save(tmp_path / "model.safetensors")
    x, mask = torch.randn(3, 11, SIZE), torch.ones(3, 11)
    np.savez(tmp_path / "inputs.npz", x=x.numpy(), mask=mask.numpy())
    y, mean = compiled(x, mask)
    found = run_without_pytorch(
        """
        model = tessera.load(sys.argv[1] + "/model.safetensors")
        inputs = np.load(sys.argv[1] + "/inputs.npz")
        y, mean = model(inputs["x"], mask=inputs["mask"])
        same = model.report.layers[0].is_sparse
        print(json.dumps([y.shape, y.astype(float).sum(), mean.tolist(), same, str(model)]))
        """,
        tmp_path,
    )
    assert found[0] == list(y.shape)
    assert found[1] == pytest.approx(float(y.double().sum()), rel=1e-4, abs=1e-2)
    np.testing.assert_array_equal(np.float32(found[2]), mean.numpy())  # the same bits
    assert found[3] and "layer.weight" in found[4]


def test_bad_files_are_refused(tmp_path):
    compiled = tessera.compile(network(), torch.randn(4, SIZE))
    path = tmp_path / "model.safetensors"
    compiled.save(path)
    content = path.read_bytes()
    again = tessera.load(path)
    again.save(path)
    assert path.read_bytes() == content
    with pytest.raises(TypeError, match="input is missing"):
        again()
    path.write_bytes(content[:-10])
    with pytest.raises(RuntimeError, match="model.safetensors"):
        tessera.load(path)
    path.write_bytes(content.replace(b"float32", b"float16"))
    with pytest.raises(RuntimeError, match="the checksum of its contents"):
        tessera.load(path)
    content = content.replace(b"tessera_checksum", b"another_checksum")
    path.write_bytes(content)
    with pytest.raises(RuntimeError, match="it lacks its checksum"):
        tessera.load(path)
    content = content.replace(b'\\"version\\":4', b'\\"version\\":3')  # which need none
    for before, after in [('"outputs\\"', '"outpuxs\\"'), ('"float32\\"', '"object3\\"'), ('["input\\"]', '["inpux\\"]')]:
        before, after = before.replace('"', '\\"', 1), after.replace('"', '\\"', 1)
        assert before.encode() in content
        path.write_bytes(content.replace(before.encode(), after.encode()))
        with pytest.raises(RuntimeError, match="model.safetensors"):
            tessera.load(path)
    path.write_bytes(content.replace(b'\\"version\\": 1', b'\\"version\\": 9'))
    with pytest.raises(RuntimeError, match="its version is 9"):
        tessera.load(path)
    with pytest.raises(RuntimeError, match="nowhere"):
        tessera.load(tmp_path / "nowhere")
