"""The installed wheels at work, without the checkout: a user's project, three nodes, and the command line."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib import ports
from tests.packaging.conftest import Wheels, make_environment
from tests.packaging.rooms import PACKAGES

NODES_COUNT = 3
READY_S = 60.0
COMMAND_S = 60.0
STOP_S = 20.0


PROJECT = {
    "api/__init__.py": "NAME = 'the api of a project'\n",
    "cluster/__init__.py": "NAME = 'the cluster of a project'\n",
    "test_project.py": """
import api, cluster, holdfast

def test_own_packages():
    assert (api.NAME, cluster.NAME) == ("the api of a project", "the cluster of a project")
    with holdfast.SyncClient() as client:
        client.lock("a")

def test_memory(holdfast_memory):
    pass

def test_cluster(holdfast_cluster):
    pass
""",
}
"""A project that locks, with packages of its own, one of which has the name of one of a node's."""


def run(programs: Path, folder: Path, *command: str, nodes: str = "") -> subprocess.CompletedProcess[str]:
    """Run an installed program in `folder`, where nothing of the checkout can be imported."""
    return subprocess.run(
        [programs / command[0], *command[1:]],
        cwd=folder,
        env=environment() | {"HOLDFAST_NODES": nodes},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


def environment() -> dict[str, str]:
    """Return the environment without what could lead to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HOLDFAST"))}


def run_project(programs: Path, folder: Path, *arguments: str) -> str:
    """Run the tests of the project; return what pytest says."""
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return run(programs, folder, "python", "-m", "pytest", "-p", "no:cacheprovider", *arguments).stdout


@pytest.fixture(scope="module")
def nodes(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Run a cluster of installed nodes; return their URLs. All of them stop cleanly at the end."""
    folder = tmp_path_factory.mktemp("nodes")
    pairs = ports.of_cluster(ports.find_base(NODES_COUNT), NODES_COUNT)
    peers = ",".join(f"n{i}={ports.HOST}:{peer}" for i, (_, peer) in enumerate(pairs, 1))
    (folder / "secret").write_text("a secret of this test, long enough\n")
    running: list[subprocess.Popen[bytes]] = []
    try:
        for i, (http, peer) in enumerate(pairs, 1):
            flags = ["--node-id", f"n{i}", "--data-dir", str(folder / f"n{i}"), "--secret-file", "secret"]
            flags += ["--http", f"{ports.HOST}:{http}", "--peer", f"{ports.HOST}:{peer}", "--peers", peers]
            with (folder / f"n{i}.log").open("wb") as log:
                running.append(
                    subprocess.Popen(
                        [programs / "holdfast-node", *flags],
                        cwd=folder,
                        env=environment(),
                        stdout=log,
                        stderr=log,
                    )
                )
        urls = [f"http://{ports.HOST}:{http}" for http, _ in pairs]
        wait_for_leader(programs, folder, urls)
        yield urls
        for node in running:
            node.send_signal(signal.SIGTERM)
        logs = [(folder / f"n{i}.log").read_text() for i in range(1, NODES_COUNT + 1)]
        assert [node.wait(STOP_S) for node in running] == [0] * NODES_COUNT, "\n".join(logs)
    finally:
        for node in running:
            node.kill()
            node.wait()


def wait_for_leader(programs: Path, folder: Path, urls: list[str]) -> None:
    """Wait until the command line says that the cluster has a leader."""
    deadline_s = time.monotonic() + READY_S
    while (status := run(programs, folder, "holdfast", "status", nodes=",".join(urls))).returncode != 0:
        logs = "\n".join(path.read_text() for path in sorted(folder.glob("*.log")))
        assert time.monotonic() < deadline_s, f"{status.stdout}{status.stderr}\n{logs}"


def test_all_packages_come_from_the_wheels(programs: Path, tmp_path: Path) -> None:
    """Every package imports from the environment's own folder, not from the checkout."""
    program = f"import json, {', '.join(PACKAGES)}\n"
    program += f"print(json.dumps([module.__file__ for module in ({', '.join(PACKAGES)})]))"
    done = run(programs, tmp_path, "python", "-c", program)
    assert done.returncode == 0, done.stderr
    assert [Path(name).is_relative_to(programs.parent) for name in json.loads(done.stdout)] == [True] * len(
        PACKAGES
    )


def test_the_client_alone_leaves_a_project_its_packages(client_programs: Path, tmp_path: Path) -> None:
    """It brings nothing but `holdfast`; the fixtures, which run a node, fail and say what to install."""
    said = run_project(client_programs, tmp_path)
    assert "1 passed, 2 errors" in said
    for name in ("MemoryCluster", "LoopbackCluster"):
        assert f"{name} runs the code of a node, which is not installed for {client_programs}" in said
    version = run(client_programs, tmp_path, "holdfast", "--version").stdout.split()[1]
    assert f"(lockstate, lockapi, http_api, redis_api missing): pip install holdfast-node=={version}" in said


@pytest.mark.process
def test_beside_a_project_with_packages_of_the_same_names_nodes_are_processes(
    wheels: Wheels, tmp_path: Path
) -> None:
    """The cluster in memory would have to run these, and says where they are; real nodes do not meet them."""
    programs = make_environment(tmp_path / "environment", *wheels)
    (tmp_path / "project").mkdir()
    said = run_project(programs, tmp_path / "project")
    assert "2 passed, 1 error" in said
    assert f"Python finds cluster in {tmp_path / 'project'} before those of {programs.parent}" in said


def test_the_installed_version_is_the_one_that_was_built(
    programs: Path, wheels: Wheels, tmp_path: Path
) -> None:
    """Node and command say the version in the wheel's name; a node of no release adds its commit."""
    for wheel, command in ((wheels.node, "holdfast-node"), (wheels.client, "holdfast")):
        done = run(programs, tmp_path, command, "--version")
        version = done.stdout.split()[1]
        assert version.partition("+")[0] == wheel.name.split("-")[1], done


@pytest.mark.process
def test_installed_nodes_give_a_lock(nodes: list[str], programs: Path, tmp_path: Path) -> None:
    """Three installed nodes make a cluster, and the installed command runs a program under a lock."""
    program = ("sh", "-c", "echo token $HOLDFAST_TOKEN")
    for token in ("1", "2"):
        done = run(programs, tmp_path, "holdfast", "run", "smoke", "--", *program, nodes=",".join(nodes))
        assert (done.returncode, done.stdout) == (0, f"token {token}\n"), done.stderr
    shown = run(programs, tmp_path, "holdfast", "get", "smoke", "-o", "json", nodes=nodes[-1])
    assert json.loads(shown.stdout)["state"] == "free", shown
