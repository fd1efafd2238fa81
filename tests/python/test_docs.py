"""README and pages: blocks of code run and print what the pages show, commands and links name what exists.

tests/docs/pages.py explains the comments with which a page marks its blocks.
"""

import contextlib
import functools
import importlib
import inspect
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "docs"))

import commands
import links
import pages

PAGES = pages.pages()
MODULES = (
    *("tessera", "tessera.graph", "tessera.nn", "tessera.nn.formulas", "tessera.sparse", "tessera.snn"),
    *("tessera.snn.functional", "tessera.snn.surrogate", "tessera.onnx", "tessera.text", "tessera.vision"),
    "tessera.pack",
)
BUILT_TOOL = "build/release/cli/tessera"
IS_FULL = os.environ.get("TESSERA_TEST_FULL", "0") != "0"
HINT = "tests/docs/pages.py says how a page marks blocks that are fragments, or need a set-up"


def blocks(language, *without):
    for page in PAGES:
        for block in pages.blocks_of(page):
            if block.language == language and not any(block.says(each) for each in without):
                yield block


def pages_with(language, *without):
    return list(dict.fromkeys(block.page for block in blocks(language, *without)))


def prepared(block, names):
    """Names and files that a block takes for granted."""
    setups = importlib.import_module("setups")
    for setup in block.setups:
        names.update(getattr(setups, setup)())


def printed_by(block, names):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        # Tracebacks have the line numbers of the page.
        exec(compile("\n" * (block.line - 1) + block.text, block.page, "exec"), names)
    return out.getvalue()


def expect_shown(block, printed):
    shown = pages.output_after(block)
    if shown is not None:
        is_same = not pages.differs(shown.text, printed, shown.says("figures vary"))
        assert is_same, f"{shown.place} shows something else than what {block.place} prints:\n{printed}"


def write_files(page):
    """Write the files that blocks of the page show."""
    for block in pages.blocks_of(ROOT / page):
        if block.language == "toml" and not block.says("fragment"):
            Path(pages.file_of(block)).write_text(block.text, encoding="utf-8")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", pages_with("python", "fragment"))
def test_python_of(page, tmp_path, monkeypatch):
    """One session for each page, in its own folder."""
    import tessera

    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    write_files(page)
    monkeypatch.setattr(sys, "argv", [page])
    names = {"__name__": page}
    ran = 0
    try:
        for block in pages.blocks_of(ROOT / page):
            if block.language != "python" or block.says("fragment") or (block.says("full") and not IS_FULL):
                continue
            try:
                prepared(block, names)
                printed = printed_by(block, names)
            except Exception as error:
                raise AssertionError(f"{block.place} fails: {type(error).__name__}: {error} ({HINT})") from error
            ran += 1
            expect_shown(block, printed)
    finally:
        tessera.set_num_threads(0)
    if not ran:
        pytest.skip("takes long: runs in ./test --full")


def test_python_fragments_are_correct_python():
    fragments = [*blocks("py"), *(block for block in blocks("python") if block.says("fragment"))]
    for block in fragments:
        compile(block.text.replace("…", "..."), block.place, "exec")


def test_comments_are_known():
    known = {"fragment", "full", "long", "run", "figures vary", "declarations"}
    setups = (ROOT / "tests" / "docs" / "setups.py").read_text(encoding="utf-8")
    of_cpp = (ROOT / "tests" / "docs" / "setups.inc").read_text(encoding="utf-8")
    for language in ("python", "sh", "cpp"):
        for block in blocks(language):
            for setup in block.setups:
                is_there = f"// setup: {setup}\n" in of_cpp if language == "cpp" else f"def {setup}(" in setups
                assert is_there, f"{block.place}: no set-up {setup}"
            others = {each for each in block.comments if not each.startswith("setup:")} - known
            assert not others, f"{block.place}: {HINT}"


@pytest.mark.parametrize("page", pages_with("sh"))
def test_commands_name_what_exists(page):
    for block in pages.blocks_of(ROOT / page):
        if block.language == "sh":
            assert commands.wrong_names(block.text) == [], block.place


def test_machine_files_are_read(tmp_path, monkeypatch):
    import tessera

    monkeypatch.chdir(tmp_path)
    for page in pages_with("toml", "fragment"):
        write_files(page)
    for file in tmp_path.glob("*.toml"):
        assert tessera.Machine(str(file)).tiles > 0, file.name


def tool():
    path = Path(os.environ.get("TESSERA_TEST_TOOL", ""))
    if not path.is_file():
        pytest.skip("TESSERA_TEST_TOOL names no tool")
    return path


