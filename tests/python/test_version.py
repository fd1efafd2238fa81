"""The version number is the same in several files."""

import importlib.metadata
import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).parents[2]


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_files_have_the_version_of_the_package():
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
    assert importlib.metadata.version("tessera") == version
    assert f"project(tessera VERSION {version} " in text_of("CMakeLists.txt")
    assert f"\nversion: {version}\n" in text_of("CITATION.cff")
    first = re.search(r"^## (.*) \((?:not released yet|\d{4}-\d\d-\d\d)\)$", text_of("docs/changes.md"), re.MULTILINE)
    assert first is not None and first[1] == version
