"""The faults of all alerts: each is a block in which something is broken, and whole again behind it."""

import contextlib
import random
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from lab.alerts import odd_node
from lab.alerts.watched import COMPACT_ENTRIES, LEADER, ODD, STATE_BYTES_MAX, WatchedCluster
from lab.chaos.faults.mistakes import CopiedDirectory
from scripts.lib import ports

CLOCK_PPM: Final = 900.0
"""Above what is told of (500), and below what a node hands over for (1,000)."""
SLOW_SYNC_S: Final = 0.2
VERY_SLOW_SYNC_S: Final = 1.0
VALUE: Final = "x" * 4096
"""The longest value of a cell."""
CELLS_EACH: Final = 12
"""Cells of one transaction: a request has 64 KiB at most."""

Broken = Callable[[WatchedCluster], AbstractContextManager[None]]


class AlertFault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that breaks, and which alerts tell it."""

    text: str
    broken: Broken
    fires: frozenset[str]
    """The alerts that must fire, without the word in front of each."""
    beside: frozenset[str] = frozenset()
    """Others that are right as well, but need not fire."""
    within_s: float = 60.0
    """How long the alerts may take."""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.broken.__name__.replace("_", "-")


# -- what the lab does again and again ----------------------------------------------------------------------


@contextlib.contextmanager
def repeated(action: Callable[[], Any], every_s: float) -> Iterator[None]:
    """Do something again and again meanwhile, in a thread; what it raises is raised at the end."""
    is_over = threading.Event()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
            while not is_over.wait(every_s):
                action()
        except Exception as error:  # noqa: BLE001 - raised below
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    if raised:
        raise raised[0]


def put_cells(lab: WatchedCluster, first: int, count: int = CELLS_EACH, *, node_id: str = LEADER) -> Any:
    """Write large cells, all in one entry of the log; return what came of it."""
    operations = [{"put": f"alerts/{number}", "value": VALUE} for number in range(first, first + count)]
    return lab.ask(node_id, "/v1/cells/txn", 10.0, method="POST", body={"then": operations})


def put_a_little(lab: WatchedCluster) -> None:
    """Make an entry of the log."""
    lab.must(LEADER, "PUT", "/v1/cells/alerts%2Flittle", {"value": "x"})


def many_entries(lab: WatchedCluster) -> None:
    """Make so many entries that all nodes want to write a snapshot."""
    for _ in range(2 * COMPACT_ENTRIES):
        put_a_little(lab)


# -- who serves ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def killed_node(lab: WatchedCluster) -> Iterator[None]:
    """Kill a follower."""
    lab.kill("n2")
    try:
        yield
    finally:
        lab.start("n2")


@contextlib.contextmanager
def two_killed_nodes(lab: WatchedCluster) -> Iterator[None]:
    """Kill both followers."""
    for node_id in ("n2", ODD):
        lab.kill(node_id)
    try:
        yield
    finally:
        for node_id in ("n2", ODD):
            lab.start(node_id)


@contextlib.contextmanager
def paused_leader(lab: WatchedCluster) -> Iterator[None]:
    """Hold the leader where it is."""
    lab.pause(LEADER)
    try:
        yield
    finally:
        lab.resume(LEADER)


@contextlib.contextmanager
def leadership_handed_around(lab: WatchedCluster) -> Iterator[None]:
    """Let one node after the other lead."""
    for node_id in ("n2", LEADER, "n2", LEADER, "n2", LEADER):
        lab.lead(node_id)
    yield


@contextlib.contextmanager
def joining_node(lab: WatchedCluster) -> Iterator[None]:
    """Add a node that does not run."""
    ((_, port),) = ports.of_cluster(ports.find_base(1), 1)
    body = {"id": "n4", "peer": f"{ports.HOST}:{port}", "reason": "the lab of alerts"}
    lab.ask(LEADER, "/v1/cluster/members", method="POST", body=body)
    try:
        yield
    finally:
        lab.must(LEADER, "DELETE", "/v1/cluster/members", {"id": "n4", "reason": "the lab of alerts"})


# -- between nodes ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def flipped_bits(lab: WatchedCluster) -> Iterator[None]:
    """Flip a bit of what passes between two nodes, now and then."""

    def flip() -> None:
        lab.path.flips = 1

    with repeated(flip, 4.0):
        yield


@contextlib.contextmanager
def copied_directory(lab: WatchedCluster) -> Iterator[None]:
    """Run a second process on a copy of a node's directory; it comes first."""
    fault = CopiedDirectory(lab, random.Random(), {"node": "n2"})
    fault.begin()
    lab.cluster.terminate("n2")
    time.sleep(5.0)  # until the others have let the copy in
    lab.cluster.start("n2")
    try:
        yield
    finally:
        fault.end()
        lab.cluster.terminate("n2")
        lab.cluster.start("n2")


