"""The loop with a replica that says what the test wants: what a `Ready` leads to, and in which order."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from cluster.consensus.log_digest import Difference
from cluster.consensus.messages import AppendEntries, Message, NewerTerm, Vote
from cluster.consensus.ready import Ready, SnapshotDue
from cluster.consensus.replica import Replica, Role
from cluster.errors import IdentityRefused, LogDiverged, NodeFailed, PeerContradicts
from cluster.loop import Loop, LoopWork
from cluster.peers.links import PeerLinks
from cluster.storage.journal import Journal
from cluster.storage.sync_runner import InPlace

DEADLINE_S = 20.0
NEVER_S = 3_600.0
"""A timer's period, in seconds, in which no test sees it ring a second time."""
HEARTBEAT = AppendEntries(term=1, commit_index=1)
VOTE = Vote(term=1)
DUE = SnapshotDue((b"last", 5, 1), (b"previous", 4, 1), b"members")


class _Sync:
    """A sync of which the node only writes down that it is run."""

    def __init__(self, node: "_Node") -> None:
        self._node = node
        self.error: OSError | None = None
        self.took_s = 0.0

    def run(self) -> None:
        """Write it down, or fail."""
        try:
            self._node._note("sync")
        except OSError as error:
            self.error = error


class _Node:
    """The loop's surroundings in one: replica, journal, links and owner write down what they are asked.

    `readies` are what the replica returns, one after the other, and an empty value when there is none left.
    `broken` is where something raises.
    """

    def __init__(self, *readies: Ready, broken: str = "", period_s: float = NEVER_S) -> None:
        self.log: list[object] = []
        self.readies = deque(readies)
        self.broken = broken
        self.faults: list[Exception] = []
        self.to_propose: list[bytes] = []
        self.has_members_to_propose = False
        self.role = Role("n1", 1, is_leader=True, is_candidate=False)
        self.has_part = True
        self.wants_tick_with_peer = False
        self.sync_times: list[float] = []
        self.syncs = InPlace()
        self.engine = self
        self.has_work = self.wants_sync = False
        self.news: deque[float] = deque()
        self.loop = Loop(
            cast("Replica", self),
            cast("Journal", self),
            cast("PeerLinks", self),
            LoopWork(*(getattr(self, name) for name in LoopWork._fields)),
            period_s=period_s,
            on_sync_begun=lambda _: None,
            on_timer=lambda _: None,
            on_sync=self.sync_times.append,
            syncs=self.syncs,
        )

    def _note(self, what: str, *details: object) -> None:
        self.log.append((what, *details) if details else what)
        if what == self.broken:
            raise OSError(what)

    def _next(self) -> Ready:
        return self.readies.popleft() if self.readies else Ready()

    # -- the replica

    def receive(self, peer_id: str, message: Message) -> Ready:
        self._note("receive", peer_id, message)
        if self.faults:
            raise self.faults.pop()
        return self._next()

    def tick(self, *, has_entry: bool) -> Ready:
        self._note("tick with an entry" if has_entry else "tick")
        return self._next()

    def propose(self, entries: Iterator[bytes]) -> Ready:
        self._note("propose", list(entries))
        return self._next()

    def news_due_in_s(self) -> float | None:
        return self.news.popleft() if self.news else None

    def peer_up(self, peer_id: str) -> bool:
        self._note("up", peer_id)
        return self.wants_tick_with_peer

    def peer_down(self, peer_id: str, *, is_replaced: bool) -> None:
        self._note("replaced" if is_replaced else "down", peer_id)

    def write_snapshot(self, due: SnapshotDue, encode_state: Callable[[], bytes]) -> None:
        self._note("snapshot", due, encode_state())

    # -- the journal and the links

    def begin_sync(self) -> "_Sync":
        return _Sync(self)

    def end_sync(self, sync: "_Sync") -> None:
        if sync.error is not None:
            raise sync.error

    def send_now(self, messages: list[tuple[str, Message]]) -> None:
        for peer_id, message in messages:
            self._note("send", peer_id, message)

    def ping(self) -> None:
        """Tell nobody."""

    # -- the group

    def has_entry(self) -> bool:
        return bool(self.to_propose)

    def entries(self) -> Iterator[bytes]:
        while self.to_propose:
            yield self.to_propose.pop(0)

    def restore(self, state: object) -> None:
        self._note("restore", state)

    def apply(self, index: int, entry: bytes) -> None:
        self._note("apply", index, entry)

    def lost(self, _peer_id: str) -> None:
        """Nothing was forwarded."""

    def greet(self, _peer_id: str) -> None:
        """Tell it nothing."""

    def encode_state(self) -> bytes:
        return b"the state"

    def parted(self, peer_id: str, difference: Difference) -> None:
        self._note("parted", peer_id, difference)

    def role_changed(self) -> None:
        self._note("role")

    def members_changed(self) -> None:
        self._note("members")

    def ticked(self) -> None:
        self._note("ticked")

    def look(self) -> None:
        self._note("time")

    def takes_part(self) -> bool:
        return self.has_part

    def failed(self) -> None:
        self.log.append("failed")


