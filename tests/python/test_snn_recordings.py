"""Recordings for spiking networks: batches of the data that the library reads."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tessera import snn


def test_randman():
    split = snn.load_recordings("randman", steps=50, seed=3)
    train, test = split.train, split.test
    assert (train.steps, train.units, train.classes) == (50, 20, 10) and not train.are_currents
    assert len(train) == len(train.labels) > 3 * len(test) > 0 and set(train.labels.tolist()) == set(range(10))
    events = train.batch([5, 1, 5])
    dense = events.to_dense()
    assert dense.shape == (50, 3, 20) and torch.equal(dense[:, 0], dense[:, 2]) and 0 < dense.sum() <= 60
    assert torch.equal(train.batch().to_dense()[:, [5, 1, 5]], dense)
    assert torch.equal(train.batch(torch.tensor([1])).to_dense(), dense[:, 1:2])
    again = snn.load_recordings("randman", steps=50, seed=3).train
    assert torch.equal(again.batch([5]).to_dense(), dense[:, :1])
    network = snn.Network(torch.nn.Linear(20, 10, bias=False), snn.Readout(0.9))
    assert network(events).shape == (50, 3, 10)


def test_events_of_files(tmp_path):
    kind = np.dtype([("t", np.int64), ("x", np.int16), ("y", np.int16), ("p", np.int8)])
    for label in ("left", "right"):
        (tmp_path / "train" / label).mkdir(parents=True)
        (tmp_path / "test" / label).mkdir(parents=True)
        for part in ("train", "test"):
            x = 0 if label == "left" else 3
            np.save(tmp_path / part / label / "0.npy", np.array([(0, x, 0, 0), (900, x, 1, 1)], kind))
    split = snn.load_recordings("events", tmp_path, steps=10, seconds=0.001)
    assert len(split.train) == len(split.test) == 2 and split.train.classes == 2
    dense = split.train.batch().to_dense()
    assert dense.sum() == 4 and dense[0].sum() == 2 and dense[9].sum() == 2


def test_refused(tmp_path):
    with pytest.raises(ValueError, match="randman"):
        snn.load_recordings("nothing")
    with pytest.raises(RuntimeError):
        snn.load_recordings("shd", tmp_path)
    split = snn.load_recordings("randman", steps=20)
    with pytest.raises(ValueError, match="recording 100000; there are"):
        split.train.batch([100_000])
