"""Commands in blocks for the shell, and whether the names in them exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FILE = re.compile(r"(?:\./)?((?:scripts|examples|bench|machines|configs)/[\w./-]+|demo|test)")
_BUILT = re.compile(r"build/release/(cli|bench|tests|examples)(?:/(\w+))?/(\w+)")
_EXTRAS = re.compile(r"\.\[([\w,]+)\]")


def commands_of(text: str) -> Iterator[list[str]]:
    """The words of each command, without variables before it and redirections after it."""
    for line in text.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for word in [*shlex.split(line.removeprefix("$ "), comments=True), ";"]:
            if word.rstrip(";") in ("", "|", "&&"):
                yield from [words] if words else []
                words = []
            elif words or not re.match(r"\w+=", word):
                words.append(word.rstrip(";"))
            if word.endswith(";") and words:
                yield words
                words = []


def wrong_names(text: str) -> list[str]:
    """The names in the commands of a block that do not exist in the tree; the tool checks its options itself."""
    wrong = []
    for words in commands_of(text):
        wrong += [word for word in words if not _is_there(word)]
        sources = "".join(file.read_text(encoding="utf-8") for file in _sources_of(words))
        wrong += [f"{words[0]} {option}" for option in options_of(words) if sources and option not in sources]
    return wrong


def options_of(words: Iterable[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)]


def _is_there(word: str) -> bool:
    if file := _FILE.fullmatch(word):
        return (ROOT / file[1]).exists()
    if built := _BUILT.fullmatch(word):
        folder, part, _ = built.groups()
        return (ROOT / folder / (part or "")).is_dir()
    if extras := _EXTRAS.fullmatch(word):
        with open(ROOT / "pyproject.toml", "rb") as file:
            return set(extras[1].split(",")) <= set(tomllib.load(file)["project"]["optional-dependencies"])
    return True


def _sources_of(words: list[str]) -> Iterator[Path]:
    """The sources with the options of a script or a benchmark; none for other programs."""
    program = words[1] if words[0] == "python" and len(words) > 1 else words[0]
    file = ROOT / program
    if program.endswith(".py") and file.exists():
        yield from sorted(file.parent.glob("*.py"))
    elif program in ("./test", "./demo") or (program.startswith("scripts/") and file.exists()):
        yield file
    elif words[:2] == ["python", "-m"] and words[2].startswith("tessera."):
        yield ROOT / "python" / (words[2].replace(".", "/") + ".py")
    elif Path(program).name.startswith("bench_"):
        yield from sorted(each for each in (ROOT / "bench").rglob("*") if each.suffix in (".cc", ".h"))


def unknown_options(words: list[str], help_of: Callable[[list[str]], str]) -> list[str]:
    """The options of a command of the tool that its help lacks."""
    text = help_of(words[1:2])
    has_part = len(words) > 2 and re.match(r"[a-z]+$", words[2])
    if has_part and re.search(rf"^ +{words[2]}\s", text, re.MULTILINE):
        text += help_of(words[1:3])
    return [option for option in options_of(words) if not re.search(rf"{option}(?![\w-])", text)]
