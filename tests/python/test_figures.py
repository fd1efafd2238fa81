"""The tables that docs/figures/figures.py writes in pages, and makes from a benchmark's result."""

import functools
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "figures" / "figures.py"

spec = importlib.util.spec_from_file_location("docs_figures", SCRIPT)
figures = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(figures)

MEASURED = {"rows": [{"n": 512}, {"n": 64}], "columns": [{"density": 0.5}], "shows": ["{tessera_ms} ms", "{over_dense} ×"]}
DATA = {
    "machine": "two threads of a server",
    "versions": "",
    "date": "2026-11-21",
    "command": "bench_spmm --n 512,64",
    "columns": ["", "d = 1/2"],
    "rows": [["**n = 512**", ["38.9 ms", "1.5 ×"]], ["n = 64", "0.119"]],
    "measured": MEASURED,
}
SHOWN = """<!-- table some -->

| | d = 1/2 |
| --- | --- |
| **n = 512** | 38.9 ms (1.5 ×) |
| n = 64 | 0.119 |

*Two threads of a server; 2026-11-21.*

    bench_spmm --n 512,64

<!-- end -->"""


@pytest.fixture
def folder(tmp_path):
    write(tmp_path)
    return tmp_path


def write(folder, **changes):
    (folder / "some.json").write_text(json.dumps(DATA | changes), encoding="utf-8")


def test_a_table_is_written_between_its_marks(folder):
    page = "before\n\n<!-- table some -->\nold\n<!-- end -->\n\nafter <!-- end of nothing -->\n"
    text = figures.rendered(page, folder)
    assert text == f"before\n\n{SHOWN}\n\nafter <!-- end of nothing -->\n"
    assert figures.rendered(text, folder) == text


def test_a_command_is_shown_once_in_a_section(folder):
    page = "    bench_spmm --n 512,64\n\n<!-- table some -->\n<!-- end -->\n"
    assert figures.rendered(page, folder).count("bench_spmm") == 1
    twice = "<!-- table some -->\n<!-- end -->\n" * 2
    assert figures.rendered(twice, folder).count("bench_spmm") == 1
    assert figures.rendered(f"{page}\n## Another section\n\n{twice}", folder).count("bench_spmm") == 2
    assert figures.rendered(page.replace("64\n", "64 --block 4\n", 1), folder).count("bench_spmm") == 2


def test_what_is_not_recorded_is_said(folder):
    write(folder, versions="not recorded", date="not recorded", command="tessera spmm", long=True, align="-r")
    text = figures.table_text(figures.Table.read("some", folder))
    assert "\n*Two threads of a server; versions not recorded; date not recorded.*\n" in text
    assert "\n<!-- long -->\n\n    tessera spmm\n" in text
    assert "\n| --- | ---: |\n" in text


@pytest.mark.parametrize(
    "reference,shown",
    [
        ("some; n = 512; d = 1/2; 2", "1.5 ×"),
        ("some; n = 512; d = 1/2", "38.9 ms (1.5 ×)"),
        ("some; n = 64;\n  d = 1/2; %", "12 %"),
        ("some; machine", "two threads of a server"),
        ("some; date", "2026-11-21"),
    ],
)
def test_a_figure_is_that_of_the_table(folder, reference, shown):
    page = f"as `<!-- figure TABLE; ROW; COLUMN -->` says, <!-- figure {reference} -->9<!-- end -->, <!-- figure {reference} --><!-- end -->."
    marked = f"<!-- figure {reference} -->{shown}<!-- end -->"
    assert figures.rendered(page, folder) == f"as `<!-- figure TABLE; ROW; COLUMN -->` says, {marked}, {marked}."


