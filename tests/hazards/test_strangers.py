"""Strangers on the peer port (H10): the bare library runs their code and counts votes; our node does neither.

Real sockets on loopback, with the library's own transport.
"""

import os
import pickle
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated

from scripts.lib import ports
from tests.unit.cluster.peers.test_links import acceptor, raw, until

DEADLINE_S = 20.0
FLAG = "HOLDFAST_TEST_STRANGER_WAS_HERE"
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


class SetsFlag:
    """Sets a flag in the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"import os; os.environ[{FLAG!r}] = 'yes'",)


class Stock(SyncObj):  # type: ignore[misc]
    """The unmodified library on its own transport, with a list for a state machine."""

    def __init__(self, address: str, others: list[str]) -> None:
        super().__init__(address, others, SyncObjConf(autoTick=False, bindAddress=address))
        self.values: list[str] = []

    @replicated  # type: ignore[untyped-decorator]
    def note(self, value: str) -> None:
        """Append a value."""
        self.values.append(value)


def free_addresses(count: int) -> list[str]:
    """Return addresses of loopback that nobody else takes."""
    return [f"{ports.HOST}:{port}" for port in ports.reserve(count)]


@contextmanager
def stock_node() -> Iterator[tuple[Stock, list[str]]]:
    """Run one stock node of three; the other two are dead."""
    address, *others = sorted(free_addresses(3))
    node = Stock(address, others)
    try:
        yield node, [address, *others]
    finally:
        node.destroy()
        node.doTick()


def tick_until(node: Stock, condition: Callable[[], object]) -> None:
    """Tick a stock node until something is true."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "did not come true"
        node.doTick(0.01)


def frame(message: Any) -> bytes:
    """Return a message as the library's transport sends it."""
    data = zlib.compress(pickle.dumps(message, 2), 3)
    return struct.pack("i", len(data)) + data


@contextmanager
def stranger(node: Stock, address: str) -> Iterator[socket.socket]:
    """Connect to a stock node."""
    host, _, port = address.rpartition(":")
    tick_until(node, lambda: node._SyncObj__transport.ready)
    with socket.create_connection((host, int(port))) as connection:
        yield connection


@pytest.fixture(autouse=True)
def _no_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin and end without the flag."""
    monkeypatch.delenv(FLAG, raising=False)


def test_the_bare_library_runs_what_a_stranger_sends() -> None:
    """H10: the first frame of a connection that nobody knows is unpickled, and runs code in the node."""
    with stock_node() as (node, (address, *_)), stranger(node, address) as connection:
        connection.sendall(frame(SetsFlag()))
        tick_until(node, lambda: os.environ.get(FLAG) == "yes")


async def test_the_same_bytes_get_nothing_from_our_port(caplog: pytest.LogCaptureFixture) -> None:
    """H10: our node runs nothing, answers nothing, hangs up, and writes down who it was."""
    async with acceptor() as (links, host, address), raw(address) as connection:
        connection.writer.write(frame(SetsFlag()))
        connection.writer.write(frame({"type": "response_vote", "term": 1}))
        assert await connection.rest() == b""
        await until(lambda: not links._all)
        assert host.log == []
    assert os.environ.get(FLAG) is None
    assert "event=peer-rejected peer=stranger address=('127.0.0.1'" in caplog.text


def test_a_stranger_makes_the_bare_library_lead_and_answer_alone() -> None:
    """H10: a stranger that gives the address of a peer as its name votes for it, and is counted."""
    with stock_node() as (node, (address, peer, _)), stranger(node, address) as connection:
        connection.sendall(frame(peer))
        voted_in: set[int] = set()

        def is_elected() -> bool:
            if node._getTerm() not in voted_in:
                voted_in.add(node._getTerm())
                connection.sendall(frame({"type": "response_vote", "term": node._getTerm()}))
            return bool(node._isLeader())

        tick_until(node, is_elected)
        outcomes: list[int] = []
        node.note("a lock", callback=lambda _, outcome: outcomes.append(outcome))
        says_yes = {"type": "next_node_idx", "next_node_idx": 9, "reset": False, "success": True}
        connection.sendall(frame(says_yes))
        tick_until(node, lambda: outcomes)
    assert outcomes == [FAIL_REASON.SUCCESS]


async def test_the_name_of_a_peer_opens_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """H10: our node asks for a proof; a stranger that only knows the names is never heard as a peer."""
    async with acceptor() as (_, host, address), raw(address) as connection:
        await connection.hello()
        connection.writer.write(frame("a"))
        connection.writer.write(frame({"type": "response_vote", "term": 1}))
        assert await connection.rest() == b""
        assert host.log == []
    assert "event=peer-rejected peer=a" in caplog.text