@functools.cache
def help_of(*path):
    result = subprocess.run([tool(), *path, "--help"], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, f"tessera {' '.join(path)}: {result.stderr}"
    return result.stdout


def test_options_of_the_tool_exist():
    for block in blocks("sh"):
        for words in commands.commands_of(block.text):
            if is_of_tool(words) and len(words) > 1:
                assert commands.unknown_options(words, lambda path: help_of(*path)) == [], block.place


def is_of_tool(words):
    return words[0] in ("tessera", BUILT_TOOL)


def runnable():
    """Blocks that have only commands of the tool."""
    for block in blocks("sh", "fragment", "long"):
        if all(map(is_of_tool, commands.commands_of(block.text))):
            yield pytest.param(block, id=block.place, marks=() if block.says("run") else pytest.mark.full)


@pytest.mark.parametrize("block", list(runnable()))
def test_commands_of_the_tool(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(block.page)
    prepared(block, {})
    environment = {**os.environ, "PATH": f"{tool().parent}:{os.environ['PATH']}"}
    command = ["bash", "-euo", "pipefail", "-c", block.text.replace(BUILT_TOOL, "tessera")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3600, check=False)
    assert result.returncode == 0, f"{block.place}: {result.stderr}"
    expect_shown(block, result.stdout)


@pytest.mark.parametrize("page", PAGES, ids=pages.name_of)
def test_links_lead_somewhere(page):
    assert links.broken_links_of(page) == []


def test_broken_links_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# A title, of `code`\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n\n[a](other.md#a-title-of-code) [b](other.md#twice-1) [c](#one) `[d](no.md)` [e](https://x.y)\n\n"
        '```cpp\na[0](no);\n```\n\n[f](no.md), [g](other.md#no), [h\ni](../out.md), <img src="no.svg">\n'
    )
    assert [each.partition(":")[0] for each in links.broken_links_of(page)] == [
        "no.md",
        "other.md#no",
        "../out.md",
        "no.svg",
    ]


@pytest.mark.parametrize("script", ["draw-pictures", "write-notebook"])
def test_what_scripts_write_is_up_to_date(script):
    command = [sys.executable, str(ROOT / "scripts" / script), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_tables_and_figures_are_those_of_their_data():
    script = ROOT / "docs" / "figures" / "figures.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_pictures_say_in_words_what_they_show():
    """In the pages, for readers who do not see the pictures."""
    shown = set()
    for page in PAGES:
        for words, path in links.pictures_of(page):
            assert len(words) >= 30, f"{pages.name_of(page)}: {path} needs a text alternative"
            shown.add((page.parent / path).resolve())
    there = {each for each in (ROOT / "docs" / "images").iterdir() if each.suffix in (".svg", ".png")}
    assert shown == there


def test_every_page_is_linked():
    linked = set()
    for page in PAGES:
        linked |= {(page.parent / link.partition("#")[0]).resolve() for link in links.links_of(page)}
    assert [pages.name_of(page) for page in PAGES[1:] if page not in linked] == []


def examples():
    """The examples that are programs, without shared files."""
    helpers = ("arguments.h", "images.py", "expect_usage.cmake", "CMakeLists.txt")
    return sorted(each.name for each in (ROOT / "examples").iterdir() if each.is_file() and each.name not in helpers)


def test_every_example_is_linked_and_run():
    tests = (ROOT / "tests" / "python" / "test_examples.py").read_text(encoding="utf-8")
    tests += (ROOT / "examples" / "CMakeLists.txt").read_text(encoding="utf-8")
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for example in examples():
        assert f"examples/{example})" in text, f"no page links to examples/{example}"
        name = example.removesuffix(".cc")
        assert re.search(rf"\b{re.escape(name)}\b", tests), f"no test runs examples/{example}"


def test_every_header_is_in_the_reference():
    reference = "".join(each.read_text(encoding="utf-8") for each in (ROOT / "docs" / "api").glob("*.rst"))
    headers = re.findall(r"^\.\. header:: (\S+)$", reference, re.MULTILINE)
    assert sorted(headers) == sorted(each.name for each in (ROOT / "include" / "tessera").glob("*.h"))
    assert sorted(re.findall(r"^\.\. module-section:: (\S+)$", reference, re.MULTILINE)) == sorted(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_there(module):
    pytest.importorskip("torch")
    loaded = importlib.import_module(module)
    assert loaded.__doc__ and set(loaded.__all__) <= set(dir(loaded))


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_are_readable_for_sphinx(module):
    """Errors that scripts/build-docs would refuse."""
    docutils = pytest.importorskip("docutils.core")
    pytest.importorskip("torch")
    sys.path.insert(0, str(ROOT / "docs" / "site"))
    try:
        from plain_docstrings import restructured
    finally:
        sys.path.pop(0)
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        docstring = inspect.cleandoc(getattr(loaded, name).__doc__ or "")
        errors = io.StringIO()
        settings = {"warning_stream": errors, "report_level": 2}
        docutils.publish_doctree("\n".join(restructured(docstring.splitlines())), settings_overrides=settings)
        assert not errors.getvalue(), f"{module}.{name}: {errors.getvalue()}"


@pytest.mark.parametrize(
    "shown,printed,varies,same",
    [
        ("a 1.5 ms\n…\nz", "a 2,000 us\nq\nr\nz", True, True),
        ("a 1.5 ms", "a 1.6 ms", False, False),
        ("a … c\n…", "a b   c\n\nx", False, True),
        ("…\nz", "x\nz", False, True),
        ("a\n…\nz", "a\nz", False, True),
        ("a\nb", "a\nc", True, False),
    ],
)
def test_what_pages_show_is_compared(shown, printed, varies, same):
    assert pages.differs(shown, printed, varies) != same
