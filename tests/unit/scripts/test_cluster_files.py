"""The bookkeeping of local clusters: ports, cluster.json, nodes that were never started."""

import dataclasses
import json
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.config import NodeConfig
from scripts import cluster_command
from scripts.lib import cluster_file, ports
from scripts.local_cluster import (
    ELECTIONS_MS,
    PROJECT,
    SLOWNESS,
    SLOWNESS_MAX,
    ClusterFailure,
    LocalCluster,
    node_environment,
)


def test_ports_of_a_cluster() -> None:
    """HTTP counts up from the base, peers from 100 above it."""
    assert ports.of_cluster(7701, 3) == [(7701, 7801), (7702, 7802), (7703, 7803)]


def test_free_ports_stay_clear_of_outgoing_connections() -> None:
    """Found ports are free, and none can be taken by an outgoing connection while its node is down."""
    base = ports.find_base(3)
    ports.check_free(base, 3)
    limit = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert base + ports.PEER_OFFSET + 2 < limit


def test_no_two_get_the_same_ports() -> None:
    """Neither in one process nor in two at the same time, though nobody listens yet."""
    crowded = 60
    program = f"from scripts.lib import ports; print(ports.reserve({crowded}), flush=True); input()"
    others = [
        subprocess.Popen(
            [sys.executable, "-c", program], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    try:
        taken: list[int] = []
        for process in others:
            assert process.stdout is not None
            taken += json.loads(process.stdout.readline())
        taken += [port for _ in range(10) for port in ports.reserve(crowded)]
        assert len(set(taken)) == len(taken) == 13 * crowded
        theirs = taken[:crowded]
        assert not ports._reserve(theirs)
    finally:
        for process in others:
            process.communicate()
    assert ports._reserve(theirs)
    assert not ports._reserve(theirs)
    ports._give_back(theirs)


def test_clients_of_redis_have_ports_of_their_own(tmp_path: Path) -> None:
    """Each node is told its own, which is written down with the cluster."""
    base = ports.find_base(3)
    with socket.socket() as listener:
        listener.bind((ports.HOST, base + 202))
        listener.listen()
        with pytest.raises(ports.PortsBusyError, match=f"{base + 202} in use"):
            LocalCluster.up(tmp_path / "busy", base_port=base, redis=True)
    cluster_file.create(tmp_path, 3, base, [], redis_ports=ports.for_redis(base, 3))
    cluster = LocalCluster(tmp_path)
    assert cluster.redis_addresses == {f"n{n}": f"{ports.HOST}:{base + 199 + n}" for n in (1, 2, 3)}
    argv = cluster._argv("n2", cluster_file.read(tmp_path))
    assert argv[argv.index("--redis") + 1] == f"{ports.HOST}:{base + 201}"


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    """A cluster is not made on ports that are in use; the message says which and what to do."""
    base = ports.find_base(3)
    with socket.socket() as listener:
        listener.bind((ports.HOST, base + 1))
        listener.listen()
        with pytest.raises(ports.PortsBusyError, match=rf"{base + 1} in use.*--base-port"):
            LocalCluster.up(tmp_path / "c", base_port=base)
    assert not (tmp_path / "c").exists()


def test_a_cluster_file_is_private_and_complete(tmp_path: Path) -> None:
    """cluster.json holds nodes, pids and the secret, and only its owner can read it."""
    cluster_file.create(tmp_path, 3, 0, ["--log-level", "debug"])
    document = json.loads((tmp_path / "cluster.json").read_text())
    assert [node["id"] for node in document["nodes"]] == ["n1", "n2", "n3"]
    assert set(document["nodes"][0]) == {"id", "http", "peer", "pid"}
    assert (tmp_path / "secret").read_text().strip() == document["secret"]
    assert len(document["secret"]) >= 32
    for name in ("cluster.json", "secret"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    cluster = LocalCluster(tmp_path)
    assert cluster.nodes()[2].id == "n3"
    assert cluster.secret == document["secret"]


def test_a_cluster_that_does_not_run_can_be_taken_down(tmp_path: Path) -> None:
    """Nodes without a process are dead, and stopping them does nothing."""
    cluster_file.create(tmp_path, 3, 0, [])
    cluster = LocalCluster(tmp_path)
    assert not cluster.is_alive("n1")
    assert not cluster.is_paused("n1")
    cluster.down()
    cluster.kill("n1")
    assert cluster.view("n1") is None


def test_a_recycled_pid_is_not_a_node(tmp_path: Path) -> None:
    """A pid in cluster.json that another process has by now is not taken for the node."""
    cluster_file.create(tmp_path, 3, 0, [])
    document = cluster_file.read(tmp_path)
    for node in document["nodes"]:
        node["pid"] = 1
    cluster_file.write(tmp_path / "cluster.json", document)
    assert not LocalCluster(tmp_path).is_alive("n1")


def test_a_node_that_does_not_run_cannot_be_paused(tmp_path: Path) -> None:
    """Pausing a dead node is refused: a test that believed it would prove nothing."""
    cluster_file.create(tmp_path, 3, 0, [])
    with pytest.raises(ClusterFailure, match="n1 does not run"):
        LocalCluster(tmp_path).pause("n1")


def test_two_at_once_make_one_cluster(tmp_path: Path) -> None:
    """Of two `up` for one new directory, one makes the cluster and the other finds it running."""
    directory = tmp_path / "c"
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(LocalCluster.up, directory, nodes=1) for _ in range(2)]
        first, second = (run.result() for run in runs)
    with first:
        assert first.nodes() == second.nodes()
        assert second.is_alive("n1")


def test_unknown_nodes_and_directories_are_told(tmp_path: Path) -> None:
    """A wrong name lists the right ones; a folder without a cluster says how to make one."""
    with pytest.raises(ClusterFailure, match="scripts/cluster up"):
        LocalCluster(tmp_path)
    cluster_file.create(tmp_path, 3, 0, [])
    with pytest.raises(ClusterFailure, match="n1, n2, n3"):
        LocalCluster(tmp_path).kill("n9")


@pytest.mark.parametrize("flag", ["--redis", "--tls", "--peer-tls"])
def test_a_cluster_is_not_started_with_what_it_was_made_without(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cluster keeps its ports and certificates, so the flag would be ignored: nothing starts."""
    cluster_file.create(tmp_path, 3, 0, [])
    assert cluster_command.main(["up", flag, "--dir", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert f"{flag}: the cluster in {tmp_path} was made without it" in told
    assert f"take another --dir for a new one, or leave {flag} out" in told
    assert not any(LocalCluster(tmp_path).is_alive(node.id) for node in LocalCluster(tmp_path).nodes())


def test_a_cluster_is_not_started_with_another_number_of_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever asks for five would believe that there are five. A new one has 1 to 9."""
    cluster_file.create(tmp_path, 3, 0, [])
    assert cluster_command.main(["up", "--nodes", "5", "--dir", str(tmp_path)]) == 1
    assert f"--nodes 5: the cluster in {tmp_path} has 3; take another --dir" in capsys.readouterr().err
    assert not any(LocalCluster(tmp_path).is_alive(node.id) for node in LocalCluster(tmp_path).nodes())
    for count in ("0", "10"):
        assert cluster_command.main(["up", "--nodes", count, "--dir", str(tmp_path / "new")]) == 1
        assert f"--nodes {count}: must be 1 to 9" in capsys.readouterr().err


def test_elections_of_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of a machine that is said to be slow wait so many times longer for a leader, within reason."""
    defaults = {field.name.upper(): field.default for field in dataclasses.fields(NodeConfig)}
    for slowness, factor in (("", None), ("1.0", None), ("2.5", 2.5), ("60", SLOWNESS_MAX)):
        monkeypatch.setenv(SLOWNESS, slowness)
        environment = node_environment()
        for name, usual_ms in ELECTIONS_MS.items():
            assert usual_ms == defaults[name.removeprefix("HOLDFAST_")]
            assert environment.get(name) == (factor and str(round(usual_ms * factor)))
