"""The recipes of deploy/README.md, step by step: lost volumes, further nodes, rolling restarts, secrets."""

import asyncio
import secrets
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from scripts.lib import guardian
from tests.docker.compose_cluster import NEW_ID, NODE_IDS, Cluster, docker, run, wait_for
from tests.process import history_checkers
from tests.process.load import Load

pytestmark = pytest.mark.docker

HELD = "event=held exit_code=4"


def take(cluster: Cluster, name: str) -> int:
    """Take a lock for long and return its token."""
    body = {"name": name, "owner": "test", "ttl_ms": 600_000, "request_id": secrets.token_hex(8)}
    return int(wait_for("a grant", partial(cluster.call, "n1", "/v1/locks/acquire", body))["token"])


def check_kept(cluster: Cluster, node_id: str, name: str, token: int) -> None:
    """A lock is still held, with its token, as a node answers."""
    lock = wait_for("a read", partial(cluster.call, node_id, f"/v1/locks/{name}"))
    assert [holder["token"] for holder in lock["holders"]] == [token]


def change(cluster: Cluster, *words: str) -> None:
    """Change the members from within a container."""
    command = ("holdfast", "--nodes", "http://n1:7700", "cluster", *words, "--reason", "by hand")
    cluster.compose("exec", "-T", "n1", *command)


def urls(cluster: Cluster) -> list[str]:
    """Return where clients reach the nodes."""
    return [f"http://127.0.0.1:{cluster.ports[node_id]}" for node_id in NODE_IDS]


def logs(cluster: Cluster, node_id: str) -> str:
    """Return what the present container of a node has logged."""
    done = run("docker", "logs", cluster.container(node_id))
    return done.stdout + done.stderr


def lose_volume(cluster: Cluster, node_id: str) -> None:
    """Remove a node's container and its volume, and start the node as before."""
    cluster.compose("rm", "--stop", "--force", node_id)
    docker("volume", "rm", f"{cluster.project}_{node_id}")
    cluster.compose("up", "--detach", node_id)


def test_a_lost_volume_is_repaired(cluster: Cluster) -> None:
    """The node is held, unhealthy, with the reason; removed, started to join and added, it counts again."""
    token = take(cluster, "kept")
    lose_volume(cluster, "n3")
    wait_for("n3 is held", lambda: True if HELD in logs(cluster, "n3") else None)
    assert "holdfast cluster replace" in logs(cluster, "n3")
    state = "{{.State.Running}} {{.RestartCount}}"
    assert docker("inspect", "--format", state, cluster.container("n3")) == "true 0"

    change(cluster, "remove", "n3", "--yes")
    cluster.compose("up", "--detach", "n3", HOLDFAST_JOIN_N3="true")
    change(cluster, "add", "n3", "n3:7800", "--wait", "1m")
    wait_for("n3 is ready", partial(cluster.ready, "n3"))
    assert cluster.members("n3").keys() == set(NODE_IDS)
    check_kept(cluster, "n3", "kept", token)
    # What it was told once stays: the variable may go again.
    cluster.compose("up", "--detach", "n3")
    wait_for("n3 is ready as before", partial(cluster.ready, "n3"))


def test_a_fourth_node_joins_and_leaves(cluster: Cluster) -> None:
    """It is started from its own file, added, has all locks, can be removed, and comes back."""
    token = take(cluster, "shared")
    cluster.compose("up", "--detach", NEW_ID)
    change(cluster, "add", NEW_ID, "n4:7800", "--wait", "1m")
    wait_for("n4 is ready", partial(cluster.ready, NEW_ID))
    check_kept(cluster, NEW_ID, "shared", token)
    change(cluster, "remove", NEW_ID)
    cluster.compose("rm", "--stop", "--force", NEW_ID)
    docker("volume", "rm", f"{cluster.project}_{NEW_ID}")
    assert cluster.members("n1").keys() == set(NODE_IDS)
    # Without its old volume it may come back.
    cluster.compose("up", "--detach", NEW_ID)
    change(cluster, "add", NEW_ID, "n4:7800", "--wait", "1m")
    check_kept(cluster, NEW_ID, "shared", token)
    change(cluster, "remove", NEW_ID)
    cluster.compose("rm", "--stop", "--force", NEW_ID)


def test_a_rolling_restart_keeps_every_lock(cluster: Cluster) -> None:
    """One node after the other, each ready before the next: nothing is lost."""
    token = take(cluster, "rolling")
    for node_id in NODE_IDS:
        cluster.compose("restart", "--timeout", "30", node_id)
        wait_for(f"{node_id} is ready", partial(cluster.ready, node_id))
        check_kept(cluster, node_id, "rolling", token)


