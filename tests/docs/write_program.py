"""Writes the blocks of C++ in README and pages as one test program: a test for each page.

python3 write_program.py FILE
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pages

SETUPS = Path(__file__).parent / "setups.inc"
_SETUP = re.compile(r"// setup: (\w+)")
_INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)


def setups() -> dict[str, tuple[int, str]]:
    """The number of the first line, and the lines, of each set-up; the includes are under ""."""
    found: dict[str, tuple[int, str]] = {}
    name, begin = "", 1
    lines = SETUPS.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate([*lines, "// setup: end"], 1):
        if match := _SETUP.fullmatch(line):
            found[name] = (begin, "\n".join(lines[begin - 1 : number - 1]))
            name, begin = match[1], number + 1
    return found


def _code(block: pages.Block, known: dict[str, tuple[int, str]]) -> Iterator[str]:
    """A block after its set-ups; compilers name the lines of the page."""
    for setup in block.setups:
        line, text = known[setup]
        yield f'#line {line} "{SETUPS}"\n{text}\n'
    yield f'#line {block.line} "{block.page}"\n{_INCLUDE.sub("", block.text)}\n'


def _page(name: str, blocks: list[pages.Block], known: dict[str, tuple[int, str]]) -> Iterator[str]:
    identifier = re.sub(r"\W", "_", name)
    yield f"namespace of_{identifier} {{\n"
    for block in blocks:
        if block.says("declarations"):
            yield from _code(block, known)
    statements = [block for block in blocks if not block.says("declarations")]
    yield "void run() {\n"
    for block in statements:
        yield "{\n"
        yield from _code(block, known)
    yield "}" * (len(statements) + 1) + "\n}\n"
    yield f"TEST(Pages, {identifier}) {{ of_{identifier}::run(); }}\n"


def program() -> Iterator[str]:
    known = setups()
    headers = sorted(each.name for each in (pages.ROOT / "include" / "tessera").glob("*.h"))
    yield "#include <gtest/gtest.h>\n"
    public = "".join(f"#include <tessera/{each}>\n" for each in headers)
    yield known[""][1].replace("#include <tessera/…>\n", public)
    of_pages = {}
    for page in pages.pages():
        blocks = [each for each in pages.blocks_of(page) if each.language == "cpp" and not each.says("fragment")]
        if blocks:
            of_pages[pages.name_of(page)] = blocks
            yield from (f"\n{include}" for block in blocks for include in _INCLUDE.findall(block.text))
    yield "\n\nnamespace {\n"
    for name, blocks in of_pages.items():
        yield from _page(name, blocks, known)
    yield "}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("".join(program()), encoding="utf-8")
