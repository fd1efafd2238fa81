"""The blocks of code in README and pages, with the meaning of comments directly before them.

    <!-- fragment -->       is not run, as it leaves something out; nor is Python in a block of "py"
    <!-- full -->           takes seconds: runs in ./test --full
    <!-- long -->           commands of the tool that take hours, or data: only the names in them are checked
    <!-- run -->            commands of the tool that are quick enough for ./test; others run in ./test --full
    <!-- setup: NAME -->    names and files that the block needs: in setups.py for Python and commands, setups.inc for C++
    <!-- declarations -->   C++ that stands outside of functions
    <!-- figures vary -->   in a block that shows the output of the block before, numbers stand for any others

A block of "text", or without a language, that directly follows a block of Python or of commands is the output of that;
"…" stands for anything, alone on a line for any lines. A block of "toml" is a file, which a comment in its first line
may name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_LANGUAGES = {"bash": "sh", "shell": "sh", "c++": "cpp", "text": ""}
_FENCE = re.compile(r"^( *)```+ *([\w+-]*)\s*$")
_COMMENT = re.compile(r"^ *<!-- *(.*?) *-->$")
_MARK = re.compile(r"(table|figure) |end$")  # of docs/figures/figures.py
_COMMAND = re.compile(
    r"(\w+=\S*\s+)*(\./(demo|test)|(scripts|build/release)/\S+|tessera|bench_\w+|produce-lengths"
    r"|g\+\+|cmake|ctest|git|mpirun|pip|python3?|torchrun)( |$)"
)


@dataclass(frozen=True)
class Block:
    """A block of a page; its line is the line of its first code."""

    page: str
    line: int
    language: str
    text: str
    comments: tuple[str, ...]
    follows: bool  # only empty lines and comments are between it and the block before

    def says(self, comment: str) -> bool:
        return comment in self.comments

    @property
    def setups(self) -> list[str]:
        return [each.removeprefix("setup:").strip() for each in self.comments if each.startswith("setup:")]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def text_of(page: Path) -> list[str]:
    """The lines outside of fenced blocks."""
    lines: list[str] = []
    is_code = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.strip().startswith("```"):
            is_code = not is_code
            line = ""
        lines.append("" if is_code else line)
    return lines


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    return list(_blocks(name_of(page), page.read_text(encoding="utf-8").splitlines()))


def _blocks(page: str, lines: list[str]) -> Iterator[Block]:
    comments: list[str] = []
    follows = False
    i = 0
    while i < len(lines):
        line = lines[i]
        if comment := _COMMENT.match(line):
            comments += [] if _MARK.match(comment[1]) else [comment[1]]
            i += 1
            continue
        found = _fenced(lines, i) or _indented(lines, i)
        if found:
            language, begin, end, next_line = found
            yield Block(page, begin + 1, language, _text(lines[begin:end]), tuple(comments), follows)
            i, comments, follows = next_line, [], True
            continue
        if line.strip():
            comments, follows = [], False
        i += 1


def _fenced(lines: list[str], i: int) -> tuple[str, int, int, int] | None:
    """Language, first line, line after the last, and the line after the block."""
    fence = _FENCE.match(lines[i])
    if not fence:
        return None
    end = next(j for j in range(i + 1, len(lines)) if lines[j].strip().startswith("```"))
    language = _LANGUAGES.get(fence[2], fence[2])
    if not language and _COMMAND.match(lines[i + 1].strip()):
        language = "sh"
    return language, i + 1, end, end + 1


def _indented(lines: list[str], i: int) -> tuple[str, int, int, int] | None:
    """A block by indentation that does not continue an item of a list."""
    before = lines[i - 1].strip() if i else ""
    is_code = lines[i].startswith("    ") and (not before or before.startswith(("```", "<!--")))
    if not is_code or _is_in_list(lines, i):
        return None
    end = i
    while end < len(lines) and lines[end].startswith("    "):
        end += 1
    return "sh" if _COMMAND.match(lines[i].strip()) else "", i, end, end


def _is_in_list(lines: list[str], i: int) -> bool:
    for line in reversed(lines[:i]):
        if line.strip() and not line.startswith("  "):
            return bool(re.match(r"([-*]|\d+\.) ", line))
    return False


def _text(lines: list[str]) -> str:
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)


def file_of(block: Block) -> str:
    """The name of the file that a block of "toml" is."""
    named = re.match(r"# (\S+)\n", block.text)
    return named[1] if named else "machine.toml"


def is_output(blocks: list[Block], i: int) -> bool:
    """Whether a block shows the output of the block before it."""
    block = blocks[i]
    is_shown = block.language == "" and block.follows and not block.says("fragment")
    return i > 0 and is_shown and blocks[i - 1].language in ("python", "sh")


def output_after(block: Block) -> Block | None:
    """The block that shows the output of this one."""
    of_page = blocks_of(ROOT / block.page)
    i = of_page.index(block) + 1
    return of_page[i] if i < len(of_page) and is_output(of_page, i) else None


def differs(shown: str, printed: str, figures_vary: bool) -> bool:
    """Whether a page shows another text than the printed one."""
    return not re.fullmatch(_pattern(_normalised(shown), figures_vary), _normalised(printed))


_FIGURE = r"\d[\d,.]*(?:e[+-]?\d+)?"
_LINES_BEFORE = r"(.*\n)*"
_UNIT = r"\b(?:ns|us|µs|ms|s)\b"


def _normalised(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


def _pattern(shown: str, figures_vary: bool) -> str:
    pattern = ""
    for i, line in enumerate(shown.splitlines()):
        if line == "…":
            pattern += r"(\n.*)*" if i else _LINES_BEFORE
            continue
        pattern += ("\n" if i and pattern != _LINES_BEFORE else "") + _line(line, figures_vary)
    return pattern


def _line(line: str, figures_vary: bool) -> str:
    """With figures, units vary too."""
    tokens = re.split(f"(…|{_FIGURE}|{_UNIT})" if figures_vary else "(…)", line)
    return "".join(_token(token, figures_vary) for token in tokens)


def _token(token: str, figures_vary: bool) -> str:
    if token == "…":
        return ".*"
    for kind in (_FIGURE, _UNIT) if figures_vary else ():
        if re.fullmatch(kind, token):
            return kind
    return re.escape(token)