@pytest.mark.parametrize(
    "page,message",
    [
        ("<!-- table none -->\n<!-- end -->", "there is no none.json"),
        ("<!-- table some -->\n", "has no <!-- end -->"),
        ("a <!-- figure some; n = 512; d = 1/2; 2 -->1.5", "has no <!-- end -->"),
        ("a\n<!-- figure some; n = 64; d = 1/2 --><!-- end -->", "begins a line"),
        ("a <!-- figure some; n = 64 --><!-- end -->", "is not TABLE; ROW; COLUMN"),
        ("a <!-- figure some; n = 8; d = 1/2 --><!-- end -->", "there are 0 rows 'n = 8' and 1 columns"),
        ("a <!-- figure some; n = 512; d = 1/2; 3 --><!-- end -->", "the cell has 2 texts"),
        ("a <!-- figure some; n = 512; d = 1/2; % --><!-- end -->", "the cell is '38.9 ms', not a fraction"),
    ],
)
def test_wrong_marks_are_named(folder, page, message):
    with pytest.raises(figures.DataError, match=message):
        figures.rendered(page, folder)


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"rows": [["n = 512"]]}, r'row 1 (["n = 512"]) has not as many cells as there are columns: 1, not 2'),
        ({"rows": [["a", "1"], ["b", None]]}, "row 2 (\"b\"), column 'd = 1/2': null is not a text"),
        ({"rows": [["a", 1.5]]}, "row 1 (\"a\"), column 'd = 1/2': 1.5 is not a text"),
        ({"rows": [["a", ["1", None]]]}, 'column \'d = 1/2\': ["1", null] is not a text, nor a list of several texts'),
        ({"rows": [["a", ["1"]]]}, 'column \'d = 1/2\': ["1"] is not a text'),
        ({"rows": ["a"]}, 'row 1 is "a", not a list of cells'),
        ({"rows": None}, "rows is null"),
        ({"columns": ["", 2]}, 'columns is ["", 2], not a list of texts'),
        ({"columns": []}, "columns is [], not a list of texts"),
        ({"machine": None}, "machine is null, not a text"),
        ({"date": 2026}, "date is 2026, not a text"),
        ({"date": "yesterday"}, "the date is 'yesterday'"),
        ({"align": "lc"}, "align has one letter"),
        ({"labels": 3}, "labels is 3, not a number of columns from 1 to 2"),
        ({"labels": True}, "labels is true"),
        ({"long": "no"}, 'long is "no", not true or false'),
        ({"machines": "two"}, "unknown machines"),
        ({"measured": []}, "measured is [], not an object"),
        ({"measured": MEASURED | {"rows": [{}]}}, "'rows' of measured is not a list of 2 objects"),
        ({"measured": MEASURED | {"columns": [None]}}, "'columns' of measured is not a list of 1 objects"),
        ({"measured": MEASURED | {"shows": None}}, "measured, row 1: 'shows' is null, not a list of texts"),
    ],
)
def test_wrong_data_are_named(folder, changes, message):
    write(folder, **changes)
    with pytest.raises(figures.DataError, match=re.escape(message)) as error:
        figures.Table.read("some", folder)
    assert str(error.value).startswith("some.json: ")


