"""Compose projects of the lab: whose they are, and what is said when they cannot be."""

import os
import random
import re
import stat
import tempfile
from pathlib import Path

import pytest

from lab.chaos.faults.containers import NetworkOff, NodeAdded, RestartAll, VolumeLost
from lab.chaos.targets import compose_project
from lab.chaos.targets.compose import ComposeTarget, add_arguments, join_variable, remove_arguments
from lab.chaos.targets.compose_project import FILES, NODE_IDS, ROOT, ComposeProject, orphans
from lab.chaos.targets.target import LabFailure

ENGINE = """#!/bin/sh
echo "$@ port=$HOLDFAST_PORT_N1 join=$HOLDFAST_JOIN_N1/$HOLDFAST_JOIN_N3" >>"$ENGINE_SAID"
case "$*" in
    {failing}) echo "it is broken" >&2; exit 1 ;;
    ps*) echo some-container ;;
    *logs*) echo "level=critical event=held exit_code=4" ;;
esac
"""
"""A docker that writes down how it was called, and fails at what a test wants."""


@pytest.fixture(autouse=True)
def _own_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the secrets of projects be made in the folder of the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def install_engine(folder: Path, monkeypatch: pytest.MonkeyPatch, failing: str = "nothing") -> Path:
    """Let `docker` be one of the test's own; return the file in which it writes."""
    said = folder / "said"
    said.touch()
    (folder / "docker").write_text(ENGINE.replace("{failing}", failing))
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("ENGINE_SAID", str(said))
    return said


class OpenTarget(ComposeTarget):
    """A target whose containers are those of the test's engine."""

    def __init__(self) -> None:
        super().__init__()
        self._project = ComposeProject(["docker", "compose"], "an-image")

    def followers(self) -> list[str]:
        """Return a follower."""
        return ["n3"]


def test_only_projects_of_labs_that_are_gone_are_left_over() -> None:
    """Never a user's own, and never that of a lab that runs."""
    names = [
        "holdfast",
        "holdfast-chaos-7-ab",
        "holdfast-chaos-8-ab",
        "holdfast-test-7",
        "holdfast-chaos-x-7",
    ]
    assert orphans([*names, "holdfast-chaos-7", "7-ab"], lambda pid: pid == "8") == ["holdfast-chaos-7-ab"]


def test_a_project_of_this_process_is_not_left_over() -> None:
    """Its name tells whose it is."""
    name = ComposeProject(["docker-compose"], "an-image").name
    assert orphans([name], lambda pid: pid == str(os.getpid())) == []
    assert orphans([name], lambda _: False) == [name]


def test_without_docker_the_lab_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what can be done instead."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabFailure, match=r"docker is not installed; `--target processes` needs none"):
        ComposeTarget().open()


def test_a_secret_lives_as_long_as_its_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made with the first container, the same for all, and gone with the last one."""
    install_engine(tmp_path, monkeypatch)
    project = ComposeProject(["docker", "compose"], "an-image")
    file = compose_project.secret_file(project.name)
    assert not file.parent.exists()
    project.up("n1")
    secret = file.read_text()
    assert len(secret) >= 32
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    project.up("n2")
    assert file.read_text() == secret
    monkeypatch.setattr(compose_project, "docker", lambda *_: "")
    compose_project.remove(project.name)
    assert not file.parent.exists()


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ("info*", "no Docker engine answers, start it: it is broken"),
        ('"image inspect"*', "there is no image holdfast:local: build it with deploy/build-image"),
    ],
)
def test_what_is_missing_is_told(
    failing: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started."""
    install_engine(tmp_path, monkeypatch, failing)
    monkeypatch.delenv("HOLDFAST_IMAGE", raising=False)
    with pytest.raises(LabFailure, match=re.escape(said)):
        ComposeTarget().open()


def test_there_are_three_nodes() -> None:
    """The file has no more."""
    with pytest.raises(LabFailure, match="has 3 nodes"):
        ComposeTarget(5).open()


def test_the_users_settings_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports and joining are the lab's own in every command."""
    said = install_engine(tmp_path, monkeypatch)
    monkeypatch.setenv("HOLDFAST_PORT_N1", "7701")
    monkeypatch.setenv("HOLDFAST_JOIN_N3", "true")
    project = ComposeProject(["docker", "compose"], "an-image")
    project.up("n1", "n2")
    line = said.read_text()
    assert f"--project-name {project.name} --file {FILES[0]} " in line
    assert line.endswith(f"up --detach --no-deps n1 n2 port={project.ports['n1']} join=false/false\n")


