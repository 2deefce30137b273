"""The fixtures for pytest, as a project sees them that has Holdfast installed."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).resolve().parents[4]
IN_MEMORY = """
def test_one(holdfast_memory):
    with holdfast_memory.sync_client() as client:
        assert client.acquire("a", ttl=30, renew=False).token == 1
        holdfast_memory.advance(30)
        assert client.acquire("a", wait=0, renew=False).token == 2

def test_each_has_its_own(holdfast_memory):
    with holdfast_memory.sync_client() as client:
        assert client.acquire("a", wait=0, renew=False).token == 1
"""
ON_LOOPBACK = """
import asyncio
import pytest
import holdfast

def test_real_nodes(holdfast_cluster):
    assert len(holdfast_cluster.nodes) == 3
    with holdfast_cluster.sync_client() as client, client.lock("a") as hold:
        assert hold.token >= 1
        holdfast_cluster.kill(0)
        with client.acquire("b") as other:
            assert other.is_valid
    with pytest.raises(ValueError, match="runs"):
        holdfast_cluster.start(1)
    holdfast_cluster.start(0)

def test_the_same_nodes(holdfast_cluster):
    async def use():
        async with holdfast_cluster.client() as client:
            return (await client.inspect("a")).state
    assert asyncio.run(use()) == "free"
"""
UNUSED = """
import sys

def test_nothing_is_loaded():
    ours = {"holdfast.client.client", "holdfast.transport.http"}
    heavy = {"aiohttp", "lockapi", "http_api", "lockstate", *ours}
    assert "holdfast.testing.plugin" in sys.modules
    assert not heavy & set(sys.modules)
"""
WITHOUT_NODE = """
import sys
sys.modules["pysyncobj"] = None

def test_memory(holdfast_memory):
    assert False

def test_cluster(holdfast_cluster):
    assert False
"""


def entry_points() -> dict[str, str]:
    """Return what the package tells pytest to load."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    points: dict[str, str] = project["entry-points"]["pytest11"]
    return points


def run(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Run tests in a folder of their own, where the entry point of the package is installed."""
    info = folder / "site" / "holdfast_of_a_test-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: holdfast-of-a-test\nVersion: 1\n")
    points = "".join(f"{name} = {module}\n" for name, module in entry_points().items())
    (info / "entry_points.txt").write_text(f"[pytest11]\n{points}")
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "test_it.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-W", "error", "-p", "no:cacheprovider", "tests"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(folder / "site"), str(ROOT)))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_each_test_has_a_cluster_in_memory(tmp_path: Path) -> None:
    """The fixture is there without a word in any conftest, and is new for each test."""
    done = run(tmp_path, IN_MEMORY)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.process
def test_a_run_has_one_cluster_of_real_nodes(tmp_path: Path) -> None:
    """It survives its tests, loses nodes and gets them back, and leaves no process behind."""
    done = run(tmp_path, ON_LOOPBACK)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def test_a_run_that_does_not_use_it_loads_nothing(tmp_path: Path) -> None:
    """Neither the HTTP library nor the node is imported because the plugin is there."""
    done = run(tmp_path, UNUSED)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_without_the_node_tests_fail_with_a_reason(tmp_path: Path) -> None:
    """A project that has only the client learns what to install; a skipped test would not be missed."""
    done = run(tmp_path, WITHOUT_NODE)
    assert "2 errors" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count(f"pip install holdfast-node=={holdfast.__version__}") == 2


def test_a_project_with_packages_of_the_same_names_learns_where_they_are(tmp_path: Path) -> None:
    """The cluster in memory would run them instead of a node's."""
    for package in ("cluster", "lockapi"):
        (tmp_path / "tests" / package).mkdir(parents=True)
        (tmp_path / "tests" / package / "__init__.py").touch()
    done = run(tmp_path, IN_MEMORY)
    assert "2 errors" in done.stdout, done.stdout + done.stderr
    assert f"Python finds lockapi and cluster in {tmp_path / 'tests'} before those of {ROOT}" in done.stdout


@pytest.mark.process
def test_nodes_do_not_run_packages_of_a_project(tmp_path: Path) -> None:
    """Real nodes find their own code, wherever the project puts modules of the same names."""
    for package in ("cluster", "lockapi"):
        (tmp_path / "tests" / package).mkdir(parents=True)
        (tmp_path / "tests" / package / "__init__.py").write_text("raise ImportError('a stranger')\n")
    done = run(tmp_path, ON_LOOPBACK)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_what_makes_no_cluster_is_refused(tmp_path: Path) -> None:
    """A number that makes no cluster is refused before anything is written."""
    from holdfast.testing import LoopbackCluster  # noqa: PLC0415 - the one use here

    with pytest.raises(ValueError, match="nodes"):
        LoopbackCluster(tmp_path, nodes=0)
    for call in (LoopbackCluster(tmp_path).kill, LoopbackCluster(tmp_path).start):
        with pytest.raises(ValueError, match="0 were started"):
            call(0)
    assert list(tmp_path.iterdir()) == []
