"""Numbers from tables of the pages, so that pictures have no second copy of them."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"

Row = dict[str, str]


def rows_of(page: str, *columns: str) -> list[Row]:
    """The rows of all tables of a page that have these columns, by the names in the heads of the tables."""
    rows: list[Row] = []
    head: list[str] = []
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            head = []
        elif not head:
            head = cells
        elif set(columns) <= set(head) and not re.fullmatch(r"[-:]+", cells[0]):
            rows.append(dict(zip(head, cells)))
    if not rows:
        raise ValueError(f"docs/{page} has no table with the columns {', '.join(columns)}")
    return rows


def numbers(cell: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", cell.replace(",", ""))]
