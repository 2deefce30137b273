"""Faults of a built site are told: links that lead nowhere, and what is loaded from another host."""

from pathlib import Path

import pytest

from scripts.lib import site_links

GOOD = '<h1 id="top">A</h1><a href="b/">b</a><a href="#top">top</a><a href="https://example.com">out</a>'


def wrong(folder: Path, page: str) -> list[str]:
    """Return what is wrong with a site of two pages, of which this is one."""
    (folder / "b").mkdir()
    (folder / "b" / "index.html").write_text('<a name="old">B</a><img src="../a.svg">')
    (folder / "a.svg").write_text("<svg/>")
    (folder / "a.html").write_text(page)
    return list(site_links.wrong(folder))


def test_nothing_is_wrong_with_a_good_site(tmp_path: Path) -> None:
    """Links to pages, folders, anchors and other sites are fine."""
    assert wrong(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ('<a href="c.html">c</a>', "a.html: c.html leads to no file"),
        ('<a href="b/#new">b</a>', "a.html: b/#new leads to no anchor"),
        ('<a href="#new">b</a>', "a.html: #new leads to no anchor"),
        ('<script src="https://example.com/a.js"></script>', "a.html: loads https://example.com/a.js"),
        ('<link rel="stylesheet" href="//example.com/a.css">', "a.html: loads //example.com/a.css"),
    ],
)
def test_each_fault_is_told(tmp_path: Path, page: str, told: str) -> None:
    """With the page that has it."""
    assert wrong(tmp_path, page) == [told]


def test_styles_fetch_nothing_either(tmp_path: Path) -> None:
    """A font of another host is told."""
    (tmp_path / "a.css").write_text("@font-face { src: url('https://example.com/a.woff2') }")
    assert list(site_links.wrong(tmp_path)) == ["a.css: loads https://example.com/a.woff2"]
