"""The pages of the documentation: links lead somewhere, and code prints what they show."""

import contextlib
import io
import os
import shlex
import subprocess
import sys

import pages
import pytest

#: Pages whose code runs from top to bottom.
WITH_CODE = ["README.md", "docs/getting-started.md", "docs/evaluate-your-chip.md", "docs/spiking-python.md"]

#: Pages whose commands run, in one folder.
WITH_COMMANDS = ["docs/evaluate-your-chip.md", pytest.param("README.md", marks=pytest.mark.full)]

TOOL = "build/release/cli/tessera"


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_links_lead_somewhere(page):
    assert pages.broken_links_of(page) == []


def test_broken_links_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# A title, of `code`\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n\n[a](other.md#a-title-of-code) [b](other.md#twice-1) [c](#one) `[d](no.md)` [e](https://x.y)\n\n"
        '```cpp\na[0](no);\n```\n\n[f](no.md), [g](other.md#no), [h\ni](../out.md), <img src="no.svg">\n'
    )
    assert [each.partition(":")[0] for each in pages.broken_links_of(page)] == [
        "no.md",
        "other.md#no",
        "../out.md",
        "no.svg",
    ]


def test_ellipses_and_spaces_stand_for_others():
    assert pages.prints_as_shown("a … ms\nb\n", "a  1.2 ms\nb")
    assert not pages.prints_as_shown("a … ms\n", "a 1.2 ms\nb")
    assert not pages.prints_as_shown("a 1 ms\n", "a 2 ms\n")


def write_file(block, folder):
    """Its first line, a comment, has its name."""
    (folder / block.text.split()[1]).write_text(block.text, encoding="utf-8")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WITH_CODE)
def test_code_prints_what_the_page_shows(name, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    examples = list(pages.examples_of(pages.ROOT / name))
    assert examples
    for example in examples:
        block = example.block
        if block.language == "toml":
            write_file(block, tmp_path)
            continue
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile("\n" * (block.line - 1) + block.text, name, "exec"), names)
        printed = out.getvalue()
        assert pages.prints_as_shown(example.prints, printed), f"{name}:{block.line} prints\n{printed}"


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_commands_run(name, tmp_path):
    tool = os.environ.get("TESSERA_TEST_TOOL", "")
    if not tool:
        pytest.skip("TESSERA_TEST_TOOL names no tool")
    for example in pages.examples_of(pages.ROOT / name):
        if example.block.language == "toml":
            write_file(example.block, tmp_path)
    commands = pages.commands_of(pages.ROOT / name, TOOL)
    assert commands
    for command in commands:
        done = subprocess.run(
            [tool, *shlex.split(command)], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"


def test_pictures_are_those_of_their_data():
    script = pages.ROOT / "docs" / "images" / "speedup.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
