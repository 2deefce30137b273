"""The simulated network: bytes in order, and everything that may happen to them and to connections."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from tests.simulation.faults.hostile_network import Chances, Hostile
from tests.simulation.plan import make_plan
from tests.simulation.run import run
from tests.simulation.world.endpoint import Endpoint
from tests.simulation.world.event_loop import Current, NodeLoop, make_loop
from tests.simulation.world.network import Network
from tests.simulation.world.scheduler import Clock, Scheduler

US = 1_000_000
PORT = 7800


class Talker(asyncio.Protocol):
    """One side of a connection: what it heard, and how it ended."""

    def __init__(self) -> None:
        self.heard = b""
        self.pieces = 0
        self.ended: list[Exception | None] = []
        self.transport: Any = None
        self.is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Remember the bytes."""
        self.heard += data
        self.pieces += 1

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember the end."""
        self.ended.append(exc)


class Net:
    """Two hosts, a and b; b listens."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, Random(seed))
        self.accepted: list[Talker] = []
        current = Current()
        self.loops = {
            name: make_loop(self.scheduler, Clock(0, 0), name, current, _fail, wires=self.network)
            for name in "ab"
        }
        self.network.listen(self.loops["b"], self._accept, ("b", PORT))

    def _accept(self) -> Talker:
        self.accepted.append(Talker())
        return self.accepted[-1]

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self.scheduler.run_until(self.scheduler.now_us + int(seconds * US))

    def begin_connect(self) -> "asyncio.Task[tuple[Any, Any]]":
        """Begin to connect a to b."""
        return self.loops["a"].create_task(self.loops["a"].create_connection(Talker, "b", PORT))

    def connect(self) -> tuple[Talker, Talker]:
        """Connect a to b; return both sides."""
        task = self.begin_connect()
        self.pass_s(0.1)
        talker: Talker = task.result()[1]
        return talker, self.accepted[-1]


@pytest.fixture
def net() -> Iterator[Net]:
    """Return a network; its processes end with the test."""
    made = Net()
    yield made
    for loop in made.loops.values():
        loop.kill()


def _fail(loop: NodeLoop, context: dict[str, Any]) -> None:
    raise AssertionError(f"{loop.name}: {context}")


def test_bytes_arrive_in_order_however_they_are_cut(net: Net) -> None:
    """A connection keeps its bytes and their order when pieces are split and the path jitters."""
    net.network.split_chance = 0.7
    net.network.path("a", "b").jitter_us = 50_000
    one, other = net.connect()
    sent = b"".join(b"%04d" % number for number in range(500))
    for at in range(0, len(sent), 40):
        one.transport.write(sent[at : at + 40])
        net.pass_s(0.01)
    net.pass_s(1)
    assert other.heard == sent
    assert other.pieces > 10


def test_cut_path_holds_bytes_back_until_it_is_repaired(net: Net) -> None:
    """In a cut direction bytes pile up and come later; the other direction works."""
    one, other = net.connect()
    net.network.cut("a", "b")
    one.transport.write(b"late")
    other.transport.write(b"in time")
    net.pass_s(5)
    assert (one.heard, other.heard) == (b"in time", b"")
    net.network.repair("a", "b")
    net.pass_s(1)
    assert other.heard == b"late"


def test_cut_path_delays_a_connection(net: Net) -> None:
    """A connection over a cut path gets neither answer nor refusal until the path is repaired."""
    net.network.cut("b", "a")
    task = net.begin_connect()
    net.pass_s(3)
    assert not task.done()
    net.network.repair("b", "a")
    net.pass_s(3)
    assert task.done()


def test_nobody_listening_is_refused(net: Net) -> None:
    """A host that is up and does not listen refuses; one without power says nothing."""
    net.network.process_ended(net.loops["b"])
    task = net.begin_connect()
    net.pass_s(0.1)
    with pytest.raises(ConnectionRefusedError):
        task.result()
    net.network.host_lost_power(net.loops["b"])
    task = net.begin_connect()
    net.pass_s(10)
    assert not task.done()


def test_killed_process_is_noticed(net: Net) -> None:
    """The kernel of a killed process delivers what was sent and closes."""
    one, other = net.connect()
    other.transport.write(b"last words")
    net.network.process_ended(net.loops["b"])
    net.pass_s(1)
    assert one.heard == b"last words"
    assert one.ended == [None]


def test_lost_power_is_noticed_only_when_the_host_is_back(net: Net) -> None:
    """Nobody tells that a host has no power; when it is up again it refuses what comes."""
    one, _ = net.connect()
    net.network.host_lost_power(net.loops["b"])
    one.transport.write(b"hello?")
    net.pass_s(60)
    assert one.ended == []
    net.network.host_is_up("b")
    one.transport.write(b"hello?")
    net.pass_s(1)
    assert [type(error) for error in one.ended] == [ConnectionResetError]


