"""TLS between nodes: real processes, real certificates, and a running cluster that goes over to it."""

import asyncio
import contextlib
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.config import Address
from cluster.tls import files as tls_files
from scripts.lib import cluster_file
from scripts.local_cluster import PROJECT, LocalCluster
from tests.process import history_checkers
from tests.process.load import Load
from tests.process.nodes import (
    PATIENT,
    LogSince,
    bring_all_back,
    followers,
    http_to,
    node_command,
    node_ids,
    running,
    until,
    urls,
    wait_whole,
)
from tests.support.certificates import Pair, authority
from tests.support.tap import tapped
from tests.unit.cluster.peers.test_links import raw

pytestmark = pytest.mark.process

DEADLINE_S = 60
OPEN_MAX = 30
"""Half-open handshakes at once: more than a node keeps of one address."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes that require TLS of each other."""
    with LocalCluster.up(tmp_path_factory.mktemp("peer-tls"), peer_tls=True, extra_args=PATIENT) as started:
        wait_whole(started)
        yield started


def peer_address(cluster: LocalCluster, node_id: str) -> Address:
    """Return where a node listens for others."""
    return Address.parse(cluster.node(node_id).peer)


def files_of(cluster: LocalCluster, node_id: str) -> tuple[Path, Path, Path]:
    """Return where the certificate of a node is, its key, and the authority."""
    return cluster_file.peer_certificate(cluster.directory, node_id)


def make_certificate(*words: str) -> None:
    """Run `holdfast cert`."""
    subprocess.run([sys.executable, "-m", "holdfast", "cert", *words], check=True, cwd=PROJECT)


async def labelled(cluster: LocalCluster, node_id: str, sample: str) -> float:
    """Return the value of a metric with a label, written as it is shown."""
    shown = await asyncio.to_thread(metrics, cluster, node_id)
    (value,) = (line.split()[1] for line in shown.splitlines() if line.split()[0] == sample)
    return float(value)


def metrics(cluster: LocalCluster, node_id: str) -> str:
    """Return all metrics of a node."""
    with contextlib.closing(cluster.connection(node_id, DEADLINE_S)) as connection:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()


async def test_nodes_serve(cluster: LocalCluster) -> None:
    """They elect a leader, and one takes its place when it is killed; no link is plain."""
    async with http_to(cluster) as http:
        for node_id in node_ids(cluster):
            assert (await http.acquire(node_id, f"a/{node_id}")).status == 200
        before = cluster.leader()
        cluster.kill(before)
        survivors = [node_id for node_id in node_ids(cluster) if node_id != before]
        await until(lambda: cluster.leader() in survivors, "another one leads")
        assert (await http.acquire(survivors[0], "a/again", timeout_ms=20_000)).status == 200
        await asyncio.to_thread(bring_all_back, cluster)
        for node_id in node_ids(cluster):
            assert await http.metric(node_id, "holdfast_peer_links_plain") == 0
            assert await labelled(cluster, node_id, 'holdfast_peer_links_opened_total{kind="tls"}') >= 2
            assert await labelled(cluster, node_id, 'holdfast_peer_tls_mode{mode="require"}') == 1


def s_client(cluster: LocalCluster, node_id: str, *words: str) -> str:
    """Return what openssl says of a connection with a node."""
    *_, ca = files_of(cluster, node_id)
    command = ["openssl", "s_client", "-connect", cluster.node(node_id).peer, "-CAfile", str(ca), *words]
    done = subprocess.run(command, input=b"Q\n", capture_output=True, check=False, timeout=DEADLINE_S)
    return (done.stdout + done.stderr).decode()


