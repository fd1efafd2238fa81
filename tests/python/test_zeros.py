"""Zeros of arrays and of the files of models."""

import json
import struct

import numpy as np
import pytest
import scipy.sparse

import tessera


def weight_of(rng, m, k, density):
    return (rng.standard_normal((m, k)) * (rng.random((m, k)) < density)).astype(np.float32)


def save(path, tensors, metadata=None):
    """Write a `.safetensors` file by hand; NumPy lacks bfloat16, whose bits are given as ("BF16", uint16)."""
    names = {"float32": "F32", "float16": "F16", "float64": "F64", "int64": "I64", "int32": "I32", "uint8": "U8"}
    header, data = dict(metadata or {}), b""
    for name, value in tensors.items():
        dtype, array = value if isinstance(value, tuple) else (names[str(value.dtype)], value)
        content = array.tobytes()
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def expect_zeros_of(zeros, weight):
    """Compare the counts with NumPy's."""
    m, k = weight.shape
    mask = weight != 0
    assert zeros.shape == (m, k)
    assert zeros.non_zeros == mask.sum()
    assert zeros.density == pytest.approx(mask.mean())
    assert zeros.zero_rows == m - mask.any(1).sum()
    assert zeros.zero_cols == k - mask.any(0).sum()
    padded = np.pad(mask, ((0, -m % 32), (0, -k % 32)))
    for blocks in zeros.blocks:
        b = blocks.block_size
        rows, cols = (side // b for side in padded.shape)
        assert blocks.blocks == padded.reshape(rows, b, cols, b).any((1, 3)).sum()
    groups = padded.reshape(padded.shape[0], -1, 4).sum(2)
    assert zeros.is_2_4 == bool((groups <= 2).all())


@pytest.mark.parametrize("shape", [(512, 256), (33, 130), (1, 7)])
@pytest.mark.parametrize("density", [0, 0.05, 0.5, 1])
def test_counts_are_those_of_numpy(rng, shape, density):
    weight = weight_of(rng, *shape, density)
    expect_zeros_of(tessera.zeros_of(weight), weight)


def test_weights_of_any_kind_have_the_same_zeros(rng):
    weight = weight_of(rng, 128, 96, 0.1)
    zeros = tessera.zeros_of(weight, rows=64)
    wide = np.zeros((128, 200), np.float32)
    wide[:, 50:146] = weight
    for same in (
        wide[:, 50:146],
        tessera.Matrix.of(weight),
        scipy.sparse.csr_array(weight),
        scipy.sparse.coo_array(weight),
    ):
        found = tessera.zeros_of(same, rows=64)
        assert (found.non_zeros, found.sparse_seconds) == (zeros.non_zeros, zeros.sparse_seconds)
    half = weight.astype(np.float16)
    assert tessera.zeros_of(half).non_zeros == np.count_nonzero(half)


def test_tensors_are_taken_too(rng):
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.from_numpy(weight_of(rng, 64, 32, 0.25)))
    zeros = tessera.zeros_of(weight)
    expect_zeros_of(zeros, weight.detach().numpy())
    assert tessera.zeros_of(weight.to(torch.bfloat16)).non_zeros == zeros.non_zeros
    assert tessera.zeros_of(weight.detach().to_sparse_csr()).non_zeros == zeros.non_zeros


def test_minus_zero_is_zero_and_nan_is_not():
    assert tessera.zeros_of(np.float32([[-0.0, np.nan, 0, 1e-45]])).non_zeros == 2


def test_predictions_say_what_pays_and_why_not(rng):
    sparse = tessera.zeros_of(weight_of(rng, 1024, 1024, 0.05))
    assert sparse.pays and sparse.reason == "" and sparse.speedup > 2
    assert sparse.sparse_seconds < sparse.dense_seconds and sparse.best_block_size == 1
    assert 0 < sparse.sparse_bytes < 1024 * 1024
    assert [b.seconds for b in sparse.blocks if b.block_size == 1] == [sparse.sparse_seconds]
    assert "speed-up" in repr(sparse)
    dense = tessera.zeros_of(weight_of(rng, 1024, 1024, 1))
    assert not dense.pays and dense.reason == "too dense"
    assert tessera.zeros_of(np.ones((2, 8), np.float32), rows=4).reason == "too small"
    assert tessera.zeros_of(np.ones((0, 8), np.float32)).speedup is None


def test_wrong_weights_are_refused():
    with pytest.raises(TypeError, match="float64; zeros are found among float32"):
        tessera.zeros_of(np.ones((2, 2)))
    with pytest.raises(ValueError, match="the weight has 1 dimensions"):
        tessera.zeros_of(np.ones(3, np.float32))
    with pytest.raises(ValueError, match="rows of the weight are not contiguous"):
        tessera.zeros_of(np.ones((4, 3), np.float32).T)
    with pytest.raises(ValueError, match="rows is 0"):
        tessera.zeros_of(np.ones((2, 2), np.float32), rows=0)