def other_state(lab: WatchedCluster) -> AbstractContextManager[None]:
    """Let one node have another state than the others."""
    return _odd(lab, odd_node.OTHER_STATE)


@contextlib.contextmanager
def fast_clock(lab: WatchedCluster) -> Iterator[None]:
    """Let the clock of one node run too fast."""
    lab.shim.clock(rate_ppm=CLOCK_PPM)
    try:
        yield
    finally:
        lab.shim.clock()


@contextlib.contextmanager
def other_secret(lab: WatchedCluster) -> Iterator[None]:
    """Give one node another secret than the others have."""
    right = lab.odd_secret.read_text()
    lab.odd_secret.write_text(secrets.token_hex(32) + "\n")
    try:
        yield
    finally:
        lab.odd_secret.write_text(right)


# -- how fast -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def requests_without_outcome(lab: WatchedCluster) -> Iterator[None]:
    """Ask a node that knows no leader: each request waits for one until its time is over."""

    def ask() -> None:
        body = {"name": "alerts/none", "ttl_ms": 1000}
        lab.ask(ODD, "/v1/locks/acquire", 10.0, method="POST", body=body)

    with other_secret(lab), contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(repeated(ask, 0.2))
        yield


@contextlib.contextmanager
def slow_syncs(lab: WatchedCluster, delay_s: float = SLOW_SYNC_S) -> Iterator[None]:
    """Let the syncs of one node take long."""
    lab.shim.disk(delay_s=delay_s)
    try:
        with repeated(lambda: put_a_little(lab), 0.3):
            yield
    finally:
        lab.shim.disk()


def very_slow_syncs(lab: WatchedCluster) -> AbstractContextManager[None]:
    """Let the syncs of one node take very long."""
    return slow_syncs(lab, VERY_SLOW_SYNC_S)


@contextlib.contextmanager
def slow_applying(lab: WatchedCluster) -> Iterator[None]:
    """Let one node apply entries slowly."""
    with lab.odd(odd_node.SLOW_APPLY), repeated(lambda: put_a_little(lab), 1.0):
        yield


# -- how full -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def full_state(lab: WatchedCluster) -> Iterator[None]:
    """Fill the state with cells, to 85 % of its bound, over ten seconds."""
    transactions = int(0.85 * STATE_BYTES_MAX / len(VALUE) / CELLS_EACH)
    try:
        for number in range(transactions):
            put_cells(lab, number * CELLS_EACH)
            time.sleep(10.0 / transactions)
        yield
    finally:
        while lab.must(LEADER, "DELETE", "/v1/cells?prefix=alerts/", {})["deleted"]:
            pass


def small_disk(lab: WatchedCluster) -> AbstractContextManager[None]:
    """Leave one node little of its disk."""
    return _odd(lab, odd_node.SMALL_DISK)


@contextlib.contextmanager
def failing_snapshots(lab: WatchedCluster) -> Iterator[None]:
    """Let one node write no snapshot, while all want to."""
    with lab.odd(odd_node.NO_SNAPSHOTS):
        many_entries(lab)
        yield


@contextlib.contextmanager
def full_log(lab: WatchedCluster) -> Iterator[None]:
    """Let the leader write no snapshot, and fill its log: the same cells again and again."""
    lab.lead(ODD)

    def put() -> None:
        put_cells(lab, 0, node_id=ODD)

    with lab.odd(odd_node.NO_SNAPSHOTS), repeated(put, 0.0):
        yield


@contextlib.contextmanager
def full_connections(lab: WatchedCluster) -> Iterator[None]:
    """Wait for a lock on each connection that a node may have, and on further ones."""
    host, port = urlsplit(lab.urls()[ODD]).netloc.split(":")
    body = '{"name":"alerts/full","ttl_ms":80000,"wait_ms":80000}'
    head = f"POST /v1/locks/acquire HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    with contextlib.ExitStack() as stack:

        def wait() -> None:
            stack.enter_context(connection := socket.create_connection((host, int(port)), timeout=5.0))
            connection.sendall(request)

        def try_more() -> None:
            for _ in range(20):
                with contextlib.suppress(OSError):
                    wait()

        with repeated(try_more, 0.5):
            yield
    lab.must(
        LEADER, "POST", "/v1/locks/force-release", {"name": "alerts/full", "reason": "the lab of alerts"}
    )


# -- files, and what programs do ----------------------------------------------------------------------------


@contextlib.contextmanager
def ending_certificate(lab: WatchedCluster) -> Iterator[None]:
    """Give the nodes a certificate that ends in ten days."""
    lab.certify(days=10)
    try:
        yield
    finally:
        lab.certify(days=365)


