"""The packet switch of the chaos lab with real kernels: three namespaces, TCP between them, every rule."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.chaos.netns import network as netns
from lab.chaos.netns.links import CUT, Rule
from lab.chaos.netns.network import Network, between
from lab.chaos.targets.target import LabFailure
from tests.support.processes import processes_with, wait_until

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(netns.missing()), reason=netns.missing() or "nothing is missing"),
]

ROOT = Path(__file__).resolve().parents[2]
PORT = 7
PATIENCE_S = 20.0
SILENCE_S = 0.5
"""For how long nothing must come through a cut link: a packet takes a thousandth of it."""
DATA = bytes(range(256)) * 256


@pytest.fixture
def network() -> Iterator[Network]:
    """Three ends; `b` listens and sends back what it gets."""
    with Network(["a", "b", "c"], seed=1) as built, built.socket("b") as listener:
        listener.bind((built.addresses["b"], PORT))
        listener.listen()
        thread = threading.Thread(target=echo, args=[listener])
        thread.start()
        try:
            yield built
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def echo(listener: socket.socket) -> None:
    """Serve one connection after the other until the listener is shut down."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(ConnectionError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while data := connection.recv(65536):
                    connection.sendall(data)


@contextlib.contextmanager
def connected(network: Network, name: str = "a") -> Iterator[socket.socket]:
    """Give a connection from an end to the echo; it is reset in the end, so that nothing lingers."""
    with network.socket(name) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.settimeout(PATIENCE_S)
        connection.connect((network.addresses["b"], PORT))
        yield connection
        network.clear()


def answer_to(connection: socket.socket, data: bytes) -> bytes:
    """Send something and return what comes back, as much as was sent."""
    sender = threading.Thread(target=connection.sendall, args=[data])
    sender.start()
    answer = b""
    while len(answer) < len(data):
        answer += connection.recv(65536)
    sender.join()
    return answer