def test_the_secret_is_exchanged(cluster: Cluster, tmp_path: Path) -> None:
    """Each step restarts the nodes, one after the other: the file has another inode then. Locks stay."""
    token = take(cluster, "exchanged")
    old = cluster.secret_file.read_text()
    restart = tmp_path / "rolling-restart.sh"
    lines = ["#!/bin/sh -e"]
    for node_id in NODE_IDS:
        container = cluster.container(node_id)
        lines.append(f"docker restart --time 30 {container}")
        lines.append(f"until docker exec {container} health-check /readyz; do sleep 1; done")
    restart.write_text("\n".join(lines))
    restart.chmod(0o755)
    urls = ",".join(f"http://127.0.0.1:{cluster.ports[node_id]}" for node_id in NODE_IDS)
    rotate = ("cluster", "rotate-secret", str(cluster.secret_file), "--carry", str(restart))
    done = run(sys.executable, "-m", "holdfast", "--nodes", urls, *rotate)
    assert done.returncode == 0, done.stdout + done.stderr
    new = cluster.secret_file.read_text().strip()
    assert new not in (old, "")
    for node_id in NODE_IDS:
        assert docker("exec", cluster.container(node_id), "cat", "/run/secrets/holdfast_secret") == new
        check_kept(cluster, node_id, "exchanged", token)


@pytest.fixture
def newer_image(image: str) -> Iterator[str]:
    """Yield another image with the same node."""
    name = f"holdfast:test-{secrets.token_hex(4)}"
    guardian.run_if_killed(["docker", "rmi", "--force", name])
    built = run("bash", "-c", f"printf 'FROM {image}\nLABEL newer=yes\n' | docker build --tag {name} -")
    assert built.returncode == 0, built.stdout + built.stderr
    yield name
    docker("rmi", "--force", name)


def replace_containers(cluster: Cluster, image: str, kept_logs: Path) -> None:
    """Start one node after the other from this image, and keep what the container before it has logged."""
    for node_id in NODE_IDS:
        cluster.compose("stop", "--timeout", "30", node_id)
        kept = kept_logs / f"{node_id}.log"
        kept.write_text(cluster.compose("logs", "--no-color", node_id))
        cluster.compose("up", "--detach", "--no-deps", node_id, HOLDFAST_IMAGE=image)
        wait_for(f"{node_id} is ready", partial(cluster.ready, node_id))


async def test_a_new_image_and_the_way_back(
    cluster: Cluster, image: str, newer_image: str, tmp_path: Path
) -> None:
    """Under load no request fails; what the containers that are gone have logged is kept."""
    async with Load(urls(cluster), prefix="image", keep_every=20) as load:
        for name in (newer_image, image):
            (kept_logs := tmp_path / name).mkdir()
            await asyncio.to_thread(replace_containers, cluster, name, kept_logs)
            await load.grants(30)
            for node_id in NODE_IDS:
                runs = docker("inspect", "--format", "{{.Config.Image}}", cluster.container(node_id))
                assert runs == name
    assert history_checkers.violations(load.history) == []
    assert history_checkers.errors(load.history) == []
    for node_id in NODE_IDS:
        for name in (newer_image, image):
            kept = (tmp_path / name / f"{node_id}.log").read_text()
            assert "event=stopped" in kept.rpartition("event=ready")[2]  # other tests have stopped it before
        assert "event=stopped" not in logs(cluster, node_id)


async def test_a_node_moves_to_another_address(cluster: Cluster, tmp_path: Path) -> None:
    """Under load no request fails; afterwards its vote counts at the new address."""
    moved = tmp_path / "compose.moved.yaml"
    moved.write_text(
        "services: {n3: {environment: {HOLDFAST_PEER: '0.0.0.0:7900',"
        " HOLDFAST_PEERS: 'n1=n1:7800,n2=n2:7800,n3=n3:7900'}}}"
    )
    async with Load(urls(cluster), prefix="moved") as load:
        await asyncio.to_thread(change, cluster, "move", "n3", "n3:7900")
        with cluster.further_file(moved):
            await asyncio.to_thread(cluster.compose, "up", "--detach", "--no-deps", "n3")
            await asyncio.to_thread(wait_for, "n3 is ready", partial(cluster.ready, "n3"))
            await load.grants(30)
            await asyncio.to_thread(cluster.compose, "stop", "n2")
            await load.grants(30)
            await asyncio.to_thread(cluster.compose, "start", "n2")
            await asyncio.to_thread(wait_for, "n2 is ready", partial(cluster.ready, "n2"))
            await asyncio.to_thread(change, cluster, "move", "n3", "n3:7800")
        await asyncio.to_thread(cluster.compose, "up", "--detach", "--no-deps", "n3")
        await asyncio.to_thread(wait_for, "n3 is ready", partial(cluster.ready, "n3"))
        await load.grants(30)
    assert history_checkers.violations(load.history) == []
    assert history_checkers.errors(load.history) == []
