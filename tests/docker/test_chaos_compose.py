"""`scripts/chaos --target compose`: containers break, and nothing is left of them, also when it is killed."""

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.chaos.targets.compose_project import LABEL, PREFIX
from scripts.lib import guardian
from tests.docker.compose_cluster import ROOT, docker, run, wait_for

pytestmark = pytest.mark.docker

CLEAN = 0
RUN_S = 900
"""For a run and its checkers, on a machine that does much else."""
SCHEDULE = """
0.5 kill-leader 1
0.5 network-off-leader 3
0.5 pause-leader 2
0.5 volume-lost 1
0.5 network-off 2
0.5 node-added 1
0.5 restart-all 0
"""


def command(*arguments: str) -> list[str]:
    """Return the command line of the lab."""
    return [sys.executable, "-P", "-m", "lab.chaos", "--target", "compose", *arguments]


def environment(image: str) -> dict[str, str]:
    """Return an environment in which the lab runs an image."""
    return os.environ | {"PYTHONPATH": str(ROOT), "HOLDFAST_IMAGE": image}


def left_of(pid: int) -> list[str]:
    """Return all containers, networks and volumes of the lab that is, or was, a process."""
    label = ("--filter", f"label={LABEL}", "--format", f'{{{{.Label "{LABEL}"}}}}')
    names = [docker(*kind, *label).split() for kind in (("ps", "--all"), ("network", "ls"), ("volume", "ls"))]
    return [name for found in names for name in found if name.startswith(f"{PREFIX}{pid}-")]


def test_containers_that_break_are_clean(image: str, tmp_path: Path) -> None:
    """Every fault of containers happens and heals, no promise breaks, and nothing is left."""
    (tmp_path / "schedule").write_text(SCHEDULE)
    arguments = ("--minutes", "3", "--seed", "1", "--schedule", "schedule", "--budget-factor", "20")
    with subprocess.Popen(
        # Few clients: what is unknown to many at once takes a checker long.
        command(*arguments, "--clients", "0.5", "--dir", "run"),
        cwd=tmp_path,
        env=environment(image),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as lab:
        try:
            said, _ = lab.communicate(timeout=RUN_S)
        finally:
            lab.kill()  # its guard removes what it has
    assert lab.returncode == CLEAN, said
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["faults"] == {line.split()[1]: 1 for line in SCHEDULE.split("\n") if line}
    assert report["operations"]["ok"] > 200
    assert left_of(lab.pid) == []


def test_a_killed_lab_leaves_no_containers(image: str, tmp_path: Path) -> None:
    """Not even one that was paused when the lab was killed with -9."""
    with subprocess.Popen(
        command("--minutes", "5", "--only", "pause-leader"),
        cwd=tmp_path,
        env=environment(image),
        stdout=subprocess.PIPE,
        text=True,
    ) as lab:
        assert lab.stdout is not None
        for line in lab.stdout:
            if line.startswith("pause-leader ("):
                break
        assert len(left_of(lab.pid)) > len(("n1", "n2", "n3"))
        lab.send_signal(signal.SIGKILL)
    wait_for("nothing is left", lambda: None if left_of(lab.pid) else True)


def test_what_a_dead_lab_left_is_cleaned(image: str) -> None:
    """`scripts/chaos clean` takes what belongs to no running lab, and nothing else."""
    with subprocess.Popen(["true"]) as gone:
        pass
    dead, alive = (f"{PREFIX}{pid}-{secrets.token_hex(3)}" for pid in (gone.pid, os.getpid()))
    try:
        for name in (dead, alive):
            guardian.run_if_killed(["docker", "volume", "rm", "--force", name])
            docker("volume", "create", "--label", f"{LABEL}={name}", name)
            create = ("create", "--label", f"{LABEL}={name}", "--name", name)
            guardian.run_if_killed(["docker", "rm", "--force", "--volumes", name])
            docker(*create, image)
        cleaned = run(
            *(sys.executable, "-P", "-m", "lab.chaos", "clean"),
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert cleaned.returncode == CLEAN, cleaned.stderr
        assert dead in cleaned.stdout
        assert left_of(gone.pid) == []
        assert left_of(os.getpid()) == [alive, alive]
    finally:
        for name in (dead, alive):
            run("docker", "rm", "--force", "--volumes", name)
            run("docker", "volume", "rm", "--force", name)
