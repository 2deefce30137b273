"""The pages of the site: what they link to is part of it, wherever it lies in the repository."""

from pathlib import Path

import pytest

from scripts.lib import site_pages


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a repository with a page, a decision, and files beside docs/."""
    files = {
        "docs/index.md": "# Start\n\n[a](sub/page.md#there) [b](../tests/test_a.py) [c](../tests) [d](https://example.com)\n",
        "docs/sub/page.md": "# Page\n\n## There\n\n[up](../index.md) [help](../../deploy/README.md)\n",
        "docs/decisions/0001-one.md": "# 1. One thing\n",
        "docs/site.css": "a {}\n",
        "deploy/README.md": "# Deploy\n\n[back](../docs/index.md)\n",
        "tests/test_a.py": "print('a')\n",
        "CHANGELOG.md": "# Changelog\n",
        "CONTRIBUTING.md": "# Contributing\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def prepared(root: Path) -> Path:
    """Prepare the site; return the folder of its pages."""
    site_pages.prepare(root, root / "build" / "pages")
    return root / "build" / "pages"


def test_links_within_docs_stay(root: Path) -> None:
    """Pages keep their places and their anchors; addresses are left alone."""
    text = (prepared(root) / "index.md").read_text()
    assert "[a](sub/page.md#there)" in text
    assert "[d](https://example.com)" in text


def test_files_become_pages(root: Path) -> None:
    """A link to a file leads to a page with its text, one to a folder to a list of what is in it."""
    pages = prepared(root)
    assert "[b](source/tests/test_a.py.md) [c](source/tests/index.md)" in (pages / "index.md").read_text()
    assert "```python\nprint('a')\n```" in (pages / "source/tests/test_a.py.md").read_text()
    assert "- `test_a.py`" in (pages / "source/tests/index.md").read_text()


def test_markdown_elsewhere_is_a_page_with_links(root: Path) -> None:
    """What lies beside docs/ links to the pages of the site as well."""
    pages = prepared(root)
    assert "[help](../project/deploy/README.md)" in (pages / "sub/page.md").read_text()
    assert "[back](../../index.md)" in (pages / "project/deploy/README.md").read_text()


def test_decisions_are_listed(root: Path) -> None:
    """By their titles, in order."""
    assert "- [1. One thing](0001-one.md)" in (prepared(root) / "decisions/index.md").read_text()


def test_examples_in_code_are_left_alone(root: Path) -> None:
    """What looks like a link within a block of code is code."""
    code = "```python\nrows[0](nowhere)\n```\n"
    (root / "docs/sub/page.md").write_text(code)
    assert (prepared(root) / "sub/page.md").read_text() == code


def test_link_to_nothing_is_told(root: Path) -> None:
    """With the page and the link."""
    (root / "docs/sub/page.md").write_text("[gone](gone.md)\n")
    with pytest.raises(FileNotFoundError, match=r"docs/sub/page\.md: gone\.md"):
        prepared(root)


def test_what_was_there_before_is_gone(root: Path) -> None:
    """A page that was removed is not part of the next site."""
    (prepared(root) / "old.md").write_text("old")
    assert not (prepared(root) / "old.md").exists()
