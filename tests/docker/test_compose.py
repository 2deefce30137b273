"""The Compose cluster as a user starts it: real containers, the leader's one killed while a lock is held.

The image is built (and the base image, where it cannot be pulled), deploy/compose.yaml is run under a project
name and on ports of its own, and containers, network and volumes are removed whatever happens.
"""

import json
import os
import re
import secrets
import shutil
import stat
from functools import partial
from pathlib import Path

import pytest

from tests.docker.compose_cluster import COMPOSE_FILE, NODE_IDS, ROOT, Cluster, docker, run, wait_for

pytestmark = pytest.mark.docker


def test_lock_outlives_the_leaders_container(cluster: Cluster) -> None:
    """A lock is held with the same token after the leader's container is killed, and the node comes back."""
    leader = wait_for("a leader", cluster.leader)
    others = tuple(node_id for node_id in NODE_IDS if node_id != leader)
    acquire = {"name": "migration", "owner": "test", "ttl_ms": 600_000, "request_id": secrets.token_hex(8)}
    granted = wait_for("a grant", partial(cluster.call, others[0], "/v1/locks/acquire", acquire))

    docker("kill", cluster.container(leader))
    successor = wait_for("another leader", lambda: cluster.leader(others))
    assert successor != leader
    for node_id in others:
        lock = wait_for("a read", partial(cluster.call, node_id, "/v1/locks/migration"))
        assert lock["state"] == "held"
        assert [(holder["owner"], holder["token"]) for holder in lock["holders"]] == [
            ("test", granted["token"])
        ]

    # Whether the restart policy applies after `docker kill` differs between engines.
    docker("start", cluster.container(leader))
    wait_for("the killed node follows", partial(cluster.follows, leader))
    release = {"hold_id": granted["hold_id"], "request_id": secrets.token_hex(8)}
    released = wait_for("a release", partial(cluster.call, leader, "/v1/locks/release", release))
    assert released["released"] is True
    acquire["request_id"] = secrets.token_hex(8)
    again = wait_for("a new grant", partial(cluster.call, leader, "/v1/locks/acquire", acquire))
    assert again["token"] > granted["token"]


def test_containers_become_healthy(cluster: Cluster) -> None:
    """The health check of the image succeeds in every container."""
    for node_id in NODE_IDS:
        wait_for(f"{node_id} is healthy", partial(cluster.health, node_id))


def test_nodes_do_not_run_as_root(cluster: Cluster) -> None:
    """The process of every node has the user id 7700 and no capabilities."""
    for node_id in NODE_IDS:
        status = docker("exec", cluster.container(node_id), "cat", "/proc/1/status")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split() == ["7700"] * 4
        assert int(fields["CapEff"], 16) == 0


def test_the_secret_is_in_no_environment(cluster: Cluster) -> None:
    """Neither in that of the node nor in what the engine tells of the container; it is a file."""
    secret = cluster.secret_file.read_text()
    container = cluster.container("n1")
    assert secret not in docker("inspect", container)
    environments = docker("exec", container, "bash", "-c", "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline")
    assert "HOLDFAST_NODE_ID=n1" in environments
    assert secret not in environments
    assert docker("exec", container, "cat", "/run/secrets/holdfast_secret") == secret


def test_containers_have_limits(cluster: Cluster) -> None:
    """None of them can take all memory, processes, files or disk of the machine."""
    for node_id in NODE_IDS:
        (about,) = json.loads(docker("inspect", cluster.container(node_id)))
        host = about["HostConfig"]
        assert (host["Memory"], host["PidsLimit"]) == (2 << 30, 200)
        assert host["LogConfig"]["Config"] == {"max-size": "20m", "max-file": "5"}
        assert host["ReadonlyRootfs"]
        limits = docker("exec", cluster.container(node_id), "cat", "/proc/1/limits")
        assert re.search(r"^Max open files +16384 +16384 ", limits, re.MULTILINE)


def test_what_is_open_is_warned_of(cluster: Cluster) -> None:
    """A node listens on all addresses of its container because the file says that it may."""
    done = run("docker", "logs", cluster.container("n1"))
    said = re.findall(r"event=insecure-address detail=.(\w+): 0\.0\.0\.0:", done.stdout + done.stderr)
    assert said[:2] == ["http", "peer"]


def test_the_image_alone_opens_nothing(image: str) -> None:
    """Whoever runs it without Compose is told what is missing."""
    done = run("docker", "run", "--rm", "--network", "none", image)
    assert done.returncode == 2
    assert "HOLDFAST_INSECURE_HTTP=true" in done.stderr


def test_compose_refuses_to_start_without_a_secret(compose: list[str], image: str, tmp_path: Path) -> None:
    """Without the file Compose stops with a message that names it."""
    project = f"holdfast-test-{secrets.token_hex(4)}"
    command = [*compose, "--project-name", project, "--file", str(COMPOSE_FILE)]
    env = {**os.environ, "HOLDFAST_IMAGE": image, "HOLDFAST_SECRETS": str(tmp_path)}
    try:
        told = run(*command, "up", "--no-start", "n1", env=env)
        assert told.returncode != 0
        assert str(tmp_path / "secret") in told.stdout + told.stderr
    finally:
        assert run(*command, "down", "--volumes", env=env).returncode == 0


def test_a_secret_is_made_once(tmp_path: Path) -> None:
    """In a folder that only its owner can enter, readable for containers; it is never replaced."""
    script = tmp_path / "make-secret"
    shutil.copy(ROOT / "deploy" / "make-secret", script)
    made = tmp_path / "secrets" / "secret"
    contents = set()
    for _ in range(2):
        assert run("bash", "-c", f"umask 077; {script}").returncode == 0
        assert re.fullmatch(r"[0-9a-f]{64}\n", made.read_text())
        assert [stat.S_IMODE(path.stat().st_mode) for path in (made.parent, made)] == [0o700, 0o644]
        assert list(made.parent.iterdir()) == [made]
        contents.add(made.read_text())
    assert len(contents) == 1
