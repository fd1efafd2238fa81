"""Tables and figures of README and pages, written from the data files beside this script.

    python docs/figures/figures.py                            # write the tables of all pages
    python docs/figures/figures.py --check                    # fail if a page shows something else than its data
    python docs/figures/figures.py --from RESULT.json TABLE   # take the cells from a benchmark's --json first

A data file TABLE.json has `columns`, `rows` and where they are from: `machine`, `versions`, `date` and `command`, where "" is
for what does not apply. Optional are
    labels    how many columns, from the first on, name a row (1)
    align     a letter for each column: l, r, or "-" for neither; one letter stands for all
    long      true if the command takes hours, or data, so that tests do not run it
    measured  how cells are made of a benchmark's result; docs/contributing/tables-and-reports.md describes it
A cell is a text, or a list of texts, all but the first of which are shown in brackets. A page shows a table between the lines
    <!-- table TABLE -->
    <!-- end -->
and one of its figures between <!-- figure TABLE; ROW; COLUMN --> and <!-- end -->. The number of a text in the cell's list
may follow, and % for a fraction in percent: <!-- figure TABLE; ROW; COLUMN; 2 -->. <!-- figure TABLE; date --> is when it was
measured; so are `machine` and `versions`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NOT_RECORDED = "not recorded"

Cell = str | list[str]
Record = dict[str, Any]

_END = "<!-- end -->"
_INNER = r"(?:(?!<!-- (?:table|figure|end)).)*"
_TABLE = re.compile(rf"^<!-- table ([\w-]+) -->\n{_INNER}^{_END}$", re.MULTILINE | re.DOTALL)
_FIGURE = re.compile(rf"(?<!`)<!-- figure ((?:(?!-->).)+?) -->{_INNER}{_END}", re.DOTALL)
_BEGINS_LINE = re.compile(r"^ {0,3}<!-- figure ", re.MULTILINE)
_MARK = re.compile(r"^<!-- table |(?<!`)<!-- figure ", re.MULTILINE)
_FIELD = re.compile(r"\{(\w+)(?:([*/])([\d.e]+))?(?::([^{}]+))?\}")
_RULES = {"l": ":---", "r": "---:", "-": "---"}


class DataError(ValueError):
    """A data file, or a page that uses it, is wrong."""


@dataclass(frozen=True)
class Table:
    name: str
    machine: str
    versions: str
    date: str
    command: str
    columns: list[str]
    rows: list[list[Cell]]
    labels: int = 1
    align: str = "-"
    long: bool = False
    measured: Record | None = None

    def __post_init__(self) -> None:
        for error in _errors(vars(self)):
            raise DataError(f"{self.name}.json: {error}")

    @staticmethod
    def read(name: str, folder: Path = HERE) -> Table:
        path = folder / f"{name}.json"
        if not path.is_file():
            raise DataError(f"there is no {path.name} in {folder.name}/")
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path.name}: {error}") from error
        if not isinstance(data, dict):
            raise DataError(f"{path.name}: it is not an object of {', '.join(_NEEDED)}")
        if missing := [key for key in _NEEDED if key not in data]:
            raise DataError(f"{path.name}: {', '.join(missing)} missing")
        if unknown := [key for key in data if key not in (*_NEEDED, *_OPTIONAL)]:
            raise DataError(f"{path.name}: unknown {', '.join(unknown)} (choose from {', '.join((*_NEEDED, *_OPTIONAL))})")
        return Table(name, **data)

    def write(self, folder: Path = HERE) -> None:
        """A row of the table is a line of the file."""
        items = {key: value for key, value in vars(self).items() if key != "name" and value != _OPTIONAL.get(key)}
        lines = [f'  "{key}": {_listed(value)}' for key, value in items.items()]
        (folder / f"{self.name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    def name_of(self, row: list[Cell]) -> str:
        return ", ".join(_plain(_shown(cell)) for cell in row[: self.labels])

    def cell(self, row: str, column: str) -> Cell:
        rows = [each for each in self.rows if self.name_of(each) == row]
        columns = [i for i, each in enumerate(self.columns) if _plain(each) == column]
        if len(rows) != 1 or len(columns) != 1:
            raise DataError(f"{self.name}.json: there are {len(rows)} rows '{row}' and {len(columns)} columns '{column}'")
        return rows[0][columns[0]]

    def texts(self, row: str, column: str) -> list[str]:
        cell = self.cell(row, column)
        return [cell] if isinstance(cell, str) else cell


_NEEDED = [each.name for each in fields(Table) if each.default is MISSING and each.name != "name"]
_OPTIONAL = {each.name: each.default for each in fields(Table) if each.default is not MISSING}


def _errors(data: Record) -> Iterator[str]:
    """What is wrong in a data file. Checks rely on those before them, so the first one counts."""
    for key in ("machine", "versions", "date", "command", "align"):
        if not isinstance(data[key], str):
            yield f"{key} is {_excerpt(data[key])}, not a text"
    if not re.fullmatch(rf"|{NOT_RECORDED}|\d{{4}}-\d\d-\d\d", data["date"]):
        yield f"the date is '{data['date']}', not YYYY-MM-DD or '{NOT_RECORDED}'"
    columns, labels, align = data["columns"], data["labels"], data["align"]
    if not _is_list_of(str, columns) or not columns:
        yield f"columns is {_excerpt(columns)}, not a list of texts"
    if type(labels) is not int or not 1 <= labels <= len(columns):
        yield f"labels is {_excerpt(labels)}, not a number of columns from 1 to {len(columns)}"
    if len(align) not in (1, len(columns)) or set(align) - set(_RULES):
        yield f"align has one letter, or one for each column, of {', '.join(_RULES)}"
    if not isinstance(data["long"], bool):
        yield f"long is {_excerpt(data['long'])}, not true or false"
    yield from _errors_of_rows(data["rows"], columns)
    if data["measured"] is not None:
        yield from _errors_of_measured(data["measured"], len(data["rows"]), len(columns) - labels)


def _errors_of_rows(rows: Any, columns: list[str]) -> Iterator[str]:
    if not isinstance(rows, list):
        yield f"rows is {_excerpt(rows)}, not a list of lists of cells"
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list):
            yield f"row {number} is {_excerpt(row)}, not a list of cells"
        if len(row) != len(columns):
            yield f"row {number} ({_excerpt(row)}) has not as many cells as there are columns: {len(row)}, not {len(columns)}"
        for column, cell in zip(columns, row, strict=True):
            if not isinstance(cell, str) and not (_is_list_of(str, cell) and len(cell) > 1):
                where = f"row {number} ({_excerpt(row[0])}), column '{column}'"
                yield f"{where}: {_excerpt(cell)} is not a text, nor a list of several texts"


def _errors_of_measured(measured: Any, rows: int, columns: int) -> Iterator[str]:
    if not isinstance(measured, dict):
        yield f"measured is {_excerpt(measured)}, not an object"
    for key, count in (("rows", rows), ("columns", columns)):
        if not _is_list_of(dict, measured.get(key)) or len(measured[key]) != count:
            yield f"'{key}' of measured is not a list of {count} objects, one for each of the table's {key} of figures"
    for number, of_row in enumerate(measured["rows"], 1):
        for of_column in measured["columns"]:
            shows = (measured | of_row | of_column).get("shows")
            if not _is_list_of(str, shows):
                yield f"measured, row {number}: 'shows' is {_excerpt(shows)}, not a list of texts"


def _is_list_of(kind: type, value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


def _excerpt(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _listed(value: Any) -> str:
    if isinstance(value, dict):
        items = ",\n".join(f'    "{key}": {json.dumps(each, ensure_ascii=False)}' for key, each in value.items())
        return f"{{\n{items}\n  }}"
    if not isinstance(value, list) or not value or not isinstance(value[0], list):
        return json.dumps(value, ensure_ascii=False)
    rows = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in value)
    return f"[\n{rows}\n  ]"


def _plain(text: str) -> str:
    return re.sub(r"[*`]", "", text).strip()


def _shown(cell: Cell) -> str:
    return cell if isinstance(cell, str) else f"{cell[0]} ({', '.join(cell[1:])})"


def _origin(table: Table) -> str:
    recorded = {"machine": table.machine, "versions": table.versions, "date": table.date}
    parts = [f"{key} not recorded" if text == NOT_RECORDED else text for key, text in recorded.items() if text]
    text = "; ".join(parts)
    return f"*{text[:1].upper()}{text[1:]}.*" if text else ""


def table_text(table: Table, before: str = "") -> str:
    """What a page shows of a table. `before` is the page up to it; commands of the same section are not repeated."""
    align = table.align * len(table.columns) if len(table.align) == 1 else table.align
    rules = [_RULES[letter] for letter in align]
    rows = [table.columns, rules, *([_shown(cell) for cell in row] for row in table.rows)]
    lines = [f"<!-- table {table.name} -->", "", *(re.sub(" +", " ", f"| {' | '.join(row)} |") for row in rows), ""]
    if origin := _origin(table):
        lines += [origin, ""]
    command = "\n".join(f"    {line}" for line in table.command.splitlines())
    section = before.rpartition("\n## ")[2]
    if command and f"\n{command}\n" not in f"\n{section}":
        lines += ["<!-- long -->", ""] if table.long else []
        lines += [command, ""]
    return "\n".join([*lines, _END])


def figure_text(reference: str, folder: Path = HERE) -> str:
    name, *place = (part.strip() for part in " ".join(reference.split()).split(";"))
    table = Table.read(name, folder)
    if len(place) == 1 and place[0] in ("machine", "versions", "date"):
        return str(getattr(table, place[0]))
    if not 2 <= len(place) <= 3:
        raise DataError(f"'{reference}' is not TABLE; ROW; COLUMN")
    texts = table.texts(*place[:2])
    if len(place) == 2:
        return _plain(_shown(table.cell(*place)))
    if place[2] == "%":
        try:
            return f"{100 * float(texts[0]):.0f} %"
        except ValueError as error:
            raise DataError(f"'{reference}': the cell is '{texts[0]}', not a fraction") from error
    if not place[2].isdigit() or not 1 <= int(place[2]) <= len(texts):
        raise DataError(f"'{reference}': the cell has {len(texts)} texts")
    return _plain(texts[int(place[2]) - 1])


def rendered(page: str, folder: Path = HERE) -> str:
    """A page with the tables and figures of the data files."""
    if len(_MARK.findall(page)) != len(_TABLE.findall(page)) + len(_FIGURE.findall(page)):
        raise DataError(f"a table or a figure has no {_END}")
    if _BEGINS_LINE.search(page):
        raise DataError("a comment that begins a line ends the paragraph: break the line elsewhere")
    text, end = "", 0
    for mark in sorted([*_TABLE.finditer(page), *_FIGURE.finditer(page)], key=lambda found: found.start()):
        text += page[end : mark.start()]
        end = mark.end()
        if mark.re is _TABLE:
            text += table_text(Table.read(mark[1], folder), text)
        else:
            text += f"<!-- figure {mark[1]} -->{figure_text(mark[1], folder)}{_END}"
    return text + page[end:]


# Results of benchmarks


def records_of(result: Record) -> list[Record]:
    """One for each row of a result, with what cells may show of it."""
    command = str(result.get("command", ""))
    if result.get("benchmark") == "spmm":
        return [_record_of_spmm(each) for each in result["results"]]
    if command == "spmm":
        return list(result["results"])
    if command.startswith("reproduce "):
        return [
            {"section": section["section"], "machine": each["machine"], "cell": each["cell"], **each["values"]}
            for section in result["sections"]
            for each in section["results"]
        ]
    raise DataError("the file is not of bench_spmm, tessera spmm or tessera reproduce, with --json")


def _record_of_spmm(result: Record) -> Record:
    """Times in ms, rates in GFLOP/s; `dense` and `sparse` are the best libraries of each kind."""
    record = {key: value for key, value in result.items() if key not in ("peers", "targets")}
    record["density"] = result["requested_density"] or result["density"]
    timings = [timing for timing in result["peers"] if timing["seconds"]]
    for kind in ("tessera", "tessera-dense", "tessera-dynamic", "dense", "sparse"):
        of_kind = [each for each in timings if each["kind"] == kind and each["product"] == result["product"]]
        if kind.startswith("tessera"):
            of_kind = [each for each in of_kind if each["type"] == result["type"]]
        best = min(of_kind, key=lambda each: float(each["seconds"]), default=None)
        if best:
            name = kind.replace("-", "_")
            record[f"{name}_ms"] = 1e3 * best["seconds"]
            record[f"{name}_gflops"] = best["useful_gflops"]
            if kind == "tessera-dynamic":
                record["new_pattern_ms"] = 1e3 * (best["new_pattern_seconds"] or math.nan)
                record["drop_grow_ms"] = 1e3 * (best["drop_grow_seconds"] or math.nan)
    for kind in ("dense", "sparse"):
        if "tessera_ms" in record and f"{kind}_ms" in record:
            record[f"over_{kind}"] = record[f"{kind}_ms"] / record["tessera_ms"]
    if result["read_gbps"] and "tessera_ms" in record:
        record["over_reading"] = record["tessera_ms"] / (1e3 * result["bytes"] / (1e9 * result["read_gbps"]))
    return record


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return isinstance(value, (int, float)) and math.isclose(value, wanted, rel_tol=1e-3)
    return bool(value == wanted)


def figure_of(value: float, form: str = "") -> str:
    """As Python's format(); without a form, two significant digits below 10, and three from there on."""
    if not math.isfinite(value):
        return "–"
    if form:
        return format(value, form)
    if value == 0:
        return "0"
    digits = 2 if abs(value) < 10 else 3
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:,.{max(0, digits - 1 - exponent)}f}"