def is_silent(connection: socket.socket) -> bool:
    """Whether nothing comes back for a while."""
    connection.settimeout(SILENCE_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(PATIENCE_S)
    return False


def took_s(connection: socket.socket) -> float:
    """Return how long one byte takes to `b` and back."""
    begin_s = time.monotonic()
    answer_to(connection, b"x")
    return time.monotonic() - begin_s


def test_packets_pass_and_nobody_else_hears_them(network: Network) -> None:
    """TCP works between two ends, and the third gets no packet."""
    with connected(network) as connection:
        assert answer_to(connection, DATA) == DATA
    counts = network.counts()
    assert counts["a", "b"].sent >= len(DATA) / 1500
    assert counts["b", "a"].sent >= len(DATA) / 1500
    assert sum(passed.dropped for passed in counts.values()) == 0
    assert {ends for ends, passed in counts.items() if passed.sent} == {("a", "b"), ("b", "a")}


def test_a_cut_link_is_silent_and_whole_after_it(network: Network) -> None:
    """Nothing passes a cut, the third end is not touched, and after the heal the connection goes on."""
    with connected(network) as connection:
        network.change("cut", between(["a"], ["b"]), CUT)
        connection.sendall(b"x")
        assert is_silent(connection)
        with network.socket("c") as other:
            other.settimeout(PATIENCE_S)
            other.connect((network.addresses["b"], PORT))
        network.clear("cut")
        network.clear("cut")
        assert connection.recv(1) == b"x"


@pytest.mark.parametrize("cut", [("a", "b"), ("b", "a")])
def test_a_one_way_cut_drops_one_direction(network: Network, cut: tuple[str, str]) -> None:
    """The cut direction drops packets, the other one none: they arrive and are not heard of."""
    with connected(network) as connection:
        before = network.counts()
        network.change("one way", [cut], CUT)
        connection.sendall(b"x")
        assert is_silent(connection)
        after = network.counts()
        other = cut[1], cut[0]
        assert after[cut].dropped > before[cut].dropped
        assert after[other].dropped == 0
        if cut == ("b", "a"):
            assert after[other].sent > before[other].sent


def test_delay_is_added_in_each_direction(network: Network) -> None:
    """A round trip takes twice the delay of a direction, and no less."""
    with connected(network) as connection:
        network.change("delay", between(["a"], ["b"]), Rule(delay_ms=50))
        assert min(took_s(connection) for _ in range(3)) >= 0.1
        network.clear("delay")
        wait_until(lambda: took_s(connection) < 0.1, "the delay is over")


@pytest.mark.parametrize(
    "rule",
    [Rule(loss=0.05), Rule(corrupt=0.05), Rule(duplicate=0.2), Rule(delay_ms=1, reorder=0.2)],
    ids=["loss", "corrupt", "duplicate", "reorder"],
)
def test_tcp_repairs_what_a_bad_link_does(network: Network, rule: Rule) -> None:
    """What was lost, damaged, doubled or reordered arrives as it was sent: the kernel checks and repeats."""
    with connected(network) as connection:
        network.change("bad", between(["a"], ["b"]), rule)
        assert answer_to(connection, DATA) == DATA


def test_a_damaged_datagram_is_dropped_by_its_receiver(network: Network) -> None:
    """A packet with a wrong bit passes the switch and is dropped by the checksum of the other kernel."""
    with (
        network.socket("a", kind=socket.SOCK_DGRAM) as sender,
        network.socket("b", kind=socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind((network.addresses["b"], PORT))
        receiver.settimeout(PATIENCE_S)
        network.change("corrupt", [("a", "b")], Rule(corrupt=1.0))
        for _ in range(20):
            sender.sendto(b"damaged", (network.addresses["b"], PORT))
        wait_until(lambda: network.counts()["a", "b"].sent == 20, "all have passed")
        network.clear()
        sender.sendto(b"whole", (network.addresses["b"], PORT))
        assert receiver.recv(100) == b"whole"
        assert network.counts()["a", "b"].dropped == 0


def test_a_slow_link_passes_at_its_rate(network: Network) -> None:
    """64 KiB at 1000 kbit/s, one way, take half a second at least."""
    with connected(network) as connection:
        network.change("slow", [("a", "b")], Rule(rate_kbit_s=1000))
        begin_s = time.monotonic()
        assert answer_to(connection, DATA) == DATA
        assert time.monotonic() - begin_s > len(DATA) * 8 / 1_000_000


def test_rules_of_two_faults_are_apart(network: Network) -> None:
    """The end of one fault leaves the other one."""
    with connected(network) as connection:
        network.change("one", between(["a"], ["b"]), Rule(delay_ms=30))
        network.change("other", between(["a"], ["b"]), CUT)
        network.clear("other")
        assert took_s(connection) >= 0.06


def test_a_link_that_does_not_exist_is_refused(network: Network) -> None:
    """A rule for an unknown end changes nothing and is a failure with its name."""
    with pytest.raises(LabFailure, match=r"no link .*nobody"):
        network.change("wrong", [("a", "nobody")], CUT)


def test_a_command_starts_at_an_end(network: Network) -> None:
    """What is started with the words of an end has the address of that end, and its own process id."""
    source = "import os, socket; s = socket.create_server(('10.77.0.3', 0)); print(os.getpid())"
    child = subprocess.Popen(
        [*network.enter("c"), sys.executable, "-c", source], stdout=subprocess.PIPE, text=True
    )
    output, _ = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 0
    assert int(output) == child.pid


LAB = """
import subprocess, sys
from lab.chaos.netns.network import Network
from scripts.lib import guardian
with guardian.guarded(), Network(["a", "b"]) as network:
    sleeper = [*network.enter("a"), sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]]
    child = subprocess.Popen(sleeper)
    print(network.pid, child.pid, flush=True)
    sys.stdin.readline()
"""


def namespace_of(pid: int) -> str:
    """Return the network namespace of a process."""
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def namespaces_in_use() -> set[str]:
    """Return the network namespaces of all processes."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            found.add(str(link.readlink()))
    return found


def test_a_killed_lab_leaves_nothing(tmp_path: Path) -> None:
    """After kill -9 of the lab its switch, its processes and its namespaces are gone."""
    with subprocess.Popen(
        [sys.executable, "-c", LAB, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as lab:
        try:
            assert lab.stdout is not None
            switch_pid, child_pid = (int(word) for word in lab.stdout.readline().split())
            wait_until(
                lambda: namespace_of(child_pid) != namespace_of(os.getpid()),
                "the child is in its namespace",
            )
            inside = namespace_of(child_pid)
            assert inside in namespaces_in_use()
        finally:
            lab.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{switch_pid}").exists(), "the switch has ended")
    wait_until(lambda: not processes_with(str(tmp_path)), "the child has been killed")
    assert inside not in namespaces_in_use()