@contextlib.contextmanager
def wrong_file(lab: WatchedCluster) -> Iterator[None]:
    """Damage the file of the nodes' certificate."""
    file = lab.certificates / "node.pem"
    shutil.copy(file, file.with_suffix(".right"))
    file.write_text("not a certificate\n")
    try:
        yield
    finally:
        file.with_suffix(".right").replace(file)


@contextlib.contextmanager
def half_exchanged_secret(lab: WatchedCluster) -> Iterator[None]:
    """Take the first step of an exchange, and no other."""
    file = lab.shared_secret
    right = file.read_text()
    file.write_text(f"current: {right.strip()}\nnext: {secrets.token_hex(32)}\n")
    try:
        yield
    finally:
        file.write_text(right)


@contextlib.contextmanager
def expiring_leases(lab: WatchedCluster) -> Iterator[None]:
    """Take locks, and neither renew nor release them."""

    def forget() -> None:
        lab.must(LEADER, "POST", "/v1/locks/acquire", {"name": f"alerts/{time.time_ns()}", "ttl_ms": 200})

    with repeated(forget, 0.5):
        yield


@contextlib.contextmanager
def deadlocks(lab: WatchedCluster) -> Iterator[None]:
    """Take two locks in both orders, again and again."""

    def deadlock() -> None:
        one, two = (
            lab.must(LEADER, "POST", "/v1/sessions", {"ttl_ms": 10_000})["session_id"] for _ in range(2)
        )

        def take(session_id: str, name: str, wait_ms: int) -> None:
            body = {"name": f"alerts/{name}", "session_id": session_id, "wait_ms": wait_ms}
            lab.ask(LEADER, "/v1/locks/acquire", 10.0, method="POST", body=body)

        take(one, "a", 0)
        take(two, "b", 0)
        waiting = threading.Thread(target=take, args=(one, "b", 1000))
        waiting.start()
        take(two, "a", 1000)
        for session_id in (one, two):
            lab.must(LEADER, "DELETE", f"/v1/sessions/{session_id}")
        waiting.join()

    with repeated(deadlock, 1.0):
        yield


@contextlib.contextmanager
def _odd(lab: WatchedCluster, what: str) -> Iterator[None]:
    """Make the odd node odd, while there are entries."""
    with lab.odd(what), repeated(lambda: put_a_little(lab), 0.5):
        yield


def _fault(broken: Broken, fires: str, beside: str = "", within_s: float = 60.0) -> AlertFault:
    text = (broken.__doc__ or "").strip()
    return AlertFault(
        text=text, broken=broken, fires=frozenset(fires.split()), beside=frozenset(beside.split()),
        within_s=within_s,
    )  # fmt: skip


FAULTS: Final = (
    _fault(killed_node, "NodeDown PeerDown"),
    _fault(two_killed_nodes, "NodeDown NoQuorum NoLeader PeerDown"),
    _fault(paused_leader, "NodeDown PeerDown"),
    _fault(leadership_handed_around, "LeaderChanges"),
    _fault(joining_node, "MemberJoining PeerDown", within_s=90.0),
    _fault(flipped_bits, "LinkForged", "PeerDown"),
    _fault(copied_directory, "CopiedDirectory ShutOut", "NodeDown NoLeader PeerDown"),
    _fault(other_state, "StateDiffers"),
    _fault(fast_clock, "ClockOff", within_s=180.0),
    _fault(other_secret, "NoLeader PeerDown"),
    _fault(requests_without_outcome, "RequestsFail CommandsFail", "NoLeader PeerDown"),
    _fault(slow_syncs, "SyncSlow", within_s=90.0),
    _fault(very_slow_syncs, "SyncSlow SyncTooSlow", within_s=90.0),
    _fault(slow_applying, "ApplySlow", within_s=90.0),
    _fault(full_state, "StateNearlyFull StateGrows"),
    _fault(small_disk, "DiskNearlyFull"),
    _fault(failing_snapshots, "SnapshotsFail", within_s=120.0),
    _fault(full_log, "LogFull", "SnapshotsFail CommandsFail RequestsFail SyncSlow", within_s=300.0),
    _fault(full_connections, "ConnectionsNearlyFull ConnectionsRefused"),
    _fault(ending_certificate, "CertificateEnds"),
    _fault(wrong_file, "FilesRefused"),
    _fault(half_exchanged_secret, "SecretHalfExchanged", within_s=90.0),
    _fault(expiring_leases, "LeasesExpire", within_s=120.0),
    _fault(deadlocks, "Deadlocks", within_s=120.0),
)  # fmt: skip

NOT_MADE: Final = {
    "RulesBehind": "it needs nodes of a newer release than this one, whose rules a missing node holds back",
    "PendingCommands": "it needs 15,000 commands under way at once, more than one small machine answers",
}
"""Alerts without a fault here, and why; deploy/prometheus/tests.yaml has one for each."""
