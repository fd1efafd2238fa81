"""The results of bench/python/scaling.py from measurements: steps computed by hand, curves, and the page."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(f"bench_{name}", ROOT / "bench" / "python" / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


scaling = load("scaling")

# 1 ms for a message of any size up to 1 kB, 1 s for 1 MB, and a tenth of it busy.
TRANSPORT = scaling.Transport("wire", ((1e3, 1e-3, 1e-4), (1e6, 1.0, 0.1)))


def test_messages_take_what_is_between_those_measured():
    assert TRANSPORT.seconds(1) == 1e-3
    assert TRANSPORT.seconds(1e6) == 1
    assert TRANSPORT.seconds(3e6) == 3
    assert TRANSPORT.busy(3e6) == pytest.approx(0.3)
    assert TRANSPORT.seconds((1e3 + 1e6) / 2) == pytest.approx((1e-3 + 1) / 2)


def test_sums_have_an_eighth_of_the_gradients():
    assert scaling.sums_of([10]) == (10,)
    assert scaling.sums_of([1, 1, 40, 2, 2, 38]) == (42, 42)
    assert scaling.sums_of([1] * 16) == (2,) * 8
    assert sum(scaling.sums_of(range(1, 100))) == sum(range(1, 100))


def test_a_ring_and_a_tree_send_what_they_have_to():
    assert list(scaling.rounds_of(1e6, 4, "ring")) == [(2.5e5, 6)]
    assert list(scaling.rounds_of(1e6, 5, "tree")) == [(1e6, 6)]
    assert list(scaling.rounds_of(1e6, 1, "ring")) == []
    wall, busy = scaling.sum_seconds(2e6, 2, TRANSPORT)
    assert (wall, busy) == pytest.approx((2.0, 0.2))
    handled = scaling.replace(TRANSPORT, handling=1e-7)
    assert scaling.sum_seconds(2e6, 2, handled) == pytest.approx((2.2, 0.4))


def test_a_step_waits_for_what_the_backward_pass_does_not_hide():
    # Sums of 1 s each, with 0.1 s of work for the core, after 2 and 4 s of the backward pass.
    case = scaling.Case("two", 10.0, 4.0, (1_000_000, 1_000_000))
    sent = scaling.Transport("wire", ((1e3, 0.5e-3, 0.5e-4), (5e5, 0.5, 0.05)))
    assert scaling.step_seconds(case, 1, sent) == 10
    # The first is over before the second begins: this begins 0.1 s later, as the first took the core for that time.
    assert scaling.step_seconds(case, 2, sent) == pytest.approx(10 + 0.1 + 1)
    # Two ranks on one core: everything takes twice as long, and so does the work of the core in sums.
    assert scaling.step_seconds(case, 2, sent, ranks_of_core=2) == pytest.approx(20 + 0.2 + 1.1)


def test_slow_links_hold_up_one_sum_by_another():
    case = scaling.Case("two", 1.0, 0.5, (1_000_000, 1_000_000))
    idle = scaling.Transport("wire", ((5e5, 5.0, 0.0),))
    assert scaling.step_seconds(case, 2, idle) == pytest.approx(0.75 + 10 + 10)


def test_networks_replace_what_nobody_is_busy_with():
    network = TRANSPORT.over("fast", 1e-5, 1e9)
    assert network.name == "fast"
    assert network.seconds(1e6) == pytest.approx(0.1)
    assert scaling.network_of("fast=10,8", TRANSPORT).seconds(1e6) == pytest.approx(network.seconds(1e6))
    slow = scaling.network_of("slow=1000,0.008", TRANSPORT)
    assert slow.name == "slow"
    assert slow.seconds(1e6) == pytest.approx(1.001)


def test_passes_come_in_the_order_of_1f1b():
    order = [(True, 0), (True, 1), (False, 0), (True, 2), (False, 1), (False, 2)]
    assert scaling.passes_of(2, 3, 0) == order
    assert scaling.passes_of(2, 2, 1) == [(True, 0), (False, 0), (True, 1), (False, 1)]


def constant(seconds, busy):
    return scaling.Transport("constant", ((64, seconds, busy), (1e9, seconds, busy)))


def test_stages_wait_for_each_other():
    # Passes of 1 s forward and 2 s backward on each of two stages.
    case = scaling.Case("layers", 6.0, 4.0, (1000,), message=100)
    for stages in (2, 4, 8):
        seconds = scaling.pipeline_seconds(case, stages, 1, 8 * stages, constant(0, 0))
        assert seconds * (1 - scaling.bubble(stages, 8 * stages)) == pytest.approx(8 * 6)
    # One micro-batch: forward, a message, forward and backward, a message, backward.
    assert scaling.pipeline_seconds(case, 2, 1, 1, constant(0.5, 0)) == pytest.approx(1 + 0.5 + 1 + 2 + 0.5 + 2)
    # One micro-batch for each stage is under way, and they wait for the messages of one there and back.
    for stages, micro_batches, ways in ((2, 8, 8), (3, 8, 12)):
        case_of_stages = scaling.Case("layers", 3.0 * stages, 2.0 * stages, (1000,), message=100)
        seconds = scaling.pipeline_seconds(case_of_stages, stages, 1, micro_batches, constant(0.1, 0))
        assert seconds == pytest.approx(3 * (micro_batches + stages - 1) + 0.1 * ways)
    # Both ends of a message are busy for half as long as for an exchange.
    assert scaling.pipeline_seconds(case, 2, 1, 1, constant(0.5, 0.2)) == pytest.approx(7 + 2 * 0.1)


def test_stages_sum_their_own_gradients_beside_the_last_backward_pass():
    case = scaling.Case("layers", 6.0, 4.0, (1000,), message=100)
    # The first stage begins its sum last: a ring of two has two rounds.
    assert scaling.pipeline_seconds(case, 2, 2, 1, constant(0.5, 0)) == pytest.approx(7 + 2 * 0.5)
    alone = scaling.pipeline_seconds(case, 1, 2, 3, constant(0.5, 0))
    assert alone == pytest.approx(2 * 6 + scaling.step_seconds(case, 2, constant(0.5, 0)))
    for stages in (1, 2):
        assert scaling.pipeline_efficiency(case, 2 * stages, stages, 4, constant(0, 0)) == pytest.approx(
            1 - scaling.bubble(stages, 4 * stages)
        )


FILE = {
    "computer": "2 cores",
    "versions": "PyTorch 2.15",
    "date": "2026-12-01",
    "cores": 2,
    "transport": {
        "name": "gloo",
        "messages": [
            {"bytes": 1000, "seconds": 1e-4, "busy_seconds": 5e-5},
            {"bytes": 64, "seconds": 9e-5, "busy_seconds": 4e-5},
        ],
        "handling_seconds_per_byte": 1e-9,
    },
    "cases": [
        {
            "name": "small",
            "step_seconds": 0.01,
            "backward_seconds": 0.006,
            "sums": [4000, 4000],
            "points": [{"ranks": 1, "seconds": 0.01}, {"ranks": 2, "seconds": 0.0105}],
        }
    ],
}


def test_the_model_is_compared_with_what_was_measured():
    measured = scaling.Measured.of(FILE)
    assert [message[0] for message in measured.transport.messages] == [64, 1000]
    case = measured.cases[0]
    errors = scaling.errors_of(case, measured.transport, measured.cores)
    assert errors[1] == 0
    assert errors[2] == pytest.approx(scaling.step_seconds(case, 2, measured.transport) / 0.0105 - 1)
    assert 1 > scaling.efficiency(case, 2, measured.transport) > scaling.efficiency(case, 512, measured.transport)


def test_stages_are_compared_with_what_was_measured():
    step = {
        "name": "layers",
        "step_seconds": 0.08,
        "backward_seconds": 0.056,
        "sums": [4000],
        "message_bytes": 500,
        "micro_batches": 8,
        "points": [{"ranks": 1, "seconds": 0.08}, {"ranks": 2, "seconds": 0.05}, {"ranks": 4, "seconds": 0.05}],
    }
    case = FILE["cases"][0] | {"message_bytes": 500}
    measured = scaling.Measured.of(FILE | {"cases": [case], "pipelines": [step]})
    pipeline = measured.pipelines[0]
    assert pipeline.case.step_seconds == pytest.approx(0.01)
    errors = scaling.pipeline_errors_of(pipeline, measured.transport, measured.cores)
    assert sorted(errors) == [1, 2]  # four ranks have no core each
    assert errors[1] == pytest.approx(0)
    predicted = scaling.pipeline_seconds(pipeline.case, 2, 1, 8, measured.transport)
    assert errors[2] == pytest.approx(predicted / 0.05 - 1)
    assert 0.045 < predicted < 0.05  # nine passes of half the layers, and messages
    page = scaling.page_of(measured, [], micro_batches=4)
    assert "| layers, a stage each | 2 | 50 |" in page
    assert "500 bytes in each pass of a micro-batch; 4 micro-batches of each computer" in page
    assert "| computers | replicas only | 2 stages | 4 stages | 8 stages |" in page
    assert "| bubbles alone | 100.0 % | 88.9 % |" in page


def test_the_page_has_what_was_measured(tmp_path):
    measured = scaling.Measured.of(FILE)
    page = tmp_path / "scaling.md"
    page.write_text(f"before\n{scaling.BEGIN}\nold\n{scaling.END}\nafter\n", encoding="utf-8")
    for _ in range(2):
        scaling.write(page, measured, [measured.transport.over("fast", 1e-6, 1e10)])
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith(f"{scaling.END}\nafter\n")
    assert "old" not in text
    assert text.count("| 512 |") == 1
    assert text.count("\n\n*2 cores; PyTorch 2.15; 2026-12-01.*\n\n") == 1
    assert "| small | 2 | 10.5 |" in text
    assert "gloo, ring | gloo, tree | fast, ring | fast, tree" in text
    picture = (tmp_path / "images" / "scaling-1.svg").read_text(encoding="utf-8")
    assert picture.count("<polyline") == 2
    assert picture.count("<circle") == 2
    assert "prefers-color-scheme:dark" in picture
    assert "![Efficiency of small over computers, by a ring: gloo " in text
    with pytest.raises(ValueError, match="the page has no"):
        scaling.with_measured("nothing", "text")


def test_what_is_not_recorded_is_said(tmp_path, monkeypatch, capsys):
    file = {key: value for key, value in FILE.items() if key not in ("versions", "date")}
    assert scaling.Measured.of(file).origin == "*2 cores; versions not recorded; date not recorded.*"
    path = tmp_path / "ranks.json"
    path.write_text(json.dumps(file), encoding="utf-8")
    options = ["--machine", "a server", "--versions", "", "--date", "2026-12-02"]
    monkeypatch.setattr(sys, "argv", ["scaling.py", str(path), *options])
    scaling.main()
    assert "\n\n*a server; 2026-12-02.*\n\n" in capsys.readouterr().out


def test_the_page_of_the_project_has_marks():
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert "new" in scaling.with_measured(page, "new")
