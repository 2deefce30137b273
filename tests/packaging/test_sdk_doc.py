"""The programs of docs/sdk.md run as they stand, and print what it says."""

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
TEXT = (ROOT / "docs" / "sdk.md").read_text("utf-8")


class Program(NamedTuple):
    """A program of the page, and all that it has to print; None if the page does not say."""

    source: str
    printed: str | None


PROGRAMS = [
    Program(source, printed or None)
    for source, printed in re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", TEXT, re.DOTALL)
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes for the programs."""
    with LocalCluster.up(tmp_path_factory.mktemp("sdk")) as cluster:
        yield cluster


@pytest.mark.process
@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
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
    """The page has programs, most of them with what they print."""
    assert len(PROGRAMS) >= 4
    assert sum(program.printed is not None for program in PROGRAMS) >= 3


def test_every_word_of_the_page_is_one_of_the_package() -> None:
    """Each `holdfast.Name` of the page exists, and each error of its table."""
    names = set(re.findall(r"holdfast\.([A-Z]\w+)", TEXT))
    names |= set(re.findall(r"^\| `(\w+)`", TEXT[TEXT.index("## Failures") :], re.MULTILINE))
    assert {name for name in names if not hasattr(holdfast, name)} == set()
