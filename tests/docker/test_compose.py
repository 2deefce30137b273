"""The Compose cluster as a user starts it: real containers, the leader's one killed while a lock is held.

The image is built (and the base image, where it cannot be pulled), deploy/compose.yaml is run under a project
name and on ports of its own, and containers, network and volumes are removed whatever happens.
"""

import os
import secrets
from functools import partial
from pathlib import Path

import pytest

from tests.docker.compose_cluster import COMPOSE_FILE, NODE_IDS, Cluster, docker, run, wait_for

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


def test_compose_refuses_to_start_without_a_secret(compose: list[str], tmp_path: Path) -> None:
    """Without a secret Compose stops with a message that says where to put one."""
    env = {name: value for name, value in os.environ.items() if name != "HOLDFAST_SECRET"}
    (tmp_path / "empty.env").touch()
    told = run(
        *compose, "--env-file", str(tmp_path / "empty.env"), "--file", str(COMPOSE_FILE), "config", env=env
    )
    assert told.returncode != 0
    assert "deploy/.env" in told.stdout + told.stderr