def cell_of(records: list[Record], where: Record, texts: list[str], name: str) -> Cell:
    found = [each for each in records if all(_same(each.get(key), value) for key, value in where.items())]
    if len(found) != 1:
        raise DataError(f"{name}.json: the result has {len(found)} rows with {where}")

    def value_of(field: re.Match[str]) -> str:
        value = found[0].get(field[1])
        try:
            factor = float(field[3] or 1)
            scaled = math.nan if value is None else value / factor if field[2] == "/" else value * factor
            return figure_of(scaled, field[4] or "")
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise DataError(f"{name}.json: '{field[0]}' cannot show {_excerpt(value)}: {error}") from error

    shown = [_FIELD.sub(value_of, text) for text in texts]
    return shown[0] if len(shown) == 1 else shown


def updated(table: Table, result: Record, date: str, machine: str = "", versions: str = "") -> Table:
    """The table with the cells of a benchmark's result; machine and versions are the result's if it has them."""
    if table.measured is None:
        raise DataError(f"{table.name}.json: it does not say how cells are made of a result: 'measured' is missing")
    records = records_of(result)
    rows: list[list[Cell]] = []
    for row, of_row in zip(table.rows, table.measured["rows"], strict=True):
        cells = row[: table.labels]
        for column, old in zip(table.measured["columns"], row[table.labels :], strict=True):
            settings = {key: value for key, value in table.measured.items() if key not in ("rows", "columns")}
            where = settings | of_row | column
            texts = where.pop("shows")
            cells.append(cell_of(records, where, texts, table.name) if texts else old)
        rows.append(cells)
    if "cpu" in result:
        machine = machine or f"{result['threads']} threads of {result['cpu']} ({result['isa']})"
        versions = versions or ", ".join(result["peers"])
    return replace(table, rows=rows, date=date, machine=machine or table.machine, versions=versions or table.versions)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def write_pages(only_check: bool) -> int:
    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        try:
            shown = rendered(text)
        except DataError as error:
            raise DataError(f"{page.relative_to(ROOT)}: {error}") from error
        if shown == text:
            continue
        stale.append(page.relative_to(ROOT).as_posix())
        if not only_check:
            page.write_text(shown, encoding="utf-8")
    if stale and only_check:
        print(f"{', '.join(stale)}: run python docs/figures/figures.py", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not as it would be written")
    parser.add_argument("--from", dest="result", type=Path, metavar="RESULT.json", help="file that a benchmark's --json wrote")
    parser.add_argument("--date", help="date of the measurement (default: when the file was written)")
    parser.add_argument("--machine", default="", help="machine of the result, if the result does not name it")
    parser.add_argument("--versions", default="", help="versions of other libraries, if the result does not say so")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="tables that take their cells from RESULT.json")
    options = parser.parse_args()
    if bool(options.tables) != (options.result is not None) or (options.check and options.result):
        parser.error("--from RESULT.json and the names of tables go together, without --check")
    try:
        if options.result:
            result = json.loads(options.result.read_text(encoding="utf-8"))
            date = options.date or datetime.date.fromtimestamp(options.result.stat().st_mtime).isoformat()
            origin = (date, options.machine, options.versions)
            for table in [updated(Table.read(name), result, *origin) for name in options.tables]:
                table.write()
        return write_pages(options.check)
    except (DataError, OSError, json.JSONDecodeError) as error:
        print(f"figures.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
