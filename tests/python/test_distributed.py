"""DDP and FSDP2: two ranks train the same weights as one process with the whole batch."""

import pytest

torch = pytest.importorskip("torch")

import forked  # noqa: E402


def start(mode, *arguments, ranks):
    return forked.start("distributed_worker", mode, *arguments, ranks=ranks)


def finish(processes):
    status, complaints = forked.finish(processes)
    assert status == [0] * len(status), complaints


def same_weights(path, other):
    one, two = torch.load(path), torch.load(other)
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        if tensor.is_floating_point():
            assert torch.allclose(tensor, two[name], atol=2e-5), name
        else:
            assert torch.equal(tensor, two[name]), name


@pytest.mark.parametrize(
    ("mode", "schedule", "block_size"),
    [
        ("ddp", "RigL", 1),
        pytest.param("ddp", "SET", 8, marks=pytest.mark.full),
        pytest.param("fsdp2", "RigL", 1, marks=pytest.mark.full),
        pytest.param("fsdp2", "SET", 8, marks=pytest.mark.full),
    ],
)
def test_two_ranks_train_what_one_does(mode, schedule, block_size, tmp_path):
    options = ["--block-size", block_size, "--schedule", schedule]
    alone = start("one", *options, "--out", tmp_path / "one.pt", ranks=1)
    together = start(mode, *options, "--out", tmp_path / "two.pt", ranks=2)
    finish(alone + together)
    same_weights(tmp_path / "one.pt", tmp_path / "two.pt")


@pytest.mark.full
@pytest.mark.parametrize("mode", ["ddp", "fsdp2"])
def test_a_run_goes_on_after_a_rank_was_killed(mode, tmp_path):
    whole = start(mode, "--out", tmp_path / "whole.pt", ranks=2)
    finish(whole)
    options = ["--out", tmp_path / "resumed.pt", "--checkpoint", tmp_path / "checkpoint.pt"]
    killed = start(mode, *options, "--die-after", 5, ranks=2)
    assert killed[1].wait() == -9
    killed[0].kill()  # as torchrun ends the others
    assert not (tmp_path / "resumed.pt").exists()
    finish(start(mode, *options, ranks=2))
    same_weights(tmp_path / "whole.pt", tmp_path / "resumed.pt")