def test_models_are_read_from_folders(rng, tmp_path):
    weight, mask = weight_of(rng, 64, 48, 1), (rng.random((64, 48)) < 0.3).astype(np.float32)
    csr = scipy.sparse.csr_array(weight_of(rng, 32, 40, 0.1))
    save(tmp_path / "a.safetensors", {"l.weight_orig": weight, "l.bias": np.ones(64, np.float32)})
    save(
        tmp_path / "b.safetensors",
        {
            "l.weight_mask": mask,
            "s.crow_indices": csr.indptr.astype(np.int64),
            "s.col_indices": csr.indices.astype(np.int64),
            "s.values": csr.data,
            "s.shape": np.int64([32, 40]),
            "half": ("BF16", np.uint16([[0, 0x8000, 0x3F80]])),
            "position_ids": np.arange(3),
        },
    )
    shards = {name: f"{shard}.safetensors" for shard in "ab" for name in read_names(tmp_path / f"{shard}.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    model = tessera.inspect(tmp_path, rows=16)
    tensors = {tensor.name: tensor for tensor in model.tensors}
    assert list(tensors) == ["half", "l.bias", "l.weight", "position_ids", "s"]
    assert tensors["l.weight"].form == "masked"
    expect_zeros_of(tensors["l.weight"].zeros, weight * mask)
    expect_zeros_of(tensors["s"].zeros, csr.toarray())
    assert tensors["half"].zeros.non_zeros == 1 and tensors["half"].dtype == "BF16"
    assert tensors["l.bias"].zeros.reason == "not a product" and tensors["l.bias"].shape == (64,)
    assert tensors["position_ids"].zeros is None
    assert model.rows == 16
    assert model.totals.elements == 64 * 48 + 32 * 40 + 3 + 64
    assert model.totals.zeros == model.totals.elements - mask.sum() - csr.nnz - 1 - 64
    assert "l.weight" in str(model)
    assert len(json.loads(model.to_json())["results"]) == 3
    model.report(tmp_path / "zeros.html")
    assert "l.weight" in (tmp_path / "zeros.html").read_text()
    assert [t.name for t in tessera.inspect(tmp_path, tensor="s").tensors] == ["s"]


def read_names(path):
    content = path.read_bytes()
    return json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])


def test_wrong_models_are_refused(tmp_path):
    with pytest.raises(RuntimeError, match=r"neither model\.safetensors nor"):
        tessera.inspect(tmp_path)
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_method": "awq"}}')
    with pytest.raises(RuntimeError, match=r"its weights are quantised \(\"awq\"\)"):
        tessera.inspect(tmp_path)
    with pytest.raises(RuntimeError, match="cannot open"):
        tessera.inspect(tmp_path / "missing.safetensors")
    save(tmp_path / "m.safetensors", {"a": np.ones((2, 2), np.float32)})
    with pytest.raises(ValueError, match='it has no tensor "b"'):
        tessera.inspect(tmp_path / "m.safetensors", tensor="b")


def test_what_this_package_saves_is_read(rng, tmp_path):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    from torch.nn.utils import prune

    from tessera.nn import SparseLinear

    for block_size in (1, 8):
        layer = SparseLinear(100, 60, density=0.2, block_size=block_size)
        safetensors.save_file({f"fc.{k}": v for k, v in layer.state_dict().items()}, tmp_path / "l.safetensors")
        tensors = {tensor.name: tensor for tensor in tessera.inspect(tmp_path / "l.safetensors").tensors}
        assert tensors["fc.weight"].form == "SparseLinear"
        assert tensors["fc.weight"].zeros.non_zeros == int(layer.mask().sum())
        assert tensors["fc.weight"].shape == (60, 100)
    module = prune.l1_unstructured(torch.nn.Linear(20, 10), "weight", amount=0.6)
    safetensors.save_file(module.state_dict(), tmp_path / "p.safetensors")
    expect_zeros_of(tessera.inspect(tmp_path / "p.safetensors", tensor="weight").tensors[0].zeros,
                    module.weight.detach().numpy())


def test_sessions_that_are_saved_are_read(rng, tmp_path):
    graph = tessera.graph.Graph()
    x = graph.input("x", (4, 64))
    weight = tessera.generate(32, 64, 0.25, block_size=8)
    graph.output("y", tessera.graph.linear(x, graph.sparse_parameter("w", weight)))
    session = graph.session("host", threads=1, seed=0)
    session.save(str(tmp_path / "s.safetensors"))
    (found,) = (t for t in tessera.inspect(tmp_path / "s.safetensors").tensors if t.name == "w")
    assert found.form == "CSR or BSR"
    expect_zeros_of(found.zeros, session.matrix("w").to_dense())


def test_compressed_tensors_are_read(rng, tmp_path):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    pytest.importorskip("compressed_tensors.compressors.sparse_compressors")  # newer versions do not write these
    import compressed_tensors as compressed

    dense = {
        "a.weight": torch.from_numpy(weight_of(rng, 48, 100, 0.3)),
        "b.weight": torch.from_numpy(weight_of(rng, 64, 64, 0.1)).to(torch.bfloat16),
        "n.weight": torch.from_numpy(weight_of(rng, 1, 77, 0.5))[0],
    }
    compressor = compressed.compressors.BaseCompressor.load_from_registry("sparse-bitmask", config=None)
    safetensors.save_file(compressor.compress(dense), tmp_path / "m.safetensors")
    found = {tensor.name: tensor for tensor in tessera.inspect(tmp_path / "m.safetensors").tensors}
    assert {tensor.form for tensor in found.values()} == {"sparse-bitmask"}
    for name, weight in dense.items():
        expect_zeros_of(found[name].zeros, np.atleast_2d(weight.float().numpy()))
    config = compressed.config.Sparse24BitMaskConfig(sparsity_structure="2:4")
    compressor = compressed.compressors.BaseCompressor.load_from_registry("sparse-24-bitmask", config=config)
    weight = torch.from_numpy(weight_of(rng, 48, 64, 0.1))
    kept = weight * compressed.compressors.sparse_compressors.sparse_24_bitmask.get_24_bytemasks(weight)
    safetensors.save_file(compressor.compress({"c.weight": kept}), tmp_path / "m.safetensors")
    (found,) = tessera.inspect(tmp_path / "m.safetensors").tensors
    assert (found.name, found.form) == ("c.weight", "sparse-24-bitmask")
    expect_zeros_of(found.zeros, kept.numpy())
