"""README and quickstart as a reader follows them: blocks run in order and print what the page shows.

They run in one shell, in a checkout made of links to this one, with an environment of the interpreter that
runs the tests, so that nothing is installed. Only the directory of the cluster and its ports are replaced.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from scripts.lib import cluster_file, ports
from scripts.local_cluster import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = ("README.md", "docs/quickstart.md")

FENCE = re.compile(r"(<!-- Not run[^>]*-->\s+)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKER = "=== end of block ==="
RUN_S_MAX = 200


class Block(NamedTuple):
    """A block to run, `sh` or `python`, and the output that is shown for it."""

    kind: str
    text: str
    shown: str


def blocks(document: str) -> list[Block]:
    """Return what is to be run, in order. A block of kind `text` shows the output of the one before it."""
    found: list[Block] = []
    for is_not_run, kind, text in FENCE.findall(document):
        if is_not_run:
            continue
        if kind == "text":
            found[-1] = found[-1]._replace(shown=text)
        else:
            found.append(Block(kind, text, ""))
    return found


def as_pattern(shown: str) -> str:
    """Return a pattern for an output as shown: an ellipsis stands for a part of a line, or for lines."""
    return "".join(
        "(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n"
        for line in shown.splitlines()
    )


def make_checkout(checkout: Path) -> Path:
    """Make a checkout of links, whose `.venv` stands for the environment of this interpreter."""
    programs = checkout / ".venv" / "bin"
    programs.mkdir(parents=True)
    for path in ROOT.iterdir():
        if path.name not in {".git", ".venv", ".venv.lock"}:
            (checkout / path.name).symlink_to(path)
    for name, module in (("python", ""), ("holdfast", "-m holdfast")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" {module} "$@"\n')
        program.chmod(0o755)
    # This environment is ready: the functions of venv.sh say how that is told.
    functions = "source <(sed '/^VENV=/,$d' scripts/lib/venv.sh)"
    stamp = ["bash", "-c", f'{functions} && holdfast_stamp node "$PWD" >.venv/holdfast.stamp']
    subprocess.run(stamp, cwd=checkout, check=True)
    return checkout


def script_of(found: list[Block]) -> str:
    """Return one script of all blocks, with a marker behind the output of each."""
    lines = ["exec 2>&1"]
    for kind, text, _ in found:
        is_python = kind == "python"
        lines.append(f".venv/bin/python - <<'PYTHON'\n{text}PYTHON" if is_python else text)
        lines.append(f"printf '\\n%s\\n' '{MARKER}'")
    return "\n".join(lines)


BLOCKS = [
    (page, number, block)
    for page in PAGES
    for number, block in enumerate(blocks((ROOT / page).read_text("utf-8")))
]


def follow(page: str, folder: Path) -> list[str]:
    """Follow a page; return what each block printed, with its own ports and directory put back."""
    directory = folder / "cluster"
    base = ports.find_base(3)
    replaced = {str(7700 + i): str(base + i) for i in range(3)} | {"/tmp/holdfast": str(directory)}  # noqa: S108
    script = script_of(blocks((ROOT / page).read_text("utf-8")))
    for old, new in replaced.items():
        script = script.replace(old, new)
    script = script.replace("--nodes 3", f"--nodes 3 --base-port {base}")
    checkout = make_checkout(folder / "checkout")
    environment = {
        "HOLDFAST_NODES": ",".join(f"http://{ports.HOST}:{base + i}" for i in range(3)),
        "PATH": f"{checkout / '.venv' / 'bin'}:{os.environ['PATH']}",  # as after `source .venv/bin/activate`
    }
    try:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=checkout,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,  # the block that failed is told by its output
        )
    finally:
        if (directory / cluster_file.FILE).exists():
            LocalCluster(directory).down()
    output = done.stdout
    for old, new in replaced.items():
        output = output.replace(new, old)
    return output.split(f"\n{MARKER}\n")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Follow all pages; return by page what each of its blocks printed."""
    return {page: follow(page, tmp_path_factory.mktemp("reader")) for page in PAGES}


@pytest.mark.process
@pytest.mark.parametrize(
    ("page", "number", "block"), BLOCKS, ids=[f"{page}-{number}" for page, number, _ in BLOCKS]
)
def test_block_prints_what_is_shown(
    outputs: dict[str, list[str]], page: str, number: int, block: Block
) -> None:
    """Each block that can be run prints what the page shows for it."""
    printed = outputs[page]
    assert number < len(printed) - 1, f"an earlier block failed: {printed[-1]}"
    assert re.fullmatch(as_pattern(block.shown), printed[number].strip("\n") + "\n"), printed[number]


def test_blocks_that_are_not_run_have_a_reason() -> None:
    """Only one block of the README is left to another test, and that test exists."""
    (reason,) = [is_not_run for is_not_run, _, _ in FENCE.findall(README) if is_not_run]
    (test,) = re.findall(r"tests/\S+\.py", reason)
    assert "compose.yaml" in (ROOT / test).read_text("utf-8")


def test_ellipsis_stands_for_what_differs() -> None:
    """An output with other numbers fits what is shown, one with another text does not."""
    pattern = as_pattern('…\n{"token":…,"name":"a"}\n')
    assert re.fullmatch(pattern, 'starting\nready\n{"token":17,"name":"a"}\n')
    assert not re.fullmatch(pattern, '{"token":17,"name":"b"}\n')


def test_readme_is_short() -> None:
    """The README is read in two minutes."""
    assert len(README.splitlines()) <= 120