async def test_an_outside_witness_sees_tls(cluster: LocalCluster) -> None:
    """Openssl finds TLS 1.3 and the certificate of the node, and without one of its own is shown out."""
    cert, key, _ = files_of(cluster, "n1")
    log = LogSince(cluster, "n2")
    known = ("-cert", str(cert), "-key", str(key))
    shown = await asyncio.to_thread(s_client, cluster, "n2", *known)
    assert "Verify return code: 0 (ok)" in shown
    assert "TLSv1.3" in shown
    assert "CN = n2" in shown or "CN=n2" in shown
    assert "alert protocol version" in await asyncio.to_thread(s_client, cluster, "n2", "-tls1_2", *known)
    await asyncio.to_thread(s_client, cluster, "n2")
    async with raw(peer_address(cluster, "n2")) as plain:
        plain.send(b"hello")
        assert await plain.rest() == b""
    for cut in ("tls", "certificate-missing", "plain"):
        await until(lambda cut=cut: log.lines("event=peer-rejected", f"cut={cut} "), cut)  # type: ignore[misc]
        assert await labelled(cluster, "n2", f'holdfast_links_cut_total{{cut="{cut}"}}') >= 1


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("of n2", "names holdfast://local/n2, and this is node n1"),
        ("of another cluster", "and this node belongs to cluster"),
        ("of another authority", "is not signed by an authority in peer_ca"),
        ("gone", "cannot be read: No such file"),
    ],
)
def test_a_node_with_a_wrong_certificate_does_not_start(
    cluster: LocalCluster, tmp_path: Path, case: str, words: str
) -> None:
    """It ends with 2 and says what is wrong; what its data directory has stays."""
    folder = tmp_path / "tls"
    shutil.copytree(cluster.directory / cluster_file.PEER_TLS_DIRECTORY, folder)
    cert, key, ca = folder / "n1-peer.pem", folder / "n1-peer-key.pem", folder / "ca.pem"
    if case == "of n2":
        cert, key = folder / "n2-peer.pem", folder / "n2-peer-key.pem"
    elif case == "of another cluster":
        make_certificate("peer", "n1", "--cluster", "f" * 32, "--dir", str(folder), "--force")
    elif case == "of another authority":
        ca.write_bytes(authority("another").certificate)
    else:
        cert.unlink()
    cluster.kill("n1")
    try:
        flags = {"peer_cert": str(cert), "peer_key": str(key), "peer_ca": str(ca)}
        with running(node_command(cluster, "n1", **flags), tmp_path / "log") as child:
            assert child.wait(DEADLINE_S) == 2
        assert words in (tmp_path / "log").read_text()
    finally:
        bring_all_back(cluster)


# -- going over to TLS, and new certificates ----------------------------------------------------------------


def take_step(cluster: LocalCluster, step: str) -> None:
    """Restart one node after the other with this step."""
    document = cluster_file.read(cluster.directory)
    document["extra_args"] = ["--peer-tls", step]
    cluster_file.write(cluster.directory / cluster_file.FILE, document)
    for node_id in [*followers(cluster), cluster.leader()]:
        cluster.restart(node_id)
        wait_whole(cluster)


async def test_a_running_cluster_goes_over_to_tls_and_back(tmp_path: Path) -> None:
    """Under load, by restarts, step by step; no request fails, and metrics and log say how far it is."""
    directory = tmp_path / "cluster"
    cluster_file.create(directory, 3, 0, ["--peer-tls", "off"], peer_tls=True)
    with LocalCluster.up(directory) as cluster:
        wait_whole(cluster)
        plain = {"off": 2, "accept": 2, "dial": 0, "require": 0}
        async with http_to(cluster) as http, Load(urls(cluster), prefix="roll", keep_every=20) as load:
            for step in ("accept", "dial", "require", "dial", "accept", "off"):
                logs = {node_id: LogSince(cluster, node_id) for node_id in node_ids(cluster)}
                await asyncio.to_thread(take_step, cluster, step)
                await load.grants(30)
                for node_id, log in logs.items():
                    assert await http.metric(node_id, "holdfast_peer_links_plain") == plain[step], step
                    told = log.lines("event=peer-tls-not-required", f"mode={step}")
                    assert len(told) == (step in ("accept", "dial")), step
                    rejected = log.lines("event=peer-rejected")
                    # A node that starts on a busy machine may be late with its first handshake.
                    assert rejected == log.lines("event=peer-rejected", "cut=slow"), log.text
        assert history_checkers.violations(load.history) == []
        assert history_checkers.errors(load.history) == []


def renew(cluster: LocalCluster, *, ca: bytes, by: str = "") -> None:
    """Write the authorities of all nodes, and if somebody signs them new certificates, and tell the nodes."""
    folder = cluster.directory / cluster_file.PEER_TLS_DIRECTORY
    new = folder / "ca.new"
    new.write_bytes(ca)
    new.replace(folder / "ca.pem")
    if by:
        signer = cluster.directory / by
        for node_id in node_ids(cluster):
            make_certificate("peer", node_id, "--cluster", "local", "--dir", str(signer), "--force")
            for name in (f"{node_id}-peer-key.pem", f"{node_id}-peer.pem"):
                (signer / name).replace(folder / name)
    for node_id in node_ids(cluster):
        cluster.send_signal(node_id, signal.SIGHUP)