async def quiet() -> None:
    """Let everything happen that is due in this run of the event loop, and what that asks for."""
    for _ in range(3):
        await asyncio.sleep(0)


def everything() -> Ready:
    """Return a value that asks for everything there is."""
    return Ready(
        restored="state",
        is_role_changed=True,
        messages=[("n2", HEARTBEAT), ("n3", HEARTBEAT)],
        committed=[(4, b"four"), (5, b"five")],
        are_members_changed=True,
        snapshot=DUE,
        promises=[("n2", VOTE)],
        needs_sync=True,
        wants_tick=True,
    )


# -- the order ----------------------------------------------------------------------------------------------


async def test_everything_happens_in_the_order_of_the_fields() -> None:
    """Restored, role, messages on their way, apply, members, snapshot; then the sync, and then promises."""
    node = _Node(everything())
    node.loop.receive("n2", HEARTBEAT)
    at_once = [
        ("receive", "n2", HEARTBEAT),
        ("restore", "state"),
        "role",
        ("send", "n2", HEARTBEAT),
        ("send", "n3", HEARTBEAT),
        ("apply", 4, b"four"),
        ("apply", 5, b"five"),
        "members",
        ("snapshot", DUE, b"the state"),
    ]
    assert node.log == at_once
    await quiet()
    assert node.log == [*at_once, "sync", ("send", "n2", VOTE), "tick", "ticked"]


async def test_an_empty_value_leads_to_nothing() -> None:
    """A message that changes nothing costs neither a tick nor a sync."""
    node = _Node(Ready())
    node.loop.receive("n2", HEARTBEAT)
    await quiet()
    assert node.log == [("receive", "n2", HEARTBEAT)]


async def test_another_history_is_told_before_anything_is_done() -> None:
    """Whoever finds out that this node is wrong can stop it in time."""
    difference = Difference(5, 1, 17, 18)
    node = _Node(Ready(difference=difference, messages=[("n2", HEARTBEAT)]))
    node.loop.receive("n2", HEARTBEAT)
    told = [("receive", "n2", HEARTBEAT), ("parted", "n2", difference)]
    assert node.log == [*told, ("send", "n2", HEARTBEAT)]


async def test_a_node_that_is_found_wrong_does_nothing_more() -> None:
    """It neither sends nor applies what the message led to besides."""
    ready = Ready(difference=Difference(5, 1, 17, 18), messages=[("n2", HEARTBEAT)], committed=[(4, b"four")])
    node = _Node(ready)
    wrong = LogDiverged("wrong")
    node.loop._work = node.loop._work._replace(parted=lambda *_: node.loop.fail(wrong))
    node.loop.receive("n2", HEARTBEAT)
    await quiet()
    assert node.loop.failure.result() is wrong
    assert node.log == [("receive", "n2", HEARTBEAT), "failed"]


