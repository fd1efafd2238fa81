"""The site of README, pages and reference; scripts/build-docs builds it from the root of the tree."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from plain_docstrings import restructured
from sections import with_sections

project = "Tessera"
author = "the authors of Tessera"
project_copyright = "the authors of Tessera"

extensions = ["myst_parser", "sphinx.ext.autodoc", "breathe"]
root_doc = "README"
include_patterns = ["README.md", "CONTRIBUTING.md", "docs/**.md", "docs/api/*.rst"]
exclude_patterns = [".*", "bench", "build*", "cli", "examples", "machines", "python", "scripts", "src", "tests"]
html_theme = "furo"
html_title = "Tessera"
html_show_sourcelink = False
html_show_sphinx = False

myst_heading_anchors = 4
# Blocks of code leave out what they mark with "…".
suppress_warnings = ["misc.highlighting_failure"]
# Rows of programs that no lexer knows are shown as they are.
highlight_language = "text"

breathe_projects = {"tessera": str(ROOT / "build" / "docs" / "doxygen" / "xml")}
breathe_default_project = "tessera"
breathe_show_include = False
breathe_domain_by_extension = {"h": "cpp"}

autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True


def _menu(index: Path) -> dict[str, list[str]]:
    """The pages to which the index links below each of its headings, each once, and the other ones."""
    menu: dict[str, list[str]] = {"Overview": []}
    others = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page != index]
    heading = "Overview"
    for title, link in re.findall(r"^## (.+)$|\]\(([^)#\s]+\.md)", index.read_text(encoding="utf-8"), re.MULTILINE):
        heading = title or heading
        page = (index.parent / link).resolve()
        if link and page in others:
            others.remove(page)
            menu.setdefault(heading, []).append(page.relative_to(ROOT).with_suffix("").as_posix())
    menu["Further pages"] = [page.relative_to(ROOT).with_suffix("").as_posix() for page in others]
    menu["Interfaces"] = ["docs/api/python", "docs/api/cpp"]
    menu["This project"] = ["docs/README", "CONTRIBUTING"]
    return {heading: pages for heading, pages in menu.items() if pages}


def _without_folders(page: Path, text: str) -> str:
    """Links to folders of the tree are for readers of the tree."""
    return re.sub(
        r"\[([^\]]+)\]\(([^)#:]+)\)", lambda link: link[1] if (page.parent / link[2]).is_dir() else link[0], text
    )


def _read(_app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = _without_folders(ROOT / name, source[0])
    if name.startswith("docs/api/"):
        source[0] = with_sections(source[0], ROOT / "include" / "tessera")
    if name == root_doc:
        for heading, pages in _menu(ROOT / "docs" / "README.md").items():
            contents = ["", "```{toctree}", ":hidden:", f":caption: {heading}", "", *pages, "```", ""]
            source[0] += "\n".join(contents)


def _plain(_app: Sphinx, _what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    lines[:] = restructured(lines)


def _is_no_repeated_namespace(record: logging.LogRecord) -> bool:
    """Each header opens the library's namespaces again."""
    return not re.search(r"Duplicate C\+\+ declaration(.|\n)*cpp:type:: [a-z_]+'", record.getMessage())


def setup(app: Sphinx) -> None:
    for module in ("cpp", "cpp._symbol"):
        logging.getLogger(f"sphinx.sphinx.domains.{module}").addFilter(_is_no_repeated_namespace)
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _plain)