async def read_by_all(logs: dict[str, LogSince], count: int) -> None:
    """Wait until each node has read its files so often."""
    await until(
        lambda: all(len(log.lines("event=tls-read")) == count for log in logs.values()), "files are read"
    )


async def test_authority_and_certificates_are_exchanged_under_load(cluster: LocalCluster) -> None:
    """No request fails, no link ends, the leader stays; connections made later have the new certificates."""
    await exchange_under_load(cluster)
    follower = followers(cluster)[0]
    await asyncio.to_thread(cluster.restart, follower)
    await asyncio.to_thread(wait_whole, cluster)
    cert, key, _ = files_of(cluster, "n1")
    shown = await asyncio.to_thread(s_client, cluster, follower, "-cert", str(cert), "-key", str(key))
    assert "Verify return code: 0 (ok)" in shown


async def exchange_under_load(cluster: LocalCluster) -> None:
    """Exchange everything in three steps while clients work."""
    where = "authority-new"
    await asyncio.to_thread(make_certificate, "ca", "--dir", str(cluster.directory / where))
    *_, ca = files_of(cluster, "n1")
    old, new = ca.read_bytes(), (cluster.directory / where / "ca.pem").read_bytes()
    leader = cluster.leader()
    logs = {node_id: LogSince(cluster, node_id) for node_id in node_ids(cluster)}
    async with Load(urls(cluster), prefix=where) as load:
        for count, (authorities, by) in enumerate([(old + new, ""), (old + new, where), (new, "")], 1):
            await asyncio.to_thread(renew, cluster, ca=authorities, by=by)
            await read_by_all(logs, count)
            await load.grants(30)
    assert history_checkers.violations(load.history) == []
    assert history_checkers.errors(load.history) == []
    assert not any(log.lines("event=tls-not-read") for log in logs.values())
    assert [log.lines("event=link-lost") for log in logs.values()] == [[], [], []]
    assert cluster.leader() == leader


async def test_a_bad_new_file_leaves_the_old_one_in_force(cluster: LocalCluster) -> None:
    """The node says so, in its log and a metric, until the file is good again."""
    cert, *_ = files_of(cluster, "n1")
    good = cert.read_bytes()
    log = LogSince(cluster, "n1")
    async with http_to(cluster) as http:
        cert.write_bytes(files_of(cluster, "n2")[0].read_bytes())
        cluster.send_signal("n1", signal.SIGHUP)
        await until(lambda: log.lines("event=tls-not-read", "peer_key", "is not the key"), "it is told")
        assert await http.metric("n1", "holdfast_peer_tls_files_refused") == 1
        assert (await http.acquire("n1", "still")).status == 200
        cert.write_bytes(good)
        cluster.send_signal("n1", signal.SIGHUP)
        await until(lambda: log.lines("event=tls-read"), "it is read")
        assert await http.metric("n1", "holdfast_peer_tls_files_refused") == 0


async def test_a_node_whose_certificate_is_revoked_is_out_until_it_has_another(tmp_path: Path) -> None:
    """Its links end at once, and the others go on. Then it is a node as before, though the list stays."""
    revoked = tmp_path / "revoked"
    revoked.write_text("")
    extra_args = ("--peer-revoked", str(revoked))
    with LocalCluster.up(tmp_path / "cluster", peer_tls=True, extra_args=extra_args) as cluster:
        await asyncio.to_thread(wait_whole, cluster)
        lost, *others = sorted(node_ids(cluster), key=lambda node_id: node_id == cluster.leader())
        logs = {node_id: LogSince(cluster, node_id) for node_id in node_ids(cluster)}
        cert, key, _ = files_of(cluster, lost)
        revoked.write_text(f"{Pair(cert, key).serial:X}  # {lost}\n")
        for node_id in node_ids(cluster):
            cluster.send_signal(node_id, signal.SIGHUP)
        refused = ("event=peer-rejected", f"peer={lost}", "cut=certificate-revoked")
        await until(lambda: all(logs[other].lines(*refused) for other in others), "it is refused")
        gone = ("event=link-lost", f"peer={lost}")
        await until(lambda: all(logs[other].lines(*gone) for other in others), "its links have ended")
        await until(
            lambda: logs[lost].lines("event=tls-not-read", "is revoked by peer_revoked"), "it is told"
        )
        await until(lambda: not ready(cluster, lost), "it knows no leader")
        async with http_to(cluster) as http:
            assert (await http.acquire(others[0], "a", timeout_ms=20_000)).status == 200
        await asyncio.to_thread(cluster_file.certify_peer, cluster.directory, lost, "--force")
        cluster.send_signal(lost, signal.SIGHUP)
        await asyncio.to_thread(wait_whole, cluster)
        assert logs[lost].lines("event=tls-read")