async def test_an_entry_is_stamped_by_the_state_behind_the_tick() -> None:
    """The role is known and everything committed is applied before the next entry is made."""
    node = _Node(
        Ready(is_role_changed=True, messages=[("n2", HEARTBEAT)], committed=[(4, b"four")]),
        Ready(messages=[("n3", NewerTerm(term=1))], needs_sync=True),
    )
    node.to_propose = [b"five"]
    node.loop.request_tick()
    await quiet()
    assert node.log == [
        "tick with an entry",
        "role",
        ("send", "n2", HEARTBEAT),
        ("apply", 4, b"four"),
        ("propose", [b"five"]),
        ("send", "n3", NewerTerm(term=1)),
        "ticked",
        "sync",
    ]


async def test_without_an_entry_nothing_is_proposed() -> None:
    """A tick of an idle node does not ask for entries; a member list alone is proposed, too."""
    node = _Node()
    node.loop.request_tick()
    await quiet()
    assert node.log == ["tick", "ticked"]
    node.has_members_to_propose = True
    node.loop.request_tick()
    await quiet()
    assert node.log[2:] == ["tick", ("propose", []), "ticked"]


# -- exceptions that are no `Exception` ---------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
async def test_what_ends_the_process_ends_the_node_first(error: type[BaseException]) -> None:
    """A signal in the middle of a piece of work: the node is over, nothing is promised, and it goes on up."""
    node = _Node()

    def work() -> None:
        node.loop.request_sync()
        raise error

    with pytest.raises(error):
        node.loop.run(work)
    await quiet()
    assert node.log == ["failed"]
    other = _Node()
    other._next = work  # type: ignore[method-assign,assignment]
    with pytest.raises(error):
        other.loop.receive("n2", HEARTBEAT)
    assert other.log == [("receive", "n2", HEARTBEAT), "failed"]
    assert other.loop.has_failed
    assert isinstance(node.loop.failure.result(), NodeFailed)


async def test_a_node_without_memory_to_say_why_stops_all_the_same() -> None:
    """Memory that is missing for the message, too, keeps nobody from hearing that the node broke."""

    class Greedy(MemoryError):
        def __repr__(self) -> str:
            raise MemoryError

    def work() -> None:
        raise Greedy

    node = _Node()
    with pytest.raises(MemoryError):
        node.loop.run(work)
    assert node.loop.has_failed
    assert isinstance(node.loop.failure.result(), NodeFailed)
    assert node.log == ["failed"]
    node.loop.run(lambda: pytest.fail("a node that broke works on"))


