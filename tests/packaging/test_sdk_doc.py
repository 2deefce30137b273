"""The programs of the pages about the Python client run as they stand, and print what these say.

What is a part of a program of docs/examples is left out: test_docs.py runs that.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast
from scripts.local_cluster import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {
    page: (ROOT / "docs" / page).read_text("utf-8") for page in ("sdk.md", "recipes.md", "coming-from.md")
}
TEXT = TEXTS["sdk.md"]
EXAMPLES = [path.read_text("utf-8") for path in sorted((ROOT / "docs" / "examples").glob("*.py"))]


class Program(NamedTuple):
    """A program of a page, and all that it has to print; None if the page does not say."""

    page: str
    source: str
    printed: str | None


PROGRAMS = [
    Program(page, source, printed or None)
    for page, text in TEXTS.items()
    for source, printed in re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", text, re.DOTALL)
    if not any(source in example for example in EXAMPLES)
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes for the programs."""
    with LocalCluster.up(tmp_path_factory.mktemp("sdk")) as cluster:
        yield cluster


@pytest.mark.process
@pytest.mark.parametrize(
    "program", PROGRAMS, ids=[f"{program.page}-{index}" for index, program in enumerate(PROGRAMS)]
)
def test_program_does_what_the_page_says(cluster: LocalCluster, program: Program) -> None:
    """Each runs to a good end against a real cluster, and prints what follows it."""
    done = subprocess.run(
        [sys.executable, "-c", program.source],
        env=os.environ
        | {"HOLDFAST_NODES": ",".join(node.http for node in cluster.nodes()), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert program.printed in (None, done.stdout)


def test_there_are_programs() -> None:
    """Each page has programs, most of them with what they print."""
    for page in TEXTS:
        programs = [program for program in PROGRAMS if program.page == page]
        assert len(programs) >= 4
        assert sum(program.printed is not None for program in programs) >= 3


def test_every_word_of_the_pages_is_one_of_the_package() -> None:
    """Each `holdfast.Name` of the pages exists, and each error of the table."""
    names = set(re.findall(r"holdfast\.([A-Z]\w+)", "".join(TEXTS.values())))
    failures = TEXT.split("\n## Failures")[1].split("\n## ")[0]
    names |= set(re.findall(r"^\| `(\w+)`", failures, re.MULTILINE))
    assert {name for name in names if not hasattr(holdfast, name)} == set()
