"""The guides as a reader follows them: files are written, blocks run in order, and print what the page shows.

Each page is one shell script in a folder of its own, against three real nodes. A block of Python with the
title `NAME.py` is written to that file; one with the title `cell` is a cell of a notebook; all others are
run. Servers that a page leaves running are ended with it. Only port 8000 is replaced.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from scripts.lib import ports
from scripts.local_cluster import LocalCluster
from tests.packaging.test_readme import MARKER, as_pattern
from tests.support.libraries import skip_without_those_of

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
GUIDES: Final = {path.name: path.read_text("utf-8") for path in sorted((DOCS / "guides").glob("*.md"))}
FENCE: Final = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
RUN_S_MAX: Final = 120
NOTEBOOK: Final = """
import ast, asyncio, inspect, sys
async def notebook():
    names = {}
    for cell in sys.stdin.read().split("# %%\\n"):
        task = eval(compile(cell, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.iscoroutine(task):
            await asyncio.create_task(task)
asyncio.run(notebook())
"""
"""What a kernel does: each cell is a task of one loop."""


class Block(NamedTuple):
    """A block to run and the output shown for it. `kind` is sh, python, file or cell."""

    kind: str
    title: str
    text: str
    shown: str


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page, in order. A block of kind `text` shows the output of the one before it."""
    found: list[Block] = []
    for kind, title, text in FENCE.findall(page):
        if kind == "text":
            found[-1] = found[-1]._replace(shown=text)
        elif title:
            found.append(Block("cell" if title == "cell" else "file", title, text, ""))
        else:
            found.append(Block(kind, "", text, ""))
    return found


def script_of(found: list[Block]) -> str:
    """Return one script of all blocks, with a marker behind the output of each."""
    lines = ["exec 2>&1"]
    for block in found:
        if block.kind == "sh":
            lines.append(block.text)
        else:
            program = f"cat >{block.title}" if block.kind == "file" else "python -"
            lines.append(f"{program} <<'PYTHON'\n{block.text}PYTHON")
        lines.append(f"printf '\\n%s\\n' '{MARKER}'")
    return "\n".join(lines)


def notebook_of(cells: list[Block]) -> str:
    """Return one script of a page that is a notebook: its cells share their names, and a task is one cell."""
    marked = "# %%\n".join(f"{cell.text}print('\\n{MARKER}')\n" for cell in cells)
    return f"exec 2>&1\npython -c '{NOTEBOOK}' <<'CELLS'\n{marked}CELLS"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the URLs of three nodes for all pages."""
    with LocalCluster.up(tmp_path_factory.mktemp("guides")) as cluster:
        yield ",".join(node.http for node in cluster.nodes())


def follow(script: str, folder: Path, nodes: str) -> list[str]:
    """Run a page in a folder; return what each block printed."""
    port = str(ports.find_base(1))
    programs = str(Path(sys.executable).parent)
    with (folder / "printed").open("w") as printed:
        reader = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", script.replace("8000", port)],
            cwd=folder,
            env=os.environ | {"HOLDFAST_NODES": nodes, "PATH": f"{programs}:{os.environ['PATH']}"},
            stdout=printed,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        reader.wait(RUN_S_MAX)
    finally:
        with contextlib.suppress(ProcessLookupError):  # the page has left no server running
            os.killpg(reader.pid, signal.SIGKILL)
        reader.wait()
    return (folder / "printed").read_text("utf-8").replace(port, "8000").split(f"\n{MARKER}\n")


@pytest.mark.process
@pytest.mark.parametrize("page", GUIDES)
def test_blocks_do_what_the_page_shows(page: str, tmp_path: Path, nodes: str) -> None:
    """Each block of a guide runs to a good end, and prints what is shown below it, or nothing."""
    skip_without_those_of(GUIDES[page])
    found = blocks(GUIDES[page])
    is_notebook = found[0].kind == "cell"
    printed = follow(notebook_of(found) if is_notebook else script_of(found), tmp_path, nodes)
    for number, block in enumerate(found):
        assert number < len(printed) - 1, f"block {number} failed: {printed[-1]}"
        text = printed[number].strip("\n")
        assert re.fullmatch(as_pattern(block.shown), text + "\n" if text else ""), f"block {number}: {text}"


@pytest.mark.parametrize("page", GUIDES)
def test_each_guide_shows_what_comes_out(page: str) -> None:
    """A guide has at least one block whose output is shown, and so is compared."""
    assert any(block.shown for block in blocks(GUIDES[page]))