def test_half_open_connection_is_believed_in_until_used(net: Net) -> None:
    """One side finds its connection broken; the other learns it when it sends."""
    one, other = net.connect()
    net.network.between("a", "b")[0].break_here()
    net.pass_s(10)
    assert [type(error) for error in one.ended] == [ConnectionResetError]
    assert other.ended == []
    other.transport.write(b"are you there?")
    net.pass_s(1)
    assert [type(error) for error in other.ended] == [ConnectionResetError]


def test_connection_that_is_gone_at_once_is_told_so(net: Net) -> None:
    """A process that was stopped while its connection came about and went learns of both."""
    task = net.begin_connect()
    net.pass_s(0)
    net.loops["a"].pause()
    net.pass_s(1)
    net.accepted[0].transport.abort()
    net.pass_s(1)
    net.loops["a"].resume()
    net.pass_s(1)
    talker = task.result()[1]
    assert [type(error) for error in talker.ended] == [ConnectionResetError]


def test_abort_behind_a_cut_is_not_heard(net: Net) -> None:
    """A reset does not pass a cut path either."""
    one, other = net.connect()
    net.network.cut("a", "b")
    one.transport.abort()
    net.pass_s(10)
    assert one.ended == [None]
    assert other.ended == []


def test_who_does_not_read_fills_the_writer(net: Net) -> None:
    """What a stopped process does not read waits in the writer's transport, beyond what kernels hold."""
    one, other = net.connect()
    net.loops["b"].pause()
    for _ in range(100):
        one.transport.write(b"x" * 100_000)
    net.pass_s(5)
    assert one.transport.get_write_buffer_size() > 5_000_000
    net.loops["b"].resume()
    net.pass_s(5)
    assert len(other.heard) == 10_000_000
    assert one.transport.get_write_buffer_size() == 0


def test_slow_path_takes_its_time(net: Net) -> None:
    """At 10,000 bytes per second 20,000 bytes take two seconds."""
    one, other = net.connect()
    net.network.path("a", "b").bytes_per_s = 10_000
    for _ in range(20):
        one.transport.write(b"x" * 1000)
    net.pass_s(1)
    assert 5_000 < len(other.heard) < 15_000
    net.pass_s(1.5)
    assert len(other.heard) == 20_000


def frame(kind: int, body: str, *, group: int | None = None) -> bytes:
    """Return a frame as links write it; those with a peer of release 0.1.0 leave the group out."""
    content = msgspec.msgpack.encode((kind, body) if group is None else (kind, group, body))
    return len(content).to_bytes(4, "big") + content


def test_a_hostile_world_harms_messages_of_real_nodes() -> None:
    """What the nodes of a world really send is recognised, whatever protocol they agreed on."""
    report = run(make_plan(3, 3, hostile=True, faults=()), 20.0)
    assert sum(report.faults[name] for name in ("message-lost", "message-repeated", "message-late")) > 0


def test_hostile_network_touches_raft_messages_only(net: Net) -> None:
    """Of frames written together exactly those with Raft messages are lost; the others arrive as they are."""
    one, other = net.connect()
    chances = Chances(lost=1.0, repeated=0.0, late=0.0, late_us_max=US)
    hostile = net.network.hostile = Hostile(net.network, chances, Random(1))
    one.transport.write(frame(2, "forward") + frame(1, "raft") + frame(4, "ping"))
    one.transport.write(frame(2, "forward", group=0) + frame(1, "raft", group=0))
    net.pass_s(1)
    assert other.heard == frame(2, "forward") + frame(4, "ping") + frame(2, "forward", group=0)
    assert hostile.counts["message-lost"] == 2


def test_late_messages_come_on_a_later_connection(net: Net) -> None:
    """A message that was held back arrives even when its connection has been replaced since."""
    one, _ = net.connect()
    chances = Chances(lost=0.0, repeated=0.0, late=1.0, late_us_max=2 * US)
    net.network.hostile = Hostile(net.network, chances, Random(1))
    one.transport.write(frame(1, "from the past"))
    one.transport.abort()
    _, newer = net.connect()
    net.pass_s(3)
    assert newer.heard == frame(1, "from the past")


def test_endpoint_is_an_asyncio_transport(net: Net) -> None:
    """What links use of a transport is there: address, closing, buffer."""
    one, other = net.connect()
    assert isinstance(one.transport, Endpoint)
    assert one.transport.get_extra_info("peername")[0] == "b"
    one.transport.write(b"bye")
    one.transport.close()
    assert one.transport.is_closing()
    net.pass_s(1)
    assert (other.heard, other.ended) == (b"bye", [None])