async def test_a_timer_that_cannot_be_set_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose timer rings no more would neither lead nor follow, and nobody would know."""
    node = _Node()
    monkeypatch.setattr(node.loop, "_set_timer", lambda: (_ for _ in ()).throw(MemoryError))
    node.loop.start()
    assert isinstance(node.loop.failure.result(), NodeFailed)


# -- promises -----------------------------------------------------------------------------------------------


async def test_promises_of_many_messages_share_a_sync() -> None:
    """Everything that was promised until the sync begins leaves behind it, in order."""
    node = _Node(
        Ready(promises=[("n2", VOTE)], needs_sync=True),
        Ready(promises=[("n3", VOTE)], needs_sync=True),
        Ready(promises=[("n2", HEARTBEAT)], needs_sync=True),
    )
    for _ in range(3):
        node.loop.receive("n2", HEARTBEAT)
    await quiet()
    told = [("send", "n2", VOTE), ("send", "n3", VOTE), ("send", "n2", HEARTBEAT)]
    assert node.log[3:] == ["sync", *told]
    assert len(node.sync_times) == 1
    assert node.sync_times[0] >= 0


async def test_a_promise_leaves_once() -> None:
    """The next sync sends nothing again."""
    node = _Node(Ready(promises=[("n2", VOTE)], needs_sync=True))
    node.loop.receive("n2", HEARTBEAT)
    await quiet()
    node.loop.request_sync()
    await quiet()
    assert node.log[-3:] == ["sync", ("send", "n2", VOTE), "sync"]


async def test_promises_of_a_broken_connection_are_dropped() -> None:
    """What was promised on the connection before must not arrive on the next one; others keep theirs."""
    node = _Node(Ready(promises=[("n2", VOTE), ("n3", VOTE)], needs_sync=True))
    node.loop.receive("n2", HEARTBEAT)
    node.loop.peer_down("n2")
    node.loop.peer_up("n2")
    await quiet()
    assert node.log[1:] == [("down", "n2"), ("up", "n2"), "sync", ("send", "n3", VOTE)]


async def test_a_replaced_connection_is_told_as_that() -> None:
    """Whether the leader is lost with it is for the replica to say."""
    node = _Node(Ready())
    node.loop.peer_down("n2", is_replaced=True)
    node.loop.peer_up("n2")
    await quiet()
    assert node.log == [("replaced", "n2"), ("up", "n2")]


async def test_a_leader_ticks_when_a_peer_is_there() -> None:
    """What was lost with the connection before is sent again, and not only with the next heartbeat."""
    node = _Node(Ready())
    node.wants_tick_with_peer = True
    node.loop.peer_up("n2")
    await quiet()
    assert node.log[:2] == [("up", "n2"), "tick"]


async def test_a_failed_sync_lets_no_promise_out() -> None:
    """What could not be written was not promised, and never will be."""
    node = _Node(Ready(promises=[("n2", VOTE)], needs_sync=True), broken="sync")
    node.loop.receive("n2", HEARTBEAT)
    await quiet()
    assert node.log[1:] == ["sync", "failed"]
    node.broken = ""
    node.loop.request_sync()
    await quiet()
    assert node.log[-1] == "failed"
    assert node.sync_times == []


# -- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step",
    [
        "receive",
        "restore",
        "role",
        "send",
        "apply",
        "members",
        "snapshot",
        "sync",
        "tick",
        "ticked",
    ],
)
async def test_a_failure_in_any_step_ends_the_node_once(step: str) -> None:
    """The owner hears of it once, the cause is kept, and no callback does anything any more."""
    node = _Node(everything(), everything(), broken=step)
    node.loop.receive("n2", HEARTBEAT)
    await quiet()
    assert node.loop.failure.done()
    failure = node.loop.failure.result()
    assert isinstance(failure, NodeFailed)
    assert str(OSError(step)) in str(failure)
    assert node.log.count("failed") == 1
    assert node.log[-1] == "failed"
    node.broken = ""
    so_far = list(node.log)
    node.loop.receive("n2", HEARTBEAT)
    node.loop.peer_up("n2")
    node.loop.peer_down("n2")
    node.loop.request_tick()
    node.loop.request_sync()
    node.loop.start()
    await quiet()
    assert node.log == so_far


async def test_nothing_behind_a_failed_step_is_done() -> None:
    """An entry that cannot be applied ends the node before the next one, the snapshot and the promises."""
    node = _Node(everything(), broken="apply")
    node.loop.receive("n2", HEARTBEAT)
    await quiet()
    assert node.log[-2:] == [("apply", 4, b"four"), "failed"]


async def test_the_fault_of_a_peer_stops_nobody() -> None:
    """It goes to the link that brought it, which is cut; what comes next is taken as if nothing had been."""
    node = _Node()
    node.faults.append(PeerContradicts("another history"))
    with pytest.raises(PeerContradicts, match="another history"):
        node.loop.receive("n2", HEARTBEAT)
    assert not node.loop.failure.done()
    node.loop.receive("n2", HEARTBEAT)
    assert node.log == [("receive", "n2", HEARTBEAT)] * 2


async def test_a_majority_that_contradicts_stops_the_node() -> None:
    """That is not the fault of a peer any more."""
    node = _Node()
    node.faults.append(NodeFailed("a majority has other entries"))
    node.loop.receive("n2", HEARTBEAT)
    assert str(node.loop.failure.result()) == "a majority has other entries"


async def test_the_first_failure_counts() -> None:
    """What this node says of itself at last is what broke it first."""
    node = _Node()
    first, second = NodeFailed("first"), IdentityRefused("second")
    node.loop.fail(first)
    node.loop.fail(second)
    assert node.loop.failure.result() is first
    assert node.log == ["failed"]


@pytest.mark.parametrize("failure", [NodeFailed("the disk"), IdentityRefused("removed")])
async def test_a_failure_with_a_reason_is_kept_as_it_is(failure: Exception) -> None:
    """What people are told of is not wrapped."""
    node = _Node()
    node.loop.fail(failure)
    assert node.loop.failure.result() is failure


async def test_a_failed_proposal_ends_the_node() -> None:
    """An entry that the log could not take is lost to nobody: its clients send it to the next leader."""
    node = _Node(Ready(messages=[("n2", HEARTBEAT)]), broken="propose")
    node.to_propose = [b"five"]
    node.loop.request_tick()
    await quiet()
    assert node.log == [
        "tick with an entry",
        ("send", "n2", HEARTBEAT),
        ("propose", [b"five"]),
        "failed",
    ]


# -- requests and the timer ---------------------------------------------------------------------------------


async def test_requests_of_ticks_and_syncs_are_coalesced() -> None:
    """However many ask within one run of the event loop, there is one tick and one sync."""
    node = _Node()
    for _ in range(5):
        node.loop.request_tick()
        node.loop.request_sync()
    assert node.log == [], "not before this run of the event loop ends"
    await quiet()
    assert node.log == ["tick", "ticked", "sync"]
    node.loop.request_tick()
    node.loop.request_sync()
    await quiet()
    assert node.log[3:] == ["tick", "ticked", "sync"], "later requests count again"


async def test_a_tick_that_asks_for_the_next_one_gets_it() -> None:
    """A request made during a tick is not part of it."""
    node = _Node(Ready(wants_tick=True), Ready(wants_tick=True), Ready())
    node.loop.request_tick()
    await quiet()
    await quiet()
    assert node.log == ["tick", "ticked"] * 3


async def test_the_timer_ticks_at_once_and_again() -> None:
    """A started node ticks without being asked; clocks and deadlines are looked at first."""
    node = _Node(period_s=0.001)
    node.loop.start()
    assert node.log == ["time", "tick", "ticked"]
    async with asyncio.timeout(DEADLINE_S):
        while len(node.log) < 9:  # noqa: ASYNC110 - the timer has no event to tell of it
            await asyncio.sleep(0.001)
    assert node.log[:9] == ["time", "tick", "ticked"] * 3
    node.loop.stop()


async def test_a_node_that_takes_no_part_only_looks_at_the_time() -> None:
    """In a new cluster nobody ticks before all have met; what clients wait for still ends in time."""
    node = _Node()
    node.has_part = False
    node.loop.start()
    await quiet()
    assert node.log == ["time"]
    node.loop.stop()


async def test_stop_ends_the_timer() -> None:
    """A stopped node does nothing any more, whatever comes; stopping again changes nothing."""
    node = _Node()
    node.loop.start()
    so_far = list(node.log)
    timer = node.loop._timer
    assert timer is not None
    assert not timer.cancelled()
    node.loop.stop()
    node.loop.stop()
    assert timer.cancelled()
    node.loop.request_tick()
    node.loop.request_sync()
    node.loop.receive("n2", HEARTBEAT)
    node.loop.start()
    await quiet()
    assert node.log == so_far
    assert not node.loop.failure.done()


async def test_only_a_leader_has_news() -> None:
    """Who follows is not even asked."""
    node = _Node()
    node.role = node.role._replace(is_leader=False)
    node.news.append(0.001)
    node.loop.request_tick()
    await quiet()
    assert (node.log, node.loop._news_timer, len(node.news)) == (["tick", "ticked"], None, 1)
    node.loop.stop()


@pytest.mark.parametrize(
    ("due_in_s", "ticks"),
    [
        ([0.001, 0.0], 2),
        ([0.001], 1),
        ([0.002, 0.001, 0.001, 0.0], 2),
        ([0.002, 0.001], 1),
    ],
    ids=["due", "told by an entry", "later news", "later news, told by an entry"],
)
async def test_it_ticks_when_news_are_due(due_in_s: list[float], ticks: int) -> None:
    """Once, and only if no entry has told them meanwhile; what was told is followed by later news, or not."""
    node = _Node()
    node.news.extend(due_in_s)
    node.loop.request_tick()
    await quiet()
    async with asyncio.timeout(DEADLINE_S):
        while node.loop._news_timer is not None:  # noqa: ASYNC110 - the timer has no event to tell of it
            await asyncio.sleep(0.001)
    await quiet()
    assert node.log == ["tick", "ticked"] * ticks
    node.loop.stop()
