"""The pages of the documentation: links lead somewhere."""

import pages
import pytest


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