# -- somebody on the path, and strangers --------------------------------------------------------------------


@pytest.mark.parametrize("has_tls", [True, False])
async def test_who_is_on_the_path_reads_no_name_of_a_lock(tmp_path: Path, *, has_tls: bool) -> None:
    """Between two nodes that speak TLS; without it, everything can be read."""
    cluster_file.create(tmp_path, 2, 0, (), peer_tls=has_tls)
    cluster = LocalCluster(tmp_path)
    async with tapped(peer_address(cluster, "n2")) as (tap, where), http_to(cluster) as http:
        peers = f"n1={cluster.node('n1').peer},n2={where}"
        with contextlib.ExitStack() as stack:
            for node_id in ("n1", "n2"):
                changes = {"peers": peers}
                if has_tls:
                    names = ("peer_cert", "peer_key", "peer_ca")
                    changes |= dict(zip(names, map(str, files_of(cluster, node_id)), strict=True))
                argv = node_command(cluster, node_id, **changes)
                stack.enter_context(running(argv, tmp_path / f"{node_id}.log"))
            await until(lambda: all(ready(cluster, node_id) for node_id in ("n1", "n2")), "both are ready")
            for node_id in ("n1", "n2"):
                got = await http.acquire(node_id, f"payroll/of-{node_id}", owner="alice")
                assert got.status == 200
                assert (got.body["hold_id"].encode() in tap.seen) == (not has_tls)
                assert (f"payroll/of-{node_id}".encode() in tap.seen) == (not has_tls)
            assert len(tap.seen) > 1_000


def ready(cluster: LocalCluster, node_id: str) -> bool:
    """Whether a node answers that it is."""
    answer = cluster.ask(node_id, "/readyz")
    return answer is not None and answer[0] == 200


async def test_strangers_depose_nobody(cluster: LocalCluster) -> None:
    """Half handshakes, slow ones and garbage at the leader's port: few lines, and all goes on."""
    leader = cluster.leader()
    term = (cluster.view(leader) or {})["term"]
    address, log = peer_address(cluster, leader), LogSince(cluster, leader)
    strangers = [asyncio.create_task(_stranger(address, number)) for number in range(OPEN_MAX)]
    try:
        async with Load(urls(cluster), prefix="strangers") as load:
            await load.grants(200)
    finally:
        for task in strangers:
            task.cancel()
        ended = await asyncio.gather(*strangers, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
    assert history_checkers.errors(load.history) == []
    assert (cluster.view(leader) or {})["term"] == term
    assert cluster.leader() == leader
    rejected = log.lines("event=peer-rejected")
    assert log.lines("event=peer-rejected", "cut=crowd")
    counts = [
        await labelled(cluster, leader, f'holdfast_links_cut_total{{cut="{cut}"}}')
        for cut in ("crowd", "tls")
    ]
    assert sum(counts) > len(rejected)
    assert not log.lines("event=link-lost")


async def _stranger(address: Address, number: int) -> None:
    """Connect again and again, and say half of something, slowly."""
    outgoing = ssl.MemoryBIO()
    context = tls_files.new_context(is_server=False)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    hello = outgoing.read()
    said = [hello[:100], hello, b"\x16\x03\x01\x00\x05hello"][number % 3]
    while True:
        _, writer = await asyncio.open_connection(*address)
        try:
            for byte in said[:20]:
                writer.write(bytes((byte,)))
                await asyncio.sleep(0.002)
            writer.write(said[20:])
            await asyncio.sleep(0.05)
        except ConnectionError:
            continue
        finally:
            writer.transport.abort()
