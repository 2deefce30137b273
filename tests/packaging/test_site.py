"""The documentation as a site has every page and every public name, and says which blocks no test runs."""

import re
from pathlib import Path

import pytest

import holdfast
from scripts.lib import site_pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text("utf-8") for path in sorted(DOCS.rglob("*.md"))}
REFERENCE = "".join(text for name, text in PAGES.items() if name.startswith("reference/"))
RUN = re.compile(r"guides/|(?:sdk|recipes|coming-from|faces|quickstart|three-machines|tutorial)\.md")
"""Pages whose blocks tests run: test_guides, _readme, _redis_clients, _sdk_doc, _three_machines, _tutorial"""
ONLY_FOR_TASKS = {"cause", "kind", "lock", "lost", "mode", "session", "watch"}
"""What users may use although the classes for threads do not have it: instances set most of it."""
NOT_RUN = re.compile(r"<!-- Not run: [^>]{10,} -->")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of the pages that the site is built from."""
    folder = tmp_path_factory.mktemp("site")
    site_pages.prepare(ROOT, folder)
    return folder


def test_every_public_name_is_in_the_reference() -> None:
    """Once, with what its docstring says; the second name of a class is told beside the first."""
    names = re.findall(r"^::: holdfast\.(\w+)$", REFERENCE, re.MULTILINE)
    assert sorted(names) == sorted(set(holdfast.__all__) - {"AsyncClient"})
    assert "`AsyncClient` is another name of `Client`" in REFERENCE


@pytest.mark.parametrize("name", [name for name in holdfast.__all__ if f"Sync{name}" in holdfast.__all__])
def test_the_reference_shows_no_internals(name: str) -> None:
    """What only the class for tasks has is left out by the filters of mkdocs.yml."""
    configuration = (ROOT / "mkdocs.yml").read_text("utf-8")
    left_out = re.compile("|".join(re.findall(r'- "!(\^\S+)"', configuration)))
    own, twin = set(dir(getattr(holdfast, name))), set(dir(getattr(holdfast, f"Sync{name}")))
    assert {member for member in own - twin if not left_out.search(member)} <= ONLY_FOR_TASKS


def test_every_page_is_in_the_navigation(site: Path) -> None:
    """Decisions are listed by a page of their own."""
    _, _, navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")
    listed = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert all((site / page).is_file() for page in listed)
    assert set(PAGES) - set(listed) == {name for name in PAGES if name.startswith("decisions/")}


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_run_or_marked(page: str) -> None:
    """A page with blocks of Python or shell is run by a test, or says why it is not."""
    has_blocks = re.search(r"^```(?:python|sh|bash)$", PAGES[page], re.MULTILINE)
    assert not has_blocks or RUN.match(page) or NOT_RUN.search(PAGES[page]), page