@pytest.mark.parametrize(
    "text,message",
    [
        ("[]", "it is not an object of machine, versions, date, command, columns, rows"),
        ('{"columns": ["a"], "machine": "", "date": "", "command": ""}', "versions, rows missing"),
        ('{"columns": ["a"', "some.json: "),
        (b"\xff", "some.json: 'utf-8' codec"),
    ],
)
def test_files_that_are_no_table_are_named(folder, text, message):
    (folder / "some.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(figures.DataError, match=message):
        figures.Table.read("some", folder)


def test_wrong_files_are_one_message(folder, monkeypatch, capsys):
    write(folder, rows=[["n = 512", None], ["n = 64", "0.119"]])
    (folder / "README.md").write_text("<!-- table some -->\n<!-- end -->\n", encoding="utf-8")
    monkeypatch.setattr(figures, "ROOT", folder)
    monkeypatch.setattr(figures, "rendered", functools.partial(figures.rendered, folder=folder))
    monkeypatch.setattr(sys, "argv", ["figures.py", "--check"])
    assert figures.main() == 1
    message = "README.md: some.json: row 1 (\"n = 512\"), column 'd = 1/2': null is not a text, nor a list of several texts"
    assert capsys.readouterr().err == f"figures.py: {message}\n"


def test_files_keep_what_they_have(folder):
    table = figures.Table.read("some", folder)
    table.write(folder)
    assert figures.Table.read("some", folder) == table
    assert '    ["n = 64", "0.119"]\n  ],\n' in (folder / "some.json").read_text(encoding="utf-8")


def timing(kind, seconds, **others):
    unknown = {"new_pattern_seconds": None, "drop_grow_seconds": None}
    return unknown | {
        "peer": kind,
        "kind": kind,
        "type": "f32",
        "product": "forward",
        "seconds": seconds,
        "useful_gflops": 1.0,
    } | others


def row(n, **others):
    peers = [timing("tessera", 0.002), timing("dense", 0.03), timing("dense", 0.025), timing("sparse", None)]
    of_forward = {"label": "", "n": n, "block": 16, "density": 0.499, "requested_density": 0.5, "type": "f32"}
    return of_forward | {"product": "forward", "bytes": 1e8, "read_gbps": 100, "peers": peers, "targets": []} | others


RESULT = {
    "benchmark": "spmm",
    "cpu": "a processor",
    "isa": "avx512",
    "threads": 2,
    "peers": ["mkl: 2026.2", "onednn: 2.6"],
    "results": [row(512), row(64, peers=[timing("tessera", 123e-6), timing("dense", 1e-3)])],
}


def test_a_result_becomes_the_data(folder):
    table = figures.updated(figures.Table.read("some", folder), RESULT, "2026-12-01")
    assert table.rows == [["**n = 512**", ["2.0 ms", "12.5 ×"]], ["n = 64", ["0.12 ms", "8.1 ×"]]]
    assert table.machine == "2 threads of a processor (avx512)"
    assert (table.versions, table.date) == ("mkl: 2026.2, onednn: 2.6", "2026-12-01")
    assert table.command == DATA["command"]


def test_results_of_the_tool_become_data(folder):
    static = {"machine": "bow", "mode": "static", "n": 512, "requested_density": 0.5, "seconds": 64.46e-6, "speedup": 0.98}
    results = [static, static | {"n": 64, "speedup": None}, static | {"mode": "dense", "requested_density": None}]
    measured = MEASURED | {
        "mode": "static",
        "columns": [{"requested_density": 0.5}],
        "shows": ["{seconds*1e6:.1f} µs", "{speedup} ×"],
    }
    table = figures.replace(figures.Table.read("some", folder), measured=measured)
    done = figures.updated(table, {"command": "spmm", "results": results}, "2026-12-01", versions="none")
    assert done.rows == [["**n = 512**", ["64.5 µs", "0.98 ×"]], ["n = 64", ["64.5 µs", "– ×"]]]
    assert (done.machine, done.versions) == ("two threads of a server", "none")


def test_results_of_studies_become_data(folder):
    cell = {"machine": "gc200", "cell": "3 layers", "values": {"seconds": 612e-6, "tile_bytes": 110592, "compute_share": 0.84}}
    result = {"command": "reproduce snn", "sections": [{"section": "size", "results": [cell], "comparisons": []}]}
    measured = {
        "rows": [{"cell": "3 layers"}],
        "columns": [
            {"shows": ["{seconds*1e3:.3g}"]},
            {"shows": ["{tile_bytes/1024:.0f}"]},
            {"shows": ["{compute_share*100:.0f} %"]},
            {"shows": []},
        ],
    }
    write(folder, columns=["", "ms", "KiB", "compute", "remark"], rows=[["3", "", "", "", "x"]], measured=measured)
    done = figures.updated(figures.Table.read("some", folder), result, "2026-12-01", machine="modelled GC200")
    assert done.rows == [["3", "0.612", "108", "84 %", "x"]]
    assert done.machine == "modelled GC200"


def test_rows_of_a_result_have_what_tables_show():
    dynamic = timing("tessera-dynamic", 0.004, new_pattern_seconds=0.001, drop_grow_seconds=5e-5)
    other = timing("tessera", 0.001, type="bf16")
    record = figures.records_of(RESULT | {"results": [row(8, peers=[*row(8)["peers"], dynamic, other])]})[0]
    assert record["tessera_ms"] == pytest.approx(2)
    assert record["tessera_dynamic_ms"] == pytest.approx(4)
    assert record["new_pattern_ms"] == pytest.approx(1)
    assert record["drop_grow_ms"] == pytest.approx(0.05)
    assert record["over_reading"] == pytest.approx(2)
    assert "over_sparse" not in record


def test_results_that_lack_a_row_are_refused(folder):
    table = figures.Table.read("some", folder)
    with pytest.raises(figures.DataError, match="the result has 0 rows with {'n': 64"):
        figures.updated(table, RESULT | {"results": [row(512)]}, "2026-12-01")
    with pytest.raises(figures.DataError, match="not of bench_spmm, tessera spmm"):
        figures.updated(table, {"torch": "2.15"}, "2026-12-01")
    with pytest.raises(figures.DataError, match="'measured' is missing"):
        figures.updated(figures.replace(table, measured=None), RESULT, "2026-12-01")
    for text, why in (("{type}", '"f32"'), ("{tessera_ms:q}", "2.0"), ("{tessera_ms/0}", "2.0")):
        odd = figures.replace(table, measured=MEASURED | {"shows": [text]})
        with pytest.raises(figures.DataError, match=f"some.json: '{re.escape(text)}' cannot show {why}"):
            figures.updated(odd, RESULT, "2026-12-01")


@pytest.mark.parametrize(
    "value,shown",
    [
        *[(0.0461, "0.046"), (0.27, "0.27"), (2.04, "2.0"), (13.24, "13.2"), (38.9, "38.9"), (147.3, "147"), (2440, "2,440")],
        *[(0.0996, "0.10"), (0.996, "1.0"), (99.96, "100"), (-13.24, "-13.2"), (0, "0")],
    ],
)
def test_figures_have_two_or_three_digits(value, shown):
    assert figures.figure_of(value) == shown
    assert figures.figure_of(float("nan")) == "–"


def test_wrong_options_are_refused():
    for options in (["some"], ["--from", "result.json"], ["--check", "--from", "result.json", "inference"]):
        done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False)
        assert done.returncode == 2, options
        assert "go together" in done.stderr
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--from", "no-such.json", "inference"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("no-such.json")) == (1, 1)


def test_every_data_file_is_shown():
    text = "".join(page.read_text(encoding="utf-8") for page in figures.pages())
    unused = [path.stem for path in sorted(figures.HERE.glob("*.json")) if f"<!-- table {path.stem} -->" not in text]
    assert unused == []