def test_a_command_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the engine said."""
    install_engine(tmp_path, monkeypatch, "kill*")
    with pytest.raises(LabFailure, match="docker kill some-container: exit code 1: it is broken"):
        OpenTarget().kill("n1")


def test_the_lab_repairs_as_the_recipes_say() -> None:
    """What faults do to members stands in deploy/README.md, but for the time that they wait."""
    recipes = (ROOT / "deploy" / "README.md").read_text()
    for node_id in ("n3", "n4"):
        added = " ".join(add_arguments(node_id)).removesuffix("1m")
        assert f"holdfast --nodes http://n1:7700 {added}" in recipes
        assert " ".join(remove_arguments(node_id)) in recipes
    assert f"{join_variable('n3')}=true compose up -d n3" in recipes


def steps(said: Path) -> list[str]:
    """Return what was done, without questions, and without what comes before the command of Compose."""
    lines = [re.sub(r"compose .*compose\.n4\.yaml ", "", line) for line in said.read_text().splitlines()]
    return [line.partition(" port=")[0] for line in lines if not line.startswith(("ps", "logs", "inspect"))]


def test_a_volume_is_lost_and_the_node_let_in_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed, so that it hands nothing over; and only its last start may join."""
    said = install_engine(tmp_path, monkeypatch)
    target = OpenTarget()
    fault = VolumeLost(target, random.Random(1), {"node": "n3"})
    assert fault.begin() == ["n3"]
    fault.end()
    fault.end()
    assert steps(said) == [
        "kill some-container",
        "rm --stop --force n3",
        f"volume rm {target.project.name}_n3",
        "up --detach --no-deps n3",
        "exec -T n1 holdfast --nodes http://n1:7700 cluster remove n3 --yes --reason repair",
        "up --detach --no-deps n3",
        "exec -T n1 holdfast --nodes http://n1:7700 cluster add n3 n3:7800 --reason repair --wait 1m",
    ]
    joins = [line.rpartition(" join=")[2] for line in said.read_text().splitlines() if " up " in line]
    assert joins == ["false/false", "false/true"]


def test_commands_about_the_first_node_are_run_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own container has no node that serves."""
    said = install_engine(tmp_path, monkeypatch)
    OpenTarget().let_join("n1")
    assert "exec -T n2 holdfast --nodes http://n2:7700 cluster remove n1 --yes --reason repair" in steps(said)


def test_a_fourth_node_comes_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for while it is there, and its volume goes with it: it could not come back with it."""
    said = install_engine(tmp_path, monkeypatch)
    target = OpenTarget()
    fault = NodeAdded(target, random.Random(1), {})
    assert fault.begin() == ["n4"]
    assert list(target.urls()) == [*NODE_IDS, "n4"]
    fault.end()
    assert list(target.urls()) == list(NODE_IDS)
    assert steps(said)[-3:] == [
        "exec -T n1 holdfast --nodes http://n1:7700 cluster remove n4 --yes --reason repair",
        "rm --stop --force n4",
        f"volume rm {target.project.name}_n4",
    ]


def test_what_was_not_taken_is_not_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the begin of a fault has failed."""
    said = install_engine(tmp_path, monkeypatch)
    for fault in (NetworkOff, VolumeLost, NodeAdded, RestartAll):
        fault(OpenTarget(), random.Random(1), {}).end()
    assert steps(said) == []


def test_a_network_is_taken_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the name by which the others know the node."""
    said = install_engine(tmp_path, monkeypatch)
    target = OpenTarget()
    fault = NetworkOff(target, random.Random(1), {})
    assert fault.begin() == ["n3"]
    fault.end()
    network = f"{target.project.name}_default"
    assert steps(said) == [
        f"network disconnect {network} some-container",
        f"network connect --alias n3 {network} some-container",
    ]


def test_a_project_is_removed_until_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that never gets rid of a container is told, by its name."""
    install_engine(tmp_path, monkeypatch)
    monkeypatch.setattr(compose_project, "REMOVE_S", 0.0)
    with pytest.raises(LabFailure, match="something of project holdfast-chaos-7-ab cannot be removed"):
        compose_project.remove("holdfast-chaos-7-ab")
